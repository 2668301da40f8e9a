"""What people see: golden pictures, and what holds for every picture."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stragglar.schedules import Phase, Schedule, UsageError
from stragglar.schedules.diagram import render

from .cases import C, R, arbitrary, big, four, published, rebuilt, ring, rows_of, two_groups


def _broken():
    """Four ranks; one message comes twice, one touches the late rank, one is dropped."""
    pre, post = rows_of(four())
    pre.append([(3, 0, 2, 1, C)])
    post[1].append((1, 2, 1, 1, R))
    post[3].pop()
    return rebuilt(four(), [pre, post])


PICTURES = {
    "two ranks": lambda: render(Schedule(2, ((1,),), 1, _two()), 100, False),
    "three ranks in runs": lambda: render(ring(3, 3), 100, False),
    "four ranks in colour": lambda: render(four(), 80, True),
    "two groups": lambda: render(two_groups(), 100, False),
    "broken": lambda: render(_broken(), 100, False),
    "broken and summed up": lambda: render(_broken(), 50, False),
    "eight ranks": lambda: render(published(8), 100, False),
    "eight ranks wide": lambda: render(published(8), 120, False),
    "eight ranks in ascii": lambda: render(published(8), 80, False, ascii_only=True),
    "thirty ranks": lambda: render(published(30), 100, False),
    "thirty ranks some": lambda: render(published(30), 100, False, range(3, 7), range(8, 30)),
    "nothing": lambda: render(Schedule(2, (), 1, (Phase.build("post", []),)), 100, False),
}


def _two():
    return Phase.build("pre", []), Phase.build("post", [[(0, 1, 0, 1, R), (1, 0, 0, 1, R)]])


@pytest.mark.parametrize("name", PICTURES)
def test_picture(name, golden):
    golden(PICTURES[name]())


def test_the_environment_is_not_asked(monkeypatch):
    plain, colored = render(published(8), 90, False), render(published(8), 90, True)
    for name, value in {"COLUMNS": "20", "NO_COLOR": "1", "FORCE_COLOR": "1", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    assert render(published(8), 90, False) == plain
    assert render(published(8), 90, True) == colored
    assert "\x1b[" in colored


pictures = {"schedule": arbitrary(), "width": st.integers(1, 140), "ascii_only": st.booleans()}


@given(**pictures, color=st.booleans(), data=st.data())
@settings(max_examples=40)
def test_every_picture(schedule, width, ascii_only, color, data):
    ranks = data.draw(st.none() | st.integers(0, schedule.ranks - 1).map(lambda r: range(r, r + 3)))
    text = render(schedule, width, color, ranks=ranks, ascii_only=ascii_only)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    plain = "".join(f"{line.rstrip()}\n" for line in plain.splitlines())
    assert plain == render(schedule, width, False, ranks=ranks, ascii_only=ascii_only)
    assert plain.isascii() or not ascii_only
    assert ranks is not None or max(map(len, plain.splitlines())) <= max(width, 50)
    assert all(line == line.rstrip() for line in plain.splitlines())


@given(arbitrary())
@settings(max_examples=30)
def test_every_message_is_shown_at_both_ends(schedule):
    text = render(schedule, 100, False, ranks=range(schedule.ranks), ascii_only=True)
    sent = re.findall(r">(\d+):([\d-]+)", text.split("\n\n", 1)[1])
    received = re.findall(r"([<+])(\d+):([\d-]+)", text.split("\n\n", 1)[1])
    runs = [
        (src, dst, str(first) if count == 1 else f"{first}-{first + count - 1}", op)
        for phase in schedule.phases
        for src, dst, first, count, op in phase.table.tolist()
    ]
    assert sorted(sent) == sorted((str(dst), run) for _, dst, run, _ in runs)
    assert sorted(received) == sorted(("+<"[op], str(src), run) for src, _, run, op in runs)


def test_ranges():
    text = render(published(8), 100, False, rounds=range(3, 5))
    assert re.findall(r"^ +(\d+) ", text, re.M) == ["3", "4", "3", "4"]
    assert "4 rounds not shown" in text and "7 rounds not shown" in text
    with pytest.raises(UsageError, match=r"the longest phase has rounds 0\.\.8"):
        render(published(8), 100, False, rounds=range(9, 12))
    with pytest.raises(UsageError, match=r"the ranks are 0\.\.7"):
        render(published(8), 100, False, ranks=range(8, 9))


def test_more_violations_than_anybody_reads():
    phase = Phase.build("post", [[(0, 1, 0, 40, R)]] * 9)
    text = render(Schedule(2, (), 40, (phase,)), 100, False)
    assert "NOT VALID: 360 violations, marked !" in text
    assert "! and 350 more" in text
    assert "!8  !→1:0-39" in text


def test_large_schedules_are_summed_up():
    text = render(big(256, 255), 100, False, rounds=range(100, 103))
    assert len(text.splitlines()) < 30
    assert "The 256 ranks do not fit 100 columns" in text
