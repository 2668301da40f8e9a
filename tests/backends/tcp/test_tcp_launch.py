"""Whole runs in processes: the report, every way to fail, and nothing left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from run_folder import Strike, left_over
from tcp_fleet import together

from stragglar.backends.request import RunRequest
from stragglar.backends.run import run
from stragglar.backends.tcp import environment, launch
from stragglar.backends.tcp.mesh import Listener
from stragglar.backends.tcp.together import Clock
from stragglar.cli.main import run as command
from stragglar.schedules import RunError, UsageError, save_schedule
from stragglar.schedules.ring import ring_all_reduce
from stragglar.schedules.validate import validate
from stragglar.synth.families import synthesize
from stragglar.synth.request import Request

HERE = Path(__file__).parent
VARIABLES = (environment.RANK, environment.RENDEZVOUS, environment.TOKEN, environment.HOST)


def schedule_for(ranks, *late):
    return synthesize(Request(ranks=ranks, late=late, algorithm="stragglar"))


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    """These tests start all ranks themselves."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("ranks", [2, 3, 8, 13])
def test_the_ring_is_an_all_reduce(ranks):
    assert validate(ring_all_reduce(ranks)).valid and len(ring_all_reduce(ranks).post) == 2 * (ranks - 1)


def test_a_run_reports_the_schedule_and_the_ring_and_what_everybody_did(home):
    request = RunRequest(bytes=40004, delays=(0.0, 0.02, 0.0, 0.25), repeat=3, warmup=0, trace=True)
    report = run(schedule_for(4, 1, 3), "tcp", request)
    assert report.correct and report.backend == "tcp" and report.count == 10001
    assert list(report.others) == ["ring"] and report.others["ring"].wrong == 0
    for timing in (report.schedule, report.others["ring"]):
        assert 0 < timing.minimum <= timing.seconds <= timing.maximum and len(timing.samples) == 3
        assert timing.minimum < 0.25  # from the arrival of the last rank: the delay is not in it
    assert {e.rank for e in report.events} == {0, 1, 2, 3}
    absent = {e.rank: e.end - e.start for e in report.events if e.kind == "absent"}
    assert {1, 3} <= set(absent) and absent[3] > 0
    assert min(e.start for e in report.events) >= 0 and len(report.hosts) == 1 and "TCP" in report.library


def test_fewer_elements_than_chunks_and_a_narrow_type(home):
    report = run(schedule_for(3, 1), "tcp", RunRequest(count=1, dtype="f16", op="max", repeat=1, warmup=0))
    assert report.correct and report.events == ()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize(("rank", "number", "after"), [(2, 9, 0.5), (0, 15, 0.5), (3, 11, 0.0)])
def test_a_rank_that_dies_is_named(home, rank, number, after):
    Strike(home, rank, number, after)
    with pytest.raises(RunError, match=f"^rank {rank} died: killed by {signal.Signals(number).name}$"):
        run(schedule_for(4, 1), "tcp", RunRequest(count=1000, late_by=20.0))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("rank", [0, 2])
def test_a_stopped_rank_is_named(home, rank):
    Strike(home, rank, signal.SIGSTOP, 0.5)
    # Long enough that ranks which share a busy core are not taken for stopped ones.
    request = RunRequest(count=1000, late_by=1.0, wait_limit=5.0, warmup=0, repeat=20)
    with pytest.raises(RunError, match=rf"^rank {rank} does not respond: rank \d waited"):
        run(schedule_for(4, 1), "tcp", request)


def test_a_run_that_takes_too_long_ends(home):
    request = RunRequest(count=10, repeat=1000000, time_limit=2.0, wait_limit=30.0)
    with pytest.raises(RunError, match="the run did not end within its time limit"):
        run(ring_all_reduce(2), "tcp", request)


