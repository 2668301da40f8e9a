"""One rank of a measured run: under `stragglar run`'s own mpiexec, a user's, or SLURM.

`main` runs the job that the launcher put in a folder (see `guard.py`), `run_here` one inside a process
that some other launcher has started.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from ...schedules import RunError, Schedule, StragglarError, parse_schedule
from ..clocks import sleep_until
from ..elements import Array, Expected, expected, numpy_dtype, rank_input
from ..events import RunEvent
from ..programs import rank_program
from ..pulse import Pulse
from ..recording import Recording
from ..report import RunReport, Timing, report_for
from ..request import RunRequest
from . import agree
from .clock import Clock
from .executor import Executor
from .gather_events import gather_events, median_place
from .native import NativeAllreduce
from .waiting import Waiter

if TYPE_CHECKING:
    from mpi4py import MPI

GRACE_SECONDS = 1.0
"""How long a rank that meets an error without a name waits before it ends the others: most likely another
rank has died, and the launcher should see which before all are killed."""


def run_here(schedule: Schedule, request: RunRequest, folder: Path | None = None) -> RunReport:
    """Runs this rank's part and returns the report, the same on every rank.

    Args:
        schedule: the same on every rank; checked.
        request: the same on every rank; checked.
        folder: where the launcher looks for signs of life; None: there is no launcher of ours.

    Raises:
        RunError: on every rank, where their inputs differ or there are too many or too few of them. Any
            later failure prints its message and ends the whole job: other ranks may be waiting.
    """
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    pulse = Pulse(world.rank, folder, _abort)
    pulse.start()
    pulse.allow("the run", request.run_seconds(schedule))
    try:
        return _run(world, pulse, schedule, request)
    except agree.Disagreement as error:
        if folder is not None:
            pulse.fail(str(error), "named")
        raise
    except StragglarError as error:
        pulse.fail(str(error), "named")
        _abort()
    except Exception as error:
        pulse.fail(f"rank {world.rank}: {type(error).__name__}: {error}", "error")
        time.sleep(GRACE_SECONDS)
        _abort()
    finally:
        pulse.stop()


def _run(world: MPI.Intracomm, pulse: Pulse, schedule: Schedule, request: RunRequest) -> RunReport:
    waiter = Waiter(world, request.wait_seconds(schedule), tuple(p.name for p in schedule.phases))
    _check_world(world, waiter, schedule, request)
    report = _Measurement(world.Dup(), waiter, pulse, schedule, request).report()
    pulse.finished()
    return report


def _abort() -> NoReturn:
    from mpi4py import MPI

    MPI.COMM_WORLD.Abort(1)
    os._exit(1)


def _check_world(world: MPI.Intracomm, waiter: Waiter, schedule: Schedule, request: RunRequest) -> None:
    agree.demand_same(agree.exchange(world, waiter, agree.card(schedule, request)))
    if world.size == schedule.ranks:
        return
    hint = ": mpiexec may belong to another MPI than mpi4py" if world.size == 1 else ""
    raise agree.Disagreement(f"the schedule is for {schedule.ranks} ranks, MPI started {world.size}{hint}")


@dataclass(frozen=True, slots=True)
class _Contender:
    """One of the two things measured: how to run it, and what each repetition gave."""

    name: str
    run: Callable[[Array], None]
    seconds: list[float]
    wrong: list[int]
    polls: bool


class _Measurement:
    """Warm-up and measured repetitions of the schedule and of MPI's own Allreduce, in turn."""

    def __init__(
        self, comm: MPI.Intracomm, waiter: Waiter, pulse: Pulse, schedule: Schedule, request: RunRequest
    ) -> None:
        self._comm, self._waiter, self._pulse = comm, waiter, pulse
        self._schedule, self._request = schedule, request
        self._wait_seconds = request.wait_seconds(schedule)
        self._delay = request.delays_for(schedule)[comm.rank]
        self._hosts, shared = agree.hosts(comm, waiter)
        self._clock = Clock(comm, waiter, shared)
        self._recording = Recording(comm.rank, self._clock.now) if request.trace else None
        self._traces: list[list[RunEvent]] = []

    def report(self) -> RunReport:
        request, ranks = self._request, self._schedule.ranks
        count, dtype, op, seed = request.elements, request.dtype, request.op, request.seed
        data = rank_input(self._comm.rank, ranks, count, dtype, op, seed)
        right = expected(ranks, count, dtype, op, seed)
        program = rank_program(self._schedule, self._comm.rank)
        kind, notes = numpy_dtype(dtype), self._recording
        executor = Executor(self._comm, program, count, kind, op, waiter=self._waiter, recording=notes)
        native = NativeAllreduce(self._comm, dtype, op)
        ours = _Contender("the schedule", executor.run, [], [], True)
        theirs = _Contender("MPI's own Allreduce", native.run, [], [], False)
        buffer = np.empty_like(data)
        for turn in range(request.warmup + request.repeat):
            for contender in (ours, theirs):
                self._repetition(contender, buffer, data, right, turn >= request.warmup)
        native.close()
        return self._sum_up(ours, theirs, native.note)

    def _repetition(
        self, contender: _Contender, buffer: Array, data: Array, right: Expected, measured: bool
    ) -> None:
        buffer[:] = data
        self._clock.synchronise()
        self._waiter.wait(self._comm.Ibarrier())
        sleep_until(time.monotonic() + self._delay)
        if not contender.polls:
            self._pulse.allow(contender.name, self._wait_seconds)
        start = self._clock.now()
        contender.run(buffer)
        end = self._clock.now()
        self._pulse.allow(contender.name, None)
        mine = np.array([start, end, right.wrong(buffer), self._clock.error])
        everyone = np.empty((self._comm.size, 4))
        self._waiter.wait(self._comm.Iallgather(mine, everyone))
        self._clock.error = float(everyone[:, 3].max())
        contender.wrong.append(int(everyone[:, 2].sum()))
        if self._recording is not None and contender.polls:
            events = self._recording.take()
            self._traces += [_on_time(events, start, float(everyone[:, 0].min()))] if measured else []
        if measured:
            contender.seconds.append(float(everyone[:, 1].max() - everyone[:, 0].max()))

    def _sum_up(self, ours: _Contender, theirs: _Contender, note: str) -> RunReport:
        from mpi4py import MPI

        size, ranks = self._request.size, self._schedule.ranks
        mine = Timing.of(ours.seconds, size, ranks, sum(ours.wrong))
        native = Timing.of(theirs.seconds, size, ranks, sum(theirs.wrong), note)
        events: tuple[RunEvent, ...] = ()
        if self._traces:
            names = [phase.name for phase in self._schedule.phases]
            events = gather_events(self._comm, self._waiter, self._traces[median_place(ours.seconds)], names)
        return replace(
            report_for("mpi", self._schedule, self._request, mine.wrong),
            schedule=mine,
            mpi_allreduce=native,
            speedup=native.seconds / mine.seconds if mine.seconds > 0 else None,
            events=events,
            hosts=self._hosts,
            library=MPI.Get_library_version().strip("\0").splitlines()[0].strip(),
            clock_error=self._clock.error,
        )


def _on_time(events: tuple[RunEvent, ...], arrival: float, first: float) -> list[RunEvent]:
    """One rank's events on the clock of a trace, on which the first rank arrives at 0; with its absence."""
    moved = [replace(e, start=max(0.0, e.start - first), end=max(0.0, e.end - first)) for e in events]
    if arrival <= first or not events:
        return moved
    return [RunEvent(events[0].rank, "absent", 0.0, arrival - first), *moved]


def main(folder: Path) -> int:
    """Runs the job in `folder` as one rank; rank 0 leaves the report there. Returns the exit code."""
    from mpi4py import MPI

    name = str(folder / "schedule.json")
    schedule = parse_schedule(Path(name).read_bytes(), name)
    request = RunRequest.from_json(json.loads((folder / "request.json").read_text(encoding="utf-8")))
    try:
        report = run_here(schedule, request, folder)
    except RunError:
        return 1
    if MPI.COMM_WORLD.rank == 0:
        (folder / "report.json").write_text(json.dumps(report.to_json()), encoding="utf-8")
    return 0
