"""AllReduces measured on shaped links between network namespaces: results, plots, and the page about them.

    python benchmarks/links.py [NAME ...] [--page-only]

Every measurement is one `stragglar bench` command, found in its result. The figures of `docs/measured.md`
between the two marks are made from the results, here.
"""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from stragglar.cli.bench_output import cells
from stragglar.cli.main import run
from stragglar.schedules.errors import MissingError
from stragglar.schedules.files import write_atomic
from stragglar.schedules.units import format_bandwidth, format_bytes, format_seconds
from stragglar.testbed.fleets import demand_engine

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
DOCS = HERE.parent / "docs"
PAGE = DOCS / "measured.md"
BEGIN, END = "<!-- figures: python benchmarks/links.py --page-only -->", "<!-- end of figures -->"


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement.

    Attributes:
        name: of the result's file.
        title: of its table or plot on the page.
        words: of the command, after `stragglar bench`.
    """

    name: str
    title: str
    words: str

    @property
    def sweeps(self) -> bool:
        """Whether it is a plot."""
        return self.words.startswith("sweep")

    @property
    def result(self) -> Path:
        """Its file."""
        return RESULTS / f"links-{self.name}.json"

    @property
    def plot(self) -> Path:
        """Its picture, if it is one."""
        return DOCS / "figures" / f"measured-{self.name}.svg"


EIGHT = "links --hosts 8 --rate 200mbit --seconds 1.1"
CASES = (
    Case(
        "full",
        "8 hosts, one rank fully late",
        f"{EIGHT} --late-by full --algorithms"
        " ring,gloo,published,stragglar:1,stragglar:2,stragglar:5,stragglar:10,stragglar:16",
    ),
    Case(
        "half",
        "Half of the delay that hides the ReduceScatter",
        f"{EIGHT} --late-by half --algorithms ring,stragglar:1,stragglar:10,split",
    ),
    Case(
        "tenth",
        "A tenth of it",
        f"{EIGHT} --late-by 94ms --algorithms ring,stragglar:1,stragglar:10,split",
    ),
    Case(
        "none",
        "No delay",
        f"{EIGHT} --late-by 0 --algorithms ring,rhd,stragglar:1,stragglar:10,split",
    ),
    Case(
        "random",
        "Another delay in every repetition",
        f"{EIGHT} --late-by random --repeat 10 --algorithms ring,stragglar:1,stragglar:10,split",
    ),
    Case(
        "two",
        "Two late ranks",
        f"{EIGHT} --late 3,5 --late-by full --algorithms ring,several:2,several:5,several:10",
    ),
    Case(
        "sixteen",
        "16 hosts, one rank fully late",
        "links --hosts 16 --rate 200mbit --seconds 1.1 --late-by full"
        " --algorithms ring,published,stragglar:1,stragglar:3,stragglar:8,stragglar:9",
    ),
    Case(
        "mpi",
        "Our MPI backend and MPI's own Allreduce",
        f"{EIGHT} --late-by full --algorithms"
        " ring,mpi:ring,mpi:stragglar:1,mpi:stragglar:5,mpi,mpi-ring,mpi-rabenseifner",
    ),
    Case(
        "small",
        "A small message",
        "links --hosts 8 --rate 200mbit --bytes 16KiB --late-by 50ms --repeat 30"
        " --algorithms ring,rhd,direct,merge-allreduce:1,mpi,mpi-rd,gloo",
    ),
    Case(
        "delays",
        "Time against delay",
        "sweep --over delay --values 0,0.25,0.5,0.75,1 --hosts 8 --rate 200mbit --seconds 0.5"
        " --algorithms ring,stragglar:1,stragglar:5,split",
    ),
    Case(
        "sizes",
        "Time against size, fully late",
        "sweep --over size --values 64KiB..16MiB/5 --hosts 8 --rate 200mbit --late-by full"
        " --algorithms ring,stragglar:1,merge-allreduce:1,plan",
    ),
    Case(
        "hosts",
        "Speedup against the number of hosts, fully late",
        "sweep --over hosts --values 4,8,16 --rate 200mbit --seconds 0.5 --late-by full"
        " --algorithms ring,stragglar:1,stragglar:4",
    ),
)


def measure(case: Case) -> int:
    """Runs one case's command; returns its exit code. Libraries that are not installed are left out."""
    command = ["bench", *shlex.split(case.words), "-o", str(case.result)]
    at = command.index("--algorithms") + 1
    command[at] = ",".join(name for name in command[at].split(",") if _there(name))
    if case.sweeps:
        command += ["--plot", str(case.plot)]
    click.echo(f"{case.name}: stragglar bench {case.words}", err=True)
    return run(command)


