"""The modelled timeline: the file's structure, and that it says what the simulation says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_schema import check_arrows, cut, named, opened, row, spans_of

from stragglar.backends.simulation import planned_arrivals, simulate
from stragglar.backends.view.chrome import span
from stragglar.backends.view.timeline import RECEIVES, SENDS, WAITS, Rows, trace_text
from stragglar.schedules import Link, UsageError
from stragglar.synth import Request, synthesize
from stragglar.synth.several import groups_schedule

LINK, SIZE, DELAY = Link(3e-6, 450 * 2**30), 2**26, 2e-4


@pytest.mark.parametrize("mode", ["strict", "relaxed"])
def test_the_file(mode):
    schedule = synthesize(Request(8, (3,)))
    trace = opened(trace_text(schedule, SIZE, LINK, DELAY, mode))
    model = simulate(schedule, SIZE, LINK, planned_arrivals(schedule, DELAY).tolist(), mode)
    spans = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    threads = [row(e)[1] for e in spans]
    assert threads.count(SENDS) == threads.count(RECEIVES) == schedule.transfer_count
    end = max(e["ts"] + e["dur"] for e in spans)
    assert end == pytest.approx(model.completion * 1e6, abs=2e-3)
    assert "not measured" in trace["otherData"]["what"]
    assert trace["otherData"]["post_seconds"] == pytest.approx(model.post_seconds)
    absent = [e for e in spans if e["name"] == "absent"]
    assert [(*row(e), e["dur"]) for e in absent] == [(3, WAITS, pytest.approx(DELAY * 1e6))]


def test_a_refined_schedule_of_an_odd_number():
    schedule = synthesize(Request(7, (2,), refine=2))
    trace = opened(trace_text(schedule, SIZE, LINK, DELAY))
    assert named(trace)[2] == "rank 2 (late)"


def test_every_group_has_its_line():
    schedule = groups_schedule(8, ((2,), (5, 6)), 6)
    trace = opened(trace_text(schedule, SIZE, LINK, DELAY))
    lines = {e["name"]: e["ts"] for e in trace["traceEvents"] if e["ph"] == "i"}
    expected = {"rank 2 arrives": DELAY / 2 * 1e6, "ranks 5, 6 arrive": DELAY * 1e6}
    assert lines == pytest.approx(expected)


def test_some_ranks_and_rounds():
    schedule = synthesize(Request(8, (3,)))
    rows = Rows(ranks=range(2, 5), rounds=range(2))
    trace = opened(trace_text(schedule, SIZE, LINK, DELAY, rows=rows))
    assert set(named(trace)) == {2, 3, 4}
    assert {pid for pid, _ in spans_of(trace)} == {2, 3, 4}
    assert {e["args"]["round"] for e in trace["traceEvents"] if e.get("cat") == "send"} == {0, 1}
    for wrong in (Rows(ranks=range(9, 12)), Rows(rounds=range(99, 100))):
        with pytest.raises(UsageError, match="no such r"):
            trace_text(schedule, SIZE, LINK, DELAY, rows=wrong)


def test_arrows_go_from_what_is_sent_to_what_is_received():
    """Also where the next message of a thread starts in the moment in which one ends."""
    schedule = synthesize(Request(8, (3,)))
    trace = opened(trace_text(schedule, SIZE, LINK, DELAY))
    ends = check_arrows(trace["traceEvents"])
    assert len(ends) == schedule.transfer_count
    for (_, _, sent), (_, _, received) in ends.values():
        assert sent.split(" to ")[0] in received


def test_names_sort_as_numbers():
    trace = opened(trace_text(synthesize(Request(12, (3,))), SIZE, LINK, DELAY))
    assert sorted(named(trace).values())[:4] == ["rank 00", "rank 01", "rank 02", "rank 03 (late)"]


@given(st.integers(0, 2**53 // 1000))
def test_times_are_whole_nanoseconds_to_readers_that_cut_and_that_round(nanoseconds):
    event = span(0, 0, "x", "x", 0.0, nanoseconds * 1e-9)
    assert abs(cut(event["dur"]) - nanoseconds) <= 1 + nanoseconds * 2**-50
    assert cut(event["dur"]) == round(event["dur"] * 1000)
