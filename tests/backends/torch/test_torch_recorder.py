"""Recorded arrivals become a trace; the threshold from the model; the example as a user runs it."""

import importlib.util
import math
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stragglar.backends.torch import HOW, threshold
from stragglar.schedules import Link, cost, load_schedule
from stragglar.schedules.arrival_files import load_trace
from stragglar.schedules.arrival_stats import last_ranks
from stragglar.synth import Request, synthesize

HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason=HOW)
EXAMPLE = Path(__file__).parents[3] / "examples" / "ddp_transformer.py"

if HAS_TORCH:
    from stragglar.backends.torch import ArrivalRecorder

    from .forked import run


def recorded(rank, path):
    with ArrivalRecorder(path) as recorder:
        for late in (0, 2, 1):
            time.sleep(0.05 + (0.2 if rank == late else 0))
            recorder.note()
            recorder._group.barrier().wait()


@needs_torch
def test_a_trace_says_who_was_late(tmp_path):
    path = tmp_path / "arrivals.csv"
    run(3, recorded, str(path))
    trace = load_trace(str(path))
    assert last_ranks(trace).tolist() == [0, 2, 1] and "torch" in trace.note
    assert trace.seconds.max() < 5


def test_the_threshold_is_where_the_schedule_breaks_even():
    link, size = Link(3e-6, 450e9), 1 << 26
    schedule = synthesize(Request(ranks=8, late=(0,), refine=4))
    ring = 14 * (link.alpha + size / 8 * link.beta)
    least = threshold.break_even(schedule, size, link)
    assert 0 < least < 1e-3
    assert cost(schedule, size, link, least * 1.01).post_seconds < ring
    assert cost(schedule, size, link, least * 0.99).post_seconds > ring
    assert threshold.break_even(synthesize(Request(ranks=8, late=(0,), chunks=4000)), 1, link) == math.inf


def example(*options):
    environment = {k: v for k, v in os.environ.items() if k != "RANK"} | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, str(EXAMPLE), *options],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@needs_torch
@pytest.mark.parametrize("ranks", [4, 8])
def test_the_example_trains_as_plain_ddp_does(ranks, tmp_path):
    done = example("--ranks", str(ranks), "--steps", "8", "--folder", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "gain over ring" in done.stdout and "DIFFERENT" not in done.stdout
    rows = re.findall(r"^(plain DDP|eager|planned: .*?)  .* bit-identical ", done.stdout, re.MULTILINE)
    assert len(rows) == 3, done.stdout
    late = done.stdout.split("eager: taken as late, in buckets: ")[1].splitlines()[0]
    assert late.count("rank") > 1, "the late rank changed"
    assert load_trace(str(tmp_path / "arrivals.csv")).ranks == ranks
    planned = load_schedule(str(tmp_path / "plan.json"))
    assert planned.ranks == ranks and planned.origin.family in rows[2]


def torchrun(nodes, folder):
    """One launcher a node, all on this host, as the recipes of docs/pytorch.md have it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    several = ["--nnodes", str(nodes), "--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{port}"]
    command = [sys.executable, "-m", "torch.distributed.run", *(several if nodes > 1 else [])]
    command += ["--nproc-per-node", str(4 // nodes), str(EXAMPLE), "--steps", "6", "--folder", str(folder)]
    environment = {k: v for k, v in os.environ.items() if k != "RANK"} | {"OMP_NUM_THREADS": "1"}
    launched = [
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for _ in range(nodes)
    ]
    return [(launcher.communicate(timeout=200)[0], launcher.returncode) for launcher in launched]


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 2])
def test_the_recipes_for_torchrun(nodes, tmp_path):
    told = torchrun(nodes, tmp_path)
    assert all(code == 0 for _, code in told), told
    text = "".join(text for text, _ in told)
    assert text.count("bit-identical") == 3 and "DIFFERENT" not in text, text


@needs_torch
@pytest.mark.parametrize("dead", [2, 0])
def test_the_example_names_the_rank_that_dies(dead, tmp_path):
    done = example("--ranks", "4", "--steps", "4", "--kill", str(dead), "--folder", str(tmp_path))
    assert done.returncode != 0
    failed = [line for line in done.stdout.splitlines() if " failed: " in line]
    assert len(failed) == 3, done.stdout + done.stderr[-3000:]
    assert all(f"rank {dead} " in line.split(" failed: ")[1] for line in failed), failed
