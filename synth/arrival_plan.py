"""Planning for any arrival vector: each rank's expected arrival is given, the plan groups the ranks by it.

Candidates: all baselines, the plan for the last rank alone (`planner.py`), trees with groups, and
`several/` with groups and with as much done before each arrival as fits (`groupings.py`). The few that look
best are made, and compared by what they really take. Baselines that begin when the last rank has come are
among them, so a plan is never worse than the best of these. All times are modelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isfinite

from ..schedules import bounds
from ..schedules.cost import Link
from ..schedules.errors import UsageError
from ..schedules.ir import Schedule
from .counts import Counts, counts_of
from .families import count_rounds, synthesize
from .groupings import estimates, groupings
from .planner import BASELINES, MAX_CHUNKS, Situation, plan
from .request import Request

FINALISTS = 4
"""Candidates with groups that are made: the best by estimate, at most two of the same groups."""

Completion = Callable[[Schedule], float]
"""A schedule -> when it ends, on the clock of the arrivals: an event simulation, for example."""


@dataclass(frozen=True, slots=True)
class ArrivalSituation:
    """What to plan for.

    Attributes:
        arrivals: when each rank is expected, in seconds, one a rank; given on any clock, kept as seconds
            after the first.
        size: bytes of the buffer.
        link: alpha and bandwidth of a port.
        max_chunks: chunks that a schedule may have.

    Raises:
        UsageError: fewer than two arrivals, or ones that are not finite; a size below one byte; no chunk.
    """

    arrivals: tuple[float, ...]
    size: int
    link: Link
    max_chunks: int = MAX_CHUNKS

    def __post_init__(self) -> None:
        Request(len(self.arrivals))
        if not all(map(isfinite, self.arrivals)):
            raise UsageError("arrivals must be finite seconds, one a rank")
        first = min(self.arrivals)
        object.__setattr__(self, "arrivals", tuple(float(time - first) for time in self.arrivals))
        Situation(len(self.arrivals), None, self.size, self.link, 0.0, self.max_chunks)

    @property
    def ranks(self) -> int:
        """n."""
        return len(self.arrivals)

    @property
    def last(self) -> float:
        """When the last rank comes."""
        return max(self.arrivals)

    @property
    def bound_seconds(self) -> float:
        """Least time from the last arrival of any schedule, by counting transfers and their latency."""
        before = [time - self.last for time in self.arrivals]
        return bounds.completion_seconds(before, self.size * self.link.beta, self.link.alpha)


@dataclass(frozen=True, slots=True)
class ArrivalChoice:
    """A candidate, its rounds, and the modelled seconds from the last arrival to the end."""

    request: Request
    counts: Counts
    post_seconds: float


@dataclass(frozen=True, slots=True)
class ArrivalPlan:
    """The best candidate for an arrival vector.

    Attributes:
        situation: what was planned for.
        choice: the best candidate.
        baselines: name -> modelled seconds of a baseline that starts at the last arrival.
        compared: candidates looked at, most of them by estimate.
    """

    situation: ArrivalSituation
    choice: ArrivalChoice
    baselines: dict[str, float]
    compared: int

    @property
    def speedup(self) -> float:
        """Over ring, started at the last arrival."""
        return self.baselines["ring"] / self.choice.post_seconds

    def schedule(self) -> Schedule:
        """Makes the chosen schedule; validated."""
        return synthesize(self.choice.request)


def plan_arrivals(situation: ArrivalSituation, completion: Completion | None = None) -> ArrivalPlan:
    """Chooses the candidate that ends first.

    Args:
        situation: what to plan for.
        completion: when a schedule ends under the situation's arrivals. If not given, phases are
            taken to begin when the ranks they need have all come and the phase before is over.

    Ties go to the candidate that comes first: baselines, then the plan for the last rank alone.
    """
    n = situation.ranks
    baselines = {
        name: count_rounds(Request(n, (), name)).post_seconds(situation.size, situation.link)
        for name in BASELINES
        if name != "tree"
    }
    name = min(baselines, key=lambda name: baselines[name])
    best = ArrivalChoice(Request(n, (), name), count_rounds(Request(n, (), name)), baselines[name])
    compared = len(baselines)
    requests = dict.fromkeys([Request(n, (), name) for name in baselines] if completion else [])
    for request in [*requests, *_candidates(situation)]:
        schedule = synthesize(request)
        counts = counts_of(schedule)
        end = completion(schedule) if completion else _finish(schedule, counts, situation)
        compared += 1
        if end - situation.last < best.post_seconds * (1 - 1e-12):
            best = ArrivalChoice(request, counts, end - situation.last)
    return ArrivalPlan(situation, best, baselines, compared)


def _finish(schedule: Schedule, counts: Counts, situation: ArrivalSituation) -> float:
    """When a schedule ends if every phase begins with all that it needs."""
    come = situation.arrivals
    sets = [schedule.early, *schedule.arrivals]
    starts, latest = [], min(come)
    for ranks in sets:
        latest = max(latest, *(come[rank] for rank in ranks))
        starts.append(latest)
    if not schedule.arrivals:
        starts = [latest, latest]
    return counts.finish(situation.size, situation.link, starts)


def _candidates(situation: ArrivalSituation) -> Iterator[Request]:
    """The requests worth making, without the baselines."""
    order = sorted(range(situation.ranks), key=lambda rank: (situation.arrivals[rank], rank))
    lead = situation.last - situation.arrivals[order[-2]]
    alone = Situation(situation.ranks, order[-1], situation.size, situation.link, lead, situation.max_chunks)
    chosen = plan(alone).choice.request
    if chosen.algorithm not in BASELINES or chosen.algorithm == "tree":
        yield chosen
    yield from _best_tree(situation)
    seen: dict[tuple[tuple[int, ...], ...], int] = {}
    made = 0
    options = estimates(situation.arrivals, situation.size, situation.link, situation.max_chunks)
    for option in sorted(options, key=lambda option: option.seconds):
        groups = option.request.arrivals
        if made == FINALISTS or seen.get(groups) == 2:
            continue
        seen[groups] = seen.get(groups, 0) + 1
        made += 1
        yield option.request


def _best_tree(situation: ArrivalSituation) -> Iterator[Request]:
    """The tree with the groups that suit it best: for small messages, where rounds count most."""
    best: tuple[float, Request] | None = None
    for grouping in groupings(situation.arrivals):
        request = Request(situation.ranks, algorithm="tree", groups=grouping.groups)
        end = count_rounds(request).finish(situation.size, situation.link, grouping.starts)
        if best is None or end < best[0]:
            best = (end, request)
    if best is not None:
        yield best[1]
