"""Waiting for other ranks, and after a time limit finding out who is to blame.

A rank that waits too long asks all others, on the control connections, what they wait for. Whoever does not
answer is the culprit; if all answer, it is the rank at the end of the chain of waits. Ranks answer while they
wait themselves. Asking is part of the time limit.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping

from ...schedules import RunError
from ..waits import Blocked, blame
from .control import ANSWER, QUERY, answer_body
from .mesh import Mesh

ASK_SECONDS = 1.0
"""How long others may take to answer; never more than a quarter of the limit."""

_LONGEST_SLEEP = 5.0


class Patience:
    """Waits of one run, and their limit.

    Args:
        mesh: the connections.
        limit: seconds without progress after which waiting ends in a `RunError`.
        phases: names of the schedule's phases, for messages.
    """

    def __init__(self, mesh: Mesh, limit: float, phases: tuple[str, ...]) -> None:
        self._mesh, self._limit, self._phases = mesh, limit, phases
        self._asking = min(ASK_SECONDS, limit / 4)
        self.progressed()

    def progressed(self) -> None:
        """Something moved: the time limit starts anew."""
        self._since = time.monotonic()

    def wait(self, wants: Mapping[socket.socket, int], blocked: Blocked) -> None:
        """Sleeps until something may move.

        Args:
            wants: see `Mesh.wait`.
            blocked: what this rank waits for.

        Raises:
            RunError: nothing has moved for the whole limit, or another rank has given up.
        """
        left = self._since + self._limit - self._asking - time.monotonic()
        if left <= 0:
            raise RunError(self._blame(blocked))
        self._mesh.wait(min(left, _LONGEST_SLEEP), wants)
        self._answer(blocked)

    def _answer(self, own: Blocked) -> None:
        for control in self._mesh.controls.values():
            while control.asked:
                control.asked -= 1
                control.send(ANSWER, answer_body(own.peer, own.phase, own.round))

    def _ask(self, own: Blocked) -> dict[int, Blocked]:
        """What every rank that answers waits for."""
        answers = {self._mesh.rank: own}
        for control in self._mesh.controls.values():
            control.answers.clear()
            control.send(QUERY)
        until = time.monotonic() + self._asking
        while len(answers) <= len(self._mesh.controls) and (left := until - time.monotonic()) > 0:
            self._mesh.wait(left, {})
            self._answer(own)
            for peer, control in self._mesh.controls.items():
                if control.answers:
                    answers[peer] = Blocked(*control.answers.popleft())
        return answers

    def _blame(self, own: Blocked) -> str:
        answers = self._ask(own)
        waited = time.monotonic() - self._since
        return blame(self._mesh.rank, self._mesh.controls, answers, waited, self._phases)
