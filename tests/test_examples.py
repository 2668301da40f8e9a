"""What the documentation says runs: the examples in docstrings, the Python in the README."""

from __future__ import annotations

import doctest
import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# These need an MPI or torch, or are programs.
SKIP = ("stragglar.backends.mpi", "stragglar.backends.torch")
FILES = [
    path for folder in ("schedules", "synth", "backends", "cli") for path in ROOT.glob(f"{folder}/**/*.py")
]
NAMES = sorted(".".join(("stragglar", *path.relative_to(ROOT).with_suffix("").parts)) for path in FILES)
MODULES = [name for name in NAMES if not name.startswith(SKIP) and not name.endswith("__init__")]
PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/*.md"))]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    failed, _ = doctest.testmod(import_module(name))
    assert not failed


def test_there_are_docstrings_with_examples():
    found = [test for name in MODULES for test in doctest.DocTestFinder().find(import_module(name))]
    assert sum(bool(test.examples) for test in found) > 10


@pytest.mark.parametrize(
    "page", ["README.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/*.md"))]
)
def test_python_in_the_pages_runs(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)):
        if "torch" not in code:
            exec(compile(code, f"{page}, example {number}", "exec"), {})


@pytest.mark.parametrize(
    "page", ["README.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/*.md"))]
)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"
