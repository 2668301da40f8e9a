"""Ranks find each other: connects to the lower ones and accepts the higher ones, all at a time.

Strangers are dropped and cost nobody else any time; a rank that is not there yet is tried again.
"""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections.abc import Sequence

from ...schedules import RunError
from .handshake import CONTROL, DATA, Dialogue, Hello, Refused, accept, connect

Address = tuple[str, int]

STRANGER_SECONDS = 5.0
"""How long a connection may take to prove itself."""

_AGAIN_SECONDS = 0.05
_MOST_STRANGERS = 256


class _Talk:
    """A connection whose handshake is under way."""

    def __init__(self, connection: socket.socket, dialogue: Dialogue, goal: Hello | None) -> None:
        self.connection, self.dialogue, self.goal = connection, dialogue, goal
        self.until = time.monotonic() + STRANGER_SECONDS
        self.connecting = goal is not None
        self._got = bytearray()
        self._wanted = 0

    def start(self) -> None:
        """Runs the dialogue up to its first wish."""
        self.connecting = False
        self._wanted = next(self.dialogue)

    def read(self) -> Hello | None:
        """Takes what has come; the outcome, once there is one.

        Raises:
            Refused: the other end has closed, or has failed to prove itself.
            RunError: see `handshake.accept`.
        """
        try:
            data = self.connection.recv(self._wanted - len(self._got))
        except BlockingIOError:
            return None
        except OSError as error:
            raise Refused(error.strerror or "the connection failed") from error
        if not data:
            raise Refused("it closed the connection: it may have another token or belong to another run")
        self._got += data
        if len(self._got) < self._wanted:
            return None
        told, self._got = bytes(self._got), bytearray()
        try:
            self._wanted = self.dialogue.send(told)
        except StopIteration as end:
            outcome: Hello = end.value
            return outcome
        # Never reads past the handshake: what follows is for the mesh.
        return None


class Meeting:
    """Makes the connections of one rank.

    Args:
        listener: the listening socket of this rank.
        rank: this rank.
        addresses: of all ranks.
        peers: the ranks to meet.
        token: what all ranks know.
        send_buffer: bytes of a data connection's send buffer.

    Attributes:
        connections: (peer, use) -> socket, as they come about.
    """

    def __init__(
        self,
        listener: socket.socket,
        rank: int,
        addresses: Sequence[Address],
        peers: frozenset[int],
        token: bytes,
        send_buffer: int,
    ) -> None:
        self._listener, self._rank, self._addresses = listener, rank, addresses
        self._peers, self._token, self._send_buffer = peers, token, send_buffer
        self.connections: dict[tuple[int, int], socket.socket] = {}
        self._talks: dict[socket.socket, _Talk] = {}
        self._again = {(peer, use): 0.0 for peer in peers if peer < rank for use in (DATA, CONTROL)}
        self._reasons: dict[int, str] = {}
        self._selector = selectors.DefaultSelector()

    def hold(self, seconds: float) -> None:
        """Goes on until all peers are there.

        Raises:
            RunError: somebody is missing after `seconds`; names who.
        """
        until = time.monotonic() + seconds
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        while missing := self._missing():
            now = time.monotonic()
            if now > until:
                raise RunError(self._absence(missing, seconds))
            self._call(now)
            for key, _ in self._selector.select(min(until - now, _AGAIN_SECONDS if self._again else 1.0)):
                self._serve(key.fileobj)  # type: ignore[arg-type]
            self._hang_up(time.monotonic())
        self._end()

    def drop(self) -> None:
        """Closes whatever has come about."""
        self._end()
        for connection in self.connections.values():
            connection.close()

    def _end(self) -> None:
        for talk in list(self._talks.values()):
            self._forget(talk)
        self._selector.close()

    def _missing(self) -> list[int]:
        here = self.connections
        return [p for p in sorted(self._peers) if (p, DATA) not in here or (p, CONTROL) not in here]

    def _absence(self, missing: list[int], seconds: float) -> str:
        names = f"rank {missing[0]}" if len(missing) == 1 else f"ranks {', '.join(map(str, missing[:8]))}"
        host, port = self._addresses[missing[0]]
        reason = self._reasons.get(missing[0], "")
        where = f"{host}:{port}: {reason}" if reason else f"expected from {host}:{port}"
        return f"{names} did not come within {seconds:.0f} s: rank {self._rank} waited ({where})"

    def _call(self, now: float) -> None:
        for (peer, use), when in list(self._again.items()):
            if when > now:
                continue
            del self._again[peer, use]
            goal = Hello(self._rank, peer, len(self._addresses), use)
            try:
                connection = self._dial(peer, use)
            except OSError as error:
                self._try_again(goal, error.strerror or str(error))
                continue
            self._add(_Talk(connection, connect(connection, self._token, goal), goal))

    def _dial(self, peer: int, use: int) -> socket.socket:
        host, port = self._addresses[peer]
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        connection = socket.socket(family, kind, protocol)
        connection.setblocking(False)
        if use == DATA:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer)
        try:
            connection.connect(address)
        except BlockingIOError:
            pass
        except OSError:
            connection.close()
            raise
        return connection

    def _add(self, talk: _Talk) -> None:
        self._talks[talk.connection] = talk
        event = selectors.EVENT_WRITE if talk.connecting else selectors.EVENT_READ
        self._selector.register(talk.connection, event)

    def _serve(self, connection: socket.socket) -> None:
        if connection is self._listener:
            self._accept()
            return
        talk = self._talks[connection]
        try:
            if talk.connecting:
                self._connected(talk)
                return
            hello = talk.read()
        except Refused as error:
            self._forget(talk)
            if talk.goal is not None:
                self._try_again(talk.goal, str(error))
            return
        if hello is not None:
            self._met(talk, hello)

    def _connected(self, talk: _Talk) -> None:
        error = talk.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise Refused(os.strerror(error))
        if talk.connection.getsockname() == talk.connection.getpeername():
            raise Refused("nobody listens")  # a port that is its own peer: TCP allows it
        talk.start()
        self._selector.modify(talk.connection, selectors.EVENT_READ)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        connection.setblocking(False)
        if len(self._talks) > _MOST_STRANGERS + 2 * len(self._peers):
            connection.close()
            return
        talk = _Talk(connection, accept(connection, self._token, self._rank, len(self._addresses)), None)
        try:
            talk.start()
        except Refused:
            connection.close()
            return
        self._add(talk)

    def _met(self, talk: _Talk, hello: Hello) -> None:
        peer = hello.rank if talk.goal is None else hello.wanted
        self._selector.unregister(talk.connection)
        del self._talks[talk.connection]
        if peer not in self._peers or (peer, hello.use) in self.connections:
            talk.connection.close()
            return
        if hello.use == DATA:
            talk.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer)
        talk.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connections[peer, hello.use] = talk.connection

    def _try_again(self, goal: Hello, reason: str) -> None:
        self._reasons[goal.wanted] = reason
        self._again[goal.wanted, goal.use] = time.monotonic() + _AGAIN_SECONDS

    def _hang_up(self, now: float) -> None:
        for talk in [t for t in self._talks.values() if now > t.until]:
            self._forget(talk)
            if talk.goal is not None:
                self._try_again(talk.goal, "it does not answer")

    def _forget(self, talk: _Talk) -> None:
        self._selector.unregister(talk.connection)
        del self._talks[talk.connection]
        talk.connection.close()
