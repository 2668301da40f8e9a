"""StragglAR: the early ranks ReduceScatter while the late one is away; afterwards they merge with it.

`merge/` solves the merge for early ranks 0..N-1 and chunks in the order of their swaps. Here its
answer becomes a schedule: roles are given to the real ranks (so any rank may be the late one), chunks
are renumbered so that one owner's chunks are contiguous (the ReduceScatter then moves whole runs), and
the pre phase is put before it. `split.py` and `allreduce_merge.py` use the same parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..schedules import bounds
from ..schedules.errors import InfeasibleError, UsageError
from ..schedules.ir import Op, Origin, Phase, Schedule
from ..schedules.reduce_scatter import ring_reduce_scatter
from .baselines import Rounds
from .exact import exact_rounds
from .halving import halving_owners, halving_reduce_scatter
from .merge import merge_rounds, ring_of_three
from .pairwise import pairwise_rounds
from .request import Request
from .runs import Run, even_runs
from .several import groups_schedule

IntArray = NDArray[np.int64]
Rows = NDArray[np.integer]
Merger = Callable[[int, int], tuple[list[Rows], str]]
"""(early ranks, chunks) -> the rounds of a merge as rows (src, dst, chunk, adds), and its name."""

MAX_EXACT = 256
"""Early ranks times chunks up to which the exact search is tried: its model grows with more than both."""


@dataclass(frozen=True, slots=True)
class MergePart:
    """The rounds of a merge, before and after the arrival, and the name of the construction."""

    pre: Rounds
    post: Rounds
    method: str


def stragglar(request: Request) -> Schedule:
    """Merge after a ReduceScatter: post rounds k + ceil(log2 n) - 1 wherever that can be reached.

    With fewer chunks than early ranks only so many ranks own one. Several late ranks, together or in groups,
    and only a part of the chunks reduced before: `several/`, near its bound but not always at it.

    Raises:
        UsageError: nobody is late, or the ReduceScatter asked for cannot leave the chunks where they must be,
            or an option that is for one late rank only.
        InfeasibleError: the exact search found nothing.
    """
    if is_several(request):
        return _several(request)
    members, late = early_and_late(request)
    chunks = stragglar_chunks(request)
    part = merge_after_reduce_scatter(members, late, (0, chunks), request.pre or "ring", _merger(request))
    return merged_schedule(request, "stragglar", chunks, part)


def is_several(request: Request) -> bool:
    """Whether `several/` makes it: for late ranks of any number, and where chunks may be left out before."""
    return len(request.late) > 1 or (bool(request.late) and request.before is not None)


def _several(request: Request) -> Schedule:
    for option, value in (("pre", request.pre), ("pairwise", request.pairwise), ("exact", request.exact)):
        if value:
            what = f"not {len(request.late)}" if len(request.late) > 1 else "and not for --before"
            raise UsageError(f"--{option} is for one late rank, {what}")
    chunks = request.chunk_count(request.ranks - len(request.late))
    return groups_schedule(request.ranks, request.arrivals, chunks, request.before)


def _merger(request: Request) -> Merger:
    if not (request.exact or request.pairwise):
        return merge_tables
    if not request.exact:
        return _pairwise_tables

    def searched(early: int, chunks: int) -> tuple[list[Rows], str]:
        if early * chunks > MAX_EXACT:
            raise InfeasibleError(
                f"the exact search is for a few ranks: {early} early ranks times {chunks} chunks are over"
                f" {MAX_EXACT}; without it the merge is optimal as well"
            )
        pairwise = bool(request.pairwise)
        found = exact_rounds(early, chunks, pairwise=pairwise, time_limit=request.time_limit)
        return list(found.rounds), f"exact, {found.status}"

    return searched


def _pairwise_tables(early: int, chunks: int) -> tuple[list[Rows], str]:
    merge = pairwise_rounds(early, chunks)
    return _with_op(merge.rounds), merge.method


def stragglar_chunks(request: Request) -> int:
    """Chunks of the request: one an owner, if it does not say."""
    early = request.ranks - 1
    return request.chunk_count(halving_width(early) if request.pre == "rhd" else early)


def early_and_late(request: Request) -> tuple[list[int], int]:
    """The early ranks, ascending, and the late one.

    Raises:
        UsageError, InfeasibleError: as `the_late_rank`.
    """
    late = the_late_rank(request)
    return [r for r in range(request.ranks) if r != late], late


def the_late_rank(request: Request) -> int:
    """The one late rank.

    Raises:
        UsageError: nobody is late.
        InfeasibleError: several ranks are late.
    """
    name = request.algorithm
    if not request.late:
        raise UsageError(f"the {name} algorithm needs to know who is late: name the rank with --late")
    if len(request.late) > 1:
        raise InfeasibleError(
            f"{name} merges one late rank; for several, use --algorithm ring, rhd, direct or tree"
        )
    return request.late[0]


def merged_schedule(request: Request, family: str, chunks: int, part: MergePart) -> Schedule:
    """The schedule of a merge with one late rank; its origin also names the construction."""
    bound = bounds.post_rounds(request.ranks, chunks, 1)
    origin = Origin(family, (*request.granularity(), ("merge", part.method)), bound)
    phases = (Phase.build("pre", part.pre), Phase.build("post", part.post))
    return Schedule(request.ranks, request.arrivals, chunks, phases, origin)


def merge_after_reduce_scatter(
    members: Sequence[int], late: int, run: Run, pre: str, merger: Merger | None = None
) -> MergePart:
    """ReduceScatter of a run of chunks over `members` by ring or rhd, then the merge with `late`.

    `merger` solves the merge for N early ranks and k chunks; the closed form if not given.

    Raises:
        UsageError: rhd leaves fewer owners than members, and there are more chunks than owners.
    """
    if pre == "rhd":
        check_halving(len(members), run[1])
        owners = _halving_order(members, run)
        rounds: Rounds = [*halving_reduce_scatter(members, run)]
    else:
        owners = list(zip(members, even_runs(run[1], len(members), run[0]), strict=True))
        rounds = [*ring_reduce_scatter(members, [part for _, part in owners])]
    tables, method = (merger or merge_tables)(len(members), run[1])
    ranks = np.asarray([*(owner for owner, _ in owners), late])
    first = np.asarray([start for _, (start, _) in owners])
    chunk_of = first[np.arange(run[1]) % len(members)] + np.arange(run[1]) // len(members)
    return MergePart(rounds, [place(table, ranks, chunk_of) for table in tables], method)


def halving_width(early: int) -> int:
    """Owners that recursive halving leaves: the largest power of two up to `early`."""
    return 1 << (early.bit_length() - 1)


def check_halving(early: int, chunks: int) -> None:
    """Refuses a ReduceScatter by halving that leaves the chunks where the merge cannot take them.

    Raises:
        UsageError: more chunks than owners, and fewer owners than early ranks.
    """
    owners = halving_width(early)
    if owners < early and chunks > owners:
        raise UsageError(
            f"halving over {early} early ranks leaves {owners} owners with a chunk each, not {chunks} chunks:"
            f" use --chunks {owners} or fewer, or --pre ring"
        )


def _halving_order(members: Sequence[int], run: Run) -> list[tuple[int, Run]]:
    """Owners and their runs after halving in the order of their first swaps, then those that own nothing.

    The merge deals chunks out in turn, so an owner with a chunk more comes before those with one less.
    """
    owners = sorted(halving_owners(members, run), key=lambda owner: -owner[1][1])
    idle = set(members) - {rank for rank, _ in owners}
    return [*owners, *((rank, (run[0], 0)) for rank in sorted(idle))]


def merge_tables(early: int, chunks: int) -> tuple[list[Rows], str]:
    """The rounds of the merge as rows (src, dst, chunk, adds), and the construction's name."""
    if early == 2 and chunks > 1:
        # With three ranks a swap idles the third one; a ring does not.
        return list(ring_of_three(chunks)), "ring of three"
    merge = merge_rounds(early, chunks)
    return _with_op(merge.rounds), merge.method


def _with_op(rounds: Sequence[Rows]) -> list[Rows]:
    # Round r swaps chunk r, and only the swap adds: every other message carries a finished chunk.
    return [np.column_stack((rows, rows[:, 2] == index)) for index, rows in enumerate(rounds)]


def place(rows: Rows, ranks: IntArray, chunk_of: IntArray) -> IntArray:
    """One round of the merge in terms of real ranks and chunks, both given by their index in the merge."""
    op = np.where(rows[:, 3], int(Op.REDUCE), int(Op.COPY))
    one = np.ones(len(rows), dtype=np.int64)
    return np.column_stack((ranks[rows[:, 0]], ranks[rows[:, 1]], chunk_of[rows[:, 2]], one, op))
