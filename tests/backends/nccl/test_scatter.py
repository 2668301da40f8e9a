"""The ReduceScatter before the late ranks as NCCL's own, in a communicator of the early ranks."""

from __future__ import annotations

import re

import pytest

from stragglar.backends.nccl.scatter import scatter_owners
from stragglar.synth import Request, synthesize
from stragglar.synth.several import groups_schedule

from .conftest import CAUGHT

ROOT = "const int root = member_[schedule_.owners[share.first]];"
TO = "char* to = out_ + static_cast<size_t>(member_[rank_]) * length * size_;"
COLOR = "early ? 0 : NCCL_SPLIT_NOCOLOR"
SHARE = "ncclReduce(at(in_, part), at(out_, part), part.length,"


def seeded(name):
    return f'double_seeded("{name}")'


EDITS = {
    "executor.h": [
        (ROOT, f"{ROOT[:-1].replace('= ', '= (')} + ({seeded('wrong root')} && rank_ == 1)) % members_;"),
        (TO, TO.replace("member_[rank_]", f"(member_[rank_] + {seeded('wrong offset')}) % members_")),
        (COLOR, f"early || {seeded('no NOCOLOR')} ? 0 : NCCL_SPLIT_NOCOLOR"),
        (SHARE, SHARE.replace("part.length", f"part.length - ({seeded('wrong count')} && rank_ == 1)")),
    ]
}


@pytest.mark.parametrize("n", [3, 4, 5, 8, 16])
def test_each_sum_has_one_owner_among_the_early_ranks(n):
    for late in {0, n // 2, n - 1}:
        schedule = synthesize(Request(n, (late,)))
        early, owners = scatter_owners(schedule)
        assert early == tuple(r for r in range(n) if r != late)
        assert len(owners) == schedule.chunks and set(owners) == set(early)


def test_other_beginnings_stay_messages():
    assert scatter_owners(synthesize(Request(2, (0,)))) is None, "one early rank"
    assert scatter_owners(synthesize(Request(4, (), "ring"))) is None
    assert scatter_owners(synthesize(Request(8, (3,), "merge-allreduce"))) is None, "an AllReduce"


@pytest.mark.parametrize(("n", "late"), [(3, 0), (4, 3), (8, 3)])
def test_messages_and_nccl_give_the_same(double, execute, n, late):
    program = double.build(synthesize(Request(n, (late,))))
    for mode in ("stream", "graph"):
        for pre in ("native", "p2p"):
            done = execute(program, mode, "1,6,97,840", "f16,f64,i32", "sum,avg,max", 0, pre)
            assert done.code == 0 and ", 0 wrong elements" in done.out, done.err[-2000:]


def test_several_late_groups(double, execute):
    for groups in (((2,), (5,)), ((1, 2), (6,))):
        program = double.build(groups_schedule(8, groups, 7))
        done = execute(program, "stream", "1,64,1003", "f32,i64", "sum,avg", 0, DOUBLE_JITTER_US=100)
        assert done.code == 0 and ", 0 wrong elements" in done.out, done.err[-2000:]


@pytest.mark.parametrize(
    ("bug", "words"),
    [
        ("", ""),
        ("wrong root", "mismatch: rank"),
        ("wrong count", "mismatch: rank"),
        ("wrong offset", "wrong offset: rank"),
        # The late rank's call is one too many, and which of its faults is met first is a matter of threads.
        ("no NOCOLOR", "(short buffer|wrong offset): rank"),
    ],
)
def test_seeded_bugs(double, execute, merge8, bug, words):
    program = double.build(merge8, edits=EDITS)
    # 840 elements: equal shares, ncclReduceScatter; 1003: unequal, ncclReduce.
    done = execute(program, "stream", "840,1003", "f32", "sum", 0, SEEDED_BUG=bug, DOUBLE_STALL_MS=700)
    assert done.code == (CAUGHT if bug else 0) and re.search(words, done.err), (done.code, done.err[-1000:])
