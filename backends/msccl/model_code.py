"""A program as a runtime loads it: `nop`s folded into the waits of the step after them.

Both the execution (`model_machine.py`) and the ordering analysis (`happens.py`) start from here, so
that they agree on what a step reads, writes, waits for and publishes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...schedules.errors import InvalidScheduleError
from .layout import Layout
from .program import OpCode, Program, RankProgram, Step, ThreadBlock


class StepRef(NamedTuple):
    """Where a step stands: rank, thread block id, index in the file."""

    rank: int
    block: int
    step: int

    def __str__(self) -> str:
        return f"rank {self.rank} tb {self.block} step {self.step}"


class Link(NamedTuple):
    """A connection: sending rank, receiving rank, channel."""

    source: int
    target: int
    channel: int


class Wait(NamedTuple):
    """A wait until the flag of another block of the rank is at `number` or later."""

    block: int
    number: int


@dataclass(frozen=True, slots=True)
class Traits:
    """What a step type does: `source` and `target` say whether it reads and writes memory."""

    source: bool
    target: bool


# Taken from the interpreter: rrs leaves local memory alone, rrc adds `src` to what came and writes
# `dst`, and rcs/rrcs forward what they write. Only `re` also reads what it writes.
TRAITS = {
    OpCode.SEND: Traits(True, False),
    OpCode.RECV: Traits(False, True),
    OpCode.RECV_COPY_SEND: Traits(False, True),
    OpCode.RECV_REDUCE_SEND: Traits(True, False),
    OpCode.RECV_REDUCE_COPY: Traits(True, True),
    OpCode.RECV_REDUCE_COPY_SEND: Traits(True, True),
    OpCode.COPY: Traits(True, True),
    OpCode.REDUCE: Traits(True, True),
}


@dataclass(frozen=True, slots=True)
class Transfer:
    """One step with something to do.

    `src` and `dst` are cells of the rank's layout, -1 where not accessed. `number` is what the
    interpreter counts the step as: the file's index, unless a `nop` without a dependency came
    before, which the interpreter does not count. `publishes` tells whether the flag is set to it.
    """

    ref: StepRef
    step: Step
    number: int
    waits: tuple[Wait, ...]
    src: int
    dst: int
    receives: bool
    sends: bool
    publishes: bool

    @property
    def count(self) -> int:
        """Chunks that the step handles."""
        return self.step.count

    def source(self) -> range:
        """Cells of `src`."""
        return range(self.src, self.src + self.count) if self.src >= 0 else range(0)

    def target(self) -> range:
        """Cells of `dst`, all written."""
        return range(self.dst, self.dst + self.count) if self.dst >= 0 else range(0)

    @property
    def accumulates(self) -> bool:
        """Whether the step reads what it writes."""
        return self.step.op is OpCode.REDUCE


@dataclass(frozen=True, slots=True)
class BlockCode:
    """One thread block as loaded. `sends` and `receives` are its connections, where it has them."""

    rank: int
    block: ThreadBlock
    transfers: tuple[Transfer, ...]
    sends: Link | None
    receives: Link | None


@dataclass(frozen=True, slots=True)
class Code:
    """A loaded program: layouts by rank, blocks in file order, and the ends of every connection."""

    program: Program
    in_place: bool
    layouts: dict[int, Layout]
    blocks: tuple[BlockCode, ...]
    senders: dict[Link, BlockCode]
    receivers: dict[Link, BlockCode]


def load(program: Program, in_place: bool) -> Code:
    """The program as loaded for one call, in place or not.

    Raises:
        InvalidScheduleError: something that a runtime cannot be predicted on: not an allreduce, cells
            outside a buffer, a peer or dependency that does not exist, a connection with two owners.
    """
    if program.collective != "allreduce":
        raise InvalidScheduleError(f"collective {program.collective!r}: only allreduce can be executed")
    if sorted(gpu.rank for gpu in program.gpus) != list(range(program.ranks)):
        raise InvalidScheduleError(f"ranks 0..{program.ranks - 1} must each have one gpu element")
    layouts = {gpu.rank: Layout.of(program, gpu, in_place) for gpu in program.gpus}
    blocks = tuple(
        _load_block(program, layouts[gpu.rank], gpu, block) for gpu in program.gpus for block in gpu.blocks
    )
    senders = _owners(blocks, sending=True)
    receivers = _owners(blocks, sending=False)
    return Code(program, in_place, layouts, blocks, senders, receivers)


def describe(transfer: Transfer, block: BlockCode, layout: Layout) -> str:
    """What a step does, as `s i[3] to rank 4, channel 1`."""
    cells = transfer.source() if transfer.dst < 0 else transfer.target()
    first = layout.name(cells.start)
    name = first if len(cells) < 2 else f"{first[:-1]}..{layout.name(cells[-1])[2:]}"
    text = f"{transfer.step.op} {name}"
    if transfer.receives:
        text += f" from rank {block.block.recv_peer}"
    if transfer.sends:
        text += f" to rank {block.block.send_peer}"
    return text + (f", channel {block.block.channel}" if transfer.receives or transfer.sends else "")


def _load_block(program: Program, layout: Layout, gpu: RankProgram, block: ThreadBlock) -> BlockCode:
    transfers: list[Transfer] = []
    waits: list[Wait] = []
    ids = {other.id for other in gpu.blocks}
    number = 0
    for step in block.steps:
        ref = StepRef(gpu.rank, block.id, step.index)
        if step.dep_block >= 0:
            if step.dep_block not in ids:
                raise InvalidScheduleError(
                    f"{ref} depends on tb {step.dep_block}, which rank {gpu.rank} lacks"
                )
            waits.append(Wait(step.dep_block, step.dep_step))
        if step.op is OpCode.NOP:
            continue
        # A nop counts as a step only through the wait it hands to the step after it.
        number += max(len(waits) - 1, 0)
        transfers.append(_load_step(ref, step, number, tuple(waits), block, layout))
        waits.clear()
        number += 1
    sends = _link(program, gpu.rank, block, any(t.sends for t in transfers), sending=True)
    receives = _link(program, gpu.rank, block, any(t.receives for t in transfers), sending=False)
    return BlockCode(gpu.rank, block, tuple(transfers), sends, receives)


def _load_step(
    ref: StepRef, step: Step, number: int, waits: tuple[Wait, ...], block: ThreadBlock, layout: Layout
) -> Transfer:
    traits = TRAITS[step.op]
    try:
        if step.count < 1:
            raise InvalidScheduleError(f"count {step.count} moves nothing")
        src = layout.cell(step.src_buffer, step.src_offset, step.count) if traits.source else -1
        dst = layout.cell(step.dst_buffer, step.dst_offset, step.count) if traits.target else -1
    except InvalidScheduleError as error:
        raise InvalidScheduleError(f"{ref} ({step.op}): {error}") from error
    receives, sends, publishes = step.op.receives, step.op.sends, step.has_dependents
    return Transfer(ref, step, number, waits, src, dst, receives, sends, publishes)


def _link(program: Program, rank: int, block: ThreadBlock, used: bool, *, sending: bool) -> Link | None:
    peer = block.send_peer if sending else block.recv_peer
    verb = "send to" if sending else "receive from"
    if used and (not 0 <= peer < program.ranks or peer == rank):
        raise InvalidScheduleError(f"rank {rank} tb {block.id} cannot {verb} rank {peer}")
    if not used:
        return None
    return Link(rank, peer, block.channel) if sending else Link(peer, rank, block.channel)


def _owners(blocks: tuple[BlockCode, ...], *, sending: bool) -> dict[Link, BlockCode]:
    owners: dict[Link, BlockCode] = {}
    for code in blocks:
        link = code.sends if sending else code.receives
        if link is None:
            continue
        if link in owners:
            first, second = owners[link].block.id, code.block.id
            what = (
                f"{'send to' if sending else 'receive from'} rank {link.target if sending else link.source}"
            )
            raise InvalidScheduleError(
                f"rank {code.rank} tbs {first} and {second} both {what} on channel {link.channel}"
            )
        owners[link] = code
    return owners
