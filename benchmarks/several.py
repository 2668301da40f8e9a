"""Several late ranks: rounds beside the bound, and 1,000 random arrival vectors beside theirs.

    python benchmarks/several.py [--vectors 1000] [--seed 0] [--again] [-o docs/several.md]

Writes benchmarks/results/several.json and, with -o, the parts of the page between `<!-- made: .. -->` and
`<!-- end -->`. Modelled times; what is measured is how long planning takes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import click
import numpy as np
from vectors import KINDS, NOISE, RANKS, SIZES, WRONG, Row, study, vectors

from stragglar.backends.conditions import conditions
from stragglar.schedules.files import write_atomic
from stragglar.schedules.units import format_bytes
from stragglar.synth.several import several_rounds

RESULTS = Path(__file__).parent / "results" / "several.json"
SMALL = (4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 16)
OTHERS = (
    *((8, 2, 56), (8, 3, 56), (8, 4, 56), (8, 2, 192), (8, 7, 64), (16, 2, 120), (16, 4, 120), (16, 4, 240)),
    *((16, 15, 128), (32, 2, 120), (32, 16, 96), (64, 2, 126), (64, 4, 126), (64, 32, 126), (64, 63, 126)),
)
"""(n, g, k)."""


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table, numbers to the right."""
    lines = ["| " + " | ".join(heads) + " |", "| --- |" + " ---: |" * (len(heads) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)]) + "\n"


