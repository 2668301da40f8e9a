"""The ring ReduceScatter, in one place: the pre phase of imported schedules and of our own constructions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .errors import UsageError
from .ir import COUNT, DST, FIRST, OP, SRC, Op


def ring_reduce_scatter(members: Sequence[int], runs: Sequence[tuple[int, int]]) -> list[NDArray[np.int64]]:
    """Rounds after which each member holds its own run of chunks summed over all members.

    The partial sum of a run starts at the member after its owner and travels once round the ring, every
    member adding its part, so that it ends at the owner after len(members) - 1 rounds.

    Args:
        members: the ranks that take part, in ring order, all different.
        runs: for every member the contiguous chunks that it ends with, as (first, count); a run of
            count 0 moves nothing.

    Returns:
        One (t, 5) table of `Op.REDUCE` rows (src, dst, first, count, op) per round; rounds in which
        nothing moves are left out, so that there are len(members) - 1 rounds, or none.

    Raises:
        UsageError: not one run for every member, or a member named twice.

    >>> [table.tolist() for table in ring_reduce_scatter([0, 2, 5], [(0, 1), (1, 1), (2, 0)])]
    [[[2, 5, 0, 1, 0], [5, 0, 1, 1, 0]], [[0, 2, 1, 1, 0], [5, 0, 0, 1, 0]]]
    """
    if len(members) != len(runs):
        raise UsageError(f"a ReduceScatter over {len(members)} ranks needs as many runs, not {len(runs)}")
    if len(set(members)) != len(members):
        raise UsageError("a rank takes part in a ReduceScatter twice")
    ring = np.asarray(members, dtype=np.int64)
    spans = np.asarray(runs, dtype=np.int64).reshape(len(runs), 2)
    owners = np.flatnonzero(spans[:, 1] > 0)
    if not len(owners):
        return []
    return [_round(ring, spans, owners, step) for step in range(1, len(ring))]


def _round(
    ring: NDArray[np.int64], spans: NDArray[np.int64], owners: NDArray[np.int64], step: int
) -> NDArray[np.int64]:
    # In round `step` (from 1) the run of the member at position p leaves position p + step.
    sender = (owners + step) % len(ring)
    table = np.empty((len(owners), 5), dtype=np.int64)
    table[:, SRC] = ring[sender]
    table[:, DST] = ring[(sender + 1) % len(ring)]
    table[:, FIRST : COUNT + 1] = spans[owners]
    table[:, OP] = Op.REDUCE
    return table[np.argsort(table[:, SRC])]
