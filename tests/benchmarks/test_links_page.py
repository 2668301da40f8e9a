"""The page of measured figures: made from the results that are in the repository, and from any others."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from stragglar.cli.main import cli
from stragglar.testbed.contenders import Scene, contender

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def script():
    name = ROOT / "benchmarks" / "links.py"
    spec = importlib.util.spec_from_file_location("benchmarks_links", name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def test_every_case_is_a_command_that_the_command_line_takes(script):
    bench = cli.get_command(None, "bench")
    for case in script.CASES:
        command, *words = script.shlex.split(case.words)
        params = bench.commands[command].make_context(command, list(words)).params
        late = params["late"] or (params["hosts"] - 1,)
        scene = Scene(params["hosts"], late, 1 << 20, 1e6, 0.5)
        for name in params["algorithms"].split(","):
            assert contender(name, scene).name == name


def test_names_of_cases_differ(script):
    assert len({case.name for case in script.CASES}) == len(script.CASES)


def test_the_page_is_what_the_results_give(script):
    text = script.PAGE.read_text(encoding="utf-8")
    figures = text.partition(script.BEGIN)[2].partition(script.END)[0]
    assert figures.strip() == script.figures().strip()
