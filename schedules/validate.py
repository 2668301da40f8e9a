"""Symbolic validation: who has contributed to what, after every round, for every rank and chunk.

Each (rank, chunk) holds a set of contributing ranks, kept as one bit a rank. A reduce joins two sets
and is wrong where they overlap (a contribution would count twice); a copy replaces the set; at the end
every set must be complete. `trace.py` follows the sets, a block of chunks at a time.

The rules are the table `RULES`: name -> what it demands. Every one has a mutation in the tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .errors import InvalidScheduleError
from .ir import COUNT, DST, SRC, Phase, Schedule
from .trace import Cells, Words, alike, apply_round, blocks, cells, full_set, initial_state

Index = NDArray[np.int64]

RULES = {
    "one-send": "a rank sends at most one message a round",
    "one-receive": "a rank receives at most one message a round",
    "late-untouched": "no message touches a late rank before it has arrived",
    "send-of-arriving": "no rank sends a chunk that the same round replaces at that rank",
    "double-count": "a reduce joins disjoint sets of contributions",
    "incomplete": "at the end every rank holds every rank's part of every chunk",
}


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: where, and what would happen; -1 stands for a round, rank or chunk not concerned."""

    rule: str
    phase: str
    round: int
    rank: int
    chunk: int
    message: str

    def __str__(self) -> str:
        where = f"{self.phase} round {self.round}" if self.round >= 0 else f"after {self.phase}"
        return f"{where}: {self.message}"


@dataclass(frozen=True, slots=True)
class Validation:
    """What validation found: the first violations in schedule order, and how many there are in all."""

    violations: tuple[Violation, ...]
    total: int

    @property
    def valid(self) -> bool:
        """Whether no rule is broken."""
        return self.total == 0


