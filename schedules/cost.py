"""The alpha-beta model: what a schedule takes, in seconds, when the late ranks come after a delay.

A round costs alpha seconds plus beta seconds for each byte of its longest message. Modelled time, never
measured time: say so wherever it is shown.
"""

from __future__ import annotations

from dataclasses import dataclass

from . import bounds
from .errors import UsageError
from .ir import Schedule


@dataclass(frozen=True, slots=True)
class Link:
    """A port: `alpha` seconds a round, `bandwidth` bytes a second each way."""

    alpha: float
    bandwidth: float

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < float("inf"):
            raise UsageError(f"alpha must be 0 or more seconds, not {self.alpha}")
        if not 0 < self.bandwidth < float("inf"):
            raise UsageError(f"bandwidth must be above 0 bytes a second, not {self.bandwidth}")

    @property
    def beta(self) -> float:
        """Seconds a byte."""
        return 1 / self.bandwidth

    def rounds_seconds(self, rounds: float, chunk_rounds: float, chunk_bytes: float) -> float:
        """Time of `rounds` rounds that move `chunk_rounds` chunks of `chunk_bytes` one after another."""
        return rounds * self.alpha + chunk_rounds * chunk_bytes * self.beta


@dataclass(frozen=True, slots=True)
class PhaseCost:
    """Modelled seconds of one phase, and how many of them a user still waits for after the arrival."""

    name: str
    rounds: int
    chunk_rounds: int
    seconds: float
    exposed_seconds: float


@dataclass(frozen=True, slots=True)
class Cost:
    """Modelled seconds of a schedule: per phase, and from the last arrival to the end (`post_seconds`)."""

    phases: tuple[PhaseCost, ...]
    post_seconds: float


def cost(schedule: Schedule, size: float, link: Link, delay: float = 0.0) -> Cost:
    """Models a schedule on a buffer of `size` bytes.

    Args:
        schedule: any schedule.
        size: bytes of the whole buffer.
        link: alpha and bandwidth.
        delay: seconds between the early ranks' arrival and the last one; groups that arrive between
            are spread evenly. Phases before `post` run meanwhile; what does not fit is exposed.

    Returns:
        A `Cost`. `post_seconds` is the exposed time of all phases: what the last rank waits for.

    Raises:
        UsageError: a size or delay that is negative or not finite.
    """
    if not (0 <= size < float("inf") and 0 <= delay < float("inf")):
        raise UsageError("size and delay must be finite and not negative")
    groups = len(schedule.arrivals)
    clock, parts = 0.0, []
    for index, phase in enumerate(schedule.phases):
        seconds = link.rounds_seconds(len(phase), phase.chunk_rounds, size / schedule.chunks)
        start = max(clock, delay * index / groups if groups else delay)
        clock = start + seconds
        exposed = max(0.0, clock - max(start, delay))
        parts.append(PhaseCost(phase.name, len(phase), phase.chunk_rounds, seconds, exposed))
    return Cost(tuple(parts), max(0.0, clock - delay))


def bandwidth_bound(schedule: Schedule, size: float, link: Link, delay: float) -> float:
    """Least post time of any schedule for the same late ranks, in seconds, counting bandwidth only.

    Groups that come between are spread evenly over the delay, as in `cost`.
    """
    groups = schedule.arrivals
    # On a clock that is 0 at the last arrival, so that a long delay takes no digits from the result.
    come = [-delay if groups else 0.0] * schedule.ranks
    for place, group in enumerate(groups, start=1):
        for rank in group:
            come[rank] = delay * place / len(groups) - delay
    return bounds.completion_seconds(come, size * link.beta)
