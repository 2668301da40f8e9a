"""`stragglar run --on nccl` and `lower --to nccl`: what is said where GPUs are missing, and the launcher."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner

from stragglar.backends.nccl import launch as launching
from stragglar.backends.nccl import project as projects
from stragglar.backends.nccl import toolchain
from stragglar.backends.run import RunRequest, run
from stragglar.cli.main import cli
from stragglar.schedules import InfeasibleError, MissingError, RunError, UsageError
from stragglar.synth import Request, synthesize

FAKE = """
import json, sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
rank, mode = int(options["--rank"]), {mode!r}
if mode == "stalls" and rank == 2: import time; time.sleep(100)
if mode == "fails" and rank == 2: print("rank 2, post round 1: ncclSend: unhandled system error"); sys.exit(1)
if mode == "no gpu": print(f"rank {{rank}}: no GPU that can be used here"); sys.exit(4)
if mode == "dies" and rank == 1: sys.exit(7)
wrong = 3 if mode == "wrong" else 0
assert options["--delays"] == "0.000000000,0.000000000,0.000000000,0.005000000", options
if rank == 0 and mode != "silent":
    with open(options["--json"], "w") as log:
        for name in ("schedule", "p2p-ring", "ncclAllReduce"):
            for place in ("out", "in"):
                row = dict(algorithm=name, nccl=22703, count=16, place=place, wrong=wrong)
                row["seconds"] = [2e-6, 4e-6]
                print(json.dumps(row), file=log)
sys.exit(1 if wrong else 0)
"""


@pytest.fixture
def started(tmp_path):
    def start(mode, **values):
        program = tmp_path / "program.py"
        program.write_text(FAKE.format(mode=mode))
        schedule = synthesize(Request(4, (3,)))
        request = RunRequest(count=16, late_by=0.005, **values)
        command = [sys.executable, str(program)]
        return launching.launch(command, schedule, request, request.delays_for(schedule))

    return start


def test_the_report(started):
    report = started("good")
    assert report.correct and report.backend == "nccl" and report.library == "NCCL 2.27.3"
    assert report.schedule.seconds == pytest.approx(3e-6) and report.schedule.samples == (2e-6, 4e-6)
    assert list(report.others) == ["ncclAllReduce", "p2p-ring"]
    assert all(t.seconds == pytest.approx(3e-6) and t.wrong == 0 for t in report.others.values())
    wrong = started("wrong")
    assert not wrong.correct and wrong.wrong == 6


@pytest.mark.parametrize(
    ("mode", "error", "text"),
    [
        ("fails", RunError, "rank 2, post round 1: ncclSend"),
        ("dies", RunError, "rank 1 died with code 7"),
        ("silent", RunError, "wrote no results"),
        ("no gpu", MissingError, "no GPU that can be used here"),
    ],
)
def test_failures_name_the_rank(started, mode, error, text):
    with pytest.raises(error, match=text):
        started(mode)


def test_a_run_that_does_not_end_is_ended(started, monkeypatch):
    monkeypatch.setattr(launching, "STARTUP_SECONDS", 1.0)
    with pytest.raises(RunError, match="rank 2 is still running"):
        started("stalls", time_limit=0.5, repeat=1, warmup=0)


def no_driver(name):
    raise OSError(name)


def test_without_a_gpu_the_command_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(toolchain.ctypes, "CDLL", no_driver)
    path = str(tmp_path / "s.json")
    assert CliRunner().invoke(cli, ["synth", "-n", "4", "--late", "1", "-o", path]).exit_code == 0
    schedule = synthesize(Request(4, (1,)))
    with pytest.raises(MissingError, match=r"no GPU here: NVIDIA's driver \(libcuda.so.1\)") as raised:
        run(schedule, "nccl", RunRequest(count=4))
    assert raised.value.exit_code == 4


def test_too_few_gpus(monkeypatch):
    monkeypatch.setattr(launching, "compute_capabilities", lambda: ("sm_90", "sm_90"))
    with pytest.raises(MissingError, match="4 ranks need a GPU each, and this machine has 2"):
        run(synthesize(Request(4, (1,))), "nccl", RunRequest(count=4))


def test_lower(tmp_path):
    path, folder = str(tmp_path / "s.json"), tmp_path / "new" / "project"
    invoke = CliRunner().invoke
    assert invoke(cli, ["synth", "-n", "5", "--late", "2", "-o", path]).exit_code == 0
    done = invoke(cli, ["lower", path, "--to", "nccl", "-o", str(folder)])
    assert done.exit_code == 0, done.output
    assert {p.name for p in folder.iterdir()} == {*projects.SOURCES, "schedule.cc", "README.md"}
    assert "stragglar, 5 ranks, late: 2, 4 chunks" in (folder / "README.md").read_text()
    assert invoke(cli, ["lower", path, "--to", "nccl4py", "-o", str(tmp_path / "f.py")]).exit_code == 0
    compile((tmp_path / "f.py").read_text(), "f.py", "exec")


def test_lower_refuses_what_it_cannot_write(tmp_path, monkeypatch):
    schedule = synthesize(Request(4, (1,)))
    with pytest.raises(UsageError, match="a project is a folder"):
        projects.write_project("-", schedule)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot make this folder"):
        projects.write_project(str(tmp_path / "file"), schedule)
    monkeypatch.setattr(projects, "MAX_TRANSFERS", 5)
    with pytest.raises(InfeasibleError, match="too many for constant tables"):
        projects.project(schedule)


def test_every_template_is_used():
    templates = {p.name for p in (projects.files(projects.__package__) / "templates").iterdir()}
    assert templates == {*projects.SOURCES, "README.md", "nccl4py.py.txt"}
