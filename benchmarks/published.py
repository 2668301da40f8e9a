"""The published synthesizers' figures, as they stand in `published_rounds.tsv`."""

from __future__ import annotations

import csv
from pathlib import Path

FIGURES = Path(__file__).parent / "published_rounds.tsv"


def published() -> dict[int, tuple[int, float]]:
    """Ranks -> (post rounds, seconds of synthesis in process); the better script where both ran."""
    found: dict[int, tuple[int, float]] = {}
    with FIGURES.open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream, delimiter="\t"):
            if row["rounds"].isdigit():
                figure = int(row["rounds"]), float(row["synth_wall_s(in-process,no print)"])
                ranks = int(row["n"])
                found[ranks] = min(found.get(ranks, figure), figure)
    return found
