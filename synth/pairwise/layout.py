"""Which tiles lie in which order on the circle of roles, so that all copies of a round can be swaps.

A tile is one rank's spell with one chunk, as in `merge/tiles.py`: it receives the chunk at some age (the
tile's type) and passes it on until the next spell begins. Here the ranks that begin a spell are exactly
those that send the oldest chunks, and everybody else the reverse; so there are as many tiles as pairs.
For rank counts that are no power of two some tiles are *cut*: they lose their last c sends, and with
them go 2^c - 1 holders of the chunk. What a cut tile sends too little, the tile that follows it in time
makes up for: c of its roles receive their old chunk a round late. This fits only if they can be
paired with beginnings of the same age that send such late chunks; hence the counting below.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..merge.rounds import doublings


@dataclass(frozen=True, slots=True)
class Tile:
    """A spell that begins with a chunk `age` old and stops `cut` rounds before the chunk is q old."""

    age: int
    cut: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Tiles in the order of their roles, the one of type 0 last.

    Attributes:
        q: the oldest age at which a chunk is due.
        tiles: the tiles; before a cut one lies the tile that follows it in time.
        idle: the tile before whose roles the idle role lies, or None if no role is idle.
    """

    q: int
    tiles: tuple[Tile, ...]
    idle: int | None


def layouts(ranks: int) -> Iterator[Layout]:
    """Layouts for n ranks, those with the fewest late receptions first."""
    core = ranks - ranks % 2
    q = doublings(core)
    for cuts in _cut_lists((1 << q >> 1) - core // 2, q):
        tiles = _tiles(q, cuts)
        if tiles is None or len(tiles) != core // 2:
            continue
        # With an odd number of ranks one role is idle; it can make up for one round of one cut.
        spared = [len(cuts) - 1, 0] if ranks % 2 and cuts else [None]
        for which in spared:
            follows = _Followers(q, tiles, which).find()
            if follows is not None:
                order = _ordered(tiles, follows)
                idle = 0 if which is None else order.index(_cut_ones(tiles)[which])
                yield Layout(q, tuple(tiles[i] for i in order), idle if ranks % 2 else None)


def _cut_lists(spare: int, q: int) -> list[tuple[int, ...]]:
    """All ways to lose `spare` holders by at most 3 q cuts, longest first in each."""
    found: list[tuple[int, ...]] = []

    def extend(left: int, cut: int, cuts: tuple[int, ...]) -> None:
        if len(cuts) > 3 * q:
            return
        if left == 0:
            found.append(cuts)
        elif cut == 1:
            extend(0, 0, cuts + (1,) * left)
        elif cut > 1:
            for count in range(left // ((1 << cut) - 1), -1, -1):
                extend(left - count * ((1 << cut) - 1), cut - 1, cuts + (cut,) * count)

    extend(spare, q - 1, ())
    return sorted(found, key=lambda cuts: (sum(cuts) - len(cuts), len(cuts)))


def _tiles(q: int, cuts: tuple[int, ...]) -> list[Tile] | None:
    """The tiles by type, each cut given to the shortest tile that can bear it; None if one finds none."""
    cuts_of: list[list[int]] = [[] for _ in range(q)]
    for cut in cuts:
        for age in range(q - 1 - cut, -1, -1):
            cuts_of[age].append(cut)
            if all(len(c) <= count for c, count in zip(cuts_of, _counts(q, cuts_of), strict=True)):
                break
            cuts_of[age].pop()
        else:
            return None
    cuts_of = [sorted(c) for c in cuts_of]
    whole = [count - len(c) for c, count in zip(cuts_of, _counts(q, cuts_of), strict=True)]
    return [Tile(age, cut) for age in range(q) for cut in (0,) * whole[age] + tuple(cuts_of[age])]


def _counts(q: int, cuts_of: list[list[int]]) -> list[int]:
    """Tiles of each type: as many as older holders that still send at that age."""
    counts = [1]
    for age in range(1, q):
        counts.append(sum(counts[a] - sum(age > q - 1 - c for c in cuts_of[a]) for a in range(age)))
    return counts


def _cut_ones(tiles: list[Tile]) -> list[int]:
    """Indices of the cut tiles, longest cut first."""
    return sorted((i for i, t in enumerate(tiles) if t.cut), key=lambda i: (-tiles[i].cut, tiles[i].age))


@dataclass(slots=True)
class _Followers:
    """Finds for each cut tile one that follows it, youngest type first."""

    q: int
    tiles: list[Tile]
    spared: int | None
    follows: dict[int, int] = field(default_factory=dict)

    def find(self) -> dict[int, int] | None:
        """Cut tile -> follower, both as indices; None if this order of trying finds no solution."""
        counts = [sum(t.age == age for t in self.tiles) for age in range(self.q)]
        must, can = [0] * self.q, [0] * self.q  # late sends that beginnings of each age must and can make
        for place, i in enumerate(_cut_ones(self.tiles)):
            spared = place == self.spared
            for j, follower in enumerate(self.tiles):
                late = range(follower.age + 1, follower.age + 1 + self.tiles[i].cut - spared)
                if self._fits(i, j, len(late)) and self._paired(i, j, spared, late, must, can, counts):
                    self.follows[i] = j
                    if follower.age and spared:
                        counts[follower.age] -= 1  # it never gets the chunk that it would send late
                    elif follower.age:
                        must[follower.age] += 1
                    for age in late:
                        can[age] += 1
                    break
            else:
                return None
        return self.follows

    def _fits(self, i: int, j: int, late: int) -> bool:
        """The follower is free, long enough, and not itself followed, at some remove, by the cut tile."""
        last = j
        while last in self.follows:
            last = self.follows[last]
        long_enough = self.q - self.tiles[j].age - 1 - self.tiles[j].cut >= late
        return long_enough and last != i and j not in self.follows.values()

    def _paired(
        self, i: int, j: int, spared: bool, late: range, must: list[int], can: list[int], counts: list[int]
    ) -> bool:
        """Late receptions and late sends still match, age by age (a beginning of age 0 sends nothing)."""
        age = self.tiles[j].age
        if age and spared and (self.tiles[i].cut > 1 or can[age] >= counts[age]):
            return False
        if age and not spared and must[age] >= can[age]:
            return False
        return all(a < self.q and can[a] < counts[a] for a in late)


def _ordered(tiles: list[Tile], follows: dict[int, int]) -> list[int]:
    """Indices in the order of roles: a cut tile right after its follower, the tile of type 0 last."""
    after = {j: i for i, j in follows.items()}
    order: list[int] = []
    for head in range(len(tiles)):
        at: int | None = None if head in follows else head
        while at is not None:
            order.append(at)
            at = after.get(at)
    last = next(place for place, i in enumerate(order) if tiles[i].age == 0) + 1
    return order[last:] + order[:last]
