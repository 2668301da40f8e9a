"""Programs that msccl-tools makes, where its checkout is installed: right, in as many rounds as known.

The figures were taken from microsoft/msccl-tools 2.3.0; its examples lie beside its package.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stragglar.backends.msccl.model import verify
from stragglar.backends.msccl.xml_read import read_program

language = pytest.importorskip("msccl.language", reason="msccl-tools is not installed")
ROOT = Path(language.__file__).parents[2]
EXAMPLES = ROOT / "examples" / "mscclang"

# example, arguments, steps that do something, messages, longest chain of messages
FIGURES = [
    ("simple/allreduce_ring", "4 1", 28, 24, 6),
    ("simple/allreduce_ring", "8 1", 120, 112, 14),
    ("allreduce_a100_ring", "4 1 1", 28, 24, 6),
    ("allreduce_a100_ring", "8 4 2", 240, 224, 14),
    ("allreduce_a100_allpairs", "4 1", 96, 24, 2),
    ("allreduce_a100_allpairs", "8 1", 672, 112, 2),
    ("allreduce_a100_allpairs", "8 2", 1344, 224, 2),
    ("allreduce_a100_allpairs_v2", "8 1", 280, 112, 2),
    ("allreduce_recursive_doubling_halving", "4 1", 32, 16, 4),
    ("allreduce_recursive_doubling_halving", "8 1", 96, 48, 6),
    ("allreduce_1step", "8 1", 560, 56, 1),
    ("hierarchical_allreduce", "2 2 1", 40, 24, 5),
    ("hierarchical_allreduce", "4 2 1", 144, 112, 8),
]


@pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the examples of msccl-tools are not beside its package")
@pytest.mark.parametrize(("example", "arguments", "steps", "messages", "rounds"), FIGURES)
def test_examples_are_right(example, arguments, steps, messages, rounds):
    path = os.pathsep.join([str(ROOT), *sys.path])
    made = subprocess.run(
        [sys.executable, EXAMPLES / f"{example}.py", *arguments.split()],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    report = verify(read_program(made.stdout, example))
    assert report.ok, report.summary()
    assert (report.steps, report.messages, report.critical_path) == (steps, messages, rounds)
