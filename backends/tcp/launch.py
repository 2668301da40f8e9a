"""Starting the ranks of a run over TCP on this machine, watching them, and cleaning up after them.

Where the environment says which rank this process is (see `environment.py`), nothing is started.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ...schedules import RunError, Schedule, dump_schedule
from .. import verdict
from ..mpi.launch import ONE_THREAD
from ..report import RunReport
from ..request import RunRequest
from .environment import Place, place_here
from .mesh import Listener
from .together import meet
from .worker import CONNECT_SECONDS, run_here

START_SECONDS = 30.0
"""What starting the ranks may take, beside the run itself."""

GRACE_SECONDS = 1.5
"""How long the others may take to end, and say why, once one rank has failed."""

_POLL_SECONDS = 0.02
_HOST = "127.0.0.1"

Rank = subprocess.Popen[bytes]


def run(schedule: Schedule, request: RunRequest) -> RunReport:
    """Runs a schedule on real processes: this process's part if it was told its rank, else all ranks.

    Raises:
        UsageError: the environment tells a part of what a rank must know.
        RunError: a rank died, stalled, did not come or was given different input; names it.
    """
    place = place_here()
    return run_tcp(schedule, request) if place is None else run_place(schedule, request, place)


def run_place(schedule: Schedule, request: RunRequest, place: Place) -> RunReport:
    """Runs the part of one rank among ranks that are started one by one; see `run`."""
    seconds = request.time_limit
    return run_here(schedule, request, place.rank, lambda: meet(place, schedule.ranks, seconds))


def run_tcp(schedule: Schedule, request: RunRequest) -> RunReport:
    """Starts `schedule.ranks` processes on this machine and returns what they report.

    No process and no file of the run is left, however it ends.

    Raises:
        RunError: a rank died, stalled or was given different input; names it.
    """
    request.delays_for(schedule)
    with tempfile.TemporaryDirectory(prefix="stragglar-run-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        listeners = [stack.enter_context(contextlib.closing(Listener(_HOST))) for _ in range(schedule.ranks)]
        _write_job(folder, schedule, request, [listener.address for listener in listeners])
        ranks: list[Rank] = []
        try:
            for rank, listener in enumerate(listeners):
                ranks.append(_start(folder, rank, listener))
                listener.close()
            start = START_SECONDS + CONNECT_SECONDS + schedule.ranks / 2
            _watch(ranks, folder, request.run_seconds(schedule) + start)
            return RunReport.from_json(json.loads((folder / "report.json").read_text(encoding="utf-8")))
        finally:
            _end(ranks)


def _write_job(
    folder: Path, schedule: Schedule, request: RunRequest, addresses: Sequence[tuple[str, int]]
) -> None:
    (folder / "schedule.json").write_text(dump_schedule(schedule), encoding="utf-8")
    (folder / "request.json").write_text(json.dumps(request.to_json()), encoding="utf-8")
    meeting = {"addresses": addresses, "token": secrets.token_hex(16), "launcher": os.getpid()}
    (folder / "meeting.json").write_text(json.dumps(meeting), encoding="utf-8")


def _start(folder: Path, rank: int, listener: Listener) -> Rank:
    descriptor = listener.fileno()
    command = [sys.executable, "-P", "-m", "stragglar.backends.tcp.worker"]
    with (folder / "output.txt").open("ab") as output:
        return subprocess.Popen(
            [*command, str(folder), str(rank), str(descriptor)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | ONE_THREAD,
            pass_fds=(descriptor,),
            start_new_session=True,
        )


def _watch(ranks: Sequence[Rank], folder: Path, limit: float) -> None:
    """Waits until all ranks are through.

    Raises:
        RunError: one is not; names it.
    """
    deadline = time.monotonic() + limit
    failed_at = None
    while None in [process.poll() for process in ranks]:
        now = time.monotonic()
        if failed_at is None and _note_deaths(ranks, folder):
            failed_at = now
        if failed_at is not None and now > failed_at + GRACE_SECONDS:
            break
        if now > deadline:
            culprit = verdict.stopped(folder) or "no rank failed, it is just not over"
            raise RunError(f"the run did not end within {limit:.0f} s: {culprit}")
        time.sleep(_POLL_SECONDS)
    codes = [process.returncode for process in ranks]
    if any(codes):
        _note_deaths(ranks, folder)
        raise RunError(verdict.reason(folder, next(code for code in codes if code), "a rank"))


def _note_deaths(ranks: Sequence[Rank], folder: Path) -> bool:
    """Writes down which ranks have failed, for `verdict`; whether any has."""
    dead = [(rank, process.returncode) for rank, process in enumerate(ranks) if process.returncode]
    for rank, code in dead:
        path = folder / f"death-{rank}.json"
        if not path.exists():
            path.write_text(json.dumps({"code": code}), encoding="utf-8")
    return bool(dead)


def _end(ranks: Sequence[Rank]) -> None:
    """Kills whatever is left of a run."""
    for process in ranks:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            # Its own session: whatever it may have started goes too.
            os.killpg(process.pid, signal.SIGKILL)
    for process in ranks:
        process.wait()
