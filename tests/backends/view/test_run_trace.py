"""The timeline of a real run: made reports first, then MPI processes, then the command."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from importlib.util import find_spec

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_schema import named, opened, row, spans_of

from stragglar.backends.events import KINDS, RunEvent
from stragglar.backends.mpi.agree import Disagreement, card, demand_same
from stragglar.backends.mpi.gather_events import median_place, packed, unpacked
from stragglar.backends.recording import Recording
from stragglar.backends.report import RunReport, report_for
from stragglar.backends.request import RunRequest
from stragglar.backends.run import run
from stragglar.backends.simulation import simulate
from stragglar.backends.view.run_trace import run_trace_text
from stragglar.cli.main import run as stragglar
from stragglar.schedules import Link, UsageError, dump_schedule
from stragglar.synth import Request, synthesize

RANKS = 3
SCHEDULE = synthesize(Request(RANKS, (2,)))
REPORT = report_for("mpi", SCHEDULE, RunRequest(count=64, late_by=0.5), 0)
HOSTILE = "</script>\u202e\x1b[1m" + "x" * 500
needs_mpi = pytest.mark.skipif(not find_spec("mpi4py"), reason="mpi4py is not installed")

times = st.floats(0, 1e3).map(lambda t: round(t, 6))
numbers = st.integers(0, RANKS - 1)


@st.composite
def events(draw):
    start = draw(times)
    kind = draw(st.sampled_from(KINDS))
    phase = draw(st.sampled_from(["pre", "post"]))
    rank, peer = draw(st.permutations(range(RANKS)))[:2]
    where, first, count = (draw(st.integers(0, 2)) for _ in range(3))
    return RunEvent(rank, kind, start, start + draw(times), phase, where, peer, first, count + 1)


@given(st.lists(events(), min_size=1, max_size=25))
def test_no_row_shows_two_things_at_once(found):
    # At most nine lanes of a kind: fewer events than that of each.
    limited = [e for place, e in enumerate(found) if sum(x.rank == e.rank for x in found[:place]) < 9]
    # Also where clocks disagree, and a message is received before it is sent.
    trace = opened(run_trace_text(replace(REPORT, events=tuple(limited))))
    assert sum(map(len, spans_of(trace).values())) == len(limited)


@given(st.lists(events(), max_size=20))
def test_events_survive_the_way_to_rank_0_and_json(found):
    back = unpacked(packed(found, ["pre", "post"]), ["pre", "post"])
    assert Counter(back) == Counter(found)
    report = replace(REPORT, events=tuple(found))
    assert RunReport.from_json(json.loads(json.dumps(report.to_json()))) == report


@given(st.lists(st.floats(0, 1), min_size=1))
def test_the_repetition_in_the_middle(seconds):
    place = median_place(seconds)
    assert seconds[place] == sorted(seconds)[(len(seconds) - 1) // 2]


def test_a_recording_is_emptied():
    recording = Recording(4, iter(range(9)).__next__)
    recording.note("wait", recording.now(), recording.now(), "pre", 1, 2)
    assert recording.take() == (RunEvent(4, "wait", 0, 1, "pre", 1, 2),)
    assert recording.take() == ()


def test_a_message_is_an_arrow_and_groups_have_lines():
    found = (
        RunEvent(2, "absent", 0.0, 0.5),
        RunEvent(0, "send", 0.6, 0.7, "post", 0, 2, 1, 1),
        RunEvent(2, "receive", 0.5, 0.8, "post", 0, 0, 1, 1),
        RunEvent(2, "reduce", 0.8, 0.9, "post", 0, 0, 1, 1),
    )
    trace = opened(run_trace_text(replace(REPORT, events=found), "here"))
    assert [e["ph"] for e in trace["traceEvents"] if e["ph"] in "sf"] == ["s", "f"]
    assert [(e["name"], e["ts"]) for e in trace["traceEvents"] if e["ph"] == "i"] == [
        ("rank 2 arrives here", 5e5)
    ]
    assert "measured" in trace["otherData"]["what"] and trace["otherData"]["label"] == "here"
    assert named(trace) == {0: "rank 0 here", 1: "rank 1 here", 2: "rank 2 (late) here"}


def test_the_model_stands_below_each_rank():
    model = simulate(SCHEDULE, 256, Link(1e-3, 1e6), [0, 0, 0.5])
    report = replace(REPORT, events=(RunEvent(0, "wait", 0.0, 0.1, "pre", 0, 1),))
    trace = opened(run_trace_text(report, beside=(SCHEDULE, model)))
    places = {
        e["pid"] - 1: e["args"]["sort_index"]
        for e in trace["traceEvents"]
        if e["name"] == "process_sort_index"
    }
    order = [named(trace)[pid] for pid in sorted(places, key=places.get)]
    assert order[:2] == ["rank 0 measured", "rank 0 model"]
    assert order[-2:] == ["rank 2 (late) measured", "rank 2 (late) model"]
    assert "not measured" in trace["otherData"]["model"]["what"]
    other = synthesize(Request(4, (2,)))
    with pytest.raises(UsageError, match="4 ranks beside a run of 3"):
        run_trace_text(report, beside=(other, model))


def test_no_events_no_file():
    with pytest.raises(UsageError, match="nothing to trace"):
        run_trace_text(REPORT)


def test_hostile_labels_are_short_text():
    report = replace(REPORT, events=(RunEvent(0, "wait", 0.0, 0.1, HOSTILE, 0, 1),), library=HOSTILE)
    text = run_trace_text(report, HOSTILE)
    assert "\\u202e" not in text and "\\u001b" not in text
    opened(text)


@needs_mpi
def test_real_processes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    schedule = synthesize(Request(4, (1,), refine=2))
    (tmp_path / "s.json").write_text(dump_schedule(schedule))
    command = ["run", "s.json", "--on", "mpi", "--count", "4001", "--late-by", "60ms", "--repeat", "3"]
    assert stragglar([*command, "--trace", "t.json", "--beside-model", "--alpha", "1ms", "--json"]) == 0
    assert "events" not in json.loads(capsys.readouterr().out)
    trace = opened((tmp_path / "t.json").read_text())
    measured = {pid for pid, name in named(trace).items() if name.endswith("measured")}
    assert len(measured) == 4 and len(named(trace)) == 8
    spans = [e for e in trace["traceEvents"] if e["ph"] == "X" and row(e)[0] in measured]
    kinds = Counter(e["cat"] for e in spans)
    assert kinds["send"] == kinds["receive"] == schedule.transfer_count
    assert kinds["reduce"] > 0 and kinds["wait"] > 0
    absent = {row(e)[0]: e["dur"] for e in spans if e["name"] == "absent"}
    assert absent[1] > 50_000 and all(dur < absent[1] for pid, dur in absent.items() if pid != 1)
    # The late rank touches nothing before it comes.
    assert all(e["ts"] >= absent[1] - 1 for e in spans if row(e)[0] == 1 and e["name"] != "absent")
    arrows = [e for e in trace["traceEvents"] if e["ph"] == "s" and row(e)[0] in measured]
    assert len(arrows) == schedule.transfer_count


@needs_mpi
def test_nothing_is_recorded_unless_asked():
    quiet, loud = (run(SCHEDULE, "mpi", RunRequest(count=64, repeat=2, trace=t)) for t in (False, True))
    assert quiet.events == () and quiet.correct
    assert {e.rank for e in loud.events} == set(range(RANKS)) and loud.correct
    assert all(0 <= e.start <= e.end for e in loud.events)


@needs_mpi
def test_a_rank_that_alone_should_record_is_named():
    """The others would not come to hand in their events."""
    cards = [card(SCHEDULE, RunRequest(count=64, trace=rank == 1)) for rank in range(RANKS)]
    with pytest.raises(Disagreement, match="rank 1 was given another trace"):
        demand_same(cards)


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.json").write_text(dump_schedule(SCHEDULE))
    return tmp_path


def test_the_model_says_that_it_is_one(file):
    assert stragglar(["run", "s.json", "--count", "8", "--late-by", "1ms", "--trace", "m.json"]) == 0
    trace = opened((file / "m.json").read_text())
    assert "not measured" in trace["otherData"]["what"]
    assert [e["name"] for e in trace["traceEvents"] if e["ph"] == "i"] == ["rank 2 arrives"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--on", "nccl", "--trace", "t.json"], "does not go with --on nccl"),
        (["--trace", "-"], "needs the name of a file"),
        (["--trace", "no/t.json"], "there is no folder"),
        (["--beside-model"], "are for --trace FILE"),
        (["--on", "mpi", "--trace", "t.json", "--alpha", "1us"], "add --beside-model"),
        (["--trace", "t.json", "--alpha", "1us", "--profile", "p.json"], "leave --alpha"),
    ],
)
def test_what_is_refused_before_anything_runs(file, capsys, options, words):
    assert stragglar(["run", "s.json", *options]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1
    assert [path.name for path in file.iterdir()] == ["s.json"]
