"""An MSCCL program for the terminal: what is wrong, its blocks, and its critical path."""

from __future__ import annotations

from collections.abc import Iterator

from ...schedules.svg_paper import plain
from .program_data import Analysis

MOST = 20


def program_text(found: Analysis, ranks: range | None = None) -> str:
    """Lines that end in newlines; `ranks`: whose thread blocks to list, None: all."""
    return "".join(f"{line}\n" for line in _lines(found, ranks))


def _lines(found: Analysis, ranks: range | None) -> Iterator[str]:
    program = found.program
    late = ", ".join(map(str, found.late)) or "none"
    yield f"{plain(program.name)}: {program.ranks} ranks, {program.chunks} chunks, late: {late}"
    place = "in place" if program.in_place else "out of place"
    yield f"{plain(program.protocol)}, {program.channels} channels, {place}"
    if found.report is not None:
        yield f"rounds: pre {found.report.rounds.pre}, post {found.report.rounds.post}"
    yield "NOT VALID" if found.findings else "valid: executed in the runtime model"
    yield from (f"! {plain(line, 300)}" for line in found.findings[:MOST])
    if len(found.findings) > MOST:
        yield f"! and {len(found.findings) - MOST} more"
    yield "\nthread blocks"
    on_path = {(ref.rank, ref.block) for ref in found.critical}
    for gpu in program.gpus:
        if ranks is not None and gpu.rank not in ranks:
            continue
        for block in gpu.blocks:
            ends = [f"sends to {block.send_peer}"] * (block.send_peer >= 0)
            ends += [f"receives from {block.recv_peer}"] * (block.recv_peer >= 0)
            mark = "*" if (gpu.rank, block.id) in on_path else " "
            bad = "!" if any(place[:2] == (gpu.rank, block.id) for place in found.places) else " "
            what = f"{', '.join(ends) or 'local':<32} channel {block.channel:<3} {len(block.steps):>4} steps"
            yield f"{mark}{bad}rank {gpu.rank:<4} tb {block.id:<4} {what}"
    if found.critical:
        yield f"\ncritical path (*): {len(found.critical)} messages"
        yield from _path(found)


def _path(found: Analysis) -> Iterator[str]:
    steps = {(g.rank, b.id, s.index): (b, s) for g, b, s in found.program.steps()}
    for place, ref in enumerate(found.critical):
        block, step = steps[ref]
        cells = (
            f"{step.src_buffer}[{step.src_offset}]"
            if step.count == 1
            else f"{step.src_buffer}[{step.src_offset}..{step.src_offset + step.count - 1}]"
        )
        yield f"{place:>5}  {ref!s:<28} {step.op:<5}{cells} to rank {block.send_peer}"
