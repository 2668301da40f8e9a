"""A steady pattern: what each role receives and sends in every round, whatever the round.

In round r early rank i plays **role** w = (i - r) mod N and chunk c has **age** r - c. Roles count down in
time: who plays w now plays w - 1 next. A pattern fixes for every role the age it receives and the age it
sends; the rounds are then turns of one table (unroll.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .rounds import IntArray, doublings


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """Ages received and sent by each role, in every round.

    Attributes:
        receives: int32, shape (N,); role w receives the chunk of age receives[w]. Role 0 swaps: age 0.
        sends: int32, shape (N,); role w sends the chunk of age sends[w]; sends[0] is 0, the swap.

    Raises:
        ValueError: the ages are no pattern that can run for ever.
    """

    receives: IntArray
    sends: IntArray

    def __post_init__(self) -> None:
        if self.receives.ndim != 1 or self.receives.shape != self.sends.shape or not self.early:
            raise ValueError("a pattern has one age received and one age sent a role")
        if self.receives[0] != 0 or self.sends[0] != 0 or (self.receives[1:] < 1).any():
            raise ValueError("role 0 swaps, and only role 0")
        if np.unique(self._distances()).size != self.early:
            raise ValueError("some rank receives a chunk twice, and another never")
        if not np.array_equal(np.sort(self.receives), np.sort(self.sends)):
            raise ValueError("some age has more receivers than senders, or fewer")
        if not self.holds(self.sends)[1:].all():
            raise ValueError("some role sends an age that it does not hold yet")

    @property
    def early(self) -> int:
        """N, the number of roles."""
        return int(self.receives.shape[0])

    @property
    def doublings(self) -> int:
        """q = ceil(log2(N + 1))."""
        return doublings(self.early + 1)

    def holds(self, ages: IntArray | int) -> npt.NDArray[np.bool_]:
        """For each role w, whether it holds before the round the chunk that is ages[w] (or `ages`) old."""
        received_at = np.empty(self.early, dtype=np.int32)
        received_at[self._distances()] = self.receives
        roles = np.arange(self.early, dtype=np.int32)
        return np.asarray(received_at[(roles + ages) % self.early] < ages)

    def copies(self) -> IntArray:
        """The copies of one round, shape (N - 1, 3): sending role, receiving role, age.

        Any sender of an age may serve any receiver of that age; here the i-th serves the i-th.
        """
        senders = np.argsort(self.sends, kind="stable")[1:]
        receivers = np.argsort(self.receives, kind="stable")[1:]
        return np.stack([senders, receivers, self.receives[receivers]], axis=1).astype(np.int32)

    def _distances(self) -> IntArray:
        """For each role, how far its rank is from the owner of the chunk it receives, modulo N.

        A rank that plays w when the chunk is `a` old played w + a when it was swapped. All distances
        different: every rank receives every chunk, exactly once.
        """
        return (np.arange(self.early, dtype=np.int32) + self.receives) % np.int32(self.early)
