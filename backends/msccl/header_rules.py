"""Rules on what `<algo>`, `<gpu>` and `<tb>` say: counts, limits, ids and channels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from .profiles import Profile
from .program import Program
from .violations import Finding, Rule


def _name(program: Program, profile: Profile) -> Iterator[Finding]:
    if len(program.name.encode()) > profile.name_length:
        yield Finding(f"the name is {len(program.name.encode())} bytes; {profile.name_length} are kept")


def _protocol(program: Program, profile: Profile) -> Iterator[Finding]:
    if program.protocol not in ("Simple", "LL", "LL128"):
        yield Finding(f"proto {program.protocol[:40]!r}; there are Simple, LL and LL128")


def _collective(program: Program, profile: Profile) -> Iterator[Finding]:
    if program.collective not in profile.collectives:
        known = " ".join(sorted(profile.collectives))
        yield Finding(f"coll {program.collective[:40]!r}; {profile.title} knows {known}")


def _channels(program: Program, profile: Profile) -> Iterator[Finding]:
    if not 1 <= program.channels <= profile.channels:
        yield Finding(f"nchannels is {program.channels}; {profile.title} takes 1 to {profile.channels}")


def _chunks(program: Program, profile: Profile) -> Iterator[Finding]:
    if program.chunks < 1:
        yield Finding(f"nchunksperloop is {program.chunks}; sizes are divided by it, it must be positive")


def _sizes(program: Program, profile: Profile) -> Iterator[Finding]:
    low, high = program.min_bytes, program.max_bytes
    if low < 0 or high < 0:
        yield Finding(f"minBytes {low}, maxBytes {high}; neither can be negative")
    elif high == 0:
        if not profile.zero_max_is_unlimited:
            yield Finding("maxBytes is 0: microsoft/msccl never uses such a file; write a real limit")
    elif low > high or (low == high and not profile.max_is_inclusive):
        yield Finding(f"no size lies between minBytes {low} and maxBytes {high}; it would never be used")


def _placement(program: Program, profile: Profile) -> Iterator[Finding]:
    if not (program.in_place or program.out_of_place or profile.one_placement):
        yield Finding("inplace and outofplace are both 0: it would never be used; set one")


def _ranks(program: Program, profile: Profile) -> Iterator[Finding]:
    if not 2 <= program.ranks <= profile.gpus:
        yield Finding(f"ngpus is {program.ranks}; 2 to {profile.gpus} make a collective")
        return
    given = Counter(gpu.rank for gpu in program.gpus)
    for gpu in program.gpus:
        if not 0 <= gpu.rank < program.ranks:
            yield Finding(f"id {gpu.rank} is outside 0..{program.ranks - 1}", gpu)
    for rank, times in given.items():
        if times > 1:
            yield Finding(f"gpu {rank} is given {times} times; the last one would win")
    for rank in range(program.ranks):
        if rank not in given:
            yield Finding(f"gpu {rank} is missing; that rank could not launch its kernel")


def _buffers(program: Program, profile: Profile) -> Iterator[Finding]:
    # An AllGather's input and a ReduceScatter's output are one rank's share of the chunks.
    share_in = program.ranks if program.collective == "allgather" else 1
    share_out = program.ranks if program.collective in ("reduce_scatter", "reducescatter") else 1
    for gpu in program.gpus:
        if min(gpu.input_chunks, gpu.output_chunks, gpu.scratch_chunks) < 0:
            yield Finding("i_chunks, o_chunks and s_chunks cannot be negative", gpu)
        for name, chunks, share in (("i", gpu.input_chunks, share_in), ("o", gpu.output_chunks, share_out)):
            if chunks > 0 and chunks * share != program.chunks:
                yield Finding(
                    f"{name}_chunks is {chunks}, nchunksperloop {program.chunks}; they disagree", gpu
                )


def _nodes(program: Program, profile: Profile) -> Iterator[Finding]:
    for gpu in program.gpus:
        own = len(gpu.blocks) + sum(len(block.steps) for block in gpu.blocks)
        nodes = 1 + len(program.gpus) + own
        if nodes > profile.nodes_per_rank:
            yield Finding(f"this rank reads {nodes} elements; {profile.nodes_per_rank} fit", gpu)


def _blocks(program: Program, profile: Profile) -> Iterator[Finding]:
    for gpu in program.gpus:
        count = len(gpu.blocks)
        if count == 0:
            yield Finding("no thread block; the kernel cannot be launched with none", gpu)
        if count > profile.blocks_per_rank:
            yield Finding(f"{count} thread blocks; {profile.title} holds {profile.blocks_per_rank}", gpu)
        ids = sorted(block.id for block in gpu.blocks)
        if ids != list(range(count)):
            wrong = next(found for found, wanted in zip(ids, range(count), strict=True) if found != wanted)
            yield Finding(f"tb ids must be 0..{count - 1}, each once; {wrong} is out of line", gpu)


def _block_channels(program: Program, profile: Profile) -> Iterator[Finding]:
    top = min(program.channels, profile.channels)
    for gpu in program.gpus:
        for block in gpu.blocks:
            if not 0 <= block.channel < top:
                yield Finding(f"chan {block.channel} is not below nchannels ({top})", gpu, block)


def _peers(program: Program, profile: Profile) -> Iterator[Finding]:
    for gpu in program.gpus:
        for block in gpu.blocks:
            for way, peer in (("send", block.send_peer), ("recv", block.recv_peer)):
                if not -1 <= peer < program.ranks:
                    yield Finding(f"{way} {peer} is no rank; use 0..{program.ranks - 1} or -1", gpu, block)
                elif peer == gpu.rank:
                    yield Finding(f"{way} {peer} is this rank itself; use cpy and re steps", gpu, block)


def _crowding(program: Program, profile: Profile) -> Iterator[Finding]:
    most = profile.blocks_per_connection_side
    for gpu in program.gpus:
        sides = Counter(("send", block.channel) for block in gpu.blocks if block.send_peer >= 0)
        sides.update(("recv", block.channel) for block in gpu.blocks if block.recv_peer >= 0)
        for (way, channel), count in sides.items():
            if count > most:
                yield Finding(f"{count} thread blocks {way} on channel {channel}; {most} fit", gpu)


HEADER_RULES = (
    Rule("name-length", "the name is kept whole", _name),
    Rule("protocol-known", "proto is one that NCCL has", _protocol),
    Rule("collective-known", "coll is one that the runtime has", _collective),
    Rule("channel-count", "nchannels is within the runtime's array", _channels),
    Rule("chunk-count", "nchunksperloop is positive", _chunks),
    Rule("size-range", "some size lies within minBytes and maxBytes", _sizes),
    Rule("placement", "the file is for calls in place, out of place, or both", _placement),
    Rule("ranks-complete", "every rank has exactly one gpu", _ranks),
    Rule("buffer-chunks", "buffer sizes agree with nchunksperloop", _buffers),
    Rule("node-count", "a rank's elements fit the parser", _nodes),
    Rule("block-ids", "a rank has thread blocks 0, 1, 2 ..., within the limit", _blocks),
    Rule("channel-in-range", "chan is below nchannels: others are never connected", _block_channels),
    Rule("peer-in-range", "send and recv name other ranks, or -1", _peers),
    Rule("blocks-per-channel", "not too many thread blocks on one channel and direction", _crowding),
)
