"""Which rank this process is, where ranks are started one by one on several machines."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from ...schedules import UsageError

RANK, RENDEZVOUS, TOKEN, HOST = (f"STRAGGLAR_{name}" for name in ("RANK", "RENDEZVOUS", "TOKEN", "HOST"))
"""Variables: this rank; rank 0's address as HOST:PORT; a secret; this rank's own address, if need be."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a rank must be told to find the others.

    Attributes:
        rank: this rank.
        rendezvous: host and port at which rank 0 listens.
        token: the secret that all ranks share.
        host: the address at which the others reach this rank; empty: that of its way to rank 0.
    """

    rank: int
    rendezvous: tuple[str, int]
    token: bytes
    host: str = ""


def rank_here() -> int | None:
    """The rank of this process, if the environment gives one."""
    place = place_here()
    return None if place is None else place.rank


def place_here(environment: Mapping[str, str] = os.environ) -> Place | None:
    """What the environment says; None: nothing, so that all ranks are to be started here.

    Raises:
        UsageError: it says only a part, or something that makes no sense.
    """
    if RANK not in environment and RENDEZVOUS not in environment:
        return None
    missing = [name for name in (RANK, RENDEZVOUS, TOKEN) if not environment.get(name)]
    if missing:
        raise UsageError(
            f"ranks that are started one by one need {RANK}, {RENDEZVOUS} and {TOKEN}: set {missing[0]}"
        )
    if not environment[RANK].isdecimal():
        raise UsageError(f"{RANK} must be a rank, 0 or more, not {environment[RANK]!r}")
    host, _, port = environment[RENDEZVOUS].rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise UsageError(f"{RENDEZVOUS} must be HOST:PORT, not {environment[RENDEZVOUS]!r}")
    address = host.strip("[]"), int(port)
    return Place(int(environment[RANK]), address, environment[TOKEN].encode(), environment.get(HOST, ""))
