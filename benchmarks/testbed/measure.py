"""Measures contenders on a testbed: in turn, repetition by repetition, every result checked on every rank.

A repetition: all ranks fill their buffers; they are told when to start, the late ones later; each says when
it began and ended, on the one clock that all namespaces share. What counts is the time from the last
beginning to the last end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..backends.events import RunEvent
from ..schedules import save_schedule
from .contenders import Contender
from .fleets import Fleet, start_fleet
from .load import Load, load_now
from .testbed import Testbed
from .worker import Job, save_expected

LEAD_SECONDS = 0.03
"""Between the orders of a repetition and its start: they reach all ranks in a fraction of it."""

ORDER_SECONDS = 60.0
"""What filling, checking or preparing may take at most."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How to measure.

    Attributes:
        count: elements of the buffer.
        dtype: their type.
        op: how they are reduced.
        late: the late ranks.
        delays: seconds by which they come late, one a measured repetition.
        warmup: repetitions before, with the largest delay.
        wait_seconds: how long a rank may wait for another.
        seed: of the data.
        gloo_python: the interpreter for gloo; None: this one.
        trace: record one more repetition of all our schedules.
    """

    count: int
    dtype: str
    op: str
    late: tuple[int, ...]
    delays: tuple[float, ...]
    warmup: int = 1
    wait_seconds: float = 60.0
    seed: int = 0
    gloo_python: str | None = None
    trace: bool = False


@dataclass(slots=True)
class Samples:
    """What the repetitions of one contender gave.

    Attributes:
        seconds: from the last arrival to the last end, one a measured repetition.
        wrong: wrong elements over all ranks and repetitions, warm-up included.
        load: of the machine, from the last arrivals to the last ends.
        received: for every measured repetition the bytes that each port received in that time.
        cpu: seconds of CPU that the ranks used themselves, of all ranks and measured repetitions.
        cpu_waits: for every measured repetition the share of its time that a rank was ready to run and had no
            CPU, the mean of all ranks.
        events: what the ranks did in the repetition that was recorded.
    """

    seconds: list[float] = field(default_factory=list)
    wrong: int = 0
    load: Load = field(default_factory=Load)
    received: list[list[int]] = field(default_factory=list)
    cpu: float = 0.0
    cpu_waits: list[float] = field(default_factory=list)
    events: tuple[RunEvent, ...] = ()


def measure(
    bed: Testbed, contenders: Sequence[Contender], plan: Plan, say: Callable[[str], None]
) -> list[Samples]:
    """Measures all contenders; returns their samples in the same order.

    Args:
        bed: where; as many hosts as the contenders have ranks.
        contenders: what.
        plan: how.
        say: told what goes on, one line at a time.

    Raises:
        RunError: a worker failed.
        MissingError: an engine is not installed.
    """
    with _Stage(bed, contenders, plan, say) as stage:
        for turn in range(plan.warmup):
            say(f"warm-up {turn + 1} of {plan.warmup}")
            stage.everyone(max(plan.delays), measured=False)
        for turn, delay in enumerate(plan.delays):
            if turn % max(1, len(plan.delays) // 10) == 0:
                say(f"repetition {turn + 1} of {len(plan.delays)}")
            stage.everyone(delay, measured=True)
        if plan.trace:
            stage.record(max(plan.delays))
        return stage.samples


class _Stage:
    """The fleets, ready, with all contenders known to them."""

    def __init__(
        self, bed: Testbed, contenders: Sequence[Contender], plan: Plan, say: Callable[[str], None]
    ) -> None:
        self._bed, self._contenders, self._plan = bed, contenders, plan
        self.samples = [Samples() for _ in contenders]
        self._fleets: dict[str, Fleet] = {}
        self._numbers: dict[str, int] = {}
        for name in dict.fromkeys(c.fleet for c in contenders):
            say(f"starting {bed.network.hosts} ranks of {name}")
            self._fleets[name] = self._start(name)
        self._ids = [self._add(at, c, record=False) for at, c in enumerate(contenders)]

    def __enter__(self) -> _Stage:
        return self

    def __exit__(self, *_: object) -> None:
        for fleet in self._fleets.values():
            fleet.close()

    def _start(self, name: str) -> Fleet:
        plan, engine = self._plan, name.partition("-")[0]
        job = Job(
            engine,
            name,
            str(self._bed.folder),
            self._bed.network.addresses,
            plan.count,
            plan.dtype,
            plan.op,
            plan.seed,
            plan.wait_seconds + max(plan.delays),
        )
        if not self._fleets:
            save_expected(job)
        return start_fleet(self._bed, job, plan.gloo_python if engine == "gloo" else None)

    def _add(self, at: int, contender: Contender, record: bool) -> int:
        """Makes a contender known to its fleet; returns its number there."""
        path: Path | None = None
        if contender.schedule is not None:
            path = self._bed.folder / f"schedule-{at}.json"
            save_schedule(contender.schedule, str(path))
        file = None if path is None else str(path)
        self._fleets[contender.fleet].ask({"do": "add", "file": file, "record": record}, ORDER_SECONDS)
        number = self._numbers.get(contender.fleet, 0)
        self._numbers[contender.fleet] = number + 1
        return number

    def everyone(self, delay: float, measured: bool) -> None:
        """One repetition of every contender."""
        for contender, number, samples in zip(self._contenders, self._ids, self.samples, strict=True):
            self._repetition(self._fleets[contender.fleet], number, delay, samples if measured else None)
            answers = self._fleets[contender.fleet].ask({"do": "check", "id": number}, ORDER_SECONDS)
            samples.wrong += sum(answer["wrong"] for answer in answers)

    def record(self, delay: float) -> None:
        """One more repetition of our schedules, with what every rank does and when."""
        for at, (contender, samples) in enumerate(zip(self._contenders, self.samples, strict=True)):
            if contender.schedule is None:
                continue
            fleet, number = self._fleets[contender.fleet], self._add(at, contender, record=True)
            began = self._repetition(fleet, number, delay, None)
            answers = fleet.ask({"do": "check", "id": number}, ORDER_SECONDS)
            samples.wrong += sum(answer["wrong"] for answer in answers)
            samples.events = _events(answers, began)

    def _repetition(self, fleet: Fleet, number: int, delay: float, samples: Samples | None) -> list[float]:
        """Runs a contender once; returns when each rank began."""
        fleet.ask({"do": "fill"}, ORDER_SECONDS)
        start = time.monotonic() + LEAD_SECONDS
        late = set(self._plan.late)
        arrivals = [start + (delay if rank in late else 0.0) for rank in range(len(fleet.channels))]
        fleet.order([{"do": "run", "id": number, "at": at} for at in arrivals])
        time.sleep(max(0.0, max(arrivals) - time.monotonic()))
        load, before = load_now(), self._bed.counters()
        answers = fleet.answers(2 * self._plan.wait_seconds + LEAD_SECONDS)
        load, after = load_now() - load, self._bed.counters()
        if samples is not None:
            last = max(answer["start"] for answer in answers)
            samples.seconds.append(max(answer["end"] for answer in answers) - last)
            samples.load += load
            samples.received.append([b[0] - a[0] for a, b in zip(before, after, strict=True)])
            samples.cpu += sum(answer["cpu"] for answer in answers)
            shares = [a["cpu_wait"] / (a["end"] - a["start"]) for a in answers]
            samples.cpu_waits.append(sum(shares) / len(shares))
        return [float(answer["start"]) for answer in answers]


def _events(answers: Sequence[dict[str, Any]], began: Sequence[float]) -> tuple[RunEvent, ...]:
    """The ranks' events on one clock that starts with the first arrival."""
    zero, found = min(began), list[RunEvent]()
    for rank, (answer, start) in enumerate(zip(answers, began, strict=True)):
        if start > zero:
            found.append(RunEvent(rank, "absent", 0.0, start - zero))
        for values in answer["events"]:
            values[2:4] = [values[2] - zero, values[3] - zero]
            found.append(RunEvent(*values))
    return tuple(found)
