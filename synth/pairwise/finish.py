"""The last rounds: in each a maximum-weight matching of all ranks, until nobody misses anything."""

from __future__ import annotations

import numpy as np

from ..merge.rounds import IntArray
from .steady import Held

URGENT, SCARCE = 1000, 10
PARTNERS = 12
"""Among more than DENSE ranks each is offered so many pairs of random partners: faster, and no worse."""
DENSE = 64


def finish(held: Held, most: int) -> list[IntArray] | None:
    """At most `most` rounds after which all ranks hold all chunks, or None.

    Args:
        held: who holds what; is brought up to date.
        most: 0 or more.
    """
    rounds: list[IntArray] = []
    while not held.all():
        # A rank receives one chunk a round, so one that misses more than there are rounds left is lost.
        if len(rounds) == most or (~held).sum(axis=1).max() > most - len(rounds):
            return None
        rows = _half_turn(held)
        rows = _matching(held) if rows is None else rows
        held[rows[:, 1], rows[:, 2]] = True
        rounds.append(rows)
    return rounds


def _half_turn(held: Held) -> IntArray | None:
    """One round that ends it: of n ranks in the order of what they miss, the i-th with the (i + n/2)-th.

    It does so if everybody misses one chunk at most, and each chunk is missed by n/2 ranks at most.
    """
    ranks, half = held.shape[0], held.shape[0] // 2
    if ranks % 2 or (~held).sum(axis=1).max() > 1 or (~held).sum(axis=0).max() > half:
        return None
    misses = np.where(held.all(axis=1), -1, np.argmin(held, axis=1))
    order = np.argsort(misses, kind="stable")
    rows = np.stack([np.roll(order, half), order, misses[order]], axis=1).astype(np.int32)
    return _sorted(rows[rows[:, 2] >= 0])


def _matching(held: Held) -> IntArray:
    """The pairs that serve most ranks; those first that cannot wait, and of their chunks the scarcest."""
    import networkx as nx

    wanted, chunk = _offers(held)
    missing = (~held).sum(axis=1)
    scarce = held.sum(axis=0) < held.shape[0] // 2
    value = wanted * (1 + URGENT * (missing == missing.max())[None, :] + SCARCE * scarce[chunk])
    weight = np.triu(value + value.T)
    graph: nx.Graph[int] = nx.Graph()
    for i, j in np.argwhere(weight).tolist():
        graph.add_edge(i, j, weight=int(weight[i, j]))
    pairs = nx.max_weight_matching(graph)
    rows = [(a, b, chunk[a, b]) for i, j in pairs for a, b in ((i, j), (j, i)) if wanted[a, b]]
    return _sorted(np.array(rows, dtype=np.int32))


def _offers(held: Held) -> tuple[Held, IntArray]:
    """For each sender and receiver: whether there is a chunk to send, and the scarcest one there is."""
    ranks = held.shape[0]
    open_chunks = np.flatnonzero(~held.all(axis=0))
    by_scarcity = open_chunks[np.argsort(held[:, open_chunks].sum(axis=0), kind="stable")]
    ordered = held[:, by_scarcity]
    wanted = np.zeros((ranks, ranks), dtype=np.bool_)
    chunk = np.zeros((ranks, ranks), dtype=np.int32)
    partners = _partners(ranks)
    for sender in range(ranks):
        receivers = np.flatnonzero(partners[sender])
        useful = ordered[sender] & ~ordered[receivers]
        wanted[sender, receivers] = useful.any(axis=1)
        chunk[sender, receivers] = by_scarcity[useful.argmax(axis=1)]
    return wanted, chunk


def _partners(ranks: int) -> Held:
    """Who may be paired with whom: all with all, or among many ranks a few drawn with a fixed seed."""
    if ranks <= DENSE:
        return np.asarray(~np.eye(ranks, dtype=np.bool_))
    allowed = np.zeros((ranks, ranks), dtype=np.bool_)
    rng = np.random.default_rng(1)
    for _ in range(PARTNERS):
        ring = rng.permutation(ranks)
        allowed[ring, np.roll(ring, 1)] = allowed[np.roll(ring, 1), ring] = True
    return allowed


def _sorted(rows: IntArray) -> IntArray:
    return rows[np.argsort(rows[:, 0])]
