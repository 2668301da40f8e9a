"""The runtime model on hand-written programs: right ones pass, each kind of mistake is told by name."""

import re
from dataclasses import replace

import numpy as np
import pytest

from stragglar.backends.msccl.model import deadlock, pre_phase, run, verify, waiting
from stragglar.backends.msccl.model_code import StepRef
from stragglar.backends.msccl.program import Buffer, OpCode, Program, RankProgram, Step, ThreadBlock
from stragglar.schedules.errors import InvalidScheduleError, UsageError

# A block is (send peer, recv peer, channel, steps), a step "op [src] [dst] [xCOUNT] [@tb.step] [!]", where
# ! means hasdep=1. One buffer is enough for ops that use one.


def step(index, text):
    words = text.split()
    cells = [(Buffer(w[0]), int(w[1:])) for w in words[1:] if re.fullmatch(r"[ios]\d+", w)] or [
        (Buffer.INPUT, -1)
    ]
    count = next((int(w[1:]) for w in words if re.fullmatch(r"x\d+", w)), 0 if words[0] == "nop" else 1)
    dep = next((w[1:].split(".") for w in words if w[0] == "@"), (-1, -1))
    (src, at), (dst, to) = cells[0], cells[-1]
    return Step(index, OpCode(words[0]), src, at, dst, to, count, int(dep[0]), int(dep[1]), "!" in words)


def program(chunks, ranks, *, scratch=0, protocol="Simple", in_place=True, late=()):
    gpus = []
    for rank, blocks in enumerate(ranks):
        tbs = tuple(
            ThreadBlock(i, send, recv, chan, tuple(step(j, text) for j, text in enumerate(steps)))
            for i, (send, recv, chan, steps) in enumerate(blocks)
        )
        gpus.append(RankProgram(rank, chunks, chunks, scratch, tbs))
    n = len(ranks)
    return Program(
        "test", protocol, 4, chunks, n, "allreduce", in_place, not in_place, 0, 1 << 20, tuple(gpus), late
    )


def ring(n, **kw):
    ranks = []
    for r in range(n):
        reduced = [f"rrs i{(r - j) % n}" for j in range(1, n - 1)]
        copied = [f"rcs i{(r - j) % n}" for j in range(n - 2)]
        steps = [f"s i{r}", *reduced, f"rrcs i{(r + 1) % n}", *copied, f"r i{(r + 2) % n}"]
        ranks.append([((r + 1) % n, (r - 1) % n, 0, steps)])
    return program(n, ranks, **kw)


def all_pairs(n, **kw):
    ranks = []
    for r in range(n):
        peers = [p for p in range(n) if p != r]
        blocks = [
            (p, p, 0, [f"s i{p}", f"r s{i} !", f"s i{r} @{n - 1}.{n - 2}", f"r i{p}"])
            for i, p in enumerate(peers)
        ]
        local = [f"re s{i} i{r} @{i}.1" for i in range(n - 1)]
        local[-1] += " !"
        ranks.append([*blocks, (-1, -1, 0, local)])
    return program(n, ranks, scratch=n - 1, **kw)


def doubling(n):
    """Whole buffers between ranks that differ in one bit, two chunks a step."""
    ranks = []
    for r in range(n):
        blocks, local = [], []
        for bit in range(n.bit_length() - 1):
            wait = f" @{n.bit_length() - 1}.{bit - 1}" if bit else ""
            blocks.append((r ^ 1 << bit, r ^ 1 << bit, 0, [f"s i0 x2{wait}", f"r s{2 * bit} x2 !"]))
            local.append(f"re s{2 * bit} i0 x2 @{bit}.1 !")
        ranks.append([*blocks, (-1, -1, 0, local)])
    return program(2, ranks, scratch=2 * (n.bit_length() - 1))


