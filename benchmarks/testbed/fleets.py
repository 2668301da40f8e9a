"""Fleets from outside: one worker a host for each engine, started, given orders, and asked how it went."""

from __future__ import annotations

import contextlib
import importlib
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..schedules.errors import MissingError, RunError
from .channel import Channel, Closed, listen
from .engines import has_engine
from .network import BRIDGE, BRIDGE_ADDRESS, PORT
from .testbed import Testbed
from .worker import Job

START_SECONDS = 120.0
"""What starting a fleet may take: 16 interpreters that load torch or MPI on two cores."""

_ACCEPT_SECONDS = 0.1

MPI_SETTINGS: dict[str, str | None] = {
    "mpi": None,
    "mpi-ring": "ring",
    "mpi-rd": "recursive_doubling",
    "mpi-rabenseifner": "reduce_scatter_allgather",
}
"""Fleet -> MPICH's name of the Allreduce that it takes; None: it chooses. Read once: a fleet each."""

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

_STAND_IN = """#!/bin/sh
# In the place of ssh: mpiexec's way onto a host is to enter its network namespace.
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
exec nsenter --net="$HOSTS/$host" -- sh -c "$*"
"""


@dataclass(frozen=True, slots=True)
class Fleet:
    """The workers of one engine, by rank."""

    name: str
    channels: tuple[Channel, ...]
    log: Path

    def order(self, orders: Sequence[dict[str, Any]]) -> None:
        """Sends one order to every rank.

        Raises:
            RunError: a worker has gone; names it.
        """
        for rank, (channel, order) in enumerate(zip(self.channels, orders, strict=True)):
            with self._naming(rank):
                channel.send(order)

    def answers(self, seconds: float) -> list[dict[str, Any]]:
        """The answers of all ranks to the last order.

        Raises:
            RunError: a worker failed, has gone, or does not answer in time; names it.
        """
        until, found = time.monotonic() + seconds, []
        for rank, channel in enumerate(self.channels):
            with self._naming(rank):
                answer = channel.receive(max(0.001, until - time.monotonic()))
            if "error" in answer:
                raise RunError(f"{self.name}: {answer['error']}")
            found.append(answer)
        return found

    def ask(self, order: dict[str, Any], seconds: float) -> list[dict[str, Any]]:
        """Sends the same order to all ranks and waits for their answers."""
        self.order([order] * len(self.channels))
        return self.answers(seconds)

    @contextlib.contextmanager
    def _naming(self, rank: int) -> Any:  # noqa: ANN401
        try:
            yield
        except Closed as error:
            raise RunError(f"{self.name}: rank {rank} has gone: {_last_line(self.log)}") from error
        except TimeoutError as error:
            raise RunError(f"{self.name}: rank {rank} does not answer") from error

    def close(self) -> None:
        """Ends the workers."""
        for channel in self.channels:
            channel.close()


def start_fleet(bed: Testbed, job: Job, python: str | None = None) -> Fleet:
    """Starts the workers of a job and waits until all are connected to each other.

    Args:
        bed: where.
        job: what they will run; `job.folder` is the testbed's.
        python: the interpreter; None: this one.

    Raises:
        MissingError: what the engine needs is not installed.
        RunError: a worker failed.
    """
    folder = Path(job.folder)
    (folder / f"{job.name}.json").write_text(json.dumps(asdict(job)), encoding="utf-8")
    log = folder / f"{job.name}.log"
    with listen(job.socket) as listener:
        crew = [python or sys.executable, "-m", "stragglar.testbed.crew", str(folder / f"{job.name}.json")]
        env = _environment(folder) | _ONE_THREAD
        if job.engine == "mpi":
            crew = [*_mpiexec(folder, job), *crew]
            env |= _mpi_environment(folder, job.name)
        process = bed.start(crew, log, env=env | {"GLOO_SOCKET_IFNAME": PORT})
        channels = _accept(listener, job, lambda: bed.exit_code(process) is not None, log)
    return Fleet(job.name, channels, log)


