"""The engines of the fleets, each as one rank sees it: our TCP engine, our MPI backend, gloo."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..backends.elements import Array, numpy_dtype
from ..backends.programs import rank_program
from ..backends.recording import Recording
from ..schedules import Schedule, UsageError
from .worker import Job, Run

if TYPE_CHECKING:
    from mpi4py import MPI

TCP_PORT = 7700
"""Of every host, for our TCP engine: nobody else is in these namespaces."""

CONNECT_SECONDS = 60.0


class TcpEngine:
    """Our plain TCP engine: all ranks connected once, any number of schedules over these connections."""

    def __init__(self, job: Job, rank: int) -> None:
        from ..backends.tcp.mesh import Listener

        self._job, self._rank = job, rank
        listener = Listener(job.addresses[rank], TCP_PORT)
        addresses = [(address, TCP_PORT) for address in job.addresses]
        self._mesh = listener.connect(rank, addresses, CONNECT_SECONDS)

    def scheduled(self, schedule: Schedule, recording: Recording | None) -> Run:
        """Runs a schedule."""
        from ..backends.tcp.executor import Executor

        job = self._job
        executor = Executor(
            self._mesh,
            rank_program(schedule, self._rank),
            job.count,
            numpy_dtype(job.dtype),
            job.op,
            wait_seconds=job.wait_seconds,
            recording=recording,
        )
        return executor.run

    def native(self) -> Run:
        """There is none."""
        raise UsageError("the TCP engine has no AllReduce but schedules")


class MpiEngine:
    """Our MPI backend as it is, and MPI's own Allreduce as the fleet's environment sets it."""

    def __init__(self, job: Job, comm: MPI.Intracomm) -> None:
        self._job, self._comm = job, comm

    def scheduled(self, schedule: Schedule, recording: Recording | None) -> Run:
        """Runs a schedule."""
        from ..backends.mpi.executor import Executor
        from ..backends.mpi.waiting import Waiter

        job = self._job
        program = rank_program(schedule, self._comm.rank)
        waiter = Waiter(self._comm, job.wait_seconds, program.phases)
        kind = numpy_dtype(job.dtype)
        return Executor(self._comm, program, job.count, kind, job.op, waiter=waiter, recording=recording).run

    def native(self) -> Run:
        """MPI's own."""
        from ..backends.mpi.native import NativeAllreduce

        return NativeAllreduce(self._comm, self._job.dtype, self._job.op).run


class GlooEngine:
    """torch.distributed's gloo: its all_reduce."""

    def __init__(self, job: Job, rank: int) -> None:
        import torch
        import torch.distributed as dist

        self._job, self._torch, self._dist = job, torch, dist
        torch.set_num_threads(1)
        store = (Path(job.folder) / f"{job.name}.store").as_uri()
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=job.ranks)
        self._op: Any = {
            "sum": dist.ReduceOp.SUM,
            "max": dist.ReduceOp.MAX,
            "min": dist.ReduceOp.MIN,
            "prod": dist.ReduceOp.PRODUCT,
        }[job.op]

    def scheduled(self, schedule: Schedule, recording: Recording | None) -> Run:
        """There are none."""
        raise UsageError("gloo runs its own all_reduce only")

    def native(self) -> Run:
        """gloo's own."""

        def run(buffer: Array) -> None:
            self._dist.all_reduce(self._torch.from_numpy(buffer), op=self._op)

        return run


def has_engine(name: str) -> bool:
    """Whether the Python package that an engine needs is installed for this interpreter."""
    needs = {"tcp": None, "mpi": "mpi4py", "gloo": "torch"}[name]
    return needs is None or importlib.util.find_spec(needs) is not None


def single_threaded() -> None:
    """Keeps libraries from starting threads: all ranks share a few cores."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
