"""Message times over torch.distributed: every rank sends to the next and receives from the one before.

The same sweep as over MPI, through what the executor of this package uses: `batch_isend_irecv` over gloo.
`python -m stragglar.backends.torch.pingpong FOLDER` is the parent of the ranks that `measure` starts.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...schedules import RunError, UsageError
from ..mpi.launch import ONE_THREAD
from ..mpi.pingpong import MAX_RANKS, MOST_EXCHANGES, SAMPLE_SECONDS, Sweep, outcome
from . import require_torch

if TYPE_CHECKING:
    import torch

STARTUP_SECONDS = 60.0
"""What importing torch and joining a group may take, beside the measurement."""


def measure(ranks: int, sizes: tuple[int, ...], repeat: int = 11, time_limit: float = 120.0) -> Sweep | None:
    """Measures exchanges over gloo: on the ranks that torchrun started this process among, else on new ones.

    Args:
        ranks: how many to start; not used under torchrun, which has decided it.
        sizes: bytes of the messages.
        repeat: samples of every size.
        time_limit: seconds it may take, beside starting.

    Returns:
        The measurements; None on all ranks of torchrun's but the first.

    Raises:
        UsageError: parameters out of range.
        MissingError: torch is missing.
        RunError: a rank failed, or it did not end in time.
    """
    if not 2 <= ranks <= MAX_RANKS or not 1 <= repeat <= 1000 or not 0 < time_limit < float("inf"):
        raise UsageError(f"needs 2 to {MAX_RANKS} ranks, 1 to 1000 repetitions and a time limit above 0")
    require_torch("measuring over torch.distributed")
    if {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= set(os.environ):
        return _measure_here("env://", None, None, sizes, repeat, time_limit)
    return _measure_new(ranks, sizes, repeat, time_limit)


def _measure_here(
    address: str, rank: int | None, ranks: int | None, sizes: tuple[int, ...], repeat: int, time_limit: float
) -> Sweep | None:
    import torch.distributed as dist

    place = {} if rank is None or ranks is None else {"rank": rank, "world_size": ranks}
    try:
        # A rank that hangs makes the others' waits raise.
        limit = timedelta(seconds=time_limit + STARTUP_SECONDS)
        dist.init_process_group("gloo", init_method=address, timeout=limit, **place)
        return exchange(sizes, repeat)
    except (RuntimeError, ValueError) as error:  # what torch.distributed raises: DistError is a RuntimeError
        raise RunError(f"the measurement failed: {str(error).splitlines()[0][:200]}") from error
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def exchange(sizes: tuple[int, ...], repeat: int) -> Sweep | None:
    """Measures on all ranks of the default group; only rank 0 gets the result.

    Raises:
        UsageError: the group has one rank, or too many for a measurement.
    """
    import torch
    import torch.distributed as dist

    ranks = dist.get_world_size()
    if not 2 <= ranks <= MAX_RANKS:
        raise UsageError(f"a measurement takes 2 to {MAX_RANKS} ranks, not {ranks}")
    hosts: list[str] = [""] * ranks
    dist.all_gather_object(hosts, platform.node())
    ring = _Ring(max(sizes))
    times = [ring.exchanges_for(size) for size in sizes]
    # All sizes once, then again: what disturbs the machine for a while spoils one sample of each.
    rounds = [[ring.sample(size, n) for size, n in zip(sizes, times, strict=True)] for _ in range(repeat)]
    if dist.get_rank() != 0:
        return None
    library = f"torch {torch.__version__} gloo"
    samples = tuple(zip(*rounds, strict=True))
    return Sweep(ranks, tuple(sizes), samples, tuple(dict.fromkeys(hosts)), library)


class _Ring:
    """Buffers and neighbours of one rank."""

    def __init__(self, largest: int) -> None:
        import torch
        import torch.distributed as dist

        rank, ranks = dist.get_rank(), dist.get_world_size()
        self._out = torch.ones(largest, dtype=torch.uint8)
        self._into = torch.zeros(largest, dtype=torch.uint8)
        self._right, self._left = (rank + 1) % ranks, (rank - 1) % ranks

    def sample(self, size: int, exchanges: int) -> float:
        """Seconds of one exchange: the slowest rank's mean over `exchanges`."""
        import torch
        import torch.distributed as dist

        out, into = self._out[:size], self._into[:size]
        dist.barrier()
        start = time.perf_counter()
        for _ in range(exchanges):
            self._exchange(out, into)
        own = torch.tensor([(time.perf_counter() - start) / exchanges], dtype=torch.float64)
        dist.all_reduce(own, op=dist.ReduceOp.MAX)
        return float(own.item())

    def _exchange(self, out: torch.Tensor, into: torch.Tensor) -> None:
        import torch.distributed as dist

        both = (dist.P2POp(dist.isend, out, self._right), dist.P2POp(dist.irecv, into, self._left))
        for work in dist.batch_isend_irecv(list(both)):
            work.wait()

    def exchanges_for(self, size: int) -> int:
        """How often to repeat an exchange in a sample; the same on all ranks. Warms up as well."""
        # The quickest of a few: one disturbed exchange must not make every sample as short as that.
        quickest = min(self.sample(size, 2) for _ in range(4))
        return max(1, min(MOST_EXCHANGES, int(SAMPLE_SECONDS / max(quickest, 1e-9))))


def _measure_new(ranks: int, sizes: tuple[int, ...], repeat: int, time_limit: float) -> Sweep:
    with tempfile.TemporaryDirectory(prefix="stragglar-calibrate-") as name:
        folder = Path(name)
        job = {"ranks": ranks, "sizes": sizes, "repeat": repeat, "time_limit": time_limit}
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        with (folder / "output.txt").open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "stragglar.backends.torch.pingpong", name],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | ONE_THREAD,
                start_new_session=True,
            )
        try:
            return outcome(process, folder, time_limit + STARTUP_SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def main(folder: Path) -> int:
    """Forks the ranks of the job in `folder` (torch is imported once), and returns the worst exit code."""
    import torch.distributed

    assert torch.distributed.is_available()
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    fork = multiprocessing.get_context("fork")
    children = [fork.Process(target=_rank, args=(folder, job, rank)) for rank in range(job["ranks"])]
    for child in children:
        child.start()
    while any(child.exitcode is None for child in children):
        failed = [child.exitcode for child in children if child.exitcode]
        if failed:  # the others would wait for it until their time is over; the caller ends them
            return abs(failed[0])
        time.sleep(0.02)
    return max(abs(child.exitcode or 0) for child in children)


def _rank(folder: Path, job: dict[str, Any], rank: int) -> None:
    address = f"file://{folder / 'store'}"
    sweep = _measure_here(address, rank, job["ranks"], tuple(job["sizes"]), job["repeat"], job["time_limit"])
    if sweep is not None:
        (folder / "sweep.json").write_text(json.dumps(asdict(sweep)), encoding="utf-8")


if __name__ == "__main__":
    code = main(Path(sys.argv[1]))
    os._exit(code)  # children that are left must not be waited for at exit
