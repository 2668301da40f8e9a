"""The rounds of a paired pattern: k swaps, then on with chunk k - 1 in the place of all later ones."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..merge.rounds import CHUNK, DST, SRC, IntArray
from .pattern import PairedPattern

Held = npt.NDArray[np.bool_]
"""Shape (n, k): whether the rank holds the chunk, complete."""


def run_steady(pattern: PairedPattern, chunks: int, count: int) -> tuple[list[IntArray], Held]:
    """The first `count` >= k rounds, each sorted by source, and who holds what after them."""
    early = len(pattern.receives)
    held: Held = np.zeros((early + 1, chunks), dtype=np.bool_)
    rounds = []
    for r in range(count):
        rows = _copies(pattern, chunks, r)
        rows = rows[~held[rows[:, DST], rows[:, CHUNK]]]
        rows = np.concatenate([rows, _late_rows(held, r)])
        rounds.append(rows[np.argsort(rows[:, SRC])])
        held[rows[:, DST], rows[:, CHUNK]] = True
    return rounds, held


def _copies(pattern: PairedPattern, chunks: int, r: int) -> IntArray:
    """The pattern's copies of round r: roles turned into ranks, ages into chunks."""
    rows = pattern.copies[pattern.copies[:, CHUNK] <= r]
    rows[:, [SRC, DST]] = (rows[:, [SRC, DST]] + r) % len(pattern.receives)
    rows[:, CHUNK] = np.minimum(r - rows[:, CHUNK], chunks - 1)
    return rows


def _late_rows(held: Held, r: int) -> IntArray:
    """The swap of round r; after the swaps chunk k - 1, from the late rank to whom a swap would be due."""
    early, chunks = held.shape[0] - 1, held.shape[1]
    owner = r % early
    if r < chunks:
        rows = [[owner, early, r], [early, owner, r]]
    else:
        rows = [] if held[owner, chunks - 1] else [[early, owner, chunks - 1]]
    return np.array(rows, dtype=np.int32).reshape(-1, 3)
