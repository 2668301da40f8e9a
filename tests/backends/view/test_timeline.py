"""Chrome trace events: their structure, and that they say what the simulation says."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise

import jsonschema
import pytest

from stragglar.backends.simulation import planned_arrivals, simulate
from stragglar.backends.view.timeline import RECEIVES, SENDS, WAITS, trace_text
from stragglar.schedules import Link
from stragglar.synth import Request, synthesize

LINK, SIZE, DELAY = Link(3e-6, 450 * 2**30), 2**26, 2e-4
NUMBER = {"type": "number", "minimum": 0}
EVENT = {
    "type": "object",
    "required": ["ph", "name", "pid", "tid"],
    "properties": {
        "ph": {"enum": ["M", "X", "s", "f"]},
        "name": {"type": "string"},
        "pid": {"type": "integer"},
        "tid": {"type": "integer"},
        "ts": NUMBER,
        "dur": NUMBER,
    },
    "allOf": [
        {"if": {"properties": {"ph": {"const": "X"}}}, "then": {"required": ["ts", "dur", "cat"]}},
        {"if": {"properties": {"ph": {"enum": ["s", "f"]}}}, "then": {"required": ["ts", "id", "cat"]}},
        {"if": {"properties": {"ph": {"const": "M"}}}, "then": {"required": ["args"]}},
    ],
}
FILE = {
    "type": "object",
    "required": ["traceEvents", "displayTimeUnit", "otherData"],
    "properties": {"traceEvents": {"type": "array", "items": EVENT}, "displayTimeUnit": {"const": "ms"}},
}


@pytest.mark.parametrize("mode", ["strict", "relaxed"])
def test_the_file(mode):
    schedule = synthesize(Request(8, (3,)))
    trace = json.loads(trace_text(schedule, SIZE, LINK, DELAY, mode))
    jsonschema.validate(trace, FILE)
    model = simulate(schedule, SIZE, LINK, planned_arrivals(schedule, DELAY).tolist(), mode)
    spans = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    threads = [e["tid"] for e in spans]
    assert threads.count(SENDS) == threads.count(RECEIVES) == schedule.transfer_count
    end = max(e["ts"] + e["dur"] for e in spans)
    assert end == pytest.approx(model.completion * 1e6)
    assert "not measured" in trace["otherData"]["what"]
    assert trace["otherData"]["post_seconds"] == pytest.approx(model.post_seconds)
    absent = [e for e in spans if e["name"] == "absent"]
    assert [(e["pid"], e["tid"], e["dur"]) for e in absent] == [(3, WAITS, pytest.approx(DELAY * 1e6))]


def test_a_thread_does_one_thing_at_a_time():
    """Perfetto nests events of a thread that overlap, which would be wrong here."""
    schedule = synthesize(Request(7, (2,), refine=2))
    lanes = defaultdict(list)
    for event in json.loads(trace_text(schedule, SIZE, LINK, DELAY))["traceEvents"]:
        if event["ph"] == "X":
            lanes[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in lanes.values():
        spans.sort()
        for (_, end), (start, _) in pairwise(spans):
            assert start >= end - 1e-6
