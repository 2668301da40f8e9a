"""One clock for several processes: whether two share one, how far two are apart, and waking up on time."""

from __future__ import annotations

import os
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

EXCHANGES = 12
"""How often two ranks compare their clocks; the quickest exchange counts."""

_SPIN_SECONDS = 0.3e-3


def machine() -> str:
    """What two processes share exactly if their monotonic clocks are the same clock."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/time').readlink()}"
    except OSError:
        return platform.node()


def offset_to(ask: Callable[[], float]) -> tuple[float, float]:
    """How far another clock is ahead of this process's monotonic one, and the largest error of that.

    The other clock was read somewhere between question and answer, so the middle is off by half the
    time of the exchange at most.

    Args:
        ask: returns what the other clock says; called `EXCHANGES` times.

    Returns:
        Offset and error, in seconds.
    """
    best, offset = float("inf"), 0.0
    for _ in range(EXCHANGES):
        sent = time.monotonic()
        theirs = ask()
        back = time.monotonic()
        if back - sent < best:
            best, offset = back - sent, theirs - (sent + back) / 2
    return offset, best / 2


class RankClock(ABC):
    """Rank 0's monotonic clock, read on any rank; how ranks ask each other is for the subclass to say.

    Args:
        rank: this rank.
        ranks: how many there are.
        shared: all ranks are on one machine, so there is nothing to measure.

    Attributes:
        error: largest error of a comparison so far, in seconds.
    """

    def __init__(self, rank: int, ranks: int, shared: bool) -> None:
        self._rank, self._ranks, self._shared = rank, ranks, shared
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
        if self._rank == 0:
            for peer in range(1, self._ranks):
                for _ in range(EXCHANGES):
                    self._answer(peer)
            return
        self._offset, error = offset_to(self._ask)
        self.error = max(self.error, error)

    @abstractmethod
    def _answer(self, peer: int) -> None:
        """On rank 0: waits for the question of a peer and tells it the time."""

    @abstractmethod
    def _ask(self) -> float:
        """On another rank: asks rank 0 for its time."""


def sleep_until(target: float) -> None:
    """Sleeps to a time of `time.monotonic`, the last part awake: a sleep alone may end too late."""
    while (left := target - time.monotonic()) > 0:
        if left > _SPIN_SECONDS:
            time.sleep(left - _SPIN_SECONDS)
        else:
            os.sched_yield()
