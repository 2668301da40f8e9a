"""From a steady pattern to the rounds of a post phase of any length, last rounds included.

Rounds 0..k-1 are the pattern, turned. Then the late rank has no raw chunk left, but the pattern goes on
for q - 1 rounds with chunk k - 1 in the place of every chunk that would have come after it: the late rank
hands it out once a round, and the ranks that would have spread the later chunks spread it. When the last
round begins every early rank misses one chunk at most, so any pairing of needs and holders ends it.
"""

from __future__ import annotations

import numpy as np

from .pattern import Pattern
from .rounds import CHUNK, DST, SRC, IntArray

NOTHING = -1
"""In the place of a chunk: none is missing."""


def unroll(pattern: Pattern, chunks: int) -> tuple[IntArray, ...]:
    """The k + q - 1 rounds for k = `chunks`, each sorted, in the format of `MergeRounds.rounds`."""
    final = chunks + pattern.doublings - 2
    if final < chunks:  # one early rank: the swaps are all there is to do
        return steady_rounds(pattern.copies(), pattern.early, chunks, chunks)
    return (
        *steady_rounds(pattern.copies(), pattern.early, chunks, final),
        _final_round(pattern, chunks, final),
    )


def steady_rounds(copies: IntArray, early: int, chunks: int, count: int) -> tuple[IntArray, ...]:
    """The first `count` rounds; `copies` is the table of `Pattern.copies`, k is `chunks`."""
    return tuple(_steady_round(copies[copies[:, CHUNK] <= r], early, chunks, r) for r in range(count))


def _steady_round(copies: IntArray, early: int, chunks: int, r: int) -> IntArray:
    """Round r: the copies (roles turned into ranks, ages into chunks) and what the late rank does."""
    newest, owner = min(r, chunks - 1), r % early
    late_rows = [[early, owner, newest]] if r >= chunks else [[owner, early, newest], [early, owner, newest]]
    rows = np.concatenate([copies, np.array(late_rows, dtype=np.int32)])
    turned = rows[: len(copies)]
    turned[:, [SRC, DST]] = (turned[:, [SRC, DST]] + owner) % early
    turned[:, CHUNK] = np.minimum(r - turned[:, CHUNK], newest)
    return _sorted(rows)


def _final_round(pattern: Pattern, chunks: int, r: int) -> IntArray:
    """Every early rank receives the one chunk it misses; the late rank, missing none, helps."""
    missing = np.full(pattern.early + 1, NOTHING, dtype=np.int64)
    missing[(np.arange(pattern.early) + r) % pattern.early] = _missing_by_role(pattern, chunks, r)
    # Ranks that miss the same chunk lie together on a ring; no such block is longer than half of it, so
    # the rank `longest` places on is outside one's own block and holds what one misses.
    ring = np.argsort(missing, kind="stable")
    _, blocks = np.unique(missing[missing != NOTHING], return_counts=True)
    longest = int(blocks.max())
    rows = np.stack([np.roll(ring, -longest), ring, missing[ring]], axis=1).astype(np.int32)
    return _sorted(rows[rows[:, CHUNK] != NOTHING])


def _missing_by_role(pattern: Pattern, chunks: int, r: int) -> IntArray:
    """The chunk that each role misses before the last round r = k + q - 2, or NOTHING; shape (N,).

    Chunk k - 1 has age q - 1 then, and stands for all younger ones: who holds any of those holds it.
    """
    q = pattern.doublings
    missing = np.full(pattern.early, NOTHING, dtype=np.int32)
    for age in (q + 1, q):
        if age <= r:
            missing[~pattern.holds(age)] = r - age
    newest = np.logical_or.reduce([pattern.holds(age) for age in range(q)])
    missing[~newest] = chunks - 1
    return missing


def _sorted(rows: IntArray) -> IntArray:
    """Rows in lexicographic order: no rank sends twice, so the sources decide."""
    return rows[np.argsort(rows[:, SRC])]
