"""Whether a schedule begins with a ReduceScatter that NCCL's own can replace, and who owns what after it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ...schedules import Schedule
from ...schedules.ir import Op, Phase

Flags = NDArray[np.bool_]
MAX_CELLS = 1 << 26
"""A larger ranks x ranks x chunks is not looked at: the messages do as well."""


def scatter_owners(schedule: Schedule) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The early ranks, and the rank that owns the sum of each chunk after the phase `pre`.

    A ReduceScatter leaves every sum over the early ranks with exactly one of them. The partial sums that
    messages leave elsewhere are not what NCCL leaves there (nothing that may be used), so that the rest of
    the schedule must replace such a chunk before it sends it or reduces with it.

    Returns:
        (early ranks in order, owner of each chunk), or None: `pre` is something else and needs its messages.
    """
    pre, *rest = schedule.phases
    early = tuple(sorted({r for t in _transfers(pre) for r in (t[0], t[1])}))
    if pre.name != "pre" or not schedule.late or len(early) < 2 or set(early) & set(schedule.late):
        return None
    if schedule.ranks**2 * schedule.chunks > MAX_CELLS:
        return None
    full = _full_sums(schedule, pre, early)
    if not (full.sum(axis=0) == 1).all():
        return None
    owners = full.argmax(axis=0)
    dead = np.zeros((schedule.ranks, schedule.chunks), dtype=np.bool_)
    dead[list(early)] = True
    dead[owners, np.arange(schedule.chunks)] = False
    return (early, tuple(owners.tolist())) if _never_used(rest, dead) else None


def _transfers(phase: Phase) -> Iterator[tuple[int, int, int, int, int]]:
    yield from map(tuple, phase.table.tolist())


def _full_sums(schedule: Schedule, phase: Phase, early: tuple[int, ...]) -> Flags:
    """For each rank and chunk whether it holds the sum over the early ranks after `phase`."""
    ranks = schedule.ranks
    # holds[r, c, i]: what rank r has of chunk c has rank i's part in it; a valid schedule counts none twice.
    holds = np.zeros((ranks, schedule.chunks, ranks), dtype=np.bool_)
    holds[np.arange(ranks), :, np.arange(ranks)] = True
    for table in phase.rounds():
        before = [holds[src, first : first + count].copy() for src, _, first, count, _ in table.tolist()]
        for (_, dst, first, count, op), sent in zip(table.tolist(), before, strict=True):
            part = holds[dst, first : first + count]
            holds[dst, first : first + count] = part | sent if op == Op.REDUCE else sent
    wanted = np.isin(np.arange(ranks), early)
    full: Flags = (holds == wanted).all(axis=2)
    return full


def _never_used(phases: list[Phase], dead: Flags) -> bool:
    """Whether dead chunks are replaced before anything is made of them, and none is left."""
    for phase in phases:
        for table in phase.rounds():
            rows = table.tolist()
            if any(dead[src, first : first + count].any() for src, _, first, count, _ in rows):
                return False
            for _, dst, first, count, op in rows:
                part = dead[dst, first : first + count]
                if op == Op.REDUCE and part.any():
                    return False
                part[:] = False
    return not dead.any()
