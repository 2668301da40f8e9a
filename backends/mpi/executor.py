"""Runs one rank's part of a schedule over MPI, in place, with no synchronisation but the messages.

Every rank works through its own steps. Receives are posted a few steps ahead, into scratch memory or, for
copies whose chunks are free already, straight into the buffer. Sends leave in program order as soon as
what they read is final. A received chunk is used once the sends that read the old one are over. Messages
between two ranks are matched by their order. All data travels as bytes, so every element type works.

No deadlock: of all unfinished rounds on all ranks take the first. What its sends read is final, they are
first in their queues, and its receives are first in line for scratch; so it ends.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...schedules import UsageError
from ..elements import Array, combine, finish, prepare, reduction
from ..hazards import Step, plan
from ..programs import RankProgram
from ..recording import Recording
from ..waits import Blocked
from .waiting import Waiter

if TYPE_CHECKING:
    from mpi4py import MPI

PIECE_BYTES = 1 << 30
"""Longest MPI message; longer ones are cut, so that counts fit an int in any MPI."""

TAG = 7


@dataclass(frozen=True, slots=True)
class Window:
    """How far a rank works ahead; every value from 1 on is correct.

    Attributes:
        receives: messages that may be expected at a time.
        sends: messages that may be under way at a time.
        scratch: bytes for messages that wait for their use; one message is always allowed.
    """

    receives: int = 4
    sends: int = 2
    scratch: int = 1 << 26


class Executor:
    """One rank's part of a schedule, prepared for buffers of one size and type; `run` may be repeated.

    Args:
        comm: a communicator of `program.ranks` ranks, on which nothing else uses tag `TAG`.
        program: this rank's program.
        count: elements of the buffer, the same on every rank.
        dtype: numpy type of the elements, the same on every rank.
        op: sum, max, min, prod or avg.
        waiter: how to wait and for how long; None: 60 s.
        window: how far to work ahead.
        recording: where to note what this rank does; None: nowhere, at no cost.

    Raises:
        UsageError: the communicator and the program do not belong together.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        program: RankProgram,
        count: int,
        dtype: np.dtype[np.generic],
        op: str,
        *,
        waiter: Waiter | None = None,
        window: Window | None = None,
        recording: Recording | None = None,
    ) -> None:
        if (comm.size, comm.rank) != (program.ranks, program.rank):
            raise UsageError(
                f"the program of rank {program.rank} of {program.ranks} was given to rank {comm.rank}"
                f" of {comm.size}"
            )
        reduction(op)
        self._comm, self._rank, self._op = comm, program.rank, op
        self._count, self._dtype = count, dtype
        self._steps = plan(program, count)
        self._waiter = waiter or Waiter(comm, 60.0, program.phases)
        self._window = window or Window()
        self._notes = None if recording is None else _Notes(recording, program.phases, self._steps)
        self._pool: list[Array] = []
        self._slot_bytes = max((self._bytes(s) for s in self._steps if not s.send), default=0)

    def run(self, buffer: Array) -> None:
        """Reduces `buffer`, shape (count,), contiguous, over all ranks, in place.

        Raises:
            UsageError: a buffer of another shape or type, or one that is not contiguous.
            RunError: no progress within the time limit; names the rank to blame. The communicator is
                then unusable: the caller must abort the job.
        """
        if buffer.shape != (self._count,) or buffer.dtype != self._dtype or not buffer.flags.c_contiguous:
            raise UsageError(f"the buffer must be {self._count} contiguous elements of {self._dtype}")
        self._begin(buffer)
        with np.errstate(over="ignore", invalid="ignore"):
            prepare(self._op, buffer, self._comm.size)
            while self._frontier < len(self._steps):
                moved = self._post_receives() + self._issue_sends() + self._collect() + self._use_arrived()
                if moved:
                    self._waiter.progressed()
                    self._advance()
                    continue
                if self._notes:
                    self._notes.idle(self._frontier)
                self._waiter.idle(self._blocked)
            finish(self._op, buffer, self._comm.size)

    def _begin(self, buffer: Array) -> None:
        self._buffer, self._raw = buffer, buffer.view(np.uint8)
        self._done = bytearray(len(self._steps))
        self._frontier = 0
        self._to_send = deque(i for i, s in enumerate(self._steps) if s.send)
        self._to_receive = deque(i for i, s in enumerate(self._steps) if not s.send)
        self._requests: list[MPI.Request] = []
        self._owners: list[int] = []
        self._pieces: dict[int, int] = {}
        self._slots: dict[int, Array] = {}
        self._arrived: list[int] = []
        self._sending = self._receiving = self._scratch = 0
        self._waiter.progressed()

    def _bytes(self, step: Step) -> int:
        return (step.high - step.low) * self._dtype.itemsize

    def _ready(self, step: Step) -> bool:
        done = self._done
        return all(done[i] for i in step.needs)

    def _place(self, step: Step) -> Array:
        item = self._dtype.itemsize
        return self._raw[step.low * item : step.high * item]

    def _advance(self) -> None:
        while self._frontier < len(self._steps) and self._done[self._frontier]:
            self._frontier += 1

    def _blocked(self) -> Blocked:
        # All steps before the frontier are over, so that one waits for nothing but its peer.
        step = self._steps[self._frontier]
        return Blocked(step.peer, step.phase, step.round)

    def _post_receives(self) -> int:
        posted = 0
        while self._to_receive and self._receiving < self._window.receives:
            index = self._to_receive[0]
            step = self._steps[index]
            direct = step.copy and self._ready(step)
            if not direct:
                size = self._bytes(step)
                if self._receiving and self._scratch + size > self._window.scratch:
                    break
                self._scratch += size
                self._slots[index] = self._pool.pop() if self._pool else np.empty(self._slot_bytes, np.uint8)
            target = self._place(step) if direct else self._slots[index][: self._bytes(step)]
            self._start(index, target)
            self._to_receive.popleft()
            self._receiving += 1
            posted += 1
        return posted

    def _issue_sends(self) -> int:
        issued = 0
        while self._to_send and self._sending < self._window.sends:
            index = self._to_send[0]
            step = self._steps[index]
            if not self._ready(step):
                break
            self._start(index, self._place(step))
            self._to_send.popleft()
            self._sending += 1
            issued += 1
        return issued

    def _start(self, index: int, data: Array) -> None:
        from mpi4py import MPI

        step = self._steps[index]
        if self._notes:
            self._notes.begun(index)
        start = self._comm.Isend if step.send else self._comm.Irecv
        pieces = range(0, len(data), PIECE_BYTES)
        for low in pieces:
            self._requests.append(start([data[low : low + PIECE_BYTES], MPI.BYTE], step.peer, TAG))
            self._owners.append(index)
        self._pieces[index] = len(pieces)

    def _collect(self) -> int:
        from mpi4py import MPI

        finished = MPI.Request.Testsome(self._requests) if self._requests else None
        if not finished:
            return 0
        for at in finished:
            index = self._owners[at]
            self._pieces[index] -= 1
            if not self._pieces[index]:
                self._completed(index)
        gone = set(finished)
        self._owners = [o for i, o in enumerate(self._owners) if i not in gone]
        self._requests = [r for i, r in enumerate(self._requests) if i not in gone]
        return len(finished)

    def _completed(self, index: int) -> None:
        if self._notes:
            self._notes.over(index)
        if index in self._slots:
            self._arrived.append(index)
            return
        self._done[index] = True
        if self._steps[index].send:
            self._sending -= 1
        else:
            self._receiving -= 1

    def _use_arrived(self) -> int:
        ready = [i for i in sorted(self._arrived) if self._ready(self._steps[i])]
        for index in ready:
            self._use(index)
            self._arrived.remove(index)
        return len(ready)

    def _use(self, index: int) -> None:
        step = self._steps[index]
        slot = self._slots.pop(index)
        own = self._buffer[step.low : step.high]
        incoming = slot[: self._bytes(step)].view(self._dtype)
        start = self._notes.moved() if self._notes else 0.0
        if step.copy:
            own[:] = incoming
        else:
            combine(self._op, own, incoming, own_first=self._rank < step.peer, out=own)
        if self._notes:
            self._notes.used(index, start)
        self._pool.append(slot)
        self._scratch -= self._bytes(step)
        self._receiving -= 1
        self._done[index] = True


