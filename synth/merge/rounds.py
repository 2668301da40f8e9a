"""What the merge family hands on: the rounds of a post phase, and its lower bound.

The words (early, late, chunk, round) are those of docs: N early ranks are numbered 0..N-1, the late rank
is N, and chunks are numbered in the order of their swaps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int32]

SRC, DST, CHUNK = 0, 1, 2


class InvalidMergeError(ValueError):
    """Rounds that are not a post phase of the merge family; the message names the rule and the round."""


def doublings(ranks: int) -> int:
    """Rounds in which one copy can reach `ranks` ranks, holders doubling each round: ceil(log2 ranks).

    >>> [doublings(n) for n in (1, 2, 3, 4, 5)]
    [0, 1, 2, 2, 3]
    """
    return (ranks - 1).bit_length()


@dataclass(frozen=True, slots=True, eq=False)
class MergeRounds:
    """The post phase for `early` early ranks and one late rank, as transfers round by round.

    Attributes:
        early: N >= 1; the late rank has index N.
        chunks: k >= 1; chunk c belongs to early rank c mod N.
        rounds: one int32 array a round, shape (transfers, 3), columns src, dst, chunk, rows in
            lexicographic order. Round r < k holds both halves of the swap of chunk r (rows r mod N -> N
            and N -> r mod N), which add up; every other row copies a chunk complete at src. The arrays
            are made read-only.
        method: the construction: "tiles", "stored" or "exchange".
    """

    early: int
    chunks: int
    rounds: tuple[IntArray, ...]
    method: str

    def __post_init__(self) -> None:
        for rows in self.rounds:
            rows.setflags(write=False)

    @property
    def bound(self) -> int:
        """Fewest rounds any post phase can take: k + ceil(log2 n) - 1.

        The late rank's k contributions leave it one a round; the last of them is complete on two ranks
        at most when round k ends, and holders at most double a round.
        """
        return self.chunks + doublings(self.early + 1) - 1

    @property
    def gap(self) -> int:
        """Rounds over the bound."""
        return len(self.rounds) - self.bound
