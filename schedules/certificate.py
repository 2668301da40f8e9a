"""How good a schedule is, recomputed from its transfers: rounds, bound, gap. Claims in files are not read."""

from __future__ import annotations

from dataclasses import dataclass

from . import bounds
from .ir import Schedule


@dataclass(frozen=True, slots=True)
class Certificate:
    """Rounds of a schedule beside the least possible.

    Attributes:
        rounds: phase name -> number of rounds; `pre` is present (0) even where nobody is late.
        chunk_rounds: the same weighted by the longest message of each round, in chunks.
        post_bound: fewest chunk-rounds after the last arrival (`bounds.post_rounds`).
        gap: chunk-rounds of `post` above that bound; 0 means optimal.
    """

    rounds: dict[str, int]
    chunk_rounds: dict[str, int]
    post_bound: int
    gap: int


def certify(schedule: Schedule) -> Certificate:
    """Counts a schedule's rounds and compares them with the bound; the schedule may be invalid."""
    last_group = len(schedule.arrivals[-1]) if schedule.arrivals else 0
    bound = bounds.post_rounds(schedule.ranks, schedule.chunks, last_group)
    rounds = {"pre": 0} | {p.name: len(p) for p in schedule.phases}
    weighted = {"pre": 0} | {p.name: p.chunk_rounds for p in schedule.phases}
    return Certificate(rounds, weighted, bound, weighted["post"] - bound)
