"""several_rounds: valid for every number of ranks and chunks, near the bound, and always the same."""

from __future__ import annotations

import doctest
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stragglar.synth.several import InvalidSeveralError, SeveralRounds, check_several_rounds, several_rounds
from stragglar.synth.several.trees import merge_trees

CASES = st.tuples(st.integers(1, 9), st.integers(1, 7), st.integers(1, 24))


def contributions(several: SeveralRounds, rank: int, chunk: int) -> frozenset[int]:
    if several.owners[chunk] == rank:
        return frozenset(range(several.early))
    return frozenset([rank])


def replay(several: SeveralRounds) -> bool:
    """With sets of ranks and counts of ports: shares nothing with `check_several_rounds`."""
    everyone = range(several.ranks)
    held = {(r, c): contributions(several, r, c) for r in everyone for c in range(several.chunks)}
    for table in several.rounds:
        rows = table.tolist()
        assert len({row[0] for row in rows}) == len({row[1] for row in rows}) == len(rows)
        copied = {(dst, c) for _, dst, c, adds in rows if not adds}
        for (_, dst, c, adds), got in zip(rows, [held[src, c] for src, _, c, _ in rows], strict=True):
            assert not (adds and held[dst, c] & got), "counted twice"
            held[dst, c] = held[dst, c] | got if adds else got
        assert not copied & {(src, c) for src, _, c, _ in rows}
    return all(parts == frozenset(everyone) for parts in held.values())


@settings(max_examples=60)
@given(CASES)
@example((1, 1, 1))
@example((1, 7, 3))
@example((2, 1, 5))
@example((9, 7, 1))
def test_valid_whatever_the_numbers(case: tuple[int, int, int]) -> None:
    several = several_rounds(*case)
    assert replay(several)
    assert several.gap >= 0


@settings(max_examples=30)
@given(CASES, st.randoms(use_true_random=False))
def test_valid_whoever_owns_what(case, random) -> None:
    early, late, chunks = case
    owners = tuple(random.randrange(early) for _ in range(chunks))
    several = several_rounds(early, late, chunks, owners)
    assert several.owners == owners
    assert replay(several)


@pytest.mark.parametrize(
    ("ranks", "late", "chunks", "most"),
    [
        (8, 2, 56, 1.04),
        (8, 2, 96, 1.02),
        (8, 3, 100, 1.03),
        (8, 4, 96, 1.03),
        (16, 2, 120, 1.03),
        (16, 3, 117, 1.04),
        (16, 4, 120, 1.04),
        (8, 7, 64, 1.0),
        (16, 15, 128, 1.0),
        (12, 9, 96, 1.03),
    ],
)
def test_near_the_bound(ranks: int, late: int, chunks: int, most: float) -> None:
    several = several_rounds(ranks - late, late, chunks)
    assert several.bound == -(-(ranks - 1 + late) * chunks // ranks)
    assert len(several.rounds) <= most * several.bound


@pytest.mark.parametrize("early", [1, 3, 5, 7, 12])
def test_one_late_rank_is_optimal(early: int) -> None:
    assert several_rounds(early, 1, 3 * early + 1).gap == 0


def test_one_late_rank_and_chunks_in_runs_is_optimal() -> None:
    assert several_rounds(5, 1, 11, (0, 0, 1, 1, 2, 2, 3, 3, 3, 4, 4)).gap == 0


def test_an_early_rank_that_owns_nothing_gets_the_sums() -> None:
    several = several_rounds(4, 2, 24, (0, 2) * 12)
    assert replay(several)


def test_receives_are_dealt_out_evenly() -> None:
    early, late = 5, 3
    parents = merge_trees(early + late, [(c % early, *range(early, early + late)) for c in range(40)])
    children = np.bincount(parents[parents >= 0], minlength=early + late)
    # An owner's first child brings what a finished chunk would have brought.
    extra = children - np.bincount(np.arange(40) % early, minlength=early + late)
    assert extra.max() - extra.min() <= 1


def test_the_same_rounds_every_time() -> None:
    first, second = several_rounds(6, 2, 30), several_rounds(6, 2, 30)
    assert all(np.array_equal(a, b) for a, b in zip(first.rounds, second.rounds, strict=True))


def test_rounds_are_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        several_rounds(3, 2, 4).rounds[0][0, 0] = 1


@pytest.mark.parametrize(
    ("early", "late", "chunks", "owners"),
    [(0, 1, 1, None), (1, 0, 1, None), (1, 1, 0, None), (2, 1, 2, (0, 2)), (2, 1, 2, (0,))],
)
def test_nonsense_is_refused(early, late, chunks, owners) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        several_rounds(early, late, chunks, owners)


def broken(rows: list[list[int]], rounds: int = 1) -> SeveralRounds:
    good = several_rounds(2, 2, 1)
    return replace(good, rounds=(np.array(rows, dtype=np.int64), *good.rounds[rounds:]))


@pytest.mark.parametrize(
    ("rows", "rule"),
    [
        ([[2, 0, 0, 1], [2, 1, 0, 1]], "sends twice"),
        ([[2, 0, 0, 1], [3, 0, 0, 1]], "receives twice"),
        ([[0, 0, 0, 1]], "to itself"),
        ([[0, 4, 0, 1]], "out of range"),
        ([[0, 2, 0, 0], [2, 3, 0, 1]], "while it is replaced"),
        ([[2, 3, 0, 0]], "without the full sum|counts twice"),
    ],
)
def test_the_checker_names_the_rule(rows, rule) -> None:
    with pytest.raises(InvalidSeveralError, match=rule):
        check_several_rounds(broken(rows))


def test_the_checker_sees_what_is_missing_and_what_counts_twice() -> None:
    good = several_rounds(2, 2, 2)
    with pytest.raises(InvalidSeveralError, match="without the full sum"):
        check_several_rounds(replace(good, rounds=good.rounds[:-1]))
    with pytest.raises(InvalidSeveralError, match="counts twice"):
        twice = np.array([[0, 2, 0, 1]]), np.array([[0, 2, 0, 1]])
        check_several_rounds(replace(good, rounds=twice))


@pytest.mark.slow
def test_every_small_case() -> None:
    for ranks in range(2, 12):
        for late in range(1, ranks):
            for chunks in (1, 2, 3, ranks, 3 * ranks + 1):
                assert replay(several_rounds(ranks - late, late, chunks))


@pytest.mark.slow
def test_sixty_four_ranks() -> None:
    several = several_rounds(62, 2, 126)
    assert several.gap <= 0.05 * several.bound


@pytest.mark.parametrize("module", ["trees", "ring"])
def test_examples_in_docstrings(module) -> None:
    failed, tried = doctest.testmod(import_module(f"stragglar.synth.several.{module}"))
    assert tried and not failed
