"""Lowering, fourth pass: filled thread blocks get their numbers, channels, buffers and instances."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .blocks import BlockKey, RankDraft, StepRef
from .program import Buffer, RankProgram, Step, ThreadBlock

PEERS_A_CHANNEL = 32
"""Blocks of one rank that may send, or receive, on one channel."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """The rank programs of one lowered schedule, and for every channel the number of its phase."""

    gpus: tuple[RankProgram, ...]
    phase_of: tuple[int, ...]

    @property
    def channels(self) -> int:
        """How many channels there are."""
        return len(self.phase_of)


def assemble(drafts: list[RankDraft], chunks: int, instances: int) -> Assembly:
    """Turns drafts into rank programs.

    Args:
        drafts: one per rank.
        chunks: k of the schedule; the program's buffers have k * instances chunks.
        instances: copies of the whole program, each on its own channels and its own share of the
            buffer: instance j works on chunks j*k .. (j+1)*k - 1.
    """
    ranks = len(drafts)
    places = sorted({_place(rank, key, ranks) for rank, draft in enumerate(drafts) for key in draft.blocks})
    channel = {place: number for number, place in enumerate(places)}
    gpus = []
    for rank, draft in enumerate(drafts):
        keys = sorted(draft.blocks, key=lambda key: (key.phase, key.lane, key.direction != "send", key.peer))
        on = {key: channel[_place(rank, key, ranks)] for key in keys}
        gpus.append(_rank_program(rank, draft, keys, on, _Shape(chunks, len(places), instances)))
    return Assembly(tuple(gpus), tuple(phase for phase, _, _ in places) * instances)


@dataclass(frozen=True, slots=True)
class _Shape:
    chunks: int
    channels: int
    instances: int


def _place(rank: int, key: BlockKey, ranks: int) -> tuple[int, int, int]:
    """Channels are shared by blocks of one (phase, lane) and similar distance to the peer.

    Both ends must come to the same answer. A block for both directions has one channel for both, so
    there the distance counts either way round.
    """
    distance = (key.peer - rank) % ranks if key.direction == "send" else (rank - key.peer) % ranks
    if key.direction == "both":
        bucket = (min(distance, ranks - distance) - 1) // (PEERS_A_CHANNEL // 2)
    else:
        bucket = (distance - 1) // PEERS_A_CHANNEL
    return key.phase, key.lane, bucket


def _rank_program(
    rank: int, draft: RankDraft, keys: list[BlockKey], channel: dict[BlockKey, int], shape: _Shape
) -> RankProgram:
    number = {key: i for i, key in enumerate(keys)}
    offset, scratch = {}, 0
    for key in keys:
        offset[key] = scratch
        scratch += draft.blocks[key].scratch
    base = [_thread_block(draft, key, number, offset[key], channel[key]) for key in keys]
    blocks = [
        _instance(block, j, len(base), scratch, shape) for j in range(shape.instances) for block in base
    ]
    whole = shape.chunks * shape.instances
    return RankProgram(rank, whole, whole, scratch * shape.instances, tuple(blocks))


def _thread_block(
    draft: RankDraft, key: BlockKey, number: dict[BlockKey, int], scratch: int, channel: int
) -> ThreadBlock:
    block = draft.blocks[key]
    steps = []
    for step, wait in zip(block.steps, block.waits, strict=True):
        src = step.src_offset + (scratch if step.src_buffer is Buffer.SCRATCH else 0)
        dst = step.dst_offset + (scratch if step.dst_buffer is Buffer.SCRATCH else 0)
        steps.append(
            replace(
                step,
                src_offset=src,
                dst_offset=dst,
                dep_block=-1 if wait is None else number[wait.block],
                dep_step=-1 if wait is None else wait.step,
                has_dependents=StepRef(key, step.index) in draft.awaited,
            )
        )
    send = key.peer if any(s.op.sends for s in steps) else -1
    recv = key.peer if any(s.op.receives for s in steps) else -1
    return ThreadBlock(number[key], send, recv, channel, tuple(steps))


def _instance(block: ThreadBlock, j: int, blocks: int, scratch: int, shape: _Shape) -> ThreadBlock:
    def moved(buffer: Buffer, offset: int) -> int:
        return offset + j * (scratch if buffer is Buffer.SCRATCH else shape.chunks) if offset >= 0 else offset

    steps: tuple[Step, ...] = tuple(
        replace(
            step,
            src_offset=moved(step.src_buffer, step.src_offset),
            dst_offset=moved(step.dst_buffer, step.dst_offset),
            dep_block=step.dep_block + j * blocks if step.dep_block >= 0 else -1,
        )
        for step in block.steps
    )
    return replace(block, id=block.id + j * blocks, channel=block.channel + j * shape.channels, steps=steps)
