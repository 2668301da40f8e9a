"""The algorithms by name: how each makes a schedule, how many rounds that has, which options it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from ..schedules.errors import UsageError
from ..schedules.ir import Schedule
from ..schedules.validate import require_valid
from . import baselines, counts
from .allreduce_merge import default_pre, merge_allreduce
from .counts import Counts
from .exchange import pairwise_exchange
from .request import Request
from .split import split, split_chunks
from .stragglar import check_halving, is_several, stragglar, stragglar_chunks, the_late_rank
from .tree import tree

OPTIONS = ("fraction", "pre", "inner", "pairwise", "exact", "before")
"""Fields of a `Request` that only some algorithms take."""

ANY = ("",)
"""In the place of an option's values: whatever `Request` accepts."""


@dataclass(frozen=True, slots=True)
class Family:
    """One algorithm.

    Attributes:
        make: the schedule for a request.
        count: what `Counts` that schedule has, in microseconds.
        options: the options that it takes -> the values of each.
    """

    make: Callable[[Request], Schedule]
    count: Callable[[Request], Counts]
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def _count_stragglar(request: Request) -> Counts:
    if is_several(request):
        return _made_counts(request)
    the_late_rank(request)
    if request.exact or request.pairwise:
        raise UsageError("the rounds of exact and pairwise merges follow from no formula: make the schedule")
    chunks, pre = stragglar_chunks(request), request.pre or "ring"
    if pre == "rhd":
        check_halving(request.ranks - 1, chunks)
    return counts.stragglar(request.ranks, chunks, pre)


@lru_cache(maxsize=1024)
def _made_counts(request: Request) -> Counts:
    """The rounds for several late ranks follow from no formula: the schedule is made and counted."""
    return counts.counts_of(stragglar(request))


def _count_tree(request: Request) -> Counts:
    return counts.tree(request.ranks, request.chunk_count(1), [len(group) for group in request.arrivals])


def _count_merge_allreduce(request: Request) -> Counts:
    the_late_rank(request)
    chunks = request.chunk_count(1)
    return counts.merge_allreduce(request.ranks, chunks, request.pre or default_pre(request.ranks, chunks))


def _count_split(request: Request) -> Counts:
    the_late_rank(request)
    return counts.split(request.ranks, *split_chunks(request), request.inner or "ring")


ALGORITHMS: dict[str, Family] = {
    "stragglar": Family(
        stragglar, _count_stragglar, {"pre": ("ring", "rhd"), "pairwise": ANY, "exact": ANY, "before": ANY}
    ),
    "merge-allreduce": Family(merge_allreduce, _count_merge_allreduce, {"pre": tuple(baselines.ALL_REDUCES)}),
    "split": Family(split, _count_split, {"fraction": ANY, "inner": ("ring", "rhd")}),
    "ring": Family(baselines.ring, lambda r: counts.ring(r.ranks, r.chunk_count(r.ranks))),
    "rhd": Family(
        baselines.halving_doubling,
        lambda r: counts.halving_doubling(r.ranks, r.chunk_count(1 << (r.ranks.bit_length() - 1))),
    ),
    "direct": Family(baselines.direct, lambda r: counts.direct(r.ranks, r.chunk_count(1))),
    "pairwise-exchange": Family(
        pairwise_exchange, lambda r: counts.pairwise_exchange(r.ranks, r.chunk_count(r.ranks))
    ),
    "tree": Family(tree, _count_tree),
}
"""Algorithm name -> `Family`. Every result of `synthesize` has been validated."""

ALIASES = {"rabenseifner": "rhd"}
"""Other names of algorithms. In schedules stands the one in `ALGORITHMS`."""


def synthesize(request: Request) -> Schedule:
    """Makes the schedule that a request asks for, and validates it symbolically.

    Raises:
        UsageError: unknown algorithm, or one that cannot serve this request.
        InfeasibleError: no schedule found within the stated limits.
    """
    return require_valid(_family(request).make(request))


def count_rounds(request: Request) -> Counts:
    """The rounds of `synthesize(request)`: by formula, or for several late ranks by making it, once.

    Raises:
        UsageError, InfeasibleError: as `synthesize`.
    """
    made = _family(request).count(request)
    # Baselines do nothing before the last arrival, whatever the groups.
    return made if made.between else made.after_groups(max(0, len(request.arrivals) - 1))


def _family(request: Request) -> Family:
    """The algorithm of a request; refuses options that it does not take."""
    name = ALIASES.get(request.algorithm, request.algorithm)
    family = ALGORITHMS.get(name)
    if family is None:
        known = ", ".join([*ALGORITHMS, *ALIASES])
        raise UsageError(f"algorithm {request.algorithm!r} is not known: use {known}")
    for option in OPTIONS:
        value, allowed = getattr(request, option), family.options.get(option)
        if not value or allowed == ANY:
            continue
        if allowed is None:
            takers = " and ".join(other for other, one in ALGORITHMS.items() if option in one.options)
            raise UsageError(f"{name} takes no {option}: it is for {takers}")
        if value not in allowed:
            raise UsageError(f"{name} takes {option} {' or '.join(allowed)}, not {value!r}")
    return family
