"""Waking up less often: a sleeping reader is woken for many bytes at a time."""

from __future__ import annotations

import contextlib
import socket

WAKE_BYTES = 1 << 15
"""Fewest bytes for which a rank is woken, unless its message has fewer left."""


def wake_at(connection: socket.socket, left: int) -> None:
    """Lets a wait for this connection end once `WAKE_BYTES` have come, or `left`, if that is less."""
    # Some systems do not have it: there a rank wakes up more often.
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, max(1, min(left, WAKE_BYTES)))
