"""Every legality rule catches what it is for, names it and where, and the tables are complete."""

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest

from stragglar.backends.msccl.lexical import LEXICAL_RULES, pieces
from stragglar.backends.msccl.profiles import EXECUTOR, MSCCL, PORTABLE, RCCL, Profile
from stragglar.backends.msccl.program import Buffer, OpCode, Program, RankProgram, Step, ThreadBlock
from stragglar.backends.msccl.rules import (
    SCHEMA_RULES,
    STRUCTURE_RULES,
    check_program,
    check_text,
    require_legal,
    summary,
)
from stragglar.backends.msccl.violations import Level
from stragglar.backends.msccl.xml_read import read_program
from stragglar.schedules.errors import InvalidScheduleError, UsageError

GOOD = (Path(__file__).parents[2] / "data" / "msccl_good.xml").read_text()
PROGRAM = read_program(GOOD)


def step(tb: int, number: int, /, **changes: object) -> Program:
    """The good program with one step of rank 0 changed."""
    return edit(lambda b, s: replace(s, **changes) if (b, s.index) == (tb, number) else s)


def edit(change: Callable[[int, Step], Step]) -> Program:
    gpu = PROGRAM.gpus[0]
    blocks = tuple(replace(b, steps=tuple(change(b.id, s) for s in b.steps)) for b in gpu.blocks)
    return replace(PROGRAM, gpus=(replace(gpu, blocks=blocks), PROGRAM.gpus[1]))


def block(tb: int, **changes: object) -> Program:
    """The good program with one thread block of rank 0 changed."""
    gpu = PROGRAM.gpus[0]
    blocks = tuple(replace(b, **changes) if b.id == tb else b for b in gpu.blocks)
    return replace(PROGRAM, gpus=(replace(gpu, blocks=blocks), PROGRAM.gpus[1]))


def gpu(**changes: object) -> Program:
    return replace(PROGRAM, gpus=(replace(PROGRAM.gpus[0], **changes), PROGRAM.gpus[1]))


def local(*steps: Step) -> Program:
    """The good program with a third thread block in rank 0."""
    return gpu(blocks=(*PROGRAM.gpus[0].blocks, ThreadBlock(2, -1, -1, 0, steps)))


def re(index: int, /, **changes: object) -> Step:
    made = Step(index, OpCode.REDUCE, Buffer.SCRATCH, 0, Buffer.INPUT, 0, 1)
    return replace(made, **changes)


