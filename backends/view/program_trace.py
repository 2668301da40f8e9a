"""An MSCCL program as Chrome trace events: a process a rank, a thread a thread block, in modelled time."""

from __future__ import annotations

from collections.abc import Iterator

from ...schedules import Link, UsageError
from ...schedules.svg_paper import plain
from ..msccl.model_code import StepRef
from ..msccl.program import RankProgram, Step, ThreadBlock
from .chrome import Event, arrive_words, arrow, file_text, moment, process, rank_words, span, thread
from .program_data import MOST_LINES, Analysis
from .program_time import Timing, program_times

WAITS = 0
"""The thread that says when a rank is absent; its thread blocks follow in the order of the file."""

SHOWN = 1e-6
"""Least seconds of what never happens, so that it can be seen."""


def program_trace_text(
    found: Analysis, size: float, link: Link, delay: float, ranks: range | None = None
) -> str:
    """The trace file of an analysed program.

    Steps that never happen stand as `never` from where their block stops to the end; findings are in
    `otherData`. Arguments as of `program_svg.program_svg`.

    Raises:
        UsageError: no such rank, or a program that cannot be loaded, whose steps have no times.
    """
    shown = [gpu for gpu in found.program.gpus if ranks is None or gpu.rank in ranks]
    if not shown:
        raise UsageError(f"no such rank to show: the ranks are 0..{found.program.ranks - 1}")
    if found.order is None:
        why = plain(found.findings[0], 200)
        raise UsageError(f"this program cannot be loaded, so its steps have no times: {why}")
    timing = program_times(found, size, link, delay)
    facts = {
        "what": "modelled time (alpha-beta on the order of the runtime model), not measured",
        "program": plain(found.program.name),
        "late": list(found.late),
        "bytes": size,
        "alpha_seconds": link.alpha,
        "bandwidth_bytes_per_second": link.bandwidth,
        "delay_seconds": delay,
        "post_seconds": timing.post_seconds,
        "valid": not found.findings,
        "findings": [plain(line, 400) for line in found.findings[:MOST_LINES]],
    }
    return file_text(facts, _events(found, timing, shown))


def _events(found: Analysis, timing: Timing, shown: list[RankProgram]) -> Iterator[Event]:
    for gpu in shown:
        late = " (late)" if gpu.rank in found.late else ""
        yield from process(gpu.rank, f"{rank_words(gpu.rank, found.program.ranks)}{late}", gpu.rank)
        yield from thread(gpu.rank, WAITS, "arrival")
        for place, block in enumerate(gpu.blocks, start=1):
            yield from thread(gpu.rank, place, _name(block))
    for gpu in shown:
        come = timing.arrivals[gpu.rank]
        if come > 0:
            yield span(gpu.rank, WAITS, "wait", "absent", 0.0, come)
        for place, block in enumerate(gpu.blocks, start=1):
            yield from _block(found, timing, gpu.rank, block, place)
    yield from _arrivals(timing, shown)
    places = {(gpu.rank, b.id): place for gpu in shown for place, b in enumerate(gpu.blocks, start=1)}
    for index, message in enumerate(timing.messages):
        here, there = message.sender, message.receiver
        if here[:2] in places and there[:2] in places and there in timing.spans:
            source = here.rank, places[here[:2]], message.start
            yield from arrow(index, source, (there.rank, places[there[:2]], *timing.spans[there]))


def _arrivals(timing: Timing, shown: list[RankProgram]) -> Iterator[Event]:
    for come in sorted({timing.arrivals[gpu.rank] for gpu in shown} - {0.0}):
        group = [gpu.rank for gpu in shown if timing.arrivals[gpu.rank] == come]
        yield moment(group[0], WAITS, arrive_words(group), come)


def _block(found: Analysis, timing: Timing, rank: int, block: ThreadBlock, row: int) -> Iterator[Event]:
    critical, never = set(found.critical), set(timing.never)
    free = timing.arrivals[rank]
    for step in block.steps:
        ref = StepRef(rank, block.id, step.index)
        if ref in timing.spans:
            start, end = timing.spans[ref]
            category = "critical" if ref in critical else step.op.value
            yield span(rank, row, category, _words(block, step), start, end, _facts(found, ref, step))
            free = end
        elif ref in never:  # the first one; those behind it wait for the block
            facts, end = _facts(found, ref, step), max(timing.end, free + SHOWN)
            yield span(rank, row, "never", f"never: {_words(block, step)}", free, end, facts)
            return


def _name(block: ThreadBlock) -> str:
    ends = [f"from {block.recv_peer}"] * (block.recv_peer >= 0) + [f"to {block.send_peer}"] * (
        block.send_peer >= 0
    )
    return f"tb {block.id} {' '.join(ends) or 'local'} ch {block.channel}"


def _words(block: ThreadBlock, step: Step) -> str:
    what = "chunk" if step.count == 1 else f"{step.count} chunks from"
    words = f"{step.op} {what} {step.src_buffer}[{step.src_offset}]"
    words += f" from {block.recv_peer}" * step.op.receives
    return words + f" to {block.send_peer}" * step.op.sends


def _facts(found: Analysis, ref: StepRef, step: Step) -> Event:
    facts: Event = {"step": step.index, "type": step.op.value, "count": step.count}
    facts["src"] = f"{step.src_buffer}[{step.src_offset}]"
    facts["dst"] = f"{step.dst_buffer}[{step.dst_offset}]"
    if step.dep_block >= 0:
        facts["waits for"] = f"tb {step.dep_block} step {step.dep_step}"
    places = (ref, (ref.rank, ref.block, -1), (ref.rank, -1, -1))
    wrong = next((found.places[place] for place in places if place in found.places), "")
    return facts | ({"wrong": plain(wrong, 400)} if wrong else {})