def ratios() -> dict[str, list[list[int]]]:
    """[n, g, k, rounds, bound] for about 100 chunks, and for others."""
    small = []
    for n in SMALL:
        for late in range(1, min(4, n - 2) + 1):
            early = n - late
            small.append(_counted(n, late, -(-96 // early) * early))
    return {"small": small, "others": [_counted(*shape) for shape in OTHERS]}


def _counted(n: int, late: int, chunks: int) -> list[int]:
    made = several_rounds(n - late, late, chunks)
    return [n, late, chunks, len(made.rounds), made.bound]


def ratios_text(found: dict[str, list[list[int]]]) -> str:
    """Both tables of rounds."""
    cells: dict[int, dict[int, str]] = {}
    for n, late, chunks, rounds, bound in found["small"]:
        cells.setdefault(n, {})[late] = f"{chunks}: {rounds} / {bound} = {rounds / bound:.3f}"
    heads = ["n", *(f"g = {late}" for late in range(1, 5))]
    small = table(heads, [[n, *(row.get(g, "–") for g in range(1, 5))] for n, row in cells.items()])
    rows = [[*line, f"{line[3] / line[4]:.3f}"] for line in found["others"]]
    return f"{small}\nOthers, also finer and larger ones:\n\n" + table(
        ["n", "g", "k", "rounds", "bound", "ratio"], rows
    )


def _quantiles(values: Sequence[float]) -> list[str]:
    return [f"{v:.3f}" for v in (*np.quantile(values, (0.5, 0.9, 0.99)), max(values))]


def _split(rows: list[Row], key: Callable[[Row], object], names: Iterable[object]) -> list[list[object]]:
    lines: list[list[object]] = []
    for name in [*names, None]:
        mine = [row for row in rows if name is None or key(row) == name]
        if not mine:
            continue
        over = [min(row.ring, row.rhd) / row.plan for row in mine]
        shares = [sum(test(row) for row in mine) / len(mine) for test in _CHOSEN]
        label = "all" if name is None else (format_bytes(name) if key is _size else name)
        lines.append(
            [
                label,
                len(mine),
                *_quantiles([row.plan / row.bound for row in mine]),
                f"{np.median([row.plan / row.pipeline for row in mine]):.3f}",
                f"{np.median([row.ring / row.plan for row in mine]):.3f}",
                f"{np.median(over):.3f}",
                f"{min(over):.3f}",
                *(f"{share:.0%}" for share in shares),
            ]
        )
    return lines


def _size(row: Row) -> object:
    return row.size


def _kind(row: Row) -> object:
    return row.kind


def _ranks(row: Row) -> object:
    return row.ranks


_CHOSEN: tuple[Callable[[Row], bool], ...] = (
    lambda row: row.groups > 0,
    lambda row: row.groups > 1,
    lambda row: row.partial,
)


def study_text(rows: list[Row], where: dict[str, object]) -> str:
    """What the plans for all vectors take."""
    heads: tuple[str, ...] = (
        "",
        "vectors",
        "gap p50",
        "p90",
        "p99",
        "worst",
        "pipeline",
        "ring p50",
        "best p50",
        "least",
    )
    heads = (*heads, "late ranks", "groups", "partial")
    parts = []
    for key, names in ((_kind, KINDS), (_size, SIZES), (_ranks, RANKS)):
        parts.append(table(heads, _split(rows, key, names)))
    took = [row.planned_in for row in rows]
    return "\n".join(parts) + (
        f"\nA plan took {np.median(took):.2f} s in the middle and {max(took):.1f} s at most, **measured** on"
        f" {where['machine']}, Python {where['python']}, {where['date']}, commit {where['commit']}.\n"
    )


def wrong_text(rows: list[Row]) -> str:
    """What wrong guesses cost, where the plan had guessed anything."""
    guessed = [row for row in rows if row.wrong and row.groups]
    lines: list[list[object]] = []
    for name in WRONG:
        regret = [row.wrong[name][0] / row.wrong[name][1] for row in guessed]
        ring = [row.wrong[name][0] / row.wrong[name][2] for row in guessed]
        lost = sum(value > 1 for value in ring) / len(ring)
        lines.append([name, len(guessed), *_quantiles(regret), *_quantiles(ring), f"{lost:.0%}"])
    heads = ("", "vectors", "of right p50", "p90", "p99", "worst", "of ring p50", "p90", "p99", "worst")
    return table((*heads, "slower than ring"), lines) + f"\nNoise: {NOISE:g} spreads, standard deviation.\n"


def results_text(where: dict[str, object], found: dict[str, list[list[int]]], rows: list[Row]) -> str:
    """The file of results: one vector a line, its values in the order of `columns`, floats to five digits."""

    def short(value: object) -> object:
        if isinstance(value, dict):
            return [short(part) for part in value.values()]
        if isinstance(value, list):
            return [short(part) for part in value]
        return float(f"{value:.5g}") if isinstance(value, float) else value

    head = {"conditions": where, "rounds": found, "columns": list(Row.__dataclass_fields__), "wrong": WRONG}
    lines = ",\n".join(json.dumps([short(value) for value in asdict(row).values()]) for row in rows)
    return f"{json.dumps(head)[:-1]},\n" + f'"rows": [\n{lines}\n]}}\n'


def read_results(path: str) -> tuple[dict[str, object], dict[str, list[list[int]]], list[Row]]:
    """Conditions, rounds and rows of a file of results."""
    held = json.loads(Path(path).read_text(encoding="utf-8"))
    rows = []
    for values in held["rows"]:
        named = dict(zip(held["columns"], values, strict=True))
        # Without wrong guesses the list is empty.
        named["wrong"] = dict(zip(held["wrong"], named["wrong"], strict=False))
        rows.append(Row(**named))
    return held["conditions"], held["rounds"], rows


def renewed(page: str, results: str) -> str:
    """The page with all its made parts from a file of results."""
    where, found, rows = read_results(results)
    page = put(page, "rounds", ratios_text(found))
    page = put(page, "vectors", study_text(rows, where))
    return put(page, "wrong guesses", wrong_text(rows))


def put(page: str, name: str, text: str) -> str:
    """The page with the part `name` replaced."""
    start, end = f"<!-- made: {name} -->\n", "<!-- end -->"
    before, found, rest = page.partition(start)
    if not found or end not in rest:
        raise click.ClickException(f"the page has no part {start.strip()} .. {end}")
    return f"{before}{start}\n{text}\n{end}{rest.partition(end)[2]}"


def _measure(count: int, guesses: int, seed: int, results: str) -> None:
    where = conditions() | {"vectors": count, "seed": seed}
    found = ratios()
    rows = []
    for index, (kind, situation, chance) in enumerate(vectors(count, seed)):
        rows.append(study(kind, situation, chance, index // len(KINDS) % guesses == 0))
        if index % 100 == 99:
            click.echo(f"{index + 1} of {count} vectors", err=True)
    write_atomic(results, results_text(where, found, rows))


@click.command()
@click.option("--vectors", "count", default=1000, show_default=True, help="Arrival vectors.")
@click.option("--guesses", default=1, show_default=True, help="Wrong guesses for every so many-th vector.")
@click.option("--seed", default=0, show_default=True, help="Of the vectors.")
@click.option("--again", is_flag=True, help="Measure nothing: make the page from the file of results.")
@click.option("--results", default=str(RESULTS), show_default=True, help="The file of results to write.")
@click.option("-o", "--output", help="The page whose parts to renew.")
def main(count: int, guesses: int, seed: int, again: bool, results: str, output: str | None) -> None:
    """Compare plans for random arrival vectors with bound and baselines."""
    if not again:
        _measure(count, guesses, seed, results)
    where, _, rows = read_results(results)
    if output:
        write_atomic(output, renewed(Path(output).read_text(encoding="utf-8"), results))
    else:
        click.echo(study_text(rows, where) + "\n" + wrong_text(rows))


if __name__ == "__main__":
    main()
