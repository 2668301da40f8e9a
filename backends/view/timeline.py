"""A simulation as Chrome trace events, for Perfetto (ui.perfetto.dev) or chrome://tracing.

Every rank is a process with a thread for what it sends, one for what it receives, and one that says when it
is absent or waiting. A message is an event at both ends, joined by an arrow. Times are modelled, not
measured: the file says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ...schedules import Link, Op, Schedule, UsageError
from ...schedules.ir import DST, SRC
from ...schedules.svg_paper import plain
from ..simulation import Simulation, planned_arrivals, simulate
from .chrome import Event, arrive_words, arrow, file_text, moment, process, rank_words, span, thread

SENDS, RECEIVES, WAITS = 10, 20, 40
"""Threads of a rank; `run_trace` uses the numbers between them."""

THREADS = {SENDS: "sends", RECEIVES: "receives", WAITS: "waits"}
MODELLED = "modelled time (alpha-beta, event simulation), not measured"


@dataclass(frozen=True, slots=True)
class Rows:
    """Which rows a timeline takes: rank r is process `first + r`, at place `places * r + place`.

    Attributes:
        first: process of rank 0.
        place: place of rank 0 among the processes.
        places: distance between the places of two ranks.
        words: what stands behind `rank 3`, for telling two timelines in a file apart.
        ranks: the ranks to show; None: all.
        rounds: the rounds of every phase to show; None: all.
    """

    first: int = 0
    place: int = 0
    places: int = 1
    words: str = ""
    ranks: range | None = None
    rounds: range | None = None

    def shows(self, rank: int) -> bool:
        """Whether a rank is shown."""
        return self.ranks is None or rank in self.ranks

    def name(self, rank: int, ranks: int, late: bool) -> Iterator[Event]:
        """The events that name the process of a rank, one of `ranks`."""
        words = " ".join(filter(None, (rank_words(rank, ranks), "(late)" if late else "", self.words)))
        yield from process(self.first + rank, words, self.place + self.places * rank)


def trace_text(
    schedule: Schedule,
    size: float,
    link: Link,
    delay: float,
    mode: str = "strict",
    *,
    arrivals: Sequence[float] | None = None,
    rows: Rows | None = None,
) -> str:
    """The trace file of a schedule in modelled time; see `trace_events`.

    Args:
        schedule: what to simulate.
        size: bytes of the buffer.
        link: alpha and bandwidth of every port.
        delay: seconds by which the last group comes late, as the schedule plans it.
        mode: of the simulation.
        arrivals: when every rank comes, in seconds, instead of what `delay` says.
        rows: which ranks and rounds to show.

    Raises:
        UsageError: no such rank or round, or what `simulate` refuses.
    """
    come = planned_arrivals(schedule, delay).tolist() if arrivals is None else list(arrivals)
    simulation = simulate(schedule, size, link, come, mode)
    facts = model_facts(schedule, simulation, size, link)
    return file_text(facts, trace_events(schedule, simulation, rows or Rows()))


def model_facts(schedule: Schedule, simulation: Simulation, size: float, link: Link) -> dict[str, object]:
    """What a file says about a modelled timeline."""
    return {
        "what": MODELLED,
        "schedule": plain(schedule.origin.family),
        "bytes": size,
        "alpha_seconds": link.alpha,
        "bandwidth_bytes_per_second": link.bandwidth,
        "delay_seconds": float(simulation.arrivals.max()),
        "post_seconds": simulation.post_seconds,
        "mode": simulation.mode,
    }


def trace_events(schedule: Schedule, simulation: Simulation, rows: Rows) -> Iterator[Event]:
    """The events of a simulation.

    Raises:
        UsageError: no such rank or round.
    """
    require_some(schedule, rows)
    late = set(np.flatnonzero(simulation.arrivals > simulation.arrivals.min()).tolist()) | set(schedule.late)
    for rank in filter(rows.shows, range(schedule.ranks)):
        yield from rows.name(rank, schedule.ranks, rank in late)
        for number, words in THREADS.items():
            yield from thread(rows.first + rank, number, words)
    yield from arrivals_of(simulation.arrivals.tolist(), rows)
    yield from _messages(schedule, simulation, rows)
    for rank in filter(rows.shows, range(schedule.ranks)):
        yield from _waits(simulation, rank, rows.first + rank)


def require_some(schedule: Schedule, rows: Rows) -> None:
    """Refuses a choice of ranks or rounds that leaves nothing.

    Raises:
        UsageError: no such rank, or no such round in any phase.
    """
    if not any(map(rows.shows, range(schedule.ranks))):
        raise UsageError(f"no such rank to show: the ranks are 0..{schedule.ranks - 1}")
    longest = max(map(len, schedule.phases))
    if rows.rounds is not None and longest and not any(r in rows.rounds for r in range(longest)):
        raise UsageError(f"no such round to show: the longest phase has rounds 0..{longest - 1}")


def arrivals_of(come: Sequence[float], rows: Rows) -> Iterator[Event]:
    """A line for every group of ranks that come together, but for the first."""
    first = min(come)
    for time in sorted(set(come) - {first}):
        group = [rank for rank, when in enumerate(come) if when == time]
        words = " ".join(filter(None, (arrive_words(group), rows.words)))
        yield moment(rows.first + group[0], WAITS, words, time)


def _messages(schedule: Schedule, simulation: Simulation, rows: Rows) -> Iterator[Event]:
    names = [phase.name for phase in schedule.phases]
    columns = zip(
        simulation.table.tolist(),
        simulation.phase.tolist(),
        simulation.round.tolist(),
        simulation.starts.tolist(),
        simulation.finishes.tolist(),
        strict=True,
    )
    for number, (row, phase, where, start, end) in enumerate(columns):
        src, dst, first, count, op = row
        if rows.rounds is not None and where not in rows.rounds:
            continue
        chunks = f"chunk {first}" if count == 1 else f"chunks {first}-{first + count - 1}"
        verb = "add" if op == Op.REDUCE else "copy"
        facts: Event = {"phase": names[phase], "round": where, "row": [src, dst, first, count]}
        facts["op"] = Op(op).name.lower()
        source, target = (rows.first + src, SENDS), (rows.first + dst, RECEIVES)
        if rows.shows(src):
            yield span(*source, "send", f"{chunks} to {dst}", start, end, facts)
        if rows.shows(dst):
            yield span(*target, verb, f"{verb} {chunks} from {src}", start, end, facts)
        if rows.shows(src) and rows.shows(dst):
            yield from arrow(rows.first << 26 | number, (*source, start), (*target, start, end))


def _waits(simulation: Simulation, rank: int, pid: int) -> Iterator[Event]:
    """When a rank is absent, and when it is there but neither of its ports is busy before its end."""
    origin = min(0.0, float(simulation.arrivals.min()))
    here, end = float(simulation.arrivals[rank]), float(simulation.ends[rank])
    if here > origin:
        yield span(pid, WAITS, "wait", "absent", origin, here)
    mine = (simulation.table[:, SRC] == rank) | (simulation.table[:, DST] == rank)
    order = np.argsort(simulation.starts[mine], kind="stable")
    starts, finishes = simulation.starts[mine][order], simulation.finishes[mine][order]
    free = here
    for start, finish in zip(starts.tolist(), finishes.tolist(), strict=True):
        if start > free:
            yield span(pid, WAITS, "wait", "waits", free, start)
        free = max(free, finish)
    if end > free:
        yield span(pid, WAITS, "wait", "waits", free, end)
