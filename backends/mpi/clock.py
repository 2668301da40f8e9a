"""One clock for all ranks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from ..clocks import RankClock
from ..waits import Blocked
from .waiting import Waiter

if TYPE_CHECKING:
    from mpi4py import MPI

_TAG = 11


class Clock(RankClock):
    """Rank 0's monotonic clock, read on any rank.

    Between machines the offset is measured by messages to rank 0 and back: the quickest of a dozen
    exchanges is off by half its time at most (`error`, in seconds).

    Args:
        comm: all ranks, on which nothing else uses this module's tag.
        waiter: how to wait.
        shared: all ranks are on one machine, so there is nothing to measure.
    """

    def __init__(self, comm: MPI.Intracomm, waiter: Waiter, shared: bool) -> None:
        super().__init__(comm.rank, comm.size, shared)
        self._comm, self._waiter = comm, waiter

    def _answer(self, peer: int) -> None:
        self._receive(np.empty(1), peer)
        self._comm.Send(np.array([time.monotonic()]), peer, _TAG)

    def _ask(self) -> float:
        theirs = np.empty(1)
        self._comm.Send(np.empty(1), 0, _TAG)
        self._receive(theirs, 0)
        return float(theirs[0])

    def _receive(self, into: np.ndarray[tuple[int], np.dtype[np.float64]], rank: int) -> None:
        self._waiter.wait(self._comm.Irecv(into, rank, _TAG), Blocked(rank))