SEND, RECV = PROGRAM.gpus[0].blocks
NOP = Step(0, OpCode.NOP, dep_block=0, dep_step=0)
BROKEN: dict[str, list[Program]] = {
    "name-length": [replace(PROGRAM, name="n" * 64)],
    "protocol-known": [replace(PROGRAM, protocol="simple")],
    "collective-known": [replace(PROGRAM, collective="custom")],
    "channel-count": [replace(PROGRAM, channels=0), replace(PROGRAM, channels=33)],
    "chunk-count": [replace(PROGRAM, chunks=0)],
    "size-range": [
        replace(PROGRAM, max_bytes=0),
        replace(PROGRAM, min_bytes=-1),
        replace(PROGRAM, min_bytes=8, max_bytes=8),
    ],
    "placement": [replace(PROGRAM, in_place=False)],
    "ranks-complete": [
        replace(PROGRAM, ranks=1),
        replace(PROGRAM, ranks=3),
        replace(PROGRAM, gpus=PROGRAM.gpus[:1]),
        replace(PROGRAM, gpus=PROGRAM.gpus[:1] * 2),
        gpu(rank=-1),
    ],
    "buffer-chunks": [gpu(input_chunks=3), gpu(output_chunks=1), gpu(scratch_chunks=-1)],
    "node-count": [
        gpu(blocks=tuple(ThreadBlock(k, -1, -1, 0, tuple(re(i) for i in range(64))) for k in range(64)))
    ],
    "block-ids": [block(0, id=1), block(1, id=2), gpu(blocks=())],
    "channel-in-range": [block(0, channel=1), block(0, channel=-1)],
    "peer-in-range": [block(0, send_peer=0), block(0, send_peer=2), block(1, recv_peer=-2)],
    "blocks-per-channel": [
        gpu(blocks=tuple(ThreadBlock(k, 1, -1, 0, ()) for k in range(33))),
        gpu(blocks=tuple(ThreadBlock(k, -1, 1, 0, ()) for k in range(33))),
    ],
    "step-numbers": [step(0, 1, index=2), step(0, 1, index=0)],
    "step-count": [local(*(re(k) for k in range(65)))],
    "op-known": [step(1, 0, op=OpCode.RECV_REDUCE_COPY)],
    "op-has-peer": [block(0, send_peer=-1), block(1, recv_peer=-1)],
    "count-range": [step(0, 0, count=0), step(1, 1, count=72), step(1, 1, count=-1)],
    "in-buffer": [
        step(0, 0, src_offset=2),
        step(0, 0, src_offset=-1),
        step(0, 0, count=2),
        step(1, 0, dst_offset=1),
        step(1, 0, dst_buffer=Buffer.OUTPUT),
        step(1, 1, src_buffer=Buffer.INPUT, src_offset=5),
        replace(
            local(replace(re(0), src_buffer=Buffer.INPUT, src_offset=40000)),
            gpus=(
                replace(local(re(0, src_buffer=Buffer.INPUT, src_offset=40000)).gpus[0], input_chunks=50000),
            ),
        ),
    ],
    "nop-waits": [
        local(NOP),
        local(NOP, re(1)),
        local(replace(NOP, dep_block=-1), re(1, dep_block=0, dep_step=0)),
    ],
    "reduce-merging": [local(re(0), re(1)), local(re(0), replace(NOP, index=1), re(2))],
    "dependency": [
        step(0, 1, dep_block=9),
        step(0, 1, dep_block=-2),
        step(0, 1, dep_block=200),
        step(0, 1, dep_step=3),
        step(0, 1, dep_step=-1),
        step(0, 1, dep_step=0),
        step(1, 1, has_dependents=False),
        step(1, 1, op=OpCode.NOP, dep_block=0, dep_step=0),
    ],
    "connection-single": [
        gpu(blocks=(*PROGRAM.gpus[0].blocks, ThreadBlock(2, 1, -1, 0, ()))),
        gpu(blocks=(*PROGRAM.gpus[0].blocks, ThreadBlock(2, -1, 1, 0, ()))),
    ],
    "connection-ends": [
        replace(block(0, channel=1), channels=2),
        replace(block(1, channel=1), channels=2),
        gpu(blocks=PROGRAM.gpus[0].blocks[:1]),
    ],
    "transfers-paired": [
        block(0, steps=SEND.steps[:1]),
        block(1, steps=RECV.steps[:2]),
        block(0, steps=()),
        block(1, steps=(*RECV.steps, replace(RECV.steps[2], index=3))),
        step(0, 0, count=2, src_offset=0),
    ],
    "no-deadlock": [
        step(0, 0, dep_block=0, dep_step=0),
        step(0, 0, dep_block=0, dep_step=1),
        step(0, 0, dep_block=1, dep_step=2),
        step(1, 0, dep_block=1, dep_step=1),
    ],
}
BROKEN_TEXT = {
    "file-not-empty": " \n",
    "no-declaration": "<?xml version='1.0'?>\n" + GOOD,
    "no-byte-order-mark": "\ufeff" + GOOD,
    "no-text": GOOD.replace("\n  <gpu", "\n  hello\n  <gpu"),
    "no-tabs": GOOD.replace("  <gpu", "\t<gpu"),
    "tag-layout": GOOD.replace("</gpu>", "</gpu >"),
    "value-length": GOOD.replace('"good"', f'"{"é" * 128}"'),
    "attribute-count": GOOD.replace("<gpu ", "<gpu" + " " * 14),
    "no-references": GOOD.replace("good", "g&#111;d"),
    "comment-start": "<!--a=b-->" + GOOD,
    "well-formed": GOOD.replace("</algo>", ""),
    "attribute-missing": GOOD.replace(' minBytes="0"', ""),
    "attribute-value": GOOD.replace('type="re"', 'type="add"'),
    "gpu-duplicate": GOOD.replace('gpu id="1"', 'gpu id="0"'),
    "step-child": GOOD.replace("/>", "><a/></step>", 1),
    "thread-count": GOOD.replace(" coll", ' nthreads="33" coll'),
}


def test_the_good_file_is_legal_everywhere() -> None:
    for runtime in ("portable", "msccl", "msccl-executor", "rccl"):
        assert check_text(GOOD, runtime) == []
        assert check_text(GOOD.encode(), runtime) == []
        require_legal(PROGRAM, runtime)


def test_every_rule_has_a_name_and_a_mutation() -> None:
    structure = [rule.name for rule in STRUCTURE_RULES]
    names = [*LEXICAL_RULES, *SCHEMA_RULES, *structure]
    assert len(set(names)) == len(names)
    assert set(BROKEN) == set(structure)
    assert set(BROKEN_TEXT) == {*LEXICAL_RULES, *SCHEMA_RULES}
    assert all(rule.meaning for rule in STRUCTURE_RULES)


@pytest.mark.parametrize(
    ("rule", "program"), [(rule, program) for rule, programs in BROKEN.items() for program in programs]
)
def test_structure_rule(rule: str, program: Program) -> None:
    found = check_program(program)
    assert rule in {violation.rule for violation in found}
    assert all(violation.level is Level.STRUCTURE for violation in found)


