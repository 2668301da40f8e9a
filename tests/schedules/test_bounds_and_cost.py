"""Bounds, certificate and cost model against values worked out by hand, and against each other."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stragglar.schedules import Certificate, Link, Phase, Schedule, UsageError, bounds, certify, cost
from stragglar.schedules.cost import bandwidth_bound

from .cases import C, four, published, ring, two_groups, valid_schedules

GIB = 2**30
PORT = Link(alpha=3e-6, bandwidth=450 * GIB)
SLOW = Link(alpha=1.0, bandwidth=8.0)


@pytest.mark.parametrize(("n", "log"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4), (1024, 10)])
def test_ceil_log2(n, log):
    assert bounds.ceil_log2(n) == log


@pytest.mark.parametrize(
    ("ranks", "chunks", "late", "rounds"),
    [
        (8, 7, 1, 9),  # the paper's n + log2 n - 2
        (30, 29, 1, 33),
        (8, 42, 1, 44),
        (2, 1, 1, 1),
        (1000, 1, 1, 10),
        (8, 6, 2, 8),  # 7: nine deliveries a chunk, 54 in all, over 8 ports; 8: 6 + 3 - 1
        (8, 60, 2, 68),  # 540 deliveries over 8 ports; 62 for the rounds
        (8, 600, 2, 675),  # 1.125 s beta
        (8, 600, 7, 1050),
        (8, 8, 0, 14),  # ring
        (8, 1, 0, 3),  # doubling
        (3, 3, 0, 4),
        (2, 1, 0, 1),
    ],
)
def test_post_rounds(ranks, chunks, late, rounds):
    assert bounds.post_rounds(ranks, chunks, late) == rounds


@pytest.mark.parametrize("arguments", [(1, 1, 0), (2, 0, 1), (4, 3, 4), (4, 3, -1)])
def test_no_bound_for_what_does_not_exist(arguments):
    with pytest.raises(UsageError, match="no bound for"):
        bounds.post_rounds(*arguments)


def test_seconds():
    assert bounds.post_seconds_after_delay(8, 1.0, 0.0) == 1.75
    assert bounds.post_seconds_after_delay(8, 1.0, 0.4) == pytest.approx(1.4)
    assert bounds.post_seconds_after_delay(8, 1.0, 6 / 7) == pytest.approx(1.0)
    assert bounds.post_seconds_after_delay(8, 1.0, 100.0) == 1.0
    assert bounds.post_seconds_several(8, 2.0, 2) == 2.25
    assert bounds.post_seconds_several(8, 2.0, 1) == 2.0


@pytest.mark.parametrize(
    ("ranks", "post", "bound"), [(6, 7, 7), (8, 9, 9), (12, 15, 14), (16, 18, 18), (30, 38, 33), (48, 55, 52)]
)
def test_certificates_of_the_published_schedules(ranks, post, bound):
    rounds = {"pre": ranks - 2, "post": post}
    assert certify(published(ranks)) == Certificate(
        rounds, rounds, bound, post - bound, post / (ranks - 1), 1.0, 2 * (ranks - 1) / ranks
    )


def test_certificate_of_a_ring_with_runs_of_chunks():
    rounds = {"pre": 0, "post": 14}
    assert certify(ring(8)) == Certificate(rounds, rounds, 14, 0, 1.75, 1.75, 1.75)
    assert certify(ring(8, 5)) == Certificate(rounds, {"pre": 0, "post": 70}, 70, 0, 1.75, 1.75, 1.75)


def test_certificate_counts_the_last_group_alone():
    counted = certify(two_groups())
    assert counted.rounds == {"pre": 1, "arrival1": 2, "post": 2}
    assert (counted.post_bound, counted.gap) == (2, 0)


def test_a_ring_of_eight():
    modelled = cost(ring(8), GIB, PORT)
    assert modelled.post_seconds == pytest.approx(14 * (3e-6 + 1 / 8 / 450), rel=1e-12)
    assert modelled.post_seconds == pytest.approx(3.930889e-3, abs=1e-9)
    assert (modelled.phases[0].name, modelled.phases[0].rounds, modelled.phases[0].chunk_rounds) == (
        "post",
        14,
        14,
    )


def test_a_ring_does_not_depend_on_its_grain():
    assert cost(ring(8, 5), GIB, PORT).post_seconds == pytest.approx(cost(ring(8), GIB, PORT).post_seconds)


def test_the_paper_against_the_ring():
    ours, theirs = cost(published(8), GIB, PORT, delay=1.0), cost(ring(8), GIB, PORT)
    assert ours.post_seconds == pytest.approx(9 * (3e-6 + 1 / 7 / 450))
    assert theirs.post_seconds / ours.post_seconds == pytest.approx(1.363, abs=5e-4)


@pytest.mark.parametrize(
    ("delay", "exposed"), [(0.0, 1.922762e-3), (1e-3, 0.922762e-3), (1.922763e-3, 0.0), (1.0, 0.0)]
)
def test_what_the_delay_hides(delay, exposed):
    modelled = cost(published(8), GIB, PORT, delay)
    assert modelled.phases[0].seconds == pytest.approx(1.922762e-3, abs=1e-9)
    assert modelled.phases[0].exposed_seconds == pytest.approx(exposed, abs=1e-9)
    assert modelled.post_seconds == pytest.approx(2.884143e-3 + exposed, abs=1e-9)


@pytest.mark.parametrize(
    ("delay", "exposed"), [(20.0, [0, 0, 4]), (3.0, [0, 3, 4]), (0.0, [2, 4, 4]), (9.0, [0, 0, 4])]
)
def test_groups_that_arrive_between_are_spread_evenly(delay, exposed):
    modelled = cost(two_groups(), 8.0, SLOW, delay)  # every round takes 1 + 1 seconds
    assert [p.seconds for p in modelled.phases] == [2, 4, 4]
    assert [p.exposed_seconds for p in modelled.phases] == exposed
    assert modelled.post_seconds == sum(exposed)


def test_a_round_lasts_as_long_as_its_longest_message():
    phase = Phase.build("post", [[(0, 1, 0, 3, C), (1, 2, 0, 1, C)], [(0, 1, 3, 1, C)]])
    modelled = cost(Schedule(3, (), 4, (phase,)), 32.0, SLOW)
    assert modelled.post_seconds == (1 + 3) + (1 + 1)


def test_bandwidth_bound():
    one = GIB / PORT.bandwidth
    assert bandwidth_bound(ring(8), GIB, PORT, 5.0) == pytest.approx(1.75 * one)
    assert bandwidth_bound(published(8), GIB, PORT, 0.0) == pytest.approx(1.75 * one)
    assert bandwidth_bound(published(8), GIB, PORT, 5.0) == pytest.approx(one)
    assert bandwidth_bound(two_groups(), GIB, PORT, 0.0) == pytest.approx(1.5 * one)
    assert bandwidth_bound(two_groups(), GIB, PORT, 5.0) == pytest.approx(one)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Link(-1e-6, 1.0),
        lambda: Link(math.nan, 1.0),
        lambda: Link(math.inf, 1.0),
        lambda: Link(0.0, 0.0),
        lambda: Link(0.0, math.inf),
        lambda: Link(0.0, math.nan),
        lambda: cost(four(), -1, PORT),
        lambda: cost(four(), 1, PORT, -1),
        lambda: cost(four(), math.nan, PORT),
        lambda: cost(four(), 1, PORT, math.inf),
    ],
)
def test_nonsense_is_refused(make):
    with pytest.raises(UsageError):
        make()


schedules = st.sampled_from([*valid_schedules(), published(12), published(30), ring(8), ring(8, 5)])
seconds = st.floats(0, 1e3)


@given(schedules, st.floats(1, 1e12), st.floats(0, 1), st.floats(1, 1e12), seconds)
def test_no_valid_schedule_is_below_a_bound(schedule, size, alpha, bandwidth, delay):
    link = Link(alpha, bandwidth)
    modelled, certificate = cost(schedule, size, link, delay), certify(schedule)
    assert certificate.gap >= 0
    # Subtracting a delay of a thousand seconds costs digits.
    slack = 1e-9 * (1 + delay + modelled.post_seconds)
    assert modelled.post_seconds >= bandwidth_bound(schedule, size, link, delay) - slack
    assert modelled.post_seconds >= (certificate.post_bound * size / schedule.chunks) / bandwidth - slack
    assert modelled.post_seconds == pytest.approx(sum(p.exposed_seconds for p in modelled.phases), abs=slack)


@given(st.integers(2, 300), st.integers(1, 3000), st.data())
def test_bounds_grow_with_what_is_asked(ranks, chunks, data):
    late = data.draw(st.integers(1, ranks - 1))
    rounds = bounds.post_rounds(ranks, chunks, late)
    assert rounds >= max(chunks, bounds.ceil_log2(ranks))
    assert bounds.post_rounds(ranks, chunks + 1, late) > rounds - 1
    assert bounds.post_rounds(ranks, chunks, 1) <= rounds
    assert rounds / chunks >= bounds.post_seconds_several(ranks, 1.0, late) - 1e-12
