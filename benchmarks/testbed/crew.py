"""The processes of a fleet, inside the testbed: `python -m stragglar.testbed.crew JOB`.

For tcp and gloo this process loads what a rank needs, once, and forks into one process a rank, each of which
enters its host. For mpi, mpiexec starts one such process in every host, and each is a rank.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

from .channel import Channel
from .engines import GlooEngine, MpiEngine, TcpEngine, single_threaded
from .kernel import die_with_parent, enter_network_at
from .worker import Job, Worker


def main(path: Path) -> int:
    """Runs the ranks of a job; returns the exit code."""
    job = Job.load(path)
    if job.engine == "mpi":
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
        Worker(job, comm.rank, MpiEngine(job, comm), Channel.connect(job.socket)).serve()
        return 0
    _load(job.engine)
    children = [_fork(job, rank) for rank in range(job.ranks)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return int(any(codes))


def _load(engine: str) -> None:
    """Imports once what all ranks will use."""
    if engine == "gloo":
        import torch.distributed

        assert torch.distributed.is_available()
    else:
        from ..backends.tcp import executor, mesh

        assert executor and mesh


def _fork(job: Job, rank: int) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        die_with_parent()
        enter_network_at(job.host(rank))
        channel = Channel.connect(job.socket)
        engine = TcpEngine(job, rank) if job.engine == "tcp" else GlooEngine(job, rank)
        Worker(job, rank, engine, channel).serve()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    single_threaded()
    sys.exit(main(Path(sys.argv[1])))
