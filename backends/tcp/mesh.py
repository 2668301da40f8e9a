"""The connections of one rank to the others: a data and a control connection for every pair.

Data never shares a connection with grants, so a grant does not wait behind a full send buffer. Every rank
listens; of two ranks the higher one connects. One rank owns its mesh: it is not for several threads.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Collection, Mapping, Sequence

from ...schedules import RunError, StragglarError, UsageError
from .control import ABORT, LOST, NOTE, Control, LostRank
from .handshake import CONTROL, DATA
from .meeting import Address, Meeting

SEND_BUFFER = 1 << 16
"""Bytes of a data connection's send buffer. Small: what waits there delays every grant of this port."""

_BACKLOG = 1024
_LAST_WORDS_SECONDS = 0.5


class Listener:
    """A listening port of one rank, to be connected with others.

    Args:
        host: address to listen at.
        port: 0: any that is free.

    Raises:
        RunError: the port is taken, or there is no such address here.
    """

    def __init__(self, host: str, port: int = 0) -> None:
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            self._socket = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise RunError(f"cannot listen at {host}:{port}: {error.strerror or error}") from error

    @classmethod
    def inherited(cls, descriptor: int) -> Listener:
        """Takes over a listening socket that a parent process has opened."""
        listener = cls.__new__(cls)
        listener._socket = socket.socket(fileno=descriptor)
        return listener

    @property
    def address(self) -> Address:
        """Host and port."""
        host, port = self._socket.getsockname()[:2]
        return str(host), int(port)

    def fileno(self) -> int:
        """Its descriptor, to be inherited by a process that is started."""
        return self._socket.fileno()

    def close(self) -> None:
        """Stops listening."""
        self._socket.close()

    def connect(
        self,
        rank: int,
        addresses: Sequence[Address],
        seconds: float,
        peers: Collection[int] | None = None,
        *,
        token: bytes = b"",
        send_buffer: int = SEND_BUFFER,
    ) -> Mesh:
        """Connects this rank with others, and stops listening.

        Args:
            rank: this rank.
            addresses: where every rank listens, in the order of ranks.
            seconds: how long to wait for them.
            peers: the ranks to connect with, which must name this one in turn; None: all.
            token: a secret that all ranks of a run share; without one, anybody may join.
            send_buffer: bytes of a data connection's send buffer (the kernel may double it).

        Raises:
            UsageError: a rank that does not exist.
            RunError: a rank did not come in time, or was told another number of ranks.
        """
        ranks = len(addresses)
        wanted = frozenset(range(ranks) if peers is None else peers) - {rank}
        if not 0 <= rank < ranks or not all(0 <= peer < ranks for peer in wanted):
            raise UsageError(f"rank {rank} and its peers must be in 0..{ranks - 1}")
        meeting = Meeting(self._socket, rank, addresses, wanted, token, send_buffer)
        try:
            meeting.hold(seconds)
        except BaseException:
            meeting.drop()
            raise
        finally:
            self.close()
        return Mesh(rank, ranks, meeting.connections)


