"""Exact mode: confirms the bound independently of our constructions, and shows what pairing costs."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from stragglar.schedules.errors import InfeasibleError
from stragglar.synth.exact import ExactResult, exact_rounds
from stragglar.synth.exact.moves import to_rounds


def replay(result: ExactResult) -> None:
    """Replay with sets of contributing ranks; knows nothing of the solver's model."""
    late, everyone = result.early, frozenset(range(result.early + 1))
    held = {(late, c): frozenset([late]) for c in range(result.chunks)}
    held |= {(c % late, c): everyone - {late} for c in range(result.chunks)}
    for rows in result.rounds:
        moves = rows.tolist()
        assert moves == sorted(moves)
        assert len({m[0] for m in moves}) == len({m[1] for m in moves}) == len(moves) > 0
        if result.pairwise:
            sent_to = {src: dst for src, dst, _, _ in moves}
            assert all(sent_to.get(dst, src) == src for src, dst in sent_to.items())
        for dst, c, adds, value in [(dst, c, adds, held[src, c]) for src, dst, c, adds in moves]:
            mine = held.get((dst, c), frozenset())
            if adds:
                assert mine and not mine & value, "counted twice, or added to stale data"
                held[dst, c] = mine | value
            else:
                assert mine < value, "a copy brings nothing, or loses something"
                held[dst, c] = value
    assert all(held.get((rank, c)) == everyone for rank in everyone for c in range(result.chunks))


def check(early: int, chunks: int, gap: int = 0, *, pairwise: bool = False) -> None:
    result = exact_rounds(early, chunks, pairwise=pairwise)
    replay(result)
    assert result.proved and result.status == "optimal"
    assert len(result.rounds) == chunks + early.bit_length() - 1 + gap == result.bound + gap


def refuse(early: int, chunks: int, rounds: int, *, pairwise: bool = False) -> None:
    with pytest.raises(InfeasibleError, match=f"post phase of {rounds} rounds .* exists"):
        exact_rounds(early, chunks, pairwise=pairwise, rounds=rounds)


def below_bound(early: int, chunks: int) -> int:
    return chunks + early.bit_length() - 2


FAST = [(n, k) for n in range(2, 7) for k in range(1, n + 1)] + [(7, k) for k in range(1, 7)]
SLOW = [(7, 7), (7, 8), (8, 6), (8, 7), (5, 8), (6, 8), (6, 10)]


@pytest.mark.parametrize(("ranks", "chunks"), FAST)
def test_the_bound_is_met(ranks: int, chunks: int) -> None:
    check(ranks - 1, chunks)


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "chunks"), SLOW)
def test_the_bound_is_met_slowly(ranks: int, chunks: int) -> None:
    check(ranks - 1, chunks)


@pytest.mark.parametrize(("ranks", "chunks"), [(n, k) for n, k in FAST if below_bound(n - 1, k) > 0])
def test_nothing_is_below_the_bound(ranks: int, chunks: int) -> None:
    refuse(ranks - 1, chunks, below_bound(ranks - 1, chunks))


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "chunks"), [(8, 7), (8, 6), (7, 7), (7, 8), (5, 8), (6, 8)])
def test_nothing_is_below_the_bound_slowly(ranks: int, chunks: int) -> None:
    refuse(ranks - 1, chunks, below_bound(ranks - 1, chunks))


@pytest.mark.parametrize(("early", "chunks"), [(2, 2), (3, 3), (3, 6), (4, 4), (4, 5), (5, 5)])
def test_pairing_is_free_for_these(early: int, chunks: int) -> None:
    check(early, chunks, pairwise=True)


@pytest.mark.parametrize(("early", "chunks"), [(2, 3), (2, 4), (6, 3), (6, 4)])
def test_pairing_costs_a_round(early: int, chunks: int) -> None:
    check(early, chunks, gap=1, pairwise=True)


@pytest.mark.slow
@pytest.mark.parametrize(("early", "chunks"), [(4, 6), (4, 8), (6, 5), (6, 6)])
def test_pairing_costs_a_round_slowly(early: int, chunks: int) -> None:
    check(early, chunks, gap=1, pairwise=True)


def test_seven_ranks_pairwise_cannot_meet_the_bound() -> None:
    refuse(6, 6, 8, pairwise=True)
    result = exact_rounds(6, 6, pairwise=True, rounds=9)
    replay(result)
    assert (len(result.rounds), result.gap, result.undecided) == (9, 1, (8,))
    assert result.status == "cut off: 8 rounds not excluded"  # this call did not ask about 8


@pytest.mark.slow
def test_eight_ranks_pairwise_meet_the_bound() -> None:
    check(7, 7, pairwise=True)


def test_cut_off_says_so() -> None:
    with pytest.raises(InfeasibleError, match=r"within 0\.01 s: cut off before it was decided"):
        exact_rounds(6, 6, rounds=8, time_limit=0.01)


@pytest.mark.parametrize(("early", "chunks", "rounds"), [(0, 1, None), (1, 0, None), (3, 3, 0)])
def test_nonsense_is_refused(early: int, chunks: int, rounds: int | None) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        exact_rounds(early, chunks, rounds=rounds)


def test_needless_transfers_are_dropped_and_holes_found() -> None:
    swap, needless = [(0, 1, 0), (1, 0, 0)], [(0, 1, 0)]
    rounds = to_rounds([swap, needless], 1, 1)
    assert [rows.tolist() for rows in rounds] == [[[0, 1, 0, 1], [1, 0, 0, 1]]]
    with pytest.raises(ValueError, match="do not bring"):
        to_rounds([swap[:1]], 1, 1)


def test_rounds_are_read_only() -> None:
    rows = exact_rounds(2, 2).rounds[0]
    assert rows.dtype == np.int32
    with pytest.raises(ValueError, match="read-only"):
        rows[0, 0] = 1


ONCE = """
import sys
from stragglar.synth import exact
assert "ortools" not in sys.modules
print([rows.tolist() for rows in exact.exact_rounds(5, 5).rounds])
"""


def test_same_rounds_in_every_process_and_solver_loaded_late() -> None:
    answers = {
        subprocess.run(
            [sys.executable, "-c", ONCE],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(answers) == 1
