"""A simulation as Chrome trace events, for Perfetto (ui.perfetto.dev) or chrome://tracing.

Every rank is a process with a thread for what it sends, one for what it receives, and one that says when it
is absent or waiting. A message is an event at both ends, joined by an arrow. Times are modelled, not
measured: the file says so.

Format: the "Trace Event Format" of the Chromium project: a JSON object with `traceEvents`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...schedules import Link, Op, Schedule
from ...schedules.ir import DST, SRC
from ...schedules.svg_paper import plain
from ..simulation import Simulation, planned_arrivals, simulate

SENDS, RECEIVES, WAITS = 1, 2, 3
THREADS = {SENDS: "sends", RECEIVES: "receives", WAITS: "waits"}

Event = dict[str, Any]


def trace_text(schedule: Schedule, size: float, link: Link, delay: float, mode: str = "strict") -> str:
    """The trace file of a schedule in modelled time; see `trace_events`."""
    simulation = simulate(schedule, size, link, planned_arrivals(schedule, delay).tolist(), mode)
    facts = {
        "what": "modelled time (alpha-beta, event simulation), not measured",
        "schedule": plain(schedule.origin.family),
        "bytes": size,
        "alpha_seconds": link.alpha,
        "bandwidth_bytes_per_second": link.bandwidth,
        "delay_seconds": delay,
        "post_seconds": simulation.post_seconds,
        "mode": mode,
    }
    events = ",\n".join(json.dumps(event) for event in trace_events(schedule, simulation))
    return f'{{"displayTimeUnit":"ms","otherData":{json.dumps(facts)},"traceEvents":[\n{events}\n]}}\n'


def trace_events(schedule: Schedule, simulation: Simulation) -> Iterator[Event]:
    """The events of a simulation, in microseconds; process r is rank r."""
    late = set(schedule.late)
    for rank in range(schedule.ranks):
        yield _name("process_name", rank, 0, f"rank {rank}{' (late)' if rank in late else ''}")
        yield {"ph": "M", "name": "process_sort_index", "pid": rank, "tid": 0, "args": {"sort_index": rank}}
        for thread, words in THREADS.items():
            yield _name("thread_name", rank, thread, words)
    yield from _messages(schedule, simulation)
    for rank in range(schedule.ranks):
        yield from _waits(simulation, rank)


def _name(kind: str, rank: int, thread: int, words: str) -> Event:
    return {"ph": "M", "name": kind, "pid": rank, "tid": thread, "args": {"name": words}}


def _messages(schedule: Schedule, simulation: Simulation) -> Iterator[Event]:
    names = [phase.name for phase in schedule.phases]
    rows = zip(
        simulation.table.tolist(),
        simulation.phase.tolist(),
        simulation.round.tolist(),
        (simulation.starts * 1e6).tolist(),
        (simulation.finishes * 1e6).tolist(),
        strict=True,
    )
    for number, (row, phase, where, start, end) in enumerate(rows):
        src, dst, first, count, op = row
        chunks = f"chunk {first}" if count == 1 else f"chunks {first}-{first + count - 1}"
        verb = "add" if op == Op.REDUCE else "copy"
        facts = {
            "phase": names[phase],
            "round": where,
            "row": [src, dst, first, count],
            "op": Op(op).name.lower(),
        }
        common: Event = {"ph": "X", "ts": start, "dur": end - start, "args": facts}
        yield common | {"name": f"{chunks} to {dst}", "cat": "send", "pid": src, "tid": SENDS}
        yield common | {"name": f"{verb} {chunks} from {src}", "cat": verb, "pid": dst, "tid": RECEIVES}
        arrow: Event = {"name": "message", "cat": "message", "id": number}
        yield arrow | {"ph": "s", "ts": start, "pid": src, "tid": SENDS}
        yield arrow | {"ph": "f", "bp": "e", "ts": end, "pid": dst, "tid": RECEIVES}


def _waits(simulation: Simulation, rank: int) -> Iterator[Event]:
    """When a rank is absent, and when it is there but neither of its ports is busy before its end."""
    origin = min(0.0, float(simulation.arrivals.min()))
    here, end = float(simulation.arrivals[rank]), float(simulation.ends[rank])
    if here > origin:
        yield _wait(rank, "absent", origin, here)
    mine = (simulation.table[:, SRC] == rank) | (simulation.table[:, DST] == rank)
    order = np.argsort(simulation.starts[mine], kind="stable")
    starts, finishes = simulation.starts[mine][order], simulation.finishes[mine][order]
    free = here
    for start, finish in zip(starts.tolist(), finishes.tolist(), strict=True):
        if start > free:
            yield _wait(rank, "waits", free, start)
        free = max(free, finish)
    if end > free:
        yield _wait(rank, "waits", free, end)


def _wait(rank: int, words: str, start: float, end: float) -> Event:
    facts = {"ph": "X", "cat": "wait", "name": words, "pid": rank, "tid": WAITS}
    return facts | {"ts": start * 1e6, "dur": (end - start) * 1e6}
