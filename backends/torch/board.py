"""Who is late, decided in every call: the first arrivals fix it, and everybody reads the same answer.

With g ranks that may be late, the rank whose arrival is number n - g decides: it lingers as long as the
threshold, then whoever has not come is late. All come while it lingers: nobody is. The answer is written
once, by whoever is first, so all agree whatever the timing.

Here through a store: each rank adds a number to a counter when it arrives, one small operation off the data
path. `shared_board.py` does the same in shared memory, for ranks of one host.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

import torch.distributed as dist

_ARRIVAL = 1 << 40
"""One arrival; the rank is added to it. 2^14 ranks sum to less than 2^28."""

_WORD = 62
"""Ranks whose arrivals are bits of one counter of the store, which has 63."""

LOOK_UP_SECONDS = 0.25
"""How often a rank that waits looks whether others have failed."""

Interrupted = Callable[[], bool]
"""Whether other ranks have failed, so that waiting is of no use."""

Late = tuple[int, ...]
"""The late ranks of a call, ascending; none: nobody is late enough."""


class Board(Protocol):
    """Decisions of the calls of one group, in order."""

    def arrive(self, threshold: float) -> Late:
        """Says that this rank is here, and returns the late ranks of this call.

        Args:
            threshold: seconds by which the last ranks must come after the others to be late; the same
                on all ranks.

        Raises:
            RuntimeError: no decision within the timeout: too many ranks did not come.
        """

    def close(self) -> None:
        """Gives back what it holds."""


class StoreBoard:
    """A board in a store.

    Args:
        store: a store for this group alone; used from one thread.
        rank: this rank.
        ranks: how many there are.
        late_ranks: how many may be late, 1 to ranks - 1.
        timeout: seconds to wait for a decision.
        interrupted: asked now and then while waiting.
    """

    def __init__(
        self,
        store: dist.Store,
        rank: int,
        ranks: int,
        late_ranks: int,
        timeout: float,
        interrupted: Interrupted = lambda: False,
    ) -> None:
        self._store, self._rank, self._ranks = store, rank, ranks
        self._late_ranks, self._timeout, self._interrupted = late_ranks, timeout, interrupted
        self._call = -1

    def arrive(self, threshold: float) -> Late:
        """See `Board.arrive`."""
        self._call += 1
        arrived, ranks = self._count()
        key = f"{self._call}/late"
        if arrived == self._ranks:
            return self._settle(key, ())
        if arrived != self._ranks - self._late_ranks:
            return self._read(key)
        self._linger(key, threshold)
        late = self._settle(key, self._missing(ranks))
        self._forget(self._call - 1)
        return late

    def close(self) -> None:
        """The keys of the last call stay in the store, which ends with the group."""

    def _count(self) -> tuple[int, int]:
        """Adds this arrival; how many there are now, and, where one rank may be late, the sum of theirs."""
        if self._late_ranks == 1:
            arrived, ranks = divmod(self._store.add(f"{self._call}/n", _ARRIVAL + self._rank), _ARRIVAL)
            return arrived, ranks
        # Its bit first: who is counted has been noted.
        self._store.add(f"{self._call}/{self._rank // _WORD}", 1 << self._rank % _WORD)
        return self._store.add(f"{self._call}/n", 1), 0

    def _missing(self, ranks: int) -> Late:
        if self._late_ranks == 1:  # the sum of all ranks without that of those who are here
            return (self._ranks * (self._ranks - 1) // 2 - ranks,)
        words = [self._store.add(f"{self._call}/{word}", 0) for word in self._words()]
        return tuple(r for r in range(self._ranks) if not words[r // _WORD] >> r % _WORD & 1)

    def _words(self) -> range:
        return range(-(-self._ranks // _WORD))

    def _settle(self, key: str, late: Late) -> Late:
        return _decoded(self._store.compare_set(key, "", _encoded(late)))

    def _read(self, key: str) -> Late:
        until = time.monotonic() + self._timeout
        while True:
            try:
                self._store.wait([key], timedelta(seconds=LOOK_UP_SECONDS))
                return _decoded(self._store.get(key))
            except dist.DistStoreError:
                if time.monotonic() > until or self._interrupted():
                    raise

    def _linger(self, key: str, threshold: float) -> None:
        """Waits for the last rank to write that nobody is late, as long as the threshold."""
        if threshold <= 0:
            return
        try:
            # 0 would mean no limit.
            self._store.wait([key], timedelta(milliseconds=max(1.0, threshold * 1e3)))
        except dist.DistStoreError:
            return  # somebody did not come

    def _forget(self, call: int) -> None:
        # All ranks but the late ones are in the next call, and those have read the decision of the
        # last: without their data that call would not have ended here.
        if call < 0:
            return
        names = ["n", "late", *(map(str, self._words()) if self._late_ranks > 1 else ())]
        for name in names:
            self._store.delete_key(f"{call}/{name}")


def _encoded(late: Late) -> str:
    return ",".join(map(str, late)) or "nobody"


def _decoded(text: bytes) -> Late:
    return () if text == b"nobody" else tuple(map(int, text.split(b",")))
