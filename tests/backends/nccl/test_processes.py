"""The benchmark as it really runs: a process a rank, met through a file or MPI, over the double's hub."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stragglar.synth import Request, synthesize

from .conftest import Outcome

SMALL = ("-b", "1K", "-e", "4K", "-f", "4", "-n", "2", "-w", "1")


def begin(program, rank, ranks, hub, *options, **environment):
    return subprocess.Popen(
        [program, "--rank", str(rank), "--ranks", str(ranks), *map(str, options)],
        env=os.environ | hub.environment | {k: str(v) for k, v in environment.items()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def collect(processes, timeout=60):
    try:
        outputs = [p.communicate(timeout=timeout) for p in processes]
    finally:
        for process in processes:
            process.kill()
    return [Outcome(p.returncode, *output) for p, output in zip(processes, outputs, strict=True)]


@pytest.mark.parametrize("n", [2, 3, 4])
def test_processes_that_meet_through_a_file(double, hub, n, tmp_path):
    schedule = synthesize(Request(n, (n - 1,)))
    program, one = double.build(schedule, "rank"), hub()
    options = (*SMALL, "--late-by", "20ms", "--id-file", tmp_path / "id")
    done = collect([begin(program, rank, n, one, *options) for rank in range(n)])
    assert [d.code for d in done] == [0] * n, done
    assert "every checked element" in done[0].out


def test_processes_that_meet_through_mpi(double, hub, tmp_path):
    mpiexec = Path(sys.prefix) / "bin" / "mpiexec"
    if not mpiexec.exists() or not (Path(sys.prefix) / "include" / "mpi.h").exists():
        pytest.skip("needs MPI with its compiler's headers: pip install mpich")
    program, one = double.build(synthesize(Request(4, (1,))), "rank", mpi=True), hub()
    done = subprocess.run(
        [mpiexec, "-n", "4", program, *SMALL, "--late-by", "20ms"],
        env=os.environ | one.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0 and "every checked element" in done.stdout, done.stderr[-2000:]


@pytest.mark.parametrize("victim", [0, 2])
def test_a_killed_rank_ends_the_others(double, hub, victim, tmp_path):
    program, one = double.build(synthesize(Request(4, (3,))), "rank"), hub()
    options = ("-b", "1K", "-e", "1K", "-n", "100000", "--time-limit", "10", "--id-file", tmp_path / "id")
    ranks = [begin(program, rank, 4, one, *options) for rank in range(4)]
    ranks[0].stdout.readline()  # connected: rank 0 has printed its head
    time.sleep(0.3)
    ranks[victim].kill()
    done = collect(ranks)
    for rank, outcome in enumerate(done):
        if rank != victim:
            assert outcome.code == 1 and f"rank {rank}" in outcome.err, (rank, outcome)
