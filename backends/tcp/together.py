"""What all ranks do together, by control frames through rank 0: gather words, compare clocks, meet."""

from __future__ import annotations

import json
import struct
import time

from ...schedules import RunError, UsageError
from ..clocks import RankClock
from .environment import Place
from .mesh import Listener, Mesh

_CLOCK = struct.Struct("!d")


def gather(mesh: Mesh, own: bytes, seconds: float) -> list[bytes]:
    """The words of all ranks, in order, on every rank; all are here when this returns.

    Raises:
        RunError: a rank does not come within `seconds`; rank 0 names it, and the others pass that on.
    """
    if mesh.rank != 0:
        mesh.note(0, own)
        # Longer than rank 0 waits: it knows who is missing.
        return _split(mesh.take_note(0, 1.25 * seconds + 1))
    until = time.monotonic() + seconds
    everyone = [own]
    for peer in range(1, mesh.ranks):
        try:
            everyone.append(mesh.take_note(peer, max(0.0, until - time.monotonic())))
        except RunError as error:
            mesh.abort(error)
            raise
    joined = _joined(everyone)
    for peer in range(1, mesh.ranks):
        mesh.note(peer, joined)
    mesh.settle(seconds)
    return everyone


def _joined(parts: list[bytes]) -> bytes:
    return b"".join(struct.pack("!I", len(part)) + part for part in parts)


def _split(joined: bytes) -> list[bytes]:
    parts, at = [], 0
    while at < len(joined):
        size = int.from_bytes(joined[at : at + 4], "big")
        parts.append(joined[at + 4 : at + 4 + size])
        at += 4 + size
    return parts


class Clock(RankClock):
    """Rank 0's monotonic clock, read on any rank.

    Args:
        mesh: the connections.
        seconds: how long to wait for another rank.
        shared: all ranks are on one machine, so there is nothing to measure.
    """

    def __init__(self, mesh: Mesh, seconds: float, shared: bool) -> None:
        super().__init__(mesh.rank, mesh.ranks, shared)
        self._mesh, self._seconds = mesh, seconds

    def _answer(self, peer: int) -> None:
        self._mesh.take_note(peer, self._seconds)
        self._mesh.note(peer, _CLOCK.pack(time.monotonic()))

    def _ask(self) -> float:
        self._mesh.note(0, b"")
        return float(_CLOCK.unpack(self._mesh.take_note(0, self._seconds))[0])


def meet(place: Place, ranks: int, seconds: float) -> Mesh:
    """Connects ranks that know nothing of each other but rank 0's address.

    All come to rank 0 first, which tells everybody where everybody listens.

    Args:
        place: of this rank.
        ranks: how many there are.
        seconds: how long to wait for them.

    Raises:
        UsageError: a rank that does not exist.
        RunError: a rank did not come, or was told another number of ranks.
    """
    if place.rank >= ranks:
        raise UsageError(f"rank {place.rank} is not in 0..{ranks - 1}")
    # Nobody comes to the others yet: what they listen at here does not matter.
    gate = Listener(*place.rendezvous) if place.rank == 0 else Listener("localhost")
    peers = None if place.rank == 0 else (0,)
    star = gate.connect(place.rank, [place.rendezvous] * ranks, seconds, peers, token=place.token)
    try:
        way = next(iter(star.data.values()))
        listener = Listener(place.host or str(way.getsockname()[0]))
        told = gather(star, json.dumps(listener.address).encode(), seconds)
    finally:
        star.close()
    addresses = [(str(host), int(port)) for host, port in map(json.loads, told)]
    return listener.connect(place.rank, addresses, seconds, token=place.token)
