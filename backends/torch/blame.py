"""Which rank broke a run: the first that notices writes it in the store, all others read it there.

A rank that dies closes its connections, so whoever waits for it fails at once; whoever waits for those
fails next, and would name the wrong rank. The store keeps the first name.

A rank that hangs closes nothing: all others fail when their time is up, each waiting for somebody, few of
them for the one that hangs. So whoever runs out of time calls the roll, and every rank that has come as far
answers, also one that still waits: a thread of its own looks for roll calls (`Lookout`). Who does not answer
is named. With gloo a rank whose time is up also closes connections: a closed one says that a rank has died
only if nobody calls the roll.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time

import torch.distributed as dist

from ...schedules import RunError

_KEY, _ROLL = "blame", "roll"
ROLL_CALL_SECONDS = 3.0
"""How long to wait for signs of life where a failed operation does not say which rank is gone."""

LOOKOUT_SECONDS = 1.0
"""How often a rank looks whether the roll is called."""

GRACE_SECONDS = 0.3
"""How long after a connection was closed a roll call may follow: what its closing rank does next."""

_POLL = 0.02


class Progress:
    """How far this rank has come: the number of the call it has begun last, and whether it is in it."""

    def __init__(self) -> None:
        self.begun, self.busy = 0, False

    def reached(self, call: int) -> bool:
        """Whether it has begun that call, or is held up in one before."""
        return self.busy or self.begun >= call


class Blame:
    """Turns a failed wait into an error that names a rank."""

    def __init__(self, store: dist.Store, rank: int, ranks: int, progress: Progress) -> None:
        self._store, self._rank, self._ranks, self._progress = store, rank, ranks, progress

    def peer(self, peer: int, where: str, error: Exception) -> RunError:
        """A message to or from `peer` failed."""
        gone = any(word in str(error).lower() for word in ("closed", "reset by peer", "broken pipe"))
        # Its own timeout closes a gloo connection, too, but not before this rank's.
        why = "its connection is closed" if gone else _first_line(error)
        try:
            if gone and not self._soon_called():
                return self.settle(f"rank {peer} does not answer in {where}: {why}")
            return self._absent(where, error) or self.settle(f"rank {peer} does not answer in {where}: {why}")
        except RuntimeError as lost:
            return self._store_gone(lost)

    def somebody(self, where: str, error: Exception) -> RunError:
        """An operation of all ranks failed: ask who is still there."""
        try:
            found = self._absent(where, error)
        except RuntimeError as gone:
            return self._store_gone(gone)
        return found or self.settle(f"{where} failed on rank {self._rank}: {_first_line(error)}")

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

    def _soon_called(self) -> bool:
        """Whether the roll is called, now or in a moment, by the rank that closed a connection."""
        until = time.monotonic() + GRACE_SECONDS
        while not self.called():
            if self._store.check([_KEY]) or time.monotonic() > until:
                return False
            time.sleep(_POLL)
        return True

    def _absent(self, where: str, error: Exception) -> RunError | None:
        """The error that names those who do not answer to a roll call; None where all do."""
        missing = self._roll_call()
        if not missing:
            return None
        plural = "s" if len(missing) > 1 else ""
        named = ", ".join(map(str, missing))
        return self.settle(f"rank{plural} {named} gave no sign of life after {where}: {_first_line(error)}")

    def _roll_call(self) -> list[int]:
        self._store.set(f"alive/{self._rank}", "1")
        self._store.compare_set(_ROLL, "", str(self._progress.begun))
        until = time.monotonic() + ROLL_CALL_SECONDS
        missing = list(range(self._ranks))
        while missing and time.monotonic() < until:
            missing = [rank for rank in missing if not self._store.check([f"alive/{rank}"])]
            with contextlib.suppress(RuntimeError):
                if self._store.check([_KEY]):
                    return []
            time.sleep(_POLL)
        return missing

    def _store_gone(self, error: Exception) -> RunError:
        return RunError(
            f"the store of the process group does not answer: its host has ended, which is rank 0"
            f" unless torchrun holds it ({_first_line(error)})"
        )


class Lookout:
    """Answers roll calls for a rank that has come far enough; a thread that looks once a second.

    Args:
        store: as of `Blame`, a connection of its own.
        rank: this rank.
        progress: how far it has come.
    """

    def __init__(self, store: dist.Store, rank: int, progress: Progress) -> None:
        self._store, self._rank, self._progress = store, rank, progress
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stragglar-lookout", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._over.set()
        self._thread.join(2 * LOOKOUT_SECONDS)

    def _watch(self) -> None:
        while not self._over.wait(LOOKOUT_SECONDS):
            try:
                if not self._store.check([_ROLL]):
                    continue
                if self._progress.reached(int(self._store.get(_ROLL))):
                    self._store.set(f"alive/{self._rank}", "1")
                    return
            except RuntimeError:
                return  # the store is gone, and the group with it


def _first_line(error: Exception) -> str:
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return re.sub(r"^\[\S+:\d+\] *", "", first)[:200]  # gloo begins with its source file and line
