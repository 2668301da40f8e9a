"""Plans for any arrival vector: never worse than baselines nor better than the bound, and true."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stragglar.backends.simulation import MODES, simulate
from stragglar.schedules import Link, UsageError, bounds, validate
from stragglar.synth import ALGORITHMS, Request, synthesize
from stragglar.synth.arrival_plan import ArrivalSituation, plan_arrivals
from stragglar.synth.counts import counts_of
from stragglar.synth.families import count_rounds
from stragglar.synth.groupings import groupings
from stragglar.synth.planner import Situation, plan

NVSWITCH = Link(3e-6, 450 * 2.0**30)
SPREAD = st.sampled_from([0.0, 1e-7, 1e-5, 1e-3, 0.02])


@st.composite
def vectors(draw, most=9):
    n, spread = draw(st.integers(2, most)), draw(SPREAD)
    return tuple(spread * draw(st.integers(0, 8)) for _ in range(n))


@st.composite
def situations(draw):
    link = Link(draw(st.sampled_from([0.0, 3e-6, 1e-4])), draw(st.sampled_from([1e9, 4.8e11])))
    return ArrivalSituation(
        draw(vectors()), draw(st.integers(1, 1 << 31)), link, draw(st.sampled_from([1, 64]))
    )


def simulated(situation, request):
    return simulate(synthesize(request), situation.size, situation.link, situation.arrivals).completion


@settings(max_examples=60, deadline=None)
@given(situations(), st.booleans())
def test_between_the_bound_and_the_baselines(situation, by_events):
    def ends(schedule):
        return simulate(schedule, situation.size, situation.link, situation.arrivals).completion

    made = plan_arrivals(situation, ends if by_events else None)
    assert made.choice.post_seconds <= min(made.baselines.values())
    assert made.choice.post_seconds >= situation.bound_seconds * (1 - 1e-9)
    assert made.choice.counts == counts_of(made.schedule())
    # Phases in step are the worst that can be: every rank follows its own order, and that is no later.
    taken = simulated(situation, made.choice.request) - situation.last
    assert taken <= made.choice.post_seconds * (1 + 1e-9) + 1e-15


@settings(max_examples=120, deadline=None)
@given(vectors(7), st.data())
def test_no_schedule_beats_the_bound(arrivals, data):
    """Any family, any late ranks and groups, whether they fit the arrivals or not, in both modes."""
    n = len(arrivals)
    order = data.draw(st.permutations(range(n)))
    late = order[: data.draw(st.integers(0, n - 1))]
    name = data.draw(
        st.sampled_from([a for a in ALGORITHMS if len(late) == 1 or a not in ("split", "merge-allreduce")])
    )
    if name == "stragglar" and not late:
        return
    one_by_one = data.draw(st.booleans()) and name not in ("split", "merge-allreduce")
    groups = tuple((r,) for r in late) if one_by_one else ((tuple(late),) if late else ())
    chunks = data.draw(st.integers(1, 12)) if name in ("stragglar", "tree", "ring") else None
    schedule = synthesize(Request(n, algorithm=name, chunks=chunks, groups=groups))
    size, link = data.draw(st.integers(1, 1 << 28)), Link(data.draw(st.sampled_from([0.0, 1e-5])), 1e11)
    least = bounds.completion_seconds(arrivals, size * link.beta, link.alpha)
    for mode in MODES:
        assert simulate(schedule, size, link, arrivals, mode).completion >= least * (1 - 1e-9)


@pytest.mark.parametrize("delay", [0.0, 1e-4, 1e-3, 5e-3])
def test_one_late_rank_is_planned_no_worse_than_by_the_planner_for_one(delay):
    one = plan(Situation(8, 3, 1 << 30, NVSWITCH, delay))
    situation = ArrivalSituation(tuple(delay * (rank == 3) for rank in range(8)), 1 << 30, NVSWITCH)
    assert plan_arrivals(situation).choice.post_seconds <= one.choice.post_seconds * (1 + 1e-9)


def test_two_that_come_apart_are_two_groups():
    second = (1 << 30) * NVSWITCH.beta
    situation = ArrivalSituation((0, 0, 0, 4 * second, 0, 8 * second, 0, 0), 1 << 30, NVSWITCH)
    made = plan_arrivals(situation)
    assert made.choice.post_seconds <= 1.12 * situation.bound_seconds
    together = plan_arrivals(ArrivalSituation((0, 0, 0, 8 * second, 0, 8 * second, 0, 0), 1 << 30, NVSWITCH))
    assert together.choice.request.late == (3, 5)
    assert together.choice.post_seconds <= 1.12 * together.situation.bound_seconds
    assert made.choice.post_seconds < together.choice.post_seconds


def test_what_does_not_fit_before_is_left_out():
    second = (1 << 30) * NVSWITCH.beta
    arrivals = (0, 0, 0, 0, 0.2 * second, 0.3 * second, 0.5 * second, 0.7 * second)
    made = plan_arrivals(ArrivalSituation(arrivals, 1 << 30, NVSWITCH))
    assert made.choice.request.before is not None
    assert made.choice.post_seconds <= 1.15 * made.situation.bound_seconds
    assert validate(made.schedule()).valid


@given(vectors(12))
def test_groupings_divide_the_ranks_in_order(arrivals):
    for grouping in groupings(arrivals):
        parts = [grouping.early, *grouping.groups]
        assert sorted(rank for part in parts for rank in part) == list(range(len(arrivals)))
        assert grouping.starts == tuple(max(arrivals[rank] for rank in part) for part in parts)
        assert list(grouping.starts) == sorted(set(grouping.starts))
    assert bool(groupings(arrivals)) == (len(set(arrivals)) > 1)


def test_any_clock_and_equal_plans():
    first = ArrivalSituation((0.0, 0.0, 1e-3), 1 << 26, NVSWITCH)
    second = ArrivalSituation((1024.0, 1024.0, 1024.0 + 2**-10), 1 << 26, NVSWITCH)
    assert first.arrivals == (0.0, 0.0, 1e-3) and second.arrivals == (0.0, 0.0, 2**-10)
    assert plan_arrivals(first) == plan_arrivals(first)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"arrivals": (0.0,)}, "ranks must be"),
        ({"arrivals": (0.0, float("nan"))}, "finite"),
        ({"size": 0}, "at least one byte"),
        ({"max_chunks": 0}, "at least one chunk"),
    ],
)
def test_contradictions(fields, message):
    good = {"arrivals": (0.0, 1.0), "size": 1024, "link": NVSWITCH}
    with pytest.raises(UsageError, match=message):
        ArrivalSituation(**(good | fields))


@pytest.mark.parametrize("name", ["ring", "rhd", "direct", "tree", "pairwise-exchange", "stragglar"])
@pytest.mark.parametrize("groups", [((1,), (4,)), ((0, 2), (1,), (3, 5)), ((2, 3),)])
def test_families_with_groups_are_counted_as_made(name, groups):
    request = Request(6, algorithm=name, groups=groups)
    schedule = synthesize(request)
    assert schedule.arrivals == tuple(groups)
    assert count_rounds(request) == counts_of(schedule)


def test_groups_of_a_request():
    request = Request(8, groups=((6, 3), (5,)))
    assert request.late == (3, 5, 6) and request.arrivals == ((3, 6), (5,))
    assert Request(8, groups=((6, 3),)) == Request(8, (3, 6))
    assert Request(8, (5, 6, 3), groups=((6, 3), (5,))) == request
    for wrong in (((3,), ()), ((3,), (3,)), ((9,), (3,)), ((0, 1), (2, 3), (4, 5, 6, 7))):
        with pytest.raises(UsageError):
            Request(8, groups=wrong)
    with pytest.raises(UsageError, match="name either"):
        Request(8, (3,), groups=((6,), (5,)))
    many = synthesize(
        Request(40, groups=tuple((r,) for r in range(1, 40)), chunks=40, before=(40,) + (300,) * 38)
    )
    named = dict(many.origin.parameters)
    assert ",".join(named[key] for key in named if key.startswith("before")) == "40" + ",300" * 38
