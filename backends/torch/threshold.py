"""From how much lateness on a schedule pays: the threshold of eager mode, from the cost model."""

from __future__ import annotations

from ...schedules import Link, Schedule, cost

_STEPS = 60


def break_even(schedule: Schedule, size: int, link: Link) -> float:
    """The least delay of the late rank from which on the schedule is modelled to beat ring.

    Both are counted from the last arrival: ring does nothing before it, and the schedule's time falls
    with the delay until its whole pre phase is hidden.

    Args:
        schedule: with one late rank.
        size: bytes of the buffer.
        link: alpha and bandwidth, e.g. of `stragglar calibrate`.

    Returns:
        Seconds; infinity where the schedule is no better however late the rank is.
    """
    ring = link.rounds_seconds(2 * (schedule.ranks - 1), 2 * (schedule.ranks - 1), size / schedule.ranks)
    high = sum(phase.seconds for phase in cost(schedule, size, link).phases)
    if cost(schedule, size, link, high).post_seconds >= ring:
        return float("inf")
    low = 0.0
    if cost(schedule, size, link, low).post_seconds < ring:
        return low
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if cost(schedule, size, link, middle).post_seconds < ring:
            high = middle
        else:
            low = middle
    return high
