"""How busy this machine was: from /proc/stat, so that a figure can be refused where the CPU set it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

STAT = Path("/proc/stat")


@dataclass(frozen=True, slots=True)
class Load:
    """Time of all cores, in ticks of the kernel's clock (100 a second).

    Attributes:
        busy: with work, that of interrupts (the links of a testbed are served there) included.
        stolen: taken by other guests of the same machine.
        total: all of it.
    """

    busy: int = 0
    stolen: int = 0
    total: int = 0

    def __add__(self, other: Load) -> Load:
        return Load(self.busy + other.busy, self.stolen + other.stolen, self.total + other.total)

    def __sub__(self, other: Load) -> Load:
        return Load(self.busy - other.busy, self.stolen - other.stolen, self.total - other.total)

    @property
    def busy_share(self) -> float | None:
        """0..1; None where nothing was measured."""
        return self.busy / self.total if self.total > 0 else None

    @property
    def stolen_share(self) -> float | None:
        """0..1; None where nothing was measured."""
        return self.stolen / self.total if self.total > 0 else None


def parse_load(text: str) -> Load:
    """The load since the machine started, from the text of /proc/stat.

    >>> parse_load("cpu  10 0 5 80 1 0 3 1 0 0\\ncpu0 10 0 5 80 1 0 3 1 0 0\\n")
    Load(busy=18, stolen=1, total=100)
    """
    user, nice, system, idle, iowait, irq, softirq, steal = map(int, text.split("\n", 1)[0].split()[1:9])
    busy = user + nice + system + irq + softirq
    return Load(busy, steal, busy + idle + iowait + steal)


def load_now() -> Load:
    """The load since the machine started."""
    return parse_load(STAT.read_text(encoding="ascii"))


def background(seconds: float = 0.5) -> float:
    """How busy others keep the cores, stolen time included, 0..1: watched while nothing of ours runs."""
    before = load_now()
    time.sleep(seconds)
    load = load_now() - before
    return (load.busy + load.stolen) / load.total if load.total > 0 else 0.0
