"""The AllReduces that everybody has: ring, recursive halving-doubling, direct.

They use no pre phase: with a late rank, all of them start when it arrives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..schedules import bounds
from ..schedules.ir import Op, Origin, Phase, RoundLike, Schedule
from ..schedules.reduce_scatter import ring_reduce_scatter
from .halving import doubling_all_gather, halving_reduce_scatter, recursive_doubling
from .request import Request
from .runs import Run, even_runs


def _without_pre(request: Request, family: str, chunks: int, rounds: Iterable[RoundLike]) -> Schedule:
    post = Phase.build("post", rounds)
    phases = (Phase.build("pre", []), post) if request.late else (post,)
    bound = bounds.post_rounds(request.ranks, chunks, len(request.late))
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


def ring(request: Request) -> Schedule:
    """Ring: 2(n-1) rounds of s/n, the least bandwidth of an AllReduce that starts from nothing."""
    chunks = request.chunk_count(request.ranks)
    members, runs = range(request.ranks), even_runs(chunks, request.ranks)
    rounds = [*ring_reduce_scatter(members, runs), *ring_all_gather(members, runs)]
    return _without_pre(request, "ring", chunks, rounds)


def halving_doubling(request: Request) -> Schedule:
    """Recursive halving, then doubling: 2 log2 n rounds; ring's bandwidth where n is a power of two."""
    chunks = request.chunk_count(1 << (request.ranks.bit_length() - 1))
    members, whole = range(request.ranks), (0, chunks)
    rounds = [*halving_reduce_scatter(members, whole), *doubling_all_gather(members, whole)]
    return _without_pre(request, "rhd", chunks, rounds)


def direct(request: Request) -> Schedule:
    """Recursive doubling of the whole buffer: the paper's baseline for small messages."""
    chunks = request.chunk_count(1)
    rounds = recursive_doubling(range(request.ranks), (0, chunks))
    return _without_pre(request, "direct", chunks, rounds)
