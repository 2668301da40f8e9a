"""What each MSCCL runtime can hold, reads and does with sizes: limits as data, one object each.

Read from the sources of microsoft/msccl (NCCL 2.12), Azure/msccl-executor-nccl (NCCL 2.23) and
ROCm/rccl (October 2024, the last that had MSCCL). `PORTABLE` holds the smallest of the three; it
is what this project emits.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...schedules.errors import UsageError
from .program import OpCode

_PORTABLE_OPS = frozenset({OpCode.SEND, OpCode.RECV, OpCode.COPY, OpCode.REDUCE, OpCode.NOP})
_ALL_OPS = frozenset(OpCode)


@dataclass(frozen=True, slots=True)
class Profile:
    """The limits of one runtime. Counts are the largest that work.

    Attributes:
        name: as in `--runtime`.
        title: as in messages.
        steps_per_block: also the largest step number + 1.
        blocks_per_rank: thread blocks of one rank.
        channels: `nchannels`, so `chan` is below it.
        blocks_per_connection_side: blocks of a rank that send (or receive) on one channel.
        largest_count: `cnt` of one step.
        largest_dep_block: block ids that a dependency can name (they are stored as int8).
        largest_offset: `srcoff`/`dstoff` (int16).
        nodes_per_rank: elements that a rank reads: algo, every gpu, its own tbs and steps.
        gpus: children that `<algo>` may have.
        name_length: characters of the algorithm's name.
        reduce_fusion: `re` steps that the runtime may merge into one.
        merging_allowed: whether steps that the runtime would merge are accepted at all.
        ops: step types with code behind them.
        collectives: accepted `coll` words.
        required: attributes of `<algo>` that the others have defaults for.
        zero_max_is_unlimited: `maxBytes="0"` means no limit; otherwise such a file is never used.
        max_is_inclusive: whether a size of exactly `maxBytes` is taken.
        one_placement: only `inplace` is read: 1 is for calls in place only, 0 for the others only.
        scratch_at_init: scratch for `maxBytes` is allocated when the communicator is made.
        threads_multiple: `nthreads`, where given, must be a multiple of it (0: not read).
    """

    name: str
    title: str
    steps_per_block: int
    blocks_per_rank: int
    channels: int
    name_length: int
    ops: frozenset[OpCode]
    collectives: frozenset[str]
    required: frozenset[str]
    zero_max_is_unlimited: bool
    max_is_inclusive: bool
    one_placement: bool
    scratch_at_init: bool
    threads_multiple: int
    merging_allowed: bool = True
    blocks_per_connection_side: int = 32
    largest_count: int = 71
    largest_dep_block: int = 127
    largest_offset: int = 32767
    # The parsers stop at 4096 before they read the next tag, also a closing one: 4095 fit.
    nodes_per_rank: int = 4095
    gpus: int = 1024
    reduce_fusion: int = 16


_SHARED_COLLECTIVES = frozenset({"allreduce", "allgather", "reduce", "broadcast", "alltoall"})
_LATER_COLLECTIVES = _SHARED_COLLECTIVES | {
    "reducescatter",
    "send",
    "recv",
    "gather",
    "scatter",
    "alltoallv",
}

MSCCL = Profile(
    name="msccl",
    title="microsoft/msccl",
    steps_per_block=256,
    blocks_per_rank=216,
    channels=32,
    name_length=63,
    ops=_ALL_OPS,
    collectives=_SHARED_COLLECTIVES | {"reduce_scatter", "custom"},
    required=frozenset({"name"}),
    zero_max_is_unlimited=False,
    max_is_inclusive=False,
    one_placement=True,
    scratch_at_init=True,
    threads_multiple=32,
)
EXECUTOR = Profile(
    name="msccl-executor",
    title="Azure/msccl-executor-nccl",
    steps_per_block=64,
    blocks_per_rank=1024,
    channels=32,
    name_length=254,
    ops=_ALL_OPS,
    collectives=_LATER_COLLECTIVES,
    required=frozenset({"outofplace", "minBytes", "maxBytes"}),
    zero_max_is_unlimited=True,
    max_is_inclusive=True,
    one_placement=False,
    scratch_at_init=False,
    threads_multiple=0,
)
RCCL = Profile(
    name="rccl",
    title="ROCm/rccl",
    steps_per_block=64,
    blocks_per_rank=64,
    channels=128,
    name_length=254,
    ops=_PORTABLE_OPS,
    collectives=_LATER_COLLECTIVES,
    required=frozenset({"outofplace", "minBytes", "maxBytes"}),
    zero_max_is_unlimited=True,
    max_is_inclusive=True,
    one_placement=False,
    scratch_at_init=False,
    threads_multiple=0,
)
PORTABLE = Profile(
    name="portable",
    title="every MSCCL runtime",
    steps_per_block=64,
    blocks_per_rank=64,
    channels=32,
    name_length=63,
    ops=_PORTABLE_OPS,
    collectives=_SHARED_COLLECTIVES,
    required=frozenset({"name", "outofplace", "minBytes", "maxBytes"}),
    zero_max_is_unlimited=False,
    max_is_inclusive=False,
    one_placement=False,
    scratch_at_init=True,
    threads_multiple=32,
    merging_allowed=False,
)
PROFILES = {profile.name: profile for profile in (PORTABLE, MSCCL, EXECUTOR, RCCL)}


def profile_named(runtime: str) -> Profile:
    """The profile of that name.

    Raises:
        UsageError: no such runtime.
    """
    try:
        return PROFILES[runtime]
    except KeyError:
        raise UsageError(f"no MSCCL runtime {runtime!r}; there are {' '.join(PROFILES)}") from None
