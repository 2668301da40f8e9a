"""Patterns: the tile layout exists for all N but four, has the promised group sizes, and refuses nonsense."""

from __future__ import annotations

import numpy as np
import pytest

from stragglar.synth.merge.build import STORED, stored_pattern
from stragglar.synth.merge.pattern import Pattern
from stragglar.synth.merge.rounds import doublings
from stragglar.synth.merge.tiles import has_room, holders_by_age, holes_by_age, tile_pattern


def test_only_four_sizes_have_no_room() -> None:
    assert [early for early in range(1, 5000) if not has_room(early)] == [2, *STORED]


def check_groups(early: int) -> None:
    """Ages brought are H_a - H_(a-1) new holders below q; overdue ones as many as the bits of 2^q - n."""
    pattern, q, holders = tile_pattern(early), doublings(early + 1), holders_by_age(early)
    received = np.bincount(pattern.receives, minlength=q + 2)
    cuts = ((1 << q) - early - 1).bit_count()
    assert int(holes_by_age(early).sum()) == cuts
    assert received[:q].tolist() == np.diff(holders[:q], prepend=0).tolist()
    assert received[q + 1] == cuts
    assert received[q] == early - holders[q - 1] - cuts


@pytest.mark.parametrize("early", [n for n in range(1, 200) if has_room(n)])
def test_group_sizes(early: int) -> None:
    check_groups(early)


@pytest.mark.slow
def test_group_sizes_to_4096() -> None:
    for early in filter(has_room, range(200, 4097)):
        check_groups(early)


def test_power_of_two_is_the_closed_form() -> None:
    # Tiles 1, 1, 2, 3 roles long from role 0 on; role 0's send goes to the late rank.
    assert tile_pattern(7).receives.tolist() == [0, 2, 2, 3, 1, 3, 3]
    assert tile_pattern(7).sends.tolist() == [0, 3, 3, 2, 3, 2, 1]


@pytest.mark.parametrize("early", [2, 4, 8, 16])
def test_no_room_is_refused(early: int) -> None:
    with pytest.raises(ValueError, match="no room"):
        tile_pattern(early)


@pytest.mark.parametrize(
    ("receives", "sends", "message"),
    [
        ([], [], "one age"),
        ([0, 1, 3, 4], [0, 3, 4], "one age"),
        ([1, 0, 3, 4], [0, 3, 4, 1], "role 0"),
        ([0, 0, 3, 4], [0, 3, 4, 0], "role 0"),
        ([0, 1, 4, 4], [0, 4, 4, 1], "receives a chunk twice"),
        ([0, 1, 3, 4], [0, 3, 3, 1], "more receivers"),
        ([0, 1, 3, 4], [0, 1, 4, 3], "does not hold"),
    ],
)
def test_broken_patterns_are_refused(receives: list[int], sends: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Pattern(np.array(receives, dtype=np.int32), np.array(sends, dtype=np.int32))


@pytest.mark.parametrize("early", [*STORED, 3, 6, 13, 100])
def test_copies_go_from_holders_to_others(early: int) -> None:
    pattern = stored_pattern(early) if early in STORED else tile_pattern(early)
    copies = pattern.copies()
    assert len(copies) == early - 1
    assert sorted(copies[:, 0]) == sorted(copies[:, 1]) == list(range(1, early))
    for sender, receiver, age in copies.tolist():
        holds = pattern.holds(age)
        assert holds[sender]
        assert not holds[receiver]
