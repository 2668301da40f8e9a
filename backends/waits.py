"""What ranks wait for, and who is to blame where one has waited too long."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Blocked:
    """What a rank waits for: a peer (-1: all of them) and the phase and round (-1: outside the schedule)."""

    peer: int = -1
    phase: int = -1
    round: int = -1

    def where(self, phases: tuple[str, ...]) -> str:
        """The same in words; `phases` are the names of the schedule's phases."""
        if self.peer < 0:
            return "for all ranks to come together"
        if self.phase < 0:
            return f"for rank {self.peer}"
        phase = phases[self.phase] if self.phase < len(phases) else str(self.phase)
        return f"for rank {self.peer} in {phase} round {self.round}"


EVERYONE = Blocked()


def blame(
    me: int, others: Collection[int], answers: Mapping[int, Blocked], seconds: float, phases: tuple[str, ...]
) -> str:
    """Who holds up a rank: whoever does not answer, else the rank at the end of the chain of waits.

    Args:
        me: the rank that has waited too long.
        others: the ranks that it asked.
        answers: what each rank that answered waits for, its own answer included.
        seconds: for how long it has waited.
        phases: names of the schedule's phases.
    """
    waited = f"rank {me} waited {seconds:.1f} s {answers[me].where(phases)}"
    silent = sorted(set(others) - set(answers))
    if silent:
        names = f"rank {silent[0]}" if len(silent) == 1 else "ranks " + ", ".join(map(str, silent))
        return f"{names} {'does' if len(silent) == 1 else 'do'} not respond: {waited}"
    rank, seen = me, {me}
    while rank in answers and answers[rank].peer >= 0 and answers[rank].peer not in seen:
        rank = answers[rank].peer
        seen.add(rank)
    return f"rank {rank} holds up the others: {waited}"
