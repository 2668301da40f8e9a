"""Making sure that all ranks were given the same thing, before anything is sent."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from ...schedules import RunError, Schedule, dump_schedule
from ..clocks import machine
from ..request import RunRequest
from .waiting import Waiter

if TYPE_CHECKING:
    from mpi4py import MPI

_CARD_BYTES = 1024

Card = dict[str, str]


class Disagreement(RunError):
    """The ranks were given different things; all of them know, at the same time."""


def card(schedule: Schedule, request: RunRequest) -> Card:
    """What all ranks must have in common, as short texts."""
    delays = hashlib.sha256(repr(request.delays_for(schedule)).encode()).hexdigest()[:12]
    return {
        "schedule": hashlib.sha256(dump_schedule(schedule).encode()).hexdigest()[:16],
        "count": str(request.elements),
        "dtype": request.dtype,
        "op": request.op,
        "seed": str(request.seed),
        "repeat": str(request.repeat),
        "warmup": str(request.warmup),
        "delays": delays,
        "trace": str(request.trace),
    }


def exchange(comm: MPI.Intracomm, waiter: Waiter, own: Card) -> list[Card]:
    """The cards of all ranks, in order.

    Raises:
        RunError: a rank does not come.
    """
    mine = np.frombuffer(json.dumps(own).encode().ljust(_CARD_BYTES), dtype=np.uint8)
    everyone = np.empty((comm.size, _CARD_BYTES), dtype=np.uint8)
    waiter.wait(comm.Iallgather(mine, everyone))
    return [json.loads(row.tobytes()) for row in everyone]


def demand_same(cards: list[Card]) -> None:
    """Compares the cards of all ranks.

    Raises:
        Disagreement: names the ranks whose card differs from that of most, and what differs.
    """
    for key in cards[0]:
        values = [card.get(key, "nothing") for card in cards]
        usual = Counter(values).most_common(1)[0][0]
        differing = [rank for rank, value in enumerate(values) if value != usual]
        if differing:
            one = len(differing) == 1
            names = f"rank {differing[0]} was" if one else f"ranks {_some(differing)} were"
            raise Disagreement(
                f"{names} given another {key} than the others: {values[differing[0]]}, not {usual}"
            )


def hosts(comm: MPI.Intracomm, waiter: Waiter) -> tuple[tuple[str, ...], bool]:
    """The names of the machines in order of their first rank, and whether all ranks share one clock.

    Raises:
        RunError: a rank does not come.
    """
    from mpi4py import MPI

    own = {"host": MPI.Get_processor_name()[:200], "machine": machine()[:400]}
    cards = exchange(comm, waiter, own)
    return tuple(dict.fromkeys(c["host"] for c in cards)), len({c["machine"] for c in cards}) == 1


def _some(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
