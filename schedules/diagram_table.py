"""The tables of the step diagram: what a cell says, which layout fits the width, one table a phase and band.

`diagram.py` puts them together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from rich.box import Box
from rich.table import Table
from rich.text import Text

from .ir import COUNT, DST, FIRST, OP, SRC, Op, Phase, Schedule
from .trace import holders
from .validate import Violation

TRACED = 1 << 27
"""Counts of holders (rounds times chunks) that are kept; larger schedules are drawn without that column."""

_BAR = 10
LEAST_CELL = len("late")


@dataclass(frozen=True, slots=True)
class Symbols:
    """The signs a diagram is drawn with."""

    send: str
    copy: str
    reduce: str
    idle: str
    absent: str
    dot: str
    times: str
    full: str
    empty: str
    rule: str
    overflow: Literal["ellipsis", "crop"]
    bad: str = "!"


UNICODE = Symbols("→", "←", "⊕", "·", "╌", "·", "×", "█", "░", "─", "ellipsis")
ASCII = Symbols(">", "<", "+", ".", "-", "-", "x", "#", ".", "-", "crop")


@dataclass(frozen=True, slots=True)
class Part:
    """What is shown of one phase; `sends` and `receives` map (round, rank) to what the cell says."""

    phase: Phase
    rounds: list[int]
    late: frozenset[int]
    absent: frozenset[int]
    ranks: int
    sends: dict[tuple[int, int], Text]
    receives: dict[tuple[int, int], Text]
    explicit: list[Text]
    counted: list[Text]
    bad_rounds: frozenset[int]


def make_parts(
    schedule: Schedule,
    rounds: range | None,
    ranks: frozenset[int],
    violations: Sequence[Violation],
    symbols: Symbols,
) -> list[Part]:
    """Words every phase for the given rounds (None: all) and ranks (none: cells are left empty)."""
    total = sum(len(p) for p in schedule.phases) * schedule.chunks
    counts = holders(schedule) if total <= TRACED else None
    parts = []
    for index, phase in enumerate(schedule.phases):
        shown = [r for r in range(len(phase)) if rounds is None or r in rounds]
        bad = _bad_rows(phase, [v for v in violations if v.phase == phase.name])
        sends, receives = _cell_texts(phase, shown, ranks, bad, symbols)
        rows = [] if counts is None else [counts[index][r] for r in shown]
        explicit = [_holders_by_chunk(row, schedule.ranks, symbols) for row in rows]
        counted = [_holders_counted(row, schedule.ranks, symbols) for row in rows]
        bad_rounds = frozenset(phase.round_index()[bad].tolist())
        late, absent = frozenset(schedule.late), frozenset(schedule.absent(index))
        parts.append(
            Part(phase, shown, late, absent, schedule.ranks, sends, receives, explicit, counted, bad_rounds)
        )
    return parts


def _bad_rows(phase: Phase, violations: Sequence[Violation]) -> NDArray[np.bool_]:
    bad = np.zeros(len(phase.table), dtype=np.bool_)
    for violation in violations:
        if violation.round < 0:
            continue
        low, high = phase.offsets[violation.round : violation.round + 2].tolist()
        table = phase.table[low:high]
        sent, received = table[:, SRC] == violation.rank, table[:, DST] == violation.rank
        end = table[:, FIRST] + table[:, COUNT]
        carries = (table[:, FIRST] <= violation.chunk) & (violation.chunk < end)
        bad[low:high] |= {
            "one-send": sent,
            "one-receive": received,
            "late-untouched": (sent | received) & carries,
            "send-of-arriving": sent & carries,
            "double-count": received & carries & (table[:, OP] == Op.REDUCE),
        }[violation.rule]
    return bad


def _cell_texts(
    phase: Phase, rounds: Sequence[int], ranks: frozenset[int], bad: NDArray[np.bool_], symbols: Symbols
) -> tuple[dict[tuple[int, int], Text], dict[tuple[int, int], Text]]:
    sends: dict[tuple[int, int], Text] = {}
    receives: dict[tuple[int, int], Text] = {}
    for where in rounds if ranks else ():
        marks = bad[phase.offsets[where] : phase.offsets[where + 1]].tolist()
        for transfer, wrong in zip(phase.transfers(where), marks, strict=True):
            run, mark = _run(transfer.first, transfer.count), symbols.bad if wrong else ""
            if transfer.src in ranks:
                text = f"{mark}{symbols.send}{transfer.dst}:{run}"
                _append(sends, (where, transfer.src), text, "cyan", wrong)
            if transfer.dst in ranks:
                adds = transfer.op is Op.REDUCE
                text = f"{mark}{symbols.reduce if adds else symbols.copy}{transfer.src}:{run}"
                _append(receives, (where, transfer.dst), text, "yellow" if adds else "green", wrong)
    return sends, receives


def _append(
    cells: dict[tuple[int, int], Text], key: tuple[int, int], text: str, style: str, wrong: bool
) -> None:
    cell = cells.setdefault(key, Text())
    cell.append(" " if cell.plain else "").append(text, style="bold red" if wrong else style)


def _run(first: int, count: int) -> str:
    return str(first) if count == 1 else f"{first}-{first + count - 1}"


def _holders_by_chunk(counts: NDArray[np.int32], ranks: int, symbols: Symbols) -> Text:
    # Runs of chunks that are complete on equally many ranks: "0-3:all 4:4 5:2".
    text, chunk = Text(), 0
    for held, group in groupby(counts.tolist()):
        size = len(list(group))
        if held:
            text.append(" " if text.plain else "").append(f"{_run(chunk, size)}:")
            text.append("all" if held == ranks else str(held), style="bold green" if held == ranks else "")
        chunk += size
    return text if text.plain else Text(symbols.idle, style="dim")


def _holders_counted(counts: NDArray[np.int32], ranks: int, symbols: Symbols) -> Text:
    # The same without naming chunks: "all×4 4 2" is four chunks on all ranks, one on 4, one on 2.
    text = Text()
    for held, chunks in sorted(Counter(counts[counts > 0].tolist()).items(), reverse=True):
        text.append(" " if text.plain else "")
        text.append("all" if held == ranks else str(held), style="bold green" if held == ranks else "")
        text.append(f"{symbols.times}{chunks}" if chunks > 1 else "")
    return text if text.plain else Text(symbols.idle, style="dim")


# ---- which layout fits


@dataclass(frozen=True, slots=True)
class Layout:
    """How the rounds are drawn.

    Attributes:
        kind: `line` (a cell is one line), `stack` (what it sends above what it receives) or
            `summary` (no cells).
        bands: the ranks of each table, one after another; for `summary` one that is empty.
        explicit: whether the last column names chunks.
        cell: width of a rank's column.
    """

    kind: str
    bands: list[list[int]]
    explicit: bool
    cell: int


def summary_layout() -> Layout:
    """The layout in which a line sums up a round."""
    return Layout("summary", [[]], False, 0)


def table_width(ranks: int, cell: int, tail: int) -> int:
    """Columns that a table takes with so many ranks, cells and a last column so wide."""
    return len("round") + 2 + ranks * (cell + 2) + tail


def choose_layout(parts: Sequence[Part], ranks: list[int], width: int, chosen: bool) -> Layout:
    """Picks the roomiest layout that fits `width`; chosen ranks are never summed up but cut into bands."""
    cells = {kind: _cell_width(parts, kind) for kind in ("line", "stack")}
    for kind, cell in cells.items():
        for explicit in (True, False):
            if table_width(len(ranks), cell, _tail_width(parts, explicit)) <= width:
                return Layout(kind, [ranks], explicit, cell)
    if not chosen:
        return summary_layout()
    cell, tail = cells["stack"], min(_tail_width(parts, False), width // 3)
    size = max(1, (width - table_width(0, cell, tail)) // (cell + 2))
    return Layout("stack", [ranks[i : i + size] for i in range(0, len(ranks), size)], False, cell)


def _tail_width(parts: Sequence[Part], explicit: bool) -> int:
    texts = [t for part in parts for t in (part.explicit if explicit else part.counted)]
    return max([len("complete"), *(t.cell_len for t in texts)])


def _cell_width(parts: Sequence[Part], kind: str) -> int:
    widest = LEAST_CELL
    for part in parts:
        for key in part.sends.keys() | part.receives.keys():
            pair = [cells[key].cell_len for cells in (part.sends, part.receives) if key in cells]
            widest = max(widest, *(pair if kind == "stack" else [sum(pair) + len(pair) - 1]))
    return widest


# ---- tables


def make_table(part: Part, band: Sequence[int], layout: Layout, symbols: Symbols) -> Table:
    """Draws the shown rounds of one phase for one band of ranks."""
    rule = symbols.rule * 2
    lines = Box(f"    \n    \n {rule} \n    \n    \n    \n    \n    \n", ascii=symbols is ASCII)
    table = Table(box=lines, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("round", justify="right", min_width=len("round"), no_wrap=True)
    if layout.kind == "summary":
        _add_summary(table, part, symbols)
        return table
    for rank in band:
        late = rank in part.late
        header = Text(f"late\n{rank}" if late else str(rank), style="magenta" if late else "")
        table.add_column(header, min_width=layout.cell, no_wrap=True)
    table.add_column("complete", no_wrap=True, overflow=symbols.overflow)
    tails = part.explicit if layout.explicit else part.counted
    for index, where in enumerate(part.rounds):
        cells = [_cell(part, where, rank, layout, symbols) for rank in band]
        table.add_row(_round_label(part, where, where, symbols), *cells, tails[index] if tails else "")
    return table


def _cell(part: Part, where: int, rank: int, layout: Layout, symbols: Symbols) -> Text:
    sent, received = part.sends.get((where, rank)), part.receives.get((where, rank))
    if sent is None and received is None:
        return Text(symbols.absent * 2 if rank in part.absent else symbols.idle, style="dim")
    if layout.kind == "line":
        return Text(" ").join(t for t in (sent, received) if t is not None)
    idle = Text(symbols.idle, style="dim")
    return Text("\n").join([sent or idle, received or idle])


def _round_label(part: Part, first: int, last: int, symbols: Symbols) -> Text:
    label = _run(first, last - first + 1)
    if first in part.bad_rounds:
        return Text(f"{symbols.bad}{label}", style="bold red")
    return Text(label, style="bold")


def _add_summary(table: Table, part: Part, symbols: Symbols) -> None:
    for header in ("sends", "adds", "copies"):
        table.add_column(header, justify="right", min_width=len(header), no_wrap=True)
    table.add_column("ports busy", min_width=_BAR, no_wrap=True)
    table.add_column("complete", no_wrap=True, overflow=symbols.overflow)
    rows = [_summary_row(part, index, where, symbols) for index, where in enumerate(part.rounds)]
    for _, group in groupby(range(len(rows)), key=lambda i: _merge_key(part, i, rows[i])):
        same = list(group)  # rounds in a row that look the same are one line: "0-27"
        first, last = part.rounds[same[0]], part.rounds[same[-1]]
        table.add_row(_round_label(part, first, last, symbols), *rows[same[0]])


def _merge_key(part: Part, index: int, row: tuple[Text, ...]) -> tuple[object, ...]:
    # Only rounds that follow each other, and none that breaks a rule.
    where = part.rounds[index]
    return (where - index, where if where in part.bad_rounds else -1, *(text.plain for text in row))


def _summary_row(part: Part, index: int, where: int, symbols: Symbols) -> tuple[Text, ...]:
    rows = part.phase.round(where)
    adds = int((rows[:, OP] == Op.REDUCE).sum())
    return (
        Text(str(len(rows))),
        Text(str(adds) if adds else symbols.idle, style="yellow"),
        Text(str(len(rows) - adds) if adds < len(rows) else symbols.idle, style="green"),
        _bar(len(rows), part.ranks, symbols),
        part.counted[index] if part.counted else Text(),
    )


def _bar(busy: int, ranks: int, symbols: Symbols) -> Text:
    filled = min(_BAR, max(1, _BAR * busy // ranks))  # full only where every port is busy
    return Text.assemble((symbols.full * filled, "cyan"), (symbols.empty * (_BAR - filled), "dim"))
