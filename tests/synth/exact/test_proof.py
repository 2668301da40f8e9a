"""Every numbered step of docs/proof.md, checked as arithmetic on the constructions themselves."""

from __future__ import annotations

import numpy as np
import pytest

from stragglar.synth.merge import check_merge_rounds, merge_rounds, ring_of_three
from stragglar.synth.merge.build import STORED, stored_pattern
from stragglar.synth.merge.pattern import Pattern
from stragglar.synth.merge.tiles import has_room, holders_by_age, holes_by_age, tile_pattern
from stragglar.synth.merge.unroll import unroll

NO_ROOM = [3, 5, 9, 17]


def doublings(n: int) -> int:
    return (n - 1).bit_length()


def check_counts(n: int) -> None:
    """Steps 1 to 3: holders halve upward, holes are the bits of 2^q - n, lengths exceed N by D."""
    q, spare = doublings(n), (1 << doublings(n)) - n
    holders, holes = holders_by_age(n - 1), holes_by_age(n - 1)
    assert holders.tolist() == [(1 << a) - (spare >> (q - a)) for a in range(q + 1)]
    assert holes.tolist() == [spare >> (q - a) & 1 for a in range(1, q + 1)]
    lengths = int(sum(holders[:q]))
    assert lengths == n - 1 + spare.bit_count()


def tiles_of(pattern: Pattern) -> list[tuple[int, int, int]]:
    """(first role, role after it, type) of each tile, read off the ages received."""
    starts = np.flatnonzero(pattern.receives < pattern.doublings)
    ends = np.append(starts[1:], pattern.early)
    return [
        (int(s), int(e), int(pattern.receives[e % pattern.early])) for s, e in zip(starts, ends, strict=True)
    ]


def check_layout(n: int) -> None:
    """Steps 4 to 6: which tiles are cut, what lies before them, what each age's senders are."""
    pattern, q = tile_pattern(n - 1), doublings(n)
    tiles, cuts = tiles_of(pattern), ((1 << q) - n).bit_count()
    assert [a for _, _, a in tiles] == sorted((a for _, _, a in tiles), reverse=True)
    short = [e - s != q - a for s, e, a in tiles]
    assert short == [False] * (len(tiles) - cuts) + [True] * cuts
    assert all(tiles[j - 1][1] - tiles[j - 1][0] >= 2 for j, cut in enumerate(short) if cut)
    late = [s - 1 for (s, _, _), cut in zip(tiles, short, strict=True) if cut]
    assert np.flatnonzero(pattern.receives == q + 1).tolist() == late
    extra = set(np.flatnonzero(pattern.sends == q + 1).tolist())
    assert len(extra) == cuts and not extra & {0, *late}


def classes_before_last_round(pattern: Pattern, chunks: int) -> list[list[int]]:
    """For each early rank the chunks that it misses before the last round, by replay."""
    early = pattern.early
    held = np.zeros((early + 1, chunks), dtype=bool)
    for rows in unroll(pattern, chunks)[:-1]:
        held[rows[:, 1], rows[:, 2]] = True
    assert held[early].all()
    return [np.flatnonzero(~held[rank]).tolist() for rank in range(early)]


def check_classes(n: int, chunks: int) -> None:
    """Step 8: the three classes of the last round."""
    missing = classes_before_last_round(tile_pattern(n - 1), chunks)
    half, cuts = -(-n // 2), ((1 << doublings(n)) - n).bit_count()
    sizes = {chunks - 1: half - cuts, chunks - 2: n - 1 - half, chunks - 3: cuts}
    assert max(sizes.values()) <= n // 2
    for chunk, size in sizes.items():
        if chunk >= 0:
            assert missing.count([chunk]) == size
    assert all(len(chunks_missed) <= 1 for chunks_missed in missing)


def check_all(n: int) -> None:
    check_counts(n)
    if n - 1 >= 2 and has_room(n - 1):
        check_layout(n)
    if n - 1 >= 3 and has_room(n - 1):
        for chunks in (1, 2, 3, doublings(n) + 3):
            check_classes(n, chunks)


def test_only_four_rank_counts_have_no_room() -> None:
    # q >= 6 is argued in the text; up to there and far beyond it is counted.
    assert [n for n in range(2, 5000) if not has_room(n - 1)] == NO_ROOM
    assert all((1 << (q - 4)) + 1 >= q - 1 and (1 << (q - 3)) + 1 > q - 1 for q in range(6, 64))


@pytest.mark.parametrize("n", range(2, 132))
def test_every_step(n: int) -> None:
    check_all(n)


@pytest.mark.slow
def test_every_step_to_1024() -> None:
    for n in range(132, 1025):
        check_all(n)


@pytest.mark.parametrize("early", STORED)
def test_stored_patterns_need_one_length(early: int) -> None:
    """Step 9: at one k of q + 2 or more, everything that other lengths need."""
    pattern = stored_pattern(early)
    chunks = pattern.doublings + 2
    missing = classes_before_last_round(pattern, chunks)
    assert all(len(chunks_missed) <= 1 for chunks_missed in missing)
    sizes = [missing.count([chunk]) for chunk in range(chunks)]
    assert sum(sizes) == early and max(sizes) <= (early + 1) // 2
    check_merge_rounds(merge_rounds(early, chunks))


@pytest.mark.parametrize("chunks", range(2, 60))
def test_ring_of_three_ports(chunks: int) -> None:
    """Section on n = 3: the late rank sends in rounds 0..k-1, rank 0 a round later, rank 1 in k of 0..k."""
    busy: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for r, rows in enumerate(ring_of_three(chunks)):
        for src, dst, _, _ in rows.tolist():
            assert dst == (src + 1) % 3
            busy[src].append(r)
    assert busy[2] == list(range(chunks))
    assert busy[0] == list(range(1, chunks + 1))
    assert len(set(busy[1])) == chunks
