"""Schedules and thresholds from the plan, the late rank from a trace, several late ranks."""

import importlib.util
import time

import pytest

from stragglar.backends.torch import HOW

if importlib.util.find_spec("torch") is None:
    pytest.skip(HOW, allow_module_level=True)

import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from stragglar.backends.torch import Choice, Planner, StragglarState, register, renamed
from stragglar.schedules import Link, UsageError, cost, save_schedule, validate
from stragglar.schedules.arrival_files import save_trace
from stragglar.schedules.arrivals import ArrivalTrace
from stragglar.schedules.profile import Profile, save_profile
from stragglar.synth import Request, synthesize
from stragglar.synth.planner import Situation, plan
from stragglar.synth.several import groups_schedule

from .forked import run

GLOO = Link(200e-6, 2.0**30)


@settings(max_examples=25)
@given(
    st.integers(2, 12),
    st.integers(1, 1 << 32),
    st.sampled_from([Link(3e-6, 450e9), GLOO, Link(0.0, 1e9), Link(1e-3, 1e12)]),
    st.sampled_from([None, 0.0, 1e-4, 1e-2]),
)
def test_a_choice_pays_from_its_threshold_on_and_not_before(ranks, nbytes, link, delay):
    chosen = Planner(ranks, link, delay=delay)(nbytes)
    size = _planned_size(nbytes)
    ordinary = min(plan(Situation(ranks, None, size, link)).baselines.values()) - link.alpha
    if chosen is None:
        return
    (schedule,) = chosen.schedules
    assert schedule.ranks == ranks and schedule.late == (0,)
    after = cost(schedule, size, link, chosen.threshold * 1.001 + 1e-9).post_seconds
    assert after <= ordinary * (1 + 1e-6)
    if chosen.threshold:
        assert cost(schedule, size, link, chosen.threshold * 0.99).post_seconds >= ordinary * (1 - 1e-9)


