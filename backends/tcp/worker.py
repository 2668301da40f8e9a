"""One rank of a measured run over TCP: started by `stragglar run` on this machine, or by a user on several.

`main` runs the job that the launcher put in a folder, `run_here` the part of a rank that has its connections.
"""

from __future__ import annotations

import json
import os
import platform
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

import numpy as np

from ...schedules import Schedule, StragglarError, parse_schedule
from ...schedules.ring import ring_all_reduce
from ..clocks import machine, sleep_until
from ..elements import Array, Expected, expected, numpy_dtype, rank_input
from ..events import RunEvent
from ..mpi import agree
from ..mpi.gather_events import median_place, packed, unpacked
from ..mpi.guard import die_with_parent
from ..programs import rank_program
from ..pulse import Pulse
from ..recording import Recording
from ..report import RunReport, Timing, report_for
from ..request import RunRequest
from .control import LostRank
from .executor import Executor
from .mesh import Listener, Mesh
from .together import Clock, gather

CONNECT_SECONDS = 30.0
"""How long the ranks of one machine may take to find each other, and half a second more for each."""

_RESULT = struct.Struct("!ddqd")
_CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")


def run_here(
    schedule: Schedule, request: RunRequest, rank: int, join: Callable[[], Mesh], folder: Path | None = None
) -> RunReport:
    """Runs this rank's part and returns the report, the same on every rank.

    Args:
        schedule: the same on every rank; checked.
        request: the same on every rank; checked.
        rank: this rank.
        join: makes the connections.
        folder: where the launcher looks for signs of life; None: there is no launcher of ours.

    Raises:
        StragglarError: on every rank, whichever failed; names it.
    """
    pulse = Pulse(rank, folder, _end)
    pulse.start()
    pulse.allow("the run", request.run_seconds(schedule))
    try:
        mesh = join()
        try:
            report = _measured(mesh, schedule, request)
        except BaseException as error:
            mesh.abort(error)
            raise
        mesh.close()
        pulse.finished()
        return report
    except StragglarError as error:
        if folder is not None:
            pulse.fail(str(error), "error" if isinstance(error, LostRank) else "named")
        raise
    except Exception as error:
        if folder is not None:
            pulse.fail(f"rank {rank}: {type(error).__name__}: {error}", "error")
        raise
    finally:
        pulse.stop()


def _end() -> NoReturn:
    os._exit(1)


def _measured(mesh: Mesh, schedule: Schedule, request: RunRequest) -> RunReport:
    seconds = request.wait_seconds(schedule)
    cards = gather(mesh, json.dumps(agree.card(schedule, request)).encode(), seconds)
    agree.demand_same([json.loads(card) for card in cards])
    return _Measurement(mesh, schedule, request, seconds).report()


@dataclass(frozen=True, slots=True)
class _Contender:
    """One of the things measured: how to run it, and what each repetition gave."""

    run: Callable[[Array], None]
    recording: Recording | None = None
    seconds: list[float] = field(default_factory=list)
    wrong: list[int] = field(default_factory=list)
    traces: list[list[RunEvent]] = field(default_factory=list)


