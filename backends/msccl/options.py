"""How to lower a schedule: the options that all MSCCL printers share."""

from __future__ import annotations

from dataclasses import dataclass

from ...schedules.errors import UsageError
from ...schedules.ir import Schedule
from .profiles import profile_named
from .xml_write import MAX_NAME

PROTOCOLS = ("Simple", "LL", "LL128")
DEFAULT_MAX_BYTES = 1 << 31
"""Largest buffer a file is for unless told otherwise; some runtimes reserve scratch in proportion."""


@dataclass(frozen=True, slots=True)
class LowerOptions:
    """How to lower.

    Attributes:
        runtime: whose limits to respect; `portable` respects all of them.
        in_place: for calls whose output is their input (what DDP does), or for all others.
        fused: use `rrc`, which RCCL does not launch, instead of `r` and `re`.
        protocol: Simple, LL or LL128.
        instances: copies of the program, each on its own channels and its own share of the buffer.
        min_bytes: smallest buffer that a runtime may use the file for.
        max_bytes: largest one.
        name: of the algorithm; made from the schedule if empty.

    Raises:
        UsageError: contradictory options.
    """

    runtime: str = "portable"
    in_place: bool = True
    fused: bool = False
    protocol: str = "Simple"
    instances: int = 1
    min_bytes: int = 0
    max_bytes: int = DEFAULT_MAX_BYTES
    name: str = ""

    def __post_init__(self) -> None:
        profile_named(self.runtime)
        if self.protocol not in PROTOCOLS:
            raise UsageError(f"protocol {self.protocol!r} is not known: use {', '.join(PROTOCOLS)}")
        if not 1 <= self.instances <= 32:
            raise UsageError(f"instances must be 1..32, not {self.instances}")
        if not 0 <= self.min_bytes < self.max_bytes < 1 << 63:
            raise UsageError("the sizes must have 0 <= smallest < largest")
        if len(self.name) > MAX_NAME:
            raise UsageError(f"the name has {len(self.name)} characters; {MAX_NAME} fit")


def algorithm_name(schedule: Schedule) -> str:
    """A name that says what the program is, in characters that every runtime takes."""
    family = "".join(c if c.isascii() and c.isalnum() else "-" for c in schedule.origin.family)
    late = "".join(f"-late{r}" for r in schedule.late[:4])
    return f"{family[:24]}-n{schedule.ranks}{late}-k{schedule.chunks}"[:MAX_NAME]
