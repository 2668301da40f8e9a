"""check_merge_rounds catches every kind of damage done to a valid post phase."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stragglar.synth.merge import InvalidMergeError, MergeRounds, check_merge_rounds, merge_rounds

Rounds = list[list[list[int]]]


def damaged(change: Callable[[Rounds], None], early: int = 6, chunks: int = 8) -> MergeRounds:
    """A valid post phase after `change` was made to its rounds, given as nested lists."""
    rounds = [rows.tolist() for rows in merge_rounds(early, chunks).rounds]
    change(rounds)
    tables = tuple(np.array(rows, dtype=np.int32).reshape(-1, 3) for rows in rounds)
    return MergeRounds(early, chunks, tables, "damaged")


def copy_in(rounds: Rounds, r: int, late: int = 6) -> list[int]:
    """The first transfer of round r between early ranks."""
    return next(row for row in rounds[r] if late not in row[:2])


def send_at_once(rounds: Rounds) -> None:
    """Let a rank send the chunk that this very round brings it."""
    copies = [row for row in rounds[5] if 6 not in row[:2]]
    brought, onward = next((a, b) for a in copies for b in copies if a[1] == b[0])
    onward[2] = brought[2]


def shift(rounds: Rounds) -> None:
    rounds[0], rounds[1] = rounds[1], rounds[0]


def extra(rounds: Rounds) -> None:
    """Send once more, in a last round, what everybody has."""
    rounds.append([[0, 1, 0]])


def double_receive(rounds: Rounds) -> None:
    rounds[5][0][1] = rounds[5][1][1]


def late_copies_early(rounds: Rounds) -> None:
    """The late rank copies to a second early rank during the swaps, in the place of its half of one."""
    row = next(row for row in rounds[3] if row[0] == 6)
    row[1], row[2] = 0, 0


def late_receives_late(rounds: Rounds) -> None:
    rounds[-1][0][1] = 6


CASES: dict[str, tuple[Callable[[Rounds], None], str]] = {
    "a transfer lost": (lambda r: r[4].remove(copy_in(r, 4)), "does not hold|never gets"),
    "the last round lost": (lambda r: r.pop() and None, "never gets"),
    "a swap half lost": (lambda r: r[3].remove(next(x for x in r[3] if x[1] == 6)), "must swap"),
    "swaps out of turn": (shift, "must swap"),
    "wrong chunk": (lambda r: copy_in(r, 5).__setitem__(2, 7), "does not hold"),
    "chunk out of range": (lambda r: copy_in(r, 5).__setitem__(2, 8), "out of range"),
    "negative chunk": (lambda r: copy_in(r, 5).__setitem__(2, -1), "out of range"),
    "rank out of range": (lambda r: copy_in(r, 5).__setitem__(1, 7), "out of range"),
    "to itself": (lambda r: copy_in(r, 5).__setitem__(1, copy_in(r, 5)[0]), "twice|itself"),
    "received twice": (double_receive, "receives twice"),
    "sent twice": (lambda r: r[5][1].__setitem__(0, r[5][0][0]), "sends twice"),
    "out of order": (lambda r: r[5].reverse(), "out of order"),
    "an empty round": (lambda r: r.insert(4, []), "nothing is sent"),
    "delivered again": (extra, "second time"),
    "the late rank copies too early": (late_copies_early, "must swap"),
    "the late rank receives too late": (late_receives_late, "after the last swap|receives twice"),
    "what the round itself brings": (send_at_once, "does not hold"),
}


@pytest.mark.parametrize("name", CASES)
def test_damage_is_caught(name: str) -> None:
    change, message = CASES[name]
    with pytest.raises(InvalidMergeError, match=message):
        check_merge_rounds(damaged(change))


@pytest.mark.parametrize(
    "rows", [np.zeros((2, 4), dtype=np.int32), np.zeros(3, dtype=np.int32), np.array([[0.0, 1.0, 0.0]])]
)
def test_not_a_table(rows: np.ndarray) -> None:
    with pytest.raises(InvalidMergeError, match="integers"):
        check_merge_rounds(MergeRounds(1, 1, (rows,), "damaged"))


def test_no_ranks_or_no_chunks() -> None:
    for early, chunks in ((0, 1), (1, 0)):
        with pytest.raises(InvalidMergeError, match="at least 1"):
            check_merge_rounds(MergeRounds(early, chunks, (), "damaged"))


@given(st.integers(3, 30), st.integers(1, 40), st.randoms(use_true_random=False), st.integers(0, 2))
@settings(max_examples=150, deadline=None)
def test_any_changed_entry_is_caught(early: int, chunks: int, random: object, column: int) -> None:
    rng = np.random.default_rng(random.randrange(1 << 30))  # type: ignore[attr-defined]
    rounds = [rows.copy() for rows in merge_rounds(early, chunks).rounds]
    rows = rounds[int(rng.integers(len(rounds)))]
    row = rows[int(rng.integers(len(rows)))]
    new = int(rng.integers(chunks if column == 2 else early + 1))
    assume(new != row[column])
    row[column] = new
    # A changed sender may well be another holder that is free; every other change breaks something.
    try:
        check_merge_rounds(MergeRounds(early, chunks, tuple(rounds), "damaged"))
    except InvalidMergeError:
        return
    assert column == 0


def test_wrong_size_claimed() -> None:
    m = merge_rounds(6, 8)
    for early, chunks in ((7, 8), (5, 8), (6, 9), (6, 7)):
        with pytest.raises(InvalidMergeError):
            check_merge_rounds(MergeRounds(early, chunks, m.rounds, m.method))
