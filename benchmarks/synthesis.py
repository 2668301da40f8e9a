"""Whole-process time and memory of `stragglar synth`, beside the published synthesizers' figures.

    python benchmarks/synthesis.py [--repeat 5] [-n 8 -n 256 ...] [-o benchmarks/results/synthesis.json]

Every row is the command a user types, start-up included, measured from outside by the operating
system's own accounting. The published figures are not measured here: they stand in
`published_rounds.tsv` with the conditions they were taken under.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from published import published
from rich.console import Console
from rich.table import Table

from stragglar.backends.conditions import conditions
from stragglar.schedules import certify, load_schedule
from stragglar.schedules.files import write_atomic

HERE = Path(__file__).parent
DEFAULT_RANKS = (8, 12, 30, 62, 96, 100, 192, 256, 512, 1024)


@dataclass(frozen=True, slots=True)
class Row:
    """One rank count: medians over the repeats; published values are None where there is no figure."""

    ranks: int
    rounds: int
    bound: int
    seconds: float
    fastest: float
    slowest: float
    peak_mib: float
    file_mib: float
    published_rounds: int | None
    published_seconds: float | None


def timed(command: list[str]) -> tuple[float, float]:
    """Wall seconds and peak MiB of one run of a command."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise click.ClickException(f"{' '.join(command)} exited with {process.returncode}")
    return seconds, usage.ru_maxrss / 1024


def measure(ranks: int, repeat: int) -> Row:
    """Times one rank count."""
    tool = str(Path(sys.executable).parent / "stragglar")
    with tempfile.TemporaryDirectory() as folder:
        target = str(Path(folder) / "s.json")
        command = [tool, "synth", "-n", str(ranks), "--late", str(min(17, ranks - 1)), "-o", target]
        timed(command)  # warm-up: file caches
        runs = [timed(command) for _ in range(repeat)]
        schedule = load_schedule(target)
        size = Path(target).stat().st_size / 2**20
    made, known = certify(schedule), published().get(ranks)
    times = [seconds for seconds, _ in runs]
    return Row(
        ranks=ranks,
        rounds=made.rounds["post"],
        bound=made.post_bound,
        seconds=statistics.median(times),
        fastest=min(times),
        slowest=max(times),
        peak_mib=max(memory for _, memory in runs),
        file_mib=size,
        published_rounds=known[0] if known else None,
        published_seconds=known[1] if known else None,
    )


def cells(r: Row) -> tuple[object, ...]:
    """A row's measured values as people read them."""
    span = f"{r.fastest:.2f}..{r.slowest:.2f}"
    return (r.ranks, r.rounds, r.bound, f"{r.seconds:.2f}", span, f"{r.peak_mib:.0f}", f"{r.file_mib:.2f}")


def table(rows: list[Row]) -> Table:
    """The rows for people."""
    view = Table(title="stragglar synth, whole process")
    for column in (
        "n",
        "rounds",
        "bound",
        "seconds",
        "min..max",
        "peak MiB",
        "file MiB",
        "published rounds / s",
    ):
        view.add_column(column, justify="right")
    for r in rows:
        known = "-" if r.published_rounds is None else f"{r.published_rounds} / {r.published_seconds:g}"
        view.add_row(*map(str, cells(r)), known)
    return view


@click.command()
@click.option("-n", "--ranks", type=int, multiple=True, default=DEFAULT_RANKS, help="Rank counts to time.")
@click.option("--repeat", type=click.IntRange(1), default=5, show_default=True)
@click.option("-o", "--output", help="JSON file for the figures and their conditions.")
def main(ranks: tuple[int, ...], repeat: int, output: str | None) -> None:
    """Time `stragglar synth` as a whole process."""
    rows = []
    for n in ranks:
        click.echo(f"n = {n} ...", err=True)
        rows.append(measure(n, repeat))
    Console().print(table(rows))
    if output:
        report = {"conditions": conditions(HERE, repeat=repeat), "rows": [asdict(row) for row in rows]}
        write_atomic(output, json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
