"""The unmodified emitted sources, run on the CPU by the test double."""

from __future__ import annotations

import json

import pytest

from stragglar.schedules import UsageError
from stragglar.synth import ALGORITHMS, Request, synthesize

TYPES = "f16,bf16,f32,f64,i32,i64"
OPS = "sum,prod,max,min,avg"
AWKWARD = "0,1,2,5,7,8,63,64,65,1003"


def right(outcome):
    assert outcome.code == 0, outcome.err[-2000:]
    assert ", 0 wrong elements" in outcome.out


def schedules(n):
    for name in ALGORITHMS:
        try:
            yield synthesize(Request(n, () if name in ("ring", "rhd", "direct") else (n // 2,), name))
        except UsageError:
            yield synthesize(Request(n, (), name))
    yield synthesize(Request(n, (n - 1,), refine=3))
    if n > 2:
        yield synthesize(Request(n, (0, 1), "tree", chunks=3))


@pytest.mark.parametrize("n", range(2, 9))
def test_every_family(double, execute, n):
    for schedule in schedules(n):
        program = double.build(schedule)
        right(execute(program, "stream", "1,5,1003", "f32", "sum", 0, DOUBLE_JITTER_US=100))


def test_every_type_and_reduction_on_awkward_counts(double, execute, merge8):
    right(execute(double.build(merge8), "stream", AWKWARD, TYPES, OPS, 0))


def test_short_reductions_stay_in_the_stream(double, execute, merge8):
    """Below the threshold, above it, and with chunks on both sides of it (143 or 144 elements)."""
    program = double.build(merge8)
    for beside in (1 << 20, 576, 0):
        right(execute(program, "stream", 1003, "f32,f64", "sum", beside, DOUBLE_JITTER_US=300))


def test_a_captured_call_gives_the_same_again(double, execute, merge8):
    right(execute(double.build(merge8), "graph", "1,64,1003", "f32,bf16", "sum,avg", 0, DOUBLE_JITTER_US=100))


def test_benchmark(double, execute, merge8, tmp_path):
    program = double.build(merge8, "bench")
    log = tmp_path / "log.json"
    options = (
        "-b",
        "1K",
        "-e",
        "4K",
        "-f",
        4,
        "-n",
        2,
        "-w",
        1,
        "--late-by",
        "20ms",
        "--id-file",
        tmp_path / "id",
    )
    done = execute(program, 8, *options, "--json", log)
    assert done.code == 0, done.err
    rows = [line.split() for line in done.out.splitlines() if not line.startswith("#")]
    assert [row[4] for row in rows] == ["schedule", "p2p-ring", "ncclAllReduce"] * 2
    assert all(row[8] == row[12] == "0" for row in rows)
    assert "every checked element" in done.out and not (tmp_path / "id").exists()
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(records) == 12 and all(len(r["seconds"]) == 2 and r["wrong"] == 0 for r in records)
    # Times are from the arrival: 20 ms of delay are not in them (a busy machine may add some).
    assert min(s for r in records for s in r["seconds"]) < 0.02
    graph = execute(program, 8, *options, "-G", 1, "-d", "bf16", "-o", "avg", "--beside", 0)
    assert graph.code == 0 and "every checked element" in graph.out, graph.err


def test_benchmark_complains_in_words(double, execute, merge8, tmp_path):
    program = double.build(merge8, "bench")
    old = tmp_path / "old"
    old.write_text("x" * 128)
    for options, code, words in (
        (("-x", 1), 2, "unknown option -x"),
        (("-b", "1X"), 2, "not a size: '1X'"),
        (("-d", "f8"), 2, "unknown type f8"),
        (("--help",), 0, "usage: allreduce_bench"),
    ):
        done = execute(program, 8, *options)
        assert done.code == code and words in done.err
    assert "the schedule is for 8 ranks, 3 were started" in execute(program, 3).err
    done = execute(program, 8, DOUBLE_DEVICES=0)
    assert done.code == 4 and "rank 0: no GPU that can be used here" in done.err
    assert (
        "this machine has 2: NCCL wants one for each process"
        in execute(program, 8, DOUBLE_DEVICES=2, LOCAL_RANK=2).err
    )


@pytest.mark.slow
@pytest.mark.parametrize("n", [*range(2, 9), 16])
def test_every_family_type_and_reduction(double, execute, n):
    for schedule in schedules(n):
        program = double.build(schedule)
        for beside in (0, 1 << 20):
            right(execute(program, "stream", AWKWARD, TYPES, OPS, beside, timeout=600))
        right(execute(program, "stream", "97,1003", "f32", OPS, 0, DOUBLE_JITTER_US=200, timeout=600))
        right(execute(program, "graph", "97,1003", "f32,i64", OPS, 0, timeout=600))
