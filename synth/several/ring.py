"""One early rank: nothing has been reduced, so what remains is an AllReduce, and the ring is hard to beat.

With k a multiple of n it meets the bound, 2(n - 1) k / n.
"""

from __future__ import annotations

import numpy as np

from .rounds import IntArray


def ring_all_reduce(ranks: int, chunks: int) -> list[IntArray]:
    """Rounds of rows (src, dst, chunk, adds), a chunk a message: n chunks at a time go round the ring twice.

    >>> [rows.tolist() for rows in ring_all_reduce(2, 1)]
    [[[1, 0, 0, 1]], [[0, 1, 0, 0]]]
    """
    rounds = []
    for first in range(0, chunks, ranks):
        place = np.arange(min(ranks, chunks - first))
        for step in range(1, 2 * ranks - 1):
            # Once round, the sum of the chunk at `place` is complete there; then it is handed on.
            src = (place + step) % ranks
            adds = np.full(len(place), int(step < ranks))
            rounds.append(np.column_stack((src, (src + 1) % ranks, first + place, adds)))
    return rounds
