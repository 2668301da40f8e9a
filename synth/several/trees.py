"""Who adds up whose part: for every chunk a tree of the ranks that hold a part of it, balanced over all.

The parts are sums already: of a chunk that was reduced before, its owner holds the sum of the early parts,
and the late ranks hold their own. One of the holders is the root. Another waits for its children's parts,
adds them to its own and sends the sum to its parent. A rank receives every chunk that it is not the root of
once, finished, and once more for each child; the root receives from its children alone. So a chunk with p
parts costs p - 2 receives more than n, whatever its tree; what the tree decides is at which ranks. Receive
ports are what is scarce: the p - 2 are dealt out so that all ranks carry equally many. Then a port is idle
only where nothing is ready for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .rounds import IntArray

Sources = Sequence[Sequence[int]]
"""For every chunk, in the order of their turns, the ranks that hold a part of it, the root first."""


def merge_trees(ranks: int, sources: Sources) -> IntArray:
    """For every chunk and rank the rank that it sends its sum to, shape (k, n); -1: none.

    >>> merge_trees(4, [(0, 2, 3), (1, 2, 3)]).tolist()
    [[-1, -1, 0, 0], [-1, -1, 1, 1]]
    """
    parents = np.full((len(sources), ranks), -1, dtype=np.int64)
    carried, seen = np.zeros(ranks, dtype=np.int64), np.zeros(ranks, dtype=np.int64)
    share = sum(max(0, len(nodes) - 2) for nodes in sources) / ranks
    present = np.bincount([rank for nodes in sources for rank in nodes], minlength=ranks)
    for chunk, (root, *others) in enumerate(sources):
        start = chunk % max(1, len(others))
        nodes = np.array([root, *others[start:], *others[:start]])
        seen[nodes] += 1
        if not others:
            continue
        # A rank's part of the load falls due as the chunks go by that it holds a part of.
        due = seen[nodes] / present[nodes] * share
        children = _deal(carried[nodes] - due, len(others) - 1)
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
    """Hangs the nodes under the root, which is nodes[0]: those with children nearest to it."""
    inner = [i for i in range(1, len(nodes)) if children[i]]
    waiting = [*inner, *(i for i in range(1, len(nodes)) if not children[i])]
    queue = [0, *inner]
    slots = [parent for parent in queue for _ in range(children[parent])]
    for node, parent in zip(waiting, slots, strict=True):
        parents[nodes[node]] = nodes[parent]
