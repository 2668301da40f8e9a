"""An independent check of merge rounds: replays them knowing nothing of how they were made."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .rounds import CHUNK, DST, SRC, IntArray, InvalidMergeError, MergeRounds

Held = npt.NDArray[np.bool_]


def check_merge_rounds(m: MergeRounds) -> None:
    """Replay the rounds and raise on the first breach of the merge family's rules.

    The rules: at most one send and one receive a rank and round; in round r < k early rank r mod N and the
    late rank swap chunk r and the late rank does nothing else; every other transfer copies a chunk that
    was complete at its sender before the round to an early rank that lacked it; at the end all hold all.
    O(transfers) time, one bool per (rank, chunk).

    Raises:
        InvalidMergeError: naming the rule and the round.
    """
    if m.early < 1 or m.chunks < 1:
        raise InvalidMergeError(f"{m.early} early ranks, {m.chunks} chunks: both must be at least 1")
    held: Held = np.zeros((m.early + 1, m.chunks), dtype=np.bool_)
    for r, rows in enumerate(m.rounds):
        _check_shape(m, r, rows)
        copies = _check_late(m, r, rows)
        _check_copies(held, r, rows[copies])
        held[rows[:, DST], rows[:, CHUNK]] = True
    if not held.all():
        rank, chunk = np.argwhere(~held)[0].tolist()
        raise InvalidMergeError(f"rank {rank} never gets chunk {chunk}")


def _require(holds: bool | np.bool_, rule: str, r: int) -> None:
    if not holds:
        raise InvalidMergeError(f"round {r}: {rule}")


def _check_shape(m: MergeRounds, r: int, rows: IntArray) -> None:
    """Integers in range, sorted, one send and one receive a rank."""
    _require(rows.ndim == 2 and rows.shape[1:] == (3,) and rows.dtype.kind == "i", "not (t, 3) integers", r)
    _require(len(rows) > 0, "nothing is sent", r)
    limits = (m.early + 1, m.early + 1, m.chunks)
    _require((rows >= 0).all() and (rows < limits).all(), "a rank or chunk out of range", r)
    # With sources in strictly ascending order the rows are sorted and no rank sends twice.
    _require((np.diff(rows[:, SRC]) > 0).all(), "rows out of order, or a rank sends twice", r)
    _require(np.bincount(rows[:, DST]).max() == 1, "a rank receives twice", r)
    _require((rows[:, SRC] != rows[:, DST]).all(), "a rank sends to itself", r)


def _check_late(m: MergeRounds, r: int, rows: IntArray) -> Held:
    """The late rank swaps chunk r in round r < k and only sends afterwards; returns which rows are copies."""
    late = m.early
    of_late = (rows[:, SRC] == late) | (rows[:, DST] == late)
    if r >= m.chunks:
        _require((rows[:, DST] != late).all(), "the late rank receives after the last swap", r)
        return np.ones(len(rows), dtype=np.bool_)
    owner = r % m.early
    swap = [[owner, late, r], [late, owner, r]]
    _require(rows[of_late].tolist() == swap, f"the late rank must swap chunk {r} with rank {owner}", r)
    copies: Held = ~of_late
    return copies


def _check_copies(held: Held, r: int, copies: IntArray) -> None:
    """A copy's chunk is complete at the sender before the round, and new to the receiver."""
    _require(held[copies[:, SRC], copies[:, CHUNK]].all(), "a copy of a chunk its sender does not hold", r)
    _require(not held[copies[:, DST], copies[:, CHUNK]].any(), "a chunk is delivered a second time", r)
