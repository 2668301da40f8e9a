"""Small measurements from beginning to end, on real hosts: results, contract, refusals, exit codes."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stragglar.cli.main import run
from stragglar.testbed import testbed as testbeds
from stragglar.testbed.load import Load
from stragglar.testbed.measure import Samples

pytestmark = pytest.mark.usefixtures("namespaces")

COMMON = ("bench", "links", "--rate", "400mbit", "--force", "--json")


@pytest.fixture
def links(capsys):
    def call(*words):
        code = run([*COMMON, *map(str, words)])
        out = capsys.readouterr().out
        return code, json.loads(out) if out else None

    return call


def test_ours_on_three_hosts(links):
    code, report = links(
        *("--hosts", 3, "--seconds", "0.1", "--late-by", "full", "--repeat", 2),
        *("--algorithms", "ring,stragglar:4,split,plan,merge-allreduce:2"),
    )
    assert code == 0 and report["correct"] and report["delays"] == pytest.approx([0.055] * 2, rel=0.01)
    rows = {row["name"]: row for row in report["algorithms"]}
    assert list(rows) == ["ring", "stragglar:4", "split", "plan", "merge-allreduce:2"]
    for row in rows.values():
        assert {"median_s", "spread", "theory_s", "over_ring", "over_bound", "correct"} <= set(row)
        assert row["correct"] and row["wrong"] == 0 and len(row["samples_s"]) == 2
        # Loose, and from below only: a busy machine is slow, but no machine beats a shaped port by much.
        # Phases may overlap: merging can start before the last of what comes before it has ended.
        assert row["median_s"] > 0.5 * report["bound_s"]
    assert rows["ring"]["median_s"] > 0.9 * rows["ring"]["theory_s"]
    assert report["command"].startswith("stragglar bench link") and report["machine"] and report["date"]


def test_several_late_ranks_no_delay_and_other_types(links):
    code, report = links(
        *("--hosts", 4, "--bytes", "100kB", "--late", "1,2", "--late-by", "0", "--repeat", 1),
        *("--algorithms", "ring,several:2", "--dtype", "i64", "--op", "max"),
    )
    assert code == 0 and report["correct"] and report["late"] == [1, 2] and report["delays"] == [0.0]


def test_random_delays_are_the_same_for_all_contenders(links):
    code, report = links(
        *("--hosts", 3, "--bytes", "100kB", "--late-by", "random", "--repeat", 3, "--algorithms", "ring,rhd")
    )
    assert code == 0 and len(set(report["delays"])) == 3


@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="needs mpi4py")
def test_mpi_on_every_host(links):
    code, report = links(
        *("--hosts", 3, "--bytes", "200kB", "--late-by", "20ms", "--repeat", 1),
        *("--algorithms", "mpi,mpi-ring,mpi:stragglar:3"),
    )
    assert code == 0 and report["correct"]
    assert [row["engine"] for row in report["algorithms"]] == ["mpi", "mpi-ring", "mpi"]


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None and "STRAGGLAR_GLOO_PYTHON" not in os.environ,
    reason="needs torch, here or in the interpreter STRAGGLAR_GLOO_PYTHON",
)
def test_gloo_on_every_host(links):
    code, report = links("--hosts", 3, "--bytes", "200kB", "--repeat", 1, "--algorithms", "gloo")
    assert code == 0 and report["correct"]


def test_a_trace_has_every_rank(links, tmp_path):
    path = tmp_path / "t.json"
    code, _ = links(
        *(
            "--hosts",
            3,
            "--bytes",
            "200kB",
            "--repeat",
            1,
            "--algorithms",
            "ring,stragglar:2",
            "--trace",
            path,
        )
    )
    events = json.loads(path.read_text())["traceEvents"]
    assert code == 0 and len(events) > 20
    words = json.dumps(events)
    assert "ring" in words and "stragglar:2" in words


def test_a_sweep_and_its_files(capsys, tmp_path):
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    out, plot = tmp_path / "s.json", tmp_path / "s.svg"
    words = ["bench", "sweep", "--over", "delay", "--values", "0,1", "--hosts", "3", "--bytes", "100kB"]
    words += ["--repeat", "2", "--algorithms", "ring,split", "--force", "-o", str(out), "--plot", str(plot)]
    assert run(words) == 0
    data = json.loads(out.read_text())
    assert data["over"] == "delay" and len(data["points"]) == 2
    assert data["points"][0]["delays"] == [0.0, 0.0] and data["points"][1]["delays"][0] > 0
    assert "<svg" in plot.read_text() and "split" in capsys.readouterr().out


def test_a_wrong_result_is_an_exit_code(links, monkeypatch):
    # The ranks are other processes: the wrong element is put where the driver counts them.
    monkeypatch.setattr(Samples, "__init__", _spoiled)
    code, report = links("--hosts", 2, "--bytes", "10kB", "--repeat", 1, "--algorithms", "ring")
    assert code == 1 and not report["correct"] and report["algorithms"][0]["wrong"] == 1


def _spoiled(self):
    self.seconds, self.wrong, self.received = [], 1, []
    self.load, self.cpu, self.cpu_waits, self.events = Load(), 0.0, [], ()


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--algorithms", "rong"], 2, "not known"),
        (["--hosts", "1"], 2, "2..64 hosts"),
        (["--late-by", "soon"], 2, "or a time"),
        (["--late", "9"], 2, "late ranks"),
        (["--algorithms", "gloo", "--gloo-python", "/nonexistent"], 1, "gloo"),
    ],
)
def test_what_cannot_be_measured_is_one_line(capsys, words, code, told):
    assert run(["bench", "links", "--bytes", "4kB", *words]) == code
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.endswith("...")]
    assert len(lines) == 1 and told in lines[0]
    assert not testbeds.folders()


def test_killing_the_command_leaves_nothing():
    script = "import sys; from stragglar.cli.main import run; sys.exit(run(sys.argv[1:]))"
    words = [sys.executable, "-P", "-c", script, "bench", "links", "--hosts", "3", "--seconds", "5"]
    command = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert command.stderr is not None
    for line in command.stderr:
        if line.startswith("warm-up"):
            break
    (folder,) = testbeds.folders()
    assert testbeds.alive(folder)
    command.send_signal(signal.SIGKILL)
    command.wait()
    end = time.monotonic() + 20
    while time.monotonic() < end and (folder.exists() or _processes(folder)):
        time.sleep(0.02)
    assert not folder.exists() and not _processes(folder)


def _processes(folder):
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(folder) in (entry / "cmdline").read_text():
                found.append(entry.name)
        except OSError:
            continue
    return found
