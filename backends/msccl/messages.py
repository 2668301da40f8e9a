"""Lowering, first pass: a schedule's transfers as messages that one step on each side can carry.

A transfer is split where a step could not move it whole: at the runtime's largest count and, out of
place, where the sender's chunks lie partly in its input and partly in its output already.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from ...schedules.ir import Op, Schedule, Transfer


@dataclass(frozen=True, slots=True)
class Message:
    """One send step and its receive: chunks `first`..`first + count - 1` from `src` to `dst`.

    `from_output`: the sender's chunks lie in its output buffer (out of place only).
    `into_output`: for every chunk, whether the receiver already has it in its output buffer.
    `exchanged`: the receiver sends chunks of this run in the same round.
    """

    phase: int
    round: int
    src: int
    dst: int
    first: int
    count: int
    op: Op
    from_output: bool
    into_output: tuple[bool, ...]
    exchanged: bool

    @property
    def chunks(self) -> range:
        """The chunks that the message carries."""
        return range(self.first, self.first + self.count)


def message_rounds(schedule: Schedule, max_count: int, in_place: bool) -> Iterator[list[Message]]:
    """The messages of every round of all phases, in order."""
    written = np.zeros((schedule.ranks, schedule.chunks), dtype=bool)
    for number, phase in enumerate(schedule.phases):
        for index in range(len(phase)):
            transfers = phase.transfers(index)
            sent = _sent(transfers)
            messages = []
            for t in transfers:
                for first, count in _pieces(t, written, max_count):
                    run = slice(first, first + count)
                    messages.append(
                        Message(
                            phase=number,
                            round=index,
                            src=t.src,
                            dst=t.dst,
                            first=first,
                            count=count,
                            op=t.op,
                            from_output=bool(written[t.src, first]),
                            into_output=tuple(written[t.dst, run].tolist()),
                            exchanged=not sent.get(t.dst, set()).isdisjoint(range(first, first + count)),
                        )
                    )
            yield messages
            if not in_place:
                for t in transfers:
                    written[t.dst, t.first : t.first + t.count] = True


def _sent(transfers: tuple[Transfer, ...]) -> dict[int, set[int]]:
    sent: dict[int, set[int]] = {}
    for t in transfers:
        sent.setdefault(t.src, set()).update(t.chunks)
    return sent


def _pieces(t: Transfer, written: np.ndarray, max_count: int) -> Iterator[tuple[int, int]]:
    first = t.first
    for _, same in groupby(written[t.src, t.first : t.first + t.count].tolist()):
        length = len(list(same))
        for start in range(0, length, max_count):
            yield first + start, min(max_count, length - start)
        first += length
