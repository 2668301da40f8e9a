"""Where and when figures were taken: what every file of measurements begins with."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any


def conditions(source: str | os.PathLike[str] | None = None, **more: object) -> dict[str, Any]:
    """Date, commit, machine and Python of this moment, as JSON values.

    Args:
        source: a file or folder of the repository whose commit counts; None: this package's.
        more: further facts, e.g. `repeat=5`.
    """
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": _commit(Path(source) if source is not None else Path(__file__)),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **more,
    }


def _commit(place: Path) -> str | None:
    folder = place if place.is_dir() else place.parent
    command = ["git", "-C", str(folder), "rev-parse", "--short", "HEAD"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return told.stdout.strip() or None
