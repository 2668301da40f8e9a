"""Schedules that the tests start from, and strategies for random ones."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from stragglar.schedules import Op, Origin, Phase, Schedule
from stragglar.schedules.ir import phase_names
from stragglar.schedules.published import import_published
from stragglar.schedules.reduce_scatter import ring_reduce_scatter

DATA = Path(__file__).parent.parent / "data"
R, C = int(Op.REDUCE), int(Op.COPY)


@cache
def ring(ranks, run=1):
    """The ring AllReduce: 2 (n - 1) rounds; every rank owns `run` chunks."""
    runs = [(i * run, run) for i in range(ranks)]
    gather = [
        [(i, (i + 1) % ranks, *runs[(i - r) % ranks], C) for i in range(ranks)] for r in range(ranks - 1)
    ]
    scatter = ring_reduce_scatter(range(ranks), runs)
    return Schedule(ranks, (), ranks * run, (Phase.build("post", [*scatter, *gather]),), Origin("ring"))


@cache
def published(ranks):
    """A schedule that nobody here made (`tests/data`)."""
    path = DATA / f"published_{ranks}.txt"
    return import_published(path.read_text(encoding="utf-8"), str(path))


FOUR_POST = (
    ((0, 3, 0, 1, R), (3, 0, 0, 1, R)),
    ((1, 3, 1, 1, R), (3, 1, 1, 1, R), (0, 2, 0, 1, C)),
    ((2, 3, 2, 1, R), (3, 2, 2, 1, R), (0, 1, 0, 1, C), (1, 0, 1, 1, C)),
    ((1, 2, 1, 1, C), (2, 1, 2, 1, C), (3, 0, 2, 1, C)),
)


def four(pre=None, post=FOUR_POST):
    """The example of docs/format.md: 4 ranks, the last one late, at the bound; phases may be replaced."""
    scatter = ring_reduce_scatter([0, 1, 2], [(0, 1), (1, 1), (2, 1)])
    phases = (Phase.build("pre", scatter if pre is None else pre(scatter)), Phase.build("post", post))
    return Schedule(4, ((3,),), 3, phases, Origin("by hand", (("author", "docs"),), 4))


def two_groups():
    """4 ranks, rank 2 late and rank 3 later, one chunk."""
    pre = [[(0, 1, 0, 1, R), (1, 0, 0, 1, R)]]
    middle = [[(0, 2, 0, 1, R), (2, 0, 0, 1, R)], [(0, 1, 0, 1, C)]]
    post = [[(0, 3, 0, 1, R), (3, 0, 0, 1, R)], [(0, 1, 0, 1, C), (3, 2, 0, 1, C)]]
    names = phase_names(2)
    phases = tuple(Phase.build(n, rounds) for n, rounds in zip(names, (pre, middle, post), strict=True))
    return Schedule(4, ((2,), (3,)), 1, phases)


def valid_schedules():
    """Small valid schedules of every shape: rings, runs of chunks, one late rank, two groups, imported."""
    return [ring(2), ring(3), ring(5), ring(3, 3), four(), two_groups(), published(6), published(8)]


def rebuilt(schedule, phases):
    """The schedule with other phases: lists of rounds, each a list of rows; empty rounds are left out."""
    built = tuple(
        Phase.build(old.name, [rows for rows in rounds if len(rows)])
        for old, rounds in zip(schedule.phases, phases, strict=True)
    )
    return Schedule(schedule.ranks, schedule.arrivals, schedule.chunks, built, schedule.origin)


def rows_of(schedule):
    """The rows of every round of every phase, as lists of tuples."""
    return [[[tuple(row) for row in table.tolist()] for table in p.rounds()] for p in schedule.phases]


def big(ranks, chunks):
    """As many messages as a schedule of that size has (it is not an AllReduce): for sizes and speeds."""
    early = np.arange(ranks)
    rounds = [
        np.column_stack(
            (early, (early + 1 + r % (ranks - 1)) % ranks, (early + r) % chunks, early * 0 + 1, early % 2)
        )
        for r in range(2 * chunks)
    ]
    return Schedule(ranks, (), chunks, (Phase.build("post", rounds),))


_TEXT = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=12)


@st.composite
def arbitrary(draw):
    """Well formed schedules, hardly ever valid ones."""
    ranks, chunks = draw(st.integers(2, 9)), draw(st.integers(1, 9))
    late = draw(st.lists(st.integers(0, ranks - 1), unique=True, max_size=ranks - 1))
    cuts = sorted(draw(st.sets(st.integers(1, len(late) - 1)))) if len(late) > 1 else []
    ends = [*cuts, len(late)] if late else []
    groups = tuple(tuple(sorted(late[a:b])) for a, b in zip([0, *ends], ends, strict=False))
    first = st.integers(0, chunks - 1)
    row = st.tuples(
        st.integers(0, ranks - 1),
        st.integers(1, ranks - 1),
        first,
        st.integers(1, chunks),
        st.sampled_from([R, C]),
    )
    rows = row.map(lambda t: (t[0], (t[0] + t[1]) % ranks, t[2], min(t[3], chunks - t[2]), t[4]))
    rounds = st.lists(st.lists(rows, min_size=1, max_size=4), max_size=4)
    phases = tuple(Phase.build(name, draw(rounds)) for name in phase_names(len(groups)))
    parameters = tuple(draw(st.dictionaries(_TEXT, st.integers(-(2**40), 2**40) | _TEXT, max_size=3)).items())
    bound = draw(st.none() | st.integers(0, 10**6))
    return Schedule(ranks, groups, chunks, phases, Origin(draw(_TEXT), parameters, bound))
