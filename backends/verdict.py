"""Why a run failed: which rank died, stopped or complained, from what the ranks left in the run's folder."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

STALE_SECONDS = 1.5
"""A rank whose last sign of life is this much older than the others' had stopped before the end."""


def reason(folder: Path, code: int, program: str = "mpiexec") -> str:
    """One line that says why the run failed and which rank is to blame.

    A rank that says whom it waited for in vain is believed first, then the first one that died without a
    word, then one that had stopped; a rank that complains without a name may just have met the others' end.

    Args:
        folder: of the run.
        code: what the program that failed returned.
        program: its name.
    """
    failures = _oldest_first(folder, "failure")
    named = [failure["message"] for failure in failures.values() if failure["kind"] == "named"]
    if named:
        return str(named[0])
    for rank, death in _oldest_first(folder, "death").items():
        if rank not in failures:
            return f"rank {rank} died{_how(folder, rank, int(death['code']))}"
    other = str(next(iter(failures.values()))["message"]) if failures else ""
    stop = stopped(folder)
    if stop:
        return f"{stop}; {other}" if other else stop
    return other or f"{program} ended with code {code}: {_last_line(folder)}"


def stopped(folder: Path) -> str:
    """Which ranks had given no sign of life for some time before the others' last; empty: none."""
    seen = {_rank_of(path): path.stat().st_mtime for path in folder.glob("rank-*.json")}
    if not seen:
        return ""
    last = max(seen.values())
    ranks = sorted(rank for rank, when in seen.items() if last - when > STALE_SECONDS)
    if not ranks:
        return ""
    names = f"rank {ranks[0]}" if len(ranks) == 1 else "ranks " + ", ".join(map(str, ranks))
    return f"{names} stopped responding {last - max(seen[r] for r in ranks):.1f} s before the end"


def processes(folder: Path) -> list[int]:
    """The processes of the run: those that name its folder on their command line."""
    mark, found = str(folder).encode(), []
    if not Path("/proc/self/cmdline").exists():
        return [pid for told in _oldest_first(folder, "rank").values() if _alive(pid := int(told["pid"]))]
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if mark in words:
            found.append(int(entry.name))
    return found


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _oldest_first(folder: Path, what: str) -> dict[int, dict[str, Any]]:
    paths = sorted(folder.glob(f"{what}-*.json"), key=lambda path: path.stat().st_mtime_ns)
    return {_rank_of(path): json.loads(path.read_text(encoding="utf-8")) for path in paths}


def _rank_of(path: Path) -> int:
    return int(path.stem.split("-")[1])


def _how(folder: Path, rank: int, code: int) -> str:
    if code < 0:
        return f": killed by {signal.Signals(-code).name}"
    return f" with exit code {code}: {_last_line(folder)}"


def _last_line(folder: Path) -> str:
    path = folder / "output.txt"
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    words = [line.strip() for line in lines if line.strip()]
    return words[-1][:200] if words else "it printed nothing"