def _planned_size(nbytes):
    """Sizes are rounded up by an eighth to a quarter of an octave at most."""
    step = max(1, (1 << nbytes.bit_length() - 1) // 4)
    size = -(-nbytes // step) * step
    assert nbytes <= size <= nbytes * 1.25 + 1
    return size


def test_the_schedule_follows_the_size():
    planner = Planner(8, GLOO)
    chunks = [planner(1 << exponent).schedules[0].chunks for exponent in (21, 24, 27)]
    assert chunks == sorted(set(chunks)), "larger buffers are cut more finely"
    assert planner(16) is None, "for a few bytes the ordinary all_reduce is as good"
    assert planner(1_000_000) is planner(1_000_001), "near sizes share a plan"
    split = Planner(8, Link(3e-6, 480e9), delay=1e-3)(1 << 30)
    assert split.schedules[0].origin.family == "split"
    for wrong in ({"late_ranks": 8}, {"late_ranks": 0}, {"delay": -1.0}, {"late": 8}):
        with pytest.raises(UsageError):
            Planner(8, GLOO, **wrong)


def summed(state, rank, ranks, numel):
    mine = torch.full((numel,), float(rank + 1))
    state.reduce(mine, op="SUM").wait()
    assert torch.all(mine == ranks * (ranks + 1) / 2)


def automatic(rank, ranks, profile):
    """Two lines without a schedule: late enough or not, large or small."""
    state = StragglarState(link=profile)
    choice = Planner(ranks, Link(1e-4, 1e9))(4 << 20)
    assert 0 < choice.threshold < 0.2 and state.decides_in_shared_memory
    for _ in range(2):
        dist.barrier()
        summed(state, rank, ranks, 10)  # too small for a schedule
    before = state.late_counts
    dist.barrier()
    time.sleep(0.6 if rank == 1 else 0)
    summed(state, rank, ranks, 1 << 20)
    after = state.late_counts
    state.close()
    return before, after


def test_without_a_schedule_it_is_planned(tmp_path):
    profile = str(tmp_path / "here.json")
    save_profile(Profile(Link(1e-4, 1e9)), profile)
    assert run(4, automatic, 4, profile) == [({-1: 2}, {-1: 2, 1: 1})] * 4


def patient(rank, ranks):
    """A planned threshold of a second: nobody is so late."""
    state = StragglarState(link=Link(0.05, 1e7), delay=30.0)
    assert Planner(ranks, Link(0.05, 1e7), delay=30.0)(16 << 20).threshold > 0.5
    time.sleep(0.1 * rank)
    summed(state, rank, ranks, 4 << 20)
    state.close()
    return state.late_counts


def test_within_the_planned_threshold_the_ordinary_all_reduce_runs():
    assert run(3, patient, 3) == [{-1: 1}] * 3


def traced(rank, ranks, folder):
    state = StragglarState.from_trace(f"{folder}/three.csv", link=GLOO)
    summed(state, rank, ranks, 4 << 20)
    schedule = state._engine._plans.choice(16 << 20).schedules[0]
    state.close()
    with pytest.raises(UsageError, match="a trace of 4 ranks, and the process group has 3"):
        StragglarState.from_trace(f"{folder}/four.csv")
    with pytest.raises(UsageError, match="nobody to plan for"):
        StragglarState.from_trace(f"{folder}/tied.csv")
    with pytest.raises(UsageError, match="static mode needs to know who is late"):
        StragglarState(mode="static")
    with pytest.raises(UsageError, match="for planning"):
        StragglarState(schedule, link=GLOO)
    return schedule.late


def test_static_mode_takes_the_rank_that_the_trace_shows(tmp_path):
    save_trace(ArrivalTrace.of([[0, 0.1, 5], [0, 0.2, 6], [8, 0, 0.1]]), str(tmp_path / "three.csv"))
    save_trace(ArrivalTrace.of([[0, 0.1, 5, 0]]), str(tmp_path / "four.csv"))
    save_trace(ArrivalTrace.of([[0, 1, 1]]), str(tmp_path / "tied.csv"))
    assert run(3, traced, 3, str(tmp_path)) == [(2,)] * 3


def several(rank, ranks, planned):
    """Two ranks that are late together, others in each call; then one alone."""
    if planned:
        state = StragglarState(late_ranks=2, threshold=0.1, link=GLOO)
    else:
        made = tuple(synthesize(Request(ranks, tuple(range(late)), refine=2)) for late in (1, 2))
        state = StragglarState(lambda _size: Choice(made, 0.1), late_ranks=2)
    told = []
    summed(state, rank, ranks, 1 << 20)  # planning takes its time, on every rank another one
    for late in ((2, 5), (0, 4), (3,)):
        before = state.late_counts
        dist.barrier()
        time.sleep(0.7 if rank in late else 0)
        summed(state, rank, ranks, 1 << 20)
        told.append(tuple(sorted(r for r, n in state.late_counts.items() if n > before.get(r, 0))))
    state.close()
    return told


@pytest.mark.parametrize("planned", [True, False])
def test_several_ranks_that_are_late_together(planned):
    assert run(6, several, 6, planned) == [[(2, 5), (0, 4), (3,)]] * 6


def refused(rank, ranks):
    pair = synthesize(Request(ranks, (0, 1)))
    with pytest.raises(RuntimeError, match="for each number of late ranks"):
        StragglarState(pair).reduce(torch.ones(9)).wait()
    one = synthesize(Request(ranks, (0,)))
    with pytest.raises(RuntimeError, match="for each number of late ranks"):
        StragglarState(one, late_ranks=2).reduce(torch.ones(9)).wait()
    with pytest.raises(UsageError, match="at least one rank may be late"):
        StragglarState(one, late_ranks=0)


def test_schedules_for_other_numbers_of_late_ranks_are_refused():
    run(4, refused, 4)


def in_groups(rank, ranks, schedule):
    state = StragglarState(schedule, mode="static")
    for numel in (1, 1003):
        time.sleep(0.02 * rank)
        summed(state, rank, ranks, numel)
    state.close()


@pytest.mark.parametrize("arrivals", [((3,), (1, 4)), ((1,), (2,), (0,)), ((1, 2, 3, 4),)])
def test_groups_that_arrive_one_after_another(arrivals):
    run(5, in_groups, 5, groups_schedule(5, arrivals, 12))


def test_renaming_several():
    pair = synthesize(Request(6, (0, 1), refine=2))
    for late in ((2, 5), (4, 0), (1, 3)):
        other = renamed(pair, late)
        assert other.arrivals == (tuple(sorted(late)),) and validate(other).valid
        assert other.phases == synthesize(Request(6, late, refine=2)).phases
    for wrong in ((1,), (1, 2, 3)):
        with pytest.raises(UsageError, match="is needed"):
            renamed(pair, wrong)
    for wrong in ((1, 1), (0, 6)):
        with pytest.raises(UsageError, match="does not exist or is named twice"):
            renamed(pair, wrong)
    with pytest.raises(UsageError, match="with late ranks 3 then 1,4"):
        renamed(groups_schedule(5, ((3,), (1, 4)), 6), (1, 2))


register(link=GLOO)


def planned_group(rank, ranks):
    """The process group plans for itself and for the groups made from it."""
    pair = dist.new_group([0, 1, 3])
    total = 0
    for numel in (4, 1 << 20):
        mine = torch.full((numel,), float(rank))
        dist.all_reduce(mine)
        assert torch.all(mine == sum(range(ranks)))
    if rank != 2:
        dist.all_reduce(mine.fill_(1.0), group=pair)
        total = mine[0].item()
    return total, sum(dist.group.WORLD.late_counts.values())


def test_the_process_group_plans_by_itself():
    register(link=GLOO)
    assert run(4, planned_group, 4, backend="stragglar") == [(0 if r == 2 else 3.0, 2) for r in range(4)]
    with pytest.raises(UsageError, match="for planning"):
        register(lambda ranks, nbytes: None, link=GLOO)
    with pytest.raises(UsageError, match="static mode"):
        register(mode="static")


def test_a_plan_of_the_command_line_is_a_schedule_for_it(tmp_path):
    save_schedule(plan(Situation(4, 1, 1 << 20, GLOO, 1.0)).schedule(), str(tmp_path / "plan.json"))
    assert run(4, from_file, 4, str(tmp_path / "plan.json")) == [None] * 4


def from_file(rank, ranks, path):
    from stragglar.schedules import load_schedule

    state = StragglarState(load_schedule(path))
    summed(state, rank, ranks, 100)
    state.close()
