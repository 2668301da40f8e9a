"""Real processes: right results whatever the timing, and an end with a name whatever goes wrong."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from run_folder import Strike, left_over

pytest.importorskip("mpi4py", reason="mpi4py is not installed")
from stragglar.backends import verdict
from stragglar.backends.mpi import launch
from stragglar.backends.mpi.environment import rank_here
from stragglar.backends.run import RunRequest, run
from stragglar.schedules import MissingError, RunError
from stragglar.synth.families import synthesize
from stragglar.synth.request import Request

try:
    MPIEXEC = launch.find_mpiexec()
except MissingError as missing:
    pytest.skip(f"no mpiexec: {missing}", allow_module_level=True)

HERE = Path(__file__).parent / "mpi"


def start(ranks, program, *arguments):
    command = [
        MPIEXEC,
        *launch.launcher_options(MPIEXEC),
        "-n",
        str(ranks),
        sys.executable,
        str(HERE / program),
        *arguments,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def schedule_for(ranks, late):
    return synthesize(Request(ranks=ranks, late=(late,), algorithm="stragglar", refine=2))


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_every_case_agrees_with_the_model_bit_for_bit(ranks):
    outcome = start(ranks, "cases.py")
    assert outcome["bad"] == [] and outcome["cases"] > 30


def test_clocks_of_different_machines_are_compared_by_messages():
    # One machine here, so the true offset is nought: what is measured is the error.
    for offset, error in start(3, "clocks.py"):
        assert abs(offset) <= error < 0.5


def test_a_rank_that_answers_but_does_not_come_is_named():
    outcome = start(4, "elsewhere.py")
    assert outcome["message"].startswith("rank 2 holds up the others: rank ")


def test_sizes_around_the_number_of_chunks_on_eight_ranks():
    outcome = start(8, "cases.py", "--quick")
    assert outcome["bad"] == [] and outcome["cases"] >= 28


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "quick"), [(8, ()), (16, ("--quick",))])
def test_every_case_on_many_ranks(ranks, quick):
    assert start(ranks, "cases.py", *quick)["bad"] == []


def test_a_measured_run_reports_both_and_their_bandwidths():
    report = run(schedule_for(4, 3), "mpi", RunRequest(bytes=40004, late_by=0.05, repeat=3))
    assert report.correct and report.mpi_allreduce.wrong == 0
    assert report.delays == (0, 0, 0, 0.05) and report.count == 10001
    for timing in (report.schedule, report.mpi_allreduce):
        # From the arrival of the late rank: the delay itself is not in it.
        assert 0 < timing.minimum <= timing.seconds <= timing.maximum and timing.minimum < 0.05
        assert timing.algbw == pytest.approx(40004 / timing.seconds / 1e9)
        assert timing.busbw == pytest.approx(timing.algbw * 2 * 3 / 4)
        assert len(timing.samples) == 3
    assert report.speedup == pytest.approx(report.mpi_allreduce.seconds / report.schedule.seconds)
    assert report.library and len(report.hosts) == 1


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_types_that_mpi_lacks(dtype):
    report = run(
        schedule_for(3, 1), "mpi", RunRequest(count=1001, dtype=dtype, repeat=1, late=(0,), late_by=0.01)
    )
    assert report.correct and report.mpi_allreduce.wrong == 0
    assert "numpy" in report.mpi_allreduce.note


def test_a_rank_with_another_input_is_named_and_a_users_own_mpiexec_works():
    outcome = start(4, "differing.py")
    for message, what in zip(
        outcome["messages"], ["count", "dtype", "op", "repeat", "seed", "delays", "schedule"], strict=False
    ):
        assert message.startswith(f"rank 2 was given another {what} than the others")
    assert outcome["messages"][0].endswith("101, not 100")
    assert outcome["messages"][7] == "the schedule is for 5 ranks, MPI started 4"
    assert outcome["correct"] and outcome["ranks"] == 4


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    ("number", "message"),
    [
        (signal.SIGKILL, "rank 2 died: killed by SIGKILL"),
        (signal.SIGTERM, "rank 2 died: killed by SIGTERM"),
        (signal.SIGSEGV, "rank 2 died: killed by SIGSEGV"),
    ],
)
def test_a_rank_that_dies_is_named_at_once(home, number, message):
    strike = Strike(home, 2, number, 0.3)
    with pytest.raises(RunError, match=f"^{message}"):
        run(schedule_for(4, 1), "mpi", RunRequest(count=1000, late_by=20.0))
    assert time.monotonic() - strike.when < 5


def test_a_stopped_rank_is_named_within_the_time_limit(home):
    strike = Strike(home, 2, signal.SIGSTOP, 0.3)
    with pytest.raises(RunError, match=r"^rank 2 does not respond: rank [013] waited"):
        run(schedule_for(4, 1), "mpi", RunRequest(count=1000, late_by=1.0, wait_limit=1.0, warmup=0))
    assert time.monotonic() - strike.when < 15


def test_a_run_that_takes_too_long_ends(home):
    request = RunRequest(count=10, delays=(0.0, 0.0), repeat=100000, time_limit=1.0)
    with pytest.raises(RunError, match="the run did not end within its time limit"):
        run(synthesize(Request(ranks=2, algorithm="ring")), "mpi", request)


def test_ctrl_c_leaves_nothing_behind(tmp_path):
    process = subprocess.Popen(
        [sys.executable, str(HERE / "interrupted.py"), str(tmp_path)], stderr=subprocess.DEVNULL
    )
    until = time.monotonic() + 30
    while len(list(tmp_path.glob("*/rank-*.json"))) < 3:
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=10) != 0
    assert list(tmp_path.iterdir()) == [] and left_over(tmp_path) == []


def test_without_mpiexec_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setattr(launch.shutil, "which", lambda *args, **kwargs: None)
    with pytest.raises(MissingError, match="pip install"):
        launch.find_mpiexec()


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ({}, None),
        ({"PMI_RANK": "3"}, 3),
        ({"OMPI_COMM_WORLD_RANK": "0"}, 0),
        ({"PMIX_RANK": "5"}, 5),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, None),
        ({"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "8"}, 2),
    ],
)
def test_a_launcher_is_recognised_by_its_variables(monkeypatch, variables, rank):
    for name in [n for n in os.environ if n.startswith(("PMI", "OMPI", "SLURM"))]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert rank_here() == rank


def leave(folder, name, content):
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))


def test_who_speaks_for_a_failed_run(tmp_path):
    leave(tmp_path, "output.txt", "")
    assert verdict.reason(tmp_path, 1) == "mpiexec ended with code 1: it printed nothing"
    assert verdict.reason(tmp_path, 1, "a rank") == "a rank ended with code 1: it printed nothing"
    leave(tmp_path, "output.txt", "first\nlast\n\n")
    assert verdict.reason(tmp_path, 1) == "mpiexec ended with code 1: last"
    leave(tmp_path, "failure-1.json", {"message": "rank 1: connection lost", "kind": "error"})
    assert verdict.reason(tmp_path, 1) == "rank 1: connection lost"
    for rank, age in ((0, 0.2), (1, 0.1), (2, 9.0)):
        leave(tmp_path, f"rank-{rank}.json", {"pid": os.getpid()})
        os.utime(tmp_path / f"rank-{rank}.json", (1000 - age, 1000 - age))
    assert verdict.reason(tmp_path, 1) == (
        "rank 2 stopped responding 8.9 s before the end; rank 1: connection lost"
    )
    leave(tmp_path, "death-1.json", {"code": 1})
    leave(tmp_path, "death-3.json", {"code": 7})
    assert verdict.reason(tmp_path, 1) == "rank 3 died with exit code 7: last"
    leave(tmp_path, "failure-0.json", {"message": "rank 2 does not respond", "kind": "named"})
    assert verdict.reason(tmp_path, 1) == "rank 2 does not respond"
