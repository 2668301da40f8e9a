"""What a run tells a recording: messages from their first byte to their last, work, and waits."""

from __future__ import annotations

from ..hazards import Step
from ..recording import Recording


class Notes:
    """The notes of one run.

    Args:
        recording: where to.
        phases: names of the phases.
        steps: of this rank.
    """

    def __init__(self, recording: Recording, phases: tuple[str, ...], steps: tuple[Step, ...]) -> None:
        self._recording, self._phases, self._steps = recording, phases, steps
        self._began: dict[int, float] = {}
        self._idle: tuple[int, float] | None = None

    def now(self) -> float:
        """The time of the recording."""
        return self._recording.now()

    def received(self, index: int, over: bool) -> None:
        """Bytes of a message have come; `over`: its last."""
        self._moved(index, over, "receive")

    def sent(self, index: int, over: bool) -> None:
        """Bytes of a message have left; `over`: its last."""
        self._moved(index, over, "send")

    def used(self, index: int, start: float) -> None:
        """What had come is in the buffer."""
        self._add(index, "copy" if self._steps[index].copy else "reduce", start, self.now())

    def idle(self, index: int, under_way: bool) -> None:
        """This rank goes to sleep before step `index` is over; `under_way`: data may move meanwhile."""
        if self._idle is None and not self._began:
            self._idle = index, self.now()

    def close(self) -> None:
        """The run is over."""
        self._end_wait(self.now())

    def _moved(self, index: int, over: bool, kind: str) -> None:
        now = self.now()
        self._end_wait(now)
        start = self._began.setdefault(index, now)
        if over:
            del self._began[index]
            self._add(index, kind, start, now)

    def _end_wait(self, now: float) -> None:
        if self._idle is None:
            return
        (index, start), self._idle = self._idle, None
        step = self._steps[index]
        self._recording.note("wait", start, now, self._phases[step.phase], step.round, step.peer)

    def _add(self, index: int, kind: str, start: float, end: float) -> None:
        step = self._steps[index]
        phase = self._phases[step.phase]
        self._recording.note(kind, start, end, phase, step.round, step.peer, step.first, step.count)