def late_two(mixed=False):
    """Ranks 0 and 1 reduce a chunk each without rank 2, then merge with it and swap their chunks."""
    ranks = []
    for r in (0, 1):
        other = 1 - r
        pre = [f"s i{other}", "r s0 !"]
        gather = [f"s i{r} @3.0", f"r i{other}"]
        blocks = [
            (other, other, 0, pre + gather if mixed else pre),
            (-1, -1, 0, [f"re s0 i{r} @0.1 !"]),
            (2, 2, 1, [f"s i{r} @1.0", "r s1 !"]),
            (-1, -1, 0, [f"re s1 i{r} @2.1 !"]),
        ]
        ranks.append(blocks if mixed else [*blocks, (other, other, 1, gather)])
    ranks.append(
        [
            (0, 0, 1, ["s i0", "r s0 !"]),
            (1, 1, 1, ["s i1", "r s1 !"]),
            (-1, -1, 0, ["re s0 i0 @0.1", "re s1 i1 @1.1"]),
        ]
    )
    return program(2, ranks, scratch=2, late=(2,))


def swap(mine, other=None, **kw):
    """Two ranks and one chunk; each block sends and receives to and from the other rank."""
    other = other or mine
    return program(1, [[(1, 1, 0, mine)], [(0, 0, 0, other)]], scratch=1, **kw)


EXCHANGE = ["s i0", "r s0", "re s0 i0"]


@pytest.mark.parametrize(
    "made",
    [ring(3), ring(5), all_pairs(4), all_pairs(4, protocol="LL"), doubling(8), late_two(), swap(EXCHANGE)],
)
def test_right_programs_pass(made):
    report = verify(made, seeds=(1, 2))
    assert report.ok, report.summary()
    assert report.summary() == "correct"
    report.require()


