"""Who is late, decided in every call: the first n - 1 arrivals fix it, and everybody reads the same answer.

Each rank adds a number to one counter of the store when it arrives: one small operation, off the data path.
The number carries both a count and the rank, so the sum tells the rank that completes n - 1 arrivals which
one is missing. That rank writes the answer; the others wait for it. Whoever writes first wins, so the
last rank may write "nobody" if it comes within the threshold, and all agree whatever the timing.
"""

from __future__ import annotations

from datetime import timedelta

import torch.distributed as dist

_ARRIVAL = 1 << 40
"""One arrival; the rank is added to it. 2^14 ranks sum to less than 2^28."""

NOBODY = -1


class Board:
    """Decisions of the calls of one group, in order.

    Args:
        store: a store for this group alone; used from one thread.
        rank: this rank.
        ranks: how many there are.
        threshold: seconds by which the last rank must come after the others to be called late.
        timeout: seconds to wait for a decision.
    """

    def __init__(self, store: dist.Store, rank: int, ranks: int, threshold: float, timeout: float) -> None:
        self._store, self._rank, self._ranks = store, rank, ranks
        self._threshold, self._timeout = threshold, timedelta(seconds=timeout)
        self._call = -1

    def arrive(self) -> int | None:
        """Says that this rank is here, and returns the late rank of this call; None: nobody is late enough.

        Raises:
            RuntimeError: no decision within the timeout: two ranks or more did not come.
        """
        self._call += 1
        arrived, ranks = divmod(self._store.add(f"{self._call}/n", _ARRIVAL + self._rank), _ARRIVAL)
        key = f"{self._call}/late"
        if arrived == self._ranks:
            late = self._settle(key, NOBODY)
        elif arrived == self._ranks - 1:
            self._linger(key)
            late = self._settle(key, self._ranks * (self._ranks - 1) // 2 - ranks)
            self._forget(self._call - 1)
        else:
            self._store.wait([key], self._timeout)
            late = int(self._store.get(key))
        return None if late == NOBODY else late

    def _settle(self, key: str, late: int) -> int:
        return int(self._store.compare_set(key, "", str(late)))

    def _linger(self, key: str) -> None:
        """Waits for the last rank to write that nobody is late, as long as the threshold."""
        if self._threshold <= 0:
            return
        try:
            self._store.wait([key], timedelta(seconds=self._threshold))
        except dist.DistStoreError:
            return  # it did not come: it is late

    def _forget(self, call: int) -> None:
        # All ranks but the late one are in the next call, and the late one has read the decision of the
        # last: without its data that call would not have ended here.
        if call >= 0:
            self._store.delete_key(f"{call}/n")
            self._store.delete_key(f"{call}/late")
