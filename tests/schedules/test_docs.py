"""What the documents show is true."""

import doctest
import re
from importlib import import_module
from pathlib import Path

import pytest

from stragglar.schedules import certify, dump_schedule, parse_schedule, validate

from .cases import four

DOCS = Path(__file__).parents[2] / "docs"


def test_the_example_of_the_format():
    (example,) = re.findall(
        r"^```json\n(.*?)^```$", (DOCS / "format.md").read_text(encoding="utf-8"), re.M | re.S
    )
    schedule = parse_schedule(example.encode(), "docs/format.md")
    assert schedule == four()
    assert dump_schedule(schedule) == example
    assert validate(schedule).valid
    assert certify(schedule).gap == 0


def test_the_limits_of_the_format():
    ir, files = import_module("stragglar.schedules.ir"), import_module("stragglar.schedules.files")
    text = (DOCS / "format.md").read_text(encoding="utf-8")
    for limit in (ir.MAX_RANKS, ir.MAX_CHUNKS, ir.MAX_TRANSFERS, f"{files.MAX_FILE_BYTES >> 20} MiB"):
        assert str(limit) in text


@pytest.mark.parametrize(
    "name", ["post_rounds", "post_seconds_after_delay", "post_seconds_several", "completion_seconds"]
)
def test_every_bound_has_its_proof(name):
    assert f"`{name}" in (DOCS / "bounds.md").read_text(encoding="utf-8")
    assert hasattr(import_module("stragglar.schedules.bounds"), name)


@pytest.mark.parametrize("module", ["bounds", "published", "reduce_scatter", "trace", "units"])
def test_examples_in_docstrings(module):
    failed, tried = doctest.testmod(import_module(f"stragglar.schedules.{module}"))
    assert tried and not failed
