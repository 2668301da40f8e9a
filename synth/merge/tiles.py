"""The steady pattern laid as tiles on the circle of roles, for every N that has room for the cuts.

A tile is one rank's spell with one chunk: it receives the chunk at some age a and passes it on in each of
the q - a rounds that follow, so the tile is q - a long. With N + 1 = 2^q the tiles cover the circle; for
any other N a few sends are left out (holes) and a few tiles are shortened by one (cuts) until they do.
"""

from __future__ import annotations

import numpy as np

from .pattern import Pattern
from .rounds import IntArray, doublings


def holders_by_age(early: int) -> IntArray:
    """H_a = ceil(n / 2^(q - a)) for a = 0..q: how many early ranks hold a chunk after the round of age a.

    No fewer can still double to n = N + 1 in the q - a rounds that are left. The last, H_q = n, counts
    the late rank too.

    >>> holders_by_age(9).tolist()
    [1, 2, 3, 5, 10]
    """
    ranks, q = early + 1, doublings(early + 1)
    return np.array([-(-ranks >> (q - a)) for a in range(q + 1)], dtype=np.int32)


def holes_by_age(early: int) -> IntArray:
    """For a = 1..q (index a - 1): 1 where one holder does not pass the chunk on, for H_a = 2 H_(a-1) - 1.

    They are the bits of 2^q - n, the highest first; so none is at age 1.

    >>> holes_by_age(9).tolist()  # 16 - 10 = 0b0110
    [0, 1, 1, 0]
    """
    holders = holders_by_age(early)
    return 2 * holders[:-1] - holders[1:]


def has_room(early: int) -> bool:
    """Whether `tile_pattern` has room for its D cuts: for every N but 2, 4, 8 and 16.

    A cut tile must lie after a tile that is still at least 2 long. With the tiles in ascending order and
    the D longest cut, it does if D tiles were at least 3 long and D + 1 at least 2.
    """
    ranks, cuts = early + 1, int(holes_by_age(early).sum())
    return cuts == 0 or (-(-ranks // 8) >= cuts and -(-ranks // 4) > cuts)


def tile_pattern(early: int) -> Pattern:
    """The pattern of ages up to q, or q + 1 where N + 1 is no power of two.

    Raises:
        ValueError: there is no room for the cuts (`has_room`).

    Example:
        >>> pattern = tile_pattern(6)
        >>> pattern.receives.tolist(), pattern.sends.tolist()
        ([0, 2, 2, 4, 1, 3], [0, 3, 4, 2, 2, 1])
    """
    if not has_room(early):
        raise ValueError(f"no room for the cuts with {early} early ranks")
    q, holes = doublings(early + 1), holes_by_age(early)
    cuts = int(holes.sum())
    # As many tiles begin at an age as it has new holders. The shortest (oldest) first, the longest last.
    ages = np.repeat(np.arange(q - 1, -1, -1), np.diff(holders_by_age(early)[:q], prepend=0)[::-1])
    cut = np.arange(ages.size) >= ages.size - cuts
    lengths = q - ages - cut
    ends = np.cumsum(lengths)
    starts = ends - lengths

    receives = np.full(early, q, dtype=np.int32)
    receives[ends % early] = ages
    # A cut moves where the tile's rank begins its next spell; the role before makes up for it.
    receives[starts[cut] - 1] = q + 1

    sends = (np.repeat(ends + ages, lengths) - np.arange(early)).astype(np.int32)
    sends[0] = 0
    sends[_hole_roles(early, holes, starts[~cut])] = q + 1
    return Pattern(receives, sends)


def _hole_roles(early: int, holes: IntArray, uncut_starts: IntArray) -> list[int]:
    """For each hole one role that would send that age, and holds the chunk of age q + 1 to send instead.

    Before age q: in the longest tile, which ends the circle and sends every age below q, one a role. It is
    cut at q; there the longest uncut tile gives its last send. Neither role lies right before a cut tile.
    """
    q = holes.size
    roles = [early - age for age in range(1, q) if holes[age - 1]]
    return [*roles, int(uncut_starts[-1])] if holes[-1] else roles
