"""What both kinds of SVG step diagram share: what is shown, and where the bound lies among the rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .certificate import certify
from .errors import UsageError
from .ir import COUNT, FIRST, Schedule
from .svg_paper import AGES, COLOURS, Paper, plain
from .trace import holders
from .validate import Validation, validate

TRACED = 1 << 24
"""Counts of holders (rounds times chunks) that are followed for the row of complete chunks."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What is to be drawn of a schedule.

    Attributes:
        schedule: all of it.
        by: what colour stands for, `chunk` or `age`.
        ranks: the ranks with a row, ascending.
        rounds: for every phase the rounds with a column.
        found: which rules it breaks.
        complete: for every phase and round the share of (rank, chunk) pairs that are complete; None: unknown.
        born: for every phase the round in which each chunk first moves; empty unless `by` is `age`.
    """

    schedule: Schedule
    by: str
    ranks: list[int]
    rounds: list[list[int]]
    found: Validation
    complete: list[list[float]] | None
    born: list[NDArray[np.int64]]

    def colour(self, phase: int, where: int, chunk: int) -> int:
        """The number of the colour of a chunk that moves in a round."""
        if self.by == "chunk":
            return chunk % COLOURS
        age = max(0, where - int(self.born[phase][chunk]))
        return COLOURS + min(AGES - 1, age * AGES // max(1, self.oldest(phase)))

    def oldest(self, phase: int) -> int:
        """Greatest age that could occur in a phase, plus one."""
        return max(1, len(self.schedule.phases[phase]))

    def bad(self, phase: int, where: int) -> bool:
        """Whether a described violation is in that round."""
        name = self.schedule.phases[phase].name
        return any(v.phase == name and v.round == where for v in self.found.violations)


def frame_of(schedule: Schedule, by: str, rounds: range | None, ranks: range | None) -> Frame:
    """Chooses what to draw.

    Raises:
        UsageError: no such rank, or no such round in any phase.
    """
    shown = [r for r in range(schedule.ranks) if ranks is None or r in ranks]
    if not shown:
        raise UsageError(f"no such rank to show: the ranks are 0..{schedule.ranks - 1}")
    columns = [[r for r in range(len(p)) if rounds is None or r in rounds] for p in schedule.phases]
    if not any(columns) and any(map(len, schedule.phases)):
        longest = max(map(len, schedule.phases))
        raise UsageError(f"no such round to show: the longest phase has rounds 0..{longest - 1}")
    total = sum(map(len, schedule.phases)) * schedule.chunks
    counts = holders(schedule) if total <= TRACED else None
    share = schedule.ranks * schedule.chunks
    complete = None if counts is None else [(c.sum(axis=1) / share).tolist() for c in counts]
    born = _born(schedule) if by == "age" else []
    return Frame(schedule, by, shown, columns, validate(schedule, 50), complete, born)


def _born(schedule: Schedule) -> list[NDArray[np.int64]]:
    result = []
    for phase in schedule.phases:
        first = np.full(schedule.chunks, len(phase), dtype=np.int64)
        for where, row in zip(phase.round_index().tolist(), phase.table.tolist(), strict=True):
            run = slice(row[FIRST], row[FIRST] + row[COUNT])
            first[run] = np.minimum(first[run], where)
        result.append(first)
    return result


def bound_place(frame: Frame) -> tuple[int, float] | None:
    """The round of the last phase in which the bound is reached, and the share of that round.

    None where the schedule has fewer chunk-rounds than the bound (then it is not valid), or that round is
    not shown.
    """
    post, left = frame.schedule.post, certify(frame.schedule).post_bound
    for where, table in enumerate(post.rounds()):
        weight = int(table[:, COUNT].max())
        if left <= weight:
            return (where, left / weight) if where in frame.rounds[-1] else None
        left -= weight
    return None


def arrival_words(schedule: Schedule, phase: int) -> str:
    """Who arrives when that phase starts, also those whose own phase has no rounds; empty for the first."""
    group: list[int] = []
    while phase > 0:
        group = [*schedule.arrivals[phase - 1], *group]
        phase -= 1
        if len(schedule.phases[phase]):
            break
    if not group:
        return ""
    several = len(group) > 1
    return plain(f"rank{'s' * several} {', '.join(map(str, group))} arrive{'' if several else 's'}", 40)


def legend(paper: Paper, x: float, y: float, marks: Sequence[tuple[str, str]]) -> None:
    """A line that explains signs: pairs of (kind of sample, words)."""
    for kind, words in marks:
        _sample(paper, kind, x, y)
        paper.text(x + 30, y, "soft", words)
        x += 48 + 5.6 * len(words)


def _sample(paper: Paper, kind: str, x: float, y: float) -> None:
    middle = y - 4
    if kind in ("reduce", "copy"):
        paper.line(f"move {kind} s0", x, middle, x + 18, middle)
        paper.add(
            "path", f"tip s0 {'f0' if kind == 'reduce' else 'open'}", d=f"M{x + 26} {middle}l-9 -4.5v9z"
        )
    elif kind in ("away", "goal"):
        paper.line(kind, x, middle, x + 26, middle)
    elif kind == "full":
        paper.add("rect", "f0", x=x + 8, y=middle - 5, width=10, height=10)
    elif kind == "half":
        paper.add("rect", "f0", x=x + 8, y=middle, width=10, height=4)
    else:
        paper.add("rect", kind, x=x + 4, y=middle - 5, width=18, height=10)
