"""Executes a loaded program as the interpreter kernels do, on numpy arrays.

What is modelled: thread blocks in program order, one slice after another; one flag a block, whose
value orders (slice, step) and which is reset between calls; connections that hold a few operations
and outlive a call; one kernel a rank at a time, so that a rank's calls follow each other.

Blocks run until they must wait and are woken by what they wait for. Each has one writer and one
reader at every connection and flags only grow, so what completes, and whether all of it does, is
the same in every order; only the data of a program with races can differ.
"""

from __future__ import annotations

import heapq
import random
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...schedules.errors import UsageError
from .layout import Geometry, Layout, protocol_of
from .model_code import BlockCode, Code, Link, StepRef, Transfer
from .program import Buffer

Array = NDArray[Any]
REDUCTIONS: dict[str, np.ufunc] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
_SLICE = 1 << 20  # a flag is slice * _SLICE + step, so that a later slice satisfies every earlier wait
_UNSET = -1
MAX_PROBLEMS = 20


@dataclass(slots=True, eq=False)
class Op:
    """A connection operation, or a local one: a step, or the part of it that one slot can carry.

    `waits` stand on the first part of a step and `publishes` (-1: no) on the last; `index` is the
    step's among the transfers of its block.
    """

    transfer: Transfer
    src: int
    dst: int
    length: int
    waits: tuple[tuple[Runner, int], ...]
    publishes: int
    index: int


@dataclass(slots=True, eq=False)
class Connection:
    """One FIFO, the blocks at its ends, and which of them wait."""

    link: Link
    sender: Runner | None = None
    receiver: Runner | None = None
    items: deque[Array] = field(default_factory=deque)
    reader: Runner | None = None
    writer: Runner | None = None


@dataclass(slots=True, eq=False)
class Runner:
    """A thread block in execution; `watchers` is a heap of (flag waited for, number, block)."""

    number: int
    code: BlockCode
    rank: RankState
    ops: list[Op] = field(default_factory=list)
    inbound: Connection | None = None
    outbound: Connection | None = None
    at: int = 0
    slice: int = 0
    flag: int = _UNSET
    watchers: list[tuple[int, int, Runner]] = field(default_factory=list)
    done: bool = False


@dataclass(slots=True, eq=False)
class RankState:
    """The memory of one rank and the blocks of its current call."""

    layout: Layout
    memory: Array
    known: bytearray  # by element: whether anything was put there in this call
    runners: list[Runner] = field(default_factory=list)
    iteration: int = 0
    unfinished: int = 0
    launched: bool = False


