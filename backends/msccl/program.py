"""An MSCCL program as plain frozen objects: what the XML says, nothing decided, nothing checked.

One `Program` is one XML file: ranks (`gpu`), their thread blocks (`tb`) and their steps.
The objects can hold programs that a runtime would get wrong, because files written by others are
read into them too; `rules.py` says what is wrong with one, `model.py` executes one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Buffer(StrEnum):
    """Where a chunk lies: the caller's input, the caller's output, or the runtime's scratch."""

    INPUT = "i"
    OUTPUT = "o"
    SCRATCH = "s"


class OpCode(StrEnum):
    """Step types, by their names in the XML."""

    SEND = "s"
    RECV = "r"
    RECV_COPY_SEND = "rcs"
    RECV_REDUCE_SEND = "rrs"
    RECV_REDUCE_COPY = "rrc"
    RECV_REDUCE_COPY_SEND = "rrcs"
    COPY = "cpy"
    REDUCE = "re"
    NOP = "nop"

    @property
    def sends(self) -> bool:
        """Whether a step of this type puts data into the block's send connection."""
        return self in _SENDING

    @property
    def receives(self) -> bool:
        """Whether a step of this type takes data from the block's receive connection."""
        return self in _RECEIVING


_SENDING = {OpCode.SEND, OpCode.RECV_COPY_SEND, OpCode.RECV_REDUCE_SEND, OpCode.RECV_REDUCE_COPY_SEND}
_RECEIVING = {
    OpCode.RECV,
    OpCode.RECV_COPY_SEND,
    OpCode.RECV_REDUCE_SEND,
    OpCode.RECV_REDUCE_COPY,
    OpCode.RECV_REDUCE_COPY_SEND,
}


@dataclass(frozen=True, slots=True)
class Step:
    """One `<step>`: offsets and count in chunks of the named buffers.

    `dep_block`/`dep_step` name the step of another thread block of the same rank that must have
    completed first (-1, -1: none). `has_dependents` is the XML's `hasdep`: only such steps publish
    their completion.
    """

    index: int
    op: OpCode
    src_buffer: Buffer = Buffer.INPUT
    src_offset: int = -1
    dst_buffer: Buffer = Buffer.OUTPUT
    dst_offset: int = -1
    count: int = 0
    dep_block: int = -1
    dep_step: int = -1
    has_dependents: bool = False


@dataclass(frozen=True, slots=True)
class ThreadBlock:
    """One `<tb>`: steps in program order over at most one send and one receive connection.

    `send_peer`/`recv_peer` are ranks, or -1 where the block does not send or receive.
    """

    id: int
    send_peer: int
    recv_peer: int
    channel: int
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class RankProgram:
    """One `<gpu>`: buffer sizes in chunks, and the thread blocks of this rank."""

    rank: int
    input_chunks: int
    output_chunks: int
    scratch_chunks: int
    blocks: tuple[ThreadBlock, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """One `<algo>`: a whole MSCCL file.

    `chunks` is `nchunksperloop`: the caller's buffer is cut in so many equal chunks.
    `late` are the late ranks the file was made for (an attribute that real parsers ignore; empty
    where a file does not say). `min_bytes`/`max_bytes` bound the sizes a runtime may use it for.
    """

    name: str
    protocol: str
    channels: int
    chunks: int
    ranks: int
    collective: str
    in_place: bool
    out_of_place: bool
    min_bytes: int
    max_bytes: int
    gpus: tuple[RankProgram, ...]
    late: tuple[int, ...] = ()

    def steps(self) -> Iterator[tuple[RankProgram, ThreadBlock, Step]]:
        """Every step of every rank, in file order, with where it stands."""
        for gpu in self.gpus:
            for block in gpu.blocks:
                for step in block.steps:
                    yield gpu, block, step
