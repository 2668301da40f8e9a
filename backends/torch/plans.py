"""The prepared rounds of every late rank, size and type that came up; all ranks must prepare alike."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from ...schedules import RunError, Schedule, UsageError
from ..programs import rank_program
from .blame import Blame
from .reductions import require_supported
from .renaming import renamed
from .rounds import Round, rounds_of

Chooser = Callable[[int], Schedule | None]
"""Bytes of a buffer -> the schedule for it, with one late rank or none; None: the ordinary all_reduce."""

KEPT = 256
"""Plans that are kept; the one used longest ago goes first, on all ranks alike."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do with a buffer: these rounds, or the ordinary all_reduce where there are none."""

    rounds: tuple[Round, ...] | None


class Plans:
    """Plans of one rank."""

    def __init__(self, choose: Chooser, rank: int, ranks: int, store: dist.Store, blame: Blame) -> None:
        self._choose, self._rank, self._ranks = choose, rank, ranks
        self._store, self._blame = store, blame
        self._schedules: dict[int, Schedule | None] = {}
        self._plans: OrderedDict[tuple[object, ...], Plan] = OrderedDict()
        self._made = 0

    def choice(self, size: int) -> Schedule | None:
        """The schedule for buffers of `size` bytes.

        Raises:
            UsageError: it is for another number of ranks.
        """
        if size not in self._schedules:
            schedule = self._choose(size)
            if schedule is not None and schedule.ranks != self._ranks:
                raise UsageError(
                    f"the schedule is for {schedule.ranks} ranks and the process group has {self._ranks}"
                )
            self._schedules[size] = schedule
        return self._schedules[size]

    def plan(self, late: int | None, flat: torch.Tensor, op: str) -> Plan:
        """The plan for a buffer, made where it is new.

        Args:
            late: the rank to take as late; None: as the schedule says.
            flat: the buffer, shape (count,).
            op: name of the operation.

        Raises:
            RunError: another rank is in the middle of something else.
            UsageError: the operation is not possible on this type.
        """
        key = (late, flat.numel(), flat.dtype, op)
        if key in self._plans:
            self._plans.move_to_end(key)
            return self._plans[key]
        require_supported(op, flat.dtype)
        schedule = self.choice(flat.numel() * flat.element_size())
        if schedule is not None and late is not None:
            schedule = renamed(schedule, late)
        self._agree(f"{op} of {flat.numel()} elements of {flat.dtype} by {_name(schedule)}")
        rounds = None if schedule is None else rounds_of(rank_program(schedule, self._rank), flat.numel())
        self._plans[key] = Plan(rounds)
        if len(self._plans) > KEPT:
            self._plans.popitem(last=False)
        return self._plans[key]

    def _agree(self, text: str) -> None:
        """Compares with the other ranks what is about to be done; the plans of all come in the same order."""
        self._made += 1
        first = self._store.compare_set(f"plan/{self._made}", "", text).decode()
        if first != text:
            found: RunError = self._blame.settle(
                f"rank {self._rank} is about to do {text}, another rank {first}: all must do the same"
            )
            raise found


def _name(schedule: Schedule | None) -> str:
    if schedule is None:
        return "the ordinary all_reduce"
    digest = hashlib.sha256(f"{schedule.ranks} {schedule.arrivals} {schedule.chunks}".encode())
    for phase in schedule.phases:
        digest.update(phase.offsets.tobytes() + phase.table.tobytes())
    return f"schedule {digest.hexdigest()[:12]} ({schedule.origin.family}, late {schedule.late})"
