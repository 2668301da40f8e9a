"""One rank of a fleet: waits for orders, runs one AllReduce at the time it is told, says how that went.

It waits in the kernel, for a message on its control socket, whatever its engine: a rank with nothing to do
takes no CPU from those that are measured. Filling and checking buffers are orders of their own, so that none
of this happens while another rank still runs.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..backends.elements import PERIOD, Array, Expected, expected, numpy_dtype, rank_input
from ..backends.recording import Recording
from ..schedules import Schedule, load_schedule
from ..schedules.errors import StragglarError
from .channel import Channel, Closed

Run = Callable[[Array], None]
_SPIN_SECONDS = 2e-4
SCHEDULER = Path("/proc/self/schedstat")
"""Of this process's first thread, in nanoseconds: time on a CPU, time ready but without one."""


class Engine(Protocol):
    """How a fleet's ranks run an AllReduce."""

    def scheduled(self, schedule: Schedule, recording: Recording | None) -> Run:
        """Runs a schedule in place, again and again."""

    def native(self) -> Run:
        """Runs the library's own AllReduce in place."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a fleet is to run: the same for all its ranks, and a file between driver and workers.

    Attributes:
        engine: name of the engine: tcp, mpi or gloo.
        name: of the fleet; several fleets may have one engine, with other settings.
        folder: of the testbed.
        addresses: the hosts', by rank.
        count: elements of a buffer.
        dtype: their type.
        op: how they are reduced.
        seed: of the data.
        wait_seconds: how long a rank may wait for another.
    """

    engine: str
    name: str
    folder: str
    addresses: tuple[str, ...]
    count: int
    dtype: str
    op: str
    seed: int
    wait_seconds: float

    @classmethod
    def load(cls, path: Path) -> Job:
        """Reads what the driver wrote."""
        data = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**data, "addresses": tuple(data["addresses"])})

    @property
    def ranks(self) -> int:
        """How many there are."""
        return len(self.addresses)

    @property
    def socket(self) -> Path:
        """Where the driver listens for this fleet."""
        return Path(self.folder) / f"{self.name}.sock"

    def host(self, rank: int) -> Path:
        """The network namespace of a rank."""
        return Path(self.folder) / "hosts" / self.addresses[rank]


def save_expected(job: Job) -> None:
    """Computes the right result once, for all workers of all fleets."""
    right = expected(job.ranks, job.count, job.dtype, job.op, job.seed)
    for name, values in (("values", right.values), ("bound", right.bound)):
        if values is not None:
            np.save(Path(job.folder) / f"{name}.npy", values)


def load_expected(job: Job) -> Expected:
    """What `save_expected` left, shared by all that map it."""
    files = {name: Path(job.folder) / f"{name}.npy" for name in ("values", "bound")}
    found: dict[str, Any] = {
        name: np.load(path, mmap_mode="r", allow_pickle=False)
        for name, path in files.items()
        if path.exists()
    }
    return Expected(found["values"], found.get("bound"), numpy_dtype(job.dtype))


class Worker:
    """Serves the orders of the driver for one rank.

    Args:
        job: of its fleet.
        rank: which.
        engine: of this rank.
        channel: to the driver.
    """

    def __init__(self, job: Job, rank: int, engine: Engine, channel: Channel) -> None:
        self._job, self._rank, self._engine, self._channel = job, rank, engine, channel
        ranks, period = job.ranks, min(job.count, PERIOD)
        self._data = rank_input(rank, ranks, period, job.dtype, job.op, job.seed)
        self._right = load_expected(job)
        self._buffer = np.empty(job.count, numpy_dtype(job.dtype))
        self._runs: list[Run] = []
        self._recordings: list[Recording | None] = []

    def serve(self) -> None:
        """Answers until the driver has no more orders."""
        gc.disable()  # a collection in the middle of a measurement would count as communication
        orders = {"add": self._add, "fill": self._fill, "run": self._run, "check": self._check}
        self._channel.send({"rank": self._rank})
        while True:
            try:
                order = self._channel.receive()
            except Closed:
                return
            try:
                self._channel.send(orders[order["do"]](order))
            except StragglarError as error:
                self._channel.send({"error": str(error)})
            except Exception as error:
                self._channel.send({"error": f"rank {self._rank}: {type(error).__name__}: {error}"})

    def _add(self, order: dict[str, Any]) -> dict[str, Any]:
        recording = Recording(self._rank) if order["record"] else None
        if order["file"] is None:
            self._runs.append(self._engine.native())
        else:
            self._runs.append(self._engine.scheduled(load_schedule(order["file"]), recording))
        self._recordings.append(recording)
        return {}

    def _fill(self, _: dict[str, Any]) -> dict[str, Any]:
        for low in range(0, len(self._buffer), PERIOD):
            part = self._buffer[low : low + PERIOD]
            part[:] = self._data[: len(part)]
        return {}

    def _run(self, order: dict[str, Any]) -> dict[str, Any]:
        run = self._runs[order["id"]]
        sleep_until(order["at"])
        ran, waited = cpu_times()
        start = time.monotonic()
        run(self._buffer)
        end = time.monotonic()
        ran_after, waited_after = cpu_times()
        return {"start": start, "end": end, "cpu": ran_after - ran, "cpu_wait": waited_after - waited}

    def _check(self, order: dict[str, Any]) -> dict[str, Any]:
        recording = self._recordings[order["id"]]
        events = [event.to_json() for event in recording.take()] if recording else []
        gc.collect(0)
        return {"wrong": self._right.wrong(self._buffer), "events": events}


def cpu_times() -> tuple[float, float]:
    """Seconds that this process has run on a CPU, and seconds that it was ready to but had none."""
    try:
        ran, waited = SCHEDULER.read_text(encoding="ascii").split()[:2]
    except (OSError, ValueError):  # a kernel without these statistics
        return time.process_time(), 0.0
    return int(ran) * 1e-9, int(waited) * 1e-9


def sleep_until(target: float) -> None:
    """Sleeps to a time of `time.monotonic`, which all namespaces share; the last moment awake."""
    while (left := target - time.monotonic()) > 0:
        if left > _SPIN_SECONDS:
            time.sleep(left - _SPIN_SECONDS)