def _there(name: str) -> bool:
    engine = "gloo" if name == "gloo" else "mpi" if name.startswith("mpi") else "tcp"
    try:
        demand_engine(engine, os.environ.get("STRAGGLAR_GLOO_PYTHON"))
    except MissingError as error:
        click.echo(f"{name} is left out: {error}", err=True)
        return False
    return True


def figures() -> str:
    """All results as Markdown, in the order of the cases."""
    parts = []
    for case in CASES:
        if not case.result.exists():
            continue
        data = json.loads(case.result.read_text(encoding="utf-8"))
        parts.append(f"### {case.title}\n")
        parts += _plot(case, data) if case.sweeps else _table(data)
    return "\n".join(parts)


def _plot(case: Case, data: dict[str, Any]) -> list[str]:
    first = data["points"][0]
    return [
        f"![{case.title}](figures/{case.plot.name})\n",
        f"`stragglar bench {case.words}`\n",
        _where(first, data["points"]),
    ]


def _table(data: dict[str, Any]) -> list[str]:
    heads = ("algorithm", "median", "spread", "theory", "over theory", "ring over it", "over bound")
    heads = (*heads, "ports busy", "CPU busy")
    lines = [f"`{data['command']}`\n", f"{_what(data)}\n", f"| {' | '.join(heads)} |"]
    lines.append("| --- |" + " ---: |" * (len(heads) - 1))
    lines += ["| " + " | ".join(cells(row)[:-1]) + " |" for row in data["algorithms"]]
    return [*lines, "", _where(data, [data])]


def _what(data: dict[str, Any]) -> str:
    delays = sorted(data["delays"])
    late = format_seconds(delays[0])
    if delays[0] < delays[-1]:
        late += f" to {format_seconds(delays[-1])}"
    return (
        f"{format_bandwidth(data['rate_bytes'])} a port each way, {format_bytes(data['bytes'])},"
        f" {format_seconds(data['seconds'])} at port rate; rank {', '.join(map(str, data['late']))} late by"
        f" {late}; bound {format_seconds(data['bound_s'])}."
    )


def _where(data: dict[str, Any], reports: list[dict[str, Any]]) -> str:
    right = all(report["correct"] for report in reports)
    return (
        f"Measured on {data['machine']}, {data['date']}, commit {data['commit']}; {data['repeat']}"
        f" repetitions, interleaved, {'every result right' if right else '**SOME RESULTS WRONG**'}.\n"
    )


def page() -> None:
    """Renews the figures on the page."""
    text = PAGE.read_text(encoding="utf-8")
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise click.ClickException(f"{PAGE}: the marks around the figures are missing")
    write_atomic(str(PAGE), f"{head}{BEGIN}\n\n{figures()}\n{END}{tail}")


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([case.name for case in CASES]))
@click.option(
    "--page-only", is_flag=True, help="Measure nothing: make the page from the results that are there."
)
def main(names: tuple[str, ...], page_only: bool) -> None:
    """Measure on shaped links: all cases, or those named."""
    codes = []
    if not page_only:
        codes = [measure(case) for case in CASES if not names or case.name in names]
    page()
    if any(codes):
        raise click.ClickException("not everything could be measured: see above")


if __name__ == "__main__":
    main()
