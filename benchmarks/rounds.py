"""Post rounds for every rank count, beside the bound and the published synthesizers.

    python benchmarks/rounds.py [--ranks 2..1024] [-o docs/rounds.md]

Each schedule is made and validated symbolically; seconds are one in-process synthesis without the
validation. The published figures stand in `published_rounds.tsv`, with the conditions they were taken under.
"""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass

import click
from published import published

from stragglar.schedules import certify, require_valid
from stragglar.schedules.files import write_atomic
from stragglar.synth import Request
from stragglar.synth.stragglar import stragglar

HEAD = """# Rounds for every rank count

Made by `python benchmarks/rounds.py -o docs/rounds.md`. One late rank, one chunk an early rank (k = n − 1);
every schedule here was validated symbolically when this page was made. *Published*: the synthesizers of the
paper's authors, run once (`benchmarks/published_rounds.tsv`); a dash where they refuse (odd n), crash (n = 2,
4) or were not run. Seconds are those of the synthesis alone, in process: ours on {machine}, theirs on the
machine of that file; compare the order of magnitude.

**{met} of {all} rank counts meet the bound.**

| n | rounds | bound | published | seconds | published seconds |
| ---: | ---: | ---: | ---: | ---: | ---: |
"""


@dataclass(frozen=True, slots=True)
class Line:
    """One rank count."""

    ranks: int
    rounds: int
    bound: int
    seconds: float


def measure(ranks: int) -> Line:
    """Makes, times and validates the schedule for one rank count."""
    start = time.perf_counter()
    schedule = stragglar(Request(ranks, (ranks - 1,)))
    seconds = time.perf_counter() - start
    made = certify(require_valid(schedule))
    return Line(ranks, made.rounds["post"], made.post_bound, seconds)


def page(lines: list[Line]) -> str:
    """The Markdown page."""
    known = published()
    machine = f"{platform.machine()} ({os.cpu_count()} cores, Python {platform.python_version()})"
    met = sum(line.rounds == line.bound for line in lines)
    text = HEAD.format(machine=machine, met=met, all=len(lines))
    for line in lines:
        rounds, seconds = known.get(line.ranks, (None, None))
        theirs = ("–", "–") if rounds is None else (str(rounds), f"{seconds:g}")
        cells = (line.ranks, line.rounds, line.bound, theirs[0], f"{line.seconds:.3f}", theirs[1])
        text += "| " + " | ".join(map(str, cells)) + " |\n"
    return text


@click.command()
@click.option("--ranks", default="2..1024", show_default=True, help="A range of rank counts.")
@click.option("-o", "--output", default="-", help="The Markdown page to write.")
def main(ranks: str, output: str) -> None:
    """Make the table of rounds."""
    first, _, last = ranks.partition("..")
    lines = []
    for n in range(int(first), int(last or first) + 1):
        lines.append(measure(n))
        if n % 64 == 0:
            click.echo(f"n = {n}", err=True)
    write_atomic(output, page(lines))


if __name__ == "__main__":
    main()
