"""When the ranks come to a collective, iteration by iteration: the trace behind statistics and simulation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import FormatError, UsageError
from .ir import MAX_RANKS

MAX_ENTRIES = 1 << 22
"""Most arrivals in a trace: 4096 iterations of 1024 ranks."""

MAX_SPREAD_SECONDS = 3600.0
"""Ranks of one iteration further apart than this are a wrong unit or clocks that do not agree."""


@dataclass(frozen=True, slots=True, eq=False)
class ArrivalTrace:
    """Arrivals of all ranks in a number of iterations.

    Attributes:
        seconds: float64, shape (iterations, ranks), read-only: seconds after the first rank of the same
            iteration came; the smallest of every row is 0.
        incomplete: iterations left out because a rank was missing in them.
        complaints: what was missing, for people: the first few of them.
        note: where the trace comes from, one line; synthetic ones say so here.

    Raises:
        UsageError: fewer than two ranks, no iteration, or too many of either.
        FormatError: times that are not finite, or ranks further apart than `MAX_SPREAD_SECONDS`.
    """

    seconds: NDArray[np.float64]
    incomplete: int = 0
    complaints: tuple[str, ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        if self.seconds.ndim != 2 or self.seconds.dtype != np.float64:
            raise UsageError("arrivals must be float64 of shape (iterations, ranks)")
        iterations, ranks = self.seconds.shape
        if ranks < 2:
            raise UsageError(f"an arrival trace needs 2 ranks or more, not {ranks}")
        if iterations < 1 or ranks > MAX_RANKS or self.seconds.size > MAX_ENTRIES:
            raise UsageError(
                f"an arrival trace has 1 iteration or more, {MAX_RANKS} ranks and {MAX_ENTRIES} arrivals"
                f" at most, not {iterations} iterations of {ranks} ranks"
            )
        if not np.isfinite(self.seconds).all():
            raise FormatError("arrivals must be finite")
        if np.any(self.seconds.min(axis=1) != 0):
            raise UsageError("arrivals must count from the first of each iteration: use ArrivalTrace.of")
        _check_spread(self.seconds)
        self.seconds.flags.writeable = False

    @classmethod
    def of(cls, times: ArrayLike, note: str = "") -> ArrivalTrace:
        """Makes a trace from times in seconds, shape (iterations, ranks), on any clock.

        >>> ArrivalTrace.of([[5.0, 5.5], [9.25, 9.0]]).seconds.tolist()
        [[0.0, 0.5], [0.25, 0.0]]
        """
        try:
            table = np.array(times, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise UsageError(f"arrivals must be numbers, one a rank and iteration: {error}") from error
        if table.ndim == 2 and table.size and np.isfinite(table).all():
            table -= table.min(axis=1, keepdims=True)
        return cls(table, note=note)

    @property
    def iterations(self) -> int:
        """Number of complete iterations."""
        return int(self.seconds.shape[0])

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return int(self.seconds.shape[1])


def _check_spread(seconds: NDArray[np.float64]) -> None:
    spread = seconds.max(axis=1)
    worst = int(spread.argmax())
    if spread[worst] > MAX_SPREAD_SECONDS:
        raise FormatError(
            f"iteration number {worst}: rank {int(seconds[worst].argmax())} comes {spread[worst]:.4g} s after"
            " the first: is the unit right, and do the clocks agree?"
        )
