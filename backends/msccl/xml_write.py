"""Prints a `Program` as MSCCL XML: one element a line, the same bytes for the same program.

The printer decides nothing and optimises nothing. It writes every attribute that the parsers of
microsoft/msccl, Azure's executor and RCCL read, in the one layout that all three accept; what has
no such text (a name too long, a quote in a word) it refuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...schedules.errors import InvalidScheduleError
from .program import Program, RankProgram, Step, ThreadBlock
from .schema import INT32_MAX, INT64_MAX

MAX_NAME = 63  # microsoft/msccl cuts longer ones
_PRINTABLE = re.compile(r"[ -~]*")
_MARKUP = re.compile(r"[<>&\"']")  # the parsers take references such as &amp; literally
_LONGEST_VALUE = 254


def write_program(program: Program) -> str:
    """The text of the MSCCL file for a program, ending in a newline.

    Raises:
        InvalidScheduleError: a name, word or number of the program cannot be written so that every
            runtime reads it back unchanged.
    """
    if len(program.name) > MAX_NAME:
        raise InvalidScheduleError(
            f"the name has {len(program.name)} characters; {MAX_NAME} are kept, shorten it"
        )
    return "\n".join(_lines(program)) + "\n"


def _lines(program: Program) -> Iterator[str]:
    yield _open(0, "algo", _algo(program), last=not program.gpus)
    for gpu in program.gpus:
        yield _open(1, "gpu", _gpu(gpu), last=not gpu.blocks)
        for block in gpu.blocks:
            yield _open(2, "tb", _tb(block), last=not block.steps)
            for step in block.steps:
                yield _open(3, "step", _step(step), last=True)
            if block.steps:
                yield "    </tb>"
        if gpu.blocks:
            yield "  </gpu>"
    if program.gpus:
        yield "</algo>"


def _open(depth: int, element: str, attributes: dict[str, str | int], last: bool) -> str:
    words = " ".join(f'{name}="{_value(element, name, value)}"' for name, value in attributes.items())
    return f"{'  ' * depth}<{element} {words}{'/' if last else ''}>"


def _value(element: str, name: str, value: str | int) -> str:
    if isinstance(value, int):
        limit = INT64_MAX if name in ("minBytes", "maxBytes") else INT32_MAX
        if not -limit - 1 <= value <= limit:
            raise InvalidScheduleError(f"<{element}> {name}: {value} does not fit; the limit is {limit}")
        return str(int(value))
    if len(value) > _LONGEST_VALUE or not _PRINTABLE.fullmatch(value) or _MARKUP.search(value):
        raise InvalidScheduleError(
            f"<{element}> {name}: {value[:40]!r} cannot be written; use plain ASCII without < > & and "
            f"quotes, at most {_LONGEST_VALUE} characters"
        )
    return value


def _algo(program: Program) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {
        "name": program.name,
        "proto": program.protocol,
        "nchannels": program.channels,
        "nchunksperloop": program.chunks,
        "ngpus": program.ranks,
        "coll": program.collective,
        "inplace": int(program.in_place),
        "outofplace": int(program.out_of_place),
        "minBytes": program.min_bytes,
        "maxBytes": program.max_bytes,
    }
    if program.late:
        # Ours: the parsers skip attributes they do not know, and read 16 of an element; this is the 11th.
        attributes["late"] = ",".join(str(rank) for rank in program.late)
    return attributes


def _gpu(gpu: RankProgram) -> dict[str, str | int]:
    return {
        "id": gpu.rank,
        "i_chunks": gpu.input_chunks,
        "o_chunks": gpu.output_chunks,
        "s_chunks": gpu.scratch_chunks,
    }


def _tb(block: ThreadBlock) -> dict[str, str | int]:
    return {"id": block.id, "send": block.send_peer, "recv": block.recv_peer, "chan": block.channel}


def _step(step: Step) -> dict[str, str | int]:
    return {
        "s": step.index,
        "type": step.op.value,
        "srcbuf": step.src_buffer.value,
        "srcoff": step.src_offset,
        "dstbuf": step.dst_buffer.value,
        "dstoff": step.dst_offset,
        "cnt": step.count,
        "depid": step.dep_block,
        "deps": step.dep_step,
        "hasdep": int(step.has_dependents),
    }
