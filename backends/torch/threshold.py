"""From how much lateness on a schedule pays: the threshold of eager mode, from the cost model."""

from __future__ import annotations

from ...schedules import Link, Schedule, cost

_STEPS = 60


def break_even(schedule: Schedule, size: int, link: Link, ordinary: float | None = None) -> float:
    """The least delay from which on the schedule is modelled to beat the ordinary all_reduce.

    Both are counted from the last arrival: an ordinary one does nothing before it, and the schedule's time
    falls with the delay until its whole pre phase is hidden.

    Args:
        schedule: with late ranks.
        size: bytes of the buffer.
        link: alpha and bandwidth, e.g. of `stragglar calibrate`.
        ordinary: seconds of the ordinary all_reduce; None: of a ring.

    Returns:
        Seconds; infinity where the schedule is no better however late the ranks are.
    """
    if ordinary is None:
        steps = 2 * (schedule.ranks - 1)
        ordinary = link.rounds_seconds(steps, steps, size / schedule.ranks)
    high = sum(phase.seconds for phase in cost(schedule, size, link).phases)
    if cost(schedule, size, link, high).post_seconds >= ordinary:
        return float("inf")
    low = 0.0
    if cost(schedule, size, link, low).post_seconds < ordinary:
        return low
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if cost(schedule, size, link, middle).post_seconds < ordinary:
            high = middle
        else:
            low = middle
    return high
