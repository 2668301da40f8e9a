"""The SVG step diagram with one arrow a transfer, in lines like music where the rounds need several."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .ir import DST, SRC, Op, Transfer
from .svg_columns import Frame, arrival_words, bound_place, legend
from .svg_paper import Paper

LEFT, LANE, HEAD, FOOT, TOP = 78.0, 30.0, 46.0, 44.0, 56.0


@dataclass(frozen=True, slots=True)
class Column:
    """One round: its arrows with the slots they stand in, from left to right; `slot` pixels each."""

    phase: int
    round: int
    arrows: tuple[tuple[int, Transfer], ...]
    slot: float
    slots: int

    @property
    def width(self) -> float:
        """Pixels across."""
        return max(26.0, self.slots * self.slot + 10)


def arrow_columns(frame: Frame, page: float) -> list[list[Column]]:
    """All rounds as columns, broken into lines that fit `page` pixels."""
    lines: list[list[Column]] = [[]]
    used = LEFT
    for column in _columns(frame):
        if lines[-1] and used + column.width > page - 16:
            lines.append([])
            used = LEFT
        lines[-1].append(column)
        used += column.width
    return lines


def _columns(frame: Frame) -> Iterator[Column]:
    shown = np.array(frame.ranks)
    for index, phase in enumerate(frame.schedule.phases):
        for where in frame.rounds[index]:
            table = phase.round(where)
            touched = np.isin(table[:, SRC], shown) | np.isin(table[:, DST], shown)
            moves = [Transfer(s, d, f, c, Op(o)) for s, d, f, c, o in table[touched].tolist()]
            arrows = _packed(moves)
            wide = max([len(label(t)) for t in moves], default=1)
            slots = 1 + max([slot for slot, _ in arrows], default=0)
            yield Column(index, where, arrows, max(20.0, 6.5 * wide + 9), slots)


def _packed(moves: list[Transfer]) -> tuple[tuple[int, Transfer], ...]:
    """Gives every arrow the first slot where no other one touches its rows."""
    ends: list[int] = []
    placed = []
    for move in sorted(moves, key=lambda t: (min(t.src, t.dst), max(t.src, t.dst), t.src)):
        low, high = sorted((move.src, move.dst))
        slot = next((i for i, end in enumerate(ends) if end < low), len(ends))
        ends[slot : slot + 1] = [high]
        placed.append((slot, move))
    return tuple(placed)


def label(move: Transfer) -> str:
    """The chunks of a transfer, as `4` or `4-6`."""
    return str(move.first) if move.count == 1 else f"{move.first}-{move.first + move.count - 1}"


def draw_arrows(paper: Paper, frame: Frame, lines: list[list[Column]], page: float) -> tuple[float, float]:
    """Draws all lines; returns width and height of the picture."""
    top = TOP
    for line in lines:
        _Line(paper, frame, line, top).draw()
        top += HEAD + LANE * len(frame.ranks) + FOOT
    signs = [("reduce", "reduce: the receiver adds"), ("copy", "copy: the receiver replaces")]
    if frame.schedule.arrivals:
        signs.append(("away", "has not arrived"))
    if bound_place(frame) is not None:
        signs.append(("goal", "bound"))
    legend(paper, 16, top + 4, signs)
    what = "the chunk" if frame.by == "chunk" else "rounds since the chunk first moved"
    paper.text(
        16,
        top + 24,
        "soft",
        f"Number: the chunk that moves. Colour: {what}. Bar: complete pairs of rank and chunk.",
    )
    right = max(LEFT + sum(c.width for c in line) for line in lines)
    return (page if len(lines) > 1 else max(right + 16, 620.0)), top + 38


class _Line:
    """One line of rounds, its top at `top`."""

    def __init__(self, paper: Paper, frame: Frame, columns: list[Column], top: float) -> None:
        self.paper, self.frame, self.columns, self.top = paper, frame, columns, top
        self.row = {rank: at for at, rank in enumerate(frame.ranks)}
        self.first = top + HEAD + LANE / 2
        self.last = self.first + LANE * (len(frame.ranks) - 1)

    def y(self, rank: int) -> float:
        """Height of a rank's row; half a row outside for one that is not shown."""
        if rank in self.row:
            return self.first + LANE * self.row[rank]
        return self.first - LANE / 2 if rank < self.frame.ranks[0] else self.last + LANE / 2

    def draw(self) -> None:
        """Draws rows first, then arrows, then what must not be covered."""
        x = LEFT
        marks: list[tuple[str, float, str]] = []
        for at, column in enumerate(self.columns):
            new = at == 0 or self.columns[at - 1].phase != column.phase
            self._rows(column, x)
            self._heads(column, x, new)
            words = arrival_words(self.frame.schedule, column.phase) if new and column.round == 0 else ""
            if words:
                marks.append(("arrival", x, words))
            place = bound_place(self.frame)
            if column.phase == len(self.frame.rounds) - 1 and place and place[0] == column.round:
                marks.append(("goal", x + column.width * place[1] - 1, "bound"))
            self._arrows(column, x)
            x += column.width
        for rank in self.frame.ranks:
            late = rank in self.frame.schedule.late
            self.paper.text(
                LEFT - 10,
                self.y(rank) + 4,
                "end late" if late else "end",
                f"{rank} late" if late else f"rank {rank}",
            )
        for kind, where, words in marks:
            self._mark(kind, where, words)

    def _mark(self, kind: str, x: float, words: str) -> None:
        self.paper.line(kind, x, self.top + HEAD - 6, x, self.last + LANE / 2)
        if kind == "arrival":
            self.paper.text(x + 5, self.top + 27, "late", words)
        else:
            self.paper.text(x - 5, self.top + 27, "bound end", words)

    def _rows(self, column: Column, x: float) -> None:
        if column.round % 2 == 0:
            height = self.last - self.first + LANE
            self.paper.add("rect", "band", x=x, y=self.first - LANE / 2, width=column.width, height=height)
        absent = self.frame.schedule.absent(column.phase)
        for rank in self.frame.ranks:
            kind = "away" if rank in absent else "lane"
            self.paper.line(kind, x, self.y(rank), x + column.width, self.y(rank))

    def _heads(self, column: Column, x: float, new: bool) -> None:
        middle = x + column.width / 2
        if new:
            self.paper.text(x + 4, self.top + 12, "head", self.frame.schedule.phases[column.phase].name)
        bad = self.frame.bad(column.phase, column.round)
        self.paper.text(
            middle, self.top + HEAD - 6, "num bad" if bad else "num soft", f"{'!' * bad}{column.round}"
        )
        if self.frame.complete is not None:
            share = self.frame.complete[column.phase][column.round]
            y, width = self.last + LANE / 2 + 6, column.width - 8
            self.paper.add("rect", "box", x=x + 4, y=y, width=width, height=5)
            self.paper.add(
                "rect", "add", f"{share:.0%} complete", x=x + 4, y=y, width=width * share, height=5
            )

    def _arrows(self, column: Column, x: float) -> None:
        start = x + (column.width - column.slots * column.slot) / 2 + column.slot / 2
        for slot, move in column.arrows:
            self._arrow(column, move, start + slot * column.slot)

    def _arrow(self, column: Column, move: Transfer, x: float) -> None:
        colour = self.frame.colour(column.phase, column.round, move.first)
        kind = "reduce" if move.op is Op.REDUCE else "copy"
        begin, end = self.y(move.src), self.y(move.dst)
        down = 1 if end > begin else -1
        self.paper.line(f"move {kind} s{colour}", x, begin, x, end - 8 * down)
        tip = f"tip s{colour} {f'f{colour}' if move.op is Op.REDUCE else 'open'}"
        self.paper.add("path", tip, d=f"M{x:.1f} {end - 1.5 * down:.1f}l-4.5 {-9 * down}h9z")
        words, width = label(move), column.slot - 4
        says = f"round {column.round}: {move.src} to {move.dst}, {kind} chunk {words}"
        self.paper.add("rect", f"f{colour}", says, x=x - width / 2, y=begin - 7, width=width, height=14, rx=7)
        self.paper.text(x, begin + 3.5, "tag", words)
