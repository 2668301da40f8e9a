"""Split: as much of the buffer by the merge as the delay pays for, the rest by an ordinary AllReduce.

The ReduceScatter of a fraction x of the buffer takes (N-1)/N x s beta. With x = d N / ((N-1) s beta) it just
fits a delay d, and the time after the arrival meets the bandwidth bound for every d: there is no delay that
is too short to be of use (`docs/families.md`).

The merged chunks come first, after them the rest. The two parts share no chunk, and their rounds follow one
another. Ports are idle in the merge's first rounds, while chunks are few, but the late rank's are not, and
without it no ring turns; so they do not overlap. It costs ceil(log2 n) - 1 rounds of one chunk at most.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import gcd

from ..schedules.errors import UsageError
from ..schedules.ir import Schedule
from .baselines import ALL_REDUCES
from .request import Request
from .stragglar import MergePart, early_and_late, halving_width, merge_after_reduce_scatter, merged_schedule

HALF = Fraction(1, 2)


def split(request: Request) -> Schedule:
    """Merges `fraction` of the chunks and reduces the others by `inner` (ring, rhd) after the arrival.

    Fraction 1 makes the rounds of `stragglar`, fraction 0 those of the inner AllReduce.

    Raises:
        UsageError: nobody is late, or the chunks asked for cannot be split so.
        InfeasibleError: several ranks are late.
    """
    members, late = early_and_late(request)
    merged, rest = split_chunks(request)
    inner = request.inner or "ring"
    part = MergePart([], [], "none")
    if merged:
        part = merge_after_reduce_scatter(members, late, (0, merged), "ring")
    if rest:
        post = [*part.post, *ALL_REDUCES[inner](range(request.ranks), (merged, rest))]
        part = replace(part, post=post)
    exact = replace(request, fraction=Fraction(merged, merged + rest), inner=inner)
    return merged_schedule(exact, "split", merged + rest, part)


def split_chunks(request: Request) -> tuple[int, int]:
    """Chunks to merge and chunks of the rest, as the request has it.

    Without a fraction: half of them, and the odd one, are merged.

    Raises:
        UsageError: the chunk count asked for is no multiple of the fraction's denominator.
    """
    fraction = HALF if request.fraction is None else request.fraction
    if request.chunks is not None and request.fraction is None:
        return (request.chunks + 1) // 2, request.chunks // 2
    total = request.chunk_count(_unit(request.ranks, fraction, request.inner or "ring"))
    if total % fraction.denominator:
        raise UsageError(
            f"{total} chunks cannot be split {fraction}: use a multiple of {fraction.denominator}"
        )
    merged = int(total * fraction)
    return merged, total - merged


def _unit(ranks: int, fraction: Fraction, inner: str) -> int:
    """The fewest chunks with an owner each in the merged part and equal parts in the rest."""
    merged, rest = fraction.numerator, fraction.denominator - fraction.numerator
    width = ranks if inner == "ring" else halving_width(ranks)
    times = width // gcd(width, rest)
    if merged:
        times *= -(-(ranks - 1) // (merged * times))
    return times * fraction.denominator
