"""Simulated time against ranks that are simulated one by one, the cost model, and what nobody can beat."""

import doctest
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stragglar.backends import simulation
from stragglar.backends.programs import KIND, LENGTH, PEER, PHASE, ROUND, SEND, START, rank_programs
from stragglar.backends.simulation import Simulator, completions, planned_arrivals, simulate
from stragglar.schedules import InvalidScheduleError, Link, Phase, Schedule, UsageError, certify, cost
from stragglar.schedules.bounds import post_seconds_after_delay
from stragglar.schedules.ir import COUNT, DST, SRC
from stragglar.synth import Request, synthesize

PORT = Link(3e-6, 450 * 2**30)
SLOW = Link(1.0, 4.0)
MODES = simulation.MODES
SIZE = 2**24

CASES = [
    synthesize(Request(n, late, algorithm, refine))
    for n, late, algorithm, refine in [
        (2, (0,), "stragglar", 3),
        (5, (4,), "stragglar", 1),
        (6, (2,), "stragglar", 3),
        (8, (3,), "stragglar", 2),
        (6, (1,), "merge-allreduce", 2),
        (5, (0,), "ring", 1),
        (6, (3,), "rhd", 1),
        (6, (), "direct", 1),
    ]
]


# Ranks one by one: each has a queue, or two, and looks at nothing but the heads of its peers' queues.


def strict_by_ranks(schedule, seconds, arrivals):
    """Ends of all ranks. A rank is a list of its rounds; a message goes when both ends have come to it."""
    todo = []
    for program in rank_programs(schedule):
        rounds = {}
        for step in program.steps.tolist():
            rounds.setdefault((step[PHASE], step[ROUND]), []).append(step)
        todo.append([rounds[key] for key in sorted(rounds)])
    ready, over = list(arrivals), [[] for _ in arrivals]  # of the current round: ends of what is through
    while any(todo):
        moved = False
        for rank, queue in enumerate(todo):
            for step in [s for s in (queue[0] if queue else []) if s[KIND] == SEND]:
                peer = step[PEER]
                match = [s for s in (todo[peer][0] if todo[peer] else []) if s[KIND] != SEND]
                # A later round of the peer cannot be meant: the peer would have to have done this one.
                if match and match[0][PEER] == rank and match[0][:2] == step[:2]:
                    end = max(ready[rank], ready[peer]) + seconds(step[LENGTH])
                    queue[0].remove(step)
                    todo[peer][0].remove(match[0])
                    over[rank].append(end)
                    over[peer].append(end)
                    moved = True
        for rank, queue in enumerate(todo):
            if queue and not queue[0]:
                queue.pop(0)
                ready[rank], over[rank] = max(ready[rank], *over[rank]), []
        assert moved
    return ready


def relaxed_by_ranks(schedule, seconds, arrivals):
    """Ends of all ranks, each with a queue of sends and one of receives."""
    sends, receives = [], []
    for program in rank_programs(schedule):
        steps = program.steps.tolist()
        sends.append([s for s in steps if s[KIND] == SEND])
        receives.append([s for s in steps if s[KIND] != SEND])
    out, into = list(arrivals), list(arrivals)
    arrived = [{} for _ in arrivals]  # chunk -> when the last delivery of it was over
    while any(sends):
        moved = False
        for rank, queue in enumerate(sends):
            if not queue:
                continue
            step = queue[0]
            at, peer, chunks = step[:2], step[PEER], range(step[START], step[START] + step[LENGTH])
            earlier = [r for r in receives[rank] if r[:2] < at and set(chunks) & {*chunk_range(r)}]
            head = receives[peer][0]
            if earlier or head[PEER] != rank or head[:2] != at:
                continue
            data = max(
                arrived[rank].get((c, when), -np.inf)
                for c in chunks
                for when in rounds_before(arrived[rank], c, at)
            )
            end = max(out[rank], into[peer], data) + seconds(step[LENGTH])
            out[rank] = into[peer] = end
            arrived[peer].update({(c, tuple(at)): end for c in chunks})
            queue.pop(0)
            receives[peer].pop(0)
            moved = True
        assert moved
    return [max(pair) for pair in zip(out, into, strict=True)]


def chunk_range(step):
    return range(step[START], step[START] + step[LENGTH])


def rounds_before(arrived, chunk, at):
    """Rounds before `at` in which a chunk was delivered; the round of nothing where there are none."""
    return [w for c, w in arrived if c == chunk and list(w) < at] or [None]


BY_RANKS = {"strict": strict_by_ranks, "relaxed": relaxed_by_ranks}


@st.composite
def schedules(draw):
    """Schedules that keep to one port a rank; hardly ever an AllReduce, which does not matter here."""
    ranks, chunks = draw(st.integers(2, 6)), draw(st.integers(1, 5))
    late = draw(st.sampled_from([(), ((0,),), ((ranks - 1,),)]))
    phases = []
    for name in ("pre", "post") if late else ("post",):
        rounds = []
        for _ in range(draw(st.integers(0, 5))):
            to = draw(st.permutations(range(ranks)))
            pairs = [(src, dst) for src, dst in enumerate(to) if src != dst and draw(st.booleans())]
            rows = []
            for src, dst in pairs:
                first = draw(st.integers(0, chunks - 1))
                rows.append((src, dst, first, draw(st.integers(1, chunks - first)), draw(st.integers(0, 1))))
            rounds += [rows] if rows else []
        phases.append(Phase.build(name, rounds))
    return Schedule(ranks, late, chunks, tuple(phases))


