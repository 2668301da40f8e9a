"""Sizes and places as the runtimes compute them: connection slots, slices, and where buffers lie.

Everything here is in chunks or elements of the data type, never in bytes, except `slot_bytes`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...schedules.errors import InvalidScheduleError, UsageError
from .program import Buffer, Program, RankProgram

MAX_COUNT = 71  # chunks that one connection operation moves at most, however small they are


@dataclass(frozen=True, slots=True)
class Protocol:
    """How connections of one protocol buffer: operations in flight, and data bytes in each.

    Simple has 8 steps a connection and takes 4 for every operation, full or not, so 2 fit. LL and
    LL128 take one step. The bytes are those of default buffer sizes, without the flags of LL.
    """

    name: str
    depth: int
    slot_bytes: int


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol("Simple", 2, 2 * 2**20),
        Protocol("LL", 8, 32_768),
        Protocol("LL128", 8, 576_000),
    )
}


def protocol_of(program: Program) -> Protocol:
    """The buffering of the program's protocol.

    Raises:
        InvalidScheduleError: no runtime knows that protocol.
    """
    try:
        return PROTOCOLS[program.protocol]
    except KeyError:
        raise InvalidScheduleError(
            f"protocol {program.protocol!r} is not one of {', '.join(PROTOCOLS)}"
        ) from None


@dataclass(frozen=True, slots=True)
class Geometry:
    """How chunks of `chunk` elements pass through connection slots of `slot` elements.

    A chunk larger than a slot is cut in slices, and a thread block runs all its steps for one slice
    before the next. A smaller one travels whole, up to `max_count` chunks in one operation.
    """

    chunk: int
    slot: int

    def __post_init__(self) -> None:
        if self.chunk < 1 or self.slot < 1:
            raise UsageError(
                f"a chunk of {self.chunk} elements in slots of {self.slot}: both must be positive"
            )

    @property
    def slices(self) -> int:
        """How many times each thread block runs its steps."""
        return -(-self.chunk // self.slot)

    @property
    def max_count(self) -> int:
        """Chunks that one connection operation carries at most."""
        return min(MAX_COUNT, max(1, self.slot // self.chunk))

    def slice_bounds(self) -> tuple[tuple[int, int], ...]:
        """(first element within the chunk, elements) of each slice; the last may be short."""
        return tuple((at, min(self.slot, self.chunk - at)) for at in range(0, self.chunk, self.slot))


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the buffers of one rank lie in one row of cells, a cell being a chunk.

    In place, input and output are the same cells. The caller's buffers have `nchunksperloop` chunks
    whatever `i_chunks` and `o_chunks` say: what lies beyond is not ours.
    """

    rank: int
    chunks: int
    scratch_chunks: int
    in_place: bool

    @classmethod
    def of(cls, program: Program, gpu: RankProgram, in_place: bool) -> Layout:
        """The layout of one rank of a program."""
        return cls(gpu.rank, program.chunks, gpu.scratch_chunks, in_place)

    def base(self, buffer: Buffer) -> int:
        """The first cell of a buffer."""
        if buffer is Buffer.INPUT:
            return 0
        if buffer is Buffer.OUTPUT:
            return 0 if self.in_place else self.chunks
        return self.chunks if self.in_place else 2 * self.chunks

    def size(self, buffer: Buffer) -> int:
        """Cells of a buffer."""
        return self.scratch_chunks if buffer is Buffer.SCRATCH else self.chunks

    @property
    def total(self) -> int:
        """Cells of the rank."""
        return self.base(Buffer.SCRATCH) + self.scratch_chunks

    def cell(self, buffer: Buffer, offset: int, count: int) -> int:
        """The first of `count` cells at that offset of a buffer.

        Raises:
            InvalidScheduleError: they are not all within the buffer.
        """
        if offset < 0 or offset + count > self.size(buffer):
            raise InvalidScheduleError(
                f"{buffer}[{offset}..{offset + count - 1}] is outside of its {self.size(buffer)} chunks"
            )
        return self.base(buffer) + offset

    def name(self, cell: int) -> str:
        """What a file calls that cell, as `i[3]`; in place, input and output cells are `i`."""
        buffer = max(
            (b for b in Buffer if self.base(b) <= cell), key=lambda b: (self.base(b), b is Buffer.INPUT)
        )
        return f"{buffer}[{cell - self.base(buffer)}]"
