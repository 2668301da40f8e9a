"""A tree that lets the late ranks join last: the least number of rounds, whole buffers each.

The early ranks reduce to one of them, the root, while the others are away; a group that comes before the last
reduces to the root as well. On the last arrival the root and the late ranks reduce among themselves, and
whoever has the sum spreads it, holders doubling each round.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..schedules import bounds
from ..schedules.ir import Op, Origin, Phase, Schedule, phase_names
from .baselines import Rounds
from .request import Request
from .runs import Run


def tree(request: Request) -> Schedule:
    """Binomial reduce before the arrival, swap and binomial broadcast after it: ceil(log2 n) rounds of s.

    Nobody late: the reduce is part of `post`. With g late ranks, g + 1 no power of two, one round more.
    """
    chunks = request.chunk_count(1)
    run, names = (0, chunks), phase_names(len(request.arrivals))
    members = [r for r in range(request.ranks) if r not in request.late]
    rounds = [binomial_reduce(members, run)]
    for group in request.arrivals[:-1]:
        rounds.append(binomial_reduce([members[0], *group], run))
        members += group
    last = request.arrivals[-1] if request.late else ()
    spread = _join_and_spread(members, last, run)
    # Nobody late: there is no phase for the reduce but the last.
    rounds = [*rounds, spread] if request.late else [[*rounds[0], *spread]]
    phases = tuple(Phase.build(name, part) for name, part in zip(names, rounds, strict=True))
    origin = Origin("tree", request.granularity(), bounds.post_rounds(request.ranks, chunks, len(last)))
    return Schedule(request.ranks, request.arrivals, chunks, phases, origin)


def binomial_reduce(members: Sequence[int], run: Run) -> Rounds:
    """ceil(log2 n) rounds after which the first member has the sum of `run` over all of them."""
    rounds: Rounds = []
    left = len(members)
    while left > 1:
        # The upper half gives to the lower; where one is left over it is the root, never a chain's end.
        half = left // 2
        rounds.append([(members[i], members[i - half], *run, Op.REDUCE) for i in range(left - half, left)])
        left -= half
    return rounds


def binomial_broadcast(holders: Sequence[int], others: Sequence[int], run: Run) -> Rounds:
    """Rounds in which every holder gives `run` to one that lacks it, the newest holders first."""
    have, lack = list(holders), list(others)
    rounds: Rounds = []
    while lack:
        served = lack[: len(have)]
        rounds.append([(src, dst, *run, Op.COPY) for src, dst in zip(have[::-1], served, strict=False)])
        have, lack = have + served, lack[len(served) :]
    return rounds


def _join_and_spread(early: Sequence[int], late: Sequence[int], run: Run) -> Rounds:
    # Late ranks beyond a power of two give their part away first and get the sum in the broadcast.
    front = [early[0], *late]
    core = 1 << (len(front).bit_length() - 1)
    folded = [(src, dst, *run, Op.REDUCE) for src, dst in zip(front[core:], front, strict=False)]
    rounds: Rounds = [folded] if folded else []
    distance = 1
    while distance < core:
        rounds.append([(front[i], front[i ^ distance], *run, Op.REDUCE) for i in range(core)])
        distance *= 2
    return [*rounds, *binomial_broadcast(front[:core], [*front[core:], *early[1:]], run)]
