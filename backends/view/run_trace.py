"""What the ranks of a real run did, as Chrome trace events, in the look of the modelled timeline.

Every rank is a process: what it sends, what it receives, what it adds and copies, and when it is absent or
waits. Messages that are under way at the same time stand on threads of their own ("sends 2"). With a
simulation beside it, every measured rank has its model right below.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator

from ...schedules import Schedule, UsageError
from ...schedules.svg_paper import plain
from ..events import RunEvent
from ..report import RunReport
from ..simulation import Simulation
from .chrome import Event, Lanes, arrow, file_text, span, thread
from .timeline import MODELLED, RECEIVES, SENDS, WAITS, Rows, arrivals_of, trace_events

WORKS = 30
MOST_LANES = 9
"""Threads of one kind a rank; what crosses even there is laid over the last."""

KINDS = {
    "send": (SENDS, "sends"),
    "receive": (RECEIVES, "receives"),
    "reduce": (WORKS, "adds and copies"),
    "copy": (WORKS, "adds and copies"),
    "wait": (WAITS, "waits"),
    "absent": (WAITS, "waits"),
}

Placed = tuple[RunEvent, int]


def run_trace_text(
    report: RunReport, label: str = "", beside: tuple[Schedule, Simulation] | None = None
) -> str:
    """The trace file of a run that was recorded (`RunRequest.trace`).

    Args:
        report: of the run, with its events.
        label: what the run is called in the file.
        beside: the schedule and its simulation under the same arrivals, to stand below each measured rank.

    Raises:
        UsageError: the report has no events, or the model is one of another number of ranks.
    """
    if not report.events:
        raise UsageError(f"this run on {report.backend} recorded no events: there is nothing to trace")
    if beside is not None and beside[0].ranks != report.ranks:
        raise UsageError(f"a model of {beside[0].ranks} ranks beside a run of {report.ranks}")
    rows = Rows(words=plain(label, 40)) if beside is None else Rows(places=2, words="measured")
    events = list(run_events(report, rows))
    if beside is not None:
        events += trace_events(*beside, Rows(report.ranks, place=1, places=2, words="model"))
    return file_text(_facts(report, label, beside), events)


def _facts(report: RunReport, label: str, beside: tuple[Schedule, Simulation] | None) -> dict[str, object]:
    what = "measured on real processes: the repetition whose time is the median; 0 is the first arrival"
    facts: dict[str, object] = {"what": what, "backend": report.backend, "label": plain(label)}
    if report.schedule is not None:
        facts |= {"post_seconds_median": report.schedule.seconds, "repetitions": report.repeat}
    facts |= {"bytes": report.bytes, "dtype": report.dtype, "delays_seconds": list(report.delays)}
    facts |= {"hosts": len(report.hosts), "library": plain(report.library)}
    facts |= {"clock_error_seconds": report.clock_error}
    if beside is not None:
        model = {"what": MODELLED, "mode": beside[1].mode, "post_seconds": beside[1].post_seconds}
        facts["model"] = model
    return facts


def run_events(report: RunReport, rows: Rows) -> Iterator[Event]:
    """The events of a report on the rows given."""
    placed: list[Placed] = []
    for rank in range(report.ranks):
        mine = [event for event in report.events if event.rank == rank]
        lanes: dict[int, Lanes] = defaultdict(Lanes)
        yield from rows.name(rank, report.ranks, report.delays[rank] > 0)
        for event in sorted(mine, key=lambda e: (e.start, e.end)):
            base, _ = KINDS[event.kind]
            lane = min(MOST_LANES - 1, lanes[base].place(event.start, event.end))
            placed.append((event, base + lane))
        for base, words in dict(KINDS.values()).items():
            for lane in range(max(1, min(MOST_LANES, len(lanes[base])))):
                yield from thread(rows.first + rank, base + lane, f"{words} {lane + 1}" if lane else words)
    yield from arrivals_of(_come(report), rows)
    for event, number in placed:
        yield span(
            rows.first + event.rank, number, event.kind, _words(event), event.start, event.end, _args(event)
        )
    yield from _arrows(placed, rows)


def _come(report: RunReport) -> list[float]:
    """When each rank came; ranks that were to come together count as one group, at its last one."""
    came = [0.0] * report.ranks
    for event in report.events:
        if event.kind == "absent":
            came[event.rank] = event.end
    groups: dict[float, float] = {}
    for rank, delay in enumerate(report.delays):
        groups[delay] = max(groups.get(delay, 0.0), came[rank])
    return [groups[delay] for delay in report.delays]


def _words(event: RunEvent) -> str:
    last = event.first + event.count - 1
    chunks = f"chunk {event.first}" if event.count == 1 else f"chunks {event.first}-{last}"
    return {
        "send": f"{chunks} to {event.peer}",
        "receive": f"{chunks} from {event.peer}",
        "reduce": f"add {chunks} from {event.peer}",
        "copy": f"copy {chunks} from {event.peer}",
        "wait": f"waits for {event.peer}" if event.peer >= 0 else "waits",
        "absent": "absent",
    }[event.kind]


def _args(event: RunEvent) -> Event:
    facts: Event = {}
    if event.round >= 0:
        facts |= {"phase": plain(event.phase), "round": event.round}
    if event.count:
        facts |= {"peer": event.peer, "first": event.first, "count": event.count}
    return facts


def _arrows(placed: list[Placed], rows: Rows) -> Iterator[Event]:
    """From every send to its receive: the same chunks in the same round between the same ranks.

    None where the receive ends first: clocks of two machines differ, or a rank noted its send late.
    """
    open_: dict[tuple[object, ...], deque[Placed]] = defaultdict(deque)
    for event, number in placed:
        if event.kind == "send":
            open_[event.rank, event.peer, *_message(event)].append((event, number))
    count = 0
    for event, number in placed:
        waiting = open_.get((event.peer, event.rank, *_message(event))) if event.kind == "receive" else None
        if waiting:
            sent, thread_ = waiting.popleft()
            if event.end < sent.start:
                continue
            source = rows.first + sent.rank, thread_, sent.start
            target = rows.first + event.rank, number, event.start, event.end
            yield from arrow(rows.first << 26 | count, source, target)
            count += 1


def _message(event: RunEvent) -> tuple[object, ...]:
    return event.phase, event.round, event.first, event.count
