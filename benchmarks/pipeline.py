"""Seconds and memory of every step after synthesis: files, validation, lowering, rules, the runtime model.

    python benchmarks/pipeline.py [--repeat 3] [-n 8 -n 64 -n 1024] [-o benchmarks/results/pipeline.json]

One process a step, so that its peak memory is its own; the time is of the step alone, inside the process,
start-up and the making of its input left out. MSCCL's steps end at 64 ranks: the runtimes hold no more thread
blocks. Synthesis is measured in the same run, and every step is given as a ratio to it.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from stragglar.backends.conditions import conditions
from stragglar.schedules import Link, Schedule, certify, dump_schedule, parse_schedule, validate
from stragglar.schedules.files import write_atomic

DEFAULT_RANKS = (8, 64, 256, 1024)
MOST = {"lower": 64, "rules": 64, "model": 64}
"""The largest n for which a step is measured, where there is one: schedules that the MSCCL runtimes hold."""


def synthesize(ranks: int) -> Schedule:
    """The schedule that all steps are measured on."""
    from stragglar.synth import Request
    from stragglar.synth import synthesize as make

    return make(Request(ranks, (min(17, ranks - 1),)))


def _make(ranks: int) -> Callable[[], object]:
    return lambda: synthesize(ranks)


def _write(ranks: int) -> Callable[[], object]:
    schedule = synthesize(ranks)
    return lambda: dump_schedule(schedule)


def _read(ranks: int) -> Callable[[], object]:
    text = dump_schedule(synthesize(ranks)).encode()
    return lambda: parse_schedule(text, "benchmark")


def _validate(ranks: int) -> Callable[[], object]:
    schedule = synthesize(ranks)
    return lambda: validate(schedule)


def _certify(ranks: int) -> Callable[[], object]:
    schedule = synthesize(ranks)
    return lambda: certify(schedule)


def _simulate(ranks: int) -> Callable[[], object]:
    from stragglar.backends.simulation import planned_arrivals, simulate

    schedule = synthesize(ranks)
    arrivals = planned_arrivals(schedule, 5e-3).tolist()
    return lambda: simulate(schedule, 2**30, Link(3e-6, 450 * 2**30), arrivals)


def _lower(ranks: int) -> Callable[[], object]:
    from stragglar.backends.msccl.lower import lower_program
    from stragglar.backends.msccl.options import LowerOptions
    from stragglar.backends.msccl.xml_write import write_program

    schedule = synthesize(ranks)
    return lambda: write_program(lower_program(schedule, LowerOptions()))


def _xml(ranks: int) -> str:
    return str(_lower(ranks)())


def _rules(ranks: int) -> Callable[[], object]:
    from stragglar.backends.msccl.rules import check_text

    text = _xml(ranks)
    return lambda: check_text(text)


def _model(ranks: int) -> Callable[[], object]:
    from stragglar.backends.msccl.model import verify
    from stragglar.backends.msccl.xml_read import read_program

    program = read_program(_xml(ranks))
    return lambda: verify(program, late=program.late).require()


STEPS: dict[str, tuple[str, Callable[[int], Callable[[], object]]]] = {
    "synthesize": ("make the schedule", _make),
    "write": ("schedule to text", _write),
    "read": ("text to schedule, checked", _read),
    "validate": ("symbolic validation", _validate),
    "certify": ("rounds against the bound", _certify),
    "simulate": ("event simulation", _simulate),
    "lower": ("lower to MSCCL XML", _lower),
    "rules": ("rules of the MSCCL parsers", _rules),
    "model": ("runtime model, symbolic, several slices and orders", _model),
}


def measure_here(step: str, ranks: int, repeat: int) -> dict[str, Any]:
    """Times a step in this process: seconds of every repetition and the process's peak MiB."""
    work = STEPS[step][1](ranks)
    samples = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        samples.append(time.perf_counter() - start)
    return {"samples": samples, "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def measure(step: str, ranks: int, repeat: int) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--one", step, "-n", str(ranks), "--repeat", str(repeat)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(f"{step} for {ranks} ranks: {done.stderr.strip()[-500:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    seconds = statistics.median(found["samples"])
    return {"step": step, "what": STEPS[step][0], "ranks": ranks, "seconds": seconds, **found}


def measure_all(ranks: int, repeat: int) -> list[dict[str, Any]]:
    """All steps for one n, each with its ratio to synthesis in the same run."""
    rows = []
    for step in STEPS:
        if ranks <= MOST.get(step, ranks):
            click.echo(f"n = {ranks}: {step} ...", err=True)
            rows.append(measure(step, ranks, repeat))
    base = rows[0]["seconds"]
    return [row | {"over_synthesis": row["seconds"] / base} for row in rows]


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows for people."""
    view = Table(title="steps after synthesis")
    for column in ("n", "step", "seconds", "over synthesis", "peak MiB"):
        view.add_column(column, justify="left" if column == "step" else "right")
    for row in rows:
        seconds, ratio = f"{row['seconds']:.4f}", f"{row['over_synthesis']:.2f}"
        view.add_row(str(row["ranks"]), row["what"], seconds, ratio, f"{row['peak_mib']:.0f}")
    return view


@click.command()
@click.option("-n", "--ranks", type=int, multiple=True, default=DEFAULT_RANKS, help="Rank counts.")
@click.option("--repeat", type=click.IntRange(1), default=3, show_default=True)
@click.option("--one", type=click.Choice(tuple(STEPS)), hidden=True, help="This step only, in this process.")
@click.option("-o", "--output", help="JSON file for the figures and their conditions.")
def main(ranks: tuple[int, ...], repeat: int, one: str | None, output: str | None) -> None:
    """Time every step after synthesis."""
    if one:
        click.echo(json.dumps(measure_here(one, ranks[0], repeat)))
        return
    rows = [row for n in ranks for row in measure_all(n, repeat)]
    Console().print(table(rows))
    if output:
        report = {"conditions": conditions(Path(__file__), repeat=repeat), "rows": rows}
        write_atomic(output, json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
