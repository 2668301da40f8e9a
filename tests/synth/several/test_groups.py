"""groups_schedule: valid, nobody touched before it comes, computes the sum, can be lowered."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stragglar.backends.model import run_model
from stragglar.backends.msccl.lower import lower
from stragglar.schedules.errors import UsageError
from stragglar.schedules.ir import DST, SRC, Schedule
from stragglar.schedules.validate import validate
from stragglar.synth.several import groups_schedule, several_rounds


def check(schedule: Schedule) -> None:
    """Valid, and the sum of random integers on every rank."""
    outcome = validate(schedule)
    assert outcome.valid, outcome.violations
    inputs = np.random.default_rng(1).integers(-99, 99, (schedule.ranks, 2 * schedule.chunks))
    assert (run_model(schedule, inputs, "sum") == inputs.sum(axis=0)).all()


@st.composite
def requests(draw):
    ranks = draw(st.integers(2, 9))
    order = draw(st.permutations(range(ranks)))
    late = order[: draw(st.integers(1, ranks - 1))]
    cuts = sorted(draw(st.sets(st.integers(1, len(late) - 1)))) if len(late) > 1 else []
    edges = [0, *cuts, len(late)]
    groups = [tuple(sorted(late[a:b])) for a, b in pairwise(edges)]
    return ranks, tuple(groups), draw(st.integers(1, 20))


@settings(max_examples=50)
@given(requests())
def test_valid_whoever_is_late(request_) -> None:
    check(groups_schedule(*request_))


def test_nobody_is_touched_before_it_comes() -> None:
    schedule = groups_schedule(7, ((2, 6), (0,), (3, 4)), 21)
    assert [phase.name for phase in schedule.phases] == ["pre", "arrival1", "arrival2", "post"]
    for index, phase in enumerate(schedule.phases):
        assert not set(schedule.absent(index)) & set(phase.table[:, [SRC, DST]].ravel().tolist())
    check(schedule)


def test_a_single_group() -> None:
    schedule = groups_schedule(6, ((5, 1),), 24)
    assert schedule.arrivals == ((1, 5),)
    assert len(schedule.post) == len(several_rounds(4, 2, 24).rounds)
    assert schedule.origin.bound == 28
    check(schedule)


def test_middle_groups_cost_nothing_in_the_end() -> None:
    """The ranks that came before own chunks too: the post phase is as short as if they had been early."""
    schedule = groups_schedule(8, ((5,), (6, 7)), 96)
    assert len(schedule.post) <= 1.03 * 108
    check(schedule)


@pytest.mark.parametrize(
    ("ranks", "groups", "chunks"),
    [(5, ((1, 2, 3), (4,)), 7), (6, ((1,), (2, 3, 4), (5,)), 11), (9, ((0, 1), (2, 3), (4,)), 5)],
)
def test_owners_stay_even_so_that_one_rank_at_last_is_optimal(ranks, groups, chunks) -> None:
    schedule = groups_schedule(ranks, groups, chunks)
    assert len(schedule.post) == schedule.origin.bound
    check(schedule)


def test_joining_takes_as_long_as_the_busiest_port() -> None:
    # Eight owners have three chunks each then: a rank of the group gives its parts of the other 21.
    schedule = groups_schedule(9, ((6, 7), (8,)), 24)
    phase = schedule.phases[1]
    busiest = max(np.bincount(phase.table[:, SRC]).max(), np.bincount(phase.table[:, DST]).max())
    assert len(phase) == phase.chunk_rounds == busiest == 21


@pytest.mark.parametrize(
    ("ranks", "groups", "chunks"),
    [
        (3, ((1, 2),), 3),
        (4, ((0, 2),), 6),
        (6, ((4, 5),), 8),
        (6, ((1,), (2,), (5,)), 5),
        (6, ((1, 2, 3),), 6),
    ],
)
def test_lowered_for_the_runtime(ranks, groups, chunks) -> None:
    assert lower(groups_schedule(ranks, groups, chunks)).report.ok


@settings(max_examples=60)
@given(requests(), st.data())
def test_valid_however_much_is_done_before(request_, data) -> None:
    ranks, groups, chunks = request_
    before = [data.draw(st.integers(0, chunks)), *(data.draw(st.integers(0, 2 * chunks)) for _ in groups[1:])]
    schedule = groups_schedule(ranks, groups, chunks, before)
    check(schedule)
    for index, phase in enumerate(schedule.phases):
        assert not set(schedule.absent(index)) & set(phase.table[:, [SRC, DST]].ravel().tolist())
    assert all(len(phase) <= most for phase, most in zip(schedule.phases[1:-1], before[1:], strict=True))


@pytest.mark.parametrize(("ranks", "chunks", "before"), [(8, 98, 49), (8, 98, 10), (16, 120, 60), (5, 40, 8)])
def test_what_is_left_out_costs_its_transfers_and_no_more(ranks, chunks, before) -> None:
    """Merged in part: unlike in `split`, ports are busy from the first round to nearly the last."""
    schedule = groups_schedule(ranks, ((ranks - 1,),), chunks, (before,))
    needed = chunks * 2 * (ranks - 1) - before * (ranks - 2)
    assert len(schedule.post.table) == needed
    assert len(schedule.post) <= -(-needed // ranks) + 1
    check(schedule)


def test_enough_rounds_are_as_good_as_no_limit() -> None:
    free, limited = (groups_schedule(6, ((2,), (4, 5)), 12, before) for before in (None, (12, 100)))
    assert free.phases == limited.phases


@pytest.mark.parametrize("before", [(), (3,), (1, 2, 3), (-1, 0), (13, 0), (0, -1)])
def test_numbers_that_do_not_fit_are_refused(before) -> None:
    with pytest.raises(UsageError, match="one number for each"):
        groups_schedule(6, ((2,), (4, 5)), 12, before)


def test_the_same_schedule_every_time() -> None:
    assert groups_schedule(6, ((1,), (2, 3)), 12, (7, 3)) == groups_schedule(6, ((1,), (2, 3)), 12, (7, 3))
    assert groups_schedule(6, ((1,), (2, 3)), 12) == groups_schedule(6, ((1,), (2, 3)), 12)


@pytest.mark.parametrize("groups", [(), ((),), ((0, 1, 2),), ((0,), (0,)), ((3,),), ((-1,),)])
def test_nonsense_is_refused(groups) -> None:
    with pytest.raises(UsageError, match="each rank once"):
        groups_schedule(3, groups, 3)
