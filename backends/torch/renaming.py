"""The same schedule for other late ranks: the schedules of a family are renamings of one another."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ...schedules import Phase, Schedule, UsageError
from ...schedules.ir import DST, SRC


def renamed(schedule: Schedule, late: int | Sequence[int]) -> Schedule:
    """A schedule with one group of late ranks, made for other ones; the early ranks keep their order.

    Args:
        schedule: its late ranks arrive together.
        late: the ranks that are late now, as many as in the schedule; the order does not matter.

    Raises:
        UsageError: another number of late ranks, several groups of them, or no such rank.
    """
    wanted = (late,) if isinstance(late, int) else tuple(sorted(late))
    if len(schedule.arrivals) != 1 or len(schedule.late) != len(wanted):
        raise UsageError(
            f"a schedule with {len(wanted)} late rank{'s, together,' * (len(wanted) > 1)} is needed, not one"
            f" with late ranks {_groups(schedule)}"
        )
    for rank in wanted:
        if not 0 <= rank < schedule.ranks or wanted.count(rank) > 1:
            raise UsageError(
                f"late rank {rank} does not exist or is named twice: ranks are 0..{schedule.ranks - 1}"
            )
    before = sorted(schedule.late)
    if before == list(wanted):
        return schedule
    names = np.empty(schedule.ranks, dtype=np.int64)
    others = [rank for rank in range(schedule.ranks) if rank not in set(wanted)]
    names[[*schedule.early, *before]] = [*others, *wanted]
    phases = tuple(_renamed_phase(phase, names) for phase in schedule.phases)
    return Schedule(schedule.ranks, (wanted,), schedule.chunks, phases, schedule.origin)


def _groups(schedule: Schedule) -> str:
    return " then ".join(",".join(map(str, group)) for group in schedule.arrivals) or "none"


def _renamed_phase(phase: Phase, names: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Phase:
    table = phase.table.copy()
    table[:, SRC], table[:, DST] = names[table[:, SRC]], names[table[:, DST]]
    return Phase.build(phase.name, [table[a:b] for a, b in pairwise(phase.offsets.tolist())])
