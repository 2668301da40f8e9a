"""Plots of measured sweeps: time against delay or size, speedup over ring against the number of hosts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .figures import figure_for, save

COLOURS = ("#009E73", "#D55E00", "#0072B2", "#CC79A7", "#E69F00", "#56B4E9", "#8A6D00", "#555555")
MARKERS = "^soDvPX*"
"""Okabe and Ito's colours; told apart without colour by the marker."""


def draw_sweep(over: str, reports: Sequence[dict[str, Any]], path: str) -> None:
    """Draws measured medians with their fastest and slowest, the model dashed beside them, and the bound.

    Args:
        over: delay, size or hosts.
        reports: of the points, in order.
        path: a .png or .svg file.

    Raises:
        UsageError: another kind of file.
        MissingError: matplotlib is not installed.
    """
    figure, axes = figure_for(path)
    x = [_place(over, report) for report in reports]
    for number, name in enumerate(row["name"] for row in reports[0]["algorithms"]):
        _draw(axes, over, x, [report["algorithms"][number] for report in reports], number, name)
    _model(axes, over, x, reports)
    _bound(axes, over, x, reports)
    _label(axes, over, x, reports[0])
    save(figure, path)


def _place(over: str, report: dict[str, Any]) -> float:
    if over == "delay":
        return float(max(report["delays"]) / report["seconds"])
    return float(report["bytes"] if over == "size" else report["hosts"])


def _draw(
    axes: Any,  # noqa: ANN401
    over: str,
    x: list[float],
    rows: list[dict[str, Any]],
    number: int,
    name: str,
) -> None:
    style = {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}
    value = "over_ring" if over == "hosts" else "median_s"
    kept = [(at, row) for at, row in zip(x, rows, strict=True) if row[value] is not None]
    error = None
    if over != "hosts":
        below = [row["median_s"] - row["minimum_s"] for _, row in kept]
        error = [below, [row["maximum_s"] - row["median_s"] for _, row in kept]]
    places, y = [at for at, _ in kept], [row[value] for _, row in kept]
    axes.errorbar(places, y, yerr=error, label=name, markersize=5, capsize=2, **style)


def _model(axes: Any, over: str, x: list[float], reports: Sequence[dict[str, Any]]) -> None:  # noqa: ANN401
    for number, row in enumerate(reports[0]["algorithms"]):
        theory = [report["algorithms"][number]["theory_s"] for report in reports]
        if over == "hosts":
            theory = [_ring(report) / t for report, t in zip(reports, theory, strict=True)]
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(x, theory, color=colour, linestyle="--", linewidth=0.8, label=f"_{row['name']}")


def _ring(report: dict[str, Any]) -> float:
    """What ring takes by the model."""
    return float(2 * (report["hosts"] - 1) / report["hosts"] * report["seconds"])


def _bound(axes: Any, over: str, x: list[float], reports: Sequence[dict[str, Any]]) -> None:  # noqa: ANN401
    if over == "hosts":
        y = [_ring(report) / report["bound_s"] for report in reports]
    else:
        y = [r["bound_s"] for r in reports]
    axes.plot(x, y, label="bound", color="#000000", linestyle=":")


def _label(axes: Any, over: str, x: list[float], report: dict[str, Any]) -> None:  # noqa: ANN401
    labels = {"delay": "delay / time of the buffer through a port", "size": "bytes", "hosts": "hosts"}
    axes.set_xlabel(labels[over])
    axes.set_ylabel("measured speedup over ring" if over == "hosts" else "measured s after the last arrival")
    if over == "hosts":
        axes.set_xticks(x, [f"{at:g}" for at in x])
    if over == "size":
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
    rate = report["rate_bytes"] * 8 / 1e6
    axes.set_title(f"network namespaces, {rate:g} Mbit/s a port; dashed: model", fontsize=9)
    axes.grid(True, alpha=0.3)
    axes.legend(frameon=False, fontsize=8)
