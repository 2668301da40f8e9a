"""Simulated times carry data to the right sum; where they equal the cost model; what the modes differ in."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stragglar.backends.simulation import MODES, Simulator, completions, planned_arrivals, simulate
from stragglar.schedules import Link, Op, Phase, Schedule, cost
from stragglar.synth import Request, synthesize

LINK = Link(3e-6, 450 * 2**30)
UNIT = Link(1.0, 1.0)
SIZE = 2**30


@cache
def made(ranks, algorithm, late=1, refine=None):
    return synthesize(Request(ranks, (late,), algorithm, refine))


KINDS = [(n, "stragglar") for n in (2, 3, 5, 6, 8)] + [(8, "ring"), (8, "rhd"), (7, "rhd"), (5, "direct")]


@settings(max_examples=30)
@given(st.sampled_from(KINDS), st.data())
def test_data_that_moves_at_the_simulated_times_is_summed(kind, data):
    """Strict mode: messages read when they start and arrive when they finish; every rank gets the sum."""
    schedule = made(*kind)
    come = data.draw(st.lists(st.floats(0, 0.01), min_size=schedule.ranks, max_size=schedule.ranks))
    found = simulate(schedule, SIZE, LINK, come)
    held = np.random.default_rng(0).integers(0, 1000, (schedule.ranks, schedule.chunks))
    total = held.sum(axis=0)
    # What arrives at a time is there before what starts then.
    events = [(time, 0, at) for at, time in enumerate(found.finishes.tolist())]
    events += [(time, 1, at) for at, time in enumerate(found.starts.tolist())]
    moving = {}
    for _, starting, at in sorted(events):
        src, dst, first, count, op = found.table[at].tolist()
        part = slice(first, first + count)
        if starting:
            moving[at] = held[src, part].copy()
        else:
            held[dst, part] = moving.pop(at) + (held[dst, part] if op == Op.REDUCE else 0)
    assert (held == total).all()


@pytest.mark.parametrize("delay", [0, 1e-4, 2e-3, 5e-3, 1.0])
@pytest.mark.parametrize("mode", MODES)
def test_schedules_without_slack_take_what_the_cost_model_says(mode, delay):
    # A chain of messages spans all rounds, and all early ranks end the pre phase together.
    pairs = [(n, a) for n in range(2, 18) for a in ("stragglar", "ring")]
    for ranks, algorithm in [*pairs, *((n, a) for n in (2, 4, 8, 16) for a in ("rhd", "direct"))]:
        schedule = made(ranks, algorithm)
        found = simulate(schedule, SIZE, LINK, planned_arrivals(schedule, delay), mode)
        assert found.post_seconds == pytest.approx(cost(schedule, SIZE, LINK, delay).post_seconds, rel=1e-9)


def rounds_of(ranks, arrivals, *phases):
    """A schedule of single-chunk messages src -> dst: only its times make sense."""
    names = ("pre", "post") if arrivals else ("post",)
    tables = [[[(s, d, 0, 1, 0) for s, d in messages] for messages in phase] for phase in phases]
    built = tuple(Phase.build(name, table) for name, table in zip(names, tables, strict=True))
    return Schedule(ranks, arrivals, 1, built)


@pytest.mark.parametrize("mode", MODES)
def test_the_two_cases_in_which_it_is_less_than_the_cost_model_says(mode):
    # The last rank is not in the first round: the others have that behind them when it comes.
    baseline = rounds_of(3, (), [[(0, 1)], [(1, 2), (2, 1)], [(1, 0)]])
    assert simulate(baseline, 0, UNIT, [0, 0, 9], mode).post_seconds == 2
    assert simulate(baseline, 0, UNIT, [9, 0, 0], mode).post_seconds == 3
    assert cost(baseline, 0, UNIT, 9).post_seconds == 3
    # The late rank comes while the pre phase runs; the rank that it needs is through already.
    uneven = rounds_of(4, ((3,),), [[(0, 1)], [(1, 2)]], [[(3, 0)]])
    assert simulate(uneven, 0, UNIT, planned_arrivals(uneven, 1), mode).post_seconds == 1
    assert cost(uneven, 0, UNIT, 1).post_seconds == 2


def test_what_the_modes_differ_in():
    # Rank 1 receives late and sends: what it had before, or what it received.
    own = Schedule(3, (), 2, (Phase.build("post", [[(0, 1, 0, 1, 0)], [(1, 2, 1, 1, 0)]]),))
    received = rounds_of(3, (), [[(0, 1)], [(1, 2)]])
    come = [5, 0, 0]
    assert [simulate(own, 0, UNIT, come, m).ends.tolist() for m in MODES] == [[6, 7, 7], [6, 6, 1]]
    assert [simulate(received, 0, UNIT, come, m).ends.tolist() for m in MODES] == [[6, 7, 7], [6, 7, 7]]


def test_long_messages_and_blocks_of_chunks_wait_for_all_they_carry(monkeypatch):
    # Halving-doubling moves runs of chunks; a block of chunks at a time must find the same needs.
    schedule = made(8, "rhd")
    whole = Simulator(schedule, "relaxed")._needs.tolist()
    monkeypatch.setattr("stragglar.schedules.trace.STATE_BYTES", 128)
    assert whole == Simulator(schedule, "relaxed")._needs.tolist() and max(whole) >= 0


def test_busy_ports():
    ring = simulate(made(8, "ring"), SIZE, LINK)
    np.testing.assert_allclose([ring.busy_out, ring.busy_in], 1)
    late = simulate(made(8, "ring"), SIZE, LINK, [0.1, *[0.0] * 7])
    assert late.busy_out[0] == pytest.approx(1) and late.busy_out[4] < 0.05


@pytest.mark.parametrize("mode", MODES)
def test_a_large_schedule_and_many_iterations(mode):
    schedule = made(64, "stragglar", 5, 3)
    assert schedule.transfer_count > 15_000
    come = np.random.default_rng(0).random((50, 64)) * 5e-3
    least = come.max(axis=1) + SIZE * LINK.beta
    assert (completions(schedule, SIZE, LINK, come, mode) >= least * (1 - 1e-12)).all()