def test_ctrl_c_leaves_nothing_behind(tmp_path):
    command = [sys.executable, str(HERE / "tcp_interrupted.py"), str(tmp_path)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 30
    while len(list(tmp_path.glob("*/rank-*.json"))) < 3:
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=10) != 0
    assert list(tmp_path.iterdir()) == [] and left_over(tmp_path) == []


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: its kernel ends orphans")
def test_a_launcher_that_is_killed_takes_its_ranks_with_it(tmp_path):
    command = [sys.executable, str(HERE / "tcp_interrupted.py"), str(tmp_path)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 30
    while len(list(tmp_path.glob("*/rank-*.json"))) < 3:
        assert time.monotonic() < until
        time.sleep(0.05)
    process.kill()
    process.wait()
    while left := left_over(tmp_path):
        assert time.monotonic() < until, left
        time.sleep(0.05)


def free_port():
    listener = Listener("127.0.0.1")
    port = listener.address[1]
    listener.close()
    return port


def started_one_by_one(tmp_path, counts):
    """`stragglar run` once for every rank, as on several hosts; return codes and outputs, by rank."""
    save_schedule(ring_all_reduce(len(counts)), str(tmp_path / "s.json"))
    port, processes = free_port(), []
    for rank, count in enumerate(counts):
        variables = {
            environment.RANK: str(rank),
            environment.RENDEZVOUS: f"127.0.0.1:{port}",
            environment.TOKEN: "s",
        }
        words = [
            "run",
            str(tmp_path / "s.json"),
            "--on",
            "tcp",
            "--count",
            str(count),
            "--repeat",
            "2",
            "--json",
        ]
        processes.append(
            subprocess.Popen(
                [sys.executable, "-P", "-c", "from stragglar.cli.main import main; main()", *words],
                env=os.environ | variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    outputs = [process.communicate(timeout=60) for process in processes]
    return [process.returncode for process in processes], outputs


def test_ranks_that_are_started_one_by_one_find_each_other(tmp_path):
    codes, outputs = started_one_by_one(tmp_path, [1000] * 3)
    assert codes == [0, 0, 0], outputs
    report = json.loads(outputs[0][0])
    assert report["correct"] and report["ranks"] == 3
    assert [out for out, _ in outputs[1:]] == ["", ""]  # rank 0 speaks for all


def test_a_rank_with_another_size_is_named_by_all(tmp_path):
    codes, outputs = started_one_by_one(tmp_path, [1000, 1000, 1001])
    assert codes == [1, 1, 1]
    assert all("rank 2 was given another count than the others: 1001, not 1000" in err for _, err in outputs)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (
            {"RANK": "0"},
            "need STRAGGLAR_RANK, STRAGGLAR_RENDEZVOUS and STRAGGLAR_TOKEN: set STRAGGLAR_RENDEZVOUS",
        ),
        ({"RENDEZVOUS": "a:1"}, "set STRAGGLAR_RANK"),
        ({"RANK": "0", "RENDEZVOUS": "a:1"}, "set STRAGGLAR_TOKEN"),
        ({"RANK": "-1", "RENDEZVOUS": "a:1", "TOKEN": "t"}, "must be a rank, 0 or more, not '-1'"),
        ({"RANK": "0", "RENDEZVOUS": "host", "TOKEN": "t"}, "must be HOST:PORT, not 'host'"),
        ({"RANK": "0", "RENDEZVOUS": "host:70000", "TOKEN": "t"}, "must be HOST:PORT"),
    ],
)
def test_half_a_place_is_refused(variables, message):
    with pytest.raises(UsageError, match=message):
        environment.place_here({f"STRAGGLAR_{name}": value for name, value in variables.items()})


def test_a_place_is_read_from_the_environment():
    assert environment.place_here({}) is None
    place = environment.place_here(
        {"STRAGGLAR_RANK": "3", "STRAGGLAR_RENDEZVOUS": "[::1]:7000", "STRAGGLAR_TOKEN": "t"}
    )
    assert place == environment.Place(3, ("::1", 7000), b"t")


def test_a_rank_outside_the_schedule_is_refused(monkeypatch):
    place = environment.Place(5, ("127.0.0.1", 1), b"t")
    with pytest.raises(UsageError, match=r"rank 5 is not in 0\.\.1"):
        launch.run_place(ring_all_reduce(2), RunRequest(count=10), place)


def test_clocks_are_compared_by_messages():
    # One machine here, so the true offset is nought: what is measured is the error.
    def part(mesh, rank):
        clock = Clock(mesh, 10, shared=False)
        clock.synchronise()
        return abs(clock.now() - time.monotonic()), clock.error

    for rank, (offset, error) in enumerate(together(3, part)):
        assert offset <= error + 1e-3 and (error > 0) == (rank > 0)


def test_the_command_prints_both_rows(home, tmp_path_factory, capsys):
    path = tmp_path_factory.mktemp("schedules") / "s.json"
    save_schedule(schedule_for(3, 2), str(path))
    assert command(["run", str(path), "--on", "tcp", "--bytes", "4KiB", "--repeat", "1"]) == 0
    shown = capsys.readouterr().out
    assert "schedule" in shown and "ring" in shown and "every element of every rank is right" in shown
