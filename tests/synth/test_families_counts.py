"""The one entrance to the formulas: every algorithm is counted, as it is made and without making it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from stragglar.schedules import UsageError, certify
from stragglar.synth import ALGORITHMS, Request, synthesize
from stragglar.synth.families import ALIASES, count_rounds

SHAPES = (
    {},
    {"refine": 3},
    {"chunks": 1},
    {"chunks": 4},
    {"pre": "rhd", "chunks": 2},
    {"pre": "direct", "chunks": 5},
    {"inner": "rhd", "fraction": Fraction(1, 3)},
    {"inner": "ring", "fraction": Fraction(0)},
    {"inner": "rhd", "fraction": Fraction(1)},
)


def outcome(make, request):
    try:
        return make(request)
    except UsageError as error:
        return str(error)


def counted_from(schedule):
    made = certify(schedule)
    phases = (made.rounds["pre"], made.chunk_rounds["pre"], made.rounds["post"], made.chunk_rounds["post"])
    return (*phases, schedule.chunks)


@pytest.mark.parametrize("name", [*ALGORITHMS, *ALIASES])
def test_counts_are_those_of_the_schedule_or_the_same_refusal(name):
    for n in (2, 3, 4, 5, 6, 7, 9, 12, 17):
        for shape in SHAPES:
            request = Request(n, (n - 1,), name, **shape)
            counted, made = outcome(count_rounds, request), outcome(synthesize, request)
            if isinstance(made, str):
                assert counted == made
            else:
                got = (counted.pre_rounds, counted.pre_chunk_rounds, counted.post_rounds)
                assert (*got, counted.post_chunk_rounds, counted.chunks) == counted_from(made), request


def test_counting_makes_no_schedule(monkeypatch):
    def refuse(_request):
        raise AssertionError("a schedule was made")

    for name, family in list(ALGORITHMS.items()):
        monkeypatch.setitem(ALGORITHMS, name, replace(family, make=refuse))
        assert count_rounds(Request(1000, (3,), name, chunks=4096)).chunks == 4096
