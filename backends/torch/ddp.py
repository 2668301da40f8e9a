"""The communication hook for DistributedDataParallel: gradients are averaged by a schedule."""

# No `from __future__ import annotations`: DDP compares the hook's annotations, which must not be strings.

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist

from ...schedules import Schedule, UsageError
from .engine import Engine, Mode, Settings
from .plans import Chooser


class StragglarState:
    """State of `stragglar_hook`: whose gradients, by which schedule. Made on all ranks of the group at once.

    >>> model.register_comm_hook(StragglarState(schedule), stragglar_hook)  # doctest: +SKIP

    Args:
        schedule: an AllReduce for as many ranks as the group has; or what gives one for a bucket of so many
            bytes (None: the ordinary all_reduce), the same on all ranks.
        group: the ranks that reduce; None: all. Traffic runs on a group of its own.
        mode: `eager`: who is late is decided by the arrivals; `static`: as the schedule says; `off`.
        threshold: eager: seconds by which the last rank must come after the others to count as late.
        timeout: seconds that one message may take.
        decide: `iteration`: at the first bucket, for all buckets of a backward pass; `call`: at each.

    Raises:
        UsageError: a schedule for another number of ranks, or settings out of range.
    """

    def __init__(
        self,
        schedule: Schedule | Chooser,
        *,
        group: dist.ProcessGroup | None = None,
        mode: Mode = "eager",
        threshold: float = 0.0,
        timeout: float = 60.0,
        decide: Literal["iteration", "call"] = "iteration",
    ) -> None:
        settings = Settings(mode, threshold, timeout)
        if decide not in ("iteration", "call"):
            raise UsageError(f"decide {decide!r} is not known: use iteration or call")
        members = dist.get_process_group_ranks(group or dist.group.WORLD)
        _check(schedule, len(members))
        own = dist.new_group(members, timedelta(seconds=timeout), use_local_synchronization=True)
        store = dist.PrefixStore("stragglar", own.get_group_store())
        choose: Chooser = (lambda _size: schedule) if isinstance(schedule, Schedule) else schedule
        self._engine = Engine(own, store, choose, settings)
        self._every_call = decide == "call"

    def reduce(self, buffer: torch.Tensor, first: bool = True, op: object = "AVG") -> torch.futures.Future:
        """Begins an all_reduce of `buffer`; `first` of an iteration's. See `Engine.submit`."""
        return self._engine.submit(buffer, op, first or self._every_call)

    @property
    def late_counts(self) -> dict[int, int]:
        """How many buffers were reduced with which rank late; -1: nobody was, or nobody was asked."""
        return dict(self._engine.counts.late)

    def close(self) -> None:
        """Ends the state's thread; call it before `destroy_process_group`."""
        self._engine.close()


def _check(schedule: Schedule | Callable[[int], Any], ranks: int) -> None:
    if isinstance(schedule, Schedule) and schedule.ranks != ranks:
        raise UsageError(f"the schedule is for {schedule.ranks} ranks and the process group has {ranks}")


def stragglar_hook(state: StragglarState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket of gradients by the state's schedule; for `register_comm_hook`."""
    return state.reduce(bucket.buffer(), first=bucket.index() == 0)
