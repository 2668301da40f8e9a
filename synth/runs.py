"""Cutting k chunks into contiguous runs, one an owner."""

from __future__ import annotations

Run = tuple[int, int]
"""(first chunk, number of chunks); the number may be 0."""


def even_runs(chunks: int, parts: int, first: int = 0) -> list[Run]:
    """`parts` contiguous runs for `chunks` chunks from `first` on; if uneven the first are a chunk longer."""
    sizes = [-(-(chunks - i) // parts) if i < chunks else 0 for i in range(parts)]
    runs = []
    for size in sizes:
        runs.append((first, size))
        first += size
    return runs


def halves(run: Run) -> tuple[Run, Run]:
    """A run as a lower and an upper part; the lower is a chunk longer where the length is odd."""
    first, count = run
    low = (count + 1) // 2
    return (first, low), (first + low, count - low)
