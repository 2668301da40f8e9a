"""The ring ReduceScatter over any ranks and runs, and holders, followed with plain Python."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stragglar.schedules import Phase, Schedule, UsageError, trace
from stragglar.schedules.reduce_scatter import ring_reduce_scatter
from stragglar.schedules.trace import holders

from . import brute
from .cases import arbitrary, published, rebuilt, ring, rows_of


@st.composite
def rings(draw):
    ranks = draw(st.integers(2, 9))
    members = draw(st.permutations(range(ranks)))[: draw(st.integers(1, ranks))]
    counts = draw(st.lists(st.integers(0, 3), min_size=len(members), max_size=len(members)))
    starts = np.cumsum([0, *counts]).tolist()
    return ranks, members, list(zip(starts, counts, strict=False))


@given(rings())
def test_every_member_ends_with_its_run_summed(case):
    ranks, members, runs = case
    rounds = ring_reduce_scatter(members, runs)
    moved = any(count for _, count in runs)
    assert len(rounds) == (len(members) - 1 if moved else 0)
    assert all(table.dtype == np.int64 and table.shape[1] == 5 and len(table) for table in rounds)
    chunks = max(1, sum(count for _, count in runs))
    held, faults = brute.follow(Schedule(ranks, (), chunks, (Phase.build("post", rounds),)))
    assert {rule for rule, *_ in faults} <= {"incomplete"}
    for member, (first, count) in zip(members, runs, strict=True):
        for chunk in range(first, first + count):
            assert held[member, chunk] == dict.fromkeys(members, 1)


def test_many_members():
    rounds = ring_reduce_scatter(range(1023), [(c, 1) for c in range(1023)])
    assert (len(rounds), sum(map(len, rounds))) == (1022, 1022 * 1023)


def test_contradictions_are_refused():
    with pytest.raises(UsageError, match="over 2 ranks needs as many runs, not 1"):
        ring_reduce_scatter([0, 1], [(0, 1)])
    with pytest.raises(UsageError, match="takes part in a ReduceScatter twice"):
        ring_reduce_scatter([0, 0], [(0, 1), (1, 1)])


def _counted_by_hand(schedule):
    phases, counts = rows_of(schedule), []
    everybody = set(range(schedule.ranks))
    for index, rounds in enumerate(phases):
        counts.append([])
        for where in range(len(rounds)):
            prefix = [*phases[:index], rounds[: where + 1], *([] for _ in phases[index + 1 :])]
            held, _ = brute.follow(rebuilt(schedule, prefix))
            full = [chunk for (_, chunk), parts in held.items() if set(parts) == everybody]
            counts[-1].append([full.count(chunk) for chunk in range(schedule.chunks)])
    return counts


@given(arbitrary(), st.sampled_from([1, 300, 1 << 20]))
def test_holders_are_counted_right(schedule, state_bytes):
    saved, trace.STATE_BYTES = trace.STATE_BYTES, state_bytes
    try:
        counts = holders(schedule)
    finally:
        trace.STATE_BYTES = saved
    assert [c.tolist() for c in counts] == _counted_by_hand(schedule)
    assert all(c.shape == (len(p), schedule.chunks) for c, p in zip(counts, schedule.phases, strict=True))


@pytest.mark.parametrize("schedule", [ring(3, 3), published(6)], ids=["ring", "published"])
def test_holders_of_valid_schedules(schedule):
    counts = holders(schedule)
    assert [c.tolist() for c in counts] == _counted_by_hand(schedule)
    assert (counts[-1][-1] == schedule.ranks).all()
