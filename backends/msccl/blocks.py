"""Lowering, second pass: messages become steps of thread blocks, with the dependencies they need.

Every rank gets one thread block for each peer, direction and phase, so that nothing in `pre` waits
behind anything in `post` (a runtime runs all steps of a block for one slice before the next slice).
Steps are added in the order of the schedule's rounds, sends before receives. A step waits for:

- RAW: the step that wrote a chunk it reads,
- WAR: the steps that read a chunk it overwrites,
- WAW: the step that wrote a chunk it overwrites,
- the rank's previous send of the phase, since the rank has one port and its sends have an order.

Only earlier rounds, or sends of the same round, are ever waited for, so there is no deadlock. A wait
that another wait implies is dropped (vector clocks over the rank's blocks). A step can carry one wait;
further ones sit on `nop` steps before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from .program import Buffer, OpCode, Step

Cell = tuple[Buffer, int]
"""A chunk of a buffer of the rank at hand."""


class BlockKey(NamedTuple):
    """What a thread block is for. `lane` counts up where one block would get too many steps.

    `direction` is `send`, `recv` or `both`.
    """

    phase: int
    lane: int
    direction: str
    peer: int


class StepRef(NamedTuple):
    """A step of a block of the rank at hand."""

    block: BlockKey
    step: int


Clock = dict[BlockKey, int]
"""Block -> its last step that is known to have completed."""


@dataclass(slots=True)
class BlockDraft:
    """A thread block that is being filled; `waits[i]` is what step i waits for."""

    steps: list[Step] = field(default_factory=list)
    waits: list[StepRef | None] = field(default_factory=list)
    clock: Clock = field(default_factory=dict)
    scratch: int = 0


class RankDraft:
    """The thread blocks of one rank while they are being filled."""

    def __init__(self) -> None:
        self.blocks: dict[BlockKey, BlockDraft] = {}
        self.awaited: set[StepRef] = set()
        self._clocks: dict[StepRef, Clock] = {}
        self._writer: dict[Cell, StepRef] = {}
        self._readers: dict[Cell, list[StepRef]] = {}

    def block(self, key: BlockKey) -> BlockDraft:
        """The draft of a block, made at first use."""
        return self.blocks.setdefault(key, BlockDraft())

    def length(self, key: BlockKey) -> int:
        """Steps in a block so far."""
        return len(self.blocks[key].steps) if key in self.blocks else 0

    def add(
        self,
        key: BlockKey,
        step: Step,
        reads: Iterable[Cell] = (),
        writes: Iterable[Cell] = (),
        after: StepRef | None = None,
    ) -> StepRef:
        """Appends a step to a block, with the waits that its reads and writes need.

        Scratch is private to a block, whose steps run in order: its cells need not be named.
        """
        reads, writes = list(reads), list(writes)
        wanted = [self._writer[c] for c in (*reads, *writes) if c in self._writer]
        wanted += [r for c in writes for r in self._readers.get(c, ())]
        waits = self._needed(key, [*wanted, after] if after is not None else wanted)
        ref = self._append(key, step, waits)
        for cell in reads:
            self._readers.setdefault(cell, []).append(ref)
        for cell in writes:
            self._writer[cell] = ref
            self._readers[cell] = []
        return ref

    def _needed(self, key: BlockKey, wanted: list[StepRef]) -> list[StepRef]:
        known = self.block(key).clock
        latest: Clock = {}
        for ref in wanted:
            if ref.block != key and ref.step > known.get(ref.block, -1):
                latest[ref.block] = max(ref.step, latest.get(ref.block, -1))
        refs = [StepRef(block, latest[block]) for block in sorted(latest)]
        return [
            ref
            for ref in refs
            if not any(self._clocks[other].get(ref.block, -1) >= ref.step for other in refs if other != ref)
        ]

    def _append(self, key: BlockKey, step: Step, waits: list[StepRef]) -> StepRef:
        draft = self.block(key)
        for ref in waits[:-1]:
            draft.steps.append(Step(index=len(draft.steps), op=OpCode.NOP))
            draft.waits.append(ref)
        for ref in waits:
            for block, index in self._clocks[ref].items():
                draft.clock[block] = max(index, draft.clock.get(block, -1))
        index = len(draft.steps)
        draft.clock[key] = index
        draft.steps.append(replace(step, index=index))
        draft.waits.append(waits[-1] if waits else None)
        self.awaited.update(waits)
        ref = StepRef(key, index)
        self._clocks[ref] = dict(draft.clock)
        return ref
