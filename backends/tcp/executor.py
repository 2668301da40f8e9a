"""Runs one rank's part of a schedule over TCP, in place, with no synchronisation but the messages.

The model is one full-duplex port: at most one message leaves and one arrives at a time, in the order of the
program. A message leaves when its receiver has granted it (a few bytes, when it is next in line there), so
that no data piles up in the buffers of a rank that is late or busy, and when what it carries is final. What
arrives is reduced at once, while the rest is under way.

Hazards are watched element by element: a step may go as far as the earlier steps that it needs have gone, so
a rank passes on the front of a message whose end has not come. All waiting is in the kernel.

No deadlock: of all messages that are not over, anywhere, take the first by round, then by its place in the
round. All of earlier rounds are over, so what it reads is final: a send needs earlier rounds only. Both its
ends take messages in this order, so it is first in line at both. The receiver therefore grants it: the only
reason not to is scratch memory, which does not count for messages of the first open round. Once granted it is
read whatever its hazards are, into scratch if need be, so it ends. What stays in scratch waits for sends
of its own round, which end for the same reason.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from ...schedules import UsageError
from ..elements import Array, finish, prepare, reduction
from ..hazards import Step, plan
from ..programs import RankProgram
from ..recording import Recording
from .control import TAG_BYTES
from .mesh import Mesh
from .progress import Progress


@dataclass(frozen=True, slots=True)
class Window:
    """How far a rank works ahead; every value from 0 on is correct.

    Attributes:
        ahead: a message is granted once no more than so many bytes of those before it have still to come.
        scratch: bytes of messages that have come and wait for their use before the next round is granted.
        least: fewest bytes of an unfinished front of a message that are worth passing on.
    """

    ahead: int = 1 << 18
    scratch: int = 1 << 26
    least: int = 1 << 14


@dataclass(frozen=True, slots=True)
class Prepared:
    """What every run of an executor has in common.

    Attributes:
        steps: of this rank, in order; empty messages are left out.
        tags: one a step; both ends of a message compute the same.
        op: the reduction.
        phases: names of the phases.
        window: how far to work ahead.
        wait_seconds: how long to wait without any progress.
        recording: where to note what happens, or None.
    """

    steps: tuple[Step, ...]
    tags: tuple[bytes, ...]
    op: str
    phases: tuple[str, ...]
    window: Window
    wait_seconds: float
    recording: Recording | None


class Executor:
    """One rank's part of a schedule, prepared for buffers of one size and type; `run` may be repeated.

    Several executors may share a mesh, one after the other, in the same order on all ranks.

    Args:
        mesh: connections with all ranks that the program names.
        program: this rank's program.
        count: elements of the buffer, the same on every rank.
        dtype: numpy type of the elements, the same on every rank.
        op: sum, max, min, prod or avg.
        wait_seconds: how long to wait for others without any progress.
        recording: where to note what this rank does; None: nowhere, at no cost.
        window: how far to work ahead.

    Raises:
        UsageError: the mesh and the program do not belong together.
    """

    def __init__(
        self,
        mesh: Mesh,
        program: RankProgram,
        count: int,
        dtype: np.dtype[np.generic],
        op: str,
        *,
        wait_seconds: float = 60.0,
        recording: Recording | None = None,
        window: Window | None = None,
    ) -> None:
        if (mesh.ranks, mesh.rank) != (program.ranks, program.rank):
            raise UsageError(
                f"the program of rank {program.rank} of {program.ranks} was given to rank {mesh.rank}"
                f" of {mesh.ranks}"
            )
        reduction(op)
        steps = plan(program, count)
        strangers = {step.peer for step in steps} - mesh.peers
        if strangers:
            raise UsageError(f"rank {mesh.rank} is not connected with rank {min(strangers)}")
        self._mesh, self._count, self._dtype = mesh, count, dtype
        about = f"{program.ranks} {program.chunks} {count} {np.dtype(dtype).name} {op}"
        tags = tuple(_tag(about, program.rank, step) for step in steps)
        self._prepared = Prepared(
            steps, tags, op, program.phases, window or Window(), wait_seconds, recording
        )
        self._pool: list[Array] = []

    def run(self, buffer: Array) -> None:
        """Reduces `buffer`, shape (count,), contiguous, over all ranks, in place.

        Raises:
            UsageError: a buffer of another shape or type, or one that is not contiguous.
            RunError: a rank is gone, has failed, makes no progress within the time limit or runs something
                else; names it. All ranks are told, and the mesh is closed.
        """
        if buffer.shape != (self._count,) or buffer.dtype != self._dtype or not buffer.flags.c_contiguous:
            raise UsageError(f"the buffer must be {self._count} contiguous elements of {self._dtype}")
        self._mesh.require_usable()
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                prepare(self._prepared.op, buffer, self._mesh.ranks)
                Progress(self._mesh, self._prepared, buffer, self._pool).finish()
                finish(self._prepared.op, buffer, self._mesh.ranks)
        except BaseException as error:
            self._mesh.abort(error)
            raise


def _tag(about: str, rank: int, step: Step) -> bytes:
    ends = (rank, step.peer) if step.send else (step.peer, rank)
    words = f"{about} {ends} {step.phase} {step.round} {step.first} {step.count}"
    return hashlib.blake2b(words.encode(), digest_size=TAG_BYTES).digest()
