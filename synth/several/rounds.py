"""What the post phase for several late ranks is: rounds of transfers for early and late ranks, and its bound.

Early ranks are 0..E-1, late ranks E..n-1. Every chunk has one early owner, who holds the sum of all early
parts of it; a late rank holds its own part of every chunk.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...schedules import bounds

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

SRC, DST, CHUNK, ADDS = range(4)


class InvalidSeveralError(ValueError):
    """Rounds that are not a post phase for several late ranks; the message names the rule and the round."""


@dataclass(frozen=True, slots=True, eq=False)
class SeveralRounds:
    """A post phase for `early` + `late` ranks.

    Attributes:
        early: E >= 1; early ranks are 0..E-1.
        late: g >= 1; late ranks are E..E+g-1.
        chunks: k >= 1.
        owners: for every chunk the early rank that holds the sum of the early parts.
        rounds: one int64 array a round, shape (transfers, 4), columns src, dst, chunk, adds (1: the receiver
            adds, 0: it copies), rows in ascending order of src. The arrays are made read-only.
    """

    early: int
    late: int
    chunks: int
    owners: tuple[int, ...]
    rounds: tuple[IntArray, ...]

    def __post_init__(self) -> None:
        for rows in self.rounds:
            rows.setflags(write=False)

    @property
    def ranks(self) -> int:
        """All ranks, n = E + g."""
        return self.early + self.late

    @property
    def bound(self) -> int:
        """Fewest rounds of any post phase: max(k + ceil(log2 n) - 1, ceil((n - 1 + g) k / n))."""
        return bounds.post_rounds(self.ranks, self.chunks, self.late)

    @property
    def gap(self) -> int:
        """Rounds over the bound."""
        return len(self.rounds) - self.bound
