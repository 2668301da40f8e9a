"""Groups of late ranks, lowered and run: a late rank's absence blocks only what depends on it."""

from __future__ import annotations

import numpy as np
import pytest

from stragglar.backends.model import run_model
from stragglar.backends.msccl.lower import lower
from stragglar.backends.msccl.model import verify
from stragglar.backends.msccl.xml_read import read_program
from stragglar.backends.run import RunRequest, run
from stragglar.backends.simulation import simulate
from stragglar.schedules import Link, MissingError
from stragglar.schedules.ir import DST
from stragglar.synth import Request, synthesize

WHOLE = [
    Request(6, groups=((3,), (1, 5)), chunks=8),
    Request(5, groups=((1,), (3,), (4,)), chunks=6),
    Request(5, groups=((1,), (3, 4)), algorithm="tree"),
]
PARTLY = [
    Request(6, groups=((3,), (1, 5)), chunks=8, before=(4, 3)),
    Request(5, groups=((1,), (3,), (4,)), chunks=6, before=(4, 2, 2)),
    Request(4, late=(2,), chunks=8, before=(3,)),
]


@pytest.mark.parametrize("request_", WHOLE)
def test_each_phase_ends_while_all_who_come_later_are_away(request_):
    schedule = synthesize(request_)
    lowered = lower(schedule)
    assert lowered.report.ok and read_program(lowered.text) == lowered.program
    assert lowered.program.late == schedule.late
    for number in range(len(schedule.phases) - 1):
        report = verify(lowered.program, late=schedule.absent(number), seeds=())
        assert report.ok, report.summary()
        sends = sum(len(phase.table) for phase in schedule.phases[: number + 1])
        assert len(report.pre_phase.steps) >= 2 * sends  # a send and a receive each, at least


@pytest.mark.parametrize("request_", PARTLY)
def test_where_later_phases_hold_work_that_could_be_early(request_):
    """Checked phase by phase when lowered; the file names nobody late, for alone it cannot be told apart."""
    schedule = synthesize(request_)
    lowered = lower(schedule)
    assert lowered.report.ok and lowered.report.pre_phase.complete
    held_back = [
        not verify(lowered.program, late=schedule.absent(number), seeds=()).pre_phase.complete
        for number in range(len(schedule.phases) - 1)
    ]
    assert any(held_back)
    assert verify(lowered.program).ok


@pytest.mark.parametrize("request_", [*WHOLE, *PARTLY])
def test_right_whoever_comes_when(request_):
    schedule = synthesize(request_)
    inputs = np.random.default_rng(3).integers(-99, 99, (schedule.ranks, 2 * schedule.chunks))
    assert (run_model(schedule, inputs, "sum") == inputs.sum(axis=0)).all()


def test_only_the_last_group_is_paid_for():
    """Event simulation: with time enough between the groups all phases before the last arrival are free."""
    schedule, link, size = synthesize(WHOLE[0]), Link(1e-6, 1e9), 8_000_000
    arrivals = [0.0, 0.2, 0.0, 0.1, 0.0, 0.2]
    made = simulate(schedule, size, link, arrivals)
    assert made.post_seconds == pytest.approx(len(schedule.post) * (1e-6 + 1e-3))
    assert made.finishes[made.phase == 1].max() < 0.2
    # Rank 3 as late as the others: its phase is waited for.
    assert simulate(schedule, size, link, [0.0, 0.2, 0.0, 0.2, 0.0, 0.2]).post_seconds > made.post_seconds
    assert not set(schedule.phases[1].table[:, DST].tolist()) & {1, 5}


@pytest.mark.parametrize("delays", [(0.0, 0.02, 0.0, 0.01), (0.02, 0.0, 0.01, 0.0)])
@pytest.mark.parametrize("before", [None, (4, 2)])
def test_on_mpi_each_rank_late_by_its_own_amount(delays, before):
    """Real processes, as planned and otherwise."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    schedule = synthesize(Request(4, groups=((3,), (1,)), chunks=8, before=before))
    try:
        report = run(schedule, "mpi", RunRequest(count=1000, repeat=1, delays=delays))
    except MissingError as missing:
        pytest.skip(f"no mpiexec: {missing}")
    assert report.correct
