"""What a run found: whether every element was right, and how long it took, by nccl-tests' definitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import Any

from ..schedules import Schedule
from .events import RunEvent
from .request import RunRequest


@dataclass(frozen=True, slots=True)
class Timing:
    """Repeated measurements of one AllReduce, from the arrival of the last rank to the end of the last.

    Attributes:
        seconds: median.
        minimum: fastest, in seconds.
        maximum: slowest, in seconds.
        algbw: bytes / seconds, in 1e9 bytes a second.
        busbw: algbw 2 (n - 1) / n.
        samples: all measured repetitions in order, in seconds.
        wrong: wrong elements over all ranks and repetitions.
        note: what to know about this number; empty where nothing is.
    """

    seconds: float
    minimum: float
    maximum: float
    algbw: float
    busbw: float
    samples: tuple[float, ...]
    wrong: int
    note: str = ""

    @classmethod
    def of(cls, samples: Sequence[float], size: int, ranks: int, wrong: int, note: str = "") -> Timing:
        """Sums up repetitions of an AllReduce of `size` bytes over `ranks` ranks."""
        seconds = median(samples)
        algbw = size / seconds / 1e9 if seconds > 0 else 0.0
        busbw = algbw * 2 * (ranks - 1) / ranks
        return cls(seconds, min(samples), max(samples), algbw, busbw, tuple(samples), wrong, note)


@dataclass(frozen=True, slots=True)
class RunReport:
    """The outcome of one run.

    Attributes:
        backend: name of the backend.
        ranks: number of ranks.
        late: the ranks that the schedule plans to be late.
        delays: seconds by which each rank really came late.
        bytes: size of the buffer.
        count: its number of elements.
        dtype: element type.
        op: reduction.
        late_by: largest of `delays`.
        repeat: measured repetitions.
        warmup: repetitions before them.
        seed: of the test data.
        correct: every element of every rank was right in every repetition.
        wrong: number of elements that were not (nccl-tests' #wrong), over all ranks and repetitions.
        schedule: measured times of the schedule; None where nothing real was run.
        mpi_allreduce: the same for MPI's own Allreduce, interleaved in the same run; None without MPI.
        speedup: mpi_allreduce over schedule, medians.
        others: name -> times of other AllReduces measured in the same run, interleaved, on the same data.
        events: what every rank did in the repetition with the median time, if the request asked for a trace.
        compute_seconds: time this process took to compute a modelled run; says nothing about a machine.
        hosts: names of the machines, in the order of their first rank.
        library: version of the communication library.
        clock_error: largest error of comparing two ranks' clocks, in seconds; 0 on one machine.
    """

    backend: str
    ranks: int
    late: tuple[int, ...]
    delays: tuple[float, ...]
    bytes: int
    count: int
    dtype: str
    op: str
    late_by: float
    repeat: int
    warmup: int
    seed: int
    correct: bool
    wrong: int
    schedule: Timing | None = None
    mpi_allreduce: Timing | None = None
    speedup: float | None = None
    others: dict[str, Timing] = field(default_factory=dict)
    events: tuple[RunEvent, ...] = ()
    compute_seconds: float | None = None
    hosts: tuple[str, ...] = ()
    library: str = ""
    clock_error: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON values; `from_json` gives it back."""
        events = [event.to_json() for event in self.events]
        return asdict(replace(self, events=())) | {"events": events}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> RunReport:
        """Makes a report from what `to_json` gave, also after a trip through a JSON file."""
        fields: dict[str, Any] = dict(data)
        for key in ("late", "delays", "hosts"):
            fields[key] = tuple(fields[key])
        for key in ("schedule", "mpi_allreduce"):
            if fields[key] is not None:
                fields[key] = _timing(fields[key])
        fields["others"] = {name: _timing(data) for name, data in fields["others"].items()}
        fields["events"] = tuple(RunEvent(*values) for values in fields["events"])
        return cls(**fields)


def _timing(data: dict[str, Any]) -> Timing:
    return Timing(**{**data, "samples": tuple(data["samples"])})


def report_for(backend: str, schedule: Schedule, request: RunRequest, wrong: int) -> RunReport:
    """The report of a run of `schedule` as asked for by `request`, without what was measured."""
    delays = request.delays_for(schedule)
    return RunReport(
        backend=backend,
        ranks=schedule.ranks,
        late=schedule.late,
        delays=delays,
        bytes=request.size,
        count=request.elements,
        dtype=request.dtype,
        op=request.op,
        late_by=max(delays),
        repeat=request.repeat,
        warmup=request.warmup,
        seed=request.seed,
        correct=wrong == 0,
        wrong=wrong,
    )
