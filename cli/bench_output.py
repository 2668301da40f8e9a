"""What `stragglar bench` prints: the table of a measurement, and its timelines."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ..backends.report import RunReport
from ..backends.view.chrome import Event, file_text
from ..backends.view.run_trace import run_events
from ..backends.view.timeline import Rows
from ..schedules.errors import UsageError
from ..schedules.svg_paper import plain
from ..schedules.units import format_bandwidth, format_bytes, format_seconds

WIDTH = 110


def links_text(report: dict[str, Any]) -> str:
    """A measurement for people."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("algorithm")
    for head in ("median", "spread", "theory", "/ theory", "ring /", "/ bound", "port", "CPU", "#wrong"):
        table.add_column(head, justify="right")
    for row in report["algorithms"]:
        table.add_row(*cells(row))
    stream = io.StringIO()
    Console(file=stream, width=WIDTH, color_system=None).print(table)
    lines = [line.rstrip() for line in stream.getvalue().strip("\n").split("\n")]
    return "\n".join([_heading(report), *lines, _foot(report)])


def cells(row: dict[str, Any]) -> list[str]:
    """One algorithm of a report as text."""
    cpu = None if row["cpu_busy"] is None else row["cpu_busy"] + row["cpu_stolen"]
    return [
        row["name"],
        "refused" if row["median_s"] is None else format_seconds(row["median_s"]),
        percent(row["spread"]),
        format_seconds(row["theory_s"]),
        ratio(row["over_theory"]),
        ratio(row["over_ring"]),
        ratio(row["over_bound"]),
        percent(row["port_busy"]["mean"]),
        percent(cpu, digits=0),
        str(row["wrong"]),
    ]


def ratio(value: float | None) -> str:
    """A ratio, or a dash."""
    return "-" if value is None else f"{value:.3f}"


def percent(value: float | None, digits: int = 1) -> str:
    """A share, or a dash."""
    return "-" if value is None else f"{value:.{digits}%}"


def _heading(report: dict[str, Any]) -> str:
    ranks = ", ".join(map(str, report["late"]))
    delays = sorted(report["delays"])
    late = format_seconds(delays[0])
    if delays[0] != delays[-1]:
        late += f" to {format_seconds(delays[-1])}"
    return (
        f"measured on {report['hosts']} hosts, {format_bandwidth(report['rate_bytes'])} a port each way, MTU"
        f" {report['mtu']}: {format_bytes(report['bytes'])} ({format_seconds(report['seconds'])} at port"
        f" rate), late by {late}: rank {ranks}"
    )


def _foot(report: dict[str, Any]) -> str:
    right = "every element of every rank is right" if report["correct"] else "elements are WRONG"
    return (
        f"medians of {report['repeat']}, interleaved, from the last arrival to the last end; spread: (slowest"
        f" - fastest) / median\nbound {format_seconds(report['bound_s'])}; {right}; {report['machine']}"
    )


def trace_text(recorded: Mapping[str, RunReport]) -> str:
    """Timelines of several algorithms as one Chrome trace file, one below the other.

    Raises:
        UsageError: none of them recorded anything.
    """
    if not recorded:
        raise UsageError("--trace is for our own schedules, and none was measured")
    events: list[Event] = []
    for number, (name, report) in enumerate(recorded.items()):
        first = number * report.ranks
        events += run_events(report, Rows(first=first, place=first, words=plain(name, 40)))
    what = "measured between network namespaces: one repetition of each; 0 is the first arrival"
    return file_text({"what": what, "algorithms": list(recorded)}, events)
