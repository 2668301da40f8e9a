"""Lowered schedules: executed as a runtime would, inside every limit; damaged ones are caught."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stragglar.backends.model import run_model
from stragglar.backends.msccl.lower import lower, lower_program
from stragglar.backends.msccl.model import run, verify
from stragglar.backends.msccl.options import LowerOptions
from stragglar.backends.msccl.program import Buffer, OpCode, Program
from stragglar.backends.msccl.rules import check_program, check_text
from stragglar.schedules import InfeasibleError, UsageError, certify
from stragglar.schedules.published import import_published
from stragglar.synth import ALGORITHMS, Request, synthesize

PORTABLE = {OpCode.SEND, OpCode.RECV, OpCode.COPY, OpCode.REDUCE, OpCode.NOP}


@st.composite
def small_requests(draw, most=10):
    n = draw(st.integers(2, most))
    return Request(
        ranks=n,
        late=(draw(st.integers(0, n - 1)),),
        algorithm=draw(st.sampled_from(list(ALGORITHMS))),
        chunks=draw(st.integers(1, 3 * n)),
    )


@settings(max_examples=40)
@given(small_requests(), st.booleans(), st.booleans())
def test_every_lowered_schedule_is_right_in_the_model(request, in_place, fused):
    """`lower` itself reads the text back and executes it; here its numbers are compared with numpy's."""
    schedule = synthesize(request)
    options = LowerOptions("msccl-executor" if fused else "portable", in_place=in_place, fused=fused)
    lowered = lower(schedule, options)
    assert lowered.report.ok and not check_text(lowered.text, options.runtime)
    assert {step.op for *_, step in lowered.program.steps()} <= PORTABLE | (
        {OpCode.RECV_REDUCE_COPY} if fused else set()
    )
    inputs = np.random.default_rng(1).integers(-99, 99, size=(schedule.ranks, 3 * schedule.chunks))
    machine = run(lowered.program, [row.copy() for row in inputs], slot_elements=4, iterations=1)
    assert not machine.problems
    for output in machine.outputs[0].values():
        assert (output == inputs.sum(axis=0)).all()


@settings(max_examples=20)
@given(st.integers(3, 12), st.integers(1, 3), st.data())
def test_stragglar_overlaps_the_whole_pre_phase(n, m, data):
    """Without the late rank's kernel the early ranks end with exactly the sums the pre phase promises."""
    late = data.draw(st.integers(0, n - 1))
    schedule = synthesize(Request(n, (late,), refine=m))
    lowered = lower(schedule)
    assert lowered.report.pre_phase is not None and lowered.report.pre_phase.complete
    inputs = np.random.default_rng(2).integers(-99, 99, size=(n, 6 * schedule.chunks))
    machine = run(lowered.program, [row.copy() for row in inputs], slot_elements=2, absent={late})
    promised = run_model(schedule, inputs, "sum", upto="pre")
    width = inputs.shape[1] // schedule.chunks
    owned = _owned(schedule, late)
    for rank, chunks in owned.items():
        for chunk in chunks:
            part = slice(chunk * width, (chunk + 1) * width)
            assert (machine.buffer(rank, Buffer.INPUT)[part] == promised[rank][part]).all()
    machine.launch({late})
    machine.run()
    assert all((output == inputs.sum(axis=0)).all() for output in machine.outputs[0].values())


def _owned(schedule, late):
    """Chunks whose early sum each rank has after `pre`: those that it gives or that the late rank adds to."""
    parts = np.zeros((schedule.ranks, schedule.ranks * schedule.chunks), dtype=np.int64)
    for rank in range(schedule.ranks):
        parts[rank] = np.where(np.arange(parts.shape[1]) % schedule.ranks == rank, 1, 0)
    held = run_model(schedule, parts, "sum", upto="pre").reshape(schedule.ranks, schedule.chunks, -1)
    early = np.ones(schedule.ranks, dtype=np.int64)
    early[late] = 0
    return {r: np.flatnonzero((held[r] == early).all(axis=1)).tolist() for r in schedule.early}


def test_phases_have_blocks_and_channels_of_their_own():
    """In one block only the first slice of the ReduceScatter would overlap the delay."""
    program = lower(synthesize(Request(8, (3,), refine=2))).program
    for gpu in program.gpus:
        pre = [b for b in gpu.blocks if b.channel == 0]
        post = [b for b in gpu.blocks if b.channel != 0]
        assert len(pre) == (0 if gpu.rank == 3 else 2)
        assert all(3 in (b.send_peer, b.recv_peer) or b.channel for b in post)
        assert not any(3 in (b.send_peer, b.recv_peer) for b in pre)


