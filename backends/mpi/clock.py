"""One clock for all ranks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from ..clocks import EXCHANGES, offset_to
from .waiting import Blocked, Waiter

if TYPE_CHECKING:
    from mpi4py import MPI

_TAG = 11


class Clock:
    """Rank 0's monotonic clock, read on any rank.

    Between machines the offset is measured by messages to rank 0 and back: the quickest of a dozen
    exchanges is off by half its time at most (`error`, in seconds).

    Args:
        comm: all ranks, on which nothing else uses this module's tag.
        waiter: how to wait.
        shared: all ranks are on one machine, so there is nothing to measure.
    """

    def __init__(self, comm: MPI.Intracomm, waiter: Waiter, shared: bool) -> None:
        self._comm, self._waiter, self._shared = comm, waiter, shared
        self._offset = 0.0
        self.error = 0.0

    def now(self) -> float:
        """Seconds; comparable between ranks."""
        return time.monotonic() + self._offset

    def synchronise(self) -> None:
        """Measures the offsets anew, against drift; all ranks call it together.

        Raises:
            RunError: a rank does not answer.
        """
        if self._shared:
            return
        if self._comm.rank == 0:
            for rank in range(1, self._comm.size):
                for _ in range(EXCHANGES):
                    self._receive(np.empty(1), rank)
                    self._comm.Send(np.array([time.monotonic()]), rank, _TAG)
            return
        self._offset, error = offset_to(self._ask)
        self.error = max(self.error, error)

    def _ask(self) -> float:
        theirs = np.empty(1)
        self._comm.Send(np.empty(1), 0, _TAG)
        self._receive(theirs, 0)
        return float(theirs[0])

    def _receive(self, into: np.ndarray[tuple[int], np.dtype[np.float64]], rank: int) -> None:
        self._waiter.wait(self._comm.Irecv(into, rank, _TAG), Blocked(rank))
