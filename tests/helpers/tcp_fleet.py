"""Ranks as threads of the test's process, connected over loopback."""

import threading

import numpy as np

from stragglar.backends.elements import combine, finish, numpy_dtype, prepare
from stragglar.backends.hazards import plan
from stragglar.backends.programs import rank_program
from stragglar.backends.tcp.executor import Executor
from stragglar.backends.tcp.mesh import Listener

SECONDS = 30


def together(ranks, part, *, peers=lambda rank: None, token=b"secret"):
    """Runs `part(mesh, rank)` on every rank; what each returned, or the exception that ended it."""
    listeners = [Listener("127.0.0.1") for _ in range(ranks)]
    addresses = [listener.address for listener in listeners]
    outcomes = [None] * ranks

    def one(rank):
        try:
            mesh = listeners[rank].connect(rank, addresses, SECONDS, peers(rank), token=token)
            try:
                outcomes[rank] = part(mesh, rank)
            finally:
                mesh.close()
        except Exception as error:
            outcomes[rank] = error

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def executor(mesh, schedule, count, dtype="f32", op="sum", **options):
    options.setdefault("wait_seconds", SECONDS)
    return Executor(mesh, rank_program(schedule, mesh.rank), count, numpy_dtype(dtype), op, **options)


def modelled(schedule, inputs, op):
    """The result of every rank, computed round by round: all transfers of a round read what was before it."""
    count, ranks = len(inputs[0]), schedule.ranks
    held = [data.copy() for data in inputs]
    plans = [plan(rank_program(schedule, rank), count) for rank in range(ranks)]
    rounds = sorted({(s.phase, s.round) for steps in plans for s in steps})
    with np.errstate(over="ignore", invalid="ignore"):
        for data in held:
            prepare(op, data, ranks)
        for where in rounds:
            before = [data.copy() for data in held]
            for rank, steps in enumerate(plans):
                for step in (s for s in steps if (s.phase, s.round) == where and not s.send):
                    part = slice(step.low, step.high)
                    incoming, own = before[step.peer][part], held[rank][part]
                    if step.copy:
                        own[:] = incoming
                    else:
                        combine(op, own, incoming, rank < step.peer, own)
        for data in held:
            finish(op, data, ranks)
    return held