class _Collector:
    """Counts all violations, keeps the first `limit` of them by (phase, round, rank, chunk)."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self.kept: list[tuple[tuple[int, int, int, int], Violation]] = []

    def add(self, key: tuple[int, int], violations: Iterator[Violation], count: int) -> None:
        self.total += count
        taken = [v for v, _ in zip(violations, range(self.limit), strict=False)]
        self.kept += [((*key, v.rank, v.chunk), v) for v in taken]
        if len(self.kept) > 16 * self.limit:
            self._shrink()

    def _shrink(self) -> None:
        self.kept.sort(key=lambda item: item[0])
        del self.kept[self.limit :]

    def result(self) -> Validation:
        self._shrink()
        return Validation(tuple(v for _, v in self.kept), self.total)


def validate(schedule: Schedule, limit: int = 20) -> Validation:
    """Follows every chunk through the schedule and reports violations of `RULES`.

    Args:
        schedule: any schedule.
        limit: how many violations to describe; all are counted.

    Returns:
        A `Validation`; `.valid` says whether the schedule is an AllReduce.

    A million transfers (1024 ranks, 1023 chunks) take about two seconds.
    """
    found = _Collector(max(1, limit))
    for index, phase in enumerate(schedule.phases):
        _check_ports(schedule, index, phase, found)
    coarse, cuts = alike(schedule)
    for low, high in blocks(coarse):
        _follow_chunks(coarse, low, cuts[low : high + 1], found)
    return found.result()


def require_valid(schedule: Schedule) -> Schedule:
    """Returns the schedule if it is valid.

    Raises:
        InvalidScheduleError: names the first violation and how many there are.
    """
    outcome = validate(schedule, limit=1)
    if not outcome.valid:
        more = f" (and {outcome.total - 1} more)" if outcome.total > 1 else ""
        raise InvalidScheduleError(f"{outcome.violations[0]}{more}")
    return schedule


def _check_ports(schedule: Schedule, index: int, phase: Phase, found: _Collector) -> None:
    rounds = phase.round_index()
    for rule, column, verb in (("one-send", SRC, "sends"), ("one-receive", DST, "receives")):
        keys, counts = np.unique(rounds * schedule.ranks + phase.table[:, column], return_counts=True)
        for key, count in zip(keys[counts > 1].tolist(), counts[counts > 1].tolist(), strict=True):
            where, rank = divmod(key, schedule.ranks)
            message = f"rank {rank} {verb} {count} messages"
            found.add((index, where), iter([Violation(rule, phase.name, where, rank, -1, message)]), 1)
    absent = schedule.absent(index)
    if not absent:
        return
    for rank in absent:
        rows = np.flatnonzero((phase.table[:, SRC] == rank) | (phase.table[:, DST] == rank))
        for row in rows.tolist():
            src, dst, first = phase.table[row, :COUNT].tolist()
            message = f"{src} -> {dst} touches rank {rank}, which has not arrived"
            violation = Violation("late-untouched", phase.name, int(rounds[row]), rank, first, message)
            found.add((index, violation.round), iter([violation]), 1)


def _ranks_in(words: Words) -> list[int]:
    bits = np.unpackbits(words.astype("<u8").view(np.uint8), bitorder="little")
    return [int(r) for r in np.flatnonzero(bits)]


def _others(parts: list[int]) -> str:
    more = len(parts) - 1
    return f" (and {more} other part{'s' if more > 1 else ''})" if more else ""


def _follow_chunks(schedule: Schedule, low: int, cuts: Index, found: _Collector) -> None:
    high = low + len(cuts) - 1
    state = initial_state(schedule.ranks, high - low)
    for index, phase in enumerate(schedule.phases):
        steps = cells(phase, low, high)
        for where in range(len(phase)):
            step = steps.round(where)
            if not len(step.src):
                continue
            here = _Place(index, phase.name, where, cuts)
            _check_arriving(step, high - low, here, found)
            overlap = apply_round(state, step)
            twice = overlap.any(axis=1) & ~step.copy
            if twice.any():
                _report_twice(step, twice, overlap, here, found)
    _check_complete(schedule, state, cuts, found)


@dataclass(frozen=True, slots=True)
class _Place:
    """A round that is being followed; `cuts` tell which chunks each followed chunk stands for."""

    index: int
    phase: str
    round: int
    cuts: Index


def _meant(cuts: Index, chunk: int) -> range:
    return range(int(cuts[chunk]), int(cuts[chunk + 1]))


def _number(cuts: Index, chunk: Index) -> int:
    return int((cuts[chunk + 1] - cuts[chunk]).sum())


def _rows(chosen: NDArray[np.bool_], rank: NDArray[np.int64], chunk: NDArray[np.int64]) -> list[int]:
    # By rank and chunk, so that the first `limit` are the same however the chunks are cut into blocks.
    rows = np.flatnonzero(chosen)
    return [int(row) for row in rows[np.lexsort((chunk[rows], rank[rows]))]]


def _check_arriving(step: Cells, chunks: int, here: _Place, found: _Collector) -> None:
    if not step.copy.any():
        return
    replaced = (step.dst * chunks + step.chunk)[step.copy]
    clash = np.isin(step.src * chunks + step.chunk, replaced)
    if not clash.any():
        return

    def describe() -> Iterator[Violation]:
        for i in _rows(clash, step.src, step.chunk):
            src, dst = int(step.src[i]), int(step.dst[i])
            for chunk in _meant(here.cuts, step.chunk[i]):
                message = (
                    f"rank {src} sends chunk {chunk} to rank {dst} while this round delivers it to rank {src}"
                )
                yield Violation("send-of-arriving", here.phase, here.round, src, chunk, message)

    found.add((here.index, here.round), describe(), _number(here.cuts, step.chunk[clash]))


def _report_twice(
    step: Cells, twice: NDArray[np.bool_], overlap: Words, here: _Place, found: _Collector
) -> None:
    def describe() -> Iterator[Violation]:
        for i in _rows(twice, step.dst, step.chunk):
            rank, both = int(step.dst[i]), _ranks_in(overlap[i])
            for chunk in _meant(here.cuts, step.chunk[i]):
                message = f"rank {rank} would add rank {both[0]}'s part of chunk {chunk} twice{_others(both)}"
                yield Violation("double-count", here.phase, here.round, rank, chunk, message)

    found.add((here.index, here.round), describe(), _number(here.cuts, step.chunk[twice]))


def _check_complete(schedule: Schedule, state: Words, cuts: Index, found: _Collector) -> None:
    full = full_set(schedule.ranks)
    lacking = (state != full).any(axis=2)
    if not lacking.any():
        return
    phase = schedule.phases[-1].name

    def describe() -> Iterator[Violation]:
        for rank, followed in np.argwhere(lacking).tolist():
            missing = _ranks_in(full & ~state[rank, followed])
            for chunk in _meant(cuts, followed):
                part = f"rank {missing[0]}'s part of chunk {chunk}{_others(missing)}"
                yield Violation("incomplete", phase, -1, rank, chunk, f"rank {rank} ends without {part}")

    found.add((len(schedule.phases), 0), describe(), _number(cuts, np.nonzero(lacking)[1]))
