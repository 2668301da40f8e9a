"""Run under mpiexec: rank 2 is given another input than the others, in several ways.

Rank 0 prints what it is told.
"""

import json
from dataclasses import replace

from mpi4py import MPI

from stragglar.backends.mpi.worker import run_here
from stragglar.backends.run import RunRequest, run
from stragglar.schedules import RunError
from stragglar.synth.families import synthesize
from stragglar.synth.request import Request

ODD = 2
CHANGES = [{"count": 101}, {"dtype": "f64"}, {"op": "max"}, {"repeat": 3}, {"seed": 5}, {"late_by": 0.001}]


def told(schedule, request):
    try:
        run_here(schedule, request)
    except RunError as error:
        return str(error)
    return "nothing"


def main():
    rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
    schedule, other, larger = (
        synthesize(Request(ranks=n, late=(late,), algorithm="stragglar"))
        for n, late in ((size, 0), (size, 1), (size + 1, 0))
    )
    usual = RunRequest(count=100, repeat=1, warmup=0)
    messages = [told(schedule, replace(usual, **change) if rank == ODD else usual) for change in CHANGES]
    messages.append(told(other if rank == ODD else schedule, usual))
    messages.append(told(larger, usual))
    report = run(schedule, "mpi", usual)
    if rank == 0:
        print(json.dumps({"messages": messages, "correct": report.correct, "ranks": report.ranks}))


if __name__ == "__main__":
    main()
