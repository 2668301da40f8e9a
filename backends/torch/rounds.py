"""One rank's rounds on a buffer of a given length: what to send, what to receive, and where it may land."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from ...schedules import Op
from ..elements import chunk_bounds
from ..programs import KIND, LENGTH, PEER, PHASE, REDUCTION, ROUND, SEND, START, RankProgram


@dataclass(frozen=True, slots=True)
class Message:
    """Elements `low` to `high - 1` to or from `peer`.

    Attributes:
        peer: the other rank.
        low: first element.
        high: element after the last; never `low`: empty messages are left out on both ends.
        copy: what is received replaces what is there.
        direct: it may be received in place: a copy over elements that no send of the round reads.
    """

    peer: int
    low: int
    high: int
    copy: bool
    direct: bool


@dataclass(frozen=True, slots=True)
class Round:
    """All messages of one rank in one round, and the round's name for error messages."""

    where: str
    sends: tuple[Message, ...]
    receives: tuple[Message, ...]


def rounds_of(program: RankProgram, count: int) -> tuple[Round, ...]:
    """The rounds in which this rank has something to send or receive, on a buffer of `count` elements."""
    bounds = chunk_bounds(count, program.chunks).tolist()
    rows = [
        (row, bounds[row[START]], bounds[row[START] + row[LENGTH]])
        for row in program.steps.tolist()
        if bounds[row[START]] < bounds[row[START] + row[LENGTH]]
    ]
    rounds = []
    for (phase, number), group in groupby(rows, key=lambda item: (item[0][PHASE], item[0][ROUND])):
        steps = list(group)
        read = [(low, high) for row, low, high in steps if row[KIND] == SEND]
        sends = [Message(row[PEER], low, high, False, True) for row, low, high in steps if row[KIND] == SEND]
        receives = [_received(row, low, high, read) for row, low, high in steps if row[KIND] != SEND]
        rounds.append(Round(f"{program.phases[phase]} round {number}", tuple(sends), tuple(receives)))
    return tuple(rounds)


def _received(row: list[int], low: int, high: int, read: list[tuple[int, int]]) -> Message:
    copy = row[REDUCTION] == Op.COPY
    # Write after read: the sends of a round read the state from before it.
    untouched = all(high <= first or last <= low for first, last in read)
    return Message(row[PEER], low, high, copy, copy and untouched)
