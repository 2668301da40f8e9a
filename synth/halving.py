"""Recursive halving-doubling for any rank count, by 3-2 elimination.

A level has p ranks that each hold their part of a run of chunks. They pair up; of each pair one rank
keeps the lower half of the run and the other the upper half, and the two sets go on separately with
p // 2 ranks each. Where p is odd, three ranks do it together in two rounds, and one of them is done:
its part now lives in the other two (Rabenseifner and Traeff 2004). A power of two never needs it.

The AllGather is the ReduceScatter read backwards, copying instead of reducing.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..schedules.ir import Op
from .runs import Run, halves

Row = tuple[int, int, int, int, int]
Rounds = list[list[Row]]


def _pair(low: int, high: int, run: Run) -> Rounds:
    lower, upper = halves(run)
    return [[(high, low, *lower, Op.REDUCE), (low, high, *upper, Op.REDUCE)], []]


def _triple(low: int, high: int, gone: int, run: Run) -> Rounds:
    # Both survivors receive in both rounds; `gone` sends one half in each.
    lower, upper = halves(run)
    return [
        [(gone, high, *upper, Op.REDUCE), (high, low, *lower, Op.REDUCE)],
        [(gone, low, *lower, Op.REDUCE), (low, high, *upper, Op.REDUCE)],
    ]


def _halved(members: list[int], run: Run) -> list[tuple[list[int], Run]]:
    half = len(members) // 2
    lower, upper = halves(run)
    return [(members[:half], lower), (members[half : 2 * half], upper)]


def _level(sets: Sequence[tuple[list[int], Run]]) -> tuple[Rounds, list[tuple[list[int], Run]]]:
    rounds: Rounds = [[], []]
    after: list[tuple[list[int], Run]] = []
    for members, run in sets:
        half = len(members) // 2
        lows, highs = members[:half], members[half : 2 * half]
        for i, (low, high) in enumerate(zip(lows, highs, strict=True)):
            odd = len(members) % 2 == 1 and i == half - 1
            steps = _triple(low, high, members[-1], run) if odd else _pair(low, high, run)
            for whole, part in zip(rounds, steps, strict=True):
                whole += part
        after += _halved(members, run)
    return rounds, after


def halving_reduce_scatter(members: Sequence[int], run: Run) -> Rounds:
    """Rounds after which 2^floor(log2 n) members each hold one part of `run`, summed over all members.

    Args:
        members: ranks that take part, 1 or more.
        run: (first chunk, chunks). With fewer chunks than owners some own nothing.

    Returns:
        log2 n rounds for a power of two, at most one more for every odd level.
    """
    sets: list[tuple[list[int], Run]] = [(list(members), run)]
    rounds: Rounds = []
    while len(sets[0][0]) > 1:
        level, sets = _level(sets)
        rounds += level
    return _without_nothing(rounds)


def halving_owners(members: Sequence[int], run: Run) -> list[tuple[int, Run]]:
    """Who holds which part (maybe an empty one) after `halving_reduce_scatter`: 2^floor(log2 n) members."""
    sets: list[tuple[list[int], Run]] = [(list(members), run)]
    while len(sets[0][0]) > 1:
        sets = [part for one in sets for part in _halved(*one)]
    return [(owner, part) for (owner,), part in sets]


def doubling_all_gather(members: Sequence[int], run: Run) -> Rounds:
    """Rounds that spread the parts which `halving_reduce_scatter` leaves to all members."""
    back = reversed(halving_reduce_scatter(members, run))
    return [[(dst, src, first, count, Op.COPY) for src, dst, first, count, _ in r] for r in back]


def _without_nothing(rounds: Rounds) -> Rounds:
    full = ([row for row in round_ if row[3] > 0] for round_ in rounds)
    return [round_ for round_ in full if round_]


def recursive_doubling(members: Sequence[int], run: Run) -> Rounds:
    """The whole run each round: floor(log2 n) exchanges, and two rounds more where n is no power of two.

    Ranks beyond the largest power of two first give their part to a partner and at the end take the
    result from it.
    """
    core = 1 << (len(members).bit_length() - 1)
    extra = [(members[core + i], members[i]) for i in range(len(members) - core)]
    rounds: Rounds = [[(src, dst, *run, Op.REDUCE) for src, dst in extra]]
    distance = 1
    while distance < core:
        rounds.append([(members[i], members[i ^ distance], *run, Op.REDUCE) for i in range(core)])
        distance *= 2
    rounds.append([(dst, src, *run, Op.COPY) for src, dst in extra])
    return _without_nothing(rounds)
