"""What the ranks of a run did and when: the rows of `stragglar run --trace`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

KINDS = ("send", "receive", "reduce", "copy", "wait", "absent")
"""`send` and `receive`: from being issued to being over; `reduce` and `copy`: what a rank does with data that
has arrived; `wait`: nothing of the three could be done; `absent`: before the rank's arrival."""


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Something that one rank did, or waited for.

    Attributes:
        rank: whose event it is.
        kind: one of `KINDS`.
        start: seconds on a clock that all ranks of the run share; 0 is when the first rank arrived.
        end: the same, `end >= start`.
        phase: name of the schedule's phase; empty for `absent`.
        round: round in that phase, or -1 where there is none.
        peer: the rank sent to, received from or waited for; -1 where there is none.
        first: first chunk, or -1.
        count: number of chunks.
    """

    rank: int
    kind: str
    start: float
    end: float
    phase: str = ""
    round: int = -1
    peer: int = -1
    first: int = -1
    count: int = 0

    def to_json(self) -> list[Any]:
        """The values in the order of the attributes; `RunEvent(*values)` gives the event back."""
        return [
            self.rank,
            self.kind,
            self.start,
            self.end,
            self.phase,
            self.round,
            self.peer,
            self.first,
            self.count,
        ]
