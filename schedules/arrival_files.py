"""Arrival traces in files: CSV (long and wide) and JSON lines, read as untrusted input; CSV written.

`docs/arrivals.md` describes the forms. Times are kept as exact whole picoseconds until the first arrival of
their iteration has been subtracted, so nanoseconds since 1970 lose nothing.
"""

from __future__ import annotations

import csv
import json
from array import array
from collections.abc import Iterable, Iterator
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from .arrival_columns import Layout, count, layout, picoseconds
from .arrivals import MAX_ENTRIES, ArrivalTrace
from .errors import FormatError, UsageError
from .files import read_bounded, write_atomic
from .ir import MAX_RANKS

MAX_TRACE_BYTES = 1 << 28
MAX_ITERATION = 10**15
COMPLAINTS = 8
"""How many incomplete iterations are named, and how many ranks of each."""

_FARTHEST = 4 * 10**18  # picoseconds: two such differences still fit int64
_LONGEST_LINE = 1 << 20

Row = tuple[int, Layout, list[str | None]]
"""Line, what its columns mean, its cells."""


def load_trace(path: str) -> ArrivalTrace:
    """Reads an arrival trace (`-`: standard input); see `parse_trace`."""
    return parse_trace(read_bounded(path, MAX_TRACE_BYTES), path)


def save_trace(trace: ArrivalTrace, path: str) -> None:
    """Writes a trace as CSV (`-`: standard output), whole or not at all."""
    write_atomic(path, dump_trace(trace))


def dump_trace(trace: ArrivalTrace) -> str:
    """The CSV text of a trace, long form, whole picoseconds; its note as a comment before the header.

    >>> print(dump_trace(ArrivalTrace.of([[0, 0.25]], note="made up")), end="")
    # made up
    iteration,rank,arrival_s
    0,0,0
    0,1,0.25
    """
    note = f"# {' '.join(trace.note.split())}\n" if trace.note.strip() else ""
    whole = np.rint(trace.seconds * 1e12).astype(np.int64)
    rows = (
        f"{iteration},{rank},{_seconds_text(value)}\n"
        for iteration, row in enumerate(whole.tolist())
        for rank, value in enumerate(row)
    )
    return f"{note}iteration,rank,arrival_s\n{''.join(rows)}"


def _seconds_text(whole: int) -> str:
    seconds, rest = divmod(whole, 10**12)
    return f"{seconds}.{rest:012d}".rstrip("0").rstrip(".")


def parse_trace(data: bytes, name: str = "trace") -> ArrivalTrace:
    """Turns the bytes of a trace file into an `ArrivalTrace`; `name` is for messages.

    Iterations in which a rank is missing are left out; the trace says how many and which.

    Raises:
        FormatError: a row or column that is not understood, one arrival given twice, no complete
            iteration, ranks hours apart; names the line.
        UsageError: fewer than two ranks.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(f"{name}: not UTF-8 text (byte {error.start})") from error
    lines = text.split("\n")
    note = _blank_comments(lines)
    start = next((line.lstrip()[0] for line in lines if line.strip()), "")
    if not start:
        raise FormatError(f"{name}: empty: expected a header and rows, or JSON lines")
    rows = _json_rows(lines, name) if start == "{" else _csv_rows(lines, name)
    return _assemble(_Entries.of(rows, name), name, note)


def _blank_comments(lines: list[str]) -> str:
    """Empties the lines that begin with # (line numbers stay) and returns the first as the note."""
    note = ""
    for at, line in enumerate(lines):
        if line.startswith("#"):
            note = note or "".join(c if c.isprintable() else " " for c in line[1:201]).strip()
            lines[at] = ""
    return note


def _fail(name: str, line: int, error: object) -> NoReturn:
    raise FormatError(f"{name}:{line}: {error}")


def _short(lines: Iterable[str], name: str) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        if len(line) > _LONGEST_LINE:
            _fail(name, number, "a line this long is no row")
        yield line


def _csv_rows(lines: list[str], name: str) -> Iterator[Row]:
    reader = csv.reader(_short(lines, name), strict=True)
    what: Layout | None = None
    while True:
        try:
            cells = next(reader, None)
            if cells is None:
                return
            if not any(cell.strip() for cell in cells):
                continue
            if what is None:
                what = layout(tuple(cells))
                continue
            if len(cells) != what.width:
                raise FormatError(f"{len(cells)} cells under {what.width} columns")
        except (csv.Error, FormatError) as error:
            _fail(name, max(reader.line_num, 1), error)
        yield reader.line_num, what, [cell.strip() or None for cell in cells]


