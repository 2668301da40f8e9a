"""StragglAR: the early ranks ReduceScatter while the late one is away; afterwards they merge with it.

`merge/` solves the merge for early ranks 0..N-1 and chunks in the order of their swaps. Here its
answer becomes a schedule: roles are given to the real ranks (so any rank may be the late one), chunks
are renumbered so that one owner's chunks are contiguous (the ReduceScatter then moves whole runs), and
the pre phase is put before it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..schedules import bounds
from ..schedules.errors import InfeasibleError, UsageError
from ..schedules.ir import Op, Origin, Phase, Schedule
from ..schedules.reduce_scatter import ring_reduce_scatter
from .merge import merge_rounds, ring_of_three
from .request import Request
from .runs import Run, even_runs

IntArray = NDArray[np.int64]
Rows = NDArray[np.integer]


def stragglar(request: Request) -> Schedule:
    """Merge after a ReduceScatter: post rounds k + ceil(log2 n) - 1 wherever that can be reached.

    Raises:
        UsageError: nobody is late.
        InfeasibleError: several ranks are late.
    """
    if not request.late:
        raise UsageError("the stragglar algorithm needs to know who is late: name the rank with --late")
    if len(request.late) > 1:
        raise InfeasibleError(
            "stragglar merges one late rank; for several, use --algorithm ring, rhd or direct"
        )
    early = request.ranks - 1
    chunks = request.chunk_count(early)
    members = [r for r in range(request.ranks) if r != request.late[0]]
    runs = even_runs(chunks, early)
    rounds, method = _merge(early, chunks)
    ranks = np.asarray([*members, request.late[0]])
    post = [_place(rows, ranks, runs) for rows in rounds]
    bound = bounds.post_rounds(request.ranks, chunks, 1)
    origin = Origin("stragglar", (*request.granularity(), ("merge", method)), bound)
    phases = (Phase.build("pre", ring_reduce_scatter(members, runs)), Phase.build("post", post))
    return Schedule(request.ranks, request.arrivals, chunks, phases, origin)


def _merge(early: int, chunks: int) -> tuple[list[Rows], str]:
    """The rounds of the merge as rows (src, dst, chunk, adds), and the construction's name."""
    if early == 2 and chunks > 1:
        # With three ranks a swap idles the third one; a ring does not.
        return list(ring_of_three(chunks)), "ring of three"
    merge = merge_rounds(early, chunks)
    # Round r swaps chunk r, and only the swap adds: every other message carries a finished chunk.
    rounds = [np.column_stack((rows, rows[:, 2] == index)) for index, rows in enumerate(merge.rounds)]
    return rounds, merge.method


def _place(rows: Rows, ranks: IntArray, runs: list[Run]) -> IntArray:
    """One round of the merge in terms of real ranks and contiguous chunks."""
    first = np.asarray([start for start, _ in runs])
    turn, owner = np.divmod(rows[:, 2], len(runs))
    op = np.where(rows[:, 3], int(Op.REDUCE), int(Op.COPY))
    one = np.ones(len(rows), dtype=np.int64)
    return np.column_stack((ranks[rows[:, 0]], ranks[rows[:, 1]], first[owner] + turn, one, op))
