"""Rounds of a program: the longest chains of messages, and the part that needs no late rank."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from .happens import Order, order_of
from .model_code import StepRef, load
from .program import Program


@dataclass(frozen=True, slots=True)
class Rounds:
    """Messages on the longest chain before the late ranks come, and on the longest one after.

    Without late ranks everything is `post`, as in a schedule. `pre_chunks` and `post_chunks` are the same
    with every message weighed by its chunks, which is what bounds are in.
    """

    pre: int
    post: int
    pre_chunks: int = 0
    post_chunks: int = 0


def critical_path(program: Program) -> tuple[StepRef, ...]:
    """The sending steps on the longest chain of messages, in order; as many as the program needs rounds.

    A message counts for the step that sends it, so messages that one block sends follow each other.

    Raises:
        InvalidScheduleError: the program cannot be loaded.
    """
    return longest_chain(order_of(load(program, program.in_place)))


def rounds(program: Program, late: Collection[int] = ()) -> Rounds:
    """The rounds of a program before and after its late ranks come.

    Raises:
        InvalidScheduleError: the program cannot be loaded.
    """
    return rounds_of(order_of(load(program, program.in_place)), late)


def longest_chain(order: Order, within: Collection[int] | None = None) -> tuple[StepRef, ...]:
    """The sending steps on the chain with most messages, counting only those of events `within`."""
    return _heaviest_chain(order, within, weigh=False)


def _heaviest_chain(order: Order, within: Collection[int] | None, weigh: bool) -> tuple[StepRef, ...]:
    """The chain with most messages, or, weighed, with most chunks in its messages."""
    length = [0] * len(order.events)
    parent = [-1] * len(order.events)
    best = -1
    for index in order.sequence:
        for earlier in order.before[index]:
            if length[earlier] > length[index]:
                length[index], parent[index] = length[earlier], earlier
        if order.events[index].sends and (within is None or index in within):
            length[index] += order.events[index].transfer.count if weigh else 1
        if best < 0 or length[index] > length[best]:
            best = index
    chain = []
    while best >= 0:
        if order.events[best].sends and (within is None or best in within):
            chain.append(order.events[best].ref)
        best = parent[best]
    return tuple(reversed(chain))


def rounds_of(order: Order, late: Collection[int]) -> Rounds:
    """As `rounds`, for an order that is there already. With nobody late, nothing comes before `post`."""
    early = early_events(order, late) if late else set()
    rest = set(range(len(order.events))) - early
    chunks = {event.ref: event.transfer.count for event in order.events}
    pre, post = (sum(chunks[ref] for ref in _heaviest_chain(order, part, True)) for part in (early, rest))
    return Rounds(len(longest_chain(order, early)), len(longest_chain(order, rest)), pre, post)


def early_events(order: Order, late: Collection[int]) -> set[int]:
    """Events that can happen with the late ranks absent for as long as one likes.

    A step that sends to a late rank is not among them, nor is what follows it: the message waits in
    the connection, and how many fit there depends on the protocol.
    """
    early: set[int] = set()
    for index in order.sequence:
        event = order.events[index]
        peer = event.block.block.send_peer if event.transfer.sends else -1
        if event.ref.rank not in late and peer not in late and early.issuperset(order.before[index]):
            early.add(index)
    return early