class _Measurement:
    """Warm-up and measured repetitions of the schedule and of the ring, in turn."""

    def __init__(self, mesh: Mesh, schedule: Schedule, request: RunRequest, seconds: float) -> None:
        self._mesh, self._schedule, self._request, self._seconds = mesh, schedule, request, seconds
        self._delay = request.delays_for(schedule)[mesh.rank]
        names = [
            json.loads(told)
            for told in gather(mesh, json.dumps([platform.node(), machine()]).encode(), seconds)
        ]
        self._hosts = tuple(dict.fromkeys(str(host) for host, _ in names))
        self._clock = Clock(mesh, seconds, len({told for _, told in names}) == 1)

    def report(self) -> RunReport:
        """Measures all and sums up."""
        request, ranks = self._request, self._schedule.ranks
        count, dtype, op, seed = request.elements, request.dtype, request.op, request.seed
        data = rank_input(self._mesh.rank, ranks, count, dtype, op, seed)
        right = expected(ranks, count, dtype, op, seed)
        recording = Recording(self._mesh.rank, self._clock.now) if request.trace else None
        ours = _Contender(self._executor(self._schedule, recording).run, recording)
        ring = _Contender(self._executor(ring_all_reduce(ranks), None).run)
        buffer = np.empty_like(data)
        for turn in range(request.warmup + request.repeat):
            for contender in (ours, ring):
                self._repetition(contender, buffer, data, right, turn >= request.warmup)
        return self._sum_up(ours, ring)

    def _executor(self, schedule: Schedule, recording: Recording | None) -> Executor:
        program = rank_program(schedule, self._mesh.rank)
        count, kind, op = self._request.elements, numpy_dtype(self._request.dtype), self._request.op
        return Executor(self._mesh, program, count, kind, op, wait_seconds=self._seconds, recording=recording)

    def _repetition(
        self, contender: _Contender, buffer: Array, data: Array, right: Expected, measured: bool
    ) -> None:
        buffer[:] = data
        self._clock.synchronise()
        gather(self._mesh, b"", self._seconds)
        sleep_until(time.monotonic() + self._delay)
        start = self._clock.now()
        contender.run(buffer)
        end = self._clock.now()
        mine = _RESULT.pack(start, end, right.wrong(buffer), self._clock.error)
        everyone = [_RESULT.unpack(told) for told in gather(self._mesh, mine, self._seconds)]
        starts, ends, wrong, errors = zip(*everyone, strict=True)
        self._clock.error = max(errors)
        contender.wrong.append(sum(wrong))
        events = contender.recording.take() if contender.recording else ()
        if measured:
            contender.seconds.append(max(ends) - max(starts))
            contender.traces.append(_on_time(self._mesh.rank, events, start, min(starts)))

    def _sum_up(self, ours: _Contender, ring: _Contender) -> RunReport:
        size, ranks = self._request.size, self._schedule.ranks
        mine = Timing.of(ours.seconds, size, ranks, sum(ours.wrong))
        others = {"ring": Timing.of(ring.seconds, size, ranks, sum(ring.wrong))}
        return replace(
            report_for("tcp", self._schedule, self._request, mine.wrong),
            schedule=mine,
            others=others,
            events=self._events(ours) if self._request.trace else (),
            hosts=self._hosts,
            library=f"TCP ({_congestion()}), Python {platform.python_version()}",
            clock_error=self._clock.error,
        )

    def _events(self, ours: _Contender) -> tuple[RunEvent, ...]:
        names = [phase.name for phase in self._schedule.phases]
        table = packed(ours.traces[median_place(ours.seconds)], names)
        everyone = b"".join(gather(self._mesh, table.tobytes(), self._seconds))
        return unpacked(np.frombuffer(everyone).reshape(-1, table.shape[1]), names)


def _on_time(rank: int, events: tuple[RunEvent, ...], arrival: float, first: float) -> list[RunEvent]:
    """One rank's events on the clock of a trace, on which the first rank arrives at 0; with its absence."""
    moved = [replace(e, start=max(0.0, e.start - first), end=max(0.0, e.end - first)) for e in events]
    return [RunEvent(rank, "absent", 0.0, arrival - first), *moved] if arrival > first else moved


def _congestion() -> str:
    try:
        return _CONGESTION.read_text(encoding="ascii").strip()
    except OSError:
        return "system default"


def main(folder: Path, rank: int, descriptor: int) -> int:
    """Runs the job in `folder` as one rank; rank 0 leaves the report there. Returns the exit code."""
    name = str(folder / "schedule.json")
    schedule = parse_schedule(Path(name).read_bytes(), name)
    request = RunRequest.from_json(json.loads((folder / "request.json").read_text(encoding="utf-8")))
    meeting = json.loads((folder / "meeting.json").read_text(encoding="utf-8"))
    die_with_parent()
    if os.getppid() != meeting["launcher"]:
        return 1  # it has gone already
    addresses = [(str(host), int(port)) for host, port in meeting["addresses"]]
    seconds = CONNECT_SECONDS + len(addresses) / 2

    def join() -> Mesh:
        token = bytes.fromhex(meeting["token"])
        return Listener.inherited(descriptor).connect(rank, addresses, seconds, token=token)

    try:
        report = run_here(schedule, request, rank, join, folder)
    except StragglarError:
        return 1
    if rank == 0:
        (folder / "report.json").write_text(json.dumps(report.to_json()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
