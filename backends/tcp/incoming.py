"""One message on its way into the buffer: read as it comes, reduced while the rest is still under way.

Bytes go straight into place where that is safe: a copy whose chunks nothing else needs. Otherwise into
scratch memory, and from there into the buffer as far as the hazards allow (`limit`). Scratch that has been
used up is filled again from its start, so that it stays in the cache.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

import numpy as np

from ..elements import Array, combine
from ..hazards import Step

PIECE_BYTES = 1 << 18
"""Most bytes read at a time."""


class Incoming:
    """A message that is being received.

    Args:
        index: number of the step.
        step: what is received.
        buffer: of this rank, shape (count,).
        op: the reduction.
        own_first: whose operand comes first.
        take: gives scratch memory, uint8, at least of the message's size.

    Attributes:
        index: number of the step.
        step: what is received.
        size: bytes of the message.
        received: bytes that have come.
        used: bytes that are in the buffer.
        scratch: memory for what is not, if it was needed.
    """

    def __init__(
        self,
        index: int,
        step: Step,
        buffer: Array,
        op: str,
        own_first: bool,
        take: Callable[[], Array],
    ) -> None:
        self.index, self.step = index, step
        self._buffer, self._op, self._own_first, self._take = buffer, op, own_first, take
        self._item = buffer.dtype.itemsize
        self._place = buffer[step.low : step.high].view(np.uint8)
        self.size = len(self._place)
        self.received = self.used = self._base = 0
        self.scratch: Array | None = None

    @property
    def element(self) -> int:
        """The buffer is final up to this element, as far as this message goes."""
        return self.step.low + self.used // self._item

    def read(self, connection: socket.socket, limit: int) -> int:
        """Reads what is there, once. Bytes read; 0: the peer has closed the connection.

        Args:
            connection: non-blocking.
            limit: element up to which the buffer may be changed.

        Raises:
            BlockingIOError: nothing is there.
            OSError: the connection is broken.
        """
        room = (limit - self.step.low) * self._item - self.received
        if self.step.copy and self.used == self.received and room > 0:
            end = self.received + min(room, PIECE_BYTES)
            got = connection.recv_into(self._place[self.received : end].data)
            self.used += got
        else:
            got = self._read_aside(connection)
        self.received += got
        return got

    def _read_aside(self, connection: socket.socket) -> int:
        if self.scratch is None:
            self.scratch = self._take()
        if self.used == self.received:
            self._base = self.used
        start, end = self.received - self._base, min(self.size - self._base, len(self.scratch))
        return connection.recv_into(self.scratch[start : min(end, start + PIECE_BYTES)].data)

    def use(self, limit: int) -> int:
        """Copies or reduces into the buffer what has come, up to element `limit`. Bytes used."""
        end = min(self.received, (limit - self.step.low) * self._item)
        if not self.step.copy:
            end -= end % self._item
        length = end - self.used
        if length <= 0 or self.scratch is None:
            return 0
        start = self.used - self._base
        part = self.scratch[start : start + length]
        if self.step.copy:
            self._place[self.used : end] = part
        else:
            low = self.step.low + self.used // self._item
            own = self._buffer[low : low + length // self._item]
            combine(self._op, own, part.view(own.dtype), self._own_first, own)
        self.used = end
        self._keep_rest()
        return length

    def _keep_rest(self) -> None:
        """Moves a cut element to the start of the scratch memory, and with it what comes next."""
        rest = self.received - self.used
        if 0 < rest < self._item and self.scratch is not None:
            start = self.used - self._base
            if start >= rest:
                self.scratch[:rest] = self.scratch[start : start + rest]
                self._base = self.used
