"""Says what a machine that cannot move is waiting for, and where the waits form a cycle."""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx

from .model_code import StepRef, describe
from .model_machine import Machine, Op, Runner


@dataclass(frozen=True, slots=True)
class Waiting:
    """A thread block that has stopped.

    `reason` says for what; `on` are rank and id of the block that would have to move first, None
    where there is none.
    """

    ref: StepRef
    doing: str
    reason: str
    on: tuple[int, int] | None

    def __str__(self) -> str:
        return f"{self.ref} ({self.doing}) waits for {self.reason}"


@dataclass(frozen=True, slots=True)
class Deadlock:
    """Every block that waits although nothing can move any more.

    `cycle` are rank and id of blocks of which each waits for the next, empty where the waits end at a
    block that has ended or never existed.
    """

    waiting: tuple[Waiting, ...]
    cycle: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        lines = [str(waiting) for waiting in self.waiting]
        if self.cycle:
            names = [f"rank {rank} tb {block}" for rank, block in (*self.cycle, self.cycle[0])]
            lines.append("cycle: " + " -> ".join(names))
        return "\n".join(lines)


def waiting(machine: Machine) -> tuple[Waiting, ...]:
    """The blocks of launched ranks that have not ended, after `Machine.run` has returned."""
    found = []
    for runner in machine.runners:
        if runner.done or not runner.rank.launched or runner.rank.iteration == machine.iterations:
            continue
        op = runner.ops[runner.at]
        reason, on = _reason(machine, runner, op)
        layout = machine.code.layouts[runner.code.rank]
        doing = describe(op.transfer, runner.code, layout)
        found.append(Waiting(op.transfer.ref, doing, reason, on))
    return tuple(found)


def deadlock(machine: Machine) -> Deadlock | None:
    """Who waits for whom, None when nobody does."""
    stopped = waiting(machine)
    if not stopped:
        return None
    graph: nx.DiGraph[tuple[int, int]] = nx.DiGraph()
    for one in stopped:
        if one.on is not None:
            graph.add_edge((one.ref.rank, one.ref.block), one.on)
    try:
        cycle = tuple(edge[0] for edge in nx.find_cycle(graph))
    except nx.NetworkXNoCycle:
        cycle = ()
    return Deadlock(stopped, cycle)


def _reason(machine: Machine, runner: Runner, op: Op) -> tuple[str, tuple[int, int] | None]:
    for other, number in op.waits:
        if other.flag < machine.flag(runner, number):
            return _flag_reason(other, number), (other.code.rank, other.code.block.id)
    if runner.inbound is not None and op.transfer.receives and not runner.inbound.items:
        link = runner.inbound.link
        return _peer_reason(machine, f"data from rank {link.source}", link.source, runner.inbound.sender)
    assert runner.outbound is not None  # the only wait left
    link, held = runner.outbound.link, len(runner.outbound.items)
    what = f"FIFO space: rank {link.target} has not taken {held} operations"
    return _peer_reason(machine, what, link.target, runner.outbound.receiver)


def _flag_reason(other: Runner, number: int) -> str:
    text = f"the flag of tb {other.code.block.id} step {number}"
    step = next((t for t in other.code.transfers if t.number == number), None)
    if step is None:
        return f"{text}, which the runtime does not count as a step"
    if not step.publishes:
        return f"{text}, which has hasdep=0"
    return f"{text}, which has ended" if other.done else text


def _peer_reason(
    machine: Machine, text: str, rank: int, peer: Runner | None
) -> tuple[str, tuple[int, int] | None]:
    if not machine.ranks[rank].launched:
        return f"{text}, whose kernel has not started", None
    if peer is None:
        return f"{text}, where no thread block has the other end", None
    if peer.done or machine.ranks[rank].iteration == machine.iterations:
        return f"{text}, whose tb {peer.code.block.id} has ended", None
    return text, (rank, peer.code.block.id)
