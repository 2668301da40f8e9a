"""Options of `stragglar bench`'s commands, and the request that they make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ..schedules.errors import UsageError
from ..schedules.units import parse_seconds
from ..testbed.contenders import PLAN_ALPHA
from ..testbed.links import WORDS, Links
from ..testbed.network import Network
from .options import BANDWIDTH, SECONDS, SIZE, Command, Quantity, late_option

ALGORITHMS = "ring,stragglar:1,stragglar:10,split"


def plain_seconds(text: str) -> float:
    """A time in seconds, with a unit or without: `1.1`, `1.1s`, `200ms`.

    Raises:
        UsageError: not a time.
    """
    try:
        return float(text)
    except ValueError:
        return parse_seconds(text)


PLAIN_SECONDS = Quantity("seconds", plain_seconds)


class LateBy(click.ParamType[str | float]):
    """`full`, `half`, `random`, or a time."""

    name = "delay"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str | float:
        """Keeps the words and parses the time."""
        if str(value) in WORDS:
            return str(value)
        try:
            return plain_seconds(str(value))
        except UsageError as error:
            self.fail(f"{', '.join(WORDS)} or a time: {error}", param, ctx)


def network_options(command: Command) -> Command:
    """`--hosts`, `--rate` and `--mtu`."""
    rate = "Of a port, each way."
    return _with(
        command,
        click.option("--hosts", type=int, default=8, show_default=True, help="Number of hosts."),
        click.option("--rate", type=BANDWIDTH, default="200mbit", show_default=True, help=rate),
        click.option("--mtu", type=int, default=9000, show_default=True, help="Bytes of the largest packet."),
    )


def buffer_options(command: Command) -> Command:
    """`--seconds` or `--bytes`."""
    seconds = "Size of the buffer as the seconds it takes through a port.  [default: 1]"
    return _with(
        command,
        click.option("--seconds", type=PLAIN_SECONDS, help=seconds),
        click.option("--bytes", "size", type=SIZE, help="Size of the buffer, instead of --seconds."),
    )


def late_by_option(command: Command) -> Command:
    """`--late-by`."""
    return _with(
        command,
        click.option(
            "--late-by",
            type=LateBy(),
            default="full",
            show_default=True,
            help="full (1.1 times what hides the early ranks' ReduceScatter), half (of what hides it), random"
            " (up to full, another in every repetition), or a time.",
        ),
    )


def measure_options(command: Command) -> Command:
    """How to measure, in `links` and `sweep` alike."""
    alpha = "Time of a round without data that split and plan reckon with, not theory.  [default: 500us]"
    return _with(
        command,
        late_option(help="Who is late; several may be.  [default: the last rank]"),
        click.option(
            "--algorithms",
            default=ALGORITHMS,
            show_default=True,
            metavar="NAME,NAME,..",
            help="What to measure; see above.",
        ),
        _number("--repeat", 5, "Measured repetitions of each algorithm."),
        _number("--warmup", 1, "Repetitions before, not measured."),
        click.option("--dtype", default="f32", show_default=True, help="f16, bf16, f32, f64, i32 or i64."),
        click.option("--op", default="sum", show_default=True, help="sum, max, min or prod."),
        _number("--seed", 0, "Of the data and of random delays."),
        click.option("--alpha", type=SECONDS, default=PLAN_ALPHA, help=alpha),
        click.option(
            "--gloo-python",
            metavar="PYTHON",
            envvar="STRAGGLAR_GLOO_PYTHON",
            show_envvar=True,
            help="An interpreter with torch and numpy, for gloo.",
        ),
        click.option(
            "--time-limit", type=SECONDS, default="60s", show_default=True, help="Of a rank's wait."
        ),
        click.option("--force", is_flag=True, help="Report also what the CPU may have limited."),
        click.option("-o", "--output", metavar="FILE", help="Write the JSON object to a file, too."),
    )


def links_request(
    network: Network,
    *,
    algorithms: str,
    size: int | None,
    seconds: float | None,
    **rest: Any,  # noqa: ANN401
) -> Links:
    """The request that the options make.

    Raises:
        UsageError: they contradict each other.
    """
    names = tuple(name.strip() for name in algorithms.split(","))
    if size is None and seconds is None:
        seconds = 1.0
    return Links(network, names, seconds=seconds, bytes=size, **rest)


def _number(name: str, default: int, help: str) -> Callable[[Command], Command]:
    return click.option(name, type=int, default=default, show_default=True, help=help)


def _with(command: Command, *options: Callable[[Command], Command]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command
