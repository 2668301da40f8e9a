"""Run under mpiexec: measures every rank's clock as if it were on a machine of its own.

Prints offset and error.
"""

import json
import time

from mpi4py import MPI

from stragglar.backends.mpi.clock import Clock
from stragglar.backends.mpi.waiting import Waiter

if __name__ == "__main__":
    clock = Clock(MPI.COMM_WORLD, Waiter(MPI.COMM_WORLD, 20.0), shared=False)
    clock.synchronise()
    # Read between two looks at the true clock, whatever else runs on this core meanwhile.
    before = time.monotonic()
    offset = clock.now() - before
    taken = time.monotonic() - before
    everyone = MPI.COMM_WORLD.gather((offset, clock.error + taken))
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(everyone))
