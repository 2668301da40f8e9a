"""Merge after AllReduce: for small messages, where fewer rounds count for more than less volume.

While the late rank is away the early ones reduce the whole buffer, all of them. Then every early rank owns
every chunk, so the merge takes any number of chunks, down to one: ceil(log2 n) rounds.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..schedules.ir import Schedule
from .baselines import ALL_REDUCES
from .request import Request
from .stragglar import MergePart, early_and_late, merge_tables, merged_schedule, place


def merge_allreduce(request: Request) -> Schedule:
    """AllReduce of the early ranks, then the merge: k + ceil(log2 n) - 1 rounds for any k, 1 if not given.

    Raises:
        UsageError: nobody is late.
        InfeasibleError: several ranks are late.
    """
    members, late = early_and_late(request)
    chunks = request.chunk_count(1)
    pre = request.pre or default_pre(request.ranks, chunks)
    tables, method = merge_tables(len(members), chunks)
    ranks, same = np.asarray([*members, late]), np.arange(chunks)
    post = [place(table, ranks, same) for table in tables]
    part = MergePart(ALL_REDUCES[pre](members, (0, chunks)), [*post], method)
    return merged_schedule(replace(request, pre=pre), "merge-allreduce", chunks, part)


def default_pre(ranks: int, chunks: int) -> str:
    """The AllReduce of the early ranks if none is asked for, by how fine the buffer is cut.

    One chunk: direct, the fewest rounds. A chunk for every early rank: ring, the least volume. Between: rhd.
    """
    if chunks == 1:
        return "direct"
    return "ring" if chunks >= ranks - 1 else "rhd"
