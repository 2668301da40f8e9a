"""What a rank tells the outside about itself: that it lives, what it does, and why it failed.

Each rank keeps `rank-<r>.json` in the run's folder (only there if `stragglar run` started it) and touches
it several times a second, so that the launcher can tell a stopped rank from a waiting one whatever the
MPI. The same thread ends the job when a stage takes longer than it may, where polling cannot: inside
MPI's own blocking Allreduce.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

BEAT_SECONDS = 0.1


class Pulse(threading.Thread):
    """The life sign of one rank.

    Args:
        rank: whose.
        folder: the run's folder, or None: messages go to standard error only.
        end: how to end the whole job at once; called from this thread, must not return.
    """

    def __init__(self, rank: int, folder: Path | None, end: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._rank, self._folder, self._end = rank, folder, end
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._deadlines: dict[str, float] = {}
        if folder is not None:
            self._write("rank", {"pid": os.getpid()})

    def allow(self, stage: str, seconds: float | None) -> None:
        """Sets how long a stage may take from now on; None: it is over."""
        if seconds is None:
            self._deadlines.pop(stage, None)
        else:
            self._deadlines[stage] = time.monotonic() + seconds

    def stop(self) -> None:
        """Ends the thread."""
        self._over.set()
        if self.is_alive():
            self.join()

    def finished(self) -> None:
        """This rank is through: its end, from now on, is no failure."""
        if self._folder is not None:
            self._path("rank").unlink(missing_ok=True)

    def run(self) -> None:
        """Beats until `stop`, or until a stage is overdue: then ends the job."""
        while not self._over.wait(BEAT_SECONDS):
            if self._folder is not None:
                with contextlib.suppress(OSError):
                    os.utime(self._path("rank"))
            now = time.monotonic()
            for stage, deadline in list(self._deadlines.items()):
                if now > deadline:
                    self.fail(f"rank {self._rank}: {stage} did not end within its time limit", "overdue")
                    self._end()
                    return

    def fail(self, message: str, kind: str) -> None:
        """Records why the run ends: the first failure of this rank only.

        Args:
            message: one line.
            kind: `named` where the message names the culprit, `overdue` or `error` where it may not.
        """
        with self._lock:
            if self._folder is None:
                print(f"stragglar: {message}", file=sys.stderr, flush=True)
            elif not self._path("failure").exists():
                self._write("failure", {"message": message, "kind": kind})

    def _path(self, what: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{what}-{self._rank}.json"

    def _write(self, what: str, content: dict[str, object]) -> None:
        # Renamed into place, so that the launcher never reads half a file.
        partial = self._path(what).with_suffix(".part")
        with contextlib.suppress(OSError):
            partial.write_text(json.dumps(content), encoding="utf-8")
            partial.replace(self._path(what))
