"""The parent of one rank: sees how the rank ends, and leaves word before anyone else can act on it.

`python -m stragglar.backends.mpi.guard FOLDER` is what the launcher starts. mpiexec kills all ranks when
one dies, and cannot be trusted to say which was first (MPICH 5 may name one that it has killed itself).
A parent that holds the rank's connection to mpiexec open, and closes it only after it has written
`death-<r>.json`, is right under every MPI.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
from pathlib import Path

from .environment import rank_here

_PR_SET_PDEATHSIG = 1


def main(folder: Path) -> int:
    """Runs a rank as a child. Returns the exit code for this process: 1 where the rank was killed."""
    child = os.fork()
    if child == 0:
        die_with_parent()
        from .worker import main as work

        return work(folder)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code:
        path = folder / f"death-{rank_here()}.json"
        partial = path.with_suffix(".part")
        with contextlib.suppress(OSError):
            partial.write_text(json.dumps({"code": code}), encoding="utf-8")
            partial.replace(path)
    return code if code >= 0 else 1


def die_with_parent() -> None:
    """Lets the kernel kill this process when the one that started it ends, where it can."""
    if sys.platform == "linux":
        # mpiexec may kill the process that it knows, and no other.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
