"""Every family as a schedule: right for every n, late rank and option; lowered, counted, run; refusals."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stragglar.backends.model import run_model
from stragglar.backends.msccl.lower import lower
from stragglar.backends.run import RunRequest, run
from stragglar.schedules import (
    InfeasibleError,
    Link,
    MissingError,
    UsageError,
    certify,
    cost,
    dump_schedule,
    parse_schedule,
    validate,
)
from stragglar.schedules.bounds import post_seconds_after_delay
from stragglar.synth import ALGORITHMS, Request, synthesize
from stragglar.synth.families import ALIASES, ANY, count_rounds
from stragglar.synth.runs import even_runs
from stragglar.synth.stragglar import halving_width
from stragglar.synth.tree import binomial_broadcast, binomial_reduce

MERGES = ("stragglar", "merge-allreduce", "split")
FAST_LINK = Link(0.0, 1.0)


@st.composite
def family_requests(draw, most=20, algorithms=tuple(ALGORITHMS)):
    """Requests that every algorithm can serve; late is the first rank, the last or one between."""
    n = draw(st.integers(2, most))
    name = draw(st.sampled_from(algorithms))
    late = draw(st.sampled_from(sorted({0, n // 2, n - 1})))
    takes = ALGORITHMS[name].options
    values = {key: draw(st.sampled_from([None, *known])) for key, known in takes.items() if known != ANY}
    request = Request(n, (late,), name, **values)
    grain = draw(st.sampled_from(["natural", "refine", "chunks"]))
    if values.get("pre") == "rhd" and name == "stragglar" and halving_width(n - 1) != n - 1:
        return replace(request, chunks=draw(st.integers(1, halving_width(n - 1))))
    if "fraction" in takes:
        whole = draw(st.integers(1, 9))
        request = replace(request, fraction=Fraction(draw(st.integers(0, whole)), whole))
        if grain == "chunks":
            return replace(request, chunks=whole * draw(st.integers(1, 12)))
    if grain == "natural":
        return request
    return replace(request, **{grain: draw(st.integers(1, 3 if grain == "refine" else 3 * n))})


def assert_computes_the_sum(schedule):
    assert validate(schedule).valid
    inputs = np.random.default_rng(0).integers(-1000, 1000, size=(schedule.ranks, schedule.chunks + 3))
    assert (run_model(schedule, inputs, "sum") == inputs.sum(axis=0)).all()


def assert_counted(request, schedule):
    made, counted = certify(schedule), count_rounds(request)
    assert (counted.pre_rounds, counted.post_rounds) == (made.rounds["pre"], made.rounds["post"])
    assert counted.pre_chunk_rounds == made.chunk_rounds["pre"]
    assert counted.post_chunk_rounds == made.chunk_rounds["post"]
    assert counted.chunks == schedule.chunks
    for link, delay in ((Link(3e-6, 1e9), 0.0), (Link(0.0, 1e6), 0.01), (Link(1e-3, 1e9), 5e-3)):
        modelled = cost(schedule, 12345, link, delay).post_seconds
        assert counted.post_seconds(12345, link, delay) == pytest.approx(modelled)


def asked_again(schedule, algorithm):
    """The request that a schedule's origin stands for."""
    known = dict(schedule.origin.parameters)
    known.pop("merge", None)
    if "fraction" in known:
        known["fraction"] = Fraction(known["fraction"])
    return Request(schedule.ranks, schedule.late, algorithm, **known)


@settings(max_examples=250)
@given(family_requests())
@example(Request(3, (1,), "merge-allreduce", chunks=5))
@example(Request(2, (0,), "split", fraction=Fraction(0)))
def test_every_family_is_an_allreduce_with_the_rounds_of_its_formula(request):
    schedule = synthesize(request)
    assert_computes_the_sum(schedule)
    assert_counted(request, schedule)
    assert schedule.origin.family == request.algorithm
    assert parse_schedule(dump_schedule(schedule).encode()) == schedule
    assert synthesize(asked_again(schedule, request.algorithm)) == schedule