class Mesh:
    """One rank's connections; made by `Listener.connect`.

    Args:
        rank: this rank.
        ranks: how many there are.
        connections: (peer, `DATA` or `CONTROL`) -> socket.

    Attributes:
        rank: this rank.
        ranks: how many there are.
        controls: peer -> its control connection.
        data: peer -> its data connection.
    """

    def __init__(self, rank: int, ranks: int, connections: Mapping[tuple[int, int], socket.socket]) -> None:
        self.rank, self.ranks = rank, ranks
        peers = sorted({peer for peer, _ in connections})
        self.data = {peer: connections[peer, DATA] for peer in peers}
        self.controls = {peer: Control(peer, connections[peer, CONTROL]) for peer in peers}
        for connection in self.data.values():
            connection.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._wants: dict[socket.socket, int] = {}
        self._watched = dict.fromkeys(self.controls, selectors.EVENT_READ)
        for control in self.controls.values():
            self._selector.register(control.socket, selectors.EVENT_READ, control)
        self._failure: StragglarError | None = None
        self._open = True

    @property
    def peers(self) -> frozenset[int]:
        """The ranks that this one is connected with."""
        return frozenset(self.data)

    def require_usable(self) -> None:
        """Refuses a mesh on which something has failed before.

        Raises:
            RunError: says what.
        """
        if self._failure is not None:
            raise self._failure
        if not self._open:
            raise RunError(f"the connections of rank {self.rank} are closed")

    def wait(self, seconds: float, wants: Mapping[socket.socket, int]) -> None:
        """Sleeps until a data connection is as wanted, or a control frame has come, or time is over.

        Args:
            seconds: at most.
            wants: data connection -> what to wait for, `selectors.EVENT_READ` or `EVENT_WRITE` or both.

        Raises:
            RunError: another rank has given up; says why.
        """
        self.require_usable()
        self._watch(wants)
        for key, events in self._selector.select(max(0.0, seconds)):
            control = key.data
            if control is None:
                continue
            if events & selectors.EVENT_WRITE:
                control.flush()
            control.pump()
        self._heed()

    def pump(self) -> None:
        """Reads all control frames that are there; see `wait`."""
        self.wait(0.0, self._wants)

    def note(self, peer: int, words: bytes) -> None:
        """Sends words to a peer, for its `take_note`."""
        self.controls[peer].send(NOTE, words)

    def take_note(self, peer: int, seconds: float) -> bytes:
        """The next words of a peer.

        Raises:
            RunError: none come in time, or the peer is gone, or has given up.
        """
        control, until = self.controls[peer], time.monotonic() + seconds
        while not control.notes:
            if control.closed:
                raise self.lost(peer)
            if (left := until - time.monotonic()) <= 0:
                raise RunError(
                    f"rank {peer} does not respond: rank {self.rank} waited {seconds:.1f} s for it"
                )
            self.wait(left, {})
        return control.notes.popleft()

    def settle(self, seconds: float) -> None:
        """Waits until all frames that this rank has sent are in the sockets.

        Raises:
            RunError: a peer does not take them in time.
        """
        until = time.monotonic() + seconds
        while full := [peer for peer, control in self.controls.items() if control.waiting]:
            if (left := until - time.monotonic()) <= 0:
                raise RunError(
                    f"rank {full[0]} does not respond: rank {self.rank} waited {seconds:.1f} s for it"
                )
            self.wait(left, {})

    def lost(self, peer: int) -> RunError:
        """The error of a connection that has ended too soon: the reason, if somebody gives one."""
        until = time.monotonic() + _LAST_WORDS_SECONDS
        try:
            # A rank that gives up says why on its control connections before it closes any.
            while not self.controls[peer].closed and (left := until - time.monotonic()) > 0:
                self.wait(left, {})
            self.pump()
        except RunError as error:
            return error
        return LostRank(f"rank {peer} has died or left: its connection to rank {self.rank} was closed")

    def abort(self, error: BaseException) -> None:
        """Tells all peers why this rank gives up, and closes everything."""
        if not self._open:
            return
        if not isinstance(error, StragglarError):
            error = RunError(f"rank {self.rank} gave up: {type(error).__name__}: {error}")
        self._failure = error
        kind = LOST if isinstance(error, LostRank) else ABORT
        for control in self.controls.values():
            control.send(kind, str(error).encode("utf-8", "replace")[:4096])
        self.close()

    def close(self) -> None:
        """Closes all connections."""
        if not self._open:
            return
        self._open = False
        self._selector.close()
        for connection in (*self.data.values(), *(c.socket for c in self.controls.values())):
            connection.close()

    def _watch(self, wants: Mapping[socket.socket, int]) -> None:
        for connection in [c for c in self._wants if c not in wants]:
            self._selector.unregister(connection)
            del self._wants[connection]
        for connection, events in wants.items():
            known = self._wants.get(connection)
            if known is None:
                self._selector.register(connection, events)
            elif known != events:
                self._selector.modify(connection, events)
            self._wants[connection] = events
        for peer, control in self.controls.items():
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if control.waiting else 0)
            events = 0 if control.closed else events
            if events != self._watched[peer]:
                self._rewatch(control, events)

    def _rewatch(self, control: Control, events: int) -> None:
        if events == 0:
            self._selector.unregister(control.socket)
        else:
            self._selector.modify(control.socket, events, control)
        self._watched[control.peer] = events

    def _heed(self) -> None:
        for control in self.controls.values():
            if control.abort:
                # Passed on at once: the others must not take this rank's end for the cause.
                self.abort(control.abort)
                raise control.abort
