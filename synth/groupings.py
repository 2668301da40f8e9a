"""Candidates for any arrival vector: who is early, groups of the others, how fine, what comes before.

Whoever comes at nearly the same time makes one group: a group more costs nothing in itself, but its phase
can only do what the ranks that are there can do, and its latency. Which gaps between arrivals are worth a
group is tried out; what a candidate takes is estimated by counting transfers (`estimates`), in microseconds,
so that only a few have to be made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import floor, sqrt

from ..schedules.bounds import ceil_log2
from ..schedules.cost import Link
from .request import Request

Groups = tuple[tuple[int, ...], ...]

MOST_GROUPS = 6
"""Groups by the widest gaps; the last few ranks are also tried one by one."""

FINENESS = (0.25, 0.35, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0)
"""Chunk counts to try, as multiples of the count at which a pipeline's latency and its rounds balance."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """The early ranks, the groups in order of arrival, and when each of these is complete."""

    early: tuple[int, ...]
    groups: Groups
    starts: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A candidate and about how many seconds after the last arrival it ends."""

    request: Request
    seconds: float


def groupings(arrivals: Sequence[float]) -> list[Grouping]:
    """Ways to divide the ranks by their arrivals, without repetition; none if all come at once."""
    order = sorted(range(len(arrivals)), key=lambda rank: (arrivals[rank], rank))
    times = [arrivals[rank] for rank in order]
    found: dict[tuple[int, ...], None] = {}
    for least in {1, 2, len(order) // 2}:
        gaps = [place for place in range(max(1, least), len(order)) if times[place] > times[place - 1]]
        widest = sorted(gaps, key=lambda place: times[place - 1] - times[place])
        for count in range(1, min(MOST_GROUPS, len(widest)) + 1):
            found[tuple(sorted(widest[:count]))] = None
        for count in range(1, min(MOST_GROUPS, len(gaps)) + 1):
            found[tuple(gaps[-count:])] = None
    return [_grouping(order, times, cuts) for cuts in found]


def _grouping(order: list[int], times: list[float], cuts: tuple[int, ...]) -> Grouping:
    edges = [*cuts, len(order)]
    groups = tuple(tuple(sorted(order[low:high])) for low, high in zip(cuts, edges[1:], strict=True))
    return Grouping(tuple(sorted(order[: cuts[0]])), groups, tuple(times[edge - 1] for edge in edges))


def estimates(arrivals: Sequence[float], size: int, link: Link, max_chunks: int) -> Iterator[Estimate]:
    """Every grouping with every fineness, with what is done before fitted to the time that there is."""
    ranks = len(arrivals)
    doublings = max(1, ceil_log2(ranks) - 1)
    best = sqrt(doublings * size * link.beta / link.alpha) if link.alpha else float(max_chunks)
    for grouping in groupings(arrivals):
        wanted = {1, 2, len(grouping.early), ranks, 2 * ranks} | {round(best * f) for f in FINENESS}
        for chunks in sorted(k for k in wanted if 1 <= k <= max_chunks):
            yield _estimate(grouping, chunks, ranks, size, link)


def _estimate(grouping: Grouping, chunks: int, ranks: int, size: int, link: Link) -> Estimate:
    """Counts what can be merged before the last arrival, and what that leaves for the ports afterwards."""
    step = link.alpha + size / chunks * link.beta
    early, clock = len(grouping.early), grouping.starts[0]
    before = [_reducible(grouping.starts[1] - clock, early, chunks, size, link)]
    merged = float(before[0] * (early - 1))
    clock += (early - 1) * (link.alpha + -(-before[0] // early) * (step - link.alpha))
    # What each rank that is there has yet to give away: early ranks, then the groups.
    load, present = [], early
    for place, group in enumerate(grouping.groups[:-1], start=1):
        clock, after = max(clock, grouping.starts[place]), present + len(group)
        fresh = (chunks - before[0]) if place == 1 else 0.0
        taken = chunks * (1 / present - 1 / after)
        if place == 1:
            load.append((early, fresh * (1 - 1 / early)))
        load = [(count, left + taken / 2) for count, left in load]
        load.append((len(group), chunks * (1 - 1 / after)))
        limit = max(0, floor((grouping.starts[place + 1] - clock) / step))
        needed = max(left for _, left in load)
        before.append(limit if limit < needed else chunks * ranks)
        used = min(float(limit), needed)
        merged += sum(count * min(left, used) for count, left in load)
        load = [(count, max(0.0, left - used)) for count, left in load]
        clock, present = clock + used * step, after
    last = len(grouping.groups[-1])
    merged = min(merged, float(chunks * (ranks - 1 - last)))
    complete = before[0] == chunks and all(number >= chunks * ranks for number in before[1:])
    transfers = (2 * chunks * (ranks - 1) - merged) / ranks
    rounds = _post_rounds(transfers, chunks, ranks, closed=complete and last == 1)
    exposed = max(0.0, clock - grouping.starts[-1])
    request = Request(
        ranks,
        algorithm="stragglar",
        chunks=chunks,
        groups=grouping.groups,
        before=None if complete else tuple(before),
    )
    return Estimate(request, exposed + rounds * step)


def _post_rounds(transfers: float, chunks: int, ranks: int, closed: bool) -> float:
    """About how many rounds the packing takes; the closed form takes its bound.

    Where the ports of the last group are as busy as all others there is little choice: some rounds are lost.
    """
    doublings = ceil_log2(ranks) - 1
    if closed:
        return max(transfers, chunks + doublings)
    lost = doublings if transfers < 1.2 * chunks else 1
    return max(transfers, chunks + doublings) + lost


def _reducible(seconds: float, early: int, chunks: int, size: int, link: Link) -> int:
    """Chunks of which a ring ReduceScatter over the early ranks is over in time; whole rings of them."""
    if early == 1:
        return chunks
    rings = floor((seconds / (early - 1) - link.alpha) / (size / chunks * link.beta))
    return max(0, min(chunks, rings * early))
