"""The planner: which algorithm, cut how finely, for this cluster, this size and this delay.

Every candidate is a request; what it takes follows from its counts of rounds (`counts.py`) without making the
schedule, so thousands are compared in a moment. All baselines are candidates, so a plan is never worse
than the best of them. All times are modelled (alpha-beta), from the last arrival to the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, sqrt

from ..schedules import bounds
from ..schedules.cost import Link
from ..schedules.errors import UsageError
from ..schedules.ir import Schedule
from .counts import Counts
from .families import count_rounds, synthesize
from .request import Request

BASELINES = ("ring", "rhd", "direct", "tree", "pairwise-exchange")
"""What a plan is compared with; each is the best known form of its kind (`docs/families.md`)."""

MAX_CHUNKS = 4096
"""Chunks that a plan may use unless told otherwise: messages get small long before."""

LEAST_SHARE = 1e-6
"""A smaller part of the buffer is not worth splitting off: the saving is below what chunks can express."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What to plan for.

    Attributes:
        ranks: n.
        late: the late rank, or None if nobody is.
        size: bytes of the buffer.
        link: alpha and bandwidth of a port.
        delay: seconds by which the late rank comes after the others.
        max_chunks: chunks that a schedule may have.

    Raises:
        UsageError: a negative delay, a size below one byte, a delay with nobody late.
    """

    ranks: int
    late: int | None
    size: int
    link: Link
    delay: float = 0.0
    max_chunks: int = MAX_CHUNKS

    def __post_init__(self) -> None:
        Request(self.ranks, self.late_ranks, "ring")
        if self.size < 1:
            raise UsageError(f"the buffer must have at least one byte, not {self.size}")
        if not 0 <= self.delay < float("inf"):
            raise UsageError(f"the delay must be 0 or more seconds, not {self.delay}")
        if self.delay and self.late is None:
            raise UsageError("a delay needs a late rank: name it with --late")
        if self.max_chunks < 1:
            raise UsageError(f"a schedule has at least one chunk, not {self.max_chunks}")

    @property
    def late_ranks(self) -> tuple[int, ...]:
        """The late rank as requests take it."""
        return () if self.late is None else (self.late,)


@dataclass(frozen=True, slots=True)
class Choice:
    """A candidate with its rounds and the modelled seconds from the last arrival to the end."""

    request: Request
    counts: Counts
    post_seconds: float


@dataclass(frozen=True, slots=True)
class Plan:
    """The best candidate for a situation, what it was compared with, and the bound.

    Attributes:
        situation: what was planned for.
        choice: the best candidate.
        baselines: name -> modelled seconds from the last arrival on.
        published: the same for StragglAR as published, one chunk an early rank; None with nobody late.
        bound_seconds: what no schedule can beat, counting bandwidth only.
    """

    situation: Situation
    choice: Choice
    baselines: dict[str, float]
    published: float | None
    bound_seconds: float

    @property
    def speedup(self) -> float:
        """Over ring."""
        return self.baselines["ring"] / self.choice.post_seconds

    def schedule(self) -> Schedule:
        """Makes the chosen schedule; validated."""
        return synthesize(self.choice.request)


def plan(situation: Situation) -> Plan:
    """Chooses the candidate with the least modelled time from the last arrival to the end.

    Ties go to the candidate that comes first: baselines, then fewer chunks.
    """
    baselines = {name: evaluate(_baseline(situation, name), situation) for name in BASELINES}
    best = min(baselines.values(), key=lambda choice: choice.post_seconds)
    for request in candidates(situation):
        choice = evaluate(request, situation)
        if choice.post_seconds < best.post_seconds * (1 - 1e-12):
            best = choice
    return Plan(
        situation,
        best,
        {name: choice.post_seconds for name, choice in baselines.items()},
        published_seconds(situation),
        bound_seconds(situation),
    )


def evaluate(request: Request, situation: Situation) -> Choice:
    """The modelled seconds of one candidate: `schedules.cost` of its schedule, without making it."""
    made = count_rounds(request)
    return Choice(request, made, made.post_seconds(situation.size, situation.link, situation.delay))


def published_seconds(situation: Situation) -> float | None:
    """What StragglAR as published takes: a ReduceScatter, then one chunk an early rank."""
    if situation.late is None:
        return None
    request = Request(situation.ranks, situation.late_ranks, chunks=situation.ranks - 1)
    return evaluate(request, situation).post_seconds


def bound_seconds(situation: Situation) -> float:
    """Least time from the last arrival of any schedule, counting bandwidth only."""
    seconds, n = situation.size * situation.link.beta, situation.ranks
    if situation.late is None:
        return 2 * (n - 1) / n * seconds
    return bounds.post_seconds_after_delay(n, seconds, situation.delay)


def with_latency(situation: Situation) -> float:
    """The bandwidth bound with the latency that pipelines of rounds have: what a plan should come near.

    The ReduceScatter's n - 2 rounds take (n - 2) alpha of the delay before they move a byte; B is the bound
    for what is left of it. A pipeline over L = ceil(log2 n) - 1 doublings then takes, with the best number of
    chunks, (sqrt(B) + sqrt(L alpha))^2. Not a lower bound: small buffers are better off with few rounds.
    """
    n, alpha = situation.ranks, situation.link.alpha
    hidden = max(0.0, situation.delay - (n - 2) * alpha)
    bound = bound_seconds(replace(situation, delay=hidden))
    return (sqrt(bound) + sqrt((bounds.ceil_log2(n) - 1) * alpha)) ** 2


def _baseline(situation: Situation, name: str) -> Request:
    return Request(situation.ranks, situation.late_ranks, name)


def candidates(situation: Situation) -> Iterator[Request]:
    """The straggler-aware requests worth comparing, coarse ones first."""
    if situation.late is None:
        return
    early = situation.ranks - 1
    owners = _power_below(early)
    for chunks in merge_chunk_counts(situation):
        yield Request(situation.ranks, situation.late_ranks, "stragglar", chunks=chunks)
        if owners == early or chunks <= owners:  # what halving can leave in place for the merge
            yield Request(situation.ranks, situation.late_ranks, "stragglar", chunks=chunks, pre="rhd")
        for pre in ("direct", "rhd", "ring"):
            yield Request(situation.ranks, situation.late_ranks, "merge-allreduce", chunks=chunks, pre=pre)
    yield from _splits(situation)


def best_chunks(situation: Situation, share: float = 1.0) -> float:
    """k* = sqrt(L s beta / alpha): where the rounds' latency and their number balance, for `share` of s."""
    doublings = max(1, bounds.ceil_log2(situation.ranks) - 1)
    if situation.link.alpha == 0:
        return float(situation.max_chunks)
    return sqrt(doublings * share * situation.size * situation.link.beta / situation.link.alpha)