def demand_engine(engine: str, python: str | None = None) -> None:
    """Refuses an engine that cannot be had here.

    Raises:
        MissingError: says what to install.
    """
    if engine == "mpi" and not (has_engine("mpi") and _hydra()):
        raise MissingError(
            "MPI on the testbed needs mpi4py and MPICH's mpiexec: pip install 'stragglar[mpi]'"
        )
    if engine == "gloo" and python is None and not has_engine("gloo"):
        raise MissingError("gloo needs torch: pip install 'stragglar[torch]', or --gloo-python PYTHON")


def _environment(folder: Path) -> dict[str, str]:
    """Lets any Python find this package and no other of the same name: links, as an installation has them."""
    place = folder / "python" / "stragglar"
    if not place.exists():
        place.mkdir(parents=True)
        for name in ("schedules", "synth", "backends", "testbed"):
            package = importlib.import_module(f"stragglar.{name}")
            (place / name).symlink_to(Path(package.__path__[0]).resolve())
    return {"PYTHONPATH": str(place.parent), "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def _hydra() -> str | None:
    """MPICH's launcher; others have other options."""
    beside = str(Path(sys.executable).parent)
    for name in ("mpiexec.hydra", "mpiexec"):
        found = shutil.which(name, path=beside) or shutil.which(name)
        if found and "HYDRA" in _version(found):
            return found
    return None


def _version(mpiexec: str) -> str:
    try:
        told = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return told.stdout


def _mpiexec(folder: Path, job: Job) -> list[str]:
    stand_in = folder / "ssh"
    stand_in.write_text(_STAND_IN, encoding="utf-8")
    stand_in.chmod(0o700)
    hydra = _hydra()
    assert hydra is not None
    hosts = ",".join(job.addresses)
    launch = ["-launcher", "ssh", "-launcher-exec", str(stand_in), "-disable-x"]
    where = ["-hosts", hosts, "-ppn", "1", "-localhost", BRIDGE_ADDRESS, "-iface", BRIDGE]
    return [hydra, *launch, *where, "-n", str(job.ranks)]


def _mpi_environment(folder: Path, name: str) -> dict[str, str]:
    settings = {
        "HOSTS": str(folder / "hosts"),
        "FI_PROVIDER": "tcp",
        "FI_TCP_IFACE": PORT,
        "MPIR_CVAR_CH4_NETMOD": "ofi",
        "MPIR_CVAR_NOLOCAL": "1",
    }
    algorithm = MPI_SETTINGS[name]
    if algorithm is not None:
        settings["MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM"] = algorithm
        settings["MPIR_CVAR_ALLREDUCE_DEVICE_COLLECTIVE"] = "0"
    return settings


def _accept(listener: socket.socket, job: Job, over: Callable[[], bool], log: Path) -> tuple[Channel, ...]:
    until, waiting, ready = time.monotonic() + START_SECONDS, list[Channel](), dict[int, Channel]()
    listener.settimeout(_ACCEPT_SECONDS)
    while len(waiting) < job.ranks:
        try:
            waiting.append(Channel(listener.accept()[0]))
        except TimeoutError:
            if over() or time.monotonic() > until:
                raise RunError(f"{job.name}: its ranks did not start: {_last_line(log)}") from None
    for channel in waiting:
        try:
            ready[int(channel.receive(max(0.001, until - time.monotonic()))["rank"])] = channel
        except (Closed, TimeoutError) as error:
            raise RunError(f"{job.name}: its ranks did not meet: {_last_line(log)}") from error
    if sorted(ready) != list(range(job.ranks)):
        raise RunError(f"{job.name}: ranks {sorted(ready)} came, not {job.ranks} different ones")
    return tuple(ready[rank] for rank in range(job.ranks))


def _last_line(log: Path) -> str:
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it printed nothing"
