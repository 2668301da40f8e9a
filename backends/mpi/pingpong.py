"""Message times over MPI: every rank sends to the next and receives from the one before, at the same time.

That is a round of the one-port model with all ports in use; on two ranks, a plain exchange.
`python -m stragglar.backends.mpi.pingpong FOLDER` is one rank of what `measure` starts.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...schedules import MissingError, RunError, UsageError
from ..pulse import Pulse
from . import launch
from .environment import rank_here

if TYPE_CHECKING:
    from mpi4py import MPI

SAMPLE_SECONDS = 2e-3
"""A sample repeats its exchange for about this long, so that the clock's steps do not matter."""

MOST_EXCHANGES = 500
MAX_RANKS = 64

_TAG = 13


@dataclass(frozen=True, slots=True)
class Sweep:
    """Measured exchanges.

    Attributes:
        ranks: how many exchanged at the same time.
        sizes: bytes of a message.
        seconds: for every size its samples: one exchange, the slowest rank's.
        hosts: names of the machines, in the order of their first rank.
        library: version of the MPI library.
    """

    ranks: int
    sizes: tuple[int, ...]
    seconds: tuple[tuple[float, ...], ...]
    hosts: tuple[str, ...]
    library: str

    @property
    def medians(self) -> tuple[float, ...]:
        """For every size the median of its samples."""
        return tuple(float(np.median(samples)) for samples in self.seconds)

    @property
    def fastest(self) -> tuple[float, ...]:
        """For every size the quickest of its samples."""
        return tuple(min(samples) for samples in self.seconds)


def sweep_sizes(smallest: int, largest: int) -> tuple[int, ...]:
    """Message sizes from the smallest to the largest, in bytes, by factors of 4 (the last by less).

    Raises:
        UsageError: a range that gives fewer than three, or messages of 0 bytes or above 1 GiB.
    """
    if smallest < 1 or smallest * 4 >= largest or largest > 1 << 30:
        raise UsageError(
            "message sizes are from 1 byte to 1 GiB, the largest above 4 times the smallest:"
            f" not {smallest} to {largest} bytes"
        )
    sizes = [smallest * 4**step for step in range(16)]
    return (*(size for size in sizes if size < largest), largest)


def measure(ranks: int, sizes: tuple[int, ...], repeat: int = 11, time_limit: float = 120.0) -> Sweep | None:
    """Measures exchanges: on the ranks this process was started among (mpiexec, srun), else on new ones here.

    Args:
        ranks: how many to start; not used under a launcher, which has decided it.
        sizes: bytes of the messages.
        repeat: samples of every size.
        time_limit: seconds it may take, beside starting.

    Returns:
        The measurements; None on all ranks but the first of a launcher's.

    Raises:
        UsageError: parameters out of range.
        MissingError: mpi4py or mpiexec is missing.
        RunError: a rank failed, or it did not end in time.
    """
    if not 2 <= ranks <= MAX_RANKS or not 1 <= repeat <= 1000 or not 0 < time_limit < float("inf"):
        raise UsageError(f"needs 2 to {MAX_RANKS} ranks, 1 to 1000 repetitions and a time limit above 0")
    if importlib.util.find_spec("mpi4py") is None:
        raise MissingError("measuring over MPI needs mpi4py: pip install 'stragglar[mpi]'")
    if rank_here() is not None:
        return _measure_here(sizes, repeat, time_limit)
    return _measure_new(ranks, sizes, repeat, time_limit)


def _measure_here(sizes: tuple[int, ...], repeat: int, time_limit: float) -> Sweep | None:
    from mpi4py import MPI

    # There is no launcher of ours to end ranks that wait for one that has died.
    pulse = Pulse(MPI.COMM_WORLD.rank, None, lambda: MPI.COMM_WORLD.Abort(1))
    pulse.allow("the measurement", time_limit)
    pulse.start()
    try:
        return exchange(MPI.COMM_WORLD, sizes, repeat)
    finally:
        pulse.stop()


