"""The prepared rounds of every late rank, size and type that came up; all ranks must prepare alike."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from ...schedules import RunError, Schedule, UsageError
from ..programs import rank_program
from .blame import Blame
from .reductions import require_supported
from .renaming import renamed
from .rounds import Round, rounds_of

KEPT = 256
"""Plans, and choices, that are kept; the one used longest ago goes first, on all ranks alike."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What to do with buffers of a size where somebody is late.

    Attributes:
        schedules: the one for g late ranks that arrive together at place g - 1. A single one with no late
            rank, or with late ranks in groups, is run as it is.
        threshold: seconds by which the last ranks must come after the others for it to pay.
    """

    schedules: tuple[Schedule, ...]
    threshold: float = 0.0

    def __post_init__(self) -> None:
        if not self.schedules or not 0 <= self.threshold < float("inf"):
            raise UsageError("a choice has a schedule, and a threshold of 0 or more seconds")


Chooser = Callable[[int], Schedule | Choice | None]
"""Bytes of a buffer -> what to do with it, alike on all ranks; None: the ordinary all_reduce."""


class Plans:
    """Plans of one rank; with `late_ranks` those may be late together, 0: as each schedule says."""

    def __init__(
        self, choose: Chooser, rank: int, ranks: int, late_ranks: int, store: dist.Store, blame: Blame
    ) -> None:
        self._choose, self._rank, self._ranks, self._late_ranks = choose, rank, ranks, late_ranks
        self._store, self._blame = store, blame
        self._choices: OrderedDict[int, Choice | None] = OrderedDict()
        self._plans: OrderedDict[tuple[object, ...], tuple[Round, ...]] = OrderedDict()
        self._made = 0

    def choice(self, size: int) -> Choice | None:
        """What to do with buffers of `size` bytes.

        Raises:
            UsageError: it is for another number of ranks, or not for all numbers of late ranks.
        """
        if size in self._choices:
            self._choices.move_to_end(size)
            return self._choices[size]
        chosen = self._choose(size)
        if isinstance(chosen, Schedule):
            chosen = Choice((chosen,))
        if chosen is not None:
            self._check(chosen)
        _keep(self._choices, size, chosen)
        return chosen

    def rounds(self, late: tuple[int, ...], flat: torch.Tensor, op: str) -> tuple[Round, ...]:
        """This rank's rounds for a buffer for which there is a choice, made where they are new.

        Args:
            late: the ranks to take as late; none: as the schedule says.
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
        choice = self.choice(flat.numel() * flat.element_size())
        assert choice is not None
        schedule = choice.schedules[0] if not late else renamed(choice.schedules[len(late) - 1], late)
        self._agree(f"{op} of {flat.numel()} elements of {flat.dtype} by {_name(schedule)}")
        rounds = rounds_of(rank_program(schedule, self._rank), flat.numel())
        _keep(self._plans, key, rounds)
        return rounds

    def _check(self, choice: Choice) -> None:
        for schedule in choice.schedules:
            if schedule.ranks != self._ranks:
                raise UsageError(
                    f"the schedule is for {schedule.ranks} ranks and the process group has {self._ranks}"
                )
        if not self._late_ranks or not choice.schedules[0].late:
            return
        counts = [len(schedule.late) for schedule in choice.schedules if len(schedule.arrivals) == 1]
        if counts[: self._late_ranks] != list(range(1, self._late_ranks + 1)):
            raise UsageError(
                f"arrivals decide who is late, up to {self._late_ranks} at a time: that needs a schedule"
                f" for each number of late ranks from 1 on that arrive together, not"
                f" {[s.arrivals for s in choice.schedules]}; or use mode='static'"
            )

    def _agree(self, text: str) -> None:
        """Compares with the other ranks what is about to be done; the plans of all come in the same order."""
        self._made += 1
        first = self._store.compare_set(f"plan/{self._made}", "", text).decode()
        if first != text:
            found: RunError = self._blame.settle(
                f"rank {self._rank} is about to do {text}, another rank {first}: all must do the same"
            )
            raise found


def _keep(kept: OrderedDict[Any, Any], key: object, value: object) -> None:
    kept[key] = value
    if len(kept) > KEPT:
        kept.popitem(last=False)


def _name(schedule: Schedule) -> str:
    digest = hashlib.sha256(f"{schedule.ranks} {schedule.arrivals} {schedule.chunks}".encode())
    for phase in schedule.phases:
        digest.update(phase.offsets.tobytes() + phase.table.tobytes())
    return f"schedule {digest.hexdigest()[:12]} ({schedule.origin.family}, late {schedule.late})"
