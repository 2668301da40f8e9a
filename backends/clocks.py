"""One clock for several processes: whether two share one, how far two are apart, and waking up on time."""

from __future__ import annotations

import os
import platform
import time
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


def sleep_until(target: float) -> None:
    """Sleeps to a time of `time.monotonic`, the last part awake: a sleep alone may end too late."""
    while (left := target - time.monotonic()) > 0:
        if left > _SPIN_SECONDS:
            time.sleep(left - _SPIN_SECONDS)
        else:
            os.sched_yield()