def arrival_vectors(ranks):
    # Quarters: sums of them are exact.
    return st.lists(st.integers(-40, 40).map(lambda q: q / 4), min_size=ranks, max_size=ranks)


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=150)
@given(schedule=schedules(), data=st.data())
def test_as_when_every_rank_is_followed_by_itself(mode, schedule, data):
    come = data.draw(arrival_vectors(schedule.ranks))
    found = simulate(schedule, 4 * schedule.chunks, SLOW, come, mode)
    assert found.ends.tolist() == BY_RANKS[mode](schedule, lambda count: 1.0 + count, come)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("schedule", CASES, ids=repr)
def test_real_schedules_too(schedule, mode):
    come = np.random.default_rng(1).integers(0, 40, schedule.ranks) / 4
    found = simulate(schedule, 4 * schedule.chunks, SLOW, come, mode)
    assert found.ends.tolist() == BY_RANKS[mode](schedule, lambda count: 1.0 + count, come)


# Against the cost model.


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("refine", [1, 3])
@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 7, 8, 12, 16, 17, 33])
def test_a_schedule_at_its_bound_takes_what_the_cost_model_says(ranks, refine, mode):
    schedule = synthesize(Request(ranks, (ranks // 2,), "stragglar", refine))
    assert certify(schedule).gap == 0
    pre = cost(schedule, SIZE, PORT).phases[0].seconds
    for delay in (pre, 3 * pre):
        found = simulate(schedule, SIZE, PORT, planned_arrivals(schedule, delay), mode)
        assert found.post_seconds == pytest.approx(cost(schedule, SIZE, PORT, delay).post_seconds, rel=1e-9)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 11])
@pytest.mark.parametrize("late", [(), (1,)])
@pytest.mark.parametrize("delay", [0.0, 1e-4, 5e-3])
def test_ring_takes_what_the_cost_model_says(ranks, late, delay, mode):
    # The late rank takes part in every round: what the others do before it comes saves nothing.
    schedule = synthesize(Request(ranks, late, "ring"))
    found = simulate(schedule, SIZE, PORT, planned_arrivals(schedule, delay), mode)
    assert found.post_seconds == pytest.approx(cost(schedule, SIZE, PORT, delay).post_seconds, rel=1e-9)


@given(st.sampled_from(CASES), st.floats(0, 2e-3), st.sampled_from(MODES), st.sampled_from([0, 8, SIZE]))
def test_never_longer_than_the_cost_model_says(schedule, delay, mode, size):
    found = simulate(schedule, size, PORT, planned_arrivals(schedule, delay), mode)
    assert found.post_seconds <= cost(schedule, size, PORT, delay).post_seconds * (1 + 1e-9) + 1e-15


def test_shorter_where_ranks_need_not_keep_step():
    # Two pairs that have nothing to do with each other, long and short messages crosswise.
    rounds = [[(0, 1, 0, 3, 0), (2, 3, 0, 1, 0)], [(0, 1, 0, 1, 0), (2, 3, 0, 3, 0)]]
    schedule = Schedule(4, (), 3, (Phase.build("post", rounds),))
    link = Link(0.0, 1.0)
    assert cost(schedule, 3, link).post_seconds == 6
    assert simulate(schedule, 3, link).ends.tolist() == [4, 4, 4, 4]


def test_planned_arrivals_spread_groups_as_the_cost_model_does():
    phases = tuple(Phase.build(name, []) for name in ("pre", "arrival1", "post"))
    assert planned_arrivals(Schedule(4, ((2,), (0, 3)), 1, phases), 8.0).tolist() == [8, 0, 4, 8]
    assert planned_arrivals(CASES[-1], 8.0).tolist() == [8] * 6


# What holds for every schedule.


@given(st.sampled_from(CASES), st.data(), st.sampled_from(MODES))
def test_coming_later_never_helps_and_never_costs_more_than_the_delay(schedule, data, mode):
    come = np.array(data.draw(arrival_vectors(schedule.ranks)))
    later = np.abs(data.draw(arrival_vectors(schedule.ranks)))
    simulator, size = Simulator(schedule, mode), 4 * schedule.chunks
    before, after = (simulator.run(size, SLOW, a).ends for a in (come, come + later))
    assert (before <= after).all() and (after <= before + later.max()).all()
    assert np.array_equal(simulator.run(size, SLOW, come + 2.25).ends, before + 2.25)


@given(
    st.sampled_from([s for s in CASES if s.late]),
    st.sampled_from(MODES),
    st.lists(st.floats(0, 1), min_size=8, max_size=8),
    st.floats(0, 3),
)
def test_nothing_beats_the_bound_whoever_is_late(schedule, mode, shape, seconds):
    # Alpha 0 and 1 s for the buffer: the bound counts bandwidth only.
    come = np.array(shape[: schedule.ranks]) * seconds
    found = simulate(schedule, 1.0, Link(0.0, 1.0), come, mode)
    bound = post_seconds_after_delay(schedule.ranks, 1.0, float(np.ptp(come)))
    assert found.post_seconds >= bound - 1e-9


@given(st.sampled_from(CASES), st.data())
def test_relaxed_is_never_later_than_strict(schedule, data):
    come = data.draw(arrival_vectors(schedule.ranks))
    strict, relaxed = (simulate(schedule, 4 * schedule.chunks, SLOW, come, mode) for mode in MODES)
    assert (relaxed.ends <= strict.ends).all() and (relaxed.starts <= strict.starts).all()


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=50)
@given(schedule=schedules(), data=st.data())
def test_the_message_table(mode, schedule, data):
    come = np.array(data.draw(arrival_vectors(schedule.ranks)))
    found = simulate(schedule, 4 * schedule.chunks, SLOW, come, mode)
    messages = sum(len(p.table) for p in schedule.phases)
    assert {len(found.table), len(found.phase), len(found.round), len(found.starts)} == {messages}
    assert np.array_equal(found.finishes - found.starts, 1.0 + found.table[:, COUNT])
    present = found.completion - come
    for column, busy in ((SRC, found.busy_out), (DST, found.busy_in)):
        assert (found.starts >= come[found.table[:, column]]).all()
        for rank in range(schedule.ranks):
            own = found.table[:, column] == rank
            assert (found.starts[own][1:] >= found.finishes[own][:-1]).all()
            held = (found.finishes - found.starts)[own].sum()
            assert busy[rank] == (pytest.approx(held / present[rank]) if present[rank] else 0)
    last = [max([a, *found.finishes[(found.table[:, :2] == r).any(axis=1)]]) for r, a in enumerate(come)]
    assert found.ends.tolist() == last and found.completion == max(last)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cells", [1, 40, 1 << 23])
