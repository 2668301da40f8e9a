"""Options that several commands share: sizes, times, bandwidths, ranks, and how errors are worded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..schedules import Link, units
from ..schedules.errors import UsageError
from ..schedules.profile import load_profile

Command = TypeVar("Command", bound=Callable[..., Any])


class Quantity(click.ParamType[float]):
    """A number with a unit, parsed by one of the functions in `schedules.units`."""

    def __init__(self, name: str, parse: Callable[[str], float]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Turns text into a number; a number (a default) stays as it is."""
        if isinstance(value, int | float):
            return value
        try:
            return self._parse(str(value))
        except UsageError as error:
            self.fail(str(error), param, ctx)


class RankList(click.ParamType[tuple[int, ...]]):
    """Ranks separated by commas, e.g. `3` or `3,5`."""

    name = "ranks"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Turns text into ranks; whether they exist is for the request to say."""
        try:
            return tuple(int(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not a rank, or ranks separated by commas", param, ctx)


class RankGroups(click.ParamType[tuple[tuple[int, ...], ...]]):
    """Groups of ranks in order, e.g. `3/5,6`: rank 3, then 5 and 6 together."""

    name = "groups"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[tuple[int, ...], ...]:
        """Turns text into groups; whether the ranks exist is for the request to say."""
        ranks = RankList()
        try:
            return tuple(ranks.convert(group, param, ctx) for group in str(value).split("/"))
        except click.BadParameter:
            self.fail(f"{value!r} is not groups of ranks in order of arrival, such as 3/5,6", param, ctx)


class Times(click.ParamType[tuple[float, ...]]):
    """Times separated by commas, e.g. `0,0,200ms`."""

    name = "times"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        """Turns text into seconds; whether there is one for each rank is for the request to say."""
        return tuple(SECONDS.convert(part, param, ctx) for part in str(value).split(","))


class Span(click.ParamType[range]):
    """An inclusive range such as `3..9`, or one number."""

    name = "range"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> range:
        """Turns `a..b` into `range(a, b + 1)`."""
        first, dots, last = str(value).partition("..")
        try:
            span = range(int(first), int(last if dots else first) + 1)
        except ValueError:
            self.fail(f"{value!r} is not a range such as 3..9", param, ctx)
        if not span or span.start < 0:
            self.fail(f"{value!r} is empty: the first number must not be above the last", param, ctx)
        return span


SIZE = Quantity("size", units.parse_size)
SECONDS = Quantity("time", units.parse_seconds)
TIMES = Times()
BANDWIDTH = Quantity("bandwidth", units.parse_bandwidth)


def late_option(*, required: bool = False, help: str) -> Callable[[Command], Command]:
    """`--late`, and `--straggler`, the paper's word for the same; may be given several times."""
    return click.option(
        "--late",
        "--straggler",
        "late",
        type=RankList(),
        multiple=True,
        metavar="RANK[,RANK]",
        callback=lambda _ctx, _param, value: tuple(rank for ranks in value for rank in ranks),
        required=required,
        help=help,
    )


groups_option = click.option(
    "--arrival-groups",
    "groups",
    type=RankGroups(),
    metavar="RANK[,RANK]/..",
    help="Late ranks one group after another, e.g. 3/5,6: 3 comes first, then 5 and 6; instead of --late.",
)


def output_option(what: str, default: str | None = "-") -> Callable[[Command], Command]:
    """`-o`, the file a command writes; `-` is standard output."""
    return click.option("-o", "--output", default=default, metavar="FILE", help=what, show_default=True)


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")

input_argument = click.argument("file", metavar="FILE")


def link_of(alpha: float | None, bandwidth: float | None, profile: str | None) -> Link:
    """The port to reckon with, from a profile or from the options.

    Raises:
        UsageError: both are given.
    """
    if profile is None:
        return Link(3e-6 if alpha is None else alpha, 450 * 2.0**30 if bandwidth is None else bandwidth)
    if alpha is not None or bandwidth is not None:
        raise UsageError("--profile says alpha and bandwidth: leave --alpha and --bandwidth out")
    return load_profile(profile)