def _json_rows(lines: list[str], name: str) -> Iterator[Row]:
    for number, line in enumerate(_short(lines, name), start=1):
        if not line.strip():
            continue
        try:
            # Numbers stay text: a float would round nanoseconds since 1970.
            pairs = json.loads(line, parse_int=str, parse_float=str, object_pairs_hook=list)
            if not line.lstrip().startswith("{"):
                raise FormatError("expected one JSON object a line")
            what = layout(tuple(key for key, _ in pairs))
        except json.JSONDecodeError as error:
            _fail(name, number, f"not JSON: {error.msg}")
        except (FormatError, RecursionError, ValueError) as error:
            _fail(name, number, error)
        yield number, what, [_json_cell(value) for _, value in pairs]


def _json_cell(value: object) -> str | None:
    # What is no number and no text fails where it is needed, and only there.
    return value if isinstance(value, str) else None if value is None else type(value).__name__


class _Entries:
    """All arrivals of a file as columns: line, iteration, rank, picoseconds after the file's first."""

    def __init__(self) -> None:
        self.line, self.iteration, self.rank, self.time = (array("q") for _ in range(4))
        self._first: int | None = None

    @classmethod
    def of(cls, rows: Iterable[Row], name: str) -> _Entries:
        """Reads rows; raises `FormatError` with the line of the first bad one."""
        entries = cls()
        for number, (line, what, cells) in enumerate(rows):
            try:
                entries._add(number, line, what, cells)
            except FormatError as error:
                _fail(name, line, error)
        return entries

    def _add(self, number: int, line: int, what: Layout, cells: list[str | None]) -> None:
        iteration = number
        if what.iteration is not None:
            iteration = count(cells[what.iteration] or "", "the iteration", MAX_ITERATION)
        for at, rank, power in what.times:
            cell = cells[at]
            if what.rank is not None:
                rank = count(cells[what.rank] or "", "the rank", MAX_RANKS)
                cell = cell or ""  # a long row without a time says nothing; a wide one lacks a rank
            if cell is None:
                continue
            if len(self.line) >= MAX_ENTRIES:
                raise FormatError(f"more than {MAX_ENTRIES} arrivals")
            self._append(line, iteration, rank, picoseconds(cell, power))

    def _append(self, line: int, iteration: int, rank: int, time: int) -> None:
        self._first = time if self._first is None else self._first
        after = time - self._first
        if abs(after) > _FARTHEST:
            raise FormatError("more than 46 days from the file's first arrival: is the unit right?")
        for column, value in zip(
            (self.line, self.iteration, self.rank, self.time), (line, iteration, rank, after), strict=True
        ):
            column.append(value)

    def sorted(self) -> tuple[NDArray[np.int64], ...]:
        """Line, iteration, rank and time, ordered by iteration and rank."""
        columns = [np.array(c, dtype=np.int64) for c in (self.line, self.iteration, self.rank, self.time)]
        order = np.lexsort((columns[2], columns[1]))
        return tuple(column[order] for column in columns)


def _assemble(entries: _Entries, name: str, note: str) -> ArrivalTrace:
    line, iteration, rank, time = entries.sorted()
    if not len(line):
        raise FormatError(f"{name}: no arrivals in it")
    ranks = int(rank.max()) + 1
    if ranks < 2:
        raise UsageError(f"{name}: only rank 0 is in it: an arrival trace needs 2 ranks or more")
    twice = np.flatnonzero((np.diff(iteration) == 0) & (np.diff(rank) == 0))
    if len(twice):
        at = int(twice[0])
        seen, again = sorted(line[at : at + 2].tolist())
        _fail(name, again, f"rank {rank[at]} of iteration {iteration[at]} again, first in line {seen}")
    ids, starts, counts = np.unique(iteration, return_index=True, return_counts=True)
    whole = np.repeat(counts == ranks, counts)
    missing = np.flatnonzero(counts != ranks)
    complaints = tuple(
        _complaint(int(ids[at]), rank[starts[at] : starts[at] + counts[at]], ranks)
        for at in missing[:COMPLAINTS].tolist()
    )
    if len(missing) == len(ids):
        raise FormatError(f"{name}: no iteration has all {ranks} ranks: {complaints[0]}")
    times = time[whole].reshape(-1, ranks)
    after = (times - times.min(axis=1, keepdims=True)) / 1e12
    try:
        return ArrivalTrace(after, len(missing), complaints, note)
    except FormatError as error:
        raise FormatError(f"{name}: {error}") from error


def _complaint(iteration: int, there: NDArray[np.int64], ranks: int) -> str:
    absent = np.setdiff1d(np.arange(ranks), there).tolist()
    more = f" and {len(absent) - COMPLAINTS} more" if len(absent) > COMPLAINTS else ""
    plural = "s" if len(absent) > 1 else ""
    return f"iteration {iteration} lacks rank{plural} {', '.join(map(str, absent[:COMPLAINTS]))}{more}"
