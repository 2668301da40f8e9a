"""The AllReduces that everybody has: ring, recursive halving-doubling (Rabenseifner's), direct.

As schedules they use no pre phase: with a late rank, all of them start when it arrives. Their rounds
(`ALL_REDUCES`) also serve as parts of other families, over fewer ranks or a part of the buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..schedules import bounds
from ..schedules.ir import Op, Origin, Phase, RoundLike, Schedule, phase_names
from ..schedules.reduce_scatter import ring_reduce_scatter
from .halving import doubling_all_gather, halving_reduce_scatter, recursive_doubling
from .request import Request
from .runs import Run, even_runs

Rounds = list[RoundLike]


def without_pre(request: Request, family: str, chunks: int, rounds: Iterable[RoundLike]) -> Schedule:
    """A schedule in which nothing happens before the last arrival."""
    *before, last = phase_names(len(request.arrivals))
    phases = (*(Phase.build(name, []) for name in before), Phase.build(last, rounds))
    bound = bounds.post_rounds(request.ranks, chunks, len(request.arrivals[-1]) if request.late else 0)
    origin = Origin(family, request.granularity(), bound)
    return Schedule(request.ranks, request.arrivals, chunks, phases, origin)


def ring_all_gather(members: Sequence[int], runs: Sequence[Run]) -> list[NDArray[np.int64]]:
    """n-1 rounds in which member i's run i goes once round the ring; empty runs send nothing."""
    size = len(members)
    rank, run = np.asarray(members), np.asarray(runs)
    here = np.arange(size)
    rounds = []
    for step in range(size - 1):
        part = run[(here - step) % size]
        copy = np.full(size, int(Op.COPY))
        table = np.column_stack((rank, rank[(here + 1) % size], part, copy))
        rounds.append(table[part[:, 1] > 0])
    return [table for table in rounds if len(table)]


def ring_rounds(members: Sequence[int], run: Run) -> Rounds:
    """ReduceScatter and AllGather round a ring: 2(n-1) rounds, the least volume."""
    runs = even_runs(run[1], len(members), run[0])
    return [*ring_reduce_scatter(members, runs), *ring_all_gather(members, runs)]


def halving_doubling_rounds(members: Sequence[int], run: Run) -> Rounds:
    """ReduceScatter by halving, AllGather by doubling."""
    return [*halving_reduce_scatter(members, run), *doubling_all_gather(members, run)]


def direct_rounds(members: Sequence[int], run: Run) -> Rounds:
    """Recursive doubling of the whole run."""
    return [*recursive_doubling(members, run)]


ALL_REDUCES: dict[str, Callable[[Sequence[int], Run], Rounds]] = {
    "ring": ring_rounds,
    "rhd": halving_doubling_rounds,
    "direct": direct_rounds,
}
"""Name -> the rounds of an AllReduce of a non-empty run of chunks over some ranks."""


def ring(request: Request) -> Schedule:
    """Ring: 2(n-1) rounds of s/n, the least bandwidth of an AllReduce that starts from nothing."""
    chunks = request.chunk_count(request.ranks)
    return without_pre(request, "ring", chunks, ring_rounds(range(request.ranks), (0, chunks)))


def halving_doubling(request: Request) -> Schedule:
    """Recursive halving, then doubling: 2 log2 n rounds; ring's bandwidth where n is a power of two."""
    chunks = request.chunk_count(1 << (request.ranks.bit_length() - 1))
    return without_pre(request, "rhd", chunks, halving_doubling_rounds(range(request.ranks), (0, chunks)))


def direct(request: Request) -> Schedule:
    """Recursive doubling of the whole buffer: the paper's baseline for small messages.

    It moves log2 n whole buffers, so on large ones every comparison with it flatters: `exchange.py` and
    `ring` are what to compare with there.
    """
    chunks = request.chunk_count(1)
    return without_pre(request, "direct", chunks, direct_rounds(range(request.ranks), (0, chunks)))
