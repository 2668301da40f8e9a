"""Running a schedule: the names of the backends that can, each loaded only when it is used."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import cast

from ..schedules import Schedule, UsageError, require_valid
from .report import RunReport, Timing
from .request import RunRequest

Runner = Callable[[Schedule, RunRequest], RunReport]


class Runners:
    """Names of backends and where their function `run(schedule, request) -> RunReport` is."""

    def __init__(self) -> None:
        self._modules: dict[str, str] = {}

    def register(self, name: str, module: str) -> None:
        """Adds a backend whose `run` is in `module` (`.model`: relative to this package).

        Raises:
            ValueError: the name is taken.
        """
        if name in self._modules:
            raise ValueError(f"backend {name!r} is registered twice: {self._modules[name]} and {module}")
        self._modules[name] = module

    def names(self) -> tuple[str, ...]:
        """All names, in order of registration."""
        return tuple(self._modules)

    def get(self, name: str) -> Runner:
        """Loads a backend.

        Raises:
            UsageError: no backend of that name.
        """
        if name not in self._modules:
            raise UsageError(f"backend {name!r} is not known: use one of {', '.join(self._modules)}")
        return cast(Runner, import_module(self._modules[name], __package__).run)


RUNNERS = Runners()
RUNNERS.register("model", ".model")
RUNNERS.register("mpi", ".mpi.launch")
RUNNERS.register("tcp", ".tcp.launch")
RUNNERS.register("nccl", ".nccl.launch")


def run(schedule: Schedule, on: str, request: RunRequest) -> RunReport:
    """Runs a schedule on a backend and checks the result of every rank.

    Args:
        schedule: a correct AllReduce; anything else could leave ranks waiting for ever.
        on: name of the backend, see `RUNNERS.names()`.
        request: what to run.

    Returns:
        A `RunReport`; look at `.correct`.

    Raises:
        InvalidScheduleError: the schedule is not an AllReduce.
        UsageError: no such backend, or a request that does not fit the schedule.
        MissingError: something that the backend needs is not installed.
        RunError: a rank died, stalled or was given different input; names it.
    """
    runner = RUNNERS.get(on)
    require_valid(schedule)
    request.delays_for(schedule)
    return runner(schedule, request)


__all__ = ["RUNNERS", "RunReport", "RunRequest", "Runner", "Runners", "Timing", "run"]
