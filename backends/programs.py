"""What each rank does: a schedule taken apart into one ordered list of sends and receives a rank.

Every runtime that drives real processes starts here. Messages between two ranks are matched by their
order, so both ends must keep it and must leave out the same (empty) messages.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..schedules import Schedule
from ..schedules.ir import COUNT, DST, FIRST, OP, SRC

SEND, RECEIVE = 0, 1
"""Kinds of steps."""

PHASE, ROUND, KIND, PEER, START, LENGTH, REDUCTION = range(7)
"""Columns of a step table; the last three are those of a transfer."""


@dataclass(frozen=True, slots=True, eq=False)
class RankProgram:
    """The steps of one rank, in order.

    Attributes:
        rank: whose.
        ranks: how many there are.
        chunks: number of parts of the buffer.
        phases: names of the phases.
        steps: int64, shape (steps, 7), columns `PHASE ROUND KIND PEER START LENGTH REDUCTION`: number of
            the phase and of the round in it, `SEND` or `RECEIVE`, the other rank, first chunk, number of
            chunks, `Op`. Ordered by round, sends first: a send reads what the rank held before the round.
    """

    rank: int
    ranks: int
    chunks: int
    phases: tuple[str, ...]
    steps: NDArray[np.int64]

    def where(self, step: int) -> str:
        """Phase and round of a step, for messages."""
        phase, round_ = self.steps[step, :KIND].tolist()
        return f"{self.phases[phase]} round {round_}"


def rank_program(schedule: Schedule, rank: int) -> RankProgram:
    """The steps of one rank."""
    parts = []
    for index, phase in enumerate(schedule.phases):
        rows = np.flatnonzero((phase.table[:, SRC] == rank) | (phase.table[:, DST] == rank))
        parts.append(_steps(index, phase.table[rows].astype(np.int64), phase.round_index()[rows], rank))
    names = tuple(phase.name for phase in schedule.phases)
    return RankProgram(rank, schedule.ranks, schedule.chunks, names, np.concatenate(parts))


def rank_programs(schedule: Schedule) -> tuple[RankProgram, ...]:
    """The steps of all ranks."""
    return tuple(rank_program(schedule, rank) for rank in range(schedule.ranks))


def _steps(index: int, table: NDArray[np.int64], rounds: NDArray[np.int64], rank: int) -> NDArray[np.int64]:
    receives = table[:, DST] == rank
    steps = np.column_stack(
        (
            np.full(len(table), index),
            rounds,
            receives.astype(np.int64),
            np.where(receives, table[:, SRC], table[:, DST]),
            table[:, FIRST],
            table[:, COUNT],
            table[:, OP],
        )
    )
    return steps[np.lexsort((steps[:, KIND], steps[:, ROUND]))]
