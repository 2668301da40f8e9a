"""Which steps of a rank must wait for which: the hazards of running its program out of lockstep.

A send reads its chunks after the receives before it that deliver them (read after write). A receive
changes its chunks after the sends before it that read them (write after read) and after the receives
before it (write after write). Nothing else is ordered.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..schedules import Op
from .elements import chunk_bounds
from .programs import LENGTH, PEER, REDUCTION, ROUND, SEND, START, RankProgram


@dataclass(frozen=True, slots=True)
class Step:
    """One message of one rank.

    Attributes:
        send: it is sent, not received.
        peer: the other rank.
        phase: number of its phase, for messages.
        round: number of its round, for messages.
        low: first element.
        high: element after the last; never `low`: empty messages are left out.
        first: first chunk, for messages and recordings.
        count: number of chunks.
        copy: what is received replaces what is there.
        needs: numbers of earlier steps that must be over before this one touches the buffer.
    """

    send: bool
    peer: int
    phase: int
    round: int
    low: int
    high: int
    first: int
    count: int
    copy: bool
    needs: tuple[int, ...]


def plan(program: RankProgram, count: int) -> tuple[Step, ...]:
    """The steps of one rank on a buffer of `count` elements, with what each must wait for."""
    bounds = chunk_bounds(count, program.chunks)
    table = program.steps
    low, high = bounds[table[:, START]], bounds[table[:, START] + table[:, LENGTH]]
    kept = np.flatnonzero(high > low)
    hazards = _Hazards(program.chunks)
    steps: list[Step] = []
    for row, begin, end in zip(table[kept].tolist(), low[kept].tolist(), high[kept].tolist(), strict=True):
        phase, round_, kind = row[: ROUND + 2]
        first, count = row[START], row[LENGTH]
        send = kind == SEND
        needs = hazards.add(len(steps), send, range(first, first + count))
        copy = not send and row[REDUCTION] == Op.COPY
        steps.append(Step(send, row[PEER], phase, round_, begin, end, first, count, copy, needs))
    return tuple(steps)


class _Hazards:
    """For every chunk, the last step that changed it and the steps that have read it since."""

    def __init__(self, chunks: int) -> None:
        self._writer = [-1] * chunks
        self._readers: list[list[int]] = [[] for _ in range(chunks)]

    def add(self, index: int, send: bool, chunks: range) -> tuple[int, ...]:
        needs = set()
        for chunk in chunks:
            needs.add(self._writer[chunk])
            if send:
                self._readers[chunk].append(index)
                continue
            needs.update(self._readers[chunk])
            self._writer[chunk] = index
            self._readers[chunk] = []
        needs.discard(-1)
        return tuple(sorted(needs))
