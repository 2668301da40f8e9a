"""The board of ranks on one host: a page of shared memory instead of a store.

A file in /dev/shm is made with a random name by rank 0, offered through the store, opened by all, and its
name removed before the first call: nothing of an earlier run can be found, and whenever processes end,
however they end, nothing is left. Whether all ranks share memory is not guessed from host names: each has to
find the token in the file. If one does not (another host, another container), all use the store.

Words are 8 bytes:

    token (2) | the last call of each rank (n) | twice: call decided, then 1 for each late rank (1 + n)

Calls alternate between the two decisions: a rank in call c + 1 has finished call c, to which every rank gave
its data after reading that decision, so no one reads the decision of call c - 1 any more. What is written is
written under `flock`, which the kernel releases when its holder dies. Waiting reads one word, without a lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import secrets
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import IO

import torch.distributed as dist

from .board import LOOK_UP_SECONDS, Board, Interrupted, Late, StoreBoard

_FOLDER = Path("/dev/shm")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_TOKEN_BYTES = 16
_HEAD = _TOKEN_BYTES // 8

_QUICKEST, _SLOWEST, _PART = 20e-6, 1e-3, 1 / 16
"""A rank that waits looks again after a sixteenth of the time it has waited, within these seconds."""


def make_board(
    store: dist.Store,
    rank: int,
    ranks: int,
    late_ranks: int,
    timeout: float,
    interrupted: Interrupted = lambda: False,
    shared: bool = True,
) -> Board:
    """The board of a group: in shared memory where all ranks find each other there, else in the store.

    To be called on all ranks at once. See `StoreBoard` for the parameters.

    Args:
        shared: whether shared memory may be used; the same on all ranks.

    Raises:
        RuntimeError: a rank did not come within the timeout.
    """
    file = _meet(store, rank, ranks, timedelta(seconds=timeout)) if shared else None
    if file is None:
        return StoreBoard(store, rank, ranks, late_ranks, timeout, interrupted)
    return SharedBoard(file, rank, ranks, late_ranks, timeout, interrupted)


def _meet(store: dist.Store, rank: int, ranks: int, timeout: timedelta) -> IO[bytes] | None:
    """The file that all ranks have open; None on all of them where one has not."""
    file, path = _create(ranks) if rank == 0 else (None, None)
    try:
        if rank == 0:
            store.set("board/offer", json.dumps([_boot(), str(path or ""), _token(file)]))
        else:
            store.wait(["board/offer"], timeout)
            file = _open(*json.loads(store.get("board/offer")))
        # All ranks, and those that have not found it, counted in one number.
        count, without = divmod(store.add("board/met", (1 << 32) + (file is None)), 1 << 32)
        if count == ranks:
            store.set("board/all", "store" if without else "shared")
        if rank == 0:
            store.wait(["board/all"], timeout)
            if path is not None:
                path.unlink()
            store.set("board/use", store.get("board/all"))
        store.wait(["board/use"], timeout)
        use = store.get("board/use") == b"shared"
    finally:
        if path is not None:
            path.unlink(missing_ok=True)
    if not use and file is not None:
        file.close()
    return file if use else None


def _create(ranks: int) -> tuple[IO[bytes] | None, Path | None]:
    """A new file with a token, and its path; None where this system has no such memory."""
    try:
        number, name = tempfile.mkstemp(prefix="stragglar-", dir=_FOLDER)
    except OSError:
        return None, None
    try:
        # Written, not only sized: where memory is short, it fails here and not at a later access.
        os.write(number, secrets.token_bytes(_TOKEN_BYTES) + bytes(8 * _words(ranks) - _TOKEN_BYTES))
        return os.fdopen(number, "r+b", buffering=0), Path(name)
    except OSError:
        Path(name).unlink(missing_ok=True)
        os.close(number)
        return None, None


def _open(boot: str, path: str, token: str) -> IO[bytes] | None:
    """The file that rank 0 offers, if it is the same here."""
    if not path or boot != _boot():
        return None
    try:
        file = Path(path).open("r+b", buffering=0)  # noqa: SIM115
    except OSError:
        return None
    if _token(file) == token:
        return file
    file.close()
    return None


def _boot() -> str:
    """What tells one running system from another; empty where it does not say, which is shared by nobody."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return secrets.token_hex()


def _token(file: IO[bytes] | None) -> str:
    return os.pread(file.fileno(), _TOKEN_BYTES, 0).hex() if file is not None else ""


def _words(ranks: int) -> int:
    return _HEAD + ranks + 2 * (1 + ranks)


class SharedBoard:
    """A board in a file that all ranks have open. Parameters as of `StoreBoard`."""

    def __init__(
        self,
        file: IO[bytes],
        rank: int,
        ranks: int,
        late_ranks: int,
        timeout: float,
        interrupted: Interrupted = lambda: False,
    ) -> None:
        self._file, self._rank, self._ranks = file, rank, ranks
        self._late_ranks, self._timeout, self._interrupted = late_ranks, timeout, interrupted
        self._map = mmap.mmap(file.fileno(), 8 * _words(ranks))
        self._words = memoryview(self._map).cast("q")
        self._call = 0

    def arrive(self, threshold: float) -> Late:
        """See `Board.arrive`."""
        self._call += 1
        decided = _HEAD + self._ranks + self._call % 2 * (1 + self._ranks)
        with self._lock():
            self._words[_HEAD + self._rank] = self._call
            missing = self._missing()
            decides = len(missing) == self._late_ranks
            if not missing or (decides and threshold <= 0):
                return self._settle(decided, missing)
        if decides:
            self._wait(decided, threshold)
            with self._lock():
                return self._settle(decided, self._missing())
        if not self._wait(decided, self._timeout):
            raise RuntimeError(f"no decision within {self._timeout:g} s")
        with self._lock():  # also: no part of the decision is read before the word that says it is there
            return self._settle(decided, ())

    def close(self) -> None:
        """Gives the memory back."""
        self._words.release()
        self._map.close()
        self._file.close()

    def _missing(self) -> Late:
        last = self._words[_HEAD : _HEAD + self._ranks].tolist()
        return tuple(rank for rank, call in enumerate(last) if call < self._call)

    def _settle(self, at: int, late: Late) -> Late:
        """The decision, which is this one if there is none yet. Under the lock."""
        words, first = self._words, at + 1
        if words[at] != self._call:
            for rank in range(self._ranks):
                words[first + rank] = rank in late
            words[at] = self._call
        flags = words[first : first + self._ranks].tolist()
        return tuple(rank for rank, flag in enumerate(flags) if flag)

    def _wait(self, at: int, seconds: float) -> bool:
        """Whether the decision is there; waits so long for it."""
        began = time.monotonic()
        look_up = began + LOOK_UP_SECONDS
        while self._words[at] != self._call:
            now = time.monotonic()
            left = began + seconds - now
            if left <= 0:
                return False
            if now > look_up:
                look_up = now + LOOK_UP_SECONDS
                if self._interrupted():
                    return False
            time.sleep(min(left, max(_QUICKEST, min(_SLOWEST, (now - began) * _PART))))
        return True

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        until = time.monotonic() + self._timeout
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise RuntimeError(f"the shared board was locked for {self._timeout:g} s") from None
                time.sleep(_QUICKEST)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
