"""merge_rounds: valid and on the bound for every number of early ranks and chunks, and always the same."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stragglar.synth.merge import MergeRounds, check_merge_rounds, merge_rounds


def rounds_expected(early: int, chunks: int) -> int:
    """The bound, and for two early ranks what swaps cost."""
    if early == 2:
        return chunks + -(-chunks // 2)
    return chunks + early.bit_length() - 1


def check(early: int, chunks: int) -> MergeRounds:
    """Build, replay, compare with the expected number of rounds."""
    m = merge_rounds(early, chunks)
    assert (m.early, m.chunks) == (early, chunks)
    check_merge_rounds(m)
    assert len(m.rounds) == rounds_expected(early, chunks) == m.bound + m.gap
    return m


def contributions_complete(m: MergeRounds) -> bool:
    """Replay with sets of contributing ranks instead of finished / unfinished: slow, and knows no ages."""
    late, everyone = m.early, frozenset(range(m.early + 1))
    held: dict[tuple[int, int], frozenset[int]] = {}
    for c in range(m.chunks):
        held[late, c] = frozenset([late])
        held[c % m.early, c] = everyone - {late}
    for r, rows in enumerate(m.rounds):
        moved = [(dst, c, held[src, c]) for src, dst, c in rows.tolist()]
        for dst, c, got in moved:
            if c == r:
                assert not held[dst, c] & got, "counted twice"
                got = held[dst, c] | got
            held[dst, c] = got
    return all(held.get((rank, c)) == everyone for rank in everyone for c in range(m.chunks))


@pytest.mark.parametrize("early", range(1, 80))
def test_every_small_n_meets_the_bound(early: int) -> None:
    for chunks in (early, early + 1, 2 * early + 3):
        check(early, chunks)


@pytest.mark.parametrize("early", range(1, 40))
def test_few_chunks_meet_the_bound(early: int) -> None:
    for chunks in range(1, early.bit_length() + 4):
        check(early, chunks)


@given(st.integers(1, 150), st.integers(1, 200))
@settings(max_examples=60, deadline=None)
def test_any_pair_meets_the_bound(early: int, chunks: int) -> None:
    check(early, chunks)


@given(st.integers(1, 20), st.integers(1, 25))
@settings(max_examples=60, deadline=None)
def test_every_contribution_arrives_once(early: int, chunks: int) -> None:
    assert contributions_complete(merge_rounds(early, chunks))


@pytest.mark.parametrize("early", [4, 8, 16])
def test_stored_patterns_serve_every_chunk_count(early: int) -> None:
    # From k = q + 2 on the last rounds are the same but for the turn, so these k stand for all.
    for chunks in range(1, 2 * early + 9):
        assert check(early, chunks).method == "stored"


@pytest.mark.parametrize(("early", "chunks"), [(254, 254), (255, 255), (499, 250), (510, 510), (776, 777)])
def test_large_n_meets_the_bound(early: int, chunks: int) -> None:
    check(early, chunks)


def test_a_thousand_ranks() -> None:
    m = check(1023, 1023)
    assert sum(len(rows) for rows in m.rounds) == 1023 * 1024


def test_one_early_rank_only_swaps() -> None:
    m = check(1, 3)
    assert [rows.tolist() for rows in m.rounds] == [[[0, 1, c], [1, 0, c]] for c in range(3)]


def test_a_single_chunk_doubles() -> None:
    sizes = [len(rows) for rows in check(7, 1).rounds]
    assert sizes == [2, 2, 4]


@pytest.mark.parametrize(("early", "chunks"), [(0, 1), (1, 0), (-3, 5)])
def test_nothing_to_merge_is_refused(early: int, chunks: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        merge_rounds(early, chunks)


def test_rounds_are_read_only_int32() -> None:
    rows = merge_rounds(6, 6).rounds[2]
    assert rows.dtype == np.int32
    with pytest.raises(ValueError, match="read-only"):
        rows[0, 0] = 1


DIGEST = """
import hashlib, sys
from stragglar.synth.merge import merge_rounds
before = set(sys.modules)
digest = hashlib.sha256()
for early, chunks in [(5, 12), (6, 7), (8, 9), (99, 99), (127, 130)]:
    for rows in merge_rounds(early, chunks).rounds:
        digest.update(rows.tobytes())
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
assert not loaded & {"ortools", "scipy", "networkx"}, loaded
print(digest.hexdigest())
"""


def digest_in_new_process(hash_seed: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", DIGEST],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.strip()


def test_same_rounds_in_every_process_and_no_solver_loaded() -> None:
    here = hashlib.sha256()
    for early, chunks in [(5, 12), (6, 7), (8, 9), (99, 99), (127, 130)]:
        for rows in merge_rounds(early, chunks).rounds:
            here.update(rows.tobytes())
    assert digest_in_new_process("1") == digest_in_new_process("2") == here.hexdigest()


@pytest.mark.slow
def test_sweep_every_n_to_1024_with_a_chunk_a_rank() -> None:
    for early in range(1, 1024):
        check(early, early)


@pytest.mark.slow
def test_sweep_every_n_to_1024_with_few_chunks() -> None:
    for early in range(1, 1024):
        for chunks in range(1, early.bit_length() + 4):
            check(early, chunks)


@pytest.mark.slow
def test_sweep_chunk_counts() -> None:
    for early in range(1, 70):
        for chunks in range(1, 3 * early + 12):
            check(early, chunks)


@pytest.mark.slow
@pytest.mark.parametrize("early", [1535, 2047, 2048, 3000, 4094, 4095])
def test_thousands_of_ranks(early: int) -> None:
    check(early, early)
