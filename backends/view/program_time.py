"""When the steps of an MSCCL program happen, in modelled time: the runtime model's order, with costs.

A message takes alpha + beta * bytes and holds its sender's out-port and its receiver's in-port for so long;
it starts when its step can, both ports are free and the receiving rank has come. What has arrived waits in
memory until its step takes it, as in mode `relaxed` of `simulation.py`. A step that receives and sends
passes on what has arrived whole. Local steps cost nothing. Ports serve whoever can start first, and of those
whoever has fewest messages before it. Modelled, never measured.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...schedules import Link
from ..msccl.happens import Order
from ..msccl.model_code import StepRef
from .program_data import Analysis, message_pairs


@dataclass(frozen=True, slots=True)
class Message:
    """One message: the steps that send and receive it, when it starts and when it has arrived."""

    sender: StepRef
    receiver: StepRef
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Timing:
    """Modelled times of one call, in seconds.

    Attributes:
        spans: step -> when it begins and is over; `nop`s are not in it.
        messages: all messages that are received.
        never: steps that wait in a circle or behind one.
        arrivals: when each rank calls the collective.
        end: when the last step is over, or the last rank comes.
    """

    spans: dict[StepRef, tuple[float, float]]
    messages: tuple[Message, ...]
    never: tuple[StepRef, ...]
    arrivals: tuple[float, ...]
    end: float

    @property
    def post_seconds(self) -> float:
        """From the last arrival to the end."""
        return self.end - max(self.arrivals, default=0.0)


def program_times(found: Analysis, size: float, link: Link, delay: float) -> Timing:
    """Times of a program's steps for a buffer of `size` bytes, its late ranks `delay` seconds late.

    A program that cannot be loaded has none.
    """
    arrivals = tuple(delay if rank in found.late else 0.0 for rank in range(found.program.ranks))
    if found.order is None:
        return Timing({}, (), (), arrivals, max(arrivals, default=0.0))
    chunk = size / max(1, found.program.chunks)
    return _Clockwork(found.order, arrivals, lambda count: link.alpha + count * chunk * link.beta).run()


@dataclass(slots=True)
class _State:
    """What is known of an event: begin, own readiness, end of its message, end of all of it."""

    ready: float = 0.0
    begin: float = 0.0
    leaves: float = 0.0
    arrives: float = 0.0
    over: float = 0.0
    missing: int = 0
    after: list[int] = field(default_factory=list)


class _Clockwork:
    """Carries events out in the order of the times at which they can start."""

    def __init__(self, order: Order, arrivals: Sequence[float], cost: Callable[[int], float]) -> None:
        self._order, self._arrivals, self._cost = order, arrivals, cost
        self._states = [_State() for _ in order.events]
        self._partner = _partners(order)
        self._out = list(arrivals)
        self._in = list(arrivals)
        self._depth = [0] * len(order.events)
        for index in order.sequence:
            earlier = (self._depth[i] for i in order.before[index])
            self._depth[index] = order.events[index].sends + max(earlier, default=0)
        self._queue: list[tuple[float, int, int, float]] = []

    def run(self) -> Timing:
        """The times of all events."""
        for index, before in enumerate(self._order.before):
            self._states[index].missing = len(set(before))
            for earlier in set(before):
                self._states[earlier].after.append(index)
        for index, state in enumerate(self._states):
            if not state.missing:
                self._push(index)
        while self._queue:
            _, _, index, time = heapq.heappop(self._queue)
            self._try(time, index)
        return self._timing()

    def _push(self, index: int) -> None:
        """All before an event is over: from when on it can start to send, or be carried out."""
        event, state = self._order.events[index], self._states[index]
        partner = self._partner.get(index)
        others = (self._states[i].over for i in self._order.before[index] if i != partner)
        state.ready = max([self._arrivals[event.ref.rank], *others])
        state.begin = can = state.ready
        if partner is not None:
            state.begin = max(state.ready, self._states[partner].leaves)
            can = max(state.ready, self._states[partner].arrives)
        if event.sends:
            can = max(can, self._arrivals[event.block.block.send_peer])
        self._wait(index, can)

    def _wait(self, index: int, until: float) -> None:
        # Sums of the same terms in another order differ in the last digits: that must not decide.
        heapq.heappush(self._queue, (float(f"{until:.9e}"), self._depth[index], index, until))

    def _try(self, time: float, index: int) -> None:
        event, state = self._order.events[index], self._states[index]
        state.over = time
        if event.sends:
            source, target = event.ref.rank, event.block.block.send_peer
            free = max(time, self._out[source], self._in[target])
            if free > time:
                self._wait(index, free)
                return
            state.leaves, state.arrives = time, time + self._cost(event.transfer.count)
            if index not in self._partner:
                state.begin = time
            state.over = self._out[source] = self._in[target] = state.arrives
        for later in state.after:
            self._states[later].missing -= 1
            if not self._states[later].missing:
                self._push(later)

    def _timing(self) -> Timing:
        spans: dict[StepRef, tuple[float, float]] = {}
        never: dict[StepRef, None] = {}
        for event, state in zip(self._order.events, self._states, strict=True):
            if state.missing:
                never[event.ref] = None
                continue
            begin, over = spans.get(event.ref, (state.begin, state.over))
            spans[event.ref] = min(begin, state.begin), max(over, state.over)
        messages = []
        for index, partner in self._partner.items():
            sent = self._states[partner]
            if not sent.missing:
                ends = self._order.events[partner].ref, self._order.events[index].ref
                messages.append(Message(*ends, sent.leaves, sent.arrives))
        end = max([*self._arrivals, *(over for _, over in spans.values())], default=0.0)
        return Timing(spans, tuple(messages), tuple(never), tuple(self._arrivals), end)


def _partners(order: Order) -> dict[int, int]:
    """Receiving event -> the event that sends its message."""
    sends = {event.ref: index for index, event in enumerate(order.events) if event.sends}
    receives = {event.ref: index for index, event in enumerate(order.events) if event.reads}
    pairs = message_pairs(order)
    return {receives[there]: sends[here] for here, there in pairs}
