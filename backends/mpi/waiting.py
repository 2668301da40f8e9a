"""Waiting for other ranks without hanging: back off, and after a time limit find out who is to blame.

A rank that waits too long asks all others, on a communicator of its own, what they wait for. Whoever does
not answer is the culprit; if all answer, it is the rank at the end of the chain of waits. Ranks answer
while they wait themselves, so this needs no thread and works under any launcher, on any number of hosts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ...schedules import RunError
from ..waits import EVERYONE, Blocked, blame

if TYPE_CHECKING:
    from mpi4py import MPI

YIELDS = 2000
LONGEST_SLEEP = 200e-6
"""Back-off: give the CPU to whoever wants it between so many polls, then sleep, longer each time."""

_QUERY, _ANSWER = 1, 2
_ANSWER_EVERY = 0.02


class Waiter:
    """Polls with back-off and a time limit; one a rank.

    Args:
        comm: whose ranks to wait for; duplicated, so that questions never meet data.
        limit: seconds without progress after which waiting ends in a `RunError`.
        phases: names of the schedule's phases, for messages.
    """

    def __init__(self, comm: MPI.Intracomm, limit: float, phases: tuple[str, ...] = ()) -> None:
        self._side = comm.Dup()
        self._limit = limit
        self._phases = phases
        self._answered = 0.0
        self.progressed()

    def progressed(self) -> None:
        """Something moved: the time limit starts anew and polling is fast again."""
        self._since = time.monotonic()
        self._polls = 0

    def idle(self, blocked: Callable[[], Blocked]) -> None:
        """Nothing moved: give the CPU away for a moment, answer questions, watch the limit.

        Raises:
            RunError: nothing has moved for the whole limit; names the rank to blame.
        """
        self._polls += 1
        if self._polls < YIELDS:
            # Others may share this core; without any, a yield costs a microsecond.
            os.sched_yield()
        else:
            time.sleep(min(LONGEST_SLEEP, 1e-6 * (self._polls - YIELDS)))
        now = time.monotonic()
        if now - self._answered > _ANSWER_EVERY:
            self._answered = now
            self._answer(blocked())
        if now - self._since > self._limit:
            raise RunError(self._blame(blocked(), now - self._since))

    def wait(self, request: MPI.Request, blocked: Blocked = EVERYONE) -> None:
        """Waits for one request.

        Raises:
            RunError: it did not complete within the limit; names the rank to blame.
        """
        self.progressed()
        while not request.Test():
            self.idle(lambda: blocked)

    def _answer(self, blocked: Blocked) -> None:
        from mpi4py import MPI

        status, empty = MPI.Status(), np.empty(0, dtype=np.int64)
        while self._side.Iprobe(MPI.ANY_SOURCE, _QUERY, status):
            asker = status.Get_source()
            self._side.Recv(empty, asker, _QUERY)
            reply = np.array([blocked.peer, blocked.phase, blocked.round], dtype=np.int64)
            self._side.Send(reply, asker, _ANSWER)  # 24 bytes: sent at once, waits for nobody

    def _ask(self, own: Blocked) -> dict[int, Blocked]:
        """What every rank that answers waits for."""
        from mpi4py import MPI

        answers = {self._side.rank: own}
        empty = np.empty(0, dtype=np.int64)
        others = [r for r in range(self._side.size) if r != self._side.rank]
        # Kept by name: a request that is dropped while it is pending may be cancelled.
        pending = [self._side.Isend(empty, rank, _QUERY) for rank in others]
        until = time.monotonic() + min(5.0, max(1.0, self._limit / 2))
        status, reply = MPI.Status(), np.empty(3, dtype=np.int64)
        while len(answers) < self._side.size and time.monotonic() < until:
            self._answer(own)
            while self._side.Iprobe(MPI.ANY_SOURCE, _ANSWER, status):
                self._side.Recv(reply, status.Get_source(), _ANSWER)
                answers[status.Get_source()] = Blocked(*reply.tolist())
            time.sleep(0.001)
        for request in pending:
            if not request.Test():
                request.Free()
        return answers

    def _blame(self, own: Blocked, waited: float) -> str:
        answers = self._ask(own)
        return blame(self._side.rank, range(self._side.size), answers, waited, self._phases)
