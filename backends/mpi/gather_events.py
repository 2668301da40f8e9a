"""Bringing together what all ranks recorded: one table of numbers, so that nothing is unpickled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..events import KINDS, RunEvent
from .waiting import Waiter

if TYPE_CHECKING:
    from mpi4py import MPI

Table = NDArray[np.float64]

_COLUMNS = 9


def median_place(seconds: Sequence[float]) -> int:
    """The number of the repetition whose time is the median; the faster of the two in the middle."""
    return sorted(range(len(seconds)), key=lambda place: (seconds[place], place))[(len(seconds) - 1) // 2]


def gather_events(
    comm: MPI.Intracomm, waiter: Waiter, own: Sequence[RunEvent], phases: Sequence[str]
) -> tuple[RunEvent, ...]:
    """The events of all ranks, by rank and start; the same on every rank.

    Args:
        comm: all ranks, which call this together.
        waiter: how to wait.
        own: this rank's events, on the clock that all share.
        phases: names of the schedule's phases.

    Raises:
        RunError: a rank does not come.
    """
    mine = packed(own, phases)
    sizes = np.empty(comm.size, dtype=np.int64)
    waiter.wait(comm.Iallgather(np.array([mine.size], dtype=np.int64), sizes))
    everyone = np.empty(int(sizes.sum()))
    waiter.wait(comm.Iallgatherv(mine.ravel(), [everyone, sizes.tolist()]))
    return unpacked(everyone.reshape(-1, _COLUMNS), phases)


def packed(events: Sequence[RunEvent], phases: Sequence[str]) -> Table:
    """Events as float64, shape (events, 9): whole numbers stay exact, names become their places."""
    places = {name: place for place, name in enumerate(phases)}
    rows = [
        [
            e.rank,
            KINDS.index(e.kind),
            e.start,
            e.end,
            places.get(e.phase, -1),
            e.round,
            e.peer,
            e.first,
            e.count,
        ]
        for e in events
    ]
    return np.array(rows, dtype=np.float64).reshape(-1, _COLUMNS)


def unpacked(table: Table, phases: Sequence[str]) -> tuple[RunEvent, ...]:
    """The events in a table of `packed`, by rank, start and end."""
    names = (*phases, "")
    events = []
    for rank, kind, start, end, phase, *rest in table.tolist():
        where, peer, first, count = map(int, rest)
        name = names[int(phase)]
        events.append(RunEvent(int(rank), KINDS[int(kind)], start, end, name, where, peer, first, count))
    return tuple(sorted(events, key=lambda e: (e.rank, e.start, e.end)))
