"""The Trace Event Format as far as our files use it, and rules of it that JSON Schema cannot say.

Source: "Trace Event Format" (Chromium), and what Perfetto's importer of JSON traces does with each phase.
"""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise

import jsonschema

NUMBER = {"type": "number", "minimum": 0}


def when(phases, *required, **properties):
    found = {"properties": {"ph": {"enum": phases}}}
    return {"if": found, "then": {"required": list(required), "properties": properties}}


EVENT = {
    "type": "object",
    "required": ["ph", "name", "pid", "tid"],
    "properties": {
        "ph": {"enum": ["M", "X", "s", "f", "i"]},
        "name": {"type": "string", "maxLength": 200},
        "pid": {"type": "integer", "minimum": 1, "maximum": 2**32 - 1},
        "tid": {"type": "integer", "minimum": 1, "maximum": 2**32 - 1},
        "ts": NUMBER,
        "dur": NUMBER,
        "id": {"type": "integer", "minimum": 0, "maximum": 2**53 - 1},
        "args": {"type": "object"},
    },
    "allOf": [
        when(["X"], "ts", "dur", "cat"),
        when(["s"], "ts", "id", "cat"),
        when(["f"], "ts", "id", "cat", "bp", bp={"const": "e"}),
        when(["i"], "ts", "s", s={"enum": ["g", "p", "t"]}),
        when(["M"], "args", name={"pattern": "^(process|thread)_(name|sort_index)$"}),
    ],
}
FILE = {
    "type": "object",
    "required": ["traceEvents", "displayTimeUnit", "otherData"],
    "additionalProperties": False,
    "properties": {
        "traceEvents": {"type": "array", "items": EVENT},
        "displayTimeUnit": {"const": "ms"},
        "otherData": {"type": "object"},
    },
}

BITS = 16
"""The lower bits of a thread's number say which of its process it is."""


def cut(microseconds):
    """What Perfetto makes of a time: nanoseconds, cut."""
    return int(microseconds * 1000)


def opened(text):
    """The trace, after all checks."""
    trace = json.loads(text, parse_constant=lambda name: 1 / 0)  # NaN and Infinity are no JSON
    jsonschema.Draft202012Validator(FILE).validate(trace)
    events = trace["traceEvents"]
    named = {e["tid"]: e["pid"] for e in events if e["name"] == "thread_name"}
    assert len(named) == sum(
        e["name"] == "thread_name" for e in events
    )  # Perfetto knows threads by tid alone
    assert all(named[e["tid"]] == e["pid"] > 0 for e in events if e["ph"] in "Xsf")
    spans = spans_of(trace)
    for lane in spans.values():  # what crosses would be drawn as nested
        for (_, end, _), (start, _, _) in pairwise(lane):
            assert start >= end
    check_arrows(events)
    return trace


def row(event):
    """(process, thread) of an event, both counted from 0."""
    return event["pid"] - 1, event["tid"] - (event["pid"] << BITS)


def spans_of(trace):
    """(process, thread) -> its spans as (start, end, name) in nanoseconds, in order."""
    lanes = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            start = cut(event["ts"])
            lanes[row(event)].append((start, start + cut(event["dur"]), event["name"]))
    return {key: sorted(lane, key=lambda one: one[:2]) for key, lane in lanes.items()}


def check_arrows(events):
    """Each arrow has a start and an end, both bind to a span that they lie in, and it does not go back.

    As Perfetto does: in the order of times, and of the file where these are equal, a thread has one span that
    began last.
    """
    last, ends = {}, defaultdict(list)
    for event in sorted((e for e in events if e["ph"] in "Xsf"), key=lambda e: cut(e["ts"])):
        if event["ph"] == "X":
            last[event["tid"]] = (cut(event["ts"]), cut(event["ts"]) + cut(event["dur"]), event["name"])
        else:
            start, end, name = last[event["tid"]]
            assert start <= cut(event["ts"]) <= end
            ends[event["id"]].append((event["ph"], cut(event["ts"]), name))
    for (first, begin, _), (second, end, _) in ends.values():
        assert (first, second) in (("s", "f"), ("f", "s")) and (begin <= end)
    return ends


def named(trace, kind="process_name"):
    """process, counted from 0 -> its name (or (process, thread) -> name)."""
    found = [e for e in trace["traceEvents"] if e["name"] == kind]
    return {e["pid"] - 1 if kind == "process_name" else row(e): e["args"]["name"] for e in found}
