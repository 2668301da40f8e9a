"""The process group backend "stragglar": all_reduce by a schedule, the rest passed on to gloo or NCCL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ...schedules import Link, Schedule, UsageError
from .engine import Engine, Mode, Settings
from .planned import Planner, link_for
from .plans import Choice

NAME = "stragglar"

GroupChooser = Callable[[int, int], Schedule | Choice | None]
"""Ranks of a group and bytes of a buffer -> what to do; None: the ordinary all_reduce. On all ranks alike."""


@dataclass(frozen=True, slots=True)
class _Registered:
    choose: GroupChooser
    settings: Settings


_registered: list[_Registered] = []
"""What groups are made with from now on: the last entry. torch's registry of backends is global, too."""


def register(
    choose: GroupChooser | None = None,
    *,
    mode: Mode = "eager",
    threshold: float | None = None,
    timeout: float = 60.0,
    late_ranks: int = 1,
    link: Link | str | None = None,
    shared_memory: bool = True,
) -> None:
    """Makes `dist.init_process_group("stragglar")` and `dist.new_group(backend="stragglar")` possible.

    May be called again: groups made from then on use the new values.

    Args:
        choose: ranks and bytes -> schedule; groups of any size may be made. None: planned (`Planner`).
        mode: `eager`: who is late is decided in every call; `static`: as the schedule says; `off`.
        threshold: eager: seconds by which the last rank must come after the others to count as late; None:
            as planned, and 0 for schedules that were given.
        timeout: seconds that one message may take.
        late_ranks: eager: so many ranks may be late together.
        link: alpha and bandwidth to plan with, or a profile file; None: defaults (`link_for`).
        shared_memory: whether ranks of one host may decide in shared memory.

    Raises:
        UsageError: settings out of range.
    """
    settings = Settings(mode, threshold, timeout, late_ranks, shared_memory)
    if choose is None:
        if mode == "static":
            raise UsageError("static mode needs to know who is late: give what chooses a schedule")
        choose = _Planned(link, late_ranks)
    elif link is not None:
        raise UsageError("a link is for planning: give one, or what chooses schedules")
    _registered.append(_Registered(choose, settings))
    if not hasattr(dist.Backend, NAME.upper()):
        dist.Backend.register_backend(NAME, _create, devices=["cpu", "cuda"])


class _Planned:
    """Plans for groups of any number of ranks."""

    def __init__(self, link: Link | str | None, late_ranks: int) -> None:
        backend = "nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
        self._link, self._late_ranks = link_for(backend, link), late_ranks
        self._planners: dict[int, Planner] = {}

    def __call__(self, ranks: int, nbytes: int) -> Choice | None:
        if ranks not in self._planners:
            late_ranks = min(self._late_ranks, ranks - 1)
            self._planners[ranks] = Planner(ranks, self._link, late_ranks=late_ranks)
        return self._planners[ranks](nbytes)


def _create(store: dist.Store, rank: int, size: int, timeout: timedelta) -> StragglarProcessGroup:
    return StragglarProcessGroup(store, rank, size, timeout, _registered[-1])


def _add_backends(store: dist.Store, timeout: timedelta, *groups: dist.ProcessGroup) -> None:
    """Gives groups of the same ranks gloo for CPU tensors, and NCCL for those on GPUs where there are any."""
    rank, size, kinds = groups[0].rank(), groups[0].size(), dist.ProcessGroup.BackendType
    gloo = dist.ProcessGroupGloo(dist.PrefixStore("cpu", store), rank, size, timeout)
    for group in groups:
        group._register_backend(torch.device("cpu"), kinds.GLOO, gloo)
        group._set_default_backend(kinds.GLOO)
    if torch.cuda.is_available() and dist.is_nccl_available():
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timeout
        nccl = dist.ProcessGroupNCCL(dist.PrefixStore("cuda", store), rank, size, options)
        for group in groups:
            group._register_backend(torch.device("cuda"), kinds.NCCL, nccl)
            group._set_default_backend(kinds.NCCL)


class FutureWork(dist.Work):  # type: ignore[misc]
    """The handle of an all_reduce that the engine does."""

    def __init__(self, future: torch.futures.Future[list[torch.Tensor]]) -> None:
        super().__init__()
        self._future = future

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Waits for the result (a GPU's stream does); raises RuntimeError naming the rank that failed."""
        # The engine has a time limit on every message, so this ends.
        self._future.wait()
        return True

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """A future of the list of tensors."""
        return self._future

    def is_completed(self) -> bool:
        """Whether waiting would return at once."""
        return bool(self._future.done())


class StragglarProcessGroup(dist.ProcessGroup):  # type: ignore[misc]
    """What `init_process_group("stragglar")` makes.

    It is an ordinary group with gloo and NCCL in it, but for all_reduce: that runs on a group of its own, on
    the engine's thread. The order of operations on each of the two is the same on all ranks.
    """

    def __init__(
        self, store: dist.Store, rank: int, size: int, timeout: timedelta, registered: _Registered
    ) -> None:
        super().__init__(rank, size)
        self._plain, own = dist.ProcessGroup(store, rank, size), dist.ProcessGroup(store, rank, size)
        _add_backends(dist.PrefixStore("plain", store), timeout, self, self._plain)
        _add_backends(dist.PrefixStore("own", store), timeout, own)
        choose = registered.choose
        self._engine = Engine(
            own,
            dist.PrefixStore("engine", store),
            lambda nbytes: choose(size, nbytes) if size > 1 else None,
            registered.settings,
        )

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None, **named: Any) -> dist.Work:  # noqa: ANN401
        """Begins an all_reduce of one tensor, in place."""
        op = named.get("op", getattr(opts, "reduceOp", opts) if opts is not None else "SUM")
        (tensor,) = tensors
        future = self._engine.submit(tensor, op)
        return FutureWork(future.then(lambda done: [done.value()]))

    # These three are passed on by hand. Where a subclass in Python has none of its own, torch calls the
    # group's backend while it holds the interpreter's lock (PyProcessGroup.hpp), and deadlocks with a thread
    # of gloo that waits for it to free a tensor. `_plain` has the same backends and no Python.

    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, *options: Any) -> dist.Work:  # noqa: ANN401
        """The backend's own; what functional collectives and DTensor gather with."""
        return self._plain.allgather_into_tensor_coalesced(outputs, inputs, *options)

    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, *options: Any) -> dist.Work:  # noqa: ANN401
        """The backend's own."""
        return self._plain.reduce_scatter_tensor_coalesced(outputs, inputs, *options)

    def all_to_all_single(self, *arguments: Any) -> dist.Work:  # noqa: ANN401
        """The backend's own."""
        return self._plain.alltoall_base(*arguments)

    # As torch called them before.
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    @property
    def late_counts(self) -> dict[int, int]:
        """How many calls were done with which rank late; -1: nobody was, or nobody was asked."""
        return dict(self._engine.counts.late)

    def getBackendName(self) -> str:
        """The name that it is registered under."""
        return NAME

    def shutdown(self) -> None:
        """Ends the engine's thread after the calls that were begun."""
        self._engine.close()
        super().shutdown()
