"""From a solver's transfers to rounds: needless transfers dropped, and for each whether the receiver adds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ..merge.rounds import IntArray
from .model import Move

PARTIAL, RAW = 1, 2
FINISHED = PARTIAL | RAW
Halves = dict[tuple[int, int], int]
"""(rank, chunk) -> the halves it holds; absent: none."""


def to_rounds(moves: Sequence[Sequence[Move]], early: int, chunks: int) -> tuple[IntArray, ...]:
    """Rounds as sorted int32 rows (src, dst, chunk, adds), less the transfers and rounds that nobody needs.

    Raises:
        ValueError: some rank ends without some chunk.
    """
    if not _complete(moves, early, chunks):
        raise ValueError("the transfers do not bring every chunk to every rank")
    kept = _needed([list(rows) for rows in moves], early, chunks)
    held, rounds = _start(early, chunks), []
    for rows in filter(None, kept):
        rounds.append([(*move, _adds(held, move)) for move in rows])
        _play(held, rows)
    return tuple(np.array(sorted(rows), dtype=np.int32).reshape(-1, 4) for rows in rounds)


def _start(early: int, chunks: int) -> Halves:
    owners = {(c % early, c): PARTIAL for c in range(chunks)}
    return owners | {(early, c): RAW for c in range(chunks)}


def _play(held: Halves, rows: Iterable[Move]) -> None:
    """One round: all transfers read what was there before it."""
    got = [(dst, chunk, held.get((src, chunk), 0)) for src, dst, chunk in rows]
    for dst, chunk, halves in got:
        held[dst, chunk] = held.get((dst, chunk), 0) | halves


def _adds(held: Halves, move: Move) -> int:
    src, dst, chunk = move
    return int(held[src, chunk] | held.get((dst, chunk), 0) == FINISHED != held[src, chunk])


def _complete(moves: Iterable[Iterable[Move]], early: int, chunks: int) -> bool:
    held = _start(early, chunks)
    for rows in moves:
        _play(held, rows)
    return all(held.get((rank, c)) == FINISHED for rank in range(early + 1) for c in range(chunks))


def _needed(moves: list[list[Move]], early: int, chunks: int) -> list[list[Move]]:
    """The same moves less those that can go, last first; what remains would be incomplete without any one."""
    for rows in reversed(moves):
        for move in list(rows):
            place = rows.index(move)
            rows.remove(move)
            if not _complete(moves, early, chunks):
                rows.insert(place, move)
    return moves
