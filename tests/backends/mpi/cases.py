"""Run under mpiexec: many schedules, sizes, types and reductions in one start, each against the model.

Prints one JSON line from rank 0: how many cases ran, and which went wrong on which rank.
"""

import json
import sys
import time

import numpy as np
from mpi4py import MPI

from stragglar.backends.elements import DTYPES, OPS, expected, numpy_dtype, rank_input
from stragglar.backends.model import run_model
from stragglar.backends.mpi import executor
from stragglar.backends.mpi.waiting import Waiter
from stragglar.backends.programs import rank_program
from stragglar.synth.families import synthesize
from stragglar.synth.request import Request

WORLD = MPI.COMM_WORLD
NARROW = executor.Window(receives=1, sends=1, scratch=1)
WIDE = executor.Window(receives=64, sends=64)
FULL = [(0, "stragglar"), (WORLD.size - 1, "stragglar"), ("rhd",)]


def schedules(ranks):
    for late in sorted({0, ranks // 2, ranks - 1}):
        if ranks > 2:
            yield synthesize(Request(ranks=ranks, late=(late,), algorithm="stragglar", refine=2))
    for name in ("ring", "rhd", "direct"):
        yield synthesize(Request(ranks=ranks, algorithm=name))
    for name in ("merge-allreduce", "split", "tree", "pairwise-exchange"):
        yield synthesize(Request(ranks=ranks, late=(ranks // 2,), algorithm=name))


def cases(schedule, quick):
    """Sizes for every schedule; types, reductions and windows for a merging one and a baseline."""
    k = schedule.chunks
    for count in sorted({1, max(1, k - 1), k, k + 1, 3 * k + 2}):
        yield count, "f32", "sum", None
    if quick or (*schedule.late, schedule.origin.family) not in FULL:
        return
    for dtype in DTYPES:
        for op in OPS:
            yield 2 * k + 1, dtype, op, None
    yield (1 << 18) + 1, "f32", "sum", None
    for window in (NARROW, WIDE):
        yield 5 * k + 3, "f64", "sum", window


def lateness(schedule, number):
    """Seconds this rank comes late: the planned rank, then each other one, then nobody."""
    who = [*schedule.late, *range(WORLD.size), -1]
    return 0.01 if who[number % len(who)] == WORLD.rank else 0.0


def wrong(schedule, program, waiter, case, delay):
    count, dtype, op, window = case
    inputs = [rank_input(r, WORLD.size, count, dtype, op) for r in range(WORLD.size)]
    buffer = inputs[WORLD.rank].copy()
    run = executor.Executor(WORLD, program, count, numpy_dtype(dtype), op, waiter=waiter, window=window)
    time.sleep(delay)
    for _ in range(2):  # again at once, with no barrier: messages of two runs must not mix
        buffer[:] = inputs[WORLD.rank]
        run.run(buffer)
    model = run_model(schedule, inputs, op)[WORLD.rank]
    differing = int(np.count_nonzero(buffer.view(np.uint8) != model.view(np.uint8)))
    return expected(WORLD.size, count, dtype, op).wrong(buffer) + differing


def main(quick):
    bad, number = [], 0
    for index, schedule in enumerate(schedules(WORLD.size)):
        program = rank_program(schedule, WORLD.rank)
        waiter = Waiter(WORLD, 20.0, program.phases)
        # Cut messages into pieces too: of 1000 bytes for every other schedule.
        executor.PIECE_BYTES = 1000 if index % 2 else 1 << 30
        for case in cases(schedule, quick):
            number += 1
            if wrong(schedule, program, waiter, case, lateness(schedule, number)):
                bad.append((WORLD.rank, schedule.origin.family, schedule.late, *case[:3]))
    everyone = WORLD.gather(bad)
    if WORLD.rank == 0:
        print(json.dumps({"cases": number, "bad": [b for part in everyone for b in part]}))


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
