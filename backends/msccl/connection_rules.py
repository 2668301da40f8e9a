"""Rules on what ranks do together: connections, pairing of sends and receives, waiting in circles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from .profiles import Profile
from .program import Program, RankProgram, Step, ThreadBlock
from .violations import Finding, Rule


class Connection(NamedTuple):
    """A one-way channel between two ranks."""

    source: int
    target: int
    channel: int

    def __str__(self) -> str:
        return f"{self.source} -> {self.target} on channel {self.channel}"


class Place(NamedTuple):
    """A step with the rank and thread block it is in."""

    gpu: RankProgram
    block: ThreadBlock
    step: Step


def _key(gpu: RankProgram, block: ThreadBlock, step: Step) -> tuple[int, int, int]:
    return gpu.rank, block.id, step.index


End = dict[Connection, list[tuple[RankProgram, ThreadBlock]]]


def connection_ends(program: Program) -> tuple[End, End]:
    """The thread blocks that declare the sending and the receiving end of each connection."""
    sending: End = defaultdict(list)
    receiving: End = defaultdict(list)
    for gpu in program.gpus:
        for block in gpu.blocks:
            if block.send_peer >= 0:
                sending[Connection(gpu.rank, block.send_peer, block.channel)].append((gpu, block))
            if block.recv_peer >= 0:
                receiving[Connection(block.recv_peer, gpu.rank, block.channel)].append((gpu, block))
    return sending, receiving


def _single_use(program: Program, profile: Profile) -> Iterator[Finding]:
    for way, ends in zip(("send", "receive"), connection_ends(program), strict=True):
        for connection, users in ends.items():
            if len(users) > 1:
                numbers = " and ".join(str(block.id) for _, block in users)
                message = f"tbs {numbers} both {way} {connection}; they would race, use another chan"
                yield Finding(message, *users[1])


def _both_ends(program: Program, profile: Profile) -> Iterator[Finding]:
    sending, receiving = connection_ends(program)
    for connection, users in sending.items():
        if connection not in receiving:
            yield Finding(f"no thread block receives {connection}: init hangs", *users[0])
    for connection, users in receiving.items():
        if connection not in sending:
            yield Finding(f"no thread block sends {connection}: init hangs", *users[0])


def transfers(program: Program) -> Iterator[tuple[Connection, list[Place], list[Place]]]:
    """The send and the receive steps of each connection that has one block at either end."""
    sending, receiving = connection_ends(program)
    for connection, users in sending.items():
        others = receiving.get(connection, [])
        if len(users) == len(others) == 1:
            sends = [Place(*users[0], step) for step in users[0][1].steps if step.op.sends]
            receives = [Place(*others[0], step) for step in others[0][1].steps if step.op.receives]
            yield connection, sends, receives


def _paired(program: Program, profile: Profile) -> Iterator[Finding]:
    for connection, sends, receives in transfers(program):
        for send, receive in zip(sends, receives, strict=False):
            if send.step.count != receive.step.count:
                there = f"gpu {receive.gpu.rank} tb {receive.block.id} step {receive.step.index}"
                counts = f"cnt {send.step.count} here, {receive.step.count} at {there}"
                yield Finding(f"{connection}: {counts}; they must be the same", *send)
                break
        if len(sends) != len(receives):
            message = f"{connection}: {len(sends)} sends and {len(receives)} receives; someone waits forever"
            yield Finding(message, *(sends or receives)[min(len(sends), len(receives)) - 1])


def _acyclic(program: Program, profile: Profile) -> Iterator[Finding]:
    stuck = _stuck_step(program)
    if stuck is not None:
        message = "waits, through program order, dependencies and messages, for itself: deadlock"
        yield Finding(message, *stuck)


def _stuck_step(program: Program) -> Place | None:
    """The first step that never runs, however deep the message queues; None if all do."""
    places = [Place(*where) for where in program.steps()]
    followers, waiting = _waits(program, places)
    ready = [node for node in range(len(places)) if waiting[node] == 0]
    done = len(ready)
    while ready:
        for follower in followers[ready.pop()]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                ready.append(follower)
                done += 1
    if done == len(places):
        return None
    return next(place for place, left in zip(places, waiting, strict=True) if left)


def _waits(program: Program, places: list[Place]) -> tuple[list[list[int]], list[int]]:
    """Who follows each step, and how many each step waits for: order, dependencies, messages."""
    # By number, not by object: equal steps may be one object. Misnumbered ones break another rule.
    node = {_key(place.gpu, place.block, place.step): number for number, place in enumerate(places)}
    followers: list[list[int]] = [[] for _ in places]
    waiting = [0] * len(places)

    def wait(later: Place, earlier: Place) -> None:
        followers[node[_key(*earlier)]].append(node[_key(*later)])
        waiting[node[_key(*later)]] += 1

    for gpu in program.gpus:
        by_id = {block.id: block for block in gpu.blocks}
        for block in gpu.blocks:
            for earlier, later in zip(block.steps, block.steps[1:], strict=False):
                wait(Place(gpu, block, later), Place(gpu, block, earlier))
            for step in block.steps:
                other = by_id.get(step.dep_block)
                if other is not None and 0 <= step.dep_step < len(other.steps):
                    wait(Place(gpu, block, step), Place(gpu, other, other.steps[step.dep_step]))
    for _, sends, receives in transfers(program):
        for send, receive in zip(sends, receives, strict=False):
            wait(receive, send)
    return followers, waiting


CONNECTION_RULES = (
    Rule("connection-single", "one thread block a connection and direction", _single_use),
    Rule("connection-ends", "every connection has both its ends", _both_ends),
    Rule("transfers-paired", "sends and receives of a connection match one by one", _paired),
    Rule("no-deadlock", "no step waits for itself", _acyclic),
)
