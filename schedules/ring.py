"""The ring AllReduce that every run is measured against."""

from __future__ import annotations

import numpy as np

from .ir import Op, Origin, Phase, Schedule
from .reduce_scatter import ring_reduce_scatter


def ring_all_reduce(ranks: int) -> Schedule:
    """Ring over `ranks` ranks in order, a chunk a rank: 2(n-1) rounds of 1/n of the buffer; nobody is late.

    >>> len(ring_all_reduce(4).post)
    6
    """
    here = np.arange(ranks)
    rounds = ring_reduce_scatter(here.tolist(), [(chunk, 1) for chunk in range(ranks)])
    for step in range(ranks - 1):
        # Chunk c goes round from its owner, rank c.
        columns = (here, (here + 1) % ranks, (here - step) % ranks, np.ones(ranks), np.full(ranks, Op.COPY))
        rounds.append(np.column_stack(columns).astype(np.int64))
    return Schedule(ranks, (), ranks, (Phase.build("post", rounds),), Origin("ring"))
