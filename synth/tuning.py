"""A table size x delay -> request, planned ahead, that runtimes look up at call time.

`stragglar tune` writes one. Reading it costs no planning, and `TuningTable.lookup` no more than two binary
searches.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from itertools import pairwise
from typing import Any

from ..schedules.cost import Link
from ..schedules.errors import FormatError, UsageError
from ..schedules.files import read_bounded, write_atomic
from .families import count_rounds
from .planner import MAX_CHUNKS, Situation, plan
from .request import Request

FORMAT = "stragglar-tuning"
VERSION = 1
MAX_BYTES = 1 << 24
MAX_CELLS = 1 << 16

_KEYS = {"format", "version", "ranks", "late", "link", "sizes", "delays", "choices"}
_OPTIONS = {f.name for f in fields(Request)} - {"ranks", "late", "groups", "before"}


@dataclass(frozen=True, slots=True)
class TuningTable:
    """The planned request for every tabled size and delay.

    Attributes:
        ranks: n.
        late: the late rank planned for.
        link: alpha and bandwidth that it was planned with.
        sizes: bytes, ascending.
        delays: seconds, ascending.
        choices: one tuple a size, one request a delay.
    """

    ranks: int
    late: int
    link: Link
    sizes: tuple[int, ...]
    delays: tuple[float, ...]
    choices: tuple[tuple[Request, ...], ...]

    def __post_init__(self) -> None:
        for name, axis in (("sizes", self.sizes), ("delays", self.delays)):
            if not axis or any(a >= b for a, b in pairwise(axis)):
                raise UsageError(f"the {name} of a tuning table must be ascending, and at least one")
        if [len(row) for row in self.choices] != [len(self.delays)] * len(self.sizes):
            raise UsageError("a tuning table has one choice for every size and delay")

    def lookup(self, size: int, delay: float) -> Request:
        """The request tabled for the largest size and delay that are not above these.

        Below the first of either, the first. Taking the smaller delay is the safe side: its pre phase
        is sure to be over.
        """
        row = max(0, bisect_right(self.sizes, size) - 1)
        column = max(0, bisect_right(self.delays, delay) - 1)
        return self.choices[row][column]


def tune(
    ranks: int,
    late: int,
    sizes: Sequence[int],
    delays: Sequence[float],
    link: Link,
    max_chunks: int = MAX_CHUNKS,
) -> TuningTable:
    """Plans every size and delay.

    Raises:
        UsageError: too many of them, or contradictory values.
    """
    rows, columns = sorted(set(sizes)), sorted(set(delays))
    if len(rows) * len(columns) > MAX_CELLS:
        raise UsageError(f"{len(rows)} sizes and {len(columns)} delays are more than {MAX_CELLS} plans")
    choices = tuple(
        tuple(plan(Situation(ranks, late, s, link, d, max_chunks)).choice.request for d in columns)
        for s in rows
    )
    return TuningTable(ranks, late, link, tuple(rows), tuple(columns), choices)


def dump_tuning(table: TuningTable) -> str:
    """The text of a tuning file: one size a line, the same for equal tables."""
    head: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "ranks": table.ranks,
        "late": table.late,
        "link": {"alpha_seconds": table.link.alpha, "bandwidth_bytes_per_second": table.link.bandwidth},
        "sizes": list(table.sizes),
        "delays": list(table.delays),
    }
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    rows = [json.dumps([_plain(request) for request in row]) for row in table.choices]
    return "{\n" + ",\n".join(lines) + ',\n"choices": [\n' + ",\n".join(rows) + "\n]\n}\n"


def save_tuning(table: TuningTable, path: str) -> None:
    """Writes a tuning file (`-`: standard output), whole or not at all."""
    write_atomic(path, dump_tuning(table))


def _plain(request: Request) -> dict[str, int | str]:
    return {"algorithm": request.algorithm, **dict(request.granularity())}


def load_tuning(path: str) -> TuningTable:
    """Reads a tuning file (`-`: standard input).

    Raises:
        UsageError: it cannot be read.
        FormatError: it is no tuning file, or a choice in it is none that can be made.
    """
    return parse_tuning(read_bounded(path, MAX_BYTES), path)


def parse_tuning(data: bytes, name: str = "tuning") -> TuningTable:
    """Turns the bytes of a tuning file into a table; `name` is for messages.

    Raises:
        FormatError: says what is wrong.
    """
    try:
        document = json.loads(data)
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise FormatError(f'not a tuning file: expected an object with "format": "{FORMAT}"')
        if document.get("version") != VERSION or set(document) != _KEYS:
            raise FormatError(f"expected version {VERSION} and the keys {', '.join(sorted(_KEYS))}")
        return _table(document)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError, AttributeError) as error:
        raise FormatError(f"{name}: not a tuning file: {type(error).__name__}: {str(error)[:80]}") from error
    except (UsageError, FormatError) as error:
        raise FormatError(f"{name}: {error}") from error


def _table(document: dict[str, Any]) -> TuningTable:
    ranks, late = _whole(document["ranks"]), _whole(document["late"])
    link = document["link"]
    return TuningTable(
        ranks=ranks,
        late=late,
        link=Link(float(link["alpha_seconds"]), float(link["bandwidth_bytes_per_second"])),
        sizes=tuple(_whole(size) for size in document["sizes"]),
        delays=tuple(float(delay) for delay in document["delays"]),
        choices=tuple(tuple(_request(ranks, late, cell) for cell in row) for row in document["choices"]),
    )


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise FormatError(f"expected an integer, not {str(value)[:40]!r}")
    return value


def _request(ranks: int, late: int, cell: dict[str, Any]) -> Request:
    if not isinstance(cell, dict) or not set(cell) <= _OPTIONS:
        raise FormatError("a choice is an object with algorithm and its parameters")
    options = dict(cell)
    for name in ("refine", "chunks"):
        if name in options:
            options[name] = _whole(options[name])
    if "fraction" in options:
        options["fraction"] = Fraction(options["fraction"])
    request = Request(ranks, (late,), **options)
    count_rounds(request)  # refuses what no algorithm makes
    return request
