"""What the inspector's page knows of a schedule: plain values for JSON."""

from __future__ import annotations

from typing import Any

from ...schedules import Link, Schedule, Violation, certify, validate
from ...schedules.errors import UsageError
from ...schedules.ir import SRC
from ...schedules.svg_paper import plain

MOST_TRANSFERS = 1 << 20
MOST_WORDS = 1 << 24
"""Most 32-bit words in which the page keeps who has contributed to what."""


def require_drawable(schedule: Schedule) -> None:
    """Refuses what a page cannot follow.

    Raises:
        UsageError: more than a browser can follow smoothly.
    """
    words = schedule.ranks * schedule.chunks * -(-schedule.ranks // 32)
    if schedule.transfer_count > MOST_TRANSFERS or words > MOST_WORDS:
        raise UsageError(
            f"{schedule.ranks} ranks, {schedule.chunks} chunks and {schedule.transfer_count} transfers are"
            " more than the page can follow: use --as svg"
        )


def schedule_data(schedule: Schedule) -> dict[str, Any]:
    """A schedule with what its check found; transfers of a phase as one flat list of five columns.

    Raises:
        UsageError: more than a browser can follow smoothly.
    """
    require_drawable(schedule)
    made, found = certify(schedule), validate(schedule)
    return {
        "name": plain(schedule.origin.family),
        "parameters": [[plain(key), plain(str(value))] for key, value in schedule.origin.parameters],
        "ranks": schedule.ranks,
        "chunks": schedule.chunks,
        "arrivals": [list(group) for group in schedule.arrivals],
        "phases": [
            {"name": p.name, "offsets": p.offsets.tolist(), "rows": p.table[:, SRC:].ravel().tolist()}
            for p in schedule.phases
        ],
        "bound": made.post_bound,
        "gap": made.gap,
        "total": found.total,
        "violations": [_violation(schedule, v) for v in found.violations],
    }


def _violation(schedule: Schedule, found: Violation) -> dict[str, int | str]:
    return {
        "phase": [phase.name for phase in schedule.phases].index(found.phase),
        "round": found.round,
        "rank": found.rank,
        "chunk": found.chunk,
        "text": plain(str(found), 300),
    }


def link_data(size: float, link: Link, delay: float) -> dict[str, float]:
    """The terms that both schedules are compared under at first."""
    return {"bytes": size, "alpha": link.alpha, "bandwidth": link.bandwidth, "delay": delay}