class _Notes:
    """What an executor tells a recording: its messages, its work, and what it waited for."""

    def __init__(self, recording: Recording, phases: tuple[str, ...], steps: tuple[Step, ...]) -> None:
        self._recording, self._phases, self._steps = recording, phases, steps
        self._began: dict[int, float] = {}
        self._idle: tuple[int, float] | None = None

    def moved(self) -> float:
        """Something can be done: a wait, if there was one, is over. Returns the time."""
        now = self._recording.now()
        if self._idle is not None:
            step = self._steps[self._idle[0]]
            phase = self._phases[step.phase]
            self._recording.note("wait", self._idle[1], now, phase, step.round, step.peer)
            self._idle = None
        return now

    def idle(self, frontier: int) -> None:
        """Nothing can be done before the step at the frontier is over."""
        if self._idle is None:
            self._idle = frontier, self._recording.now()

    def begun(self, index: int) -> None:
        """A message is issued."""
        self._began[index] = self.moved()

    def over(self, index: int) -> None:
        """A message has left the buffer, or has arrived."""
        self._add(index, "send" if self._steps[index].send else "receive", self._began.pop(index))

    def used(self, index: int, start: float) -> None:
        """A message that had arrived is in the buffer."""
        self._add(index, "copy" if self._steps[index].copy else "reduce", start)

    def _add(self, index: int, kind: str, start: float) -> None:
        step, end = self._steps[index], self.moved()
        phase = self._phases[step.phase]
        self._recording.note(kind, start, end, phase, step.round, step.peer, step.first, step.count)


def execute(comm: MPI.Intracomm, program: RankProgram, buffer: Array, op: str) -> None:
    """Reduces `buffer` over all ranks of `comm`, in place, by this rank's program; see `Executor`."""
    Executor(comm, program, len(buffer), buffer.dtype, op).run(buffer)
