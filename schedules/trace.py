"""Following chunks through a schedule: who has contributed to what, kept as one bit a rank.

`validate.py` checks the rules on these states; `holders` counts what the diagrams show. Chunks do not
influence each other, so large schedules are followed a block of chunks at a time (`blocks`) and memory
stays bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .ir import COUNT, DST, FIRST, OP, SRC, Op, Phase, Schedule

STATE_BYTES = 1 << 28
"""Memory for the sets of one block of chunks."""

Words = NDArray[np.uint64]
"""Sets of ranks: rank r is bit r % 64 of word r // 64 along the last axis."""


@dataclass(frozen=True, slots=True)
class Cells:
    """The messages of one phase, chunk by chunk, for chunks low..high-1; chunk 0 is `low`."""

    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    chunk: NDArray[np.int64]
    copy: NDArray[np.bool_]
    offsets: NDArray[np.int64]

    def round(self, index: int) -> Cells:
        """The messages of one round."""
        at = slice(int(self.offsets[index]), int(self.offsets[index + 1]))
        return Cells(self.src[at], self.dst[at], self.chunk[at], self.copy[at], self.offsets)


def alike(schedule: Schedule) -> tuple[Schedule, NDArray[np.int64]]:
    """The same schedule with neighbouring chunks that no message tells apart made one.

    What a schedule does to such chunks is the same, and following them costs memory and time: a short
    file may claim millions of chunks.

    Returns:
        The coarser schedule, and int64 `cuts`, shape (its chunks + 1,): its chunk i stands for chunks
        cuts[i]..cuts[i + 1] - 1.
    """
    ends = [np.array([0, schedule.chunks])]
    for phase in schedule.phases:
        first = phase.table[:, FIRST].astype(np.int64)
        ends += [first, first + phase.table[:, COUNT]]
    cuts = np.unique(np.concatenate(ends))
    if len(cuts) == schedule.chunks + 1:
        return schedule, cuts
    phases = []
    for phase in schedule.phases:
        table = phase.table.copy()
        stop = table[:, FIRST].astype(np.int64) + table[:, COUNT]
        table[:, FIRST] = np.searchsorted(cuts, table[:, FIRST])
        table[:, COUNT] = np.searchsorted(cuts, stop) - table[:, FIRST]
        phases.append(Phase(phase.name, table, phase.offsets))
    coarse = Schedule(schedule.ranks, schedule.arrivals, len(cuts) - 1, tuple(phases), schedule.origin)
    return coarse, cuts


def blocks(schedule: Schedule) -> Iterator[tuple[int, int]]:
    """Cuts the chunks into blocks low..high-1 whose state takes at most about `STATE_BYTES`."""
    words = -(-schedule.ranks // 64)
    block = max(1, STATE_BYTES // (schedule.ranks * words * 8))
    for low in range(0, schedule.chunks, block):
        yield low, min(low + block, schedule.chunks)


def cells(phase: Phase, low: int, high: int) -> Cells:
    """Takes the messages of a phase apart into single chunks, those of low..high-1 only."""
    table = phase.table.astype(np.int64)
    first = np.maximum(table[:, FIRST], low)
    count = np.maximum(np.minimum(table[:, FIRST] + table[:, COUNT], high) - first, 0)
    row = np.repeat(np.arange(len(table)), count)
    ends = np.concatenate(([0], np.cumsum(count)))
    chunk = first[row] - low + np.arange(len(row)) - ends[row]
    return Cells(table[row, SRC], table[row, DST], chunk, table[row, OP] == Op.COPY, ends[phase.offsets])


def initial_state(ranks: int, chunks: int) -> Words:
    """The sets before the first round, shape (ranks, chunks, words): everybody has its own part alone."""
    state = np.zeros((ranks, chunks, -(-ranks // 64)), dtype=np.uint64)
    rank = np.arange(ranks)
    state[rank, :, rank // 64] = np.uint64(1) << (rank % 64).astype(np.uint64)[:, None]
    return state


def full_set(ranks: int) -> Words:
    """The set of all ranks, shape (words,)."""
    full: Words = np.bitwise_or.reduce(initial_state(ranks, 1)[:, 0], axis=0)
    return full


def apply_round(state: Words, step: Cells) -> Words:
    """Carries out one round in place: copies replace, reduces join; all read the state from before.

    Returns:
        For every message the contributions that sender and receiver had in common, shape (t, words).
    """
    mine, incoming = state[step.dst, step.chunk], state[step.src, step.chunk]
    state[step.dst, step.chunk] = np.where(step.copy[:, None], incoming, mine | incoming)
    return mine & incoming


def holders(schedule: Schedule) -> tuple[NDArray[np.int32], ...]:
    """How many ranks hold every chunk complete, after every round.

    Returns:
        For every phase an array of shape (rounds, chunks). The schedule may be invalid.

    >>> from stragglar.schedules import Phase, Schedule
    >>> swap = [(0, 1, 0, 1, 0), (1, 0, 0, 1, 0)]
    >>> [counts.tolist() for counts in holders(Schedule(2, (), 1, (Phase.build("post", [swap]),)))]
    [[[2]]]
    """
    coarse, cuts = alike(schedule)
    counts = tuple(np.zeros((len(p), coarse.chunks), dtype=np.int32) for p in coarse.phases)
    for low, high in blocks(coarse):
        state = initial_state(schedule.ranks, high - low)
        full = full_set(schedule.ranks)
        now = np.zeros(high - low, dtype=np.int32)
        for phase, table in zip(coarse.phases, counts, strict=True):
            steps = cells(phase, low, high)
            for where in range(len(phase)):
                now += _completed(state, steps.round(where), full)
                table[where, low:high] = now
    width = np.diff(cuts)
    return tuple(np.repeat(table, width, axis=1) for table in counts)


def _completed(state: Words, step: Cells, full: Words) -> NDArray[np.int32]:
    # A cell counts once even where an invalid round delivers to it twice.
    chunks = state.shape[1]
    rank, chunk = np.divmod(np.unique(step.dst * chunks + step.chunk), chunks)
    before = (state[rank, chunk] == full).all(axis=1)
    apply_round(state, step)
    after = (state[rank, chunk] == full).all(axis=1)
    change = np.zeros(chunks, dtype=np.int32)
    np.add.at(change, chunk, after.astype(np.int32) - before.astype(np.int32))
    return change
