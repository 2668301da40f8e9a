"""What a schedule is: ranks, chunks, and phases of rounds of transfers. Nothing here can be invalid.

Rules that concern one object (a rank in range, a non-empty round) are enforced here, at construction;
rules about the whole (nothing counted twice, everything complete at the end) are in `validate.py`.

A schedule of a thousand ranks has about two million transfers, so a phase keeps them as one read-only
integer table and makes `Transfer` objects only where somebody looks at them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .errors import InvalidScheduleError

MAX_RANKS = 1 << 14
MAX_CHUNKS = 1 << 24
MAX_TRANSFERS = 1 << 26

SRC, DST, FIRST, COUNT, OP = range(5)
"""Columns of a transfer table."""

_ROW_ORDER = (OP, SRC, DST, FIRST, COUNT)
"""By what the rows of one round are ordered, the first column first."""

Table = NDArray[np.int32]
Parameter = int | str


class Op(IntEnum):
    """What the receiver does with the data: add it to its own, or replace its own by it."""

    REDUCE = 0
    COPY = 1


@dataclass(frozen=True, slots=True)
class Transfer:
    """One message of one round: `count` chunks from `first` on, from rank `src` to rank `dst`."""

    src: int
    dst: int
    first: int
    count: int
    op: Op

    @property
    def chunks(self) -> range:
        """The chunks that this message carries."""
        return range(self.first, self.first + self.count)


RoundLike = Iterable[Transfer] | Iterable[Sequence[int]] | NDArray[np.integer]


_ROUND_SHAPE = "a round must be a non-empty set of integers (src, dst, first, count, op)"


def _round_table(transfers: RoundLike) -> NDArray[np.int64]:
    rows: object = transfers
    if not isinstance(transfers, np.ndarray):
        rows = [
            (t.src, t.dst, t.first, t.count, int(t.op)) if isinstance(t, Transfer) else tuple(t)
            for t in transfers
        ]
    try:
        table = np.asarray(rows)
    except (ValueError, OverflowError) as error:  # rows of different lengths
        raise InvalidScheduleError(_ROUND_SHAPE) from error
    # Kinds i and u alone: floats would be cut to integers and digits in strings read as numbers.
    if table.ndim != 2 or table.shape[1] != 5 or table.dtype.kind not in "iu":
        raise InvalidScheduleError(_ROUND_SHAPE)
    return table.astype(np.int64)


def _is_canonical(table: Table, which: NDArray[np.int64]) -> bool:
    # Rows may not descend: look at the first column in which two neighbours differ.
    undecided = which[1:] == which[:-1]
    for column in _ROW_ORDER:
        step = np.diff(table[:, column])
        if np.any(undecided & (step < 0)):
            return False
        undecided &= step == 0
    return True


@dataclass(frozen=True, slots=True, eq=False)
class Phase:
    """A named list of rounds. All transfers of a round read the state from before the round.

    Attributes:
        name: `pre`, `arrival1`.., or `post`.
        table: int32, shape (transfers, 5), columns `SRC DST FIRST COUNT OP`, read-only; ordered by
            round and, within a round, by (op, src, dst, first), so that equal phases are equal bytes.
        offsets: int64, shape (rounds + 1,): round r is `table[offsets[r]:offsets[r + 1]]`.
    """

    name: str
    table: Table
    offsets: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.table.ndim != 2 or self.table.shape[1] != 5:
            raise InvalidScheduleError(f"phase {self.name}: the transfer table must have 5 columns")
        if self.table.dtype != np.int32 or self.offsets.dtype != np.int64 or self.offsets.ndim != 1:
            raise InvalidScheduleError(f"phase {self.name}: the table must be int32 and the offsets int64")
        ends = self.offsets[[0, -1]].tolist() if len(self.offsets) else []
        if ends != [0, len(self.table)] or np.any(np.diff(self.offsets) < 1):
            raise InvalidScheduleError(f"phase {self.name}: every round needs at least one transfer")
        if not _is_canonical(self.table, self.round_index()):
            raise InvalidScheduleError(f"phase {self.name}: rows must be in canonical order: use Phase.build")
        self.table.flags.writeable = False
        self.offsets.flags.writeable = False

    @classmethod
    def build(cls, name: str, rounds: Iterable[RoundLike]) -> Phase:
        """Makes a phase from rounds given as `Transfer` objects or as (t, 5) integer arrays.

        Raises:
            InvalidScheduleError: an empty round, or numbers outside what a table holds.
        """
        tables = [_round_table(r) for r in rounds]
        offsets = np.zeros(len(tables) + 1, dtype=np.int64)
        np.cumsum([len(t) for t in tables], out=offsets[1:])
        if offsets[-1] > MAX_TRANSFERS:
            raise InvalidScheduleError(f"phase {name}: more than {MAX_TRANSFERS} transfers")
        if not tables:
            return cls(name, np.empty((0, 5), dtype=np.int32), offsets)
        flat = np.concatenate(tables)
        if len(flat) and (flat.min() < 0 or flat.max() > MAX_CHUNKS):
            raise InvalidScheduleError(f"phase {name}: a number is negative or above {MAX_CHUNKS}")
        which = np.repeat(np.arange(len(tables)), np.diff(offsets))
        order = np.lexsort((*(flat[:, column] for column in reversed(_ROW_ORDER)), which))
        return cls(name, flat[order].astype(np.int32), offsets)

    def __len__(self) -> int:
        """Number of rounds."""
        return len(self.offsets) - 1

    def round(self, index: int) -> Table:
        """The (t, 5) table of one round."""
        return self.table[self.offsets[index] : self.offsets[index + 1]]

    def rounds(self) -> Iterator[Table]:
        """The tables of all rounds, in order."""
        for start, end in pairwise(self.offsets.tolist()):
            yield self.table[start:end]

    def transfers(self, index: int) -> tuple[Transfer, ...]:
        """The transfers of one round as objects."""
        return tuple(Transfer(s, d, f, c, Op(o)) for s, d, f, c, o in self.round(index).tolist())

    def round_index(self) -> NDArray[np.int64]:
        """For every row of the table, the round it belongs to."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    @property
    def chunk_rounds(self) -> int:
        """Rounds weighted by their longest message, in chunks: what bandwidth is paid for."""
        if len(self) == 0:
            return 0
        return int(np.maximum.reduceat(self.table[:, COUNT], self.offsets[:-1]).sum())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Phase):
            return NotImplemented
        same_rounds = self.name == other.name and np.array_equal(self.offsets, other.offsets)
        return same_rounds and np.array_equal(self.table, other.table)

    def __hash__(self) -> int:
        return hash((self.name, self.offsets.tobytes(), self.table.tobytes()))

    def __repr__(self) -> str:
        return f"Phase({self.name!r}, {len(self)} rounds, {len(self.table)} transfers)"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a schedule came from: a claim, for people; `check` recomputes what it states.

    Attributes:
        family: the construction, e.g. `stragglar`, `ring`, `imported`.
        parameters: (name, value) pairs of the construction, in the order to show them.
        bound: the lower bound on post rounds that the maker compared with, or None.
    """

    family: str
    parameters: tuple[tuple[str, Parameter], ...] = ()
    bound: int | None = None

    def __post_init__(self) -> None:
        texts = [self.family, *(t for pair in self.parameters for t in pair if isinstance(t, str))]
        if any(not t or len(t) > 80 or not t.isprintable() for t in texts):
            raise InvalidScheduleError("origin: names and values are 1 to 80 printable characters")
        if len(dict(self.parameters)) != len(self.parameters):
            raise InvalidScheduleError("origin: a parameter is named twice")


def phase_names(groups: int) -> tuple[str, ...]:
    """Names of the phases of a schedule with `groups` groups of late ranks, in order."""
    if groups == 0:
        return ("post",)
    return ("pre", *(f"arrival{g}" for g in range(1, groups)), "post")


@dataclass(frozen=True, slots=True)
class Schedule:
    """An AllReduce as rounds of transfers, for `ranks` ranks and a buffer cut in `chunks` equal parts.

    Attributes:
        ranks: number of ranks, 2 or more.
        arrivals: the late ranks, grouped, in order of arrival; empty when nobody is late. Phase p
            may use the ranks of the first p groups only (and those that are not late).
        chunks: number of equal parts of the buffer.
        phases: `pre`, one per arrival but the last, `post`; only `post` when nobody is late.
        origin: where it came from.

    Raises:
        InvalidScheduleError: something names a rank, chunk or phase that does not exist.

    Source: the model of StragglAR (arXiv 2505.23523), with the two peers of a rank free to differ.
    """

    ranks: int
    arrivals: tuple[tuple[int, ...], ...]
    chunks: int
    phases: tuple[Phase, ...]
    origin: Origin = field(default_factory=lambda: Origin("unknown"))
    collective: str = "allreduce"

    def __post_init__(self) -> None:
        if self.collective != "allreduce":
            raise InvalidScheduleError(f"collective {self.collective!r} is not known: use allreduce")
        if not 2 <= self.ranks <= MAX_RANKS:
            raise InvalidScheduleError(f"ranks must be 2..{MAX_RANKS}, not {self.ranks}")
        if not 1 <= self.chunks <= MAX_CHUNKS:
            raise InvalidScheduleError(f"chunks must be 1..{MAX_CHUNKS}, not {self.chunks}")
        _check_arrivals(self.ranks, self.arrivals)
        names, wanted = tuple(p.name for p in self.phases), phase_names(len(self.arrivals))
        if names != wanted:
            given = ", ".join(names)[:200] or "none"
            raise InvalidScheduleError(f"phases must be {', '.join(wanted)[:200]}, not {given}")
        for phase in self.phases:
            _check_table(phase, self.ranks, self.chunks)

    @property
    def late(self) -> tuple[int, ...]:
        """All late ranks, ascending."""
        return tuple(sorted(r for group in self.arrivals for r in group))

    @property
    def early(self) -> tuple[int, ...]:
        """All ranks that are not late, ascending."""
        late = set(self.late)
        return tuple(r for r in range(self.ranks) if r not in late)

    @property
    def post(self) -> Phase:
        """The phase after the last arrival: what a user waits for."""
        return self.phases[-1]

    @property
    def transfer_count(self) -> int:
        """Messages in all phases."""
        return sum(len(p.table) for p in self.phases)

    def absent(self, phase: int) -> tuple[int, ...]:
        """The late ranks that have not arrived when phase number `phase` starts."""
        return tuple(r for group in self.arrivals[phase:] for r in group)

    def _repr_svg_(self) -> str:
        """The step diagram, for notebooks."""
        from .svg import draw_svg

        return draw_svg(self)

    def _repr_html_(self) -> str:
        """The step diagram in a box that scrolls, for notebooks: what they prefer to `_repr_svg_`."""
        return f'<div style="overflow-x:auto">{self._repr_svg_()}</div>'


def _check_arrivals(ranks: int, arrivals: Sequence[Sequence[int]]) -> None:
    late = [r for group in arrivals for r in group]
    if any(not group for group in arrivals):
        raise InvalidScheduleError("a group of late ranks is empty")
    if any(list(group) != sorted(group) for group in arrivals):
        raise InvalidScheduleError("ranks within a group of late ranks must be ascending")
    outside = [r for r in late if not 0 <= r < ranks]
    if outside:
        raise InvalidScheduleError(f"late ranks must be in 0..{ranks - 1}, not {outside[0]}")
    if len(set(late)) != len(late):
        raise InvalidScheduleError("a late rank is named twice")
    if len(late) == ranks:
        raise InvalidScheduleError("all ranks are late: then none is; name at most ranks - 1")


def _check_table(phase: Phase, ranks: int, chunks: int) -> None:
    table = phase.table
    faults = (
        ("src is not a rank", (table[:, SRC] < 0) | (table[:, SRC] >= ranks)),
        ("dst is not a rank", (table[:, DST] < 0) | (table[:, DST] >= ranks)),
        ("a rank sends to itself", table[:, SRC] == table[:, DST]),
        ("count is below 1", table[:, COUNT] < 1),
        ("chunks past the end", table[:, FIRST].astype(np.int64) + table[:, COUNT] > chunks),
        ("chunks before the start", table[:, FIRST] < 0),
        ("op is neither reduce nor copy", (table[:, OP] < 0) | (table[:, OP] > 1)),
    )
    for text, bad in faults:
        rows = np.flatnonzero(bad)
        if len(rows):
            where = int(phase.round_index()[rows[0]])
            src, dst, first, count, _ = table[rows[0]].tolist()
            raise InvalidScheduleError(
                f"{phase.name} round {where}: {text} ({src} -> {dst}, chunks {first}..{first + count - 1},"
                f" of {ranks} ranks and {chunks} chunks)"
            )
