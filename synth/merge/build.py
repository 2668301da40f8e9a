"""The one entrance: which construction serves which N. What it returns has been replayed (verify.py)."""

from __future__ import annotations

import numpy as np

from .pattern import Pattern
from .rounds import IntArray, MergeRounds
from .tiles import has_room, tile_pattern
from .unroll import steady_rounds, unroll
from .verify import check_merge_rounds

STORED: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {
    4: ((0, 1, 3, 4), (0, 3, 4, 1)),
    8: ((0, 3, 3, 4, 5, 1, 4, 4), (0, 4, 4, 3, 4, 3, 5, 1)),
    16: (
        (0, 5, 3, 5, 6, 2, 5, 5, 1, 5, 3, 4, 6, 4, 6, 4),
        (0, 4, 5, 6, 3, 4, 3, 2, 5, 6, 5, 5, 4, 6, 5, 1),
    ),
}
"""Ages received and sent by role for the N that tiles cannot serve, found once with a CP-SAT search."""


def merge_rounds(early: int, chunks: int) -> MergeRounds:
    """The post phase for `early` early ranks (0..N-1), one late rank (N) and `chunks` chunks, k of them.

    Meets the bound k + ceil(log2(N + 1)) - 1 for every N >= 1 and every k >= 1, but for N = 2 with k >= 3:
    there k + ceil(k / 2) rounds are the fewest that swaps allow (`ring_of_three` does without swaps).
    A function of (N, k) alone, in time proportional to the transfers, about N k.

    Args:
        early: N >= 1.
        chunks: k >= 1.

    Raises:
        ValueError: N or k below 1.

    Example:
        >>> m = merge_rounds(5, 10)
        >>> len(m.rounds), m.gap, m.method
        (12, 0, 'tiles')
    """
    if early < 1 or chunks < 1:
        raise ValueError(f"{early} early ranks, {chunks} chunks: both must be at least 1")
    built = _build(early, chunks)
    check_merge_rounds(built)
    return built


def _build(early: int, chunks: int) -> MergeRounds:
    if early == 2:
        return MergeRounds(early, chunks, _exchange(chunks), "exchange")
    if has_room(early):
        return MergeRounds(early, chunks, unroll(tile_pattern(early), chunks), "tiles")
    return MergeRounds(early, chunks, unroll(stored_pattern(early), chunks), "stored")


def stored_pattern(early: int) -> Pattern:
    """The stored pattern for N in `STORED`; `Pattern` checks it again."""
    receives, sends = STORED[early]
    return Pattern(np.array(receives, dtype=np.int32), np.array(sends, dtype=np.int32))


def _exchange(chunks: int) -> tuple[IntArray, ...]:
    """Two early ranks: the one that swaps cannot send to the other, so all copies wait for the last swap."""
    nothing = np.empty((0, 3), dtype=np.int32)
    swaps = steady_rounds(nothing, 2, chunks, chunks)
    pairs = [[[0, 1, c], [1, 0, c + 1]][: chunks - c] for c in range(0, chunks, 2)]
    return (*swaps, *(np.array(pair, dtype=np.int32) for pair in pairs))
