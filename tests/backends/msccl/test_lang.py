"""MSCCLang programs: the order of operations here, and the real msccl-tools where it is installed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stragglar.backends.msccl.lang import sequential, write_language
from stragglar.backends.msccl.model import verify
from stragglar.backends.msccl.options import LowerOptions
from stragglar.backends.msccl.xml_read import read_program
from stragglar.schedules import Op, Transfer
from stragglar.synth import Request, synthesize


@st.composite
def rounds(draw):
    """A round in which every rank sends at most once and receives at most once."""
    n = draw(st.integers(2, 7))
    order = draw(st.permutations(range(n)))
    pairs = [(s, d) for s, d in enumerate(order) if s != d and draw(st.booleans())]
    return n, [
        Transfer(s, d, draw(st.integers(0, 2)), draw(st.integers(1, 2)), draw(st.sampled_from(list(Op))))
        for s, d in pairs
    ]


@given(rounds())
def test_one_after_another_gives_what_the_round_gives(case):
    n, transfers = case
    at_once = {(r, c): [(r, c)] for r in range(n) for c in range(4)}
    before = {key: list(value) for key, value in at_once.items()}
    for t in transfers:
        for c in t.chunks:
            own = at_once[t.dst, c] if t.op is Op.REDUCE else []
            at_once[t.dst, c] = sorted(own + before[t.src, c])
    state, scratch = before, {}
    for operation, t in sequential(transfers):
        for c in t.chunks:
            if operation == "stage":
                scratch[t.src, t.dst, c] = list(state[t.src, c])
            elif operation == "finish":
                own = state[t.dst, c] if t.op is Op.REDUCE else []
                state[t.dst, c] = sorted(own + scratch[t.src, t.dst, c])
            else:
                own = state[t.dst, c] if operation == "reduce" else []
                state[t.dst, c] = sorted(own + state[t.src, c])
    assert state == at_once


def test_the_program_is_python_and_the_same_each_time():
    schedule = synthesize(Request(6, (2,)))
    text = write_language(schedule)
    compile(text, "program", "exec")
    assert text == write_language(schedule)
    assert "('stage', 0, 2, 0, 1)" in text


@pytest.mark.parametrize("family", ["stragglar", "ring", "rhd", "direct"])
@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("options", [{}, {"in_place": False}, {"instances": 2}])
def test_msccl_tools_agrees(family, ranks, options, tmp_path):
    """Its own Check() passes, and the XML that it compiles gives the same result in our model."""
    pytest.importorskip("msccl.language", reason="needs msccl-tools (from its repository, not in a registry)")
    schedule = synthesize(Request(ranks, (ranks // 2,), family))
    script = tmp_path / "program.py"
    script.write_text(write_language(schedule, LowerOptions(**options)))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-1000:]
    program = read_program(done.stdout, "msccl-tools")
    report = verify(program, late=schedule.late if family == "stragglar" else ())
    assert report.ok, report.summary()
