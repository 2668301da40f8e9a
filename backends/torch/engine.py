"""AllReduce calls of one group, in order, on a thread of their own: arrive, decide who is late, run.

The thread is what makes calls asynchronous on every backend: the caller gets a future at once. On a GPU the
thread issues to a CUDA stream of its own, and the future makes the caller's stream wait.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist

from ...schedules import StragglarError, UsageError
from . import reductions
from .blame import Blame, Lookout, Progress
from .board import Board, Late
from .executor import Executor
from .plans import Choice, Chooser, Plans
from .shared_board import SharedBoard, make_board

_LOOK_UP = timedelta(seconds=0.25)

Mode = Literal["eager", "static", "off"]


@dataclass(frozen=True, slots=True)
class Settings:
    """How calls are treated.

    Attributes:
        mode: `eager`: the first arrivals fix who is late; `static`: those that the schedule names are;
            `off`: the ordinary all_reduce, always.
        threshold: eager: seconds by which the last ranks must come after the others to count as late;
            None: what the plan says, which for a schedule given by hand is 0.
        timeout: seconds that one message, or the wait for a decision, may take.
        late_ranks: eager: so many may be late together; the first n - late_ranks arrivals fix them.
        shared_memory: eager: decide in shared memory where all ranks share it; else in the store.
    """

    mode: Mode = "eager"
    threshold: float | None = None
    timeout: float = 60.0
    late_ranks: int = 1
    shared_memory: bool = True

    def __post_init__(self) -> None:
        if self.mode not in ("eager", "static", "off"):
            raise UsageError(f"mode {self.mode!r} is not known: use eager, static or off")
        if not 0 <= (self.threshold or 0.0) < float("inf") or not 0 < self.timeout < float("inf"):
            raise UsageError("the threshold must be 0 or more seconds, and the timeout above 0")
        if self.late_ranks < 1:
            raise UsageError(f"at least one rank may be late, not {self.late_ranks}")


@dataclass(frozen=True, slots=True)
class _Job:
    tensor: torch.Tensor
    op: str
    fresh: bool
    ready: Any
    future: Any


@dataclass(slots=True)
class Counts:
    """How often what was done: calls by late rank (-1: nobody was late, or nobody was asked).

    A call with several late ranks counts for each of them.
    """

    late: dict[int, int]


class Engine:
    """The calls of one rank.

    Args:
        group: a process group on which nothing else runs.
        store: a store for this group alone.
        choose: bytes -> what to do.
        settings: how calls are treated.
    """

    def __init__(
        self, group: dist.ProcessGroup, store: dist.Store, choose: Chooser, settings: Settings
    ) -> None:
        self._group, self._settings = group, settings
        rank, self._ranks = group.rank(), group.size()
        # A waiting store keeps its connection to itself: the thread has one of its own.
        store = store.clone() if hasattr(store, "clone") else store
        self._store, self._rank, self._progress = store, rank, Progress()
        self._blame = Blame(store, rank, self._ranks, self._progress)
        self._executor = Executor(group, self._blame, settings.timeout)
        eager = settings.mode == "eager" and self._ranks > 1
        late_ranks = min(settings.late_ranks, self._ranks - 1) if eager else 0
        self._plans = Plans(choose, rank, self._ranks, late_ranks, store, self._blame)
        self._board: Board | None = self._meet(late_ranks) if eager else None
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._failed: Exception | None = None
        self._late: Late = ()
        self._undecided, self._closed = True, False
        self._lookout: Lookout | None = None
        self._streams: dict[torch.device, Any] = {}
        self.counts = Counts({})

    @property
    def decides_in_shared_memory(self) -> bool:
        """Whether the ranks have found each other in the memory of one host."""
        return isinstance(self._board, SharedBoard)

    def _meet(self, late_ranks: int) -> Board:
        limit, shared = self._settings.timeout, self._settings.shared_memory
        try:
            return make_board(
                self._store, self._rank, self._ranks, late_ranks, limit, self._blame.called, shared
            )
        except RuntimeError as error:
            raise self._blame.somebody("the start of the group", error) from error

    def submit(self, tensor: torch.Tensor, op: object = "SUM", fresh: bool = True) -> torch.futures.Future:
        """Begins an all_reduce of `tensor`, in place; all ranks must submit the same ones in the same order.

        Args:
            tensor: dense, any type, shape and strides; on the CPU or a GPU.
            op: a `dist.ReduceOp` or its name.
            fresh: eager: who is late is decided anew, in this call or, where it takes the ordinary
                all_reduce, in the next one that does not; else the last decision is used again.

        Returns:
            A future of the tensor. Where a rank fails, waiting raises `RuntimeError` that names it.

        Raises:
            UsageError: a tensor or an operation that cannot be reduced, or the engine is closed.
        """
        if self._closed:
            raise UsageError("the state is closed: nothing can be reduced any more")
        name = reductions.op_name(op)
        if tensor.layout != torch.strided or tensor.device.type not in ("cpu", "cuda"):
            raise UsageError(f"only dense tensors on CPU or GPU can be reduced, not {tensor.layout}")
        reductions.require_supported(name, reductions.as_real(tensor.detach(), name).dtype)
        cuda = tensor.device.type == "cuda"
        ready = torch.cuda.current_stream(tensor.device).record_event() if cuda else None
        future = torch.futures.Future(devices=[tensor.device]) if cuda else torch.futures.Future()
        self._jobs.put(_Job(tensor.detach(), name, fresh, ready, future))
        if self._thread is None:  # late, so that a process may fork after making an engine
            self._thread = threading.Thread(target=self._work, name="stragglar", daemon=True)
            self._thread.start()
            store = self._store
            store = store.clone() if hasattr(store, "clone") else store
            self._lookout = Lookout(store, self._rank, self._progress)
        return future.then(_outcome)

    def close(self) -> None:
        """Ends the threads after the calls that were begun."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(self._settings.timeout)
            self._thread = None
        if self._lookout is not None:
            self._lookout.close()
        if self._board is not None:
            self._board.close()
        self._closed = True

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            result: object = job.tensor
            with self._stream(job):
                self._progress.begun, self._progress.busy = self._progress.begun + 1, True
                try:
                    if self._failed is not None:
                        raise self._failed  # messages no longer belong together
                    self._run(job)
                except Exception as error:
                    self._failed = error
                    result = error
                self._progress.busy = False
                job.future.set_result(result)

    def _stream(self, job: _Job) -> contextlib.AbstractContextManager[object]:
        if job.ready is None:
            return contextlib.nullcontext()
        device = job.tensor.device
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)
        stream = self._streams[device]
        stream.wait_event(job.ready)
        job.tensor.record_stream(stream)  # its memory must not be given away before
        context: contextlib.AbstractContextManager[object] = torch.cuda.stream(stream)
        return context

    def _run(self, job: _Job) -> None:
        with torch.no_grad():
            real = reductions.as_real(job.tensor, job.op)
            flat = real.view(-1) if real.is_contiguous() else real.contiguous().view(-1)
            if flat.numel():
                reductions.prepare(job.op, flat, self._ranks)
                self._reduce(job, flat)
                reductions.finish(job.op, flat, self._ranks)
            if not real.is_contiguous():
                real.copy_(flat.view(real.shape))

    def _reduce(self, job: _Job, flat: torch.Tensor) -> None:
        choice = self._plans.choice(flat.numel() * flat.element_size())
        if self._settings.mode == "off" or self._ranks == 1:
            choice = None
        self._undecided = self._undecided or job.fresh
        if choice is None:  # no decision: this call waits for the late ranks, who are not late after it
            self._ordinary(flat, job.op)
            return
        if self._board is None or not choice.schedules[0].late:
            self._scheduled(choice, (), flat, job.op)
            return
        if self._undecided:
            self._late, self._undecided = self._decide(job, self._board, choice), False
        if self._late or not reductions.native(job.op, flat):
            self._scheduled(choice, self._late or choice.schedules[0].late, flat, job.op)
        else:
            self._ordinary(flat, job.op)

    def _decide(self, job: _Job, board: Board, choice: Choice) -> Late:
        if job.ready is not None:
            job.ready.synchronize()  # a GPU's rank is here when its data is
        threshold = self._settings.threshold
        if threshold is None:
            threshold = choice.threshold
        try:
            return board.arrive(threshold)
        except RuntimeError as error:
            raise self._blame.somebody("the wait for the first arrivals", error) from error

    def _scheduled(self, choice: Choice, late: Late, flat: torch.Tensor, op: str) -> None:
        self._executor.run(flat, self._plans.rounds(late, flat, op), op)
        for rank in late or (-1,):
            self._count(rank)

    def _ordinary(self, flat: torch.Tensor, op: str) -> None:
        options = dist.AllreduceOptions()
        options.reduceOp = getattr(dist.ReduceOp, "SUM" if op == "AVG" else op)
        try:
            self._wait(self._group.allreduce([flat], options), flat.device)
        except RuntimeError as error:
            raise self._blame.somebody("the ordinary all_reduce", error) from error
        self._count(-1)

    def _wait(self, work: dist.Work, device: torch.device) -> None:
        if device.type != "cpu":
            work.wait()  # the stream waits; a failure is NCCL's watchdog's
            return
        until = time.monotonic() + self._settings.timeout
        while True:
            try:
                work.wait(_LOOK_UP)
                return
            except RuntimeError:
                # Not done and no failure of its own: only now is it time to look for those of others.
                if work.is_completed() or time.monotonic() > until or self._blame.called():
                    raise

    def _count(self, late: int) -> None:
        self.counts.late[late] = self.counts.late.get(late, 0) + 1


def _outcome(future: torch.futures.Future) -> torch.Tensor:
    # Raised in a continuation, the error is one of the future's own: C++ that waits for it sees it, too.
    result = future.value()
    if isinstance(result, StragglarError):
        raise RuntimeError(str(result)) from result
    if isinstance(result, Exception):
        raise result
    return result