@pytest.mark.parametrize("rule", BROKEN_TEXT)
def test_text_rule(rule: str) -> None:
    found = {violation.rule: violation for violation in check_text(BROKEN_TEXT[rule])}
    assert rule in found
    assert found[rule].level is (Level.LEXICAL if rule in LEXICAL_RULES else Level.SCHEMA)


def test_a_violation_says_where() -> None:
    (found,) = check_program(step(1, 1, count=2, src_offset=0, dst_offset=0, has_dependents=True))
    assert (found.rule, found.rank, found.block, found.step) == ("in-buffer", 0, 1, 1)
    assert str(found) == "in-buffer: gpu 0 tb 1 step 1: src chunks 0..1 are outside s, which has 1"
    (found,) = check_text(GOOD.replace("  <gpu", "\t<gpu", 1))
    assert str(found).startswith("no-tabs: line 1: ") or found.line in (1, 2)
    with pytest.raises(InvalidScheduleError, match="not a program for rccl: in-buffer: gpu 0 tb 0 step 0"):
        require_legal(step(0, 0, src_offset=7), "rccl")


def test_reports_are_bounded() -> None:
    many = local(*(re(k, count=0) for k in range(60)))
    found = [violation for violation in check_program(many) if violation.rule == "count-range"]
    assert len(found) == 10
    assert summary(found).endswith("; and 7 more")


def test_no_such_runtime() -> None:
    with pytest.raises(UsageError, match="portable msccl msccl-executor rccl"):
        check_text(GOOD, "nccl")


@pytest.mark.parametrize(
    ("steps", "legal"),
    [
        ([re(0), re(1)], True),  # added one after the other in one pass: what merging is for
        ([re(k) for k in range(20)], True),  # cut after the block's 16th
        ([re(0, has_dependents=True), *(re(k) for k in range(1, 18))], True),
        ([re(k, has_dependents=k < 16) for k in range(34)], False),  # 18 at once, past the 16th
        ([re(0, count=2, src_offset=0, src_buffer=Buffer.INPUT), re(1, src_buffer=Buffer.INPUT)], False),
        (
            [
                re(0, src_buffer=Buffer.INPUT, src_offset=1),
                re(1, src_buffer=Buffer.INPUT, src_offset=0),
            ],
            False,  # the second reads the destination
        ),
        ([re(0), re(1, dep_block=0, dep_step=0)], True),  # not merged
        ([re(0), Step(1, OpCode.COPY, Buffer.SCRATCH, 0, Buffer.SCRATCH, 0, 1), re(2)], True),
    ],
)
def test_merged_reductions_for_runtimes_that_merge(steps: list[Step], legal: bool) -> None:
    found = {violation.rule for violation in check_program(local(*steps), "msccl")}
    assert ("reduce-merging" in found) is not legal, found


def test_equal_step_objects_are_still_different_steps() -> None:
    """A lowering may reuse one frozen step in many places; the deadlock check must not mix them up."""
    send = (Step(0, OpCode.SEND, src_offset=0, dst_offset=0, count=1),)
    recv = (Step(0, OpCode.RECV, dst_buffer=Buffer.INPUT, dst_offset=0, count=1),)

    def rank(number: int, out: int, into: int) -> RankProgram:
        return RankProgram(
            number, 2, 0, 0, (ThreadBlock(0, out, -1, 0, send), ThreadBlock(1, -1, into, 0, recv))
        )

    ring = replace(PROGRAM, ranks=3, gpus=(rank(0, 1, 2), rank(1, 2, 0), rank(2, 0, 1)))
    assert check_program(ring) == []


def test_messages_in_a_circle_deadlock() -> None:
    """Each rank receives before it sends, in one thread block."""
    recv = Step(0, OpCode.RECV, dst_buffer=Buffer.INPUT, dst_offset=0, count=1)
    send = Step(1, OpCode.SEND, src_offset=0, dst_offset=0, count=1)
    gpus = tuple(RankProgram(r, 2, 0, 0, (ThreadBlock(0, 1 - r, 1 - r, 0, (recv, send)),)) for r in (0, 1))
    (found,) = check_program(replace(PROGRAM, gpus=gpus))
    assert (found.rule, found.rank, found.block, found.step) == ("no-deadlock", 0, 0, 0)


def test_portable_is_the_smallest_of_all() -> None:
    real = (MSCCL, EXECUTOR, RCCL)
    for field in fields(Profile):
        values = [getattr(profile, field.name) for profile in real]
        portable = getattr(PORTABLE, field.name)
        if isinstance(portable, int) and not isinstance(portable, bool) and field.name != "threads_multiple":
            assert portable == min(values), field.name
        elif field.name in ("ops", "collectives"):
            assert portable == frozenset.intersection(*values)
        elif field.name == "required":
            assert portable == frozenset.union(*values)


def test_pieces_lose_nothing() -> None:
    for text in (*BROKEN_TEXT.values(), "<<<\"'<!--", "<!-- never closed <a b='>'>"):
        assert "".join(piece.text for piece in pieces(text)) == text
