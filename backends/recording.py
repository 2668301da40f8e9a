"""Noting what one rank does while it runs a schedule: cheap enough to leave in the executors."""

from __future__ import annotations

import time
from collections.abc import Callable

from .events import RunEvent


class Recording:
    """Events of one rank, on a clock of its own choice.

    Args:
        rank: whose events they are.
        now: the clock, in seconds.
    """

    def __init__(self, rank: int, now: Callable[[], float] = time.monotonic) -> None:
        self.rank, self.now = rank, now
        # Tuples while the clock runs, objects afterwards: a quarter of the time.
        self._events: list[tuple[str, float, float, str, int, int, int, int]] = []

    def note(
        self,
        kind: str,
        start: float,
        end: float,
        phase: str = "",
        round: int = -1,
        peer: int = -1,
        first: int = -1,
        count: int = 0,
    ) -> None:
        """Adds one event; see `RunEvent` for what the values mean. Times are on the recording's clock."""
        self._events.append((kind, start, end, phase, round, peer, first, count))

    def take(self) -> tuple[RunEvent, ...]:
        """All events since the last call, in the order in which they were noted; forgets them."""
        events, self._events = self._events, []
        return tuple(RunEvent(self.rank, *values) for values in events)
