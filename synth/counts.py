"""Rounds of every family by formula, without making the schedule: what a planner compares candidates with.

n is the number of ranks, N = n - 1 of them are early, k chunks, q = ceil(log2 n). The tests hold each
formula against the schedule that it stands for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..schedules.bounds import ceil_log2
from ..schedules.cost import Link
from ..schedules.ir import Schedule


@dataclass(frozen=True, slots=True)
class Counts:
    """Rounds before and after the last arrival, also weighted by the longest message of each, in chunks.

    Attributes:
        pre_rounds, post_rounds: rounds of the phases `pre` and `post`.
        pre_chunk_rounds, post_chunk_rounds: their `Phase.chunk_rounds`.
        chunks: k, equal parts of the buffer.
        between: the same two of every phase between, which a group before the last begins.
    """

    pre_rounds: int
    pre_chunk_rounds: int
    post_rounds: int
    post_chunk_rounds: int
    chunks: int
    between: tuple[tuple[int, int], ...] = ()

    def post_seconds(self, size: float, link: Link, delay: float = 0.0) -> float:
        """Modelled time from the last arrival to the end: what `schedules.cost` says of the schedule."""
        groups = len(self.between) + 1
        # On a clock that is 0 at the last arrival, so that a long delay takes no digits from the result.
        starts = [delay * place / groups - delay for place in range(groups)]
        return self.finish(size, link, [*starts, 0.0])

    def finish(self, size: float, link: Link, starts: Sequence[float]) -> float:
        """When the last phase is over, where no phase begins before the time in `starts`, one a phase."""
        clock, part = starts[0], size / self.chunks
        pre, post = (self.pre_rounds, self.pre_chunk_rounds), (self.post_rounds, self.post_chunk_rounds)
        for begin, phase in zip(starts, (pre, *self.between, post), strict=True):
            clock = max(clock, begin) + link.rounds_seconds(*phase, part)
        return clock

    def after_groups(self, between: int) -> Counts:
        """The same with so many groups before the last, at whose arrival nothing is done."""
        return replace(self, between=((0, 0),) * between)


def counts_of(schedule: Schedule) -> Counts:
    """The counts of a schedule that has been made."""
    phases = [(len(phase), phase.chunk_rounds) for phase in schedule.phases]
    pre = phases[0] if schedule.arrivals else (0, 0)
    return Counts(*pre, *phases[-1], schedule.chunks, tuple(phases[1:-1]))


Pair = tuple[int, int]
"""(rounds, chunk-rounds)."""


def _plus(first: Pair, second: Pair) -> Pair:
    return first[0] + second[0], first[1] + second[1]


def _ring_half(ranks: int, chunks: int) -> Pair:
    """A ReduceScatter or an AllGather: n - 1 rounds of ceil(k/n); nothing to move without chunks."""
    return (ranks - 1, (ranks - 1) * -(-chunks // ranks)) if chunks else (0, 0)


def _halving_half(ranks: int, chunks: int) -> Pair:
    """A level halves ranks and runs; it takes one round, and two where the number of ranks is odd."""
    rounds = weight = 0
    while ranks > 1 and chunks:
        taken, chunks = 1 + ranks % 2, (chunks + 1) // 2
        rounds, weight, ranks = rounds + taken, weight + taken * chunks, ranks // 2
    return rounds, weight


def _direct_rounds(ranks: int) -> int:
    return ranks.bit_length() - 1 + (2 if ranks & (ranks - 1) else 0)


def _all_reduce(kind: str, ranks: int, chunks: int) -> Pair:
    if kind == "direct":
        rounds = _direct_rounds(ranks) if chunks else 0
        return rounds, rounds * chunks
    half = _ring_half(ranks, chunks) if kind == "ring" else _halving_half(ranks, chunks)
    return 2 * half[0], 2 * half[1]


def _merge(ranks: int, chunks: int) -> Pair:
    """k + q - 1 rounds of a chunk, the bound, for every n and k >= 1."""
    rounds = chunks + ceil_log2(ranks) - 1 if chunks else 0
    return rounds, rounds


def ring(ranks: int, chunks: int) -> Counts:
    """2 (n - 1) rounds of ceil(k/n) chunks."""
    return Counts(0, 0, *_all_reduce("ring", ranks, chunks), chunks)


def halving_doubling(ranks: int, chunks: int) -> Counts:
    """Twice the levels; log2 n of them, of k/2, k/4, .. chunks, if n is a power of two."""
    return Counts(0, 0, *_all_reduce("rhd", ranks, chunks), chunks)


def direct(ranks: int, chunks: int) -> Counts:
    """floor(log2 n) rounds of k chunks, two more where n is no power of two."""
    return Counts(0, 0, *_all_reduce("direct", ranks, chunks), chunks)


def pairwise_exchange(ranks: int, chunks: int) -> Counts:
    """2 (n - 1) rounds of ceil(k/n) chunks, like the ring."""
    return ring(ranks, chunks)


def tree(ranks: int, chunks: int, groups: Sequence[int] = (1,)) -> Counts:
    """Rounds of k chunks: ceil(log2 N) before, q after, one more where the last group + 1 is no power of two.

    `groups` are the sizes of the groups of late ranks; one before the last takes ceil(log2(size + 1)).
    """
    late = groups[-1] if groups else 0
    gather = ceil_log2(ranks - sum(groups))
    spread = ceil_log2(ranks) + (1 if (late + 1) & late else 0)
    pre, post = (gather, spread) if late else (0, gather + spread)
    joins = [ceil_log2(size + 1) for size in groups[:-1]]
    between = tuple((rounds, rounds * chunks) for rounds in joins)
    return Counts(pre, pre * chunks, post, post * chunks, chunks, between)


def stragglar(ranks: int, chunks: int, pre: str = "ring") -> Counts:
    """Ring: N - 1 rounds of ceil(k/N) before; rhd: the levels of halving over N. After: k + q - 1."""
    half = _halving_half if pre == "rhd" else _ring_half
    return Counts(*half(ranks - 1, chunks), *_merge(ranks, chunks), chunks)


def merge_allreduce(ranks: int, chunks: int, pre: str) -> Counts:
    """The AllReduce `pre` over N ranks before, k + q - 1 after."""
    return Counts(*_all_reduce(pre, ranks - 1, chunks), *_merge(ranks, chunks), chunks)


def split(ranks: int, merged: int, rest: int, inner: str = "ring") -> Counts:
    """A ReduceScatter of `merged` chunks before; their merge and the AllReduce `inner` of the rest after."""
    post = _plus(_merge(ranks, merged), _all_reduce(inner, ranks, rest))
    return Counts(*_ring_half(ranks - 1, merged), *post, merged + rest)
