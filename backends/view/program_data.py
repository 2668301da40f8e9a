"""What the inspector's page knows of an MSCCL program: its steps in an order, and what is wrong where."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...schedules import bounds
from ...schedules.errors import InvalidScheduleError
from ...schedules.svg_paper import plain
from ..msccl.happens import Order, order_of
from ..msccl.happens_paths import longest_chain
from ..msccl.model import ModelReport, verify
from ..msccl.model_code import StepRef, load
from ..msccl.program import OpCode, Program, Step, ThreadBlock
from ..msccl.rules import check_text
from ..msccl.xml_read import read_program

MOST_LINES = 200


@dataclass(frozen=True, slots=True)
class Analysis:
    """A program with what rules and runtime model found.

    Attributes:
        program: the program as read.
        late: its late ranks.
        order: what comes before what; None where the program cannot be loaded.
        critical: the sending steps on the longest chain of messages.
        findings: everything that is wrong, a line each.
        spots: for every finding the (rank, block, step) it is about, -1 where it names none.
        places: (rank, block, step) -> what is wrong there; -1 stands for a block or step not named.
        cycle: thread blocks (rank, id) of which each waits for the next.
        report: the runtime model's; None where rules are broken, as such a program is not executed.
    """

    program: Program
    late: tuple[int, ...]
    order: Order | None
    critical: tuple[StepRef, ...]
    findings: list[str]
    spots: list[tuple[int, int, int]]
    places: dict[tuple[int, int, int], str]
    cycle: tuple[tuple[int, int], ...]
    report: ModelReport | None


def analyse(data: bytes, name: str, late: Sequence[int] = (), runtime: str = "portable") -> Analysis:
    """Reads an MSCCL file and finds out all that is shown of it, whatever is wrong with it.

    Raises:
        FormatError: it is no MSCCL file.
        UsageError: no such runtime, or late ranks that it lacks.
    """
    program = read_program(data, name)
    absent = tuple(sorted(late or program.late))
    places: dict[tuple[int, int, int], str] = {}
    findings: list[str] = []
    spots: list[tuple[int, int, int]] = []
    for v in check_text(data, runtime, name):
        findings.append(str(v))
        rank, block, step = (-1 if part is None else part for part in (v.rank, v.block, v.step))
        spots.append((rank, block, step))
        if v.rank is not None:
            places.setdefault(spots[-1], str(v))
    try:
        order = order_of(load(program, program.in_place))
    except InvalidScheduleError as error:
        findings = findings or [str(error)]
        spots = spots or [_spot(str(error))]
        return Analysis(program, absent, None, (), findings, spots, places, (), None)
    report = verify(program, late=absent)
    findings += report.findings()
    spots += map(_spot, report.findings())
    for race in report.races:
        places.setdefault(race.first, f"race: {race}")
        places.setdefault(race.second, f"race: {race}")
    for stopped in report.deadlock.waiting if report.deadlock else ():
        places.setdefault(stopped.ref, f"deadlock: {stopped}")
    cycle = report.deadlock.cycle if report.deadlock else ()
    return Analysis(program, absent, order, longest_chain(order), findings, spots, places, cycle, report)


def _spot(line: str) -> tuple[int, int, int]:
    """The first place that a line of the runtime model names."""
    found = re.search(r"\brank (\d+)(?: tb (\d+)(?: step (\d+))?)?", line)
    rank, block, step = found.groups() if found else (None, None, None)
    return int(rank or -1), int(block or -1), int(step or -1)


def program_data(found: Analysis) -> dict[str, Any]:
    """An analysed program as plain values for JSON."""
    program, places = found.program, found.places
    columns = _columns(found)
    return {
        "name": plain(program.name),
        "protocol": plain(program.protocol),
        "ranks": program.ranks,
        "chunks": program.chunks,
        "channels": program.channels,
        "late": list(found.late),
        "inPlace": program.in_place,
        "blocks": [_block(gpu.rank, block, columns) for gpu in program.gpus for block in gpu.blocks],
        "messages": [[*here, *there] for here, there in message_pairs(found.order)],
        "critical": [list(ref) for ref in found.critical],
        "findings": [plain(line, 400) for line in found.findings[:MOST_LINES]],
        "spots": [list(spot) for spot in found.spots[:MOST_LINES]],
        "total": len(found.findings),
        "places": [[*place, plain(text, 400)] for place, text in places.items()],
        "cycle": [list(one) for one in found.cycle],
        "rounds": [found.report.rounds.pre, found.report.rounds.post] if found.report else None,
        "bound": _bound(found),
    }


def _block(rank: int, block: ThreadBlock, columns: dict[StepRef, int]) -> dict[str, Any]:
    places = (columns.get(StepRef(rank, block.id, step.index), at) for at, step in enumerate(block.steps))
    return {
        "rank": rank,
        "id": block.id,
        "send": block.send_peer,
        "recv": block.recv_peer,
        "chan": block.channel,
        "steps": [_step(step, place) for step, place in zip(block.steps, places, strict=True)],
    }


def _bound(found: Analysis) -> int | None:
    program = found.program
    if program.ranks < 2 or program.chunks < 1 or len(found.late) >= program.ranks:
        return None
    return bounds.post_rounds(program.ranks, program.chunks, len(found.late))


def _step(step: Step, place: int) -> list[int | str]:
    return [
        step.index,
        step.op.value,
        step.src_buffer.value,
        step.src_offset,
        step.dst_buffer.value,
        step.dst_offset,
        step.count,
        step.dep_block,
        step.dep_step,
        int(step.has_dependents),
        place,
    ]


def _columns(found: Analysis) -> dict[StepRef, int]:
    """For every step the length of the longest chain of steps before it; behind a circle: of what it sees.

    A `nop` is left of the step that takes over its wait, and counts as one.
    """
    if found.order is None:
        return {}
    order, nops = found.order, _nops(found.program)
    depth = [-1] * len(order.events)
    circular = set(range(len(depth))).difference(order.sequence)
    for index in (*order.sequence, *sorted(circular)):
        last = max((depth[earlier] for earlier in order.before[index]), default=-1)
        depth[index] = 1 + last + len(nops.get(order.events[index].ref, ()))
    columns: dict[StepRef, int] = {}
    for event, place in zip(order.events, depth, strict=True):
        if columns.setdefault(event.ref, place) == place:
            columns |= {nop: place - back for back, nop in enumerate(nops.get(event.ref, ()), start=1)}
    return columns


def _nops(program: Program) -> dict[StepRef, list[StepRef]]:
    """For every step the `nop`s right before it in its block, the nearest first."""
    found: dict[StepRef, list[StepRef]] = {}
    for gpu in program.gpus:
        for block in gpu.blocks:
            pending: list[StepRef] = []
            for step in block.steps:
                ref = StepRef(gpu.rank, block.id, step.index)
                if step.op is OpCode.NOP:
                    pending.insert(0, ref)
                elif pending:
                    found[ref], pending = pending, []
    return found


def message_pairs(order: Order | None) -> list[tuple[StepRef, StepRef]]:
    """Steps that send and receive a message: the k-th send and the k-th receive of a connection."""
    if order is None:
        return []
    pairs: list[tuple[StepRef, StepRef]] = []
    for link, sender in order.code.senders.items():
        receiver = order.code.receivers.get(link)
        if receiver is not None:
            outgoing = [t.ref for t in sender.transfers if t.sends]
            incoming = [t.ref for t in receiver.transfers if t.receives]
            pairs += zip(outgoing, incoming, strict=False)
    return pairs
