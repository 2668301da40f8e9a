"""A schedule in modelled time: every rank follows its own order, coupled to the others by messages alone.

`schedules.cost` adds up rounds as if all ranks kept step. Here no rank knows of rounds: given when each one
arrives, a message starts when both of its ends are ready for it. So it says what a schedule takes when
another rank is late than planned, when several are, or by how much. Modelled time, never measured time.

A message takes alpha + beta * bytes and holds its sender's out-port and its receiver's in-port for so long.
What else it waits for is the mode:

- `strict`: a rank turns to its next round once its send and its receive of this one are over.
- `relaxed`: sends follow sends and receives follow receives. A send also waits for the receives that
  delivered what it carries, and for nothing else; received data waits in memory without bound.

Adding, and memory, cost nothing, and messages between different pairs of ranks do not disturb each other.

A message waits only for messages of earlier rounds at its two ends. Carrying the rounds out in order, each
for all ranks and all arrival vectors at once, is therefore exact and needs no queue of events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..schedules import InvalidScheduleError, Link, Schedule, UsageError
from ..schedules.ir import COUNT, DST, FIRST, SRC, Phase
from ..schedules.trace import alike, blocks

MODES = ("strict", "relaxed")

BATCH_CELLS = 1 << 23
"""Most (message or rank, arrival vector) pairs to keep in memory at a time."""

Times = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Simulation:
    """What one AllReduce takes for one arrival vector. All times are seconds on the clock of `arrivals`.

    Attributes:
        mode: one of `MODES`.
        arrivals: when each rank calls the collective, shape (ranks,).
        ends: when each rank is through, shape (ranks,).
        phase: for every message, in the order of the schedule's tables, the number of its phase.
        round: for every message the number of its round in the phase.
        table: for every message its row `SRC DST FIRST COUNT OP`, int32, shape (messages, 5).
        starts: when every message starts, shape (messages,).
        finishes: when every message has arrived, shape (messages,).
        busy_out: share of its time from its arrival to the completion that a rank's out-port is held.
        busy_in: the same of the in-port.
    """

    mode: str
    arrivals: Times
    ends: Times
    phase: Indices
    round: Indices
    table: NDArray[np.int32]
    starts: Times
    finishes: Times
    busy_out: Times
    busy_in: Times

    @property
    def completion(self) -> float:
        """When the last rank is through."""
        return float(self.ends.max())

    @property
    def post_seconds(self) -> float:
        """From the last arrival to the completion: what `Cost.post_seconds` models."""
        return float(self.ends.max() - self.arrivals.max())


class Simulator:
    """A schedule prepared for simulation; reusable for any size, link and arrivals.

    Raises:
        UsageError: no such mode.
        InvalidScheduleError: a rank sends or receives twice in a round: it has one port each way.
    """

    def __init__(self, schedule: Schedule, mode: str = "strict") -> None:
        if mode not in MODES:
            raise UsageError(f"mode {mode!r} is not known: use {' or '.join(MODES)}")
        for phase in schedule.phases:
            _check_ports(phase, schedule.ranks)
        self.schedule, self.mode = schedule, mode
        self._table = np.concatenate([phase.table for phase in schedule.phases])
        lengths = np.concatenate([np.diff(phase.offsets) for phase in schedule.phases])
        self._rounds = list(pairwise([0, *np.cumsum(lengths).tolist()]))
        self._needs = _last_deliveries(schedule) if mode == "relaxed" else None

    def run(self, size: float, link: Link, arrivals: Sequence[float] | None = None) -> Simulation:
        """Simulates one AllReduce of `size` bytes; see `simulate`."""
        come = _checked(np.zeros(self.schedule.ranks) if arrivals is None else arrivals, self.schedule.ranks)
        if len(come) != 1:
            raise UsageError("one arrival a rank: for many iterations at once use completions()")
        seconds = self._seconds(size, link)
        starts, finishes = np.empty((2, len(seconds), 1))
        ends = self._advance(seconds, come.T, starts, finishes)[:, 0]
        return self._result(come[0], ends, seconds, starts[:, 0], finishes[:, 0])

    def completions(self, size: float, link: Link, arrivals: ArrayLike) -> Times:
        """When the last rank is through, for every row of `arrivals`; see the function `completions`."""
        come, seconds = _checked(arrivals, self.schedule.ranks), self._seconds(size, link)
        kept = self.schedule.ranks if self._needs is None else len(seconds) + 1
        step = max(1, BATCH_CELLS // kept)
        result = np.empty(len(come))
        for low in range(0, len(come), step):
            batch = np.ascontiguousarray(come[low : low + step].T)
            result[low : low + step] = self._advance(seconds, batch).max(axis=0)
        return result

    def _seconds(self, size: float, link: Link) -> Times:
        if not 0 <= size < float("inf"):
            raise UsageError("the size must be finite and not negative")
        counts = self._table[:, COUNT].astype(np.float64)
        result: Times = link.alpha + counts * (size / self.schedule.chunks * link.beta)
        return result

    def _advance(
        self, seconds: Times, come: Times, starts: Times | None = None, finishes: Times | None = None
    ) -> Times:
        """Ends of all ranks, shape (ranks, iterations), for arrivals `come` of that shape.

        `starts` and `finishes`, shape (messages, iterations), are filled in where given.
        """
        # `sent`: when a rank's out-port is free; `got`: its in-port. In strict mode they are one.
        sent = come.copy()
        got = sent if self._needs is None else come.copy()
        # Row -1 stays at minus infinity: the need of a message that carries its sender's own data.
        over = None if self._needs is None else np.full((len(seconds) + 1, come.shape[1]), -np.inf)
        for low, high in self._rounds:
            src, dst = self._table[low:high, SRC], self._table[low:high, DST]
            begin = np.maximum(sent[src], got[dst])
            if self._needs is not None and over is not None:
                np.maximum(begin, over[self._needs[low:high]], out=begin)
            end = begin + seconds[low:high, None]
            sent[src] = end
            # A rank that has just sent in this round ends it when both are over; in relaxed mode `end` is
            # the larger, as a receive starts after the one before it.
            got[dst] = np.maximum(got[dst], end)
            for kept, value in ((starts, begin), (finishes, end), (over, end)):
                if kept is not None:
                    kept[low:high] = value
        return np.maximum(sent, got)

    def _result(self, come: Times, ends: Times, seconds: Times, starts: Times, finishes: Times) -> Simulation:
        phases, ranks = self.schedule.phases, self.schedule.ranks
        present = ends.max() - come
        held = [np.bincount(self._table[:, port], seconds, ranks) for port in (SRC, DST)]
        out, into = (np.divide(h, present, out=np.zeros(ranks), where=present > 0) for h in held)
        return Simulation(
            mode=self.mode,
            arrivals=come,
            ends=ends,
            phase=np.repeat(np.arange(len(phases)), [len(p.table) for p in phases]),
            round=np.concatenate([p.round_index() for p in phases]),
            table=self._table,
            starts=starts,
            finishes=finishes,
            busy_out=out,
            busy_in=into,
        )


def simulate(
    schedule: Schedule,
    size: float,
    link: Link,
    arrivals: Sequence[float] | None = None,
    mode: str = "strict",
) -> Simulation:
    """Simulates one AllReduce.

    Args:
        schedule: any schedule in which a rank sends and receives at most once a round.
        size: bytes of the buffer; a chunk has size / chunks of them, as in `schedules.cost`.
        link: alpha and bandwidth of every port.
        arrivals: when each rank comes, in seconds, one a rank; None: all at 0.
        mode: `strict` or `relaxed`.

    Raises:
        UsageError: arrivals that are not one finite number a rank, a bad size, an unknown mode.
        InvalidScheduleError: a rank sends or receives twice in a round.

    >>> from stragglar.schedules import Link, Phase, Schedule
    >>> swap = [(0, 1, 0, 1, 0), (1, 0, 0, 1, 0)]
    >>> pair = Schedule(2, (), 1, (Phase.build("post", [swap]),))
    >>> simulate(pair, 100, Link(1.0, 10.0), [0.0, 5.0]).ends.tolist()
    [16.0, 16.0]
    """
    return Simulator(schedule, mode).run(size, link, arrivals)


def completions(
    schedule: Schedule, size: float, link: Link, arrivals: ArrayLike, mode: str = "strict"
) -> Times:
    """When the last rank is through, for many arrival vectors at once.

    Args:
        schedule: as for `simulate`, and so are `size`, `link` and `mode`.
        arrivals: seconds, shape (iterations, ranks), e.g. `ArrivalTrace.seconds`; one vector will do.

    Returns:
        Seconds on the clock of the arrivals, shape (iterations,). Less `arrivals.max(axis=1)` they are
        what a user waits for after the last arrival.

    Raises:
        UsageError: as `simulate`.
        InvalidScheduleError: as `simulate`.
    """
    return Simulator(schedule, mode).completions(size, link, arrivals)


def planned_arrivals(schedule: Schedule, delay: float) -> Times:
    """The arrivals that a schedule is made for: early ranks at 0, the last group at `delay`, in seconds.

    Groups that come between are spread evenly, as in `schedules.cost`. Nobody late: all at `delay`.
    """
    if not schedule.arrivals:
        return np.full(schedule.ranks, float(delay))
    come = np.zeros(schedule.ranks)
    for place, group in enumerate(schedule.arrivals, start=1):
        come[list(group)] = delay * place / len(schedule.arrivals)
    return come


def _checked(arrivals: ArrayLike, ranks: int) -> Times:
    """Arrivals as float64, shape (iterations, ranks)."""
    try:
        come = np.atleast_2d(np.array(arrivals, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise UsageError(f"arrivals must be seconds, one a rank: {error}") from error
    if come.ndim != 2 or come.shape[1] != ranks:
        raise UsageError(f"arrivals of shape {come.shape} for {ranks} ranks: the last axis is the rank")
    if not np.isfinite(come).all():
        raise UsageError("arrivals must be finite seconds")
    return come


def _check_ports(phase: Phase, ranks: int) -> None:
    for column, verb in ((SRC, "sends"), (DST, "receives")):
        keys = phase.round_index() * ranks + phase.table[:, column]
        values, counts = np.unique(keys, return_counts=True)
        twice = values[counts > 1]
        if len(twice):
            where, rank = divmod(int(twice[0]), ranks)
            raise InvalidScheduleError(
                f"{phase.name} round {where}: rank {rank} {verb} more than once: it has one port each way"
            )


def _last_deliveries(schedule: Schedule) -> Indices:
    """For every message the last earlier one that delivered any of its chunks to its sender; -1: none.

    One is enough, for a rank's receives end in order.
    """
    coarse, _ = alike(schedule)
    needs = np.full(schedule.transfer_count, -1, dtype=np.int64)
    for low, high in blocks(coarse):
        last = np.full((schedule.ranks, high - low), -1, dtype=np.int64)
        base = 0
        for phase in coarse.phases:
            _follow(phase, base, low, last, needs)
            base += len(phase.table)
    return needs


def _follow(phase: Phase, base: int, low: int, last: Indices, needs: Indices) -> None:
    """Carries `last`, the last delivery of every (rank, chunk) of a block, through a phase."""
    table = phase.table.astype(np.int64)
    first = np.maximum(table[:, FIRST], low)
    count = np.maximum(np.minimum(table[:, FIRST] + table[:, COUNT], low + last.shape[1]) - first, 0)
    cells = np.concatenate(([0], np.cumsum(count)))
    for start, stop in pairwise(phase.offsets.tolist()):
        row = np.repeat(np.arange(start, stop), count[start:stop])
        chunk = first[row] - low + np.arange(cells[start], cells[stop]) - cells[row]
        np.maximum.at(needs, base + row, last[table[row, SRC], chunk])
        last[table[row, DST], chunk] = base + row