def merge_chunk_counts(situation: Situation) -> list[int]:
    """Chunk counts around k*, multiples of the early ranks near it, and a geometric net over all others."""
    early, most = situation.ranks - 1, situation.max_chunks
    best = best_chunks(situation)
    wanted = {1, 2, 3, early}
    wanted |= {ceil(1.25**i) for i in range(38)}
    wanted |= {round(best * f) for f in (0.6, 0.7, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.2, 1.4)}
    middle = round(best / early)
    wanted |= {m * early for m in range(max(1, middle - 3), middle + 4)}
    wanted |= {m * early for m in (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64)}
    return sorted(k for k in wanted if 1 <= k <= min(most, max(4 * early, round(4 * best) + 4)))


def hidden_share(situation: Situation) -> float:
    """The fraction of the buffer whose ReduceScatter the delay hides, counting bandwidth only."""
    early, seconds = situation.ranks - 1, situation.size * situation.link.beta
    if early < 2:
        return 1.0
    return min(1.0, situation.delay * early / ((early - 1) * seconds))


def _splits(situation: Situation) -> Iterator[Request]:
    """Fractions around what the delay hides, each cut as finely as its part of the buffer wants."""
    share = hidden_share(situation)
    if not LEAST_SHARE <= share < 1:
        return
    seen = set()
    for scale in (0.5, 0.75, 0.9, 0.95, 1.0, 1.05, 1.25):
        x = min(0.999, share * scale)
        best = max(1.0, best_chunks(situation, x))
        for factor in (0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0):
            for inner, width in (("ring", situation.ranks), ("rhd", _power_below(situation.ranks))):
                split = _split_chunks(x, best * factor, width)
                key = (*split, inner)
                if key not in seen and sum(split) <= situation.max_chunks:
                    seen.add(key)
                    yield _split_request(situation, split, inner)


def _split_chunks(x: float, merged: float, width: int) -> tuple[int, int]:
    """About `merged` chunks for the merge and a multiple of `width` for the rest, as x to 1 - x."""
    runs = max(1, round(merged * (1 - x) / (x * width)))
    return max(1, round(runs * width * x / (1 - x))), runs * width


def _split_request(situation: Situation, split: tuple[int, int], inner: str) -> Request:
    merged, rest = split
    return Request(
        situation.ranks,
        situation.late_ranks,
        "split",
        chunks=merged + rest,
        fraction=Fraction(merged, merged + rest),
        inner=inner,
    )


def _power_below(n: int) -> int:
    return 1 << (n.bit_length() - 1)
