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
        buffers: what `post` moves through the busiest port, in whole buffers: its bandwidth cost in s beta.
        buffers_bound: the least of that for any schedule whose pre phase the delay hides.
        buffers_bound_no_delay: the least for any schedule when all ranks arrive together.
    """

    rounds: dict[str, int]
    chunk_rounds: dict[str, int]
    post_bound: int
    gap: int
    buffers: float
    buffers_bound: float
    buffers_bound_no_delay: float


def certify(schedule: Schedule) -> Certificate:
    """Counts a schedule's rounds and compares them with the bound; the schedule may be invalid."""
    last_group = len(schedule.arrivals[-1]) if schedule.arrivals else 0
    bound = bounds.post_rounds(schedule.ranks, schedule.chunks, last_group)
    rounds = {"pre": 0} | {p.name: len(p) for p in schedule.phases}
    weighted = {"pre": 0} | {p.name: p.chunk_rounds for p in schedule.phases}
    apart = 2 * (schedule.ranks - 1) / schedule.ranks
    return Certificate(
        rounds=rounds,
        chunk_rounds=weighted,
        post_bound=bound,
        gap=weighted["post"] - bound,
        buffers=weighted["post"] / schedule.chunks,
        buffers_bound=bounds.post_seconds_several(schedule.ranks, 1.0, last_group) if last_group else apart,
        buffers_bound_no_delay=apart,
    )