@pytest.mark.parametrize("family", list(ALGORITHMS))
@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_the_rounds_survive_lowering(family, n):
    """The longest chain of messages in the file is as long as the schedule has rounds."""
    schedule = synthesize(Request(n, (n // 2,), family))
    report = lower(schedule).report
    made = certify(schedule).rounds
    assert (report.rounds.pre, report.rounds.post) == (made["pre"], made["post"])


def test_same_schedule_same_bytes():
    first, second = (lower(synthesize(Request(11, (4,), refine=2))).text for _ in range(2))
    assert first == second


@pytest.mark.parametrize("options", [{}, {"in_place": False}, {"instances": 3}, {"protocol": "LL128"}])
@pytest.mark.parametrize("chunks", [7, 64, 128])
def test_options_and_powers_of_two(chunks, options):
    lowered = lower(synthesize(Request(8, (3,), chunks=chunks)), LowerOptions(**options))
    assert lowered.program.chunks == chunks * options.get("instances", 1)
    assert lowered.report.ok


def test_published_schedules_are_lowered_like_ours(data_dir):
    for n in (6, 8, 12):
        schedule = import_published((data_dir / f"published_{n}.txt").read_text(), "published")
        assert lower(schedule).report.ok


def test_many_ranks_share_blocks_or_are_refused_with_what_would_fit():
    blocks = max(len(g.blocks) for g in lower_program(synthesize(Request(40, (5,))), LowerOptions()).gpus)
    assert blocks <= 64
    schedule = synthesize(Request(72, (5,)))
    with pytest.raises(InfeasibleError, match=r"72 ranks .* do not fit .*64.*; try fewer ranks"):
        lower_program(schedule, LowerOptions())
    assert lower_program(schedule, LowerOptions(runtime="msccl-executor")).ranks == 72
    with pytest.raises(InfeasibleError, match="channel-count"):
        lower_program(synthesize(Request(4, (0,))), LowerOptions(instances=32))
    with pytest.raises(InfeasibleError, match="--fused"):
        lower_program(synthesize(Request(4, (0,))), LowerOptions(runtime="rccl", fused=True))


@pytest.mark.parametrize(
    "options",
    [
        {"runtime": "nccl"},
        {"protocol": "simple"},
        {"instances": 0},
        {"min_bytes": 9, "max_bytes": 9},
        {"max_bytes": 1 << 63},
        {"name": "x" * 64},
    ],
)
def test_contradictory_options(options):
    with pytest.raises(UsageError):
        LowerOptions(**options)


def _edited(program: Program, rank: int, block: int, step: int, **changes: object) -> Program:
    gpu = program.gpus[rank]
    old = gpu.blocks[block]
    steps = (*old.steps[:step], replace(old.steps[step], **changes), *old.steps[step + 1 :])
    blocks = (*gpu.blocks[:block], replace(old, steps=steps), *gpu.blocks[block + 1 :])
    gpus = (*program.gpus[:rank], replace(gpu, blocks=blocks), *program.gpus[rank + 1 :])
    return replace(program, gpus=gpus)


def _problem(program: Program) -> bool:
    return bool(check_program(program)) or not verify(program).ok


@pytest.mark.parametrize("in_place", [True, False])
def test_a_lost_dependency_is_caught(in_place):
    """Drop one wait at a time: a race, unless a chain of messages or the order of sends implies the wait."""
    program = lower(synthesize(Request(5, (2,), refine=2)), LowerOptions(in_place=in_place)).program
    waits = caught = 0
    for gpu, block, step in program.steps():
        if step.dep_block < 0 or step.op is OpCode.NOP:
            continue
        dependee = gpu.blocks[step.dep_block].steps[step.dep_step]
        if step.op is OpCode.SEND and dependee.op is OpCode.SEND:
            continue
        waits += 1
        damaged = _edited(program, gpu.rank, block.id, step.index, dep_block=-1, dep_step=-1)
        caught += not verify(damaged, slices=(1,), iterations=1).ok
    assert waits > 30 and caught > 0.6 * waits, (waits, caught)


@pytest.mark.parametrize("field", ["src_offset", "dst_offset"])
def test_a_wrong_offset_is_caught(field):
    program = lower(synthesize(Request(4, (1,)))).program
    seen = 0
    for gpu, block, step in program.steps():
        reads = field == "src_offset" and step.op in (OpCode.SEND, OpCode.REDUCE, OpCode.COPY)
        writes = field == "dst_offset" and step.op in (OpCode.RECV, OpCode.REDUCE, OpCode.COPY)
        if not (reads or writes):
            continue
        moved = (getattr(step, field) + 1) % 3
        if moved != getattr(step, field):
            seen += 1
            assert _problem(_edited(program, gpu.rank, block.id, step.index, **{field: moved})), step
    assert seen > 10


@pytest.mark.slow
@pytest.mark.parametrize("n", range(2, 17))
def test_every_late_rank_and_refinement(n):
    for late in range(n):
        for m in (1, 2, 3):
            schedule = synthesize(Request(n, (late,), refine=m))
            for in_place in (True, False):
                report = lower(schedule, LowerOptions(in_place=in_place)).report
                assert report.ok and report.rounds.post == certify(schedule).rounds["post"]
