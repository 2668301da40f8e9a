"""Pairwise exchange: the direct AllReduce in its bandwidth-efficient form.

Recursive doubling of the whole buffer (`direct`) moves log2 n buffers, which flatters whatever is compared
with it on large ones. Here every rank owns 1/n of the buffer: in round t of the ReduceScatter each rank
sends the part that the t-th rank after it owns straight to that rank, and in round t of the AllGather its own
part. The volume is the ring's, and no part is passed on: every message goes from its maker to its user.
"""

from __future__ import annotations

import numpy as np

from ..schedules.ir import Op, Schedule
from .baselines import Rounds, without_pre
from .request import Request
from .runs import even_runs


def pairwise_exchange(request: Request) -> Schedule:
    """2(n-1) rounds of s/n in which rank i sends to rank i + t directly, t = 1..n-1 twice over."""
    chunks = request.chunk_count(request.ranks)
    return without_pre(request, "pairwise-exchange", chunks, _rounds(request.ranks, chunks))


def _rounds(ranks: int, chunks: int) -> Rounds:
    runs, here = np.asarray(even_runs(chunks, ranks)), np.arange(ranks)
    rounds: Rounds = []
    for op in (Op.REDUCE, Op.COPY):
        for distance in range(1, ranks):
            there = (here + distance) % ranks
            part = runs[there if op == Op.REDUCE else here]
            table = np.column_stack((here, there, part, np.full(ranks, int(op))))
            rounds.append(table[part[:, 1] > 0])
    return rounds
