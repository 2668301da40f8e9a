"""The algorithms by name, each a function from a request to a schedule."""

from __future__ import annotations

from collections.abc import Callable

from ..schedules.errors import UsageError
from ..schedules.ir import Schedule
from ..schedules.validate import require_valid
from .baselines import direct, halving_doubling, ring
from .request import Request
from .stragglar import stragglar

ALGORITHMS: dict[str, Callable[[Request], Schedule]] = {
    "stragglar": stragglar,
    "ring": ring,
    "rhd": halving_doubling,
    "direct": direct,
}
"""Algorithm name -> constructor. Every result of `synthesize` has been validated."""


def synthesize(request: Request) -> Schedule:
    """Makes the schedule that a request asks for, and validates it symbolically.

    Raises:
        UsageError: unknown algorithm, or one that cannot serve this request.
        InfeasibleError: no schedule found within the stated limits.
    """
    maker = ALGORITHMS.get(request.algorithm)
    if maker is None:
        raise UsageError(f"algorithm {request.algorithm!r} is not known: use {', '.join(ALGORITHMS)}")
    return require_valid(maker(request))
