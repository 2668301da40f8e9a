"""Packs the transfers into rounds: one maximum-weight matching of senders to receivers a round.

The trees say who merges where (`trees.py`); who hands on a finished chunk to whom is left open, so that ports
find work. What is ready is weighed by: the chunk's turn (older ones first: without it merges and copies of
ever more chunks get into each other's way, 1 to 17 % more rounds in a sketch), how rare the finished chunk
is, and how much the receiver has yet to receive (so that all end together).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from .matching import best_matching
from .rounds import BoolArray, IntArray
from .trees import Sources, merge_trees

Weights = NDArray[np.float64]

BASE = 3.0
"""What any transfer is worth at least, so that many transfers win over good ones."""

WINDOW = 6
"""Chunks looked at in a round, times n: the oldest. It bounds the work; more would hardly be chosen."""


@dataclass(frozen=True, slots=True)
class Knobs:
    """Weights of one try.

    Attributes:
        merge: of a merge; 0..1 is the scale of rarity.
        load: of what a receiver has yet to receive.
        turn: of the age of a chunk.
        noise: of chance, which makes tries differ.
        seed: of that chance.
    """

    merge: float = 1.2
    load: float = 0.3
    turn: float = 8.0
    noise: float = 0.05
    seed: int = 0

    @property
    def base(self) -> float:
        """Worth of any transfer: above 0 whatever its chunk's turn, or a matching would leave it out."""
        return BASE + self.turn


class _State:
    """What every rank holds, and what remains to be done."""

    def __init__(self, ranks: int, sources: Sources) -> None:
        parents, chunks = merge_trees(ranks, sources), len(sources)
        roots = np.array([nodes[0] for nodes in sources])
        self.parents, self.chunks = parents, chunks
        self.children = np.zeros((chunks, ranks), dtype=np.int64)
        where, child = np.nonzero(parents >= 0)
        np.add.at(self.children, (where, parents[where, child]), 1)
        self.complete = np.zeros((ranks, chunks), dtype=np.bool_)
        self.sums = np.array([len(nodes) for nodes in sources])  # unmerged sums of a chunk
        self.complete[roots[self.sums == 1], np.flatnonzero(self.sums == 1)] = True
        self.unsent = parents >= 0  # (chunk, rank): has a sum to give to its parent
        self.remaining = chunks - np.bincount(roots, minlength=ranks) + self.children.sum(axis=0)

    def apply(self, rows: IntArray) -> None:
        """Carries a round out. Of two sums either may go to the other, or both: whoever adds is complete."""
        merges: dict[int, list[tuple[int, int]]] = {}
        for src, dst, chunk, adds in rows.tolist():
            self.remaining[dst] -= 1
            if adds:
                merges.setdefault(chunk, []).append((src, dst))
            else:
                self.complete[dst, chunk] = True
        for chunk, pairs in merges.items():
            if self.sums[chunk] == 2:
                self.sums[chunk] = 1
                self.complete[[dst for _, dst in pairs], chunk] = True
                continue
            for src, dst in pairs:
                self.unsent[chunk, src] = False
                self.children[chunk, dst] -= 1
                self.sums[chunk] -= 1


def pack(ranks: int, sources: Sources, knobs: Knobs, limit: int) -> list[IntArray] | None:
    """The rounds for chunks in the order of their turns, as rows (src, dst, chunk, adds).

    Args:
        ranks: n.
        sources: for every chunk the ranks that hold a part of it, see `trees.py`.
        knobs: the weights.
        limit: give up where that many rounds are not undercut.

    Returns:
        The rounds; None as soon as they would be `limit` or more.
    """
    state = _State(ranks, sources)
    chance = np.random.default_rng(knobs.seed)
    rounds: list[IntArray] = []
    while not state.complete.all():
        # The busiest port needs a round for each of its transfers.
        if len(rounds) + int(state.remaining.max()) >= limit:
            return None
        rows = _round(state, knobs, chance)
        state.apply(rows)
        rounds.append(rows)
    return rounds


def _round(state: _State, knobs: Knobs, chance: Generator) -> IntArray:
    worth, chunk, adds = _copies(state, knobs, chance)
    _add_merges(state, knobs, chance, (worth, chunk, adds))
    load = state.remaining / max(1, int(state.remaining.max()))
    worth = np.where(chunk >= 0, worth + knobs.load * load, 0.0)
    src, dst = best_matching(worth)
    used = chunk[src, dst] >= 0
    src, dst = src[used], dst[used]
    return np.column_stack((src, dst, chunk[src, dst], adds[src, dst])).astype(np.int64)


def _copies(state: _State, knobs: Knobs, chance: Generator) -> tuple[Weights, IntArray, IntArray]:
    """For every pair of ranks the best finished chunk to copy: worth, chunk (-1: none), adds (0)."""
    ranks = len(state.complete)
    holders = state.complete.sum(axis=0)
    active = np.flatnonzero((holders > 0) & (holders < ranks))[: WINDOW * ranks]
    adds = np.zeros((ranks, ranks), dtype=np.int64)
    if not len(active):
        return np.zeros((ranks, ranks)), adds - 1, adds
    rarity = 1 - np.log2(holders[active]) / np.log2(ranks)
    value = rarity - knobs.turn * active / state.chunks + knobs.noise * chance.random(len(active))
    order = np.argsort(-value, kind="stable")
    active, value = active[order], value[order]
    held = state.complete[:, active]
    wanted: BoolArray = held[:, None, :] & ~held[None, :, :]
    best, found = wanted.argmax(axis=2), wanted.any(axis=2)
    return np.where(found, knobs.base + value[best], 0.0), np.where(found, active[best], -1), adds


def _add_merges(
    state: _State, knobs: Knobs, chance: Generator, table: tuple[Weights, IntArray, IntArray]
) -> None:
    """Puts merges into the table where they are worth more than the copy.

    A sum goes to its parent when it has all its children's. So no rank sends the sum that it adds to, but
    where two are left: there both may go, a swap.
    """
    worth, chosen, adds = table
    open_chunks = np.flatnonzero(state.sums > 1)[: WINDOW * len(state.complete)]
    ready = state.unsent[open_chunks] & (state.children[open_chunks] == 0)
    where, src = np.nonzero(ready)
    chunk = open_chunks[where]
    dst, last = state.parents[chunk, src], state.sums[chunk] == 2
    value = (
        knobs.base + knobs.merge - knobs.turn * chunk / state.chunks + knobs.noise * chance.random(len(chunk))
    )
    ends = [(src, dst, chunk, value), (dst[last], src[last], chunk[last], value[last])]
    sender, receiver, chunk, value = (np.concatenate(columns) for columns in zip(*ends, strict=True))
    # Ascending, so that of several for one pair the best is written last.
    for i in np.argsort(value, kind="stable").tolist():
        pair = sender[i], receiver[i]
        if value[i] > worth[pair]:
            worth[pair], chosen[pair], adds[pair] = value[i], chunk[i], 1
