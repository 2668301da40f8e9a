"""Starting the ranks of a run on this machine, watching them, and cleaning up after them.

Under a user's own mpiexec or srun nothing is started: this process is one of the ranks already.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ...schedules import MissingError, RunError, Schedule, dump_schedule
from .. import verdict
from ..report import RunReport
from ..request import RunRequest
from .environment import rank_here

STARTUP_SECONDS = 30.0
"""What starting the ranks may take, beside the run itself."""

END_SECONDS = 5.0
"""How long to wait for killed processes to be gone."""

_POLL_SECONDS = 0.02
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Environment of ranks that share the cores of one machine: their libraries start no threads of their own."""


def run(schedule: Schedule, request: RunRequest) -> RunReport:
    """Runs a schedule on real processes: this process's part under an MPI launcher, else all ranks.

    Raises:
        MissingError: mpi4py or mpiexec is missing.
        RunError: a rank died, stalled or was given different input; names it.
    """
    if importlib.util.find_spec("mpi4py") is None:
        raise MissingError("the mpi backend needs mpi4py: pip install 'stragglar[mpi]'")
    if rank_here() is not None:
        from .worker import run_here

        return run_here(schedule, request)
    return run_mpi(schedule, request)


def find_mpiexec() -> str:
    """The mpiexec beside this Python, else the first on the PATH.

    Raises:
        MissingError: there is none.
    """
    beside = str(Path(sys.executable).parent)
    for name in ("mpiexec", "mpirun"):
        found = shutil.which(name, path=beside) or shutil.which(name)
        if found:
            return found
    raise MissingError("no mpiexec found: pip install 'stragglar[mpi]', or install MPICH or Open MPI")


def run_mpi(schedule: Schedule, request: RunRequest) -> RunReport:
    """Starts `schedule.ranks` processes on this machine and returns what they report.

    No process and no file of the run is left, however it ends.

    Raises:
        MissingError: mpiexec is missing.
        RunError: a rank died, stalled or was given different input; names it.
    """
    mpiexec = find_mpiexec()
    request.delays_for(schedule)
    with tempfile.TemporaryDirectory(prefix="stragglar-run-") as name:
        folder = Path(name)
        _write_job(folder, schedule, request)
        command = [mpiexec, *launcher_options(mpiexec), "-n", str(schedule.ranks)]
        command += [sys.executable, "-P", "-m", "stragglar.backends.mpi.guard", name]
        with (folder / "output.txt").open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | ONE_THREAD,
                start_new_session=True,
            )
        try:
            return _outcome(process, folder, request.run_seconds(schedule) + STARTUP_SECONDS)
        finally:
            end_launcher(process, folder)


def _write_job(folder: Path, schedule: Schedule, request: RunRequest) -> None:
    (folder / "schedule.json").write_text(dump_schedule(schedule), encoding="utf-8")
    (folder / "request.json").write_text(json.dumps(request.to_json()), encoding="utf-8")


def launcher_options(mpiexec: str) -> list[str]:
    """What this mpiexec needs to start more ranks than there are cores, also as root."""
    try:
        told = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingError(f"{mpiexec} does not run: {error}") from error
    text = told.stdout + told.stderr
    if "Open MPI" not in text and "OpenRTE" not in text and "PRTE" not in text:
        return []
    # Waiting ranks must give up the CPU: Open MPI polls without it.
    options = ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]
    return [*options, "--allow-run-as-root"] if os.geteuid() == 0 else options


def _outcome(process: subprocess.Popen[bytes], folder: Path, limit: float) -> RunReport:
    deadline = time.monotonic() + limit
    while process.poll() is None:
        if time.monotonic() > deadline:
            culprit = verdict.stopped(folder) or "no rank failed, it is just not over"
            raise RunError(f"the run did not end within {limit:.0f} s: {culprit}")
        time.sleep(_POLL_SECONDS)
    report = folder / "report.json"
    if process.returncode == 0 and report.exists():
        return RunReport.from_json(json.loads(report.read_text(encoding="utf-8")))
    raise RunError(verdict.reason(folder, process.returncode))


def end_launcher(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Kills whatever is left of a run. mpiexec may start ranks in sessions of their own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    until = time.monotonic() + END_SECONDS
    while (left := verdict.processes(folder)) and time.monotonic() < until:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)  # a killed process takes a moment to go
    process.wait()
