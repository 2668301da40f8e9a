"""Messages between the parts of a testbed: one JSON object a line, over a Unix socket.

Unix sockets with a path cross network namespaces, so this needs no port and no shaped link carries it.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from ..schedules.errors import RunError

MAX_LINE = 1 << 26


class Closed(RunError):
    """The other end has gone."""


class Channel:
    """One end of a connection.

    Args:
        connection: a connected stream socket; `close` closes it.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket, self._pending = connection, bytearray()

    @classmethod
    def connect(cls, path: Path) -> Channel:
        """Connects to a listening socket.

        Raises:
            OSError: nobody listens there.
        """
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(path))
        except OSError:
            connection.close()
            raise
        return cls(connection)

    def fileno(self) -> int:
        """For selectors."""
        return self._socket.fileno()

    def send(self, message: dict[str, Any]) -> None:
        """Sends one message.

        Raises:
            Closed: the other end has gone.
        """
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise Closed(f"nobody takes the message: {error.strerror}") from error

    def receive(self, seconds: float | None = None) -> dict[str, Any]:
        """Waits for one message.

        Raises:
            Closed: the other end has gone, or what it sent is no message.
            TimeoutError: nothing came in `seconds`.
        """
        self._socket.settimeout(seconds)
        while b"\n" not in self._pending:
            try:
                data = self._socket.recv(1 << 16)
            except TimeoutError:
                raise
            except OSError as error:
                raise Closed(f"the connection broke: {error.strerror}") from error
            if not data or len(self._pending) + len(data) > MAX_LINE:
                raise Closed("the other end has gone")
            self._pending += data
        line, _, rest = bytes(self._pending).partition(b"\n")
        self._pending = bytearray(rest)
        self._socket.settimeout(None)
        try:
            message = json.loads(line)
        except ValueError as error:
            raise Closed("what came is no message") from error
        if not isinstance(message, dict):
            raise Closed("what came is no message")
        return message

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()


def listen(path: Path) -> socket.socket:
    """A listening socket at a path, for this user alone."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(256)
    return listener
