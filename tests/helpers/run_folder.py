"""What a run leaves in its folder, and signals to its ranks."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path


def left_over(folder):
    """Processes that name a folder on their command line, but for those of the test itself."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in words:
            found.append(words)
    return found


class Strike(threading.Thread):
    """Sends a signal to one rank of the run whose folder is in `home`, `after` seconds into its life."""

    def __init__(self, home, rank, number, after):
        super().__init__(daemon=True)
        self.home, self.rank, self.number, self.after = home, rank, number, after
        self.when = None
        self.start()

    def run(self):
        while not (found := list(self.home.glob(f"stragglar-run-*/rank-{self.rank}.json"))):
            time.sleep(0.01)
        pid = json.loads(found[0].read_text())["pid"]
        time.sleep(self.after)
        os.kill(pid, self.number)
        self.when = time.monotonic()
