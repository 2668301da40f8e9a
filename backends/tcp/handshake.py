"""How two ranks make sure of each other: both prove that they know the run's token, without saying it.

Whoever connects is a rank above that of whoever accepts. Accepting end first:

    magic, nonce (16)  ->
                       <-  rank, rank meant, ranks, use (4 bytes each), nonce (16), proof (32)
    proof (32)         ->

A proof is HMAC-SHA256 with the token over the side's name, both nonces and the four numbers. What does not
prove itself, or not soon, is dropped: a port scanner or a stray client costs a socket for a few seconds.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import struct
from collections.abc import Generator
from dataclasses import dataclass

from ...schedules import RunError

DATA, CONTROL = 0, 1
"""Uses of a connection: every pair of ranks has one of each."""

MAGIC = b"stragglr"
NONCE_BYTES, PROOF_BYTES = 16, 32
_NUMBERS = struct.Struct("!IIII")

Dialogue = Generator[int, bytes, "Hello"]
"""Yields how many bytes it wants next, is sent them, and returns what both ends agree on."""


class Refused(Exception):
    """The other end is not who it should be; the connection is to be dropped."""


@dataclass(frozen=True, slots=True)
class Hello:
    """What a connecting rank says: who it is, whom it wants, how many ranks it knows of, and what for."""

    rank: int
    wanted: int
    ranks: int
    use: int

    def packed(self) -> bytes:
        """The numbers as bytes."""
        return _NUMBERS.pack(self.rank, self.wanted, self.ranks, self.use)


def accept(connection: socket.socket, token: bytes, rank: int, ranks: int) -> Dialogue:
    """The accepting end's part.

    Raises:
        Refused: no proof, or a proved connection that is meant for another rank.
        RunError: a rank of the run that was told another number of ranks.
    """
    mine = secrets.token_bytes(NONCE_BYTES)
    send(connection, MAGIC + mine)
    numbers = yield _NUMBERS.size
    theirs = yield NONCE_BYTES
    proof = yield PROOF_BYTES
    if not hmac.compare_digest(proof, _proof(token, b"connect", mine, theirs, numbers)):
        raise Refused("no proof")
    hello = Hello(*_NUMBERS.unpack(numbers))
    if hello.ranks != ranks:
        raise RunError(f"rank {hello.rank} was started for {hello.ranks} ranks, rank {rank} for {ranks}")
    if hello.wanted != rank or not rank < hello.rank < ranks or hello.use not in (DATA, CONTROL):
        raise Refused("meant for another rank")
    send(connection, _proof(token, b"accept", mine, theirs, numbers))
    return hello


def connect(connection: socket.socket, token: bytes, hello: Hello) -> Dialogue:
    """The connecting end's part.

    Raises:
        Refused: the other end does not know the token.
    """
    greeting = yield len(MAGIC) + NONCE_BYTES
    if not greeting.startswith(MAGIC):
        raise Refused("something else answers there")
    theirs = greeting[len(MAGIC) :]
    mine, numbers = secrets.token_bytes(NONCE_BYTES), hello.packed()
    send(connection, numbers + mine + _proof(token, b"connect", theirs, mine, numbers))
    proof = yield PROOF_BYTES
    if not hmac.compare_digest(proof, _proof(token, b"accept", theirs, mine, numbers)):
        raise Refused("no proof")
    return hello


def send(connection: socket.socket, data: bytes) -> None:
    """Sends a few bytes on a fresh connection: they always fit its buffer."""
    try:
        if connection.send(data) != len(data):
            raise Refused("no room")
    except OSError as error:
        raise Refused("gone") from error


def _proof(token: bytes, side: bytes, accepting: bytes, connecting: bytes, numbers: bytes) -> bytes:
    return hmac.new(token, side + accepting + connecting + numbers, hashlib.sha256).digest()
