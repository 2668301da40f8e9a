"""An independent check: replays the rounds with sets of contributions."""

from __future__ import annotations

import numpy as np

from .rounds import ADDS, CHUNK, DST, SRC, IntArray, InvalidSeveralError, SeveralRounds


def check_several_rounds(several: SeveralRounds) -> None:
    """Replay the rounds and raise on the first breach of a rule.

    The rules: at most one send and one receive a rank and round; an addition joins disjoint sets; no rank
    sends a chunk that the same round copies onto it; at the end all hold the full sum of every chunk.

    Raises:
        InvalidSeveralError: naming the rule and the round.
    """
    early, late, chunks = several.early, several.late, several.chunks
    if early < 1 or late < 1 or chunks < 1 or len(several.owners) != chunks:
        raise InvalidSeveralError(
            "early and late ranks, chunks: at least 1 each, and an owner for every chunk"
        )
    # Bit 0 is the sum of the early parts, bit 1 + i the part of late rank i. An early rank that is not the
    # owner holds its own part, which the sum has already: the last bit, which must be gone in the end.
    stale, full = 1 << (late + 1), (1 << (late + 1)) - 1
    held = [[stale] * chunks for _ in range(early)] + [[2 << i] * chunks for i in range(late)]
    for chunk, owner in enumerate(several.owners):
        held[owner][chunk] = 1
    for r, rows in enumerate(several.rounds):
        _check_ports(several, r, rows)
        _replay(held, r, rows)
    for rank, row in enumerate(held):
        for chunk, parts in enumerate(row):
            _require(parts == full, f"rank {rank} ends without the full sum of chunk {chunk}", r)


def _require(holds: bool | np.bool_, rule: str, r: int) -> None:
    if not holds:
        raise InvalidSeveralError(f"round {r}: {rule}")


def _check_ports(several: SeveralRounds, r: int, rows: IntArray) -> None:
    _require(rows.ndim == 2 and rows.shape[1:] == (4,) and rows.dtype.kind == "i", "not (t, 4) integers", r)
    _require(len(rows) > 0, "nothing is sent", r)
    limits = (several.ranks, several.ranks, several.chunks, 2)
    _require((rows >= 0).all() and (rows < limits).all(), "a number out of range", r)
    # With sources in strictly ascending order the rows are sorted and no rank sends twice.
    _require((np.diff(rows[:, SRC]) > 0).all(), "rows out of order, or a rank sends twice", r)
    _require(np.bincount(rows[:, DST]).max() == 1, "a rank receives twice", r)
    _require((rows[:, SRC] != rows[:, DST]).all(), "a rank sends to itself", r)


def _replay(held: list[list[int]], r: int, rows: IntArray) -> None:
    replaced = {(row[DST], row[CHUNK]) for row in rows.tolist() if not row[ADDS]}
    moves = [(*row, held[row[SRC]][row[CHUNK]]) for row in rows.tolist()]
    for src, dst, chunk, adds, parts in moves:
        _require((src, chunk) not in replaced, f"rank {src} sends chunk {chunk} while it is replaced", r)
        if adds:
            _require(not held[dst][chunk] & parts, f"a part of chunk {chunk} counts twice at rank {dst}", r)
            parts |= held[dst][chunk]
        held[dst][chunk] = parts
