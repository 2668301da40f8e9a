"""Lists and ranges of quantities on the command line: `4KiB,1MiB`, `4KiB..4GiB`, `0..5ms/21`."""

from __future__ import annotations

from collections.abc import Callable

import click

from ..schedules.errors import UsageError

MAX_VALUES = 4096


class Series(click.ParamType[list[float]]):
    """Values separated by commas, each a quantity or a range `A..B` or `A..B/COUNT`.

    `doubling` ranges go A, 2A, 4A, ... and end with B; with a count they are spread evenly over the
    logarithm. Others have 11 values, or as many as the count says, spread evenly.
    """

    name = "values"

    def __init__(self, parse: Callable[[str], float], doubling: bool, whole: bool) -> None:
        self._parse, self._doubling, self._whole = parse, doubling, whole

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> list[float]:
        """Turns text into the values, in the order given."""
        if isinstance(value, list):
            return value
        try:
            values = [v for part in str(value).split(",") for v in self._part(part.strip())]
        except UsageError as error:
            self.fail(str(error), param, ctx)
        if len(values) > MAX_VALUES:
            self.fail(f"{len(values)} values are more than {MAX_VALUES}", param, ctx)
        # Twelve digits: what a person would write, without the noise of spreading.
        return [round(v) for v in values] if self._whole else [float(f"{v:.12g}") for v in values]

    def _part(self, text: str) -> list[float]:
        if ".." not in text:
            return [self._parse(text)]
        span, slash, number = text.partition("/")
        first, _, last = span.partition("..")
        low, high = self._parse(first), self._parse(last)
        if low > high:
            raise UsageError(f"{text!r}: a range goes from the smaller value to the larger")
        if slash and (not number.isdigit() or not 2 <= int(number) <= MAX_VALUES):
            raise UsageError(f"{text!r}: the count after / must be 2 to {MAX_VALUES}")
        if self._doubling and low <= 0:
            raise UsageError(f"{text!r}: this range doubles and must start above 0")
        return self._spread(low, high, int(number) if slash else None)

    def _spread(self, low: float, high: float, count: int | None) -> list[float]:
        if self._doubling and count is None:
            values = [low]
            while values[-1] * 2 < high:
                values.append(values[-1] * 2)
            return [*values, high] if high > low else values
        steps = (count or 11) - 1
        if self._doubling:
            return [low * (high / low) ** (i / steps) for i in range(steps)] + [high]
        return [low + (high - low) * i / steps for i in range(steps)] + [high]


def parse_count(text: str) -> int:
    """A whole number, for ranks.

    Raises:
        UsageError: it is none.
    """
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a number of ranks; write for example 8 or 4..256") from None
