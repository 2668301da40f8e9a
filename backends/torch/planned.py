"""Which schedule for which size, and from how much lateness on: from the planner's model, as calls come up.

A training program calls this package as a user calls the command line, with ranks and sizes that nobody
knows before. So this module, alone of all backends, asks `synth` for plans.
"""

from __future__ import annotations

import math

import numpy as np

from ...schedules import Link, Schedule, UsageError
from ...schedules.arrival_files import load_trace
from ...schedules.arrival_stats import arrival_report, last_ranks, leads
from ...schedules.profile import load_profile
from ...synth.families import synthesize
from ...synth.planner import MAX_CHUNKS, Situation, plan
from ...synth.request import Request
from .plans import Choice
from .threshold import break_even

_WHOLE_DELAY = 3600.0
"""A delay that hides every pre phase."""

_STEPS_PER_OCTAVE = 4
"""Sizes are rounded up to powers of two and three steps between: near sizes share a plan."""


class Planner:
    """Bytes of a buffer -> the plan's schedule and threshold; None where an ordinary all_reduce is as good.

    >>> planner = Planner(8, Link(3e-6, 450e9))
    >>> planner(1 << 30).schedules[0].origin.family, planner(4096)
    ('stragglar', None)

    The schedule is the planner's best for `delay`. The threshold is the delay from which on it is modelled
    to beat the best ordinary algorithm (ring, halving-doubling, ..) by more than a round.

    Args:
        ranks: n, 2 or more.
        link: alpha, what a round costs through this executor, and bandwidth.
        delay: seconds by which late ranks are expected to come late; None: long enough to hide all that
            can be done before they come.
        late: the rank that the schedule is made for; eager mode renames it.
        late_ranks: plan for up to so many ranks that are late together.
        max_chunks: chunks that a schedule may have.

    Raises:
        UsageError: a number out of range.
    """

    def __init__(
        self,
        ranks: int,
        link: Link,
        *,
        delay: float | None = None,
        late: int = 0,
        late_ranks: int = 1,
        max_chunks: int = MAX_CHUNKS,
    ) -> None:
        self._first = Situation(ranks, late, 1, link, _WHOLE_DELAY if delay is None else delay, max_chunks)
        if not 1 <= late_ranks < ranks:
            raise UsageError(f"1 to {ranks - 1} of {ranks} ranks may be late together, not {late_ranks}")
        self._late_ranks = late_ranks
        self._made: dict[int, Choice | None] = {}

    def __call__(self, nbytes: int) -> Choice | None:
        """The choice for buffers of so many bytes; equal on all ranks, as it depends on nothing else."""
        size = _rounded(nbytes)
        if size not in self._made:
            self._made[size] = self._choose(size)
        return self._made[size]

    def _choose(self, size: int) -> Choice | None:
        first = self._first
        made = plan(Situation(first.ranks, first.late, size, first.link, first.delay, first.max_chunks))
        schedule = made.schedule()
        if not len(schedule.phases[0]):
            return None  # nothing is done before the late rank comes
        nobody = plan(Situation(first.ranks, None, size, first.link))
        # Deciding who is late takes about a round, too: a schedule has to gain more than that.
        ordinary = min(nobody.baselines.values()) - first.link.alpha
        threshold = break_even(schedule, size, first.link, ordinary)
        if not math.isfinite(threshold):
            return None
        return Choice((schedule, *self._groups(schedule)), threshold)

    def _groups(self, schedule: Schedule) -> list[Schedule]:
        """Schedules for 2 and more late ranks, cut about as finely, with whole turns of owners."""
        made = []
        for late in range(2, self._late_ranks + 1):
            early = schedule.ranks - late
            chunks = -(-schedule.chunks // early) * early
            made.append(synthesize(Request(schedule.ranks, tuple(range(late)), chunks=chunks)))
        return made


def _rounded(size: int) -> int:
    step = max(1, (1 << size.bit_length() - 1) // _STEPS_PER_OCTAVE)
    return -(-size // step) * step


def link_for(backend: str, link: Link | str | None = None) -> Link:
    """The link to plan with: as given, from a profile file, or a default for the kind of backend.

    The default alpha is what the executor takes for a round, in Python, whatever the network
    (`benchmarks/torch_overhead.py`); the bandwidths are those of NVLink and of sockets within a host.

    Args:
        backend: name of the backend that carries the messages.
        link: alpha and bandwidth; or a profile that `stragglar calibrate --on torch` wrote.
    """
    if isinstance(link, str):
        return load_profile(link)
    if link is not None:
        return link
    return Link(200e-6, 2.0**30) if "gloo" in backend else Link(50e-6, 450 * 2.0**30)


def usual_of(path: str, ranks: int) -> tuple[int, float]:
    """The rank that a trace shows as last most often, and the median of its leads in seconds.

    Raises:
        UsageError, FormatError: it cannot be read, is no trace, or is of another number of ranks.
    """
    trace = load_trace(path)
    if trace.ranks != ranks:
        raise UsageError(f"{path} is a trace of {trace.ranks} ranks, and the process group has {ranks}")
    usual = arrival_report(trace).usual
    ahead = leads(trace)[last_ranks(trace) == usual]
    if not len(ahead):
        raise UsageError(f"{path} shows no rank that comes last alone: there is nobody to plan for")
    return usual, float(np.median(ahead))
