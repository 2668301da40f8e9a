"""The control connection between two ranks: short frames beside the data, which never queue behind it.

A frame is one byte that says what it is, then what `_SIZES` says. Both ends have proved that they know the
run's token, so frames are trusted as far as a rank trusts another; lengths are bounded all the same.
"""

from __future__ import annotations

import socket
import struct
from collections import deque

from ...schedules import RunError

GRANT, ABORT, LOST, QUERY, ANSWER, NOTE = b"g", b"x", b"l", b"q", b"a", b"n"
"""The receiver is ready for a message; the run has failed, or a rank was lost (both: a text); what do you
wait for; I wait for that; other words."""

TAG_BYTES = 8
MAX_FRAME = 1 << 28
_SIZES = {GRANT[0]: TAG_BYTES, ABORT[0]: -1, LOST[0]: -1, QUERY[0]: 0, ANSWER[0]: 12, NOTE[0]: -1}
"""Bytes after the first; -1: four bytes that say how many, then as many."""

_READ_BYTES = 1 << 16


class LostRank(RunError):
    """A connection has ended without a word: most likely its rank has died."""


class Control:
    """Frames to and from one peer, over a socket that never blocks.

    Args:
        peer: rank at the other end.
        connection: the socket; becomes non-blocking.

    Attributes:
        grants: tags of the messages that the peer is ready for, oldest first.
        notes: words from the peer, oldest first.
        answers: what the peer said it waits for: peer, phase and round.
        asked: how often the peer has asked what this rank waits for, and has no answer yet.
        abort: why the peer has given up; None: it has not.
        closed: the peer's end is closed; nothing more comes.
    """

    def __init__(self, peer: int, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.peer, self.socket = peer, connection
        self.grants: deque[bytes] = deque()
        self.notes: deque[bytes] = deque()
        self.answers: deque[tuple[int, int, int]] = deque()
        self.asked = 0
        self.abort: RunError | None = None
        self.closed = False
        self._inbox, self._outbox = bytearray(), bytearray()

    @property
    def waiting(self) -> bool:
        """Whether frames wait for room in the socket: call `flush` once it can be written to."""
        return bool(self._outbox) and not self.closed

    def send(self, kind: bytes, body: bytes = b"") -> None:
        """Sends a frame, now or by later calls of `flush`; to a peer that has gone, nothing."""
        length = struct.pack("!I", len(body)) if _SIZES[kind[0]] < 0 else b""
        self._outbox += kind + length + body
        self.flush()

    def flush(self) -> None:
        """Sends what the socket takes."""
        try:
            while self._outbox and not self.closed:
                sent = self.socket.send(self._outbox)
                del self._outbox[:sent]
        except BlockingIOError:
            return
        except OSError:
            # What the peer sent before it went may still be read.
            self._outbox.clear()

    def pump(self) -> None:
        """Reads all frames that are there.

        Raises:
            RunError: something that is no frame.
        """
        while not self.closed:
            try:
                data = self.socket.recv(_READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            self.closed = not data
            self._inbox += data
            self._parse()
            if len(data) < _READ_BYTES:
                return

    def _parse(self) -> None:
        at, inbox = 0, self._inbox
        while at < len(inbox):
            size, start = _SIZES.get(inbox[at], MAX_FRAME + 1), at + 1
            if size < 0:
                if len(inbox) < at + 5:
                    break
                size, start = int.from_bytes(inbox[at + 1 : at + 5], "big"), at + 5
            if size > MAX_FRAME:
                raise RunError(f"rank {self.peer} sent what is no control frame")
            if len(inbox) < start + size:
                break
            self._take(inbox[at], bytes(inbox[start : start + size]))
            at = start + size
        del inbox[:at]

    def _take(self, kind: int, body: bytes) -> None:
        if kind == GRANT[0]:
            self.grants.append(body)
        elif kind == NOTE[0]:
            self.notes.append(body)
        elif kind == QUERY[0]:
            self.asked += 1
        elif kind == ANSWER[0]:
            self.answers.append(struct.unpack("!iii", body))
        else:
            text = body.decode("utf-8", "replace")
            self.abort = LostRank(text) if kind == LOST[0] else RunError(text)


def answer_body(peer: int, phase: int, round_: int) -> bytes:
    """The body of an `ANSWER` frame."""
    return struct.pack("!iii", peer, phase, round_)
