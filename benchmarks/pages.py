"""docs/benchmarks.md, made from the files in benchmarks/results/: nothing on the page is typed by hand.

python benchmarks/pages.py [-o docs/benchmarks.md]
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from stragglar.schedules.files import write_atomic

RESULTS = Path(__file__).parent / "results"

HEAD = """# Benchmarks

Every figure names the command that makes it; this page is made from `benchmarks/results/` by
`python benchmarks/pages.py`. Times of shared machines are noisy: medians and ratios are what to quote.
`make bench` runs all of them. Measured over links: [measured.md](measured.md).

"""

SYNTHESIS = """## Synthesis

Made by `python benchmarks/synthesis.py -o benchmarks/results/synthesis.json`: `stragglar synth` as a whole
process, start-up, validation and file included, **measured** on {machine}, Python {python}, {date}, commit
{commit}; medians of {repeat}. Beside it the published synthesizers: rounds, and seconds of their synthesis
alone in process, as in `benchmarks/published_rounds.tsv`.

"""

PIPELINE = """## After synthesis

Made by `python benchmarks/pipeline.py -o benchmarks/results/pipeline.json`: each step in a process of its
own, its input made before, **measured** on {machine}, Python {python}, {date}, commit {commit}; medians of
{repeat}. The ratio is to synthesis in the same run. MSCCL's steps end at 64 ranks,
the most that its runtimes hold.

"""

TAIL = """## Rounds

[rounds.md](rounds.md): every n from 2 to 1024, made by `python benchmarks/rounds.py`.

## The published evaluation

[evaluation.md](evaluation.md), modelled, made by `python benchmarks/evaluation.py`.

## Others

[pytorch.md](pytorch.md): what a decision and a call cost, `make bench-torch`. [several.md](several.md): 1,000
vectors of arrivals, modelled, `python benchmarks/several.py`. [inspector.md](inspector.md): how fast the page
is, `python benchmarks/inspector.py`.
"""


def load(name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The conditions and rows of a file of results."""
    found = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found["conditions"], found["rows"]


def markdown(columns: dict[str, str], rows: list[list[object]]) -> str:
    """A table; `columns` are heads and their alignment."""
    lines = ["| " + " | ".join(columns) + " |", "| " + " | ".join(columns.values()) + " |"]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]) + "\n\n"


def synthesis() -> str:
    """Time, memory and rounds of synthesis."""
    where, found = load("synthesis")
    heads = ("n", "rounds", "bound", "seconds", "min..max", "peak MiB", "file MiB", "published rounds")
    rows = []
    for r in found:
        span = f"{r['fastest']:.2f}..{r['slowest']:.2f}"
        ours = [r["ranks"], r["rounds"], r["bound"], f"{r['seconds']:.2f}", span]
        ours += [f"{r['peak_mib']:.0f}", f"{r['file_mib']:.2f}"]
        known = r["published_rounds"] is not None
        rows.append([*ours, *((r["published_rounds"], f"{r['published_seconds']:g}") if known else "––")])
    return SYNTHESIS.format(**where) + markdown(dict.fromkeys((*heads, "published seconds"), "---:"), rows)


def pipeline() -> str:
    """Time and memory of the steps after synthesis."""
    where, found = load("pipeline")
    columns = {"n": "---:", "step": "---", "seconds": "---:", "over synthesis": "---:", "peak MiB": "---:"}
    rows: list[list[object]] = [
        [r["ranks"], r["what"], f"{r['seconds']:.4f}", f"{r['over_synthesis']:.2f}", f"{r['peak_mib']:.0f}"]
        for r in found
    ]
    return PIPELINE.format(**where) + markdown(columns, rows)


@click.command()
@click.option("-o", "--output", default="docs/benchmarks.md", show_default=True, help="The page to write.")
def main(output: str) -> None:
    """Make the page of benchmarks from the results."""
    sections = {"synthesis": synthesis, "pipeline": pipeline}
    made = [make() for name, make in sections.items() if (RESULTS / f"{name}.json").exists()]
    write_atomic(output, HEAD + "".join(made) + TAIL)


if __name__ == "__main__":
    main()
