"""The same schedule for another late rank: the n schedules of a family are renamings of one another."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ...schedules import Phase, Schedule, UsageError
from ...schedules.ir import DST, SRC


def renamed(schedule: Schedule, late: int) -> Schedule:
    """A schedule with one late rank, made for another one; the early ranks keep their order.

    Raises:
        UsageError: not exactly one rank is late in it, or `late` is no rank.
    """
    if len(schedule.late) != 1:
        raise UsageError(f"only a schedule with one late rank can be renamed, not with {len(schedule.late)}")
    if not 0 <= late < schedule.ranks:
        raise UsageError(f"late rank {late} does not exist: ranks are 0..{schedule.ranks - 1}")
    if schedule.late == (late,):
        return schedule
    names = np.empty(schedule.ranks, dtype=np.int64)
    others = [rank for rank in range(schedule.ranks) if rank != late]
    names[[*schedule.early, *schedule.late]] = [*others, late]
    phases = tuple(_renamed_phase(phase, names) for phase in schedule.phases)
    return Schedule(schedule.ranks, ((late,),), schedule.chunks, phases, schedule.origin)


def _renamed_phase(phase: Phase, names: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Phase:
    table = phase.table.copy()
    table[:, SRC], table[:, DST] = names[table[:, SRC]], names[table[:, DST]]
    return Phase.build(phase.name, [table[a:b] for a, b in pairwise(phase.offsets.tolist())])
