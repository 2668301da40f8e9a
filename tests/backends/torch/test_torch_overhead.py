"""The benchmark of overheads runs and leaves a file with ratios to the plain ways."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stragglar.backends.torch import HOW

if importlib.util.find_spec("torch") is None:
    pytest.skip(HOW, allow_module_level=True)

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "torch_overhead.py"


def test_the_benchmark_of_overheads(tmp_path):
    done = subprocess.run(
        [
            sys.executable,
            str(SCRIPT),
            "-n",
            "2",
            "--bytes",
            "4",
            "--repeat",
            "1",
            "-o",
            str(tmp_path / "r.json"),
        ],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((tmp_path / "r.json").read_text())
    assert {"date", "commit", "machine", "torch"} <= set(found["conditions"])
    ways = {(row["what"], row["how"]): row for row in found["rows"]}
    assert len(ways) == 6 and all(row["quick"] > 0 for row in ways.values())
    assert ways["decision", "TCPStore"]["ratio"] == ways["all_reduce", "plain"]["ratio"] == 1
