"""Requests to schedules: every family, every late rank, any chunk count; the bound where it is claimed."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stragglar.backends.model import run_model
from stragglar.schedules import (
    InfeasibleError,
    UsageError,
    certify,
    dump_schedule,
    parse_schedule,
    validate,
)
from stragglar.synth import ALGORITHMS, Request, synthesize
from stragglar.synth.halving import doubling_all_gather, halving_reduce_scatter
from stragglar.synth.runs import even_runs


@st.composite
def requests(draw, algorithms=tuple(ALGORITHMS)):
    n = draw(st.integers(2, 64))
    grain = draw(st.sampled_from(["natural", "refine", "chunks"]))
    algorithm = draw(st.sampled_from(algorithms))
    return Request(
        ranks=n,
        late=(draw(st.integers(0, n - 1)),),
        algorithm=algorithm,
        refine=draw(st.integers(1, 4)) if grain == "refine" else None,
        chunks=draw(st.integers(1, 4 * n)) if grain == "chunks" else None,
    )


def assert_computes_the_sum(schedule):
    assert validate(schedule).valid
    rng = np.random.default_rng(0)
    inputs = rng.integers(-1000, 1000, size=(schedule.ranks, schedule.chunks + 3))
    result = run_model(schedule, inputs, "sum")
    assert (result == inputs.sum(axis=0)).all()


@settings(max_examples=150)
@given(requests())
def test_every_request_gives_an_allreduce(request):
    schedule = synthesize(request)
    assert_computes_the_sum(schedule)
    assert schedule.late == request.late
    assert parse_schedule(dump_schedule(schedule).encode()) == schedule


@settings(max_examples=150)
@given(requests(algorithms=("stragglar",)))
def test_stragglar_meets_the_bound(request):
    schedule = synthesize(request)
    made = certify(schedule)
    assert made.gap == 0
    assert schedule.origin.bound == made.post_bound
    assert made.rounds["post"] == schedule.chunks + (request.ranks - 1).bit_length() - 1
    assert made.rounds["pre"] <= max(0, request.ranks - 2)


def test_the_round_counts_of_the_paper():
    """n + log2 n - 2 for powers of two, n = 2 and 4 included, where the published script crashes."""
    for n, rounds in ((2, 1), (4, 4), (8, 9), (16, 18), (32, 35), (64, 68), (128, 133), (256, 262)):
        assert certify(synthesize(Request(n, (n - 1,)))).rounds["post"] == rounds


def test_one_owner_has_contiguous_chunks():
    """The ReduceScatter moves whole runs: one message a rank and round however fine the chunks are."""
    schedule = synthesize(Request(8, (3,), refine=5))
    assert {t.count for r in range(6) for t in schedule.phases[0].transfers(r)} == {5}
    uneven = synthesize(Request(8, (3,), chunks=128))
    assert {t.count for r in range(6) for t in uneven.phases[0].transfers(r)} == {18, 19}
    assert certify(uneven).rounds["post"] == 130


def test_renaming_the_late_rank_renames_the_schedule():
    """The late rank is a matter of names: all n choices have the same shape."""
    shapes = set()
    for late in range(11):
        schedule = synthesize(Request(11, (late,), refine=2))
        assert all(late not in (t.src, t.dst) for r in range(9) for t in schedule.phases[0].transfers(r))
        shapes.add(tuple(len(table) for phase in schedule.phases for table in phase.rounds()))
    assert len(shapes) == 1


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 7, 8, 12, 16, 31, 64])
def test_baselines_have_their_known_rounds_and_volume(n):
    ring = certify(synthesize(Request(n, (0,), "ring")))
    assert ring.rounds == {"pre": 0, "post": 2 * (n - 1)}
    assert ring.chunk_rounds["post"] == 2 * (n - 1)
    power = n & (n - 1) == 0
    halving = certify(synthesize(Request(n, (0,), "rhd")))
    log = n.bit_length() - 1
    levels = [n >> i for i in range(log)]
    assert halving.rounds["post"] == 2 * (log + sum(p % 2 for p in levels))
    if power:
        assert halving.chunk_rounds["post"] == 2 * (n - 1)
    direct = certify(synthesize(Request(n, (0,), "direct")))
    assert direct.rounds["post"] == log + (0 if power else 2)


@given(st.integers(1, 70), st.integers(1, 200))
def test_halves_of_halving_doubling(n, chunks):
    """After the ReduceScatter the owners hold everything once; the AllGather spreads exactly that."""
    held = {r: {c: {r} for c in range(chunks)} for r in range(n)}
    for rounds in (halving_reduce_scatter(range(n), (0, chunks)), doubling_all_gather(range(n), (0, chunks))):
        for rows in rounds:
            before = {
                (src, c): held[src][c]
                for src, _, first, count, _ in rows
                for c in range(first, first + count)
            }
            for src, dst, first, count, op in rows:
                for c in range(first, first + count):
                    assert op == 1 or not held[dst][c] & before[src, c]
                    held[dst][c] = before[src, c] | (set() if op == 1 else held[dst][c])
    assert all(parts == set(range(n)) for own in held.values() for parts in own.values())


@given(st.integers(1, 300), st.integers(1, 100))
def test_even_runs_cover_everything_once(chunks, parts):
    runs = even_runs(chunks, parts)
    assert [c for first, count in runs for c in range(first, first + count)] == list(range(chunks))
    assert max(count for _, count in runs) - min(count for _, count in runs) <= 1


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"ranks": 1}, "ranks must be 2"),
        ({"ranks": 8, "late": (8,)}, "late rank 8 does not exist"),
        ({"ranks": 8, "late": (-1,)}, "late rank -1 does not exist"),
        ({"ranks": 8, "late": (3, 3)}, "named twice"),
        ({"ranks": 2, "late": (0, 1)}, "all ranks are late"),
        ({"ranks": 8, "late": (3,), "refine": 0}, "refinement must be"),
        ({"ranks": 8, "late": (3,), "chunks": 0}, "chunk count must be"),
        ({"ranks": 8, "late": (3,), "chunks": 7, "refine": 1}, "not both"),
        ({"ranks": 8, "late": (3,), "algorithm": "wheel"}, "not known"),
        ({"ranks": 8, "late": (3,), "algorithm": "ring", "exact": True}, "takes no exact"),
        ({"ranks": 8, "late": (3,), "algorithm": "split", "pairwise": True}, "takes no pairwise"),
        ({"ranks": 8, "late": (3,), "time_limit": 1.0}, "for the exact search"),
        ({"ranks": 8}, "name the rank with --late"),
        ({"ranks": 16000, "late": (3,), "refine": 2000}, "more than"),
    ],
)
def test_contradictions_are_refused(settings_, message):
    with pytest.raises(UsageError, match=message):
        synthesize(Request(**settings_))


@pytest.mark.parametrize(("ranks", "chunks"), [(2, 3), (3, 3), (4, 3), (4, 5), (5, 4), (6, 5)])
def test_the_exact_search_confirms_the_bound(ranks, chunks):
    """An independent way to the same number of rounds; `proof.md` says how far it was taken."""
    for late in range(ranks):
        schedule = synthesize(Request(ranks, (late,), chunks=chunks, exact=True))
        assert certify(schedule).gap == 0
        assert_computes_the_sum(schedule)
        assert dict(schedule.origin.parameters)["merge"] == "exact, optimal"


@given(st.integers(2, 40), st.integers(1, 90), st.data())
def test_pairwise_schedules_send_back_to_where_they_receive_from(ranks, chunks, data):
    late = data.draw(st.integers(0, ranks - 1))
    schedule = synthesize(Request(ranks, (late,), chunks=chunks, pairwise=True))
    assert_computes_the_sum(schedule)
    for table in schedule.post.rounds():
        to = dict(zip(table[:, 0].tolist(), table[:, 1].tolist(), strict=True))
        assert all(to.get(dst, src) == src for src, dst in to.items())


def test_what_pairing_costs_seven_ranks():
    """The published form cannot meet the bound there: proved by search; free peers do."""
    paired = Request(7, (2,), pairwise=True, exact=True)
    assert certify(synthesize(paired)).gap == certify(synthesize(Request(7, (2,), pairwise=True))).gap == 1
    assert certify(synthesize(Request(7, (2,)))).gap == 0


def test_the_exact_search_says_where_it_stops():
    with pytest.raises(InfeasibleError, match="for a few ranks"):
        synthesize(Request(40, (2,), exact=True))
    with pytest.raises(InfeasibleError, match=r"cut off|within 0\.001 s"):
        synthesize(Request(8, (2,), exact=True, time_limit=0.001))


def test_several_late_ranks():
    assert synthesize(Request(8, (5, 2), "ring")).arrivals == ((2, 5),)
    schedule = synthesize(Request(8, (5, 2), chunks=96))
    assert_computes_the_sum(schedule)
    assert schedule.arrivals == ((2, 5),)
    assert len(schedule.post) <= 1.06 * certify(schedule).post_bound
    with pytest.raises(InfeasibleError, match="one late rank"):
        synthesize(Request(8, (5, 2), "split"))
    with pytest.raises(UsageError, match="for one late rank"):
        synthesize(Request(8, (5, 2), pairwise=True))


def test_the_same_request_gives_the_same_file_in_two_processes():
    script = (
        "import sys; from stragglar.synth import *; from stragglar.schedules import dump_schedule\n"
        "for r in (Request(23, (4,), refine=3), Request(9, (0,)), Request(12, (1,), 'rhd')):\n"
        "    sys.stdout.write(dump_schedule(synthesize(r)))\n"
        "print('ortools' in sys.modules, 'scipy' in sys.modules)"
    )
    runs = {subprocess.check_output([sys.executable, "-c", script]) for _ in range(2)}
    assert len(runs) == 1
    assert runs.pop().endswith(b"False False\n")


@pytest.mark.slow
@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize("n", range(2, 65))
def test_every_late_rank(n, m):
    for late in range(n):
        schedule = synthesize(Request(n, (late,), refine=m))
        assert certify(schedule).gap == 0
        assert_computes_the_sum(schedule)


def assert_optimal(ranks, late, refine):
    schedule = synthesize(Request(ranks, (late,), refine=refine))  # validated symbolically in there
    assert certify(schedule).gap == 0, (ranks, refine)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(2, 1025, 31))
def test_every_rank_count_meets_the_bound(first):
    for ranks in range(first, min(first + 31, 1025)):
        assert_optimal(ranks, (7 * ranks) // 11, 1)


@pytest.mark.slow
@pytest.mark.parametrize("refine", [2, 3, 4])
@pytest.mark.parametrize("first", range(2, 257, 32))
def test_every_rank_count_meets_the_bound_refined(first, refine):
    for ranks in range(first, min(first + 32, 257)):
        assert_optimal(ranks, ranks - 1, refine)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1025, 1536, 2047, 2048, 2049, 3001, 4095, 4096])
def test_thousands_of_ranks_meet_the_bound(ranks):
    from stragglar.synth.merge import merge_rounds

    merge = merge_rounds(ranks - 1, ranks - 1)
    assert merge.gap == 0
