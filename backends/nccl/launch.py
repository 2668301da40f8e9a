"""Running a schedule on the GPUs of this machine: compile, start a process per GPU, watch, report.

More machines than one: take the project of `stragglar lower --to nccl` and your own launcher.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...schedules import MissingError, RunError, Schedule
from ..report import RunReport, Timing, report_for
from ..request import RunRequest
from .project import project
from .toolchain import compiled, compute_capabilities, find_toolchain

STARTUP_SECONDS = 60.0
"""What starting the ranks and connecting them may take, beside the run itself."""

CONTENDERS = ("schedule", "ncclAllReduce", "p2p-ring")
"""What the benchmark measures, each in every repetition; the last is a ring of the same messages."""

_POLL_SECONDS = 0.02
WRONG = 1
"""Exit code of a program that found wrong elements, or failed."""


def run(schedule: Schedule, request: RunRequest) -> RunReport:
    """Compiles the benchmark for a schedule (or takes it from the cache) and runs it on this machine.

    Raises:
        MissingError: too few GPUs, no nvcc or no NCCL.
        RunError: the compiler refused, a rank failed or the run did not end.
    """
    delays = request.delays_for(schedule)
    gpus = compute_capabilities()
    if len(gpus) < schedule.ranks:
        raise MissingError(
            f"{schedule.ranks} ranks need a GPU each, and this machine has {len(gpus)}: for several"
            " machines, `stragglar lower --to nccl` and docs/gpu.md"
        )
    program = compiled(project(schedule), find_toolchain(), gpus[0])
    return launch([str(program)], schedule, request, delays)


def launch(
    program: Sequence[str], schedule: Schedule, request: RunRequest, delays: Sequence[float]
) -> RunReport:
    """Starts a compiled benchmark, one process a rank, and reports what it measured.

    Args:
        program: the command, without options.
        schedule: that it was compiled for.
        request: what to run.
        delays: seconds by which each rank comes late.

    Raises:
        RunError: a rank failed, or the run did not end in time.
    """
    with tempfile.TemporaryDirectory(prefix="stragglar-nccl-") as name:
        folder = Path(name)
        options = _options(folder, request, delays)
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(schedule.ranks):
                place = ["--rank", str(rank), "--ranks", str(schedule.ranks)]
                processes.append(_start([*program, *place, *options], folder / f"output-{rank}.txt"))
            _watch(processes, folder, request.run_seconds(schedule) + STARTUP_SECONDS)
        finally:
            for process in processes:
                process.kill()
            for process in processes:
                process.wait()
        return _report(folder, schedule, request)


def _start(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)


def _options(folder: Path, request: RunRequest, delays: Sequence[float]) -> list[str]:
    values = {
        "-b": request.size,
        "-e": request.size,
        "-n": request.repeat,
        "-w": request.warmup,
        "-d": request.dtype,
        "-o": request.op,
        "--seed": request.seed,
        "--delays": ",".join(f"{delay:.9f}" for delay in delays),
        "--time-limit": f"{request.time_limit:.3f}",
        "--id-file": folder / "id",
        "--json": folder / "log.json",
    }
    return [str(word) for pair in values.items() for word in pair]


def _watch(processes: Sequence[subprocess.Popen[bytes]], folder: Path, limit: float) -> None:
    deadline = time.monotonic() + limit
    while any(process.poll() is None for process in processes):
        _refuse_failures(processes, folder)
        if time.monotonic() > deadline:
            left = [rank for rank, process in enumerate(processes) if process.poll() is None]
            raise RunError(f"the run did not end within {limit:.0f} s: rank {left[0]} is still running")
        time.sleep(_POLL_SECONDS)
    _refuse_failures(processes, folder)


def _refuse_failures(processes: Sequence[subprocess.Popen[bytes]], folder: Path) -> None:
    for rank, process in enumerate(processes):
        code, said = process.poll(), _said(folder, rank)
        # Wrong elements are a result: all ranks agree on their number and rank 0 has written it down.
        if code and not (code == WRONG and not said):
            error = said or f"rank {rank} died with code {code}"
            raise MissingError(error) if code == MissingError.exit_code else RunError(error)


def _said(folder: Path, rank: int) -> str:
    """The first line of a rank's output that says why it failed: rank 0 prints its table besides."""
    text = (folder / f"output-{rank}.txt").read_text(encoding="utf-8", errors="replace")
    complaints = [line for line in text.splitlines() if line.startswith("rank ")]
    return complaints[0] if complaints else ""


def _report(folder: Path, schedule: Schedule, request: RunRequest) -> RunReport:
    log = folder / "log.json"
    if not log.exists():
        raise RunError(f"the benchmark wrote no results: {_said(folder, 0) or 'it says nothing'}")
    records = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    rows = {record["algorithm"] for record in records if record["place"] == "in"}
    missing = set(CONTENDERS) - rows
    if missing:
        raise RunError(f"the benchmark ended early: no result for {', '.join(sorted(missing))}")
    wrong = sum(int(r["wrong"]) for r in records if r["algorithm"] == "schedule")
    report = report_for("nccl", schedule, request, wrong)
    own, *others = (_timing(records, name, request, schedule) for name in CONTENDERS)
    beside = dict(zip(CONTENDERS[1:], others, strict=True))
    return replace(report, schedule=own, others=beside, library=_library(records))


def _timing(
    records: Sequence[Mapping[str, Any]], name: str, request: RunRequest, schedule: Schedule
) -> Timing:
    """One contender's times in place, and its wrong elements in both places."""
    own = {record["place"]: record for record in records if record["algorithm"] == name}
    wrong = sum(int(record["wrong"]) for record in own.values())
    return Timing.of(own["in"]["seconds"], request.size, schedule.ranks, wrong, "in place")


def _library(records: Sequence[Mapping[str, Any]]) -> str:
    """The NCCL that a run used: its version is major 10000 + minor 100 + patch."""
    version = int(records[0]["nccl"])
    return f"NCCL {version // 10000}.{version // 100 % 100}.{version % 100}"
