"""Three ranks without swaps: a ring that meets the bound where the merge family's swaps cannot.

With two early ranks every swap keeps the owner from sending to the other early rank, so swaps cost half
as many rounds again. In the ring late -> 0 -> 1 -> late every port works in (nearly) every round.
"""

from __future__ import annotations

import numpy as np

from .rounds import IntArray

LATE = 2


def ring_of_three(chunks: int) -> tuple[IntArray, ...]:
    """The post phase for early ranks 0 and 1 and late rank 2 in k + 1 rounds, the bound, for k >= 2 chunks.

    Chunk c belongs to rank c mod 2, as in `MergeRounds`. A chunk of rank 0 is added to there, then copied
    on to 1 and 2; a chunk of rank 1 is added to at the late rank, then copied on to 0 and 1.

    Returns:
        One int32 array a round, shape (transfers, 4), columns src, dst, chunk, adds (1: the receiver adds,
        0: it copies), sorted.

    Raises:
        ValueError: k below 2 (a single chunk is `merge_rounds(2, 1)`).
    """
    if chunks < 2:
        raise ValueError(f"{chunks} chunks: the ring of three needs 2")
    rounds: list[list[tuple[int, int, int, int]]] = [[] for _ in range(chunks + 1)]
    for chunk in range(chunks):
        turn, of_one = divmod(chunk, 2)
        to_zero, to_late = _times(turn, bool(of_one), chunks)
        rounds[to_zero].append((LATE, 0, chunk, 1 - of_one))
        rounds[to_zero + 1].append((0, 1, chunk, 0))
        rounds[to_late].append((1, LATE, chunk, of_one))
    return tuple(np.array(sorted(rows), dtype=np.int32) for rows in rounds)


def _times(turn: int, of_one: bool, chunks: int) -> tuple[int, int]:
    """Rounds in which the turn-th chunk of its owner goes to rank 0 and to the late rank.

    The orders interleave so that a chunk of 1 is at the late rank before it goes to 0, and a chunk of 0
    is at 1, a round after 0, before it goes to the late rank.
    """
    if of_one:
        return min(2 * turn + 2, chunks - 1), turn if turn < 2 else 2 * turn
    return max(0, 2 * turn - 1), 2 * turn + (2 if turn == 0 else 1)
