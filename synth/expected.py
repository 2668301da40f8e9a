"""Planning for a distribution of arrivals: the candidate with the least expected time over a trace.

Which rank is late, and by how much, changes from iteration to iteration. A plan fixes both, so what counts
is the mean over the trace of the time from the last arrival to the end, also in the iterations in which the
plan guessed wrong. How long a schedule takes for given arrivals is for the caller to say (an event
simulation): this module only chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..schedules.cost import Link
from ..schedules.ir import Schedule
from .arrival_plan import ArrivalSituation, plan_arrivals
from .families import synthesize
from .planner import BASELINES, MAX_CHUNKS, Situation, plan
from .request import Request

Times = NDArray[np.float64]
Waited = Callable[[Schedule], Times]
"""A schedule -> seconds from the last arrival to the end, one an iteration of the trace."""

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Of the late rank's lead, for which plans are made and then compared over the whole trace."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A candidate over a trace: `waited` are seconds from the last arrival to the end, one an iteration."""

    request: Request
    waited: Times

    @property
    def mean(self) -> float:
        """The expected time, in seconds."""
        return float(self.waited.mean())


@dataclass(frozen=True, slots=True)
class ExpectedPlan:
    """The best candidate over a trace, the baselines beside it, and how many were compared."""

    choice: Expected
    baselines: dict[str, Expected]
    compared: int

    def guess(self, last: NDArray[np.int64]) -> dict[str, float | None]:
        """Mean seconds where a rank of the last group planned was last, and where not; None where never."""
        arrivals = self.choice.request.arrivals
        right = np.isin(last, arrivals[-1]) if arrivals else np.ones(len(last), dtype=bool)
        means = {"right": self.choice.waited[right], "wrong": self.choice.waited[~right]}
        return {name: float(values.mean()) if len(values) else None for name, values in means.items()}


def trace_candidates(
    ranks: int, late: Sequence[int], leads: Times, size: int, link: Link, max_chunks: int = MAX_CHUNKS
) -> list[Request]:
    """Requests worth simulating: for each likely late rank the plans for several of its leads.

    Args:
        ranks: n.
        late: ranks that are last often enough to plan for, the most frequent first.
        leads: seconds by which the last rank came after the second last, one an iteration.
        size: bytes of the buffer.
        link: alpha and bandwidth.
        max_chunks: chunks that a schedule may have.
    """
    found: dict[Request, None] = {}
    for rank in late:
        for lead in np.quantile(leads, QUANTILES).tolist():
            found[plan(Situation(ranks, rank, size, link, lead, max_chunks)).choice.request] = None
        found[Request(ranks, (rank,), "tree")] = None
        found[Request(ranks, (rank,))] = None
    return [request for request in found if request.algorithm not in BASELINES or request.algorithm == "tree"]


def group_candidates(
    seconds: Times,
    likely: Sequence[int],
    size: int,
    link: Link,
    max_chunks: int,
    completion: Callable[[Schedule, Times], float],
) -> list[Request]:
    """Requests with groups worth simulating: plans for the usual arrivals of all ranks, whoever is last.

    Args:
        seconds: arrivals, shape (iterations, ranks).
        likely: ranks that are last often enough to plan for.
        size: bytes of the buffer.
        link: alpha and bandwidth.
        max_chunks: chunks that a schedule may have.
        completion: when a schedule ends under one arrival vector.
    """
    last = seconds.argmax(axis=1)
    chosen = [seconds, *(seconds[last == rank] for rank in likely)]
    vectors = [np.quantile(rows, q, axis=0) for rows in chosen if len(rows) for q in (0.25, 0.5, 0.75)]
    found: dict[Request, None] = {}
    for vector in vectors:
        situation = ArrivalSituation(tuple(vector.tolist()), size, link, max_chunks)

        def ends(schedule: Schedule, vector: Times = vector) -> float:
            return completion(schedule, vector)

        found[plan_arrivals(situation, ends).choice.request] = None
    return [request for request in found if request.late]


def plan_expected(ranks: int, requests: Sequence[Request], waited: Waited) -> ExpectedPlan:
    """Chooses the request with the least mean time; ties go to baselines, then to what comes first."""
    names = [name for name in BASELINES if name != "tree"]
    baselines = {name: _expected(Request(ranks, (), name), waited) for name in names}
    others = [_expected(request, waited) for request in requests]
    best = min([*baselines.values(), *others], key=lambda candidate: candidate.mean)
    return ExpectedPlan(best, baselines, len(baselines) + len(others))


def _expected(request: Request, waited: Waited) -> Expected:
    return Expected(request, waited(synthesize(request)))
