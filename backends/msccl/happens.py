"""What must happen before what in one call of a program, and the races that are left.

Three things order steps: their order in a thread block, flags, and messages (the k-th receive on a
connection comes after the k-th send). That a connection is full orders nothing, since it depends on
sizes. Two accesses of a rank to one cell, at least one of them writing, must be ordered.

One slice of one call is enough to look at. Slices of a chunk are different elements of every buffer,
scratch included, and a later slice waits for the same flags and messages. Calls of one rank follow
each other on its stream, one call a kernel: the next starts when all blocks of the last have ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .layout import Layout
from .model_code import BlockCode, Code, StepRef, Transfer
from .program import OpCode

_BATCH = 4096  # sources whose descendants are found in one pass: one integer of so many bits a step


@dataclass(frozen=True, slots=True)
class Event:
    """A step, or one half of it.

    With LL and LL128, rcs and rrcs send before they write locally: what follows their message at
    the other rank does not follow that write. They are two events, the first of which sends.
    """

    transfer: Transfer
    block: BlockCode
    reads: bool = True
    writes: bool = True

    @property
    def ref(self) -> StepRef:
        """The step that it belongs to."""
        return self.transfer.ref

    @property
    def sends(self) -> bool:
        """Whether the message of the step leaves with this event."""
        return self.transfer.sends and self.reads


@dataclass(frozen=True, slots=True)
class Order:
    """Events with the events right before each, and one order that respects both.

    `sequence` lacks the events that wait in a circle, and those behind them, where there is one.
    """

    code: Code
    events: tuple[Event, ...]
    before: tuple[tuple[int, ...], ...]
    sequence: tuple[int, ...]

    @property
    def circular(self) -> bool:
        """Whether some steps wait for each other, which is a deadlock whatever the sizes."""
        return len(self.sequence) < len(self.events)


@dataclass(frozen=True, slots=True)
class Race:
    """Two steps of one rank that access one cell in no fixed order."""

    first: StepRef
    second: StepRef
    cell: str
    first_writes: bool
    second_writes: bool

    def __str__(self) -> str:
        verb = "writes" if self.first_writes else "reads"
        other = "writes" if self.second_writes else "reads"
        return (
            f"rank {self.first.rank}: tb {self.first.block} step {self.first.step} {verb} {self.cell} while "
            f"tb {self.second.block} step {self.second.step} {other} it; add a dependency"
        )


def order_of(code: Code) -> Order:
    """The order among all steps of a loaded program."""
    split = code.program.protocol != "Simple"
    events: list[Event] = []
    before: list[list[int]] = []
    sends: dict[StepRef, int] = {}
    ends: dict[StepRef, int] = {}  # the event after which the step's flag is set
    for block in code.blocks:
        previous = -1
        for transfer in block.transfers:
            for event in _events(transfer, block, split):
                ends[transfer.ref] = len(events)
                if event.sends:
                    sends[transfer.ref] = len(events)
                before.append([previous] if previous >= 0 else [])
                previous = len(events)
                events.append(event)
    _add_flags(code, events, before, ends)
    _add_messages(code, events, before, sends)
    frozen = tuple(map(tuple, before))
    return Order(code, tuple(events), frozen, _sequence(frozen))


def races(order: Order) -> tuple[Race, ...]:
    """The conflicting accesses that nothing orders, at most one for two steps, by rank and block.

    Along any one order it is enough that each access is ordered with the last write before it, and
    each write with the reads since the write before.
    """
    pairs = _conflicts(order)
    found: dict[tuple[StepRef, StepRef], Race] = {}
    for a, b in _unordered(order, pairs):
        first, second = order.events[a], order.events[b]
        cell, first_writes, second_writes = pairs[a, b]
        if first.ref > second.ref:
            first, second, first_writes, second_writes = second, first, second_writes, first_writes
        race = Race(first.ref, second.ref, cell, first_writes, second_writes)
        found.setdefault((first.ref, second.ref), race)
    return tuple(found[key] for key in sorted(found))


def _events(transfer: Transfer, block: BlockCode, split: bool) -> Iterator[Event]:
    if split and transfer.step.op in (OpCode.RECV_COPY_SEND, OpCode.RECV_REDUCE_COPY_SEND):
        yield Event(transfer, block, writes=False)
        yield Event(transfer, block, reads=False)
    else:
        yield Event(transfer, block)


def _add_flags(
    code: Code, events: Sequence[Event], before: Sequence[list[int]], ends: dict[StepRef, int]
) -> None:
    publishing = {
        (block.rank, block.block.id): [t for t in block.transfers if t.publishes] for block in code.blocks
    }
    for index, event in enumerate(events):
        for wait in event.transfer.waits if event.reads else ():
            # A later step's flag satisfies the wait as well, where the step itself sets none.
            others = publishing[event.ref.rank, wait.block]
            setter = next((t for t in others if t.number >= wait.number), None)
            if setter is not None:
                before[index].append(ends[setter.ref])


def _add_messages(
    code: Code, events: Sequence[Event], before: Sequence[list[int]], sends: dict[StepRef, int]
) -> None:
    partner: dict[StepRef, int] = {}
    for link, sender in code.senders.items():
        receiver = code.receivers.get(link)
        if receiver is not None:
            outgoing = (t.ref for t in sender.transfers if t.sends)
            incoming = (t.ref for t in receiver.transfers if t.receives)
            partner.update((there, sends[here]) for here, there in zip(outgoing, incoming, strict=False))
    for index, event in enumerate(events):
        if event.reads and event.ref in partner:
            before[index].append(partner[event.ref])


def _sequence(before: Sequence[Sequence[int]]) -> tuple[int, ...]:
    after: list[list[int]] = [[] for _ in before]
    missing = [len(set(earlier)) for earlier in before]
    for index, earlier in enumerate(before):
        for other in set(earlier):
            after[other].append(index)
    sequence = [index for index, count in enumerate(missing) if not count]
    for index in sequence:  # grows while it is read
        for later in after[index]:
            missing[later] -= 1
            if not missing[later]:
                sequence.append(later)
    return tuple(sequence)


@dataclass(slots=True)
class _Cell:
    """The last event that wrote a cell and the last of each block that has read it since."""

    writer: int
    readers: dict[int, int]


_Pairs = dict[tuple[int, int], tuple[str, bool, bool]]  # cell, whether the first and the second write


def _conflicts(order: Order) -> _Pairs:
    """Pairs of events of different blocks that need an order, earlier in the sequence first."""
    cells: dict[tuple[int, int], _Cell] = {}
    pairs: _Pairs = {}
    for index in order.sequence:
        event = order.events[index]
        block, layout = event.block.block.id, order.code.layouts[event.ref.rank]
        for cell in _read_cells(event):
            seen = cells.setdefault((event.ref.rank, cell), _Cell(-1, {}))
            _need(pairs, order, seen.writer, index, layout, cell, writes=(True, False))
            seen.readers[block] = index
        for cell in event.transfer.target() if event.writes else ():
            seen = cells.setdefault((event.ref.rank, cell), _Cell(-1, {}))
            for reader in seen.readers.values():
                _need(pairs, order, reader, index, layout, cell, writes=(False, True))
            if not seen.readers:
                _need(pairs, order, seen.writer, index, layout, cell, writes=(True, True))
            seen.writer = index
            seen.readers.clear()
    return pairs


def _read_cells(event: Event) -> Iterator[int]:
    if event.reads:
        yield from event.transfer.source()
        if event.transfer.accumulates:
            yield from event.transfer.target()


def _need(
    pairs: _Pairs, order: Order, a: int, b: int, layout: Layout, cell: int, *, writes: tuple[bool, bool]
) -> None:
    if a >= 0 and (a, b) not in pairs and order.events[a].block is not order.events[b].block:
        pairs[a, b] = (layout.name(cell), *writes)


def _unordered(order: Order, pairs: _Pairs) -> Iterator[tuple[int, int]]:
    """The pairs without a path from the first to the second."""
    wanted: dict[int, list[int]] = {}
    for a, b in pairs:
        if a not in order.before[b]:
            wanted.setdefault(a, []).append(b)
    place = {index: at for at, index in enumerate(order.sequence)}
    sources = sorted(wanted, key=place.__getitem__)
    for first in range(0, len(sources), _BATCH):
        yield from _unreached(order, place, sources[first : first + _BATCH], wanted)


def _unreached(
    order: Order, place: dict[int, int], sources: Sequence[int], wanted: dict[int, list[int]]
) -> Iterator[tuple[int, int]]:
    bit = {source: 1 << at for at, source in enumerate(sources)}
    asked: dict[int, list[int]] = {}
    for source in sources:
        for target in wanted[source]:
            asked.setdefault(target, []).append(source)
    last = max(place[target] for target in asked)
    reached = [0] * len(order.events)
    for index in order.sequence[place[sources[0]] : last + 1]:
        known = 0
        for earlier in order.before[index]:
            known |= reached[earlier]
        for source in asked.get(index, ()):
            if not known & bit[source]:
                yield source, index
        reached[index] = known | bit.get(index, 0)
