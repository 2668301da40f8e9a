"""The ring of three: replayed with contribution sets, one round over the chunks."""

from __future__ import annotations

import pytest

from stragglar.synth.merge import ring_of_three


def replay(chunks: int) -> int:
    """Number of rounds, after checking ports, double counting and completeness."""
    everyone = frozenset(range(3))
    held = {(2, c): frozenset([2]) for c in range(chunks)} | {
        (c % 2, c): frozenset([0, 1]) for c in range(chunks)
    }
    rounds = ring_of_three(chunks)
    for rows in rounds:
        moves = rows.tolist()
        assert moves == sorted(moves)
        assert len({m[0] for m in moves}) == len({m[1] for m in moves}) == len(moves) > 0
        got = [(dst, c, adds, held[src, c]) for src, dst, c, adds in moves]
        for dst, c, adds, value in got:
            if adds:
                assert not held[dst, c] & value
                value |= held[dst, c]
            else:
                assert value == everyone
            assert held.get((dst, c)) != everyone
            held[dst, c] = value
    assert all(held.get((rank, c)) == everyone for rank in range(3) for c in range(chunks))
    return len(rounds)


@pytest.mark.parametrize("chunks", [*range(2, 40), 101, 256])
def test_meets_the_bound(chunks: int) -> None:
    assert replay(chunks) == chunks + 1


def test_one_chunk_is_refused() -> None:
    with pytest.raises(ValueError, match="needs 2"):
        ring_of_three(1)
