"""A steady pattern whose copies are swaps: which roles are paired, and the ages that they exchange."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..merge.rounds import IntArray
from .layout import Layout, layouts

NEVER = -1


@dataclass(frozen=True, slots=True, eq=False)
class PairedPattern:
    """Roles and ages as in `merge/pattern.py`; with an even N one role is idle.

    Attributes:
        receives: int32, shape (N,); role w receives the chunk of age receives[w]. Role 0 swaps with the
            late rank: age 0. An idle role: -1.
        copies: int32, shape (t, 3): sending role, receiving role, age.
        q: the age by which the pattern leaves no more than a few holders to come.

    Raises:
        ValueError: the ages are no pattern that can run for ever, or the copies are not swaps.
    """

    receives: IntArray
    copies: IntArray
    q: int

    def __post_init__(self) -> None:
        early = int(self.receives.shape[0])
        roles = np.flatnonzero(self.receives >= 0)
        distances = (roles + self.receives[roles]) % early
        if np.unique(distances).size != roles.size:
            raise ValueError("some rank receives a chunk twice")
        src, dst, age = self.copies.T
        if sorted(dst.tolist()) != [w for w in roles.tolist() if w] or (self.receives[dst] != age).any():
            raise ValueError("the copies are not what the roles receive")
        if {*zip(src.tolist(), dst.tolist(), strict=True)} != {*zip(dst.tolist(), src.tolist(), strict=True)}:
            raise ValueError("a copy is not half of a swap")
        got = held_from(self.receives)[(src + age) % early]
        if ((got == NEVER) | (got >= age)).any():
            raise ValueError("some role sends an age that it does not hold yet")


def held_from(receives: IntArray) -> IntArray:
    """For each distance from a chunk's owner, the age at which that rank receives it, or NEVER."""
    ages = np.full(receives.shape, NEVER, dtype=np.int32)
    roles = np.flatnonzero(receives >= 0)
    ages[(roles + receives[roles]) % len(receives)] = receives[roles]
    return ages


def paired_pattern(ranks: int) -> PairedPattern:
    """The pattern with the fewest late receptions that layout.py finds for n ranks.

    Raises:
        ValueError: none was found (not seen for any n up to 1100).
    """
    for layout in layouts(ranks):
        receives, sends = _ages(layout, ranks - 1)
        pairs = _pairs(receives, sends, layout.q)
        if pairs is not None:
            copies = [(*pair, receives[pair[1]]) for u, v in pairs for pair in ((u, v), (v, u))]
            table = np.array(copies, dtype=np.int32).reshape(-1, 3)
            return PairedPattern(receives, table, layout.q)
    raise ValueError(f"no pairwise pattern found for {ranks} ranks")


def _ages(layout: Layout, early: int) -> tuple[IntArray, dict[int, int]]:
    """Ages received by each role, and sent by the roles that begin no spell (role -> age)."""
    receives = np.full(early, layout.q, dtype=np.int32)
    sends: dict[int, int] = {}
    first = 0
    late: list[int] = []
    for index, tile in enumerate(layout.tiles):
        idle = index == layout.idle
        end = first + layout.q - tile.age - tile.cut + idle
        receives[end % early] = tile.age
        late += [(first - back) % early for back in range(1, tile.cut + 1 - (idle and tile.cut > 0))]
        sends |= {role: end + tile.age - role for role in range(first + 1 + idle, end)}
        if idle:
            receives[first + 1] = NEVER
        first = end
    receives[late] = layout.q + 1
    return receives, sends


def _pairs(receives: IntArray, sends: dict[int, int], q: int) -> list[tuple[int, int]] | None:
    """Each beginning of a spell with a role that sends the age it receives and wants one that it holds."""
    early, got = len(receives), held_from(receives)
    waiting: dict[tuple[int, int], list[int]] = {}
    for role, age in sends.items():
        waiting.setdefault((age, int(receives[role])), []).append(role)
    beginnings = [w for w in range(1, early) if 0 <= receives[w] < q]
    holds = {(w, age): NEVER < got[(w + age) % early] < age for w in beginnings for age in (q, q + 1)}
    pairs: list[tuple[int, int]] = []
    # Those that can only send the late age choose first.
    for role in sorted(beginnings, key=lambda w: holds[w, q]):
        offers = (waiting.get((int(receives[role]), age)) for age in (q, q + 1) if holds[role, age])
        offer = next((roles for roles in offers if roles), None)
        if offer is None:
            return None
        pairs.append((offer.pop(), role))
    return pairs
