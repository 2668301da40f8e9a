"""Contenders by name, and what theory says of each."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stragglar.schedules import save_schedule, validate
from stragglar.schedules.bounds import ceil_log2
from stragglar.schedules.errors import MissingError, UsageError
from stragglar.synth import Request, synthesize
from stragglar.testbed.contenders import Scene, contender

RATE = 1e6


def scene(ranks=8, late=None, seconds=1.0, delay=2.0, **more):
    return Scene(ranks, (ranks - 1,) if late is None else late, round(seconds * RATE), RATE, delay, **more)


@given(st.integers(3, 16), st.integers(1, 4), st.data())
def test_fully_late_theory_is_the_closed_form_of_the_rounds(ranks, refine, data):
    late = data.draw(st.integers(0, ranks - 1))
    made = contender(f"stragglar:{refine}", scene(ranks, (late,)))
    chunks = refine * (ranks - 1)
    assert made.theory(2.0) == pytest.approx(1 + (ceil_log2(ranks) - 1) / chunks)
    assert made.schedule is not None and validate(made.schedule).valid and made.schedule.late == (late,)


@given(st.integers(2, 16), st.floats(0, 2))
def test_theory_never_beats_the_bound_and_ring_is_what_everybody_knows(ranks, delay):
    here = scene(ranks, delay=delay)
    assert contender("ring", here).theory(delay) == pytest.approx(2 * (ranks - 1) / ranks)
    for name in ("ring", "rhd", "stragglar:2", "merge-allreduce:3", "split", "plan"):
        assert contender(name, here).theory(delay) >= here.bound(delay) * (1 - 1e-9)


@settings(max_examples=25)
@given(st.integers(3, 12), st.floats(0.0, 1.0))
def test_split_is_planned_for_the_delay_and_is_never_much_slower_than_ring(ranks, delay):
    here = scene(ranks, delay=delay, alpha=1e-6)
    made = contender("split", here)
    assert made.theory(delay) <= contender("ring", here).theory(delay) * 1.001
    assert made.theory(delay) <= here.bound(delay) * 1.02


def test_the_delay_that_hides_is_that_of_the_reduce_scatter():
    here = scene(8)
    exposed = contender("stragglar:1", here)
    assert exposed.theory(here.hiding_delay) == pytest.approx(exposed.theory(9.0))
    assert exposed.theory(here.hiding_delay * 0.9) > exposed.theory(9.0)


def test_several_late_ranks():
    here = scene(8, (3, 5))
    made = contender("several:4", here)
    assert made.schedule is not None and made.schedule.late == (3, 5)
    assert 9 / 8 <= made.theory(2.0) < 1.3
    assert here.bound(2.0) == pytest.approx(9 / 8)
    with pytest.raises(UsageError, match="one late rank"):
        contender("split", here)


@pytest.mark.parametrize(("ranks", "rounds"), [(2, 1), (4, 2), (6, 4), (8, 3), (16, 4)])
def test_theory_of_what_mpi_does_itself(ranks, rounds):
    here = scene(ranks)
    assert contender("mpi-rd", here).theory(0) == pytest.approx(rounds)
    volume = 2 * (ranks - 1) / ranks
    assert contender("mpi-ring", here).theory(0) == pytest.approx(volume)
    assert contender("gloo", here).theory(0) == pytest.approx(volume)
    whole = math.log2(ranks).is_integer()
    assert contender("mpi-rabenseifner", here).theory(0) == pytest.approx(volume if whole else 2 + 2 * 3 / 4)


def test_engines():
    assert contender("mpi:stragglar:2", scene()).engine == "mpi"
    assert contender("stragglar:2", scene()).engine == "tcp"
    assert contender("mpi-rd", scene()).engine == "mpi" and contender("mpi-rd", scene()).fleet == "mpi-rd"
    assert contender("gloo", scene()).schedule is None


def test_files_and_published_rounds(tmp_path, data_dir):
    path = str(tmp_path / "s.json")
    save_schedule(synthesize(Request(8, (2,))), path)
    assert contender(f"file:{path}", scene()).theory(2.0) == contender("stragglar:1", scene()).theory(2.0)
    with pytest.raises(UsageError, match="8 ranks, the testbed has 6 hosts"):
        contender(f"file:{path}", scene(6))
    made = contender(f"published:{data_dir / 'published_12.txt'}", scene(12))
    assert made.schedule is not None and len(made.schedule.post) == 15
    assert len(contender("published", scene(8)).schedule.post) == 9
    with pytest.raises(UsageError, match="--late 7"):
        contender("published", scene(8, (0,)))
    with pytest.raises(MissingError, match="published:FILE"):
        contender("published", scene(7))


@pytest.mark.parametrize(
    "name", ["", "rong", "stragglar:x", "stragglar:0", "stragglar:²", "split:0/0", "split:3", "mpi:mpi"]
)
def test_a_name_that_says_nothing_is_refused(name):
    with pytest.raises(UsageError):
        contender(name, scene())
