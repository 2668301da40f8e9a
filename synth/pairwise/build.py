"""The one entrance: a paired pattern, run as long as it serves, and the best finish."""

from __future__ import annotations

from ..merge.rounds import MergeRounds, doublings
from .finish import finish
from .pattern import paired_pattern
from .rules import check_pairwise, pairwise_bound
from .steady import run_steady

SLACK = 8
"""Rounds over `pairwise_bound` to give a finish before it counts as failed."""


def pairwise_rounds(early: int, chunks: int) -> MergeRounds:
    """The pairwise post phase for N early ranks (0..N-1), one late rank (N) and k chunks.

    A function of (N, k) alone. What comes back has been replayed. `gap` counts from the bound
    without pairing; `pairwise_bound` says how much of it no pairwise post phase can avoid.

    Args:
        early: N >= 1.
        chunks: k >= 1.

    Raises:
        ValueError: N or k below 1.

    Example:
        >>> len(pairwise_rounds(11, 11).rounds)  # 12 ranks; the published heuristic takes 15
        14
    """
    if early < 1 or chunks < 1:
        raise ValueError(f"{early} early ranks, {chunks} chunks: both must be at least 1")
    built = _best(early, chunks)
    check_pairwise(built)
    return built


def _best(early: int, chunks: int) -> MergeRounds:
    """The shortest of a few attempts: the pattern is left later (fast) or earlier (often shorter)."""
    pattern, bound = paired_pattern(early + 1), pairwise_bound(early, chunks)
    best: MergeRounds | None = None
    for count in _turning_points(early, chunks, pattern.q):
        limit = bound + SLACK + chunks // early if best is None else len(best.rounds) - 1
        rounds, held = run_steady(pattern, chunks, count)
        last = finish(held, limit - count)
        if last is not None:
            best = MergeRounds(early, chunks, (*rounds, *last), "pairwise")
        if best is not None and len(best.rounds) == bound:
            break
    if best is None:
        raise AssertionError(f"no finish for {early} early ranks and {chunks} chunks")
    return best


def _turning_points(early: int, chunks: int, q: int) -> list[int]:
    """After how many rounds to leave the pattern, the most promising first; by then the swaps are done."""
    latest = max(chunks, chunks + max(q, doublings(early + 1) - 1) - 2)
    return list(dict.fromkeys((latest, max(chunks, latest - 1), chunks, *range(latest, chunks, -1))))
