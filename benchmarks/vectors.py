"""Random arrival vectors, and what a plan for each takes: as expected, and where the guess was wrong.

Used by `several.py`. Equal seeds give equal vectors. All times are modelled, by event simulation.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from stragglar.backends.simulation import simulate
from stragglar.schedules import Link, Schedule, bounds
from stragglar.synth import Request, synthesize
from stragglar.synth.arrival_plan import ArrivalPlan, ArrivalSituation, plan_arrivals
from stragglar.synth.families import count_rounds

LINK = Link(3e-6, 450 * 2.0**30)
RANKS = (4, 6, 7, 8, 12, 16)
SIZES = (1 << 20, 1 << 24, 1 << 26, 1 << 28, 1 << 30)
SCALES = (0.1, 10.0)
"""Of the spread of arrivals, in times of ring; log-uniform between."""

NOISE = 0.25
"""Standard deviation of the noise on arrivals, in spreads (last less first arrival)."""

WRONG = ("another rank late", "last rank early", "noisy arrivals")

Times = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Row:
    """One vector. Seconds count from the last arrival to the end.

    Attributes:
        kind: the distribution.
        ranks, size: n and bytes.
        spread: last less first arrival, in seconds.
        plan, bound: modelled seconds of the plan, and what no schedule can beat.
        pipeline: the bound on bandwidth with the latency of a pipeline of rounds, L = ceil(log2 n) - 1 deep:
            (sqrt(bound) + sqrt(L alpha))^2, what schedules of many equal chunks can come near. No bound.
        ring, rhd: of the baselines, started at the last arrival.
        family, groups: what was chosen; groups of late ranks, 0 for a baseline.
        partial: whether some of what could be done before was left out, to be in time.
        planned_in: measured seconds that planning took.
        wrong: what was wrong -> seconds of this plan, of the right plan, and of ring, started at the last
            arrival.
    """

    kind: str
    ranks: int
    size: int
    spread: float
    plan: float
    bound: float
    pipeline: float
    ring: float
    rhd: float
    family: str
    groups: int
    partial: bool
    planned_in: float
    wrong: dict[str, list[float]]


def exponential(chance: Generator, n: int) -> Times:
    """Each rank on its own: mean 1."""
    return chance.exponential(1.0, n)


def normal(chance: Generator, n: int) -> Times:
    """Around a common time: standard deviation 1/2."""
    return chance.normal(2.0, 0.5, n)


def heavy(chance: Generator, n: int) -> Times:
    """Pareto (shape 1.5) or lognormal (sigma 1), at even chances: seldom, but then very late."""
    return chance.pareto(1.5, n) if chance.random() < 0.5 else chance.lognormal(0.0, 1.0, n)


def two_groups(chance: Generator, n: int) -> Times:
    """Some come together, 1 after the others; all within 0.05."""
    late = chance.permutation(n) < chance.integers(1, max(2, n // 2 + 1))
    return late + 0.05 * chance.random(n)


KINDS = {"exponential": exponential, "normal": normal, "heavy-tailed": heavy, "two groups": two_groups}


def vectors(count: int, seed: int) -> Iterator[tuple[str, ArrivalSituation, Generator]]:
    """`count` situations, the kinds in turn, each with chances of its own for what follows."""
    names = list(KINDS)
    for index in range(count):
        chance = np.random.default_rng([seed, index])
        kind = names[index % len(names)]
        n, size = int(chance.choice(RANKS)), int(chance.choice(SIZES))
        ring = count_rounds(Request(n, (), "ring")).post_seconds(size, LINK)
        scale = ring * float(np.exp(chance.uniform(*np.log(SCALES))))
        arrivals = scale * KINDS[kind](chance, n)
        arrivals -= arrivals.min()
        yield kind, ArrivalSituation(tuple(arrivals.tolist()), size, LINK), chance


def planned(situation: ArrivalSituation) -> ArrivalPlan:
    """The plan, its finalists compared by event simulation."""
    return plan_arrivals(situation, lambda schedule: _end(schedule, situation))


def _end(schedule: Schedule, situation: ArrivalSituation) -> float:
    return simulate(schedule, situation.size, situation.link, situation.arrivals).completion


def study(kind: str, situation: ArrivalSituation, chance: Generator, guesses: bool) -> Row:
    """Plans for one vector; asserts: no worse than the baselines, no better than the bound."""
    start = time.perf_counter()
    made = planned(situation)
    seconds = time.perf_counter() - start
    taken, bound = made.choice.post_seconds, situation.bound_seconds
    assert taken <= min(made.baselines.values()) * (1 + 1e-12), (kind, situation)
    assert taken >= bound * (1 - 1e-9), (kind, situation)
    request = made.choice.request
    return Row(
        kind=kind,
        ranks=situation.ranks,
        size=situation.size,
        spread=max(situation.arrivals) - min(situation.arrivals),
        plan=taken,
        bound=bound,
        pipeline=_pipeline(situation),
        ring=made.baselines["ring"],
        rhd=made.baselines["rhd"],
        family=request.algorithm,
        groups=len(request.arrivals),
        partial=request.before is not None or request.algorithm == "split",
        planned_in=seconds,
        wrong=_wrong(made, chance) if guesses else {},
    )


def _pipeline(situation: ArrivalSituation) -> float:
    before = [time - situation.last for time in situation.arrivals]
    bandwidth = bounds.completion_seconds(before, situation.size * situation.link.beta)
    latency = (bounds.ceil_log2(situation.ranks) - 1) * situation.link.alpha
    return float((np.sqrt(bandwidth) + np.sqrt(latency)) ** 2)


def _wrong(made: ArrivalPlan, chance: Generator) -> dict[str, list[float]]:
    """The plan where something else happens, beside the plan for that."""
    situation, schedule = made.situation, synthesize(made.choice.request)
    come = np.asarray(situation.arrivals)
    spread = float(come.max() - come.min())
    early = come.copy()
    early[come.argmax()] = come.min()
    happens = {
        WRONG[0]: chance.permutation(come),
        WRONG[1]: early,
        WRONG[2]: come + NOISE * spread * chance.standard_normal(len(come)),
    }
    found = {}
    for name, arrivals in happens.items():
        other = replace(situation, arrivals=tuple((arrivals - arrivals.min()).tolist()))
        taken = _end(schedule, other) - other.last
        # Renamed ranks: the right plan takes as long as the plan did.
        right = made.choice.post_seconds if name == WRONG[0] else planned(other).choice.post_seconds
        found[name] = [taken, right, made.baselines["ring"]]
    return found
