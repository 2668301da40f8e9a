"""The communication hook for DistributedDataParallel: gradients are averaged by a schedule."""

# No `from __future__ import annotations`: DDP compares the hook's annotations, which must not be strings.

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist

from ...schedules import Link, Schedule, UsageError
from .engine import Engine, Mode, Settings
from .planned import Planner, link_for, usual_of
from .plans import Chooser


class StragglarState:
    """State of `stragglar_hook`: whose gradients, by which schedule. Made on all ranks of the group at once.

    >>> model.register_comm_hook(StragglarState(), stragglar_hook)  # doctest: +SKIP

    Args:
        schedule: None: planned for each bucket (`Planner`). Or an AllReduce for as many ranks as the group
            has; or what gives one, or a `Choice`, for a bucket of so many bytes (None: the ordinary
            all_reduce), the same on all ranks.
        group: the ranks that reduce; None: all. Traffic runs on a group of its own.
        mode: `eager`: who is late is decided by the arrivals; `static`: as the schedule, or `late`, says;
            `off`.
        threshold: eager: seconds by which the last rank must come after the others to count as late; None:
            as planned, and 0 for a schedule that was given.
        timeout: seconds that one message may take.
        decide: `iteration`: at the first bucket, for all buckets of a backward pass; `call`: at each.
        late: static: the rank to plan for.
        late_ranks: eager: so many ranks may be late together: those that have not come when the first
            n - late_ranks have. A schedule is needed for each number of them.
        delay: seconds by which late ranks are expected to be late, to plan for; None: long.
        link: alpha and bandwidth to plan with, or a profile file; None: defaults (`link_for`).
        shared_memory: whether ranks of one host may decide in shared memory.

    Raises:
        UsageError: a schedule for another number of ranks, or settings out of range.
        RunError: a rank is missing.
    """

    def __init__(
        self,
        schedule: Schedule | Chooser | None = None,
        *,
        group: dist.ProcessGroup | None = None,
        mode: Mode = "eager",
        threshold: float | None = None,
        timeout: float = 60.0,
        decide: Literal["iteration", "call"] = "iteration",
        late: int | None = None,
        late_ranks: int = 1,
        delay: float | None = None,
        link: Link | str | None = None,
        shared_memory: bool = True,
    ) -> None:
        settings = Settings(mode, threshold, timeout, late_ranks, shared_memory)
        if decide not in ("iteration", "call"):
            raise UsageError(f"decide {decide!r} is not known: use iteration or call")
        members = dist.get_process_group_ranks(group or dist.group.WORLD)
        if schedule is None:
            schedule = _planned(len(members), dist.get_backend(group), mode, late, late_ranks, delay, link)
        elif (late, delay, link) != (None, None, None):
            raise UsageError("late, delay and link are for planning: give them, or a schedule")
        _check(schedule, len(members))
        own = dist.new_group(members, timedelta(seconds=timeout), use_local_synchronization=True)
        store = dist.PrefixStore("stragglar", own.get_group_store())
        choose: Chooser = (lambda _size: schedule) if isinstance(schedule, Schedule) else schedule
        self._engine = Engine(own, store, choose, settings)
        self._every_call = decide == "call"

    @classmethod
    def from_trace(
        cls,
        path: str,
        *,
        group: dist.ProcessGroup | None = None,
        mode: Mode = "static",
        **more: Any,  # noqa: ANN401
    ) -> "StragglarState":
        """A state planned for a trace: for the rank that is usually last and the median of its leads.

        Args:
            path: what `ArrivalRecorder` wrote; the same on all ranks.
            group: the ranks that reduce; None: all.
            mode: `static`: the usual rank is always taken as late; `eager`: whoever is, in each call.
            more: further arguments of `StragglarState`, but for `schedule`, `late` and `delay`.

        Raises:
            UsageError, FormatError: it is no trace, or one of another number of ranks.
        """
        late, delay = usual_of(path, dist.get_world_size(group))
        return cls(group=group, mode=mode, late=late, delay=delay, **more)

    def reduce(self, buffer: torch.Tensor, first: bool = True, op: object = "AVG") -> torch.futures.Future:
        """Begins an all_reduce of `buffer`; `first` of an iteration's. See `Engine.submit`."""
        return self._engine.submit(buffer, op, first or self._every_call)

    @property
    def late_counts(self) -> dict[int, int]:
        """How many buffers were reduced with which rank late; -1: nobody was, or nobody was asked.

        A buffer with several late ranks counts for each.
        """
        return dict(self._engine.counts.late)

    @property
    def decides_in_shared_memory(self) -> bool:
        """Whether the ranks are on one host and decide who is late in its memory."""
        return self._engine.decides_in_shared_memory

    def close(self) -> None:
        """Ends the state's threads; call it before `destroy_process_group`."""
        self._engine.close()


def _planned(
    ranks: int,
    backend: str,
    mode: Mode,
    late: int | None,
    late_ranks: int,
    delay: float | None,
    link: Link | str | None,
) -> Chooser:
    if mode == "static" and late is None:
        raise UsageError("static mode needs to know who is late: give late=RANK, a schedule, or a trace")
    if mode == "off" or ranks < 2:
        return lambda _size: None
    most = min(late_ranks, ranks - 1)
    return Planner(ranks, link_for(backend, link), delay=delay, late=late or 0, late_ranks=most)


def _check(schedule: Schedule | Callable[[int], Any], ranks: int) -> None:
    if isinstance(schedule, Schedule) and schedule.ranks != ranks:
        raise UsageError(f"the schedule is for {schedule.ranks} ranks and the process group has {ranks}")


def stragglar_hook(state: StragglarState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket of gradients by the state's schedule; for `register_comm_hook`."""
    return state.reduce(bucket.buffer(), first=bucket.index() == 0)
