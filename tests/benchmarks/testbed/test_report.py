"""From samples to figures: ratios, the JSON contract, and what is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stragglar.testbed.contenders import Scene, contender
from stragglar.testbed.load import Load, parse_load
from stragglar.testbed.measure import Samples
from stragglar.testbed.report import Measured, judge, refusal, without_refused

SCENE = Scene(4, (3,), 1_000_000, 1e6, 2.0)
IDLE, FULL, STOLEN = Load(20, 0, 100), Load(97, 0, 100), Load(20, 10, 100)


def measured(name, seconds, load=IDLE, wrong=0):
    received = [[100_000] * 4 for _ in seconds]
    return Measured(
        contender(name, SCENE), Samples(list(seconds), wrong, load, received, 0.5, [0.01] * len(received))
    )


def report(*rows):
    return judge(rows, SCENE, [2.0] * len(rows[0].samples.seconds), 1e6)


def test_the_contract():
    found = report(measured("ring", [1.6, 1.5, 1.4]), measured("stragglar:1", [1.4, 1.3, 1.35]))
    ring, ours = found["algorithms"]
    assert {"name", "median_s", "spread", "theory_s", "over_ring", "correct"} <= set(ours)
    assert (ring["name"], ring["median_s"], ring["over_ring"]) == ("ring", 1.5, 1.0)
    assert ring["spread"] == pytest.approx(0.2 / 1.5)
    assert ours["over_ring"] == pytest.approx(1.5 / 1.35)
    assert ours["theory_s"] == pytest.approx(4 / 3) and ours["over_theory"] == pytest.approx(1.35 / (4 / 3))
    assert found["bound_s"] == 1.0 and ours["over_bound"] == pytest.approx(1.35)
    assert ours["correct"] is True and found["correct"] is True and found["refused"] == []
    assert found["cpu_busy"] == pytest.approx(0.2)
    assert ours["port_busy"]["mean"] == pytest.approx(0.1 / 1.35)
    json.dumps(found, allow_nan=False)


def test_one_wrong_element_makes_the_run_wrong():
    found = report(measured("ring", [1.5]), measured("rhd", [1.5], wrong=1))
    assert [row["correct"] for row in found["algorithms"]] == [True, False] and not found["correct"]


def test_without_ring_nothing_is_compared_with_it():
    assert report(measured("rhd", [1.5]))["algorithms"][0]["over_ring"] is None


def test_ratios_are_taken_repetition_by_repetition_where_delays_differ():
    row = measured("split:1/2", [1.5, 3.0])
    theories = [row.contender.theory(d) for d in (0.1, 2.0)]
    assert row.over_theory([0.1, 2.0]) == pytest.approx((1.5 / theories[0] + 3.0 / theories[1]) / 2)


def test_what_the_cpu_may_have_limited_is_refused():
    assert "97% busy" in refusal(FULL, 1.2)
    assert "other guests" in refusal(STOLEN, 1.2)
    assert not refusal(IDLE, 1.2)
    assert not refusal(FULL, 1.01)  # at its theory: no CPU was missing
    assert not refusal(Load(20, 0, 20), 1.2)  # too short to say anything
    assert "other processes keep the CPU 40% busy" in refusal(IDLE, 1.2, 0.4)
    assert not refusal(IDLE, 1.01, 0.4)


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 200), st.floats(0.5, 3))
def test_more_load_never_lifts_a_refusal(busy, more, idle, over):
    total = 100 + busy + more + idle
    if refusal(Load(busy, 0, total), over):
        assert refusal(Load(busy + more, 0, total), over)


def test_refused_figures_are_not_shown():
    found = report(measured("ring", [3.0, 3.1], FULL), measured("rhd", [1.5, 1.6]))
    shown = without_refused(found)
    ring, rhd = shown["algorithms"]
    assert found["refused"] == ["ring"] == shown["refused"]
    assert ring["median_s"] is None and ring["samples_s"] is None and "busy" in ring["refused"]
    assert rhd["median_s"] == 1.55 and rhd["over_ring"] is None
    assert found["algorithms"][0]["median_s"] == 3.05  # --force still has it


def test_load_is_read_as_the_kernel_writes_it():
    load = parse_load("cpu  10 1 5 80 2 1 3 4 0 0\ncpu0 1 0 0 8 0 0 0 0 0 0\n")
    assert load == Load(20, 4, 106)
    assert Load().busy_share is None and (load + load - load) == load
