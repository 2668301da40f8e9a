"""Which rank broke a run: the first that notices writes it in the store, all others read it there.

A rank that dies closes its connections, so whoever waits for it fails at once; whoever waits for those
fails next, and would name the wrong rank. The store keeps the first name.
"""

from __future__ import annotations

import contextlib
import time

import torch.distributed as dist

from ...schedules import RunError

_KEY, _ROLL = "blame", "roll"
ROLL_CALL_SECONDS = 3.0
"""How long to wait for signs of life where a failed operation does not say which rank is gone."""


class Blame:
    """Turns a failed wait into an error that names a rank."""

    def __init__(self, store: dist.Store, rank: int, ranks: int) -> None:
        self._store, self._rank, self._ranks = store, rank, ranks

    def peer(self, peer: int, where: str, error: Exception) -> RunError:
        """A message to or from `peer` failed."""
        gone = any(word in str(error).lower() for word in ("closed", "reset by peer", "broken pipe"))
        why = "its connection is closed" if gone else _first_line(error)
        return self.settle(f"rank {peer} does not answer in {where}: {why}")

    def somebody(self, where: str, error: Exception) -> RunError:
        """An operation of all ranks failed: ask who is still there."""
        try:
            missing = self._roll_call()
        except RuntimeError as gone:
            return self._store_gone(gone)
        if not missing:
            return self.settle(f"{where} failed on rank {self._rank}: {_first_line(error)}")
        plural = "s" if len(missing) > 1 else ""
        named = ", ".join(map(str, missing))
        return self.settle(f"rank{plural} {named} gave no sign of life after {where}: {_first_line(error)}")

    def called(self) -> bool:
        """Whether a rank asks who is still there: then the operation of all ranks has failed for all."""
        return bool(self._store.check([_ROLL]))

    def settle(self, text: str) -> RunError:
        """The error to raise: with this text, or with that of the rank that was first."""
        try:
            first = self._store.compare_set(_KEY, "", text).decode()
        except RuntimeError as gone:
            return self._store_gone(gone)
        seen = "" if first == text else f" (seen by another rank; here: {text})"
        return RunError(first + seen)

    def _roll_call(self) -> list[int]:
        self._store.set(f"alive/{self._rank}", "1")
        self._store.set(_ROLL, "1")
        until = time.monotonic() + ROLL_CALL_SECONDS
        missing = list(range(self._ranks))
        while missing and time.monotonic() < until:
            missing = [rank for rank in missing if not self._store.check([f"alive/{rank}"])]
            with contextlib.suppress(RuntimeError):
                if self._store.check([_KEY]):
                    return []
            time.sleep(0.02)
        return missing

    def _store_gone(self, error: Exception) -> RunError:
        return RunError(
            f"the store of the process group does not answer: its host has ended, which is rank 0"
            f" unless torchrun holds it ({_first_line(error)})"
        )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
