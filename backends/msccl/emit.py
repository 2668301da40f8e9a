"""Lowering, third pass: fills the thread blocks of all ranks, message by message, round by round."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from ...schedules.ir import Op, Schedule
from .blocks import BlockKey, Cell, RankDraft, StepRef
from .messages import Message, message_rounds
from .program import Buffer, OpCode, Step

STEP_RESERVE = 10
"""Steps kept free at a block's end for the waits of the last message that is put into it."""


@dataclass(frozen=True, slots=True)
class EmitOptions:
    """What decides the shape of the thread blocks.

    Attributes:
        in_place: the input buffer is the output buffer.
        fused: use `rrc` (receive, reduce, copy) instead of `r` into scratch and `re`.
        paired: one block for both directions of a peer instead of one for each.
        max_steps: steps that a block may have.
        max_count: chunks that a step may move.
    """

    in_place: bool
    fused: bool
    paired: bool
    max_steps: int
    max_count: int


class _Emitter:
    def __init__(self, schedule: Schedule, options: EmitOptions) -> None:
        self.options = options
        self.ranks = [RankDraft() for _ in range(schedule.ranks)]
        self._lanes: dict[tuple[int, int, int], int] = {}
        self._last_send: dict[tuple[int, int], StepRef] = {}
        self._last_receive: dict[tuple[int, int], StepRef] = {}
        self._home = Buffer.INPUT if options.in_place else Buffer.OUTPUT

    def emit_round(self, messages: list[Message]) -> None:
        """All sends first: a receive of the same round may overwrite what they read."""
        keys = [self._keys(m) for m in messages]
        for message, (key, _) in zip(messages, keys, strict=True):
            self._send(message, key)
        for message, (_, key) in zip(messages, keys, strict=True):
            self._last_receive[message.dst, message.phase] = self._receive(message, key)

    def _keys(self, m: Message) -> tuple[BlockKey, BlockKey]:
        connection = (m.phase, m.src, m.dst)
        lane = self._lanes.get(connection, 0)
        room = self.options.max_steps - STEP_RESERVE
        while True:
            send = BlockKey(m.phase, lane, "both" if self.options.paired else "send", m.dst)
            recv = BlockKey(m.phase, lane, "both" if self.options.paired else "recv", m.src)
            if max(self.ranks[m.src].length(send), self.ranks[m.dst].length(recv)) <= room:
                break
            lane += 1
        self._lanes[connection] = lane
        return send, recv

    def _send(self, m: Message, key: BlockKey) -> None:
        buffer = Buffer.OUTPUT if m.from_output else Buffer.INPUT
        step = Step(0, OpCode.SEND, buffer, m.first, self._home, m.first, m.count)
        port = (m.src, m.phase)
        # A rank's first send of a later phase follows what it has received there: it may not run ahead of
        # the arrival in a block whose next step waits for a late rank.
        before = self._last_send.get(port)
        if before is None and m.phase:
            before = self._last_receive.get(port)
        self._last_send[port] = self.ranks[m.src].add(key, step, reads=_cells(buffer, m.chunks), after=before)

    def _receive(self, m: Message, key: BlockKey) -> StepRef:
        sources = self._sources(m)
        if m.op is Op.COPY:
            step = Step(0, OpCode.RECV, Buffer.INPUT, m.first, self._home, m.first, m.count)
            self.ranks[m.dst].add(key, step, writes=_cells(self._home, m.chunks))
        elif self.options.fused and len(sources) == 1 and (m.count == 1 or not m.exchanged):
            # A wait for one's own send must not hold up a receive that the peer's send needs to
            # get through the FIFO: a long exchanged run therefore goes through scratch.
            self._receive_fused(m, key, sources[0][0])
        else:
            self._receive_reduce(m, key, sources)
        return StepRef(key, self.ranks[m.dst].length(key) - 1)

    def _receive_fused(self, m: Message, key: BlockKey, source: Buffer) -> None:
        step = Step(0, OpCode.RECV_REDUCE_COPY, source, m.first, self._home, m.first, m.count)
        home = _cells(self._home, m.chunks)
        self.ranks[m.dst].add(key, step, reads=_cells(source, m.chunks), writes=home)

    def _receive_reduce(self, m: Message, key: BlockKey, sources: list[tuple[Buffer, int]]) -> None:
        rank = self.ranks[m.dst]
        if not self.options.in_place and not any(m.into_output):
            # Nothing of ours lies in the output yet: receive there and add the input to it.
            step = Step(0, OpCode.RECV, Buffer.INPUT, m.first, Buffer.OUTPUT, m.first, m.count)
            rank.add(key, step, writes=_cells(Buffer.OUTPUT, m.chunks))
            self._add_to_output(rank, key, Buffer.INPUT, m.first, m.first, m.count)
            return
        slot = Buffer.SCRATCH
        rank.block(key).scratch = max(rank.block(key).scratch, m.count)
        rank.add(key, Step(0, OpCode.RECV, Buffer.INPUT, m.first, slot, 0, m.count))
        done = 0
        for source, count in sources:
            first = m.first + done
            if source is self._home:
                self._add_to_output(rank, key, slot, done, first, count)
            else:
                step = Step(0, OpCode.COPY, slot, done, self._home, first, count)
                rank.add(key, step, writes=_cells(self._home, range(first, first + count)))
                self._add_to_output(rank, key, source, first, first, count)
            done += count

    def _add_to_output(
        self, rank: RankDraft, key: BlockKey, source: Buffer, source_offset: int, first: int, count: int
    ) -> None:
        step = Step(0, OpCode.REDUCE, source, source_offset, self._home, first, count)
        home = _cells(self._home, range(first, first + count))
        run = range(source_offset, source_offset + count)
        reads = [] if source is Buffer.SCRATCH else _cells(source, run)
        rank.add(key, step, reads=[*reads, *home], writes=home)

    def _sources(self, m: Message) -> list[tuple[Buffer, int]]:
        """Where the receiver's own part of the run lies: (buffer, number of chunks) piece by piece."""
        if self.options.in_place:
            return [(Buffer.INPUT, m.count)]
        return [
            (Buffer.OUTPUT if there else Buffer.INPUT, len(list(same)))
            for there, same in groupby(m.into_output)
        ]


def _cells(buffer: Buffer, chunks: Iterable[int]) -> list[Cell]:
    return [(buffer, chunk) for chunk in chunks]


def emit(schedule: Schedule, options: EmitOptions) -> list[RankDraft]:
    """The filled thread blocks of every rank; block keys are still what they are for, not numbers."""
    emitter = _Emitter(schedule, options)
    for messages in message_rounds(schedule, options.max_count, options.in_place):
        emitter.emit_round(messages)
    return emitter.ranks
