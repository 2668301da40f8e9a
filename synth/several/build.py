"""The post phase for several late ranks: a number of tries at packing it, the shortest is taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...schedules import bounds
from ..merge import merge_rounds, ring_of_three
from .pack import Knobs, pack
from .ring import ring_all_reduce
from .rounds import SRC, IntArray, SeveralRounds
from .trees import Sources
from .verify import check_several_rounds

MAX_TRIES = 48
WORK = 8_000_000
"""Over n^2 k: how many tries there are, at least MIN_TRIES. Counted, not timed: the same on every machine."""
MIN_TRIES = 8
SETTINGS = (
    (1.2, 0.3, 8.0),
    (1.2, 0.1, 4.0),
    (0.8, 1.0, 1.0),
    (2.0, 0.1, 8.0),
    (0.8, 0.3, 4.0),
    (1.2, 0.1, 1.0),
    (1.2, 1.0, 4.0),
    (2.0, 0.1, 16.0),
)
"""Weights (merge, load, turn) that did best somewhere on n = 5..64, g = 2..16; first the best on average."""


def several_rounds(early: int, late: int, chunks: int, owners: Sequence[int] | None = None) -> SeveralRounds:
    """Rounds after which all ranks hold the full sum of all chunks; replayed before they are returned.

    Args:
        early: E >= 1 early ranks, 0..E-1.
        late: g >= 1 late ranks, E..E+g-1, which arrive together.
        chunks: k >= 1.
        owners: for every chunk the early rank that holds the sum of the early parts; chunk c belongs to
            early rank c mod E if not given. Early ranks may own nothing.

    Returns:
        The fewest rounds found; with one late rank and owners that have equally many chunks (or one more) the
        optimum. Equal arguments give equal rounds.

    Raises:
        ValueError: numbers below 1, or owners that are not one early rank a chunk.
    """
    given = tuple(c % max(early, 1) for c in range(chunks)) if owners is None else tuple(owners)
    if min(early, late, chunks) < 1 or len(given) != chunks or not set(given) <= set(range(early)):
        raise ValueError("early, late, chunks: at least 1 each; owners: an early rank for every chunk")
    rank_of, chunk_of, turns = _by_turns(early, late, np.asarray(given, dtype=np.int64))
    even = bool((turns == np.arange(chunks) % early).all())
    tables = _one_late(early, chunks) if late == 1 and even else _searched(early, late, turns)
    rounds = []
    for table in tables:
        rows = np.column_stack((rank_of[table[:, :2]], chunk_of[table[:, 2]], table[:, 3]))
        rounds.append(rows[np.argsort(rows[:, SRC])])
    several = SeveralRounds(early, late, chunks, given, tuple(rounds))
    check_several_rounds(several)
    return several


def _by_turns(early: int, late: int, owners: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Ranks and chunks in the order of their turns: every owner's first chunk, then every second one, ...

    Returns:
        The ranks (who owns most comes first), the chunks, and the owners of these as indices of those ranks.
    """
    owned = np.bincount(owners, minlength=early)
    order = np.argsort(-owned, kind="stable")
    place = np.argsort(order)
    turn = np.zeros(len(owners), dtype=np.int64)
    for owner in range(early):
        mine = np.flatnonzero(owners == owner)
        turn[mine] = np.arange(len(mine))
    chunk_of = np.lexsort((place[owners], turn))
    return np.concatenate((order, early + np.arange(late))), chunk_of, place[owners[chunk_of]]


def _one_late(early: int, chunks: int) -> list[IntArray]:
    """The closed form for one late rank, which is optimal."""
    if early == 2 and chunks > 1:
        return [rows.astype(np.int64) for rows in ring_of_three(chunks)]
    rounds = merge_rounds(early, chunks).rounds
    # Round r swaps chunk r, and only the swap adds.
    return [np.column_stack((rows, rows[:, 2] == r)).astype(np.int64) for r, rows in enumerate(rounds)]


def _searched(early: int, late: int, owners: IntArray) -> list[IntArray]:
    ranks, chunks = early + late, len(owners)
    first: list[IntArray] = []
    if early == 1:
        first = ring_all_reduce(ranks, chunks)
    sources = [(owner, *range(early, ranks)) for owner in owners.tolist()]
    return packed_rounds(ranks, sources, first)


def packed_rounds(ranks: int, sources: Sources, first: list[IntArray] | None = None) -> list[IntArray]:
    """Rounds that complete every chunk on every rank, for parts that lie anywhere; the fewest found.

    Args:
        ranks: n.
        sources: for every chunk the ranks that hold a part of it, together all n contributions; see
            `trees.py`. Earlier chunks are served first.
        first: rounds known already, to be returned if no shorter ones are found.

    Returns:
        One (t, 4) array a round, columns src, dst, chunk, adds. Equal arguments give equal rounds.
    """
    chunks, bound = len(sources), packing_bound(ranks, sources)
    # No limit at first: every round moves something, so any number of rounds over this is impossible.
    limit, best = (len(first), first) if first else (2 * ranks * chunks + 2, list[IntArray]())
    for knobs in _tries(ranks, chunks):
        if limit <= bound:
            break
        found = pack(ranks, sources, knobs, limit)
        if found is not None:
            limit, best = len(found), found
    return best


def packing_bound(ranks: int, sources: Sources) -> int:
    """Fewest rounds for parts that lie so: by transfers over n ports, and by the rank with most parts.

    A chunk with p > 1 parts needs n - 2 + p transfers; a rank sends each of its parts, and after the last of
    them left it, its holders double from two.
    """
    transfers = sum(ranks - 2 + len(nodes) for nodes in sources)
    held = np.bincount([rank for nodes in sources for rank in nodes], minlength=ranks)
    full = int((held == len(sources)).any())  # such a rank is no finished chunk's only holder
    return max(-(-transfers // ranks), full * (len(sources) + bounds.ceil_log2(ranks) - 1))


def _tries(ranks: int, chunks: int) -> Iterator[Knobs]:
    """The settings again and again, each time with other chances."""
    count = max(MIN_TRIES, min(MAX_TRIES, WORK // (ranks * ranks * chunks)))
    for seed in range(count):
        merge, load, turn = SETTINGS[seed % len(SETTINGS)]
        yield Knobs(merge, load, turn, seed=seed)
