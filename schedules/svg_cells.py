"""The SVG step diagram of many ranks: one cell a rank and round, or one for several of each.

A cell says what arrives there: every message has exactly one receiver. Cells of a kind are one path, so that
thousands of them stay one small file.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .ir import DST, FIRST, OP, Op
from .svg_columns import Frame, arrival_words, bound_place, legend
from .svg_paper import Paper, number

MOST_ROWS, MOST_COLUMNS = 64, 180
LEFT, TOP = 78.0, 112.0
WIDTH, HEIGHT = 1020.0, 640.0
GAP = 14.0


@dataclass(frozen=True, slots=True)
class Grid:
    """How rows and columns are cut: ranks and rounds a cell, pixels of a cell, left edge of every phase."""

    ranks: int
    rounds: int
    rows: int
    width: float
    height: float
    lefts: list[float]

    def x(self, phase: int, place: float) -> float:
        """Left edge of the round that is at `place` among those shown of a phase."""
        return self.lefts[phase] + place / self.rounds * self.width

    @property
    def bottom(self) -> float:
        """Lower edge of the last row."""
        return TOP + self.rows * self.height


def grid_of(frame: Frame) -> Grid:
    """The finest grid that fits a page."""
    rounds = sum(map(len, frame.rounds))
    per_row, per_column = -(-len(frame.ranks) // MOST_ROWS), max(1, -(-rounds // MOST_COLUMNS))
    rows, columns = -(-len(frame.ranks) // per_row), [-(-len(r) // per_column) for r in frame.rounds]
    width = min(24.0, max(5.0, WIDTH / max(1, sum(columns))))
    height = min(20.0, max(6.0, HEIGHT / rows))
    lefts, x = [], LEFT
    for count in columns:
        lefts.append(x)
        x += count * width + (GAP if count else 0)
    return Grid(per_row, per_column, rows, width, height, lefts)


def draw_cells(paper: Paper, frame: Frame) -> tuple[float, float]:
    """Draws the grid; returns width and height of the picture."""
    grid = grid_of(frame)
    for index, shown in enumerate(frame.rounds):
        if shown:
            _background(paper, frame, grid, index)
            (_single if grid.ranks == grid.rounds == 1 else _several)(paper, frame, grid, index)
            _heads(paper, frame, grid, index)
    _labels(paper, frame, grid)
    _bound(paper, frame, grid)
    _signs(paper, frame, grid)
    last = len(frame.rounds) - 1
    return max(620.0, grid.x(last, len(frame.rounds[last])) + 24), grid.bottom + 62


def _background(paper: Paper, frame: Frame, grid: Grid, phase: int) -> None:
    left, right = grid.x(phase, 0), grid.x(phase, len(frame.rounds[phase]))
    paper.add("rect", "band", x=left, y=TOP, width=right - left, height=grid.bottom - TOP)
    absent = set(frame.schedule.absent(phase))
    for row in range(grid.rows):
        group = frame.ranks[row * grid.ranks : (row + 1) * grid.ranks]
        if absent.intersection(group):
            y = TOP + (row + 0.5) * grid.height
            paper.line("away", left + 2, y, right - 2, y)


def _places(frame: Frame, phase: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """Column, row (in single rounds and ranks) and table row of every message to a shown rank."""
    table, where = frame.schedule.phases[phase].table, frame.schedule.phases[phase].round_index()
    low, first = frame.ranks[0], frame.rounds[phase][0]
    keep = (table[:, DST] >= low) & (table[:, DST] <= frame.ranks[-1])
    keep &= (where >= first) & (where <= frame.rounds[phase][-1])
    return where[keep] - first, table[keep, DST].astype(np.int64) - low, table[keep]


def _single(paper: Paper, frame: Frame, grid: Grid, phase: int) -> None:
    paths: dict[tuple[int, int], list[str]] = {}
    columns, rows, table = _places(frame, phase)
    start = frame.rounds[phase][0]
    for column, row, move in zip(columns.tolist(), rows.tolist(), table.tolist(), strict=True):
        colour = frame.colour(phase, start + column, move[FIRST])
        height = (grid.height - 1) * (1.0 if move[OP] == Op.REDUCE else 0.4)
        x, y = grid.x(phase, column), TOP + (row + 1) * grid.height - height - 0.5
        width = number(grid.width - 1)
        box = f"M{number(x + 0.5)} {number(y)}h{width}v{number(height)}h-{width}z"
        paths.setdefault((colour, move[OP]), []).append(box)
    for (colour, op), boxes in sorted(paths.items()):
        paper.add("path", f"f{colour}", Op(op).name.lower(), d="".join(boxes))


def _several(paper: Paper, frame: Frame, grid: Grid, phase: int) -> None:
    columns, rows, table = _places(frame, phase)
    shape = (grid.rows, -(-len(frame.rounds[phase]) // grid.rounds), 2)
    counts = np.zeros(shape, dtype=np.int64)
    np.add.at(counts, (rows // grid.ranks, columns // grid.rounds, table[:, OP]), 1)
    full = grid.ranks * grid.rounds
    paths: dict[int, list[str]] = {Op.REDUCE: [], Op.COPY: []}
    for row, column in np.argwhere(counts.sum(axis=2)).tolist():
        y = TOP + (row + 1) * grid.height - 0.5
        for op, boxes in paths.items():
            height = (grid.height - 1) * min(1.0, float(counts[row, column, op]) / full)
            y -= height
            x, width = number(grid.x(phase, column * grid.rounds) + 0.25), number(grid.width - 0.5)
            if height:
                boxes.append(f"M{x} {number(y)}h{width}v{number(height)}h-{width}z")
    for op, boxes in paths.items():
        paper.add("path", "add" if op == Op.REDUCE else "put", Op(op).name.lower(), d="".join(boxes))


def _heads(paper: Paper, frame: Frame, grid: Grid, phase: int) -> None:
    left, shown = grid.x(phase, 0), frame.rounds[phase]
    words = f"{frame.schedule.phases[phase].name}: {len(shown)} round{'s' if len(shown) > 1 else ''}"
    paper.text(left, TOP - 40, "head", words)
    step = next(
        s for s in (1, 2, 5, 10, 20, 50, 100, 500, 5000) if s / grid.rounds * grid.width >= 24 or s == 5000
    )
    for place in range(0, len(shown), step):
        paper.text(grid.x(phase, place), TOP - 7, "soft", str(shown[place]))
    for place, where in enumerate(shown):
        if frame.bad(phase, where):
            paper.text(grid.x(phase, place), TOP - 16, "bad", "!")
    arrives = arrival_words(frame.schedule, phase)
    if arrives:
        paper.line("arrival", left - GAP / 2, TOP - 30, left - GAP / 2, grid.bottom)
        paper.text(left, TOP - 25, "late", arrives)


def _labels(paper: Paper, frame: Frame, grid: Grid) -> None:
    step = max(1, int(-(-12 // grid.height)))
    late = set(frame.schedule.late)
    for row in range(grid.rows):
        group = frame.ranks[row * grid.ranks : (row + 1) * grid.ranks]
        has_late = bool(late.intersection(group))
        if row % step and not has_late:
            continue
        if not has_late and any(
            late.intersection(frame.ranks[r * grid.ranks : (r + 1) * grid.ranks])
            for r in (row - 1, row + 1)
            if r >= 0
        ):
            continue
        name = str(group[0]) if len(group) == 1 else f"{group[0]}-{group[-1]}"
        words, kind = (f"{name} late", "end late") if has_late else (name, "end")
        paper.text(LEFT - 8, TOP + (row + 0.5) * grid.height + 4, kind, words)


def _bound(paper: Paper, frame: Frame, grid: Grid) -> None:
    place = bound_place(frame)
    if place is not None:
        last = len(frame.rounds) - 1
        x = grid.x(last, place[0] - frame.rounds[last][0] + place[1])
        paper.line("goal", x, TOP - 30, x, grid.bottom + 4)
        paper.text(x + 6, grid.bottom + 16, "bound end", "bound")


def _signs(paper: Paper, frame: Frame, grid: Grid) -> None:
    if grid.ranks == grid.rounds == 1:
        signs = [("full", "reduce arrives"), ("half", "copy arrives")]
        colour = "chunk modulo 8" if frame.by == "chunk" else "rounds since the chunk first moved"
    else:
        signs = [("add", "reduces"), ("put", "copies")]
        colour = (
            f"a cell is {grid.ranks} ranks by {grid.rounds} rounds, filled as far as their in-ports are busy"
        )
    signs += [("away", "has not arrived")] if frame.schedule.arrivals else []
    legend(paper, 16, grid.bottom + 32, [*signs, ("goal", "bound")])
    paper.text(16, grid.bottom + 50, "soft", f"Rows: ranks. Columns: rounds. Colour: {colour}.")
