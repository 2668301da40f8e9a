"""Schedules under PyTorch: an executor over torch.distributed, a DDP hook, a process group, a recorder.

What needs torch is imported when it is first asked for, so that the package can be looked into (and
`stragglar calibrate` can say what is missing) without it.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from ...schedules import MissingError

HOW = "needs torch: pip install 'stragglar[torch]'"
"""What to do where torch is missing."""

_HOMES = {
    "StragglarState": "ddp",
    "stragglar_hook": "ddp",
    "ArrivalRecorder": "recorder",
    "Choice": "plans",
    "Engine": "engine",
    "Planner": "planned",
    "Settings": "engine",
    "StragglarProcessGroup": "process_group",
    "break_even": "threshold",
    "register": "process_group",
    "renamed": "renaming",
}
"""Public name -> the module of this package that has it."""

__all__ = ["require_torch"]


def require_torch(what: str) -> None:
    """Raises `MissingError` where torch is not installed; `what` begins the sentence."""
    if importlib.util.find_spec("torch") is None:
        raise MissingError(f"{what} {HOW}")


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require_torch(f"stragglar.backends.torch.{name}")
    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