@settings(max_examples=40)
@given(family_requests(most=8))
@example(Request(5, (0,), "split", chunks=4, fraction=Fraction(1, 2), inner="rhd"))
def test_every_family_is_lowered_and_its_pre_phase_needs_no_late_rank(request):
    """`lower` executes the file in the runtime model; without the late rank the whole pre phase must run."""
    schedule = synthesize(request)
    report = lower(schedule).report
    assert report.ok
    if len(schedule.phases[0]):
        assert report.pre_phase is not None and report.pre_phase.complete


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 7, 8])
@pytest.mark.parametrize("name", ["merge-allreduce", "split", "tree", "pairwise-exchange"])
def test_new_families_lowered_with_every_late_rank(name, n):
    for late in range(n):
        assert lower(synthesize(Request(n, (late,), name))).report.ok


@pytest.mark.parametrize("n", [31, 33, 64, 65, 100, 129])
@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_larger_sets_of_ranks(name, n):
    request = Request(n, (n // 3,), name)
    schedule = synthesize(request)
    assert_computes_the_sum(schedule)
    assert_counted(request, schedule)


@given(st.integers(2, 40), st.integers(1, 60), st.sampled_from([None, "ring", "rhd", "direct"]))
def test_merge_after_all_reduce_meets_the_bound_for_every_chunk_count(n, chunks, pre):
    schedule = synthesize(Request(n, (n // 2,), "merge-allreduce", chunks=chunks, pre=pre))
    assert certify(schedule).gap == 0
    assert len(schedule.post) == chunks + (n - 1).bit_length() - 1


@settings(max_examples=50)
@given(st.integers(2, 40), st.integers(1, 60))
def test_merge_allreduce_leaves_the_early_sum_everywhere(n, chunks):
    schedule = synthesize(Request(n, (0,), "merge-allreduce", chunks=chunks))
    inputs = np.random.default_rng(3).integers(-99, 99, size=(n, chunks))
    assert (run_model(schedule, inputs, "sum", upto="pre")[1:] == inputs[1:].sum(axis=0)).all()


def test_what_early_ranks_do_follows_the_chunks_if_not_asked():
    made = {k: synthesize(Request(12, (0,), "merge-allreduce", chunks=k)).origin for k in (1, 2, 10, 11, 40)}
    pre = {k: dict(origin.parameters)["pre"] for k, origin in made.items()}
    assert pre == {1: "direct", 2: "rhd", 10: "rhd", 11: "ring", 40: "ring"}


@pytest.mark.parametrize("n", range(2, 40))
def test_halving_before_the_merge_takes_fewer_rounds(n):
    """log2 N rounds where N is a power of two; never more than the ring from 6 early ranks on."""
    early = n - 1
    request = Request(n, (n - 1,), pre="rhd")
    schedule = synthesize(request)
    assert_computes_the_sum(schedule)
    assert certify(schedule).gap == 0 and schedule.chunks == halving_width(early)
    rounds = len(schedule.phases[0])
    if early == halving_width(early):
        assert rounds == early.bit_length() - 1
        assert schedule.phases[0].chunk_rounds == early - 1
        assert_computes_the_sum(synthesize(replace(request, chunks=2 * early + 3)))
    assert rounds <= early - 1 or early < 6
    one = synthesize(replace(request, chunks=1))
    assert len(one.phases[0]) == rounds and len(one.post) == (n - 1).bit_length()


DELAYS = [i / 16 for i in range(33)]


# Halving-doubling has the ring's volume for powers of two only.
@pytest.mark.parametrize(
    ("n", "inner"), [*((n, "ring") for n in (4, 7, 8, 13, 16)), (4, "rhd"), (8, "rhd"), (16, "rhd")]
)
def test_split_meets_the_bandwidth_bound_for_every_delay(n, inner):
    """With x = d N / ((N-1) s beta), s beta = 1, alpha 0, in whole chunks an owner. One is built."""
    early, total = n - 1, 75 * n * (n - 1)
    for number, delay in enumerate(DELAYS):
        fraction = min(Fraction(1), Fraction(delay) * Fraction(early, early - 1))
        # Multiples of N to merge and of n for the rest, and no more than fits before the arrival.
        merged = int(fraction * total) // (early * n) * early * n
        request = Request(n, (1,), "split", chunks=total, fraction=Fraction(merged, total), inner=inner)
        bound = post_seconds_after_delay(n, 1.0, delay)
        assert bound <= count_rounds(request).post_seconds(1.0, FAST_LINK, delay) * (1 + 1e-9)
        assert count_rounds(request).post_seconds(1.0, FAST_LINK, delay) <= 1.02 * bound
        if number == 13 and n <= 8:
            assert cost(synthesize(request), 1.0, FAST_LINK, delay).post_seconds <= 1.02 * bound


@settings(max_examples=40)
@given(st.integers(2, 20), st.integers(1, 6), st.sampled_from(["ring", "rhd"]))
def test_the_ends_of_split_are_the_families_it_joins(n, refine, inner):
    whole = Request(n, (n - 1,), "split", refine, fraction=Fraction(1), inner=inner)
    none = replace(whole, fraction=Fraction(0))
    assert synthesize(whole).phases == synthesize(Request(n, (n - 1,), "stragglar", refine)).phases
    assert synthesize(none).phases == synthesize(Request(n, (n - 1,), inner, refine)).phases


@settings(max_examples=50)
@given(st.integers(2, 16), st.integers(1, 200))
def test_split_treats_its_parts_apart_and_merges_half_if_not_told(n, chunks):
    schedule = synthesize(Request(n, (0,), "split", chunks=chunks))
    merged = (chunks + 1) // 2
    assert dict(schedule.origin.parameters)["fraction"] == str(Fraction(merged, chunks))
    pre = schedule.phases[0].table
    assert not len(pre) or (pre[:, 2] + pre[:, 3]).max() <= merged


def test_split_cuts_finely_enough_for_every_owner_if_not_told():
    for n in (2, 3, 4, 5, 8, 11, 16, 23):
        for fraction in (Fraction(1, 9), Fraction(2, 5), Fraction(1, 100), Fraction(7, 8)):
            schedule = synthesize(Request(n, (0,), "split", fraction=fraction))
            merged = schedule.chunks * fraction
            assert merged.denominator == 1 and merged >= n - 1 and (schedule.chunks - merged) % n == 0


@pytest.mark.parametrize("n", range(2, 40))
def test_a_tree_lets_the_late_rank_join_last(n):
    schedule = synthesize(Request(n, (n // 2,), "tree", chunks=3))
    made = certify(schedule)
    assert made.rounds == {"pre": (n - 2).bit_length(), "post": (n - 1).bit_length()}
    assert made.chunk_rounds["post"] == 3 * (n - 1).bit_length()
    assert certify(synthesize(Request(n, (0,), "tree"))).gap == 0


@settings(max_examples=60)
@given(st.integers(2, 24), st.data())
def test_trees_with_any_set_of_late_ranks(n, data):
    late = tuple(data.draw(st.sets(st.integers(0, n - 1), max_size=n - 1)))
    request = Request(n, late, "tree", chunks=2)
    schedule = synthesize(request)
    assert_computes_the_sum(schedule)
    assert_counted(request, schedule)


@given(st.integers(1, 70), st.integers(1, 5))
def test_binomial_trees_take_the_least_rounds(n, holders):
    assert len(binomial_reduce(range(n), (0, 1))) == (n - 1).bit_length()
    spread = binomial_broadcast(range(holders), range(holders, holders + n), (0, 1))
    assert holders << (len(spread) - 1) < holders + n <= holders << len(spread)


@given(st.integers(2, 20), st.integers(1, 60))
def test_pairwise_exchange_sends_straight_from_maker_to_user(n, chunks):
    schedule = synthesize(Request(n, (), "pairwise-exchange", chunks=chunks))
    assert certify(schedule).chunk_rounds["post"] == 2 * (n - 1) * -(-chunks // n)
    first_chunk = [first for first, count in even_runs(chunks, n) if count]
    for number in range(2 * (n - 1)):
        for t in schedule.post.transfers(number):
            assert (t.dst - t.src) % n == number % (n - 1) + 1
            owner = t.dst if number < n - 1 else t.src
            assert t.first == first_chunk[owner]


def test_rabenseifner_is_halving_doubling():
    assert set(ALIASES.values()) <= set(ALGORITHMS) and not set(ALIASES) & set(ALGORITHMS)
    named = synthesize(Request(12, (3,), "rabenseifner"))
    assert named == synthesize(Request(12, (3,), "rhd")) and named.origin.family == "rhd"
    assert count_rounds(Request(12, (3,), "rabenseifner")) == count_rounds(Request(12, (3,), "rhd"))


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"algorithm": "wheel"}, "'wheel' is not known: use stragglar, .*tree, rabenseifner"),
        ({"algorithm": "ring", "pre": "rhd"}, "ring takes no pre: it is for stragglar and merge-allreduce"),
        ({"algorithm": "rabenseifner", "inner": "ring"}, "rhd takes no inner: it is for split"),
        ({"algorithm": "stragglar", "fraction": Fraction(1, 2)}, "takes no fraction: it is for split"),
        ({"algorithm": "split", "pre": "ring"}, "split takes no pre"),
        ({"algorithm": "stragglar", "pre": "direct"}, "stragglar takes pre ring or rhd, not 'direct'"),
        ({"algorithm": "split", "inner": "direct"}, "split takes inner ring or rhd, not 'direct'"),
        ({"algorithm": "split", "fraction": Fraction(3, 2)}, "the fraction must be 0..1, not 3/2"),
        ({"algorithm": "split", "fraction": Fraction(-1, 2)}, "the fraction must be 0..1, not -1/2"),
        (
            {"algorithm": "split", "fraction": Fraction(2, 5), "chunks": 7},
            "7 chunks cannot be split 2/5: use a multiple of 5",
        ),
        ({"algorithm": "split", "fraction": Fraction(1, 10**8)}, "chunks are more than"),
        ({"pre": "rhd", "chunks": 5}, "over 7 early ranks leaves 4 owners .* --chunks 4 or fewer"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(settings_, message):
    for asked in (synthesize, count_rounds):
        with pytest.raises(UsageError, match=message) as caught:
            asked(Request(8, (3,), **settings_))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", MERGES)
def test_merges_need_a_late_rank_and_most_just_one(name):
    for asked in (synthesize, count_rounds):
        with pytest.raises(UsageError, match=f"the {name} algorithm needs to know who is late"):
            asked(Request(8, (), name))
        if name != "stragglar":
            with pytest.raises(InfeasibleError, match=f"{name} merges one late rank"):
                asked(Request(8, (2, 5), name))
    if name == "stragglar":
        assert validate(synthesize(Request(8, (2, 5), name))).valid


@pytest.mark.parametrize(
    ("name", "late"),
    [("merge-allreduce", 1), ("split", 1), ("split", 0), ("tree", 1), ("pairwise-exchange", 1)],
)
def test_families_on_mpi(name, late):
    """On real processes, as planned (rank 1 late) and with another rank late."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    schedule = synthesize(Request(3, (1,), name))
    try:
        report = run(schedule, "mpi", RunRequest(count=1001, repeat=1, late=(late,), late_by=0.01))
    except MissingError as missing:
        pytest.skip(f"no mpiexec: {missing}")
    assert report.correct


@pytest.mark.slow
@pytest.mark.parametrize("name", list(ALGORITHMS))
@pytest.mark.parametrize("n", range(2, 34))
def test_every_late_rank_of_every_family(name, n):
    for late in range(n):
        for refine in (1, 3):
            request = Request(n, (late,), name, refine)
            schedule = synthesize(request)
            assert_computes_the_sum(schedule)
            assert_counted(request, schedule)
