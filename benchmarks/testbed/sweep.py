"""The same measurement for several delays, sizes or numbers of hosts: the points of a plot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..schedules.errors import UsageError
from .links import Links, links

AXES = ("delay", "size", "hosts")


def sweep(
    request: Links, over: str, values: Sequence[float], say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Measures `request` once for every value; returns the reports in order.

    Args:
        request: what to measure.
        over: one of `AXES`.
        values: delays as multiples of the one that hides the ReduceScatter, sizes in bytes, or hosts.
        say: told what goes on, one line at a time.

    Raises:
        UsageError, MissingError, RunError: as `links`; all points are checked before the first is measured.
    """
    points = [_point(request, over, value) for value in values]
    reports = []
    for number, point in enumerate(points, start=1):
        say(f"point {number} of {len(points)}: {over} {values[number - 1]:g}")
        reports.append(links(point, say)[0])
    return reports


def _point(request: Links, over: str, value: float) -> Links:
    if over == "delay":
        return replace(request, late_by=value * request.scene().hiding_delay)
    if over == "size":
        return replace(request, bytes=round(value), seconds=None)
    if over != "hosts":
        raise UsageError(f"a sweep is over {', '.join(AXES)}, not {over!r}")
    # With nobody named the last rank is late: of every testbed its own last one.
    last = (request.network.hosts - 1,)
    late = () if request.late == last else request.late
    return replace(request, network=replace(request.network, hosts=round(value)), late=late)
