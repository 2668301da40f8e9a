"""One run of an executor, from the first message to the last; see `executor.py` for its rules."""

from __future__ import annotations

import selectors
import socket
from typing import TYPE_CHECKING

import numpy as np

from ...schedules import RunError
from ..elements import Array
from ..hazards import Step
from ..waits import Blocked
from .blame import Patience
from .control import GRANT
from .incoming import Incoming
from .lowat import wake_at
from .mesh import Mesh
from .notes import Notes

if TYPE_CHECKING:
    from .executor import Prepared


class Progress:
    """The state of a run.

    Args:
        mesh: the connections.
        prepared: what is to be done.
        buffer: of this rank; checked.
        pool: scratch memory of earlier runs; takes back what this one no longer needs.
    """

    def __init__(self, mesh: Mesh, prepared: Prepared, buffer: Array, pool: list[Array]) -> None:
        self._mesh, self._prepared, self._buffer, self._pool = mesh, prepared, buffer, pool
        self._steps, self._raw = prepared.steps, buffer.view(np.uint8).data
        self._item = buffer.dtype.itemsize
        self._reached = [step.low for step in self._steps]
        self._sends = [i for i, step in enumerate(self._steps) if step.send]
        self._receives = [i for i, step in enumerate(self._steps) if not step.send]
        self._largest = max((self._bytes(i) for i in self._receives), default=0)
        self._frontier = self._sending = self._receiving = self._granted = 0
        self._sent = self._promised = self._held = 0
        self._may_send = False
        self._incoming: Incoming | None = None
        self._waiting: list[Incoming] = []
        self._patience = Patience(mesh, prepared.wait_seconds, prepared.phases)
        self._notes = Notes(prepared.recording, prepared.phases, self._steps) if prepared.recording else None

    def finish(self) -> None:
        """Runs all steps.

        Raises:
            RunError: see `Executor.run`.
        """
        self._grant()
        while not self._over():
            moved = self._receive()
            moved = self._send() or moved
            if moved:
                if self._waiting:
                    self._use_waiting()
                self._grant()
                self._patience.progressed()
            else:
                self._sleep()
        if self._notes:
            self._notes.close()

    def _over(self) -> bool:
        ends = self._sending == len(self._sends) and self._receiving == len(self._receives)
        return ends and not self._waiting

    def _bytes(self, index: int) -> int:
        step = self._steps[index]
        return (step.high - step.low) * self._item

    def _limit(self, index: int) -> int:
        """The element up to which a step may go now: as far as all that it needs have gone."""
        steps, reached, step = self._steps, self._reached, self._steps[index]
        limit = step.high
        for need in step.needs:
            if reached[need] < steps[need].high:
                limit = min(limit, max(step.low, steps[need].low, reached[need]))
        return limit

    def _first_open(self) -> Step:
        while self._reached[self._frontier] == self._steps[self._frontier].high:
            self._frontier += 1
        return self._steps[self._frontier]

    def _grant(self) -> None:
        window = self._prepared.window
        while self._granted < len(self._receives):
            index = self._receives[self._granted]
            if self._granted > self._receiving and self._promised > window.ahead:
                return
            size = self._bytes(index)
            if self._held and self._held + size > window.scratch:
                open_, next_ = self._first_open(), self._steps[index]
                if (open_.phase, open_.round) != (next_.phase, next_.round):
                    return
            self._mesh.controls[self._steps[index].peer].send(GRANT, self._prepared.tags[index])
            self._granted += 1
            self._promised += size

    def _receive(self) -> bool:
        """Reads once from the message that is first in line. Whether anything has come."""
        if self._receiving == self._granted:
            return False
        message = self._incoming or self._begin()
        step = message.step
        limit = self._limit(message.index)
        try:
            got = message.read(self._mesh.data[step.peer], limit)
        except BlockingIOError:
            return False
        except OSError as error:
            raise self._mesh.lost(step.peer) from error
        if not got:
            raise self._mesh.lost(step.peer)
        if self._notes:
            self._notes.received(message.index, message.received == message.size)
        self._promised -= got
        self._use(message, limit)
        if message.received == message.size:
            self._receiving += 1
            self._incoming = None
            if message.used < message.size:
                self._waiting.append(message)
                self._held += message.size
        return True

    def _begin(self) -> Incoming:
        index = self._receives[self._receiving]
        step = self._steps[index]
        own_first = self._mesh.rank < step.peer
        self._incoming = Incoming(index, step, self._buffer, self._prepared.op, own_first, self._scratch)
        return self._incoming

    def _scratch(self) -> Array:
        fitting = self._pool.pop() if self._pool else None
        if fitting is not None and len(fitting) >= self._largest:
            return fitting
        return np.empty(self._largest, np.uint8)

    def _use(self, message: Incoming, limit: int) -> None:
        start = self._notes.now() if self._notes else 0.0
        if message.use(limit) and self._notes:
            self._notes.used(message.index, start)
        self._reached[message.index] = message.element
        if message.used == message.size and message.scratch is not None:
            self._pool.append(message.scratch)
            message.scratch = None

    def _use_waiting(self) -> None:
        for message in self._waiting:
            self._use(message, self._limit(message.index))
        self._held -= sum(m.size for m in self._waiting if m.used == m.size)
        self._waiting = [m for m in self._waiting if m.used < m.size]

    def _send(self) -> bool:
        """Writes once to the message that is first in line. Whether anything has left."""
        if self._sending == len(self._sends):
            return False
        index = self._sends[self._sending]
        step = self._steps[index]
        limit = self._limit(index)
        end = (limit - step.low) * self._item
        if limit < step.high and end - self._sent < max(1, self._prepared.window.least):
            return False
        if not self._may_send and not self._take_grant(index):
            return False
        low = step.low * self._item
        try:
            sent = self._mesh.data[step.peer].send(self._raw[low + self._sent : low + end])
        except BlockingIOError:
            return False
        except OSError as error:
            raise self._mesh.lost(step.peer) from error
        self._sent += sent
        self._reached[index] = step.low + self._sent // self._item
        over = self._reached[index] == step.high
        if self._notes:
            self._notes.sent(index, over)
        if over:
            self._sending += 1
            self._sent, self._may_send = 0, False
        return True

    def _take_grant(self, index: int) -> bool:
        peer = self._steps[index].peer
        control = self._mesh.controls[peer]
        if not control.grants:
            control.pump()
        if not control.grants:
            return False
        if control.grants.popleft() != self._prepared.tags[index]:
            raise RunError(
                f"ranks {min(peer, self._mesh.rank)} and {max(peer, self._mesh.rank)} were given different"
                f" schedules, sizes or types: they disagree about {self._where(index)}"
            )
        self._may_send = True
        return True

    def _where(self, index: int) -> str:
        step = self._steps[index]
        return f"{self._prepared.phases[step.phase]} round {step.round}"

    def _sleep(self) -> None:
        step = self._first_open()
        wants = self._wants()
        if self._notes:
            self._notes.idle(self._frontier, bool(wants))
        self._patience.wait(wants, Blocked(step.peer, step.phase, step.round))
        self._require_peers()

    def _wants(self) -> dict[socket.socket, int]:
        wants: dict[socket.socket, int] = {}
        if self._receiving < self._granted:
            message = self._incoming or self._begin()
            connection = self._mesh.data[message.step.peer]
            wake_at(connection, message.size - message.received)
            wants[connection] = selectors.EVENT_READ
        if self._may_send:
            index = self._sends[self._sending]
            end = (self._limit(index) - self._steps[index].low) * self._item
            if (
                self._limit(index) == self._steps[index].high
                or end - self._sent >= self._prepared.window.least
            ):
                connection = self._mesh.data[self._steps[index].peer]
                wants[connection] = wants.get(connection, 0) | selectors.EVENT_WRITE
        return wants

    def _require_peers(self) -> None:
        """A peer that has gone may have sent all it was asked for; it cannot take or be asked for more."""
        if not any(control.closed for control in self._mesh.controls.values()):
            return
        for index in (*self._sends[self._sending :], *self._receives[self._granted :]):
            if self._mesh.controls[self._steps[index].peer].closed:
                raise self._mesh.lost(self._steps[index].peer)
