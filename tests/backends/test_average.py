"""`avg`: floats are divided before the sum, whole numbers after it and towards zero; on every backend."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stragglar.backends.elements import (
    DTYPES,
    expected,
    expected_of,
    finish,
    numpy_dtype,
    prepare,
    rank_input,
)
from stragglar.backends.model import run_model
from stragglar.backends.run import RunRequest, run
from stragglar.synth import Request, synthesize

WHOLE = {"i32": st.integers(-(2**31), 2**31 - 1), "i64": st.integers(-(2**63), 2**63 - 1)}


@given(st.data(), st.sampled_from(sorted(WHOLE)), st.integers(2, 300))
def test_whole_numbers_are_divided_towards_zero(data, dtype, ranks):
    values = data.draw(st.lists(WHOLE[dtype], min_size=1, max_size=20))
    sums = np.array(values, dtype=numpy_dtype(dtype))
    prepare("avg", sums, ranks)
    assert sums.tolist() == values
    finish("avg", sums, ranks)
    assert sums.tolist() == [abs(v) // ranks * (1 if v >= 0 else -1) for v in values]


@given(st.sampled_from(["f16", "bf16", "f32", "f64"]), st.integers(2, 3000), st.integers(0, 9))
def test_floats_are_divided_with_one_rounding(dtype, ranks, seed):
    kind = numpy_dtype(dtype)
    data = (np.random.default_rng(seed).normal(size=50) * 100).astype(kind)
    right = (data.astype(np.float64) / ranks).astype(kind)
    prepare("avg", data, ranks)
    after = data.copy()
    finish("avg", data, ranks)
    assert data.tobytes() == after.tobytes()
    # Of 16-bit types the division is rounded to f32 first, which may move a tie by one.
    close = np.abs(after.astype(np.float64) - right.astype(np.float64))
    assert (close <= np.abs(right.astype(np.float64)) * 2.0 ** (-7 if dtype == "bf16" else -10) + 2e-7).all()
    if dtype in ("f32", "f64"):
        assert after.tobytes() == (data.dtype.type(0) + right).tobytes()


@pytest.mark.parametrize("op", ["sum", "max", "min", "prod"])
def test_other_reductions_are_left_alone(op):
    for dtype in DTYPES:
        data = np.arange(9).astype(numpy_dtype(dtype))
        before = data.tobytes()
        prepare(op, data, 3)
        finish(op, data, 3)
        assert data.tobytes() == before


@settings(deadline=None)
@given(st.integers(2, 9), st.sampled_from(sorted(DTYPES)), st.integers(1, 200), st.integers(0, 99), st.data())
def test_the_model_against_numpy(ranks, dtype, count, seed, data):
    late = data.draw(st.integers(0, ranks - 1))
    schedule = synthesize(Request(ranks, (late,)))
    inputs = [rank_input(r, ranks, count, dtype, "avg", seed) for r in range(ranks)]
    result = run_model(schedule, inputs, "avg")
    right = expected(ranks, count, dtype, "avg", seed)
    assert sum(right.wrong(row) for row in result) == 0
    exact = np.mean([x.astype(np.float64) for x in inputs], axis=0)
    if dtype in WHOLE:
        assert result[0].tolist() == np.trunc(exact).astype(np.int64).tolist()
    else:
        assert (result[0].astype(np.float64)[::2] == exact[::2]).all(), "coarse values are exact"
    wrong = result[0].copy()
    wrong[0] += 1
    assert right.wrong(wrong) == 1


@given(st.lists(st.floats(-1e-7, 1e-7), min_size=2, max_size=6))
def test_a_division_that_underflows_is_no_error(values):
    inputs = [np.array([v], dtype=np.float16) for v in values]
    right = expected_of(inputs, "avg")
    for data in inputs:
        prepare("avg", data, len(values))
    assert right.wrong(np.sum(inputs, axis=0, dtype=np.float16)) == 0


def test_halves_do_not_overflow():
    schedule = synthesize(Request(4, (3,)))
    data = [np.full(8, 60000, dtype=np.float16)] * 4
    assert (run_model(schedule, data, "avg") == 60000).all()


def test_a_sum_is_not_taken_for_an_average():
    inputs = [rank_input(r, 4, 50, "f32", "avg") for r in range(4)]
    right = expected(4, 50, "f32", "avg")
    assert right.wrong(run_model(synthesize(Request(4, (3,))), inputs, "sum")[0]) > 40


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i32"])
@pytest.mark.parametrize("on", ["tcp", "mpi"])
def test_real_processes(on, dtype):
    if on == "mpi":
        pytest.importorskip("mpi4py", reason="needs mpi4py")
    request = RunRequest(count=1003, dtype=dtype, op="avg", repeat=1, warmup=0)
    report = run(synthesize(Request(3, (2,))), on, request)
    assert report.correct and report.op == "avg"
    others = [report.mpi_allreduce, *report.others.values()]
    assert all(timing.wrong == 0 for timing in others if timing)
