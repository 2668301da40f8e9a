"""What is shown of an MSCCL program: findings at their places, critical path, order of steps."""

from __future__ import annotations

import pytest

from stragglar.backends.msccl.lower import lower
from stragglar.backends.msccl.options import LowerOptions
from stragglar.backends.view.inspector import program_page
from stragglar.backends.view.program_data import analyse, program_data
from stragglar.backends.view.program_text import program_text
from stragglar.synth import Request, synthesize


@pytest.fixture(scope="module")
def text():
    return lower(synthesize(Request(4, (3,))), LowerOptions()).text


def deadlocked():
    """Two blocks of rank 0 that wait for each other's first steps."""
    step = (
        '<step s="0" type="cpy" srcbuf="i" srcoff="0" dstbuf="s" dstoff="{}" cnt="1" depid="{}" deps="0" '
        'hasdep="1"/>'
    )
    blocks = "".join(
        f'<tb id="{b}" send="-1" recv="-1" chan="0">{step.format(b, 1 - b)}</tb>' for b in (0, 1)
    )
    gpu = '<gpu id="{}" i_chunks="1" o_chunks="1" s_chunks="{}">{}</gpu>'
    return (
        '<algo name="stuck" proto="Simple" nchannels="1" nchunksperloop="1" ngpus="2" coll="allreduce" '
        'inplace="1" outofplace="0" minBytes="0" maxBytes="0">'
        f"{gpu.format(0, 2, blocks)}{gpu.format(1, 0, '')}</algo>"
    )


def test_a_good_program(text):
    found = analyse(text.encode(), "good")
    data = program_data(found)
    assert data["total"] == 0 and data["places"] == [] and data["cycle"] == []
    assert data["rounds"] == [2, 4] and data["bound"] == 4
    columns = {(b["rank"], b["id"], s[0]): s[10] for b in data["blocks"] for s in b["steps"]}
    for message in data["messages"]:
        assert columns[tuple(message[:3])] < columns[tuple(message[3:])]
    for block in data["blocks"]:
        places = [s[10] for s in block["steps"]]
        assert places == sorted(set(places))
    shown = program_text(found)
    assert "valid" in shown and "critical path" in shown
    assert "rank 1 " not in program_text(found, range(1)).split("critical path")[0]


def test_a_deadlock_has_places_and_a_cycle():
    found = analyse(deadlocked().encode(), "stuck")
    data = program_data(found)
    assert sorted(map(tuple, data["cycle"])) == [(0, 0), (0, 1)]
    assert {tuple(p[:3]) for p in data["places"]} >= {(0, 0, 0), (0, 1, 0)}
    assert "NOT VALID" in program_text(found)


def test_a_program_that_cannot_be_loaded_is_shown(text):
    found = analyse(text.replace('coll="allreduce"', 'coll="broadcast"').encode(), "strange")
    assert found.order is None and found.findings
    assert program_data(found)["messages"] == []
    assert "broadcast" in program_text(found)


def test_a_hostile_name_is_data(text):
    hostile = "&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;"
    name = text.split('name="')[1].split('"')[0]
    page = program_page(analyse(text.replace(name, hostile).encode(), "hostile"))
    assert "<script>alert" not in page and page.count("<script") == 2
