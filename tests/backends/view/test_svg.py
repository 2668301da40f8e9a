"""Step diagrams as SVG and PNG: the same text for equal schedules, and nothing but text from names."""

from __future__ import annotations

import dataclasses
from xml.etree import ElementTree as ET

import pytest

from stragglar.backends.view.png import png_of
from stragglar.schedules import Op, Origin, Phase, Schedule, UsageError
from stragglar.schedules.svg import draw_svg
from stragglar.schedules.svg_columns import bound_place, frame_of
from stragglar.schedules.svg_paper import plain
from stragglar.synth import Request, synthesize

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert(1)</script>\"&'<img src=x>"


def made(ranks, late=(3,), family="stragglar", **options):
    return synthesize(Request(ranks, late, family, **options))


def broken():
    """A reduce that counts twice, in the second of two rounds."""
    swap = [(0, 1, 0, 1, 0), (1, 0, 0, 1, 0)]
    return Schedule(2, (), 1, (Phase.build("post", [swap, swap]),))


@pytest.mark.parametrize(
    "schedule",
    [made(8), made(5, (1,), refine=2), made(4, (3,), "ring"), made(64, (5,)), broken()],
    ids=["eight", "five-refined", "ring", "sixty-four", "broken"],
)
def test_picture(golden, schedule):
    golden(draw_svg(schedule))


def test_picture_by_age_of_some(golden):
    golden(draw_svg(made(8), "age", range(2, 4), range(3)))


def test_one_arrow_a_transfer_told_apart_without_colour():
    schedule = made(8)
    root = ET.fromstring(draw_svg(schedule))
    lines = [e.get("class") for e in root.iter(f"{SVG}line") if e.get("class").startswith("move")]
    legend = 2
    assert len(lines) == schedule.transfer_count + legend
    copies = sum(t.op is Op.COPY for p in schedule.phases for r in range(len(p)) for t in p.transfers(r))
    assert sum("copy" in kind for kind in lines) == copies + 1
    tips = [e.get("class") for e in root.iter(f"{SVG}path") if e.get("class").startswith("tip")]
    assert sum("open" in kind for kind in tips) == copies + 1


def test_aggregated_pictures_stay_small():
    for ranks in (64, 256):
        text = draw_svg(made(ranks))
        assert len(text) < 400_000
        root = ET.fromstring(text)
        assert float(root.get("width")) < 1400 and float(root.get("height")) < 900


def test_the_bound_is_at_the_end_of_an_optimal_schedule():
    schedule = made(8)
    assert bound_place(frame_of(schedule, "chunk", None, None)) == (len(schedule.post) - 1, 1.0)
    assert bound_place(frame_of(made(8, (3,), "ring"), "chunk", None, None)) is not None
    assert bound_place(frame_of(schedule, "chunk", range(1), None)) is None


def test_names_are_text():
    schedule = dataclasses.replace(made(4), origin=Origin(HOSTILE))
    text = draw_svg(schedule)
    root = ET.fromstring(text)
    assert not list(root.iter(f"{SVG}script")) and not list(root.iter(f"{SVG}img"))
    assert any(HOSTILE in (e.text or "") for e in root.iter(f"{SVG}text"))
    assert plain("a\u202eb\x1b[1m" + "x" * 200, 20) == "a\ufffdb\ufffd[1mxxxxxxxxxxxx…"


def test_png():
    picture = png_of(draw_svg(made(4)))
    assert picture.startswith(b"\x89PNG")
    with pytest.raises(UsageError, match="too large"):
        png_of('<svg xmlns="http://www.w3.org/2000/svg" width="90000" height="90000"/>')


def test_what_is_refused():
    for options in ({"by": "size"}, {"ranks": range(9, 10)}, {"rounds": range(90, 91)}):
        with pytest.raises(UsageError):
            draw_svg(made(4), **options)


def test_a_schedule_shows_itself_in_a_notebook():
    schedule = made(4)
    assert schedule._repr_svg_() == draw_svg(schedule)
    assert schedule._repr_svg_() in schedule._repr_html_()


def test_no_rounds_at_all():
    assert "NOT VALID" in draw_svg(Schedule(2, (), 1, (Phase.build("post", []),)))
