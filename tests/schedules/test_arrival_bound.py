"""The bound for any arrival vector, against hand-counted values and the bounds that it generalises."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stragglar.schedules import UsageError, bounds

TIMES = st.floats(0, 100)


@pytest.mark.parametrize(
    ("arrivals", "least"),
    [
        ([0, 0], 1.0),
        ([0, 0, 0, 0], 1.5),
        ([7, 7, 7, 7], 8.5),
        ([0, 0, 0, 5], 6.0),
        ([0, 0, 5, 5], 6.25),  # 3 + 2 transfers for 4 ports
        ([0, 5, 5, 5], 6.5),  # as if all came at 5: one rank alone can do nothing
        ([0, 0, 0, 0.5], 1.625),  # 6 transfers less 3 ports for 0.5
        ([0, 0, 0.25, 0.5], 1.6875),  # 6 transfers, ports open at 0, 0, 0.25, 0.5
        ([0, 9, 9.25, 9.5], 10.6875),  # from 9 on the same
    ],
)
def test_counted_by_hand(arrivals, least):
    assert bounds.completion_seconds(arrivals, 1.0) == pytest.approx(least)
    assert bounds.completion_seconds(arrivals[::-1], 1.0) == pytest.approx(least)


@given(st.integers(2, 40), st.floats(0, 10), st.floats(0.001, 10))
def test_one_late_rank_is_the_known_case(ranks, delay, seconds):
    arrivals = [0.0] * (ranks - 1) + [delay]
    known = bounds.post_seconds_after_delay(ranks, seconds, delay)
    assert bounds.completion_seconds(arrivals, seconds) - delay == pytest.approx(known, abs=1e-9)


@given(st.integers(2, 40), st.data())
def test_several_after_a_long_time_are_the_known_case(ranks, data):
    late = data.draw(st.integers(1, ranks - 1))
    arrivals = [0.0] * (ranks - late) + [1e3] * late
    known = bounds.post_seconds_several(ranks, 1.0, late)
    assert bounds.completion_seconds(arrivals, 1.0) - 1e3 == pytest.approx(known)


@given(st.lists(TIMES, min_size=2, max_size=12), st.data())
def test_coming_later_helps_nobody(arrivals, data):
    later = [time + data.draw(st.floats(0, 5)) for time in arrivals]
    for alpha in (0.0, 0.5):
        first, second = (bounds.completion_seconds(a, 1.0, alpha) for a in (arrivals, later))
        assert second >= first - 1e-9


@given(st.lists(TIMES, min_size=2, max_size=12), st.floats(-50, 50))
def test_the_clock_does_not_matter(arrivals, shift):
    moved = bounds.completion_seconds([time + shift for time in arrivals], 1.0, 0.25)
    assert moved == pytest.approx(bounds.completion_seconds(arrivals, 1.0, 0.25) + shift, abs=1e-9)


def test_latency_counts_for_every_doubling_and_every_transfer():
    assert bounds.completion_seconds([0.0] * 8, 0.0, 1.0) == 3.0
    assert bounds.completion_seconds([0.0] * 8, 100.0, 1.0) == pytest.approx(1.75 * 101)


@pytest.mark.parametrize("arrivals", [[], [1.0], [0.0, float("nan")], [0.0, float("inf")]])
def test_what_is_no_arrival_vector(arrivals):
    with pytest.raises(UsageError, match="arrivals of 2 ranks"):
        bounds.completion_seconds(arrivals, 1.0)