def test_many_iterations_are_as_one_by_one(mode, cells, monkeypatch):
    monkeypatch.setattr(simulation, "BATCH_CELLS", cells)
    schedule = CASES[3]
    come = np.random.default_rng(0).exponential(1e-4, (23, 8))
    expected = [simulate(schedule, SIZE, PORT, row, mode).completion for row in come]
    assert completions(schedule, SIZE, PORT, come, mode).tolist() == expected
    assert completions(schedule, SIZE, PORT, come[0], mode).tolist() == expected[:1]
    assert completions(schedule, SIZE, PORT, come[:0], mode).shape == (0,)


def test_another_rank_late_than_planned_costs_time_only():
    # Worked out by hand: 2 ranks, rank 1 planned late; a swap takes 26, whoever comes last.
    schedule = CASES[0]
    for come in ([0.0, 50.0], [50.0, 0.0]):
        found = simulate(schedule, 300, Link(1.0, 4.0), come)
        assert found.post_seconds == 3 * 26 and found.ends.tolist() == [128, 128]


# What is refused.


@pytest.mark.parametrize(
    "arrivals",
    [
        [0.0] * 5,
        [0.0, np.nan] * 3,
        [0.0, np.inf] * 3,
        [[0.0] * 6] * 2,
        ["x"] * 6,
        [[1.0], [2.0, 3.0]],
        3.0,
        [1j] * 6,
    ],
)
def test_arrivals_that_are_none(arrivals):
    with pytest.raises(UsageError):
        simulate(CASES[-1], 1, PORT, arrivals)


@pytest.mark.parametrize("size", [-1, float("nan"), float("inf")])
def test_sizes_that_are_none(size):
    with pytest.raises(UsageError, match="size"):
        completions(CASES[-1], size, PORT, [[0.0] * 6])


def test_modes_and_ports():
    with pytest.raises(UsageError, match="strict or relaxed"):
        simulate(CASES[0], 1, PORT, mode="lax")
    for rows, verb in (
        ([(0, 1, 0, 1, 0), (0, 2, 0, 1, 0)], "sends"),
        ([(0, 2, 0, 1, 0), (1, 2, 0, 1, 0)], "receives"),
    ):
        schedule = Schedule(3, (), 1, (Phase.build("post", [rows]),))
        with pytest.raises(InvalidScheduleError, match=f"post round 0: rank [02] {verb} more than once"):
            simulate(schedule, 1, PORT)


def test_nothing_to_do():
    empty = Schedule(3, (), 1, (Phase.build("post", []),))
    found = simulate(empty, 1, PORT, [1.0, 2.0, 3.0])
    assert found.ends.tolist() == [1, 2, 3] and found.post_seconds == 0 and not len(found.starts)
    assert found.busy_out.tolist() == [0, 0, 0]


def test_examples_in_docstrings():
    failed, tried = doctest.testmod(import_module("stragglar.backends.simulation"))
    assert tried and not failed
