"""Why a run failed: which rank died, stopped or complained, from what the ranks and mpiexec left behind."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

STALE_SECONDS = 1.5
"""A rank whose last sign of life is this much older than the others' had stopped before the end."""

_BANNER = (
    re.compile(r"RANK (?P<rank>\d+) PID (?P<pid>\d+) RUNNING AT"),  # MPICH up to 4
    re.compile(r"PID (?P<pid>\d+) RUNNING AT"),  # MPICH 5
    re.compile(r"process rank (?P<rank>\d+) with PID (?P<pid>\d+)"),  # Open MPI up to 4
    re.compile(r"Process name: \[[^\]]*,(?P<rank>\d+)\]"),  # Open MPI 5
)
_EXIT = re.compile(r"(?:EXIT CODE|Exit code):\s*(\d+)")


def reason(folder: Path, code: int, gone: int | None) -> str:
    """One line that says why the run failed and which rank is to blame.

    Args:
        folder: of the run.
        code: what mpiexec returned.
        gone: the rank that was first seen to be gone, if any was.
    """
    output = (folder / "output.txt").read_text(encoding="utf-8", errors="replace")
    failures = _failures(folder)
    named = [f["message"] for f in failures if f["kind"] == "named"]
    if named:
        return str(named[0])
    died = _died(folder, output, gone)
    if died:
        return died
    other = str(failures[0]["message"]) if failures else ""
    stop = stopped(folder)
    if stop:
        return f"{stop}; {other}" if other else stop
    return other or f"mpiexec ended with code {code}: {_last_line(output)}"


def _failures(folder: Path) -> list[dict[str, Any]]:
    paths = sorted(folder.glob("failure-*.json"), key=lambda p: p.stat().st_mtime)
    return [json.loads(p.read_text(encoding="utf-8")) for p in paths]


def _died(folder: Path, output: str, gone: int | None) -> str:
    """The rank that ended without a word of its own, as mpiexec tells it or as it was seen."""
    match = next((m for m in (p.search(output) for p in _BANNER) if m), None)
    rank = gone
    if match:
        found = match.groupdict()
        by_pid = {pid: rank for rank, pid in _pids(folder).items()}
        rank = int(found["rank"]) if "rank" in found else by_pid.get(int(found["pid"]), gone)
    if rank is None or (folder / f"failure-{rank}.json").exists():
        return ""
    code = _EXIT.search(output)
    return f"rank {rank} died{_how(int(code.group(1))) if code else ''}"


def _how(code: int) -> str:
    number = code - 128 if code > 128 else code
    if number in set(signal.Signals) and (
        code > 128 or number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT)
    ):
        return f": killed by {signal.Signals(number).name}"
    return f" with exit code {code}"


def stopped(folder: Path) -> str:
    """Which ranks had given no sign of life for some time before the others' last; empty: none."""
    seen = {int(p.stem.split("-")[1]): p.stat().st_mtime for p in folder.glob("rank-*.json")}
    if not seen:
        return ""
    last = max(seen.values())
    ranks = sorted(rank for rank, when in seen.items() if last - when > STALE_SECONDS)
    if not ranks:
        return ""
    names = f"rank {ranks[0]}" if len(ranks) == 1 else "ranks " + ", ".join(map(str, ranks))
    return f"{names} stopped responding {last - max(seen[r] for r in ranks):.1f} s before the end"


def first_gone(folder: Path) -> int | None:
    """A rank whose process has ended although the run is not over, where this system can tell."""
    if not Path("/proc/self/stat").exists() or (folder / "report.json").exists():
        return None
    for rank, pid in _pids(folder).items():
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            return rank
        if state.rpartition(")")[2].split()[0] in "ZX":
            return rank
    return None


def processes(folder: Path) -> list[int]:
    """The processes of the run: those that name its folder on their command line."""
    mark, found = str(folder).encode(), []
    if not Path("/proc/self/cmdline").exists():
        return list(_pids(folder).values())
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


def _pids(folder: Path) -> dict[int, int]:
    pids = {}
    for path in sorted(folder.glob("rank-*.json")):
        pids[int(path.stem.split("-")[1])] = int(json.loads(path.read_text(encoding="utf-8"))["pid"])
    return pids


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it printed nothing"
