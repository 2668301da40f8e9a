"""The model, and the test data and checks that all backends share."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stragglar.backends.elements import (
    DTYPES,
    OPS,
    chunk_bounds,
    expected,
    expected_of,
    finish,
    numpy_dtype,
    prepare,
    rank_input,
)
from stragglar.backends.model import run_model
from stragglar.backends.programs import KIND, PEER, SEND, rank_programs
from stragglar.backends.report import RunReport
from stragglar.backends.run import RUNNERS, Runners, RunRequest, run
from stragglar.schedules import InvalidScheduleError, Op, Phase, Schedule, UsageError, require_valid

REDUCE, COPY = int(Op.REDUCE), int(Op.COPY)


def ring(ranks):
    rounds = [
        [(r, (r + 1) % ranks, (r - t) % ranks, 1, REDUCE) for r in range(ranks)] for t in range(ranks - 1)
    ]
    rounds += [
        [(r, (r + 1) % ranks, (r + 1 - t) % ranks, 1, COPY) for r in range(ranks)] for t in range(ranks - 1)
    ]
    return Schedule(ranks, (), ranks, (Phase.build("post", rounds),))


def doubling(ranks):
    rounds = [[(r, r ^ bit, 0, 3, REDUCE) for r in range(ranks)] for bit in (1, 2, 4, 8) if bit < ranks]
    return Schedule(ranks, (), 3, (Phase.build("post", rounds),))


def swap_and_spread(ranks, late):
    """Early ranks reduce by a ring; each then swaps its chunk with the late rank and passes it round."""
    early = [r for r in range(ranks) if r != late]
    n = len(early)

    def hop(i, chunk, op):
        return (early[i], early[(i + 1) % n], chunk % n, 1, op)

    pre = [[hop(i, i - t, REDUCE) for i in range(n)] for t in range(n - 1)]
    swaps = [
        [(early[i], late, (i + 1) % n, 1, REDUCE), (late, early[i], (i + 1) % n, 1, REDUCE)] for i in range(n)
    ]
    spread = [[hop(i, i + 1 - t, COPY) for i in range(n)] for t in range(n - 1)]
    return Schedule(ranks, ((late,),), n, (Phase.build("pre", pre), Phase.build("post", swaps + spread)))


SCHEDULES = [
    ring(2),
    ring(5),
    doubling(8),
    swap_and_spread(4, 0),
    swap_and_spread(5, 2),
    swap_and_spread(8, 7),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: f"{s.ranks}-{s.chunks}-{s.late}")
def test_the_schedules_of_these_tests_are_valid(schedule):
    require_valid(schedule)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(SCHEDULES),
    st.sampled_from(sorted(DTYPES)),
    st.sampled_from(sorted(OPS)),
    st.one_of(st.integers(1, 12), st.integers(1, 500)),
    st.integers(0, 99),
)
def test_every_rank_gets_the_right_result(schedule, dtype, op, count, seed):
    report = run(schedule, "model", RunRequest(count=count, dtype=dtype, op=op, seed=seed))
    assert report.correct and report.wrong == 0
    assert report.count == count and report.schedule is None


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: f"{s.ranks}-{s.chunks}-{s.late}")
@pytest.mark.parametrize("extra", [-1, 0, 1, 17])
def test_replicas_are_bit_identical_and_inputs_untouched(schedule, extra):
    count = max(1, schedule.chunks + extra)
    inputs = np.random.default_rng(0).normal(size=(schedule.ranks, count)).astype(np.float32)
    before = inputs.copy()
    result = run_model(schedule, inputs, "sum")
    assert result.dtype == np.float32 and result.shape == inputs.shape
    assert (result.view(np.int32) == result.view(np.int32)[0]).all()
    assert (inputs == before).all()


def test_zeros_of_both_signs_agree_on_all_ranks():
    inputs = np.array([[0.0], [-0.0]], dtype=np.float32)
    result = run_model(
        Schedule(2, (), 1, (Phase.build("post", [[(0, 1, 0, 1, 0), (1, 0, 0, 1, 0)]]),)), inputs, "max"
    )
    assert result.view(np.int32)[0] == result.view(np.int32)[1]


def test_all_transfers_of_a_round_read_the_state_from_before_it():
    swap = Schedule(2, (), 1, (Phase.build("post", [[(0, 1, 0, 1, COPY), (1, 0, 0, 1, COPY)]]),))
    assert run_model(swap, [np.array([1.0]), np.array([2.0])], "sum").tolist() == [[2.0], [1.0]]


def test_the_state_after_the_pre_phase_can_be_seen():
    schedule = swap_and_spread(4, 3)
    inputs = np.arange(4)[:, None] * np.ones(3, dtype=np.int64) + 1
    state = run_model(schedule, inputs, "sum", upto="pre")
    assert (state[3] == 4).all()
    assert [int(state[i, (i + 1) % 3]) for i in range(3)] == [6, 6, 6]
    with pytest.raises(UsageError, match="arrival1"):
        run_model(schedule, inputs, "sum", upto="arrival1")


def test_inputs_of_a_wrong_shape_are_refused():
    with pytest.raises(UsageError, match=r"\(2, count\), not \(3, 4\)"):
        run_model(ring(2), np.zeros((3, 4)), "sum")


def test_many_ranks_with_long_chunks():
    inputs = np.ones((64, 64 * 100), dtype=np.float32)
    assert (run_model(ring(64), inputs, "sum") == 64).all()


@given(st.integers(0, 10**12), st.integers(1, 5000))
def test_chunks_cover_the_buffer(count, chunks):
    bounds = chunk_bounds(count, chunks)
    assert bounds[0] == 0 and bounds[-1] == count
    assert np.diff(bounds).min() >= count // chunks and np.diff(bounds).max() <= -(-count // chunks)
    assert all(int(bounds[c]) == c * count // chunks for c in (0, 1, chunks // 2, chunks))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("ranks", [2, 8, 300])
def test_the_check_accepts_any_order_and_refuses_a_missing_or_changed_part(dtype, op, ranks):
    inputs = [rank_input(r, ranks, 501, dtype, op, seed=3) for r in range(ranks)]
    right = expected(ranks, 501, dtype, op, seed=3)
    for data in inputs:
        prepare(op, data, ranks)
    for order in (inputs, inputs[::-1]):
        result = order[0].copy()
        for data in order[1:]:
            OPS[op](result, data, out=result)
        finish(op, result, ranks)
        assert np.isfinite(result.astype(np.float64)).all()
        assert right.wrong(result) == 0
    assert right.wrong(np.roll(result, 1)) > 100
    if op in ("sum", "prod", "avg") and ranks == 8:
        short = inputs[0].copy()
        for data in inputs[1:-1]:
            OPS[op](short, data, out=short)
        finish(op, short, ranks)
        assert right.wrong(short) > 400


def test_one_bit_counts_and_so_does_a_nan():
    right = expected(8, 100, "f32", "sum")
    inputs = [rank_input(r, 8, 100, "f32", "sum") for r in range(8)]
    result = np.sum(inputs, axis=0, dtype=np.float32)
    assert right.wrong(result) == 0
    result[2] = np.nextafter(result[2], np.float32(np.inf))
    result[5] = np.nan
    assert right.wrong(result) == 2


def test_the_reference_takes_any_inputs():
    right = expected_of([np.array([1, 2], np.int32), np.array([2**31 - 1, 5], np.int32)], "sum")
    assert right.wrong(np.array([-(2**31), 7], np.int32)) == 0


def test_data_repeats_after_a_prime_and_the_check_follows():
    count = (1 << 20) + 5
    inputs = [rank_input(r, 2, count, "f32", "sum") for r in range(2)]
    assert inputs[0][0] == inputs[0][(1 << 20) - 3]
    result = inputs[0] + inputs[1]
    assert expected(2, count, "f32", "sum").wrong(result) == 0
    result[-1] += 1
    assert expected(2, count, "f32", "sum").wrong(result) == 1


def test_programs_keep_rounds_in_order_and_sends_first():
    for schedule in SCHEDULES:
        programs = rank_programs(schedule)
        assert sum(len(p.steps) for p in programs) == 2 * schedule.transfer_count
        for program in programs:
            keys = [tuple(row) for row in program.steps[:, : KIND + 1].tolist()]
            assert keys == sorted(keys)
            assert (program.steps[:, PEER] != program.rank).all()
            assert SEND in program.steps[:, KIND]


def test_a_schedule_that_is_no_allreduce_is_not_run():
    broken = Schedule(2, (), 1, (Phase.build("post", [[(0, 1, 0, 1, REDUCE)]]),))
    with pytest.raises(InvalidScheduleError):
        run(broken, "model", RunRequest(count=1))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "one of the two"),
        ({"bytes": 8, "count": 2}, "one of the two"),
        ({"bytes": 3}, "at least one f32 element, not 3 bytes"),
        ({"count": 0}, "at least one f32 element"),
        ({"count": 1, "dtype": "u8"}, "'u8' is not known"),
        ({"count": 1, "op": "mean"}, "'mean' is not known"),
        ({"count": 1, "late_by": -1.0}, "delays must be"),
        ({"count": 1, "late_by": float("nan")}, "delays must be"),
        ({"count": 1, "repeat": 0}, "repeat"),
        ({"count": 1, "time_limit": 0.0}, "time limits"),
        ({"count": 1, "delays": (0.0, 0.1), "late_by": 0.1}, "not both"),
    ],
)
def test_contradictory_requests_are_refused(fields, message):
    with pytest.raises(UsageError, match=message):
        RunRequest(**fields)


def test_delays_follow_the_arrivals():
    schedule = swap_and_spread(4, 3)
    assert RunRequest(count=1, late_by=0.2).delays_for(schedule) == (0, 0, 0, 0.2)
    assert RunRequest(count=1, late_by=0.2, late=(1,)).delays_for(schedule) == (0, 0.2, 0, 0)
    assert RunRequest(count=1, delays=(1.0, 2.0, 3.0, 4.0)).delays_for(schedule) == (1, 2, 3, 4)
    for bad in (RunRequest(count=1, late=(4,), late_by=1.0), RunRequest(count=1, delays=(1.0,))):
        with pytest.raises(UsageError):
            bad.delays_for(schedule)
    with pytest.raises(UsageError, match="say which rank"):
        run(ring(2), "model", RunRequest(count=1, late_by=0.2))


def test_names_and_sizes():
    assert RunRequest(bytes=16, dtype="bfloat16").elements == 8
    assert RunRequest(count=3, dtype="float64").size == 24
    assert numpy_dtype("half") == np.float16


def test_reports_survive_json():
    report = run(swap_and_spread(4, 1), "model", RunRequest(count=5, late_by=0.5))
    assert RunReport.from_json(report.to_json()) == report
    assert RunRequest.from_json(RunRequest(count=5, late=(1,)).to_json()) == RunRequest(count=5, late=(1,))


def test_backends_have_one_name_each():
    assert RUNNERS.names()[:2] == ("model", "mpi")
    runners = Runners()
    runners.register("model", ".model")
    with pytest.raises(ValueError, match="twice"):
        runners.register("model", ".other")
    with pytest.raises(UsageError, match="use one of model"):
        runners.get("modle")


def test_bytes_that_make_no_element_are_left_out_and_counted():
    request = RunRequest(bytes=(1 << 20) + 1, dtype="f32")
    assert (request.elements, request.size, request.leftover) == (1 << 18, 1 << 20, 1)
    assert RunRequest(count=3, dtype="i64").leftover == 0
