"""Who adds up whose part: for every chunk a tree of the owner and the late ranks, balanced over all ranks.

The owner is the root. A late rank waits for its children's parts, adds them to its own and sends the sum
to its parent. A rank receives every chunk that it does not own once, finished, and once more for each child;
the owner receives from its children alone. So a chunk costs g - 1 receives more than n, whatever its tree;
what the tree decides is at which ranks. Receive ports are what is scarce: the g - 1 are dealt out so that
all ranks carry equally many. Then a port is idle only where nothing is ready for it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .rounds import IntArray


def merge_trees(early: int, late: int, owners: IntArray) -> IntArray:
    """For every chunk and rank the rank that it sends its sum to, shape (k, n); -1: none.

    >>> merge_trees(2, 2, np.array([0, 1])).tolist()
    [[-1, -1, 0, 0], [-1, -1, 1, 1]]
    """
    ranks, chunks = early + late, len(owners)
    parents = np.full((chunks, ranks), -1, dtype=np.int64)
    carried = np.zeros(ranks, dtype=np.int64)
    share = (late - 1) / ranks
    owned, seen = np.bincount(owners, minlength=ranks), np.zeros(ranks, dtype=np.int64)
    for chunk, owner in enumerate(owners.tolist()):
        seen[owner] += 1
        due = np.full(late + 1, (chunk + 1) * share)
        due[0] = seen[owner] / owned[owner] * chunks * share
        start = chunk % late
        nodes = np.array([owner, *(early + (start + i) % late for i in range(late))])
        children = _deal(carried[nodes] - due, late - 1)
        carried[nodes] += children
        children[0] += 1
        _hang(parents[chunk], nodes.tolist(), children.tolist())
    return parents


def _deal(ahead: NDArray[np.float64], units: int) -> IntArray:
    """Deals `units` out one by one, each to the node that is least ahead of its due; ties to the first."""
    given = np.zeros(len(ahead), dtype=np.int64)
    for _ in range(units):
        given[np.argmin(ahead + given)] += 1
    return given


def _hang(parents: IntArray, nodes: list[int], children: list[int]) -> None:
    """Hangs late nodes under the owner, which is nodes[0]: those with children nearest to it."""
    inner = [i for i in range(1, len(nodes)) if children[i]]
    waiting = [*inner, *(i for i in range(1, len(nodes)) if not children[i])]
    queue = [0, *inner]
    slots = [parent for parent in queue for _ in range(children[parent])]
    for node, parent in zip(waiting, slots, strict=True):
        parents[nodes[node]] = nodes[parent]
