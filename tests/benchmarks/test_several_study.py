"""The study of random arrival vectors: its page is its results, and a few vectors made anew are the same."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "several.json"


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield __import__("several")
    for name in ("several", "vectors"):
        sys.modules.pop(name, None)


def test_the_page_is_made_from_the_results(study):
    page = (ROOT / "docs" / "several.md").read_text(encoding="utf-8")
    assert study.renewed(page, str(RESULTS)) == page


def test_vectors_planned_again_take_the_same(study):
    """A change of the planner or of the packing shows here: run the study again then."""
    held = json.loads(RESULTS.read_text(encoding="utf-8"))
    columns = [name for name in held["columns"] if name not in ("planned_in", "wrong")]
    seed = held["conditions"]["seed"]
    for values, (kind, situation, chance) in zip(held["rows"][:12], study.vectors(12, seed), strict=True):
        known = dict(zip(held["columns"], values, strict=True))
        row = study.study(kind, situation, chance, False)
        for name in columns:
            made, told = getattr(row, name), known[name]
            assert made == (pytest.approx(told, rel=1e-4) if isinstance(told, float) else told), (kind, name)


def test_rounds_counted_again_are_the_same(study):
    small = json.loads(RESULTS.read_text(encoding="utf-8"))["rounds"]["small"]
    for line in small[:12]:
        assert study._counted(*line[:3]) == line


def test_a_page_without_marks_is_refused(study):
    with pytest.raises(study.click.ClickException, match="no part"):
        study.renewed("# Nothing\n", str(RESULTS))
