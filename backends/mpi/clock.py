"""One clock for all ranks, and waking up on time."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .waiting import Blocked, Waiter

if TYPE_CHECKING:
    from mpi4py import MPI

_TAG = 11
_EXCHANGES = 12
_SPIN_SECONDS = 0.3e-3


def machine() -> str:
    """What two processes share exactly if their monotonic clocks are the same clock."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/time').readlink()}"
    except OSError:
        from mpi4py import MPI

        return MPI.Get_processor_name()


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
                for _ in range(_EXCHANGES):
                    self._receive(np.empty(1), rank)
                    self._comm.Send(np.array([time.monotonic()]), rank, _TAG)
            return
        best = float("inf")
        for _ in range(_EXCHANGES):
            sent, theirs = time.monotonic(), np.empty(1)
            self._comm.Send(np.empty(1), 0, _TAG)
            self._receive(theirs, 0)
            back = time.monotonic()
            if back - sent < best:
                best = back - sent
                self._offset = float(theirs[0]) - (sent + back) / 2
        self.error = max(self.error, best / 2)

    def _receive(self, into: np.ndarray[tuple[int], np.dtype[np.float64]], rank: int) -> None:
        self._waiter.wait(self._comm.Irecv(into, rank, _TAG), Blocked(rank))


def sleep_until(target: float) -> None:
    """Sleeps to a time of `time.monotonic`, the last part awake: a sleep alone may end too late."""
    while (left := target - time.monotonic()) > 0:
        if left > _SPIN_SECONDS:
            time.sleep(left - _SPIN_SECONDS)
        else:
            os.sched_yield()
