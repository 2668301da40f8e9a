"""What the columns of an arrival trace mean, told from their names alone: who, when, and in which unit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import lru_cache

from .errors import FormatError
from .ir import MAX_RANKS

POWERS = {"s": 12, "ms": 9, "us": 6, "ns": 3}
"""Unit -> power of ten of picoseconds in it."""

_ITERATIONS = ("iteration", "iter", "step")
_STEMS = ("arrival", "arrival_time", "start", "start_time", "timestamp", "time", "ts")
_BRACKETS = re.compile(r"\s*[(\[]\s*(s|ms|us|µs|μs|ns)\s*[)\]]\Z")
_TIME = re.compile(rf"({'|'.join(_STEMS)})_(s|ms|us|ns)")
_WIDE = re.compile(r"rank_?([0-9]{1,6})(?:_(s|ms|us|ns))?")
_COUNT = re.compile(r"[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,25}(?:\.[0-9]{0,25})?|\.[0-9]{1,25})(?:[eE][+-]?[0-9]{1,2})?")


@dataclass(frozen=True, slots=True)
class Layout:
    """Where in a row things stand.

    Attributes:
        iteration: number of the column, or None: rows are iterations in order (wide form only).
        rank: number of the column in the long form, None in the wide one.
        times: (column, rank, power of ten) of every time; the rank is -1 in the long form.
        width: number of columns.
    """

    iteration: int | None
    rank: int | None
    times: tuple[tuple[int, int, int], ...]
    width: int


@lru_cache(maxsize=64)
def layout(names: tuple[str, ...]) -> Layout:
    """Reads column names; raises `FormatError` (without a place) where they are not understood."""
    plain = [_plain(name) for name in names]
    iteration = _one(plain, _ITERATIONS, "iteration")
    rank = _one(plain, ("rank",), "rank")
    wide = [(at, match) for at, name in enumerate(plain) if (match := _WIDE.fullmatch(name))]
    if rank is not None and wide:
        raise FormatError("columns rank and rank_0 together: use one form")
    if wide:
        return Layout(iteration, None, _wide(wide), len(names))
    if rank is None or iteration is None:
        lacking = "rank" if rank is None else "iteration"
        raise FormatError(
            f"no column {lacking}: expected iteration, rank, arrival_s (_ms, _us, _ns), or rank_0, rank_1, .."
        )
    at, power = _time(plain)
    return Layout(iteration, rank, ((at, -1, power),), len(names))


def _plain(name: str) -> str:
    # `ts (us)` is ts_us, and both mu are u.
    lower = _BRACKETS.sub(r"_\1", name.strip().lower())
    return lower.replace("µ", "u").replace("μ", "u")


def _one(plain: list[str], wanted: tuple[str, ...], what: str) -> int | None:
    found = [at for at, name in enumerate(plain) if name in wanted]
    if len(found) > 1:
        raise FormatError(f"more than one column for the {what}")
    return found[0] if found else None


def _time(plain: list[str]) -> tuple[int, int]:
    found = [(at, match) for at, name in enumerate(plain) if (match := _TIME.fullmatch(name))]
    if not found:
        unitless = next((name for name in plain if name in _STEMS), None)
        hint = f": {unitless} has no unit, name it {unitless}_us or the like" if unitless else ""
        raise FormatError(f"no time column (arrival_s, start_ns, ts_us, ..){hint}")
    best = min(_STEMS.index(match[1]) for _, match in found)
    chosen = [(at, POWERS[match[2]]) for at, match in found if _STEMS.index(match[1]) == best]
    if len(chosen) > 1:
        raise FormatError(f"more than one column {_STEMS[best]}: keep one unit")
    return chosen[0]


def _wide(found: list[tuple[int, re.Match[str]]]) -> tuple[tuple[int, int, int], ...]:
    times = tuple((at, int(match[1]), POWERS[match[2] or "s"]) for at, match in found)
    ranks = sorted(rank for _, rank, _ in times)
    if ranks != list(range(len(ranks))):
        raise FormatError(f"columns of {len(ranks)} ranks must be rank_0 to rank_{len(ranks) - 1}, each once")
    if len(ranks) > MAX_RANKS:
        raise FormatError(f"more than {MAX_RANKS} ranks")
    return times


def count(text: str, what: str, limit: int) -> int:
    """An iteration or a rank, 0 to `limit` - 1; raises `FormatError` (without a place)."""
    value = int(text) if _COUNT.fullmatch(text) else -1
    if not 0 <= value < limit:
        raise FormatError(f"{what} must be a whole number from 0 to {limit - 1}, not {text[:40]!a}")
    return value


def picoseconds(text: str, power: int) -> int:
    """A time, exactly, as whole picoseconds; raises `FormatError` (without a place).

    Clocks count nanoseconds since 1970: a float could not tell two of them apart.

    >>> picoseconds("1700000000.000000001", POWERS["s"])
    1700000000000000001000
    """
    try:
        value = Decimal(text).scaleb(power) if _NUMBER.fullmatch(text) else None
    except InvalidOperation:
        value = None
    # A double has 17 digits, a clock 19; 30 before the point would be a million times the age of the world.
    if value is None or value.adjusted() > 30:
        raise FormatError(f"not a time: {text[:40]!a}")
    return round(value)
