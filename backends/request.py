"""What to run: size, element type, reduction, who is late by how much, how often, within what limits."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..schedules import Schedule, UsageError
from .elements import dtype_name, numpy_dtype, reduction


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One run of a schedule on a backend.

    Attributes:
        bytes: size of the buffer; give this or `count`. Bytes that make no whole element are left out, as
            in nccl-tests: `size` is what is used, `leftover` what is not.
        count: number of elements of the buffer; give this or `bytes`.
        dtype: f16, f32, f64, bf16, i32 or i64 (or the numpy name).
        op: sum, max, min, prod or avg.
        late_by: seconds by which the last rank comes late; groups of late ranks are spread evenly.
        late: the ranks that really are late, if others than the schedule plans for.
        delays: seconds by which every rank comes late, one a rank; replaces `late_by` and `late`.
        repeat: measured repetitions; the report gives their median.
        warmup: repetitions before, checked but not measured.
        seed: of the test data.
        time_limit: seconds the whole run may take, beside the delays asked for.
        wait_limit: seconds a rank may wait for another without any progress, beside the delays; None: a
            quarter of `time_limit`.
        trace: record what every rank does, in the repetition whose time is the median; see `events.py`.

    Raises:
        UsageError: a contradiction, or a size below one element.
        MissingError: bf16 without the package for it.
    """

    bytes: int | None = None
    count: int | None = None
    dtype: str = "f32"
    op: str = "sum"
    late_by: float = 0.0
    late: tuple[int, ...] | None = None
    delays: tuple[float, ...] | None = None
    repeat: int = 5
    warmup: int = 1
    seed: int = 0
    time_limit: float = 120.0
    wait_limit: float | None = None
    trace: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_name(self.dtype))
        reduction(self.op)
        if (self.bytes is None) == (self.count is None):
            raise UsageError("give the size in bytes or in elements: one of the two")
        size, unit = (self.bytes, "bytes") if self.count is None else (self.count, "elements")
        if size is None or self.elements < 1:
            raise UsageError(f"the buffer must have at least one {self.dtype} element, not {size} {unit}")
        self._check_numbers()

    def to_json(self) -> dict[str, Any]:
        """The request as plain JSON values; `from_json` gives it back."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> RunRequest:
        """Makes a request from what `to_json` gave, also after a trip through a JSON file."""
        fields: dict[str, Any] = dict(data)
        for key in ("late", "delays"):
            if fields.get(key) is not None:
                fields[key] = tuple(fields[key])
        return cls(**fields)

    def _check_numbers(self) -> None:
        if self.repeat < 1 or self.warmup < 0 or self.seed < 0:
            raise UsageError("repeat must be 1 or more, warmup and seed 0 or more")
        times = [self.late_by, *(self.delays or ())]
        if not all(0 <= t < float("inf") for t in times):
            raise UsageError("delays must be 0 or more seconds")
        limits = [self.time_limit] if self.wait_limit is None else [self.time_limit, self.wait_limit]
        if not all(0 < t < float("inf") for t in limits):
            raise UsageError("time limits must be above 0 seconds")
        if self.delays is not None and (self.late_by or self.late is not None):
            raise UsageError("give a delay for every rank, or who is late and by how much: not both")

    @property
    def elements(self) -> int:
        """Number of elements of the buffer."""
        if self.count is not None:
            return self.count
        return (self.bytes or 0) // numpy_dtype(self.dtype).itemsize

    @property
    def size(self) -> int:
        """Bytes of the buffer."""
        return self.elements * numpy_dtype(self.dtype).itemsize

    @property
    def leftover(self) -> int:
        """Bytes asked for that make no whole element."""
        return 0 if self.bytes is None else self.bytes - self.size

    def delays_for(self, schedule: Schedule) -> tuple[float, ...]:
        """Seconds by which each rank comes late in this run of `schedule`.

        Raises:
            UsageError: delays for another number of ranks, a late rank that does not exist, or a
                `late_by` where nobody is late.
        """
        if self.delays is not None:
            if len(self.delays) != schedule.ranks:
                raise UsageError(f"{len(self.delays)} delays for {schedule.ranks} ranks")
            return self.delays
        groups = schedule.arrivals if self.late is None else (self.late,)
        delays = [0.0] * schedule.ranks
        if self.late_by and not any(groups):
            raise UsageError("this schedule plans for no late rank: say which rank is late")
        for place, group in enumerate(groups, start=1):
            for rank in group:
                if not 0 <= rank < schedule.ranks:
                    raise UsageError(f"late rank {rank} is not in 0..{schedule.ranks - 1}")
                delays[rank] = self.late_by * place / len(groups)
        return tuple(delays)

    def wait_seconds(self, schedule: Schedule) -> float:
        """Seconds after which a rank that waits without progress gives up."""
        own = self.time_limit / 4 if self.wait_limit is None else self.wait_limit
        return own + max(self.delays_for(schedule))

    def run_seconds(self, schedule: Schedule) -> float:
        """Seconds after which the whole run is ended: the limit and all delays, each taken twice."""
        return self.time_limit + 2 * (self.repeat + self.warmup) * max(self.delays_for(schedule))