def exchange(comm: MPI.Intracomm, sizes: tuple[int, ...], repeat: int) -> Sweep | None:
    """This rank's part of the measurement; the result on rank 0, None on the others.

    Raises:
        RunError: there is only one rank.
    """
    from mpi4py import MPI

    if comm.size < 2:
        raise RunError("one rank has nobody to exchange with: mpiexec may belong to another MPI than mpi4py")
    hosts = comm.gather(MPI.Get_processor_name(), root=0)
    ring = _Ring(comm, max(sizes))
    times = [ring.exchanges_for(size) for size in sizes]
    # All sizes once, then again: what disturbs the machine for a while spoils one sample of each.
    rounds = [[ring.sample(size, n) for size, n in zip(sizes, times, strict=True)] for _ in range(repeat)]
    if comm.rank != 0 or hosts is None:
        return None
    library = MPI.Get_library_version().strip("\0").splitlines()[0].strip()
    samples = tuple(zip(*rounds, strict=True))
    return Sweep(comm.size, tuple(sizes), samples, tuple(dict.fromkeys(hosts)), library)


class _Ring:
    """Buffers and neighbours of one rank."""

    def __init__(self, comm: MPI.Intracomm, largest: int) -> None:
        self._comm = comm
        self._out, self._into = np.ones(largest, np.uint8), np.zeros(largest, np.uint8)
        self._right, self._left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size

    def sample(self, size: int, exchanges: int) -> float:
        """Seconds of one exchange: the slowest rank's mean over `exchanges`."""
        from mpi4py import MPI

        out, into = [self._out[:size], MPI.BYTE], [self._into[:size], MPI.BYTE]
        self._comm.Barrier()
        start = time.perf_counter()
        for _ in range(exchanges):
            self._comm.Sendrecv(out, self._right, _TAG, into, self._left, _TAG)
        own = (time.perf_counter() - start) / exchanges
        return float(self._comm.allreduce(own, op=MPI.MAX))

    def exchanges_for(self, size: int) -> int:
        """How often to repeat an exchange in a sample; the same on all ranks. Warms up as well."""
        # The quickest of a few: one disturbed exchange must not make every sample as short as that.
        quickest = min(self.sample(size, 2) for _ in range(4))
        return max(1, min(MOST_EXCHANGES, int(SAMPLE_SECONDS / max(quickest, 1e-9))))


def _measure_new(ranks: int, sizes: tuple[int, ...], repeat: int, time_limit: float) -> Sweep:
    mpiexec = launch.find_mpiexec()
    with tempfile.TemporaryDirectory(prefix="stragglar-calibrate-") as name:
        folder = Path(name)
        (folder / "job.json").write_text(json.dumps({"sizes": sizes, "repeat": repeat}), encoding="utf-8")
        command = [mpiexec, *launch.launcher_options(mpiexec), "-n", str(ranks)]
        command += [sys.executable, "-P", "-m", "stragglar.backends.mpi.pingpong", name]
        with (folder / "output.txt").open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | launch.ONE_THREAD,
                start_new_session=True,
            )
        try:
            return outcome(process, folder, time_limit + launch.STARTUP_SECONDS)
        finally:
            launch.end_launcher(process, folder)


def outcome(process: subprocess.Popen[bytes], folder: Path, limit: float) -> Sweep:
    """Waits for a measurement and reads what it left in `folder`: `sweep.json`, or `output.txt` if it failed.

    Raises:
        RunError: it failed, or did not end within `limit` seconds.
    """
    try:
        code = process.wait(limit)
    except subprocess.TimeoutExpired as error:
        raise RunError(f"the measurement did not end within {limit:.0f} s") from error
    result = folder / "sweep.json"
    if code or not result.exists():
        lines = (folder / "output.txt").read_text(encoding="utf-8", errors="replace").split("\n")
        said = next((line.strip()[:200] for line in reversed(lines) if line.strip()), "it printed nothing")
        raise RunError(f"the measurement failed with code {code}: {said}")
    told = json.loads(result.read_text(encoding="utf-8"))
    seconds = tuple(map(tuple, told["seconds"]))
    return Sweep(told["ranks"], tuple(told["sizes"]), seconds, tuple(told["hosts"]), told["library"])


def main(folder: Path) -> int:
    """Measures what the job in `folder` says, as one rank; rank 0 leaves the result there."""
    from mpi4py import MPI

    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    sweep = exchange(MPI.COMM_WORLD, tuple(job["sizes"]), job["repeat"])
    if sweep is not None:
        (folder / "sweep.json").write_text(json.dumps(asdict(sweep)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
