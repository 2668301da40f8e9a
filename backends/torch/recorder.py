"""Records when every rank comes to its gradients in real training; writes the trace that planning takes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
import torch.distributed as dist

from ...schedules import RunError
from ...schedules.arrival_files import save_trace
from ...schedules.arrivals import ArrivalTrace

_PINGS = 16
_TAG = 0x5B
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class ArrivalRecorder:
    """Arrivals of this rank, kept in memory; on leaving the context, gathered and written by rank 0.

    >>> with ArrivalRecorder("arrivals.csv") as recorder:  # doctest: +SKIP
    ...     model.register_comm_hook(state, recorder.wrap(stragglar_hook))
    ...     train(model)

    A note reads a clock and keeps the number. On a GPU it is an event in the current stream: the arrival is
    when the gradients are there, not when their computation was issued.

    Args:
        path: CSV file to write on leaving; None: write none.
        group: the ranks that take part; None: all. Make recorders on all of them at once.
    """

    def __init__(self, path: str | None = None, group: dist.ProcessGroup | None = None) -> None:
        self._path = path
        members = dist.get_process_group_ranks(group or dist.group.WORLD)
        # Of its own, on gloo: clocks are compared by messages of the CPU.
        self._group = dist.new_group(members, backend="gloo", use_local_synchronization=True)
        self._times: list[int] = []
        self._pending: deque[Any] = deque()
        self._base: tuple[Any, int] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:  # else other ranks may never come to gather
            self.save()

    def note(self, device: torch.device | None = None) -> None:
        """This rank arrives now: on the CPU, or in the current stream of a GPU."""
        if device is None or device.type != "cuda":
            self._times.append(time.monotonic_ns())
            return
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        if self._base is None:
            event.synchronize()
            self._base = event, time.monotonic_ns()
            self._times.append(self._base[1])
            return
        self._pending.append(event)
        self._drain(wait=False)

    def wrap(self, hook: Callable[..., Any]) -> Callable[..., Any]:
        """A DDP hook that notes the arrival of the first bucket of every backward pass, then calls `hook`."""

        def recorded(state: object, bucket: dist.GradBucket) -> Any:  # noqa: ANN401
            if bucket.index() == 0:
                self.note(bucket.buffer().device)
            return hook(state, bucket)

        # DDP compares annotations, which are strings in this file.
        recorded.__annotations__ = {"bucket": dist.GradBucket}
        return recorded

    def trace(self) -> ArrivalTrace | None:
        """Gathers the arrivals of all ranks: call it on all of them. Only rank 0 gets the trace.

        Raises:
            RunError: a rank has recorded nothing.
        """
        self._drain(wait=True)
        boot = _BOOT.read_text() if _BOOT.exists() else str(time.monotonic_ns())
        rank, ranks = self._group.rank(), self._group.size()
        gathered: list[Any] = [None] * ranks
        dist.all_gather_object(gathered, (boot, self._times), group=self._group)
        offsets = self._offsets([clock for clock, _ in gathered])
        if rank != 0:
            return None
        length = min(len(times) for _, times in gathered)
        if not length:
            raise RunError("a rank has recorded no arrival: is the recorder's hook registered?")
        # Whole numbers until the first is subtracted: float64 would round nanoseconds since boot.
        first = gathered[0][1][0]
        rows = [
            [(times[i] - shift - first) / 1e9 for (_, times), shift in zip(gathered, offsets, strict=True)]
            for i in range(length)
        ]
        return ArrivalTrace.of(rows, f"recorded by stragglar under torch {torch.__version__}")

    def save(self) -> None:
        """Gathers the arrivals and writes them on rank 0; call it on all ranks."""
        trace = self.trace()
        if trace is not None and self._path is not None:
            save_trace(trace, self._path)

    def _drain(self, wait: bool) -> None:
        """Turns events that are over into times, each measured from the one before it."""
        while self._pending and (wait or self._pending[0].query()):
            assert self._base is not None
            event = self._pending.popleft()
            event.synchronize()
            before, clock = self._base
            self._base = event, clock + round(before.elapsed_time(event) * 1e6)
            self._times.append(self._base[1])

    def _offsets(self, clocks: list[str]) -> list[int]:
        """Nanoseconds by which each rank's clock is ahead of rank 0's; ranks of one machine share a clock."""
        rank, offsets = self._group.rank(), [0] * len(clocks)
        for other, clock in enumerate(clocks):
            if clock == clocks[0]:
                continue
            if rank == 0:
                offsets[other] = self._ahead(other)
            elif rank == other:
                self._answer()
        return offsets

    def _ahead(self, other: int) -> int:
        found: list[tuple[int, int]] = []
        message = torch.zeros(1, dtype=torch.int64)
        for _ in range(_PINGS):
            sent = time.monotonic_ns()
            self._group.send([message], other, _TAG).wait()
            self._group.recv([message], other, _TAG).wait()
            back = time.monotonic_ns()
            found.append((back - sent, int(message.item()) - (sent + back) // 2))
        return min(found)[1]  # the quickest exchange has the least error

    def _answer(self) -> None:
        message = torch.zeros(1, dtype=torch.int64)
        for _ in range(_PINGS):
            self._group.recv([message], 0, _TAG).wait()
            message.fill_(time.monotonic_ns())
            self._group.send([message], 0, _TAG).wait()
