"""One measurement on shaped links from beginning to end: `bench links`, or a point of `bench sweep`."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ..backends.conditions import conditions
from ..backends.elements import dtype_name, numpy_dtype, reduction
from ..backends.report import RunReport, report_for
from ..backends.request import RunRequest
from ..schedules.errors import UsageError
from .contenders import FULLY, PLAN_ALPHA, Scene, contender
from .fleets import demand_engine
from .load import background
from .measure import Plan, measure
from .network import Network
from .report import Measured, judge
from .testbed import temporary_testbed

START_SECONDS = 60.0
"""What a testbed and its fleets may take to start, beside what is measured."""

MAX_REPEAT = 1000
MAX_SECONDS = 3600
"""Of a buffer through a port, and of a delay."""

WORDS = ("full", "half", "random")
"""What `late_by` may be beside a time."""


@dataclass(frozen=True, slots=True)
class Links:
    """What to measure.

    Attributes:
        network: hosts and ports.
        algorithms: names of contenders, see `contenders.py`; all different.
        seconds: size of the buffer as the time it takes through one port; give this or `bytes`.
        bytes: size of the buffer.
        late: the late ranks; empty: the last one.
        late_by: `full` (1.1 times what hides the early ranks' ReduceScatter), `half` (of what hides it),
            `random` (evenly up to `full`, another in every repetition), or seconds.
        repeat: measured repetitions of every contender.
        warmup: repetitions before.
        dtype: element type.
        op: reduction.
        seed: of the data and of random delays.
        alpha: seconds of a round without data, for the planner.
        time_limit: seconds that a rank may wait for another.
        gloo_python: an interpreter with torch; None: this one.
        trace: record one more repetition of all our schedules.

    Raises:
        UsageError: a contradiction.
    """

    network: Network
    algorithms: tuple[str, ...]
    seconds: float | None = None
    bytes: int | None = None
    late: tuple[int, ...] = ()
    late_by: str | float = "full"
    repeat: int = 5
    warmup: int = 1
    dtype: str = "f32"
    op: str = "sum"
    seed: int = 0
    alpha: float = PLAN_ALPHA
    time_limit: float = 60.0
    gloo_python: str | None = None
    trace: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_name(self.dtype))
        object.__setattr__(self, "late", tuple(sorted(self.late)) or (self.network.hosts - 1,))
        reduction(self.op)
        if (self.seconds is None) == (self.bytes is None):
            raise UsageError(
                "give the size of the buffer as seconds at port rate or in bytes: one of the two"
            )
        if self.count < 1:
            raise UsageError(
                f"the buffer must take 0..{MAX_SECONDS} s and have at least one {self.dtype} element"
            )
        if not self.algorithms or len(set(self.algorithms)) != len(self.algorithms):
            raise UsageError("name at least one algorithm, and none twice")
        outside = [rank for rank in self.late if not 0 <= rank < self.network.hosts]
        if outside or len(set(self.late)) != len(self.late) or len(self.late) >= self.network.hosts:
            raise UsageError(f"late ranks must be different, in 0..{self.network.hosts - 1}, and not all")
        if not 1 <= self.repeat <= MAX_REPEAT or not 0 <= self.warmup <= MAX_REPEAT or self.seed < 0:
            raise UsageError(f"repeat must be 1..{MAX_REPEAT}, warmup 0..{MAX_REPEAT}, the seed 0 or more")
        word = isinstance(self.late_by, str)
        if self.late_by not in WORDS if word else not 0 <= float(self.late_by) < MAX_SECONDS:
            raise UsageError(
                f"late ranks come late by {', '.join(WORDS)} or 0..{MAX_SECONDS} s, not {self.late_by}"
            )

    @property
    def count(self) -> int:
        """Elements of the buffer."""
        item = numpy_dtype(self.dtype).itemsize
        if self.bytes is not None:
            return self.bytes // item
        seconds = self.seconds or 0.0
        return round(seconds * self.network.payload_rate / item) if 0 < seconds <= MAX_SECONDS else 0

    @property
    def size(self) -> int:
        """Bytes of the buffer."""
        return self.count * numpy_dtype(self.dtype).itemsize

    def delays(self) -> tuple[float, ...]:
        """Seconds by which the late ranks come, one a measured repetition."""
        hides = self._scene(0.0).hiding_delay
        if self.late_by == "random":
            chance = random.Random(self.seed)
            return tuple(chance.uniform(0, FULLY * hides) for _ in range(self.repeat))
        if isinstance(self.late_by, str):
            return (hides * (FULLY if self.late_by == "full" else 0.5),) * self.repeat
        return (self.late_by,) * self.repeat

    def scene(self) -> Scene:
        """What all contenders have in common; they are planned for the mean delay."""
        delays = self.delays()
        return self._scene(sum(delays) / len(delays))

    def _scene(self, delay: float) -> Scene:
        rate = self.network.payload_rate
        return Scene(self.network.hosts, self.late, self.size, rate, delay, self.alpha)

    def command(self) -> str:
        """The command that asks for this again; where an interpreter with torch is, is left out."""
        size = f"--seconds {self.seconds:g}" if self.bytes is None else f"--bytes {self.bytes}"
        late_by = self.late_by if isinstance(self.late_by, str) else f"{self.late_by:.6g}"
        words = [
            f"stragglar bench links --hosts {self.network.hosts}",
            f"--rate {self.network.rate * 8e-6:g}mbit {size}",
            f"--late {','.join(map(str, self.late))} --late-by {late_by}",
            f"--algorithms {','.join(self.algorithms)} --repeat {self.repeat}",
        ]
        extra = {"mtu": (self.network.mtu, 9000), "dtype": (self.dtype, "f32"), "op": (self.op, "sum")}
        extra |= {"seed": (self.seed, 0), "warmup": (self.warmup, 1)}
        words += [f"--{name} {value}" for name, (value, usual) in extra.items() if value != usual]
        return " ".join(words)

    def lifetime(self) -> float:
        """Seconds after which the testbed ends whatever happens."""
        runs = (self.repeat + self.warmup + 2) * len(self.algorithms)
        each = max(self.delays()) + 8 * self.network.hosts.bit_length() * self._scene(0.0).seconds + 5
        return START_SECONDS * (1 + len(self.algorithms)) + 2 * runs * each


def links(request: Links, say: Callable[[str], None]) -> tuple[dict[str, Any], dict[str, RunReport]]:
    """Measures and judges.

    Args:
        request: what to measure.
        say: told what goes on, one line at a time.

    Returns:
        The report (JSON values; `report.py` says what stands in it), and, if a trace was asked for, a report
        with the recorded events for each of our schedules.

    Raises:
        UsageError: a contender that does not go with the rest.
        MissingError: namespaces or an engine cannot be had here.
        RunError: a rank failed.
    """
    scene, delays = request.scene(), request.delays()
    contenders = [contender(name, scene) for name in request.algorithms]
    for one in contenders:
        demand_engine(one.engine, request.gloo_python)
    how = Plan(
        request.count,
        request.dtype,
        request.op,
        request.late,
        delays,
        request.warmup,
        request.time_limit,
        request.seed,
        request.gloo_python,
        request.trace,
    )
    others = background()
    with temporary_testbed(request.network, request.lifetime()) as bed:
        samples = measure(bed, contenders, how, say)
    others = max(others, background())
    rows = [Measured(one, found) for one, found in zip(contenders, samples, strict=True)]
    report = _head(request, scene) | judge(rows, scene, delays, request.network.rate, others)
    recorded = {row.contender.name: _recorded(request, row) for row in rows if row.samples.events}
    return report, recorded


def _recorded(request: Links, row: Measured) -> RunReport:
    """What one contender's ranks did in the repetition that was recorded."""
    schedule, delay = row.contender.schedule, max(request.delays())
    assert schedule is not None
    delays = tuple(delay if rank in request.late else 0.0 for rank in range(schedule.ranks))
    asked = RunRequest(
        count=request.count, dtype=request.dtype, op=request.op, delays=delays, repeat=request.repeat
    )
    report = report_for(row.contender.engine, schedule, asked, row.samples.wrong)
    return replace(report, events=row.samples.events)


def _head(request: Links, scene: Scene) -> dict[str, Any]:
    """What was measured, where and when."""
    network, delays = request.network, request.delays()
    return conditions(
        hosts=network.hosts,
        rate_bytes=network.rate,
        payload_rate_bytes=network.payload_rate,
        mtu=network.mtu,
        bytes=request.size,
        seconds=scene.seconds,
        dtype=request.dtype,
        op=request.op,
        command=request.command(),
        late=list(request.late),
        late_by=request.late_by,
        delays=list(delays),
        repeat=request.repeat,
        warmup=request.warmup,
        seed=request.seed,
    )
