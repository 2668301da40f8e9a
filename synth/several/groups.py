"""Late ranks that come one group after another: what can be added before the last group comes, is.

Before a group comes, the ranks that are there reduce chunks among themselves: for every such chunk all
parts that lie with them go to one of them, its owner from then on. In the phase `pre` that is a ring
ReduceScatter; in the phase of a later group an owner from before may hand its sum on to a rank of the
group, so that owners remain equally loaded and no receive port is busier than the others after the last
arrival.

How much of that is done is a choice: all, if the next group leaves enough time for it, and else what fits.
What was left out costs transfers in the post phase (`pack.py`), but nothing is waited for before it, and
its merges fill the ports while few chunks are finished. With one late rank this does what `split` does, in
one packing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from ...schedules import bounds
from ...schedules.errors import UsageError
from ...schedules.ir import Op, Origin, Phase, RoundLike, Schedule
from ...schedules.reduce_scatter import ring_reduce_scatter
from ..request import before_text
from ..runs import even_runs
from .build import packed_rounds, several_rounds
from .matching import best_matching
from .rounds import ADDS, CHUNK, SRC, IntArray

Groups = Sequence[Sequence[int]]


@dataclass(slots=True)
class _Parts:
    """Who holds a part of what.

    Attributes:
        members: the ranks that have come.
        owner: for every chunk who adds it up; -1: nobody yet.
        holders: for every chunk the ranks that hold a part of it, the owner among them.
    """

    members: list[int]
    owner: list[int]
    holders: list[set[int]]


def groups_schedule(
    ranks: int, arrivals: Groups, chunks: int, before: Sequence[int] | None = None
) -> Schedule:
    """The schedule for late ranks in groups, in order of arrival.

    Args:
        ranks: n, 2 or more.
        arrivals: the groups of late ranks, one at least; a rank that is in none is early.
        chunks: k >= 1.
        before: what is done before the last group comes: first how many chunks the early ranks reduce, then
            for every later phase how many rounds it may have at most. None: everything that can be.

    Raises:
        UsageError: no group, no early rank, a rank that does not exist or is named twice; numbers that are
            not one a group or not possible.
    """
    groups = [sorted(group) for group in arrivals]
    late = [rank for group in groups for rank in group]
    members = [rank for rank in range(ranks) if rank not in set(late)]
    if not groups or not all(groups) or len(members) + len(late) != ranks or not members:
        raise UsageError("arrivals: one group or more of ranks, each rank once, and some rank in none")
    limits = _limits(before, len(groups), chunks)
    parts, rounds = _first_parts(ranks, members, chunks, limits[0] if before is not None else chunks)
    phases = [Phase.build("pre", rounds)]
    for number, group in enumerate(groups[:-1], start=1):
        more = _reduce_more(ranks, parts, group, None if before is None else limits[number])
        phases.append(Phase.build(f"arrival{number}", more))
    phases.append(Phase.build("post", _post_rounds(ranks, parts, groups[-1])))
    bound = bounds.post_rounds(ranks, chunks, len(groups[-1]))
    named = () if before is None else before_text(limits)
    origin = Origin("several", (("chunks", chunks), ("groups", len(groups)), *named), bound)
    return Schedule(ranks, tuple(tuple(group) for group in groups), chunks, tuple(phases), origin)


def _limits(before: Sequence[int] | None, groups: int, chunks: int) -> list[int]:
    limits = [chunks] * groups if before is None else list(before)
    if len(limits) != groups or min(limits) < 0 or limits[0] > chunks:
        raise UsageError(
            f"before: the chunks that the early ranks reduce, 0..{chunks}, then rounds; one number for each"
            f" of the {groups} groups of late ranks, not {','.join(map(str, limits))[:60]}"
        )
    return limits


def _first_parts(ranks: int, members: list[int], chunks: int, share: int) -> tuple[_Parts, list[RoundLike]]:
    """A ring ReduceScatter of the first chunks: whole runs a message, so that latency is paid seldom."""
    runs = even_runs(share, len(members), 0)
    owner = np.repeat(np.asarray(members), [count for _, count in runs]).tolist()
    late = set(range(ranks)) - set(members)
    holders = [{rank} | late for rank in owner] + [set(range(ranks)) for _ in range(chunks - share)]
    parts = _Parts(list(members), [*owner, *([-1] * (chunks - share))], holders)
    return parts, [*ring_reduce_scatter(members, runs)]


def _reduce_more(ranks: int, parts: _Parts, group: list[int], limit: int | None) -> list[IntArray]:
    """A group has come: its ranks take chunks over, parts go to the owners, for at most `limit` rounds."""
    parts.members += group
    parts.owner = _shared_owners(parts, group)
    members = set(parts.members)
    waiting: dict[tuple[int, int], list[int]] = {}
    for chunk, owner in enumerate(parts.owner):
        for src in sorted((parts.holders[chunk] & members) - {owner}):
            waiting.setdefault((src, owner), []).append(chunk)
    rounds = _joined(ranks, waiting, limit)
    for rows in rounds:
        for src, _, chunk, _, _ in rows.tolist():
            parts.holders[chunk].discard(src)
    return rounds


def _shared_owners(parts: _Parts, group: list[int]) -> list[int]:
    """Who owns each chunk from now on, so that no two members are more than a chunk apart if that can be.

    A chunk without an owner goes to whoever owns least; of the others the group takes some over.
    """
    after = list(parts.owner)
    owned: dict[int, list[int]] = {rank: [] for rank in parts.members}
    for chunk, owner in enumerate(after):
        if owner >= 0:
            owned[owner].append(chunk)
    for chunk, owner in enumerate(after):
        if owner < 0:
            after[chunk] = min(parts.members, key=lambda rank: len(owned[rank]))
            owned[after[chunk]].append(chunk)
    old = [rank for rank in parts.members if rank not in set(group)]
    while True:
        richest = max(old, key=lambda rank: len(owned[rank]))
        poorest = min(group, key=lambda rank: len(owned[rank]))
        if len(owned[richest]) <= len(owned[poorest]) + 1:
            return after
        chunk = owned[richest].pop()
        after[chunk] = poorest
        owned[poorest].append(chunk)


def _joined(
    ranks: int, waiting: dict[tuple[int, int], list[int]], limit: int | None = None
) -> list[IntArray]:
    """Carries out additions (sender, receiver) -> chunks, in as few rounds as the busiest port allows.

    Additions commute, so the order is free: a matching that serves every busiest port, each round, ends in
    as many rounds as that port has transfers (König). After `limit` rounds what is left stays undone.
    """
    count = np.zeros((ranks, ranks), dtype=np.int64)
    for pair, queue in waiting.items():
        count[pair] = len(queue)
    rounds: list[IntArray] = []
    while count.any() and len(rounds) != limit:
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


def _post_rounds(ranks: int, parts: _Parts, group: list[int]) -> list[IntArray]:
    late = set(group)
    reduced = zip(parts.owner, parts.holders, strict=True)
    if all(owner >= 0 and holders == late | {owner} for owner, holders in reduced):
        names = np.asarray([*parts.members, *group])
        index = {rank: i for i, rank in enumerate(parts.members)}
        owners = [index[rank] for rank in parts.owner]
        tables = several_rounds(len(parts.members), len(group), len(owners), owners).rounds
        return [_five(rows, names, np.arange(len(owners))) for rows in tables]
    order, sources = _turns(ranks, parts)
    return [_five(rows, np.arange(ranks), np.asarray(order)) for rows in packed_rounds(ranks, sources)]


def _turns(ranks: int, parts: _Parts) -> tuple[list[int], list[tuple[int, ...]]]:
    """Chunks in the order of their turns, and who holds a part of each, the root first.

    Each owner's first chunk, then each one's second, ..; those without an owner, dealt to all ranks, are
    spread evenly between them.
    """
    free = [chunk for chunk, owner in enumerate(parts.owner) if owner < 0]
    root = dict(zip(free, (i % ranks for i in range(len(free))), strict=True))
    root |= {chunk: owner for chunk, owner in enumerate(parts.owner) if owner >= 0}
    queues: dict[int, list[int]] = {}
    for chunk, owner in enumerate(parts.owner):
        if owner >= 0:
            queues.setdefault(owner, []).append(chunk)
    busiest = sorted(queues.values(), key=lambda queue: -len(queue))
    owned = [chunk for turn in zip_longest(*busiest) for chunk in turn if chunk is not None]
    places = [((i + 0.5) / len(owned), 1, chunk) for i, chunk in enumerate(owned)]
    places += [((i + 0.5) / len(free), 0, chunk) for i, chunk in enumerate(free)]
    order = [chunk for _, _, chunk in sorted(places)]
    return order, [(root[chunk], *sorted(parts.holders[chunk] - {root[chunk]})) for chunk in order]


def _five(rows: IntArray, names: IntArray, chunk_of: IntArray) -> IntArray:
    """Rows (src, dst, chunk, adds) in terms of real ranks and chunks, as a phase takes them."""
    one = np.ones(len(rows), dtype=np.int64)
    op = np.where(rows[:, ADDS], int(Op.REDUCE), int(Op.COPY))
    table = np.column_stack((names[rows[:, : SRC + 2]], chunk_of[rows[:, CHUNK]], one, op))
    return np.asarray(table, dtype=np.int64)
