"""Who comes last, how often, by how much, and whether it is the same rank again: statistics of a trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrivals import ArrivalTrace
from .errors import UsageError

RESAMPLES = 1000
LEVEL = 0.95

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with a confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Summary:
    """A distribution of seconds over iterations; the mean with its confidence interval."""

    mean: Interval
    p50: float
    p90: float
    p99: float
    maximum: float


@dataclass(frozen=True, slots=True)
class ArrivalReport:
    """Statistics of an arrival trace.

    Attributes:
        ranks: number of ranks.
        iterations: complete iterations, which all else is about.
        incomplete: iterations left out.
        note: what the trace says about itself.
        tied: iterations in which no single rank was last.
        last: for every rank in how many iterations it alone was last.
        usual: the rank that was last most often; the lowest of several.
        usual_share: share of the iterations, those tied included, in which it was.
        persistence: share of the iterations after one with a single last rank in which the same rank was
            last again; None where there are none.
        after_second: by how much the last came after the second last: the delay that early ranks can use.
        after_first: by how much it came after the first.
        mean_after_first: for every rank its mean arrival after the first, in seconds.
    """

    ranks: int
    iterations: int
    incomplete: int
    note: str
    tied: int
    last: tuple[int, ...]
    usual: int
    usual_share: Interval
    persistence: Interval | None
    after_second: Summary
    after_first: Summary
    mean_after_first: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        return asdict(self)


def last_ranks(trace: ArrivalTrace) -> NDArray[np.int64]:
    """The last rank of every iteration, shape (iterations,); -1 where two or more came last together."""
    last = trace.seconds.argmax(axis=1)
    result: NDArray[np.int64] = np.where(leads(trace) > 0, last, -1)
    return result


def leads(trace: ArrivalTrace) -> Values:
    """Seconds from the second last arrival to the last, shape (iterations,)."""
    two = np.partition(trace.seconds, trace.ranks - 2, axis=1)[:, -2:]
    result: Values = two[:, 1] - two[:, 0]
    return result


def arrival_report(trace: ArrivalTrace, seed: int = 0) -> ArrivalReport:
    """Computes the statistics of a trace; `seed` is for the confidence intervals."""
    last = last_ranks(trace)
    counts = np.bincount(last[last >= 0], minlength=trace.ranks)
    usual = int(counts.argmax())
    draws = min(RESAMPLES, max(100, 10**8 // trace.iterations))
    again = (last[1:] == last[:-1])[last[:-1] >= 0]
    return ArrivalReport(
        ranks=trace.ranks,
        iterations=trace.iterations,
        incomplete=trace.incomplete,
        note=trace.note,
        tied=int((last < 0).sum()),
        last=tuple(counts.tolist()),
        usual=usual,
        usual_share=bootstrap((last == usual).astype(np.float64), seed=seed, resamples=draws),
        persistence=bootstrap(again.astype(np.float64), seed=seed, resamples=draws) if len(again) else None,
        after_second=_summary(leads(trace), seed, draws),
        after_first=_summary(trace.seconds.max(axis=1), seed, draws),
        mean_after_first=tuple(trace.seconds.mean(axis=0).tolist()),
    )


def _summary(values: Values, seed: int, draws: int) -> Summary:
    p50, p90, p99, maximum = np.quantile(values, (0.5, 0.9, 0.99, 1.0)).tolist()
    return Summary(bootstrap(values, seed=seed, resamples=draws), p50, p90, p99, maximum)


def _mean(values: Values) -> float:
    return float(values.mean())


def bootstrap(
    values: Values,
    statistic: Callable[[Values], float] = _mean,
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
    block: int | None = None,
    level: float = LEVEL,
) -> Interval:
    """A percentile confidence interval for a statistic over iterations, by circular block bootstrap.

    Whoever is late tends to be late again, so iterations are not independent: runs of `block` successive
    ones are drawn, wrapping around at the end.

    Args:
        values: one value or row an iteration, in order, shape (iterations, ...). For a ratio of two means
            give both as columns, so that they are drawn together.
        statistic: of such an array, with as many iterations.
        seed: of the draws; the same seed gives the same interval.
        resamples: number of draws.
        block: length of a run; None: the cube root of the number of iterations, rounded up.
        level: of confidence.

    Raises:
        UsageError: no values, or parameters out of range.
    """
    count = len(values)
    length = int(np.ceil(count ** (1 / 3))) if block is None else block
    if count < 1 or resamples < 1 or not 1 <= length <= count or not 0 < level < 1:
        raise UsageError("bootstrap: needs values, a block within them, a level between 0 and 1")
    random = np.random.default_rng(seed)
    drawn = np.empty(resamples)
    steps = np.arange(length)
    for at in range(resamples):
        starts = random.integers(0, count, -(-count // length))
        drawn[at] = statistic(values[((starts[:, None] + steps) % count).ravel()[:count]])
    low, high = np.quantile(drawn, ((1 - level) / 2, (1 + level) / 2)).tolist()
    return Interval(statistic(values), low, high)
