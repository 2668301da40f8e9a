"""Collective calls that do not fit together: the double names each, so that no bug in the executor hides.

The bugs are put into the emitted sources, all in one build; SEEDED_BUG chooses. See test_seeded_bugs.py.
"""

from __future__ import annotations

import pytest

from stragglar.synth import Request, synthesize

from .conftest import CAUGHT

SPLIT = "cc(ncclCommSplit(comm_, early ? 0 : NCCL_SPLIT_NOCOLOR, rank_,"
CALL = "if (early_) scatter();"
SCATTER = "cc(ncclReduceScatter(in_, to, length, type_, op_, early_, stream_)"
REDUCE = "at(out_, part), part.length, type_, op_, root, early_, stream_)"
LOOP = "for (const Range& share : shares_) {"

EQUAL, UNEQUAL = "840", "1003"
"""Elements that seven owners share equally: ncclReduceScatter; and others: ncclReduce."""


def seeded(name: str, ranks: str = "rank_ == 1") -> str:
    return f'(double_seeded("{name}") && {ranks})'


KEY = f"rank_ * ({seeded('wrong key', 'true')} ? -1 : 1),"
EDITS = {
    "executor.h": [
        (SPLIT, f"if (!{seeded('no split')}) {SPLIT.replace('rank_,', KEY)}"),
        (CALL, f"if (early_ && !{seeded('no scatter')}) scatter();"),
        (SCATTER, SCATTER.replace("type_", f"{seeded('wrong type')} ? ncclInt32 : type_")),
        (
            REDUCE,
            REDUCE.replace("op_", f"{seeded('wrong reduction')} ? ncclMax : op_").replace(
                "root", f"{seeded('root outside')} ? members_ : root"
            ),
        ),
        (
            LOOP,
            "std::vector<Range> shares = shares_;\n"
            f"if ({seeded('wrong order')}) std::reverse(shares.begin(), shares.end());\n"
            "for (const Range& share : shares) {",
        ),
    ]
}

BUGS = [
    ("no split", EQUAL, "stall: rank"),
    ("no scatter", EQUAL, "stall: rank"),
    ("no scatter", UNEQUAL, "stall: rank"),
    ("wrong key", UNEQUAL, None),
    ("wrong type", EQUAL, "mismatch: rank"),
    ("wrong reduction", UNEQUAL, "mismatch: rank"),
    ("root outside", UNEQUAL, "wrong root: rank 1 ncclReduce: 7"),
    ("wrong order", UNEQUAL, "mismatch: rank"),
]
ADDRESS = ("-O0", "-fsanitize=address")


@pytest.mark.parametrize(("bug", "count", "words"), BUGS, ids=lambda value: str(value).replace(" ", "-"))
def test_collective_calls_that_do_not_fit(double, execute, merge8, bug, count, words):
    program = double.build(merge8, edits=EDITS)
    done = execute(program, "stream", count, "f32", "sum", 0, SEEDED_BUG=bug, DOUBLE_STALL_MS=700)
    if words is None:  # every rank agrees with the others and all are wrong
        assert done.code == 1 and "wrong elements" in done.err
    else:
        assert done.code == CAUGHT and words in done.err, (done.code, done.err[-1000:])


def test_no_bug_without_a_bug(double, execute, merge8):
    done = execute(double.build(merge8, edits=EDITS), "stream", f"{EQUAL},{UNEQUAL}", "f32", "sum", 0)
    assert done.code == 0, done.err[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("flags", [ADDRESS, ("-O0", "-fsanitize=thread")], ids=["address", "thread"])
def test_collectives_under_sanitizers(double, execute, flags):
    for schedule in (synthesize(Request(7, (6,), refine=3)), synthesize(Request(5, (1, 3)))):
        program = double.build(schedule, flags=flags)
        for mode in ("stream", "graph"):
            done = execute(
                program,
                mode,
                "1,90,97",
                "f32",
                "sum,avg",
                0,
                ASAN_OPTIONS="detect_leaks=0",
                DOUBLE_JITTER_US=200,
            )
            if "unexpected memory mapping" in done.err:
                pytest.skip("the thread sanitizer does not run on this kernel")
            assert done.code == 0 and ", 0 wrong elements" in done.out, done.err[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 5, 8, 16])
def test_both_forms_of_every_request(double, execute, n):
    requests = [Request(n, (n - 1,), refine=3), Request(n, (0,), "split"), Request(n, (n // 2,), "tree")]
    for schedule in map(synthesize, [*requests, *([Request(n, (0, 2))] if n > 3 else [])]):
        program = double.build(schedule)
        counts = f"0,1,{n - 1},{4 * schedule.chunks},1009"
        for pre in ("native", "p2p"):
            for mode in ("stream", "graph") if n < 16 else ("stream",):
                done = execute(
                    program,
                    mode,
                    counts,
                    "f16,bf16,f32,f64,i32,i64",
                    "sum,prod,max,min,avg",
                    0,
                    pre,
                    timeout=300,
                )
                assert done.code == 0 and ", 0 wrong elements" in done.out, done.err[-2000:]


def test_the_benchmark_says_how_it_begins(double, execute, merge8, tmp_path):
    sizes = ("-b", "1K", "-e", "1K", "-n", 1, "-w", 0, "--id-file", tmp_path / "id")
    says = "# before the late ranks: "
    for schedule, options, words in (
        (merge8, (), "NCCL's ReduceScatter of the early ones"),
        (merge8, ("--pre", "p2p"), "messages\n"),
        (synthesize(Request(4, (3,), "merge-allreduce")), (), "messages, since the schedule begins with no"),
    ):
        done = execute(double.build(schedule, "bench"), schedule.ranks, *sizes, *options)
        assert done.code == 0 and f"{says}{words}" in done.out, done.out + done.err
        assert done.out.count(says) == 1
    wrong = execute(double.build(merge8, "bench"), 8, *sizes, "--pre", "x")
    assert wrong.code == 2 and "--pre is native or p2p, not x" in wrong.err
