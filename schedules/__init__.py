"""What a schedule is: its objects, file format, symbolic validation, bounds and cost model."""

from .certificate import Certificate, certify
from .cost import Cost, Link, cost
from .errors import (
    FormatError,
    InfeasibleError,
    InvalidScheduleError,
    MissingError,
    RunError,
    StragglarError,
    UsageError,
)
from .format import dump_schedule, load_schedule, parse_schedule, save_schedule
from .ir import Op, Origin, Phase, Schedule, Transfer
from .validate import RULES, Validation, Violation, require_valid, validate

__all__ = [
    "RULES",
    "Certificate",
    "Cost",
    "FormatError",
    "InfeasibleError",
    "InvalidScheduleError",
    "Link",
    "MissingError",
    "Op",
    "Origin",
    "Phase",
    "RunError",
    "Schedule",
    "StragglarError",
    "Transfer",
    "UsageError",
    "Validation",
    "Violation",
    "certify",
    "cost",
    "dump_schedule",
    "load_schedule",
    "parse_schedule",
    "require_valid",
    "save_schedule",
    "validate",
]
