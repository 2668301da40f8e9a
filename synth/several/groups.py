"""Late ranks that come one group after another: only the last group is paid for.

pre: ring ReduceScatter over the early ranks. A group that comes before the last joins the owners in its own
phase: of every chunk either its parts go to the owner, or the owner's sum goes to a rank of the group, which
owns the chunk from then on. Both cost the same, and owners remain equally loaded, so that in the post phase
no receive port is busier than the others.
"""

from __future__ import annotations

import numpy as np

from ...schedules import bounds
from ...schedules.errors import UsageError
from ...schedules.ir import Op, Origin, Phase, Schedule
from ...schedules.reduce_scatter import ring_reduce_scatter
from ..runs import even_runs
from .build import several_rounds
from .matching import best_matching
from .rounds import ADDS, CHUNK, IntArray


def groups_schedule(ranks: int, arrivals: tuple[tuple[int, ...], ...], chunks: int) -> Schedule:
    """The schedule for late ranks in groups, in order of arrival.

    Args:
        ranks: n, 2 or more.
        arrivals: the groups of late ranks, one at least; a rank that is in none is early.
        chunks: k >= 1.

    Raises:
        UsageError: no group, no early rank, or a rank that does not exist or is named twice.
    """
    groups = [sorted(group) for group in arrivals]
    late = [rank for group in groups for rank in group]
    members = [rank for rank in range(ranks) if rank not in set(late)]
    if not groups or not all(groups) or len(members) + len(late) != ranks or not members:
        raise UsageError("arrivals: one group or more of ranks, each rank once, and some rank in none")
    runs = even_runs(chunks, len(members), 0)
    owners = np.repeat(np.asarray(members), [count for _, count in runs])
    phases = [Phase.build("pre", ring_reduce_scatter(members, runs))]
    for number, group in enumerate(groups[:-1], start=1):
        after = _shared_owners(owners, members, group)
        phases.append(Phase.build(f"arrival{number}", _join_rounds(ranks, group, owners, after)))
        owners, members = after, members + group
    phases.append(Phase.build("post", _post_rounds(members, groups[-1], owners)))
    bound = bounds.post_rounds(ranks, chunks, len(groups[-1]))
    origin = Origin("several", (("chunks", chunks), ("groups", len(groups))), bound)
    return Schedule(ranks, tuple(tuple(group) for group in groups), chunks, tuple(phases), origin)


def _shared_owners(owners: IntArray, members: list[int], group: list[int]) -> IntArray:
    """The owners once the group has joined, no two of them more than a chunk apart."""
    after = owners.copy()
    owned = {rank: np.flatnonzero(owners == rank).tolist() for rank in members}
    taken = dict.fromkeys(group, 0)
    while True:
        richest = max(members, key=lambda rank: len(owned[rank]))
        poorest = min(group, key=lambda rank: taken[rank])
        if len(owned[richest]) <= taken[poorest] + 1:
            return after
        after[owned[richest].pop()] = poorest
        taken[poorest] += 1


def _join_rounds(ranks: int, group: list[int], owners: IntArray, after: IntArray) -> list[IntArray]:
    """Every chunk's parts go to its owner-to-be, in as few rounds as the busiest port allows.

    Additions commute, so the order is free: a matching that serves every busiest port, each round, ends in
    as many rounds as that port has transfers (König).
    """
    waiting: dict[tuple[int, int], list[int]] = {}
    for chunk, (old, new) in enumerate(zip(owners.tolist(), after.tolist(), strict=True)):
        for src in {old, *group} - {new}:
            waiting.setdefault((src, new), []).append(chunk)
    count = np.zeros((ranks, ranks), dtype=np.int64)
    for pair, queue in waiting.items():
        count[pair] = len(queue)
    rounds = []
    while count.any():
        sends, receives = count.sum(axis=1), count.sum(axis=0)
        busiest = max(sends.max(), receives.max())
        served = (sends == busiest)[:, None].astype(np.int64) + (receives == busiest)[None, :]
        worth = np.where(count > 0, 1 + 2 * ranks * served, 0)
        rows = []
        for pair in zip(*(side.tolist() for side in best_matching(worth)), strict=True):
            if count[pair]:
                count[pair] -= 1
                rows.append((*pair, waiting[pair].pop(0), 1, int(Op.REDUCE)))
        rounds.append(np.array(rows, dtype=np.int64))
    return rounds


def _post_rounds(members: list[int], group: list[int], owners: IntArray) -> list[IntArray]:
    names = np.asarray([*members, *group])
    index = {rank: i for i, rank in enumerate(members)}
    several = several_rounds(len(members), len(group), len(owners), [index[r] for r in owners.tolist()])
    tables = []
    for rows in several.rounds:
        one = np.ones(len(rows), dtype=np.int64)
        op = np.where(rows[:, ADDS], int(Op.REDUCE), int(Op.COPY))
        tables.append(np.column_stack((names[rows[:, :2]], rows[:, CHUNK], one, op)))
    return tables
