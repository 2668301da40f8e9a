"""Several late ranks, together and one group after another, in text and SVG (the page tests its own)."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from stragglar.schedules import Phase, Schedule
from stragglar.schedules.diagram import render
from stragglar.schedules.svg import draw_svg
from stragglar.synth.several import groups_schedule

SVG = "{http://www.w3.org/2000/svg}"
GROUPS = ((2,), (5, 6), (1,))


def texts(svg, kind):
    return [e.text for e in ET.fromstring(svg).iter(f"{SVG}text") if kind in e.get("class").split()]


@pytest.mark.parametrize("ranks", [8, 24], ids=["arrows", "cells"])
def test_a_line_and_words_for_every_group(ranks):
    schedule = groups_schedule(ranks, GROUPS, ranks)
    svg = draw_svg(schedule)
    words = ["rank 2 arrives", "ranks 5, 6 arrive", "rank 1 arrives"]
    assert [t for t in texts(svg, "late") if "arrive" in t] == words
    lines = [e for e in ET.fromstring(svg).iter(f"{SVG}line") if e.get("class") == "arrival"]
    assert len(lines) == 3
    assert "ranks 1, 2, 5, 6 late" in texts(svg, "title")[0]


def test_a_group_whose_phase_has_no_rounds_arrives_with_the_next():
    swap = Phase.build("post", [[(0, 3, 0, 1, 0), (3, 0, 0, 1, 0)]])
    rest = (Phase.build("pre", []), Phase.build("arrival1", []))
    schedule = Schedule(4, ((1, 2), (3,)), 1, (*rest, swap))
    arriving = [t for t in texts(draw_svg(schedule), "late") if "arrive" in t]
    assert arriving == ["ranks 1, 2, 3 arrive"]


def test_the_terminal_names_who_has_come_and_who_has_not():
    shown = render(groups_schedule(8, GROUPS, 8), 200, color=False)
    assert "pre: while ranks 2, 5, 6, 1 are late" in shown
    assert "arrival1: after rank 2 arrived, while ranks 5, 6, 1 are late" in shown
    assert "arrival2: after ranks 5, 6 arrived, while rank 1 is late" in shown
    assert "post: after rank 1 arrived" in shown


def test_pictures_of_groups(golden):
    golden(draw_svg(groups_schedule(5, ((4,), (1, 2)), 4)))