class Machine:
    """Ranks with their thread blocks, memories and connections; see `launch` and `run`.

    `inputs[rank]` has a row an element: chunks times as many rows as a chunk has elements. Rows may
    be vectors, which the symbolic check uses. Every call starts from the same inputs, with scratch
    and, out of place, output uninitialised.

    Attributes:
        problems: what went wrong, in words, at most `MAX_PROBLEMS`.
        outputs: of every completed call, the output of every rank that completed it.
    """

    def __init__(
        self,
        code: Code,
        inputs: Sequence[Array],
        *,
        reduction: str = "sum",
        slot_elements: int | None = None,
        iterations: int = 1,
        seed: int | None = None,
    ) -> None:
        self.code = code
        self.geometry = _geometry(code, inputs, slot_elements)
        self.iterations = iterations
        self.problems: list[str] = []
        self.outputs: list[dict[int, Array]] = [{} for _ in range(iterations)]
        self.connections: dict[Link, Connection] = {}
        self._inputs = inputs
        self._combine = REDUCTIONS[reduction]
        self._depth = protocol_of(code.program).depth
        self._bounds = self.geometry.slice_bounds()
        self._queue: deque[Runner] = deque()
        self._random = None if seed is None else random.Random(seed)
        self.ranks = {rank: self._rank(layout) for rank, layout in code.layouts.items()}
        self.runners = [
            Runner(number, block, self.ranks[block.rank]) for number, block in enumerate(code.blocks)
        ]
        self._wire()

    def launch(self, ranks: Iterable[int]) -> None:
        """Lets the kernels of these ranks start; nothing moves before `run`."""
        for number in sorted(ranks):
            rank = self.ranks[number]
            if not rank.launched:
                rank.launched = True
                self._start(rank)

    def run(self) -> bool:
        """Runs until nothing can move; tells whether every launched rank completed every call."""
        queue, chance = self._queue, self._random
        while queue:
            if chance is None:
                self._advance(queue.popleft(), sys.maxsize)
                continue
            queue.rotate(int(chance.random() * len(queue)))
            self._advance(queue.popleft(), 1 + int(chance.random() * 8))
        return self.finished

    @property
    def finished(self) -> bool:
        """Whether every launched rank has completed every call."""
        return all(rank.iteration == self.iterations for rank in self.ranks.values() if rank.launched)

    def buffer(self, rank: int, buffer: Buffer) -> Array:
        """A view of one buffer of a rank as it is now."""
        layout = self.ranks[rank].layout
        first = layout.base(buffer) * self.geometry.chunk
        return self.memory(rank)[first : first + layout.size(buffer) * self.geometry.chunk]

    def memory(self, rank: int) -> Array:
        """All buffers of a rank as they are now, where its layout says."""
        return self.ranks[rank].memory

    def progress(self, runner: Runner) -> tuple[int, int]:
        """(slices, transfers of the slice after them) that the block has completed in the first call."""
        if runner.done or runner.rank.iteration:
            return self.geometry.slices, 0
        if runner.at == len(runner.ops):
            return runner.slice, len(runner.code.transfers)
        return runner.slice, runner.ops[runner.at].index

    def flag(self, runner: Runner, number: int) -> int:
        """What the flag of another block must reach before the block's current slice may go on."""
        return runner.slice * _SLICE + number

    def complain(self, text: str) -> None:
        """Records a problem once."""
        if len(self.problems) < MAX_PROBLEMS and text not in self.problems:
            self.problems.append(text)

    def _rank(self, layout: Layout) -> RankState:
        rows = layout.total * self.geometry.chunk
        example = self._inputs[layout.rank]
        memory = np.zeros((rows, *example.shape[1:]), dtype=example.dtype)
        return RankState(layout, memory, bytearray(rows))

    def _wire(self) -> None:
        by_id = {(r.code.rank, r.code.block.id): r for r in self.runners}
        for runner in self.runners:
            code = runner.code
            runner.rank.runners.append(runner)
            if code.receives is not None:
                runner.inbound = self._connection(code.receives)
                runner.inbound.receiver = runner
            if code.sends is not None:
                runner.outbound = self._connection(code.sends)
                runner.outbound.sender = runner
            for index, transfer in enumerate(code.transfers):
                waits = tuple((by_id[code.rank, wait.block], wait.number) for wait in transfer.waits)
                runner.ops += self._parts(transfer, index, waits)

    def _connection(self, link: Link) -> Connection:
        return self.connections.setdefault(link, Connection(link))

    def _parts(self, transfer: Transfer, index: int, waits: tuple[tuple[Runner, int], ...]) -> list[Op]:
        most = self.geometry.max_count
        parts = []
        for first in range(0, transfer.count, most):
            src = transfer.src + first if transfer.src >= 0 else -1
            dst = transfer.dst + first if transfer.dst >= 0 else -1
            length = min(most, transfer.count - first)
            parts.append(Op(transfer, src, dst, length, () if first else waits, -1, index))
        parts[-1].publishes = transfer.number if transfer.publishes else -1
        return parts

    def _start(self, rank: RankState) -> None:
        chunk, layout = self.geometry.chunk, rank.layout
        rows = layout.chunks * chunk
        rank.memory[:] = _poison(rank.memory.dtype)
        rank.memory[:rows] = self._inputs[layout.rank]
        rank.known[:] = bytes(len(rank.known))
        rank.known[:rows] = b"\1" * rows
        rank.unfinished = len(rank.runners)
        for runner in rank.runners:
            runner.at, runner.slice, runner.flag, runner.done = 0, 0, _UNSET, False
        self._queue.extend(rank.runners)
        if not rank.runners:
            self._finish(rank)

    def _finish(self, rank: RankState) -> None:
        number = rank.layout.rank
        self.outputs[rank.iteration][number] = self.buffer(number, Buffer.OUTPUT).copy()
        self._check_input(rank)
        self._check_output_known(rank)
        rank.iteration += 1
        if rank.iteration < self.iterations:
            self._start(rank)

    def _check_input(self, rank: RankState) -> None:
        if self.code.in_place:
            return
        number, given = rank.layout.rank, self._inputs[rank.layout.rank]
        same = self.buffer(number, Buffer.INPUT) == given
        changed = np.flatnonzero(~same.reshape(len(given), -1).all(axis=1))
        if len(changed):
            self.complain(
                f"rank {number} changes its input i[{changed[0] // self.geometry.chunk}] out of place"
            )

    def _check_output_known(self, rank: RankState) -> None:
        first = rank.layout.base(Buffer.OUTPUT) * self.geometry.chunk
        missing = rank.known.find(0, first, first + rank.layout.chunks * self.geometry.chunk)
        if missing >= 0:
            name = rank.layout.name(missing // self.geometry.chunk)
            self.complain(f"rank {rank.layout.rank} never writes its output {name}")

    def _advance(self, runner: Runner, budget: int) -> None:
        ops = runner.ops
        while budget:
            if runner.at == len(ops):
                runner.at = 0
                runner.slice += 1
                if runner.slice == len(self._bounds) or not ops:
                    self._end(runner)
                    return
            op = ops[runner.at]
            if not self._ready(runner, op):
                return
            self._execute(runner, op)
            runner.at += 1
            if op.publishes >= 0:
                self._publish(runner, op.publishes)
            budget -= 1
        self._queue.append(runner)

    def _end(self, runner: Runner) -> None:
        runner.done = True
        runner.rank.unfinished -= 1
        if not runner.rank.unfinished:
            self._finish(runner.rank)

    def _ready(self, runner: Runner, op: Op) -> bool:
        """Whether the operation can run now; if not, leaves word where the block must be woken."""
        for other, number in op.waits:
            goal = self.flag(runner, number)
            if other.flag < goal:
                heapq.heappush(other.watchers, (goal, runner.number, runner))
                return False
        transfer = op.transfer
        if transfer.receives and runner.inbound is not None and not runner.inbound.items:
            runner.inbound.reader = runner
            return False
        if transfer.sends and runner.outbound is not None and len(runner.outbound.items) >= self._depth:
            runner.outbound.writer = runner
            return False
        return True

    def _publish(self, runner: Runner, number: int) -> None:
        runner.flag = flag = self.flag(runner, number)
        while runner.watchers and runner.watchers[0][0] <= flag:
            self._queue.append(heapq.heappop(runner.watchers)[2])

    def _execute(self, runner: Runner, op: Op) -> None:
        start, size = self._bounds[runner.slice]
        chunk, transfer, rank = self.geometry.chunk, op.transfer, runner.rank
        memory, length = rank.memory, op.length * size
        src, dst = op.src * chunk + start, op.dst * chunk + start
        data: Array | None = None
        if op.src >= 0:
            if rank.known.find(0, src, src + length) >= 0:
                self._unknown(rank, transfer.ref, src, length)
            data = memory[src : src + length]
        if transfer.receives:
            came = self._take(runner, transfer.ref, length)
            data = came if data is None else self._combine(came, data)
        elif transfer.accumulates:
            if rank.known.find(0, dst, dst + length) >= 0:
                self._unknown(rank, transfer.ref, dst, length)
            data = self._combine(memory[dst : dst + length], data)
        if op.dst >= 0:
            memory[dst : dst + length] = data
            rank.known[dst : dst + length] = b"\1" * length
        if transfer.sends and data is not None:
            self._put(runner, data if transfer.receives else data.copy())

    def _take(self, runner: Runner, ref: StepRef, length: int) -> Array:
        connection = runner.inbound
        assert connection is not None
        came = connection.items.popleft()
        if connection.writer is not None:
            self._queue.append(connection.writer)
            connection.writer = None
        if len(came) != length:
            link = connection.link
            self.complain(f"{ref} expects {length} elements, but rank {link.source} sent {len(came)} of them")
            came = np.resize(came, (length, *came.shape[1:]))
        return came

    def _put(self, runner: Runner, data: Array) -> None:
        connection = runner.outbound
        assert connection is not None
        connection.items.append(data)
        if connection.reader is not None:
            self._queue.append(connection.reader)
            connection.reader = None

    def _unknown(self, rank: RankState, ref: StepRef, first: int, length: int) -> None:
        at = rank.known.find(0, first, first + length)
        self.complain(f"{ref} reads {rank.layout.name(at // self.geometry.chunk)}, which nothing has written")


def _geometry(code: Code, inputs: Sequence[Array], slot: int | None) -> Geometry:
    chunks, ranks = code.program.chunks, code.program.ranks
    rows = {len(array) for array in inputs}
    if len(inputs) != ranks or len(rows) != 1 or (count := rows.pop()) % chunks or not count:
        raise UsageError(f"expected {ranks} inputs of one length, a positive multiple of {chunks} chunks")
    if slot is None:
        slot = max(1, protocol_of(code.program).slot_bytes // inputs[0].itemsize)
    return Geometry(count // chunks, slot)


def _poison(dtype: np.dtype[Any]) -> Any:  # noqa: ANN401 - a scalar of whatever type the data has
    if dtype.kind == "f":
        return np.nan
    return np.iinfo(dtype).min // 2 if dtype.kind in "iu" else 0
