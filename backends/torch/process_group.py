"""The process group backend "stragglar": all_reduce by a schedule, the rest passed on to gloo or NCCL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ...schedules import Schedule
from .engine import Engine, Mode, Settings

NAME = "stragglar"

Planner = Callable[[int, int], Schedule | None]
"""Ranks of a group and bytes of a buffer -> schedule; None: the ordinary all_reduce. On all ranks alike."""


@dataclass(frozen=True, slots=True)
class _Registered:
    planner: Planner
    settings: Settings


_registered: list[_Registered] = []
"""What groups are made with from now on: the last entry. torch's registry of backends is global, too."""


def register(
    planner: Planner, *, mode: Mode = "eager", threshold: float = 0.0, timeout: float = 60.0
) -> None:
    """Makes `dist.init_process_group("stragglar")` and `dist.new_group(backend="stragglar")` possible.

    May be called again: groups made from then on use the new values.

    Args:
        planner: ranks and bytes -> schedule; groups of any size may be made.
        mode: `eager`: who is late is decided in every call; `static`: as the schedule says; `off`.
        threshold: eager: seconds by which the last rank must come after the others to count as late.
        timeout: seconds that one message may take.

    Raises:
        UsageError: settings out of range.
    """
    _registered.append(_Registered(planner, Settings(mode, threshold, timeout)))
    if not hasattr(dist.Backend, NAME.upper()):
        dist.Backend.register_backend(NAME, _create, devices=["cpu", "cuda"])


def _create(store: dist.Store, rank: int, size: int, timeout: timedelta) -> StragglarProcessGroup:
    return StragglarProcessGroup(store, rank, size, timeout, _registered[-1])


def _add_backends(group: dist.ProcessGroup, store: dist.Store, timeout: timedelta) -> None:
    """Gives a group gloo for CPU tensors, and NCCL for those on GPUs where there are any."""
    rank, size, kinds = group.rank(), group.size(), dist.ProcessGroup.BackendType
    gloo = dist.ProcessGroupGloo(dist.PrefixStore("cpu", store), rank, size, timeout)
    group._register_backend(torch.device("cpu"), kinds.GLOO, gloo)
    group._set_default_backend(kinds.GLOO)
    if torch.cuda.is_available() and dist.is_nccl_available():
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timeout
        nccl = dist.ProcessGroupNCCL(dist.PrefixStore("cuda", store), rank, size, options)
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
        _add_backends(self, dist.PrefixStore("plain", store), timeout)
        own = dist.ProcessGroup(store, rank, size)
        _add_backends(own, dist.PrefixStore("own", store), timeout)
        planner = registered.planner
        self._engine = Engine(
            own,
            dist.PrefixStore("engine", store),
            lambda nbytes: planner(size, nbytes) if size > 1 else None,
            registered.settings,
        )

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None, **named: Any) -> dist.Work:  # noqa: ANN401
        """Begins an all_reduce of one tensor, in place."""
        op = named.get("op", getattr(opts, "reduceOp", opts) if opts is not None else "SUM")
        (tensor,) = tensors
        future = self._engine.submit(tensor, op)
        return FutureWork(future.then(lambda done: [done.value()]))

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
