"""Run under mpiexec: rank 2 waits for all ranks to come together while the others run a schedule."""

import json
import time

import numpy as np
from mpi4py import MPI

from stragglar.backends.mpi.executor import Executor
from stragglar.backends.mpi.waiting import Waiter
from stragglar.backends.programs import rank_program
from stragglar.schedules import RunError
from stragglar.synth import Request, synthesize

WORLD = MPI.COMM_WORLD


def main():
    schedule = synthesize(Request(ranks=WORLD.size, algorithm="ring"))
    # Rank 0 loses its patience first and tells; the others answer it meanwhile.
    waiter = Waiter(WORLD, 1.0 if WORLD.rank == 0 else 20.0, ("post",))
    try:
        if WORLD.rank == 2:
            waiter.wait(WORLD.Ibarrier())
        Executor(WORLD, rank_program(schedule, WORLD.rank), 8, np.dtype("f4"), "sum", waiter=waiter).run(
            np.ones(8, "f4")
        )
    except RunError as error:
        print(json.dumps({"message": str(error)}), flush=True)
        time.sleep(0.2)
        WORLD.Abort(0)


if __name__ == "__main__":
    main()
