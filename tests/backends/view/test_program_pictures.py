"""An MSCCL program in modelled time: its times, as SVG and PNG, and as a timeline."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from test_program import deadlocked
from trace_schema import named, opened, spans_of

from stragglar.backends.msccl.lower import lower
from stragglar.backends.msccl.options import LowerOptions
from stragglar.backends.simulation import planned_arrivals, simulate
from stragglar.backends.view.png import png_of
from stragglar.backends.view.program_data import analyse
from stragglar.backends.view.program_svg import MOST_ROWS, program_svg
from stragglar.backends.view.program_time import program_times
from stragglar.backends.view.program_trace import program_trace_text
from stragglar.schedules import Link, UsageError
from stragglar.synth import Request, synthesize

LINK, SIZE, DELAY = Link(3e-6, 450 * 2**30), 2**30, 5e-3
TERMS = SIZE, LINK, DELAY
SVG = "{http://www.w3.org/2000/svg}"


def lowered(ranks, late=(3,), family="stragglar", **options):
    schedule = synthesize(Request(ranks, late, family))
    return schedule, lower(schedule, LowerOptions(**options)).text


def of(text, name="x"):
    return analyse(text.encode(), name)


@pytest.fixture(scope="module")
def four():
    return of(lowered(4)[1])


def racing():
    """Blocks read what others write, and nothing orders the two."""
    return re.sub(r'depid="\d+" deps="\d+"', 'depid="-1" deps="-1"', lowered(4)[1])


@pytest.mark.parametrize(
    ("ranks", "family"), [(4, "stragglar"), (8, "stragglar"), (16, "stragglar"), (8, "ring")]
)
def test_times_are_those_of_the_simulation_where_every_round_counts(ranks, family):
    schedule, text = lowered(ranks, family=family)
    found = analyse(text.encode(), "x", (3,))
    timing = program_times(found, *TERMS)
    model = simulate(schedule, SIZE, LINK, planned_arrivals(schedule, DELAY).tolist(), "relaxed")
    assert timing.post_seconds == pytest.approx(model.post_seconds)
    assert timing.never == ()


@pytest.mark.parametrize("protocol", ["Simple", "LL"])
@pytest.mark.parametrize("delay", [0.0, 1e-4, 5e-3])
def test_times_respect_order_ports_and_arrivals(protocol, delay):
    _, text = lowered(7, (2,), protocol=protocol)
    found = of(text)
    timing = program_times(found, SIZE, LINK, delay)
    assert all(
        start >= timing.arrivals[ref.rank] and end >= start for ref, (start, end) in timing.spans.items()
    )
    ports = {}
    for m in timing.messages:
        assert m.start >= max(timing.arrivals[m.sender.rank], timing.arrivals[m.receiver.rank])
        assert timing.spans[m.receiver][1] >= m.end - 1e-12
        ports.setdefault(("out", m.sender.rank), []).append((m.start, m.end))
        ports.setdefault(("in", m.receiver.rank), []).append((m.start, m.end))
    for busy in ports.values():
        busy.sort()
        assert all(a[1] <= b[0] + 1e-12 for a, b in pairwise(busy))
    for gpu in found.program.gpus:
        for block in gpu.blocks:
            times = [timing.spans[gpu.rank, block.id, s.index] for s in block.steps if s.op.value != "nop"]
            assert all(a[1] <= b[0] + 1e-12 for a, b in pairwise(times))


def test_picture(golden, four):
    golden(program_svg(four, *TERMS))


def test_picture_of_a_deadlock(golden):
    golden(program_svg(of(deadlocked()), *TERMS))


def test_every_step_and_wait_is_drawn(four):
    root = ET.fromstring(program_svg(four, *TERMS))
    tips = [e.text for e in root.iter(f"{SVG}title")]
    steps = sum(1 for _ in four.program.steps())
    assert sum(" step " in (t or "") for t in tips) == steps
    paths = {e.get("class"): e.get("d").count("M") for e in root.iter(f"{SVG}path")}
    waits = sum(step.dep_block >= 0 for _, _, step in four.program.steps())
    assert paths["dep"] == waits and paths["crit"] == len(four.critical)
    assert paths["msg"] == len(program_times(four, *TERMS).messages)
    assert any(e.text == "rank 3 arrives" for e in root.iter(f"{SVG}text"))


def test_what_is_wrong_is_marked():
    found = of(racing())
    assert any("race" in line for line in found.findings)
    root = ET.fromstring(program_svg(found, *TERMS))
    paths = {e.get("class"): e.get("d").count("M") for e in root.iter(f"{SVG}path")}
    assert paths["fault"] >= 2
    assert any("race" in (e.text or "") for e in root.iter(f"{SVG}text"))
    wrong = [
        e for e in opened(program_trace_text(found, *TERMS))["traceEvents"] if "wrong" in e.get("args", {})
    ]
    assert wrong


def test_many_blocks_stay_one_page():
    found = of(lowered(32)[1])
    assert sum(len(gpu.blocks) for gpu in found.program.gpus) > MOST_ROWS
    text = program_svg(found, *TERMS)
    root = ET.fromstring(text)
    assert float(root.get("height")) < 1700 and len(text) < 400_000
    some = ET.fromstring(program_svg(found, *TERMS, range(1, 2)))
    assert any("rank 1 tb 0" in (e.text or "") for e in some.iter(f"{SVG}text"))
    assert not any("rank 2 tb" in (e.text or "") for e in some.iter(f"{SVG}text"))
    assert png_of(text, 0.5).startswith(b"\x89PNG")


def test_the_timeline(four):
    trace = opened(program_trace_text(four, *TERMS))
    spans = [e for e in trace["traceEvents"] if e["ph"] == "X" and e["cat"] != "wait"]
    assert len(spans) == len(program_times(four, *TERMS).spans)
    assert sum(e["cat"] == "critical" for e in spans) == len(four.critical)
    assert "not measured" in trace["otherData"]["what"] and trace["otherData"]["valid"]
    assert named(trace)[3] == "rank 3 (late)"
    arrows = sum(e["ph"] == "s" for e in trace["traceEvents"])
    assert arrows == len(program_times(four, *TERMS).messages)
    assert [e["name"] for e in trace["traceEvents"] if e["ph"] == "i"] == ["rank 3 arrives"]
    some = opened(program_trace_text(four, *TERMS, range(1, 3)))
    assert {pid for pid, _ in spans_of(some)} == {1, 2}


def test_the_timeline_of_a_deadlock():
    trace = opened(program_trace_text(of(deadlocked()), *TERMS))
    stuck = [e for e in trace["traceEvents"] if e.get("cat") == "never"]
    assert len(stuck) == 2 and all(e["dur"] > 0 for e in stuck)
    assert any("deadlock" in line for line in trace["otherData"]["findings"])


def test_a_program_that_cannot_be_loaded():
    found = of(lowered(4)[1].replace('coll="allreduce"', 'coll="broadcast"'))
    assert "NOT VALID" in program_svg(found, *TERMS)
    with pytest.raises(UsageError, match="cannot be loaded"):
        program_trace_text(found, *TERMS)


@pytest.mark.parametrize("make", [program_svg, program_trace_text])
def test_ranks_that_do_not_exist(four, make):
    with pytest.raises(UsageError, match=r"0\.\.3"):
        make(four, *TERMS, range(7, 9))


@pytest.mark.parametrize("make", [program_svg, program_trace_text])
def test_hostile_names_are_text(make):
    text = lowered(4)[1]
    name = text.split('name="')[1].split('"')[0]
    hostile = "&lt;script&gt;alert(1)&lt;/script&gt;\u202e" + "y" * 3000
    made = make(of(text.replace(name, hostile)), *TERMS)
    assert (
        "<script" not in made.replace("\\u003c", "<").replace('"<script>alert', "") and "\u202e" not in made
    )
    assert "y" * 200 not in made
    if make is program_svg:
        root = ET.fromstring(made)
        assert not list(root.iter(f"{SVG}script"))
        assert any("<script>alert(1)" in (e.text or "") for e in root.iter(f"{SVG}text"))
    else:
        assert "<script>alert(1)" in opened(made)["otherData"]["program"]
