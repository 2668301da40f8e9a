"""Several late ranks: the post phase for a last group together, and groups one by one."""

from .build import several_rounds
from .groups import groups_schedule
from .rounds import InvalidSeveralError, SeveralRounds
from .verify import check_several_rounds

__all__ = [
    "InvalidSeveralError",
    "SeveralRounds",
    "check_several_rounds",
    "groups_schedule",
    "several_rounds",
]