@pytest.mark.parametrize("reduction", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("dtype", [np.int64, np.float64, np.int32])
@pytest.mark.parametrize(("elements", "slot"), [(1, 1), (2, 9), (7, 3), (4, 4)])
def test_numbers_are_reduced(reduction, dtype, elements, slot):
    made = all_pairs(4)
    inputs = list(np.random.default_rng(1).integers(1, 9, size=(4, 4 * elements)).astype(dtype))
    machine = run(made, inputs, reduction=reduction, slot_elements=slot, iterations=2, seed=3)
    expected = getattr(np, reduction)(inputs, axis=0)
    assert machine.finished
    assert not machine.problems
    for outputs in machine.outputs:
        assert sorted(outputs) == [0, 1, 2, 3]
        assert all((output == expected).all() for output in outputs.values())


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
@pytest.mark.parametrize("slot", [1, 6, 12, 100])
def test_several_chunks_a_step(seed, slot):
    inputs = [np.arange(12.0) * 10**r for r in range(4)]  # 2 chunks of 6
    machine = run(doubling(4), inputs, slot_elements=slot, seed=seed)
    assert all((machine.buffer(r, Buffer.INPUT) == sum(inputs)).all() for r in range(4))
    assert machine.geometry.max_count == {1: 1, 6: 1, 12: 2, 100: 16}[slot]
    assert machine.geometry.slices == (6 if slot == 1 else 1)


def test_a_slot_holds_what_the_protocol_buffers():
    inputs = [np.zeros(4 * 3, dtype=np.float32)] * 4
    slots = [run(all_pairs(4, protocol=p), inputs).geometry.slot for p in ("Simple", "LL", "LL128")]
    assert slots == [524_288, 8_192, 144_000]


def test_same_seed_same_run():
    reports = [verify(all_pairs(5), seeds=(7,)) for _ in range(2)]
    assert reports[0] == reports[1]


def test_missing_dependency_is_a_race():
    report = verify(
        program(
            1,
            [[(1, 1, 0, ["s i0", "r s0"]), (-1, -1, 0, ["re s0 i0"])], [(0, 0, 0, EXCHANGE)]],
            scratch=1,
        )
    )
    assert [str(race) for race in report.races] == [
        "rank 0: tb 0 step 0 reads i[0] while tb 1 step 0 writes it; add a dependency",
        "rank 0: tb 0 step 1 writes s[0] while tb 1 step 0 reads it; add a dependency",
    ]
    assert "rank 0 tb 1 step 0 reads s[0], which nothing has written" in report.wrong
    with pytest.raises(InvalidScheduleError, match="race: rank 0"):
        report.require()


def _changed(made, rank, block, index, **change):
    gpu = made.gpus[rank]
    old = gpu.blocks[block]
    steps = (*old.steps[:index], replace(old.steps[index], **change), *old.steps[index + 1 :])
    blocks = (*gpu.blocks[:block], replace(old, steps=steps), *gpu.blocks[block + 1 :])
    gpus = (*made.gpus[:rank], replace(gpu, blocks=blocks), *made.gpus[rank + 1 :])
    return replace(made, gpus=gpus)


@pytest.mark.parametrize("made", [all_pairs(3), all_pairs(4), late_two()])
def test_every_dependency_is_needed(made):
    tried = 0
    for gpu, block, one in made.steps():
        at = (gpu.rank, block.id, one.index)
        if one.dep_block >= 0:
            assert verify(_changed(made, *at, dep_block=-1, dep_step=-1)).races, at
            tried += 1
        if one.has_dependents:
            report = verify(_changed(made, *at, has_dependents=False))
            assert "hasdep=0" in str(report.deadlock), at
    assert tried


@pytest.mark.parametrize("made", [ring(4), all_pairs(3), late_two()])
def test_every_offset_matters(made):
    for gpu, block, one in made.steps():
        at = (gpu.rank, block.id, one.index)
        for field in ("src_offset", "dst_offset"):
            other = {field: (getattr(one, field) + 1) % made.chunks}
            if field == "src_offset" and one.op in (OpCode.RECV, OpCode.RECV_COPY_SEND):
                assert verify(_changed(made, *at, **other)).ok, at  # not used
            elif field == "dst_offset" and one.op in (OpCode.SEND, OpCode.RECV_REDUCE_SEND):
                assert verify(_changed(made, *at, **other)).ok, at
            else:
                assert not verify(_changed(made, *at, **other)).ok, at


def test_wrong_offset_is_named():
    made = program(
        2,
        [
            [(1, 1, 0, ["s i0 x2", "r s0 x2", "re s1 i0", "re s1 i1"])],
            [(0, 0, 0, ["s i0 x2", "r s0 x2", "re s0 i0 x2"])],
        ],
        scratch=2,
    )
    assert verify(made).wrong == ("rank 0 ends with rank 1's part of chunk 1 in chunk 0",)


def test_missing_reduction_is_named():
    report = verify(swap(EXCHANGE, EXCHANGE[:2]))
    assert report.wrong == ("rank 1 ends without rank 0's part of chunk 0",)


def test_double_reduction_is_named():
    report = verify(swap([*EXCHANGE, "re s0 i0"], [*EXCHANGE, "re s0 i0", "re s0 i0"]))
    assert report.wrong == (
        "rank 0 ends with rank 1's part of chunk 0 counted twice",
        "rank 1 ends with rank 0's part of chunk 0 counted 3 times",
    )


def test_uninitialised_scratch_is_named():
    report = verify(swap(["s i0", "re s0 i0", "r s0"], EXCHANGE))
    assert "rank 0 tb 0 step 1 reads s[0], which nothing has written" in report.wrong


def test_scratch_of_the_last_call_does_not_count():
    # Uninitialised again in the second call, although memory would still hold the right thing.
    machine = run(swap(["s i0", "re s0 i0", "r s0"]), [np.ones(1)] * 2, iterations=2)
    assert np.isnan(machine.outputs[1][0]).all()


OUT_OF_PLACE = ["s i0", "rrc i0 o0"]


def test_out_of_place_output_is_written_and_input_kept():
    assert verify(swap(OUT_OF_PLACE, in_place=False)).ok
    report = verify(swap([*OUT_OF_PLACE, "cpy o0 i0"], OUT_OF_PLACE, in_place=False))
    assert report.wrong == ("rank 0 changes its input i[0] out of place",)
    report = verify(swap(EXCHANGE, OUT_OF_PLACE, in_place=False))
    assert "rank 0 never writes its output o[0]" in report.wrong


def test_send_first_deadlocks_beyond_the_fifo():
    steps = ["s i0"] * 3 + ["r s0"] * 3 + ["re s0 i0"]
    report = verify(swap(steps))
    stuck = [
        f"rank {r} tb 0 step 2 (s i[0] to rank {1 - r}, channel 0) waits for FIFO space: "
        f"rank {1 - r} has not taken 2 operations"
        for r in (0, 1)
    ]
    cycle = "cycle: rank 0 tb 0 -> rank 1 tb 0 -> rank 0 tb 0"
    assert str(report.deadlock).splitlines() == [*stuck, cycle]
    assert verify(swap(steps, protocol="LL")).ok  # 8 operations fit


def test_large_steps_take_several_operations():
    # One step of 3 chunks is 1 operation while they are small, 3 where each fills a slot.
    sides = [[(1 - r, 1 - r, 0, ["s i0 x3", "r s0 x3", "re s0 i0 x3"])] for r in (0, 1)]
    made = program(3, sides, scratch=3)
    inputs = [np.arange(3)] * 2
    assert run(made, inputs, slot_elements=3).finished
    assert not run(made, inputs, slot_elements=1).finished
    assert verify(made).deadlock


def test_dependency_on_a_step_that_does_not_publish():
    blocks = [(1, 1, 0, ["s i0", "r s0"]), (-1, -1, 0, ["re s0 i0 @0.1"])]
    report = verify(program(1, [blocks, [(0, 0, 0, EXCHANGE)]], scratch=1))
    assert "waits for the flag of tb 0 step 1, which has hasdep=0" in str(report.deadlock)
    assert not report.deadlock.cycle


def test_a_later_flag_satisfies_a_wait():
    blocks = [(1, 1, 0, ["s i0", "r s0", "cpy s0 s1 !"]), (-1, -1, 0, ["re s0 i0 @0.1"])]
    assert verify(program(1, [blocks, [(0, 0, 0, EXCHANGE)]], scratch=2)).ok


def test_circular_dependencies_deadlock():
    blocks = [(-1, -1, 0, ["cpy i0 s0 @1.0 !"]), (-1, -1, 0, ["cpy i0 s1 @0.0 !"])]
    report = verify(program(1, [blocks, []], scratch=2))
    assert report.deadlock.cycle == ((0, 0), (0, 1))


def test_nops_carry_waits_and_only_so_count_as_steps():
    first = [(1, 1, 0, ["s i0 !", "r s0 !"]), (-1, -1, 0, ["nop @0.0", "re s0 i0 @0.1 !"])]
    third = [*first, (-1, -1, 0, ["cpy i0 s1 @1.1"])]
    assert verify(program(1, [third, [(0, 0, 0, EXCHANGE)]], scratch=2)).ok
    idle = [first[0], (-1, -1, 0, ["nop", "re s0 i0 @0.1 !"]), third[2]]
    report = verify(program(1, [idle, [(0, 0, 0, EXCHANGE)]], scratch=2))
    assert "tb 1 step 1, which the runtime does not count as a step" in str(report.deadlock)


def test_unmatched_messages():
    report = verify(swap([*EXCHANGE, "s i0"], EXCHANGE))
    assert "rank 0 sends more to rank 1 on channel 0 than it receives" in " ".join(report.wrong)
    report = verify(swap([*EXCHANGE, "r s0"], EXCHANGE), iterations=1)
    assert "data from rank 1, whose tb 0 has ended" in str(report.deadlock)
    made = program(1, [[(1, 1, 1, EXCHANGE)], [(0, 0, 0, EXCHANGE)]], scratch=1)
    assert "where no thread block has the other end" in str(verify(made).deadlock)


def test_messages_of_another_size():
    made = program(2, [[(1, 1, 0, ["s i0 x2", "r s0"])], [(0, 0, 0, ["s i0", "r s0 x2"])]], scratch=2)
    assert not verify(made, slices=()).wrong[0].startswith("rank 0 tb 0 step 1 expects")
    crossed = program(2, [[(1, -1, 0, ["s i0"])], [(-1, 0, 0, ["r s0 x2"])]], scratch=2)
    machine = run(crossed, [np.zeros(2)] * 2)
    assert machine.problems == ["rank 1 tb 0 step 0 expects 2 elements, but rank 0 sent 1 of them"]


def test_early_ranks_run_without_the_late_one():
    inputs = [np.array([1.0, 2.0]), np.array([10.0, 20.0]), np.array([100.0, 200.0])]
    machine = run(late_two(), inputs, absent={2})
    assert not machine.finished
    assert machine.buffer(0, Buffer.INPUT).tolist() == [11.0, 2.0]
    assert machine.buffer(1, Buffer.INPUT).tolist() == [10.0, 22.0]
    assert {str(one.on) for one in waiting(machine)} <= {"None", "(0, 2)", "(0, 3)", "(1, 2)", "(1, 3)"}
    assert "data from rank 2, whose kernel has not started" in str(deadlock(machine))
    done = pre_phase(machine, {2})
    assert done.complete
    assert done.steps == {StepRef(r, b, s) for r in (0, 1) for b, s in ((0, 0), (0, 1), (1, 0))}
    machine.launch({2})
    assert machine.run()
    assert all((machine.outputs[0][r] == [111.0, 222.0]).all() for r in range(3))


def test_phases_in_one_block_hold_back_later_slices():
    report = verify(late_two(mixed=True), slices=(1,))
    assert report.ok
    report = verify(late_two(mixed=True), slices=(3,))
    assert not report.ok
    assert report.pre_phase.missing[0].startswith(
        "rank 0 tb 0 step 0 (s i[1] to rank 1, channel 0) needs no late rank but has run for 1 of 3 slices "
        "when the late ranks come: rank 0 tb 0 step 2 (s i[0] to rank 1, channel 0) waits for the flag of"
    )
    assert not (report.wrong or report.deadlock or report.races)


def test_late_ranks_must_be_some_of_the_ranks():
    for late in ({4}, {0, 1}):
        with pytest.raises(UsageError, match="late ranks"):
            verify(swap(EXCHANGE), late=late)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (swap(["s i1"]), r"rank 0 tb 0 step 0 \(s\): i\[1..1\] is outside of its 1 chunks"),
        (swap(["s i0 x0"]), "count 0 moves nothing"),
        (swap(["s i0 @3.0"]), "depends on tb 3, which rank 0 lacks"),
        (program(1, [[(0, -1, 0, ["s i0"])], []]), "rank 0 tb 0 cannot send to rank 0"),
        (program(1, [[(-1, 7, 0, ["r i0"])], []]), "rank 0 tb 0 cannot receive from rank 7"),
        (program(1, [[(1, -1, 0, ["s i0"])] * 2, []]), "rank 0 tbs 0 and 1 both send to rank 1 on channel 0"),
    ],
)
def test_what_cannot_be_executed(made, message):
    report = verify(made)
    assert not report.ok
    assert re.search(message, report.invalid)


def test_inputs_must_fit():
    for inputs in ([np.zeros(3)] * 3, [np.zeros(4)] * 2, [np.zeros(0)] * 4):
        with pytest.raises(UsageError, match="expected 4 inputs"):
            run(all_pairs(4), inputs)
    with pytest.raises(UsageError, match="reduction 'avg'"):
        run(all_pairs(4), [np.zeros(4)] * 4, reduction="avg")
