"""Plots of plans: post time against size or delay, speedup over ring against the number of ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..schedules.errors import UsageError
from ..synth.planner import Plan
from .figures import figure_for, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STYLES = {
    "plan": ("#0072B2", "-", "o"),
    "published StragglAR": ("#D55E00", "--", "s"),
    "ring": ("#009E73", "-.", "^"),
    "rhd": ("#CC79A7", ":", "v"),
    "direct": ("#E69F00", (0, (3, 1, 1, 1)), "D"),
    "bound": ("#000000", ":", None),
}
"""Okabe and Ito's colours, told apart without colour by line and marker."""


def draw_plans(plans: list[Plan], path: str) -> None:
    """Draws a table of plans to a .png or .svg file.

    Raises:
        UsageError: another kind of file, or a table in which not just one of ranks, size and delay varies.
        MissingError: matplotlib is not installed.
    """
    label, value, log = _axis(plans)
    figure, axes = figure_for(path)
    if label == "ranks":
        _draw_speedups(axes, plans)
    else:
        _draw_times(axes, plans, value, log)
    axes.set_xlabel(label)
    if log:
        axes.set_xscale("log", base=2)
    axes.grid(True, alpha=0.3)
    axes.legend(frameon=False)
    save(figure, path)


def _axis(plans: list[Plan]) -> tuple[str, Callable[[Plan], float], bool]:
    choices: tuple[tuple[str, Callable[[Plan], float], bool], ...] = (
        ("bytes", lambda p: p.situation.size, True),
        ("delay (ms)", lambda p: p.situation.delay * 1e3, False),
        ("ranks", lambda p: p.situation.ranks, True),
    )
    varying = [choice for choice in choices if len({choice[1](p) for p in plans}) > 1]
    if len(varying) != 1:
        raise UsageError("a plot needs several sizes, delays or rank counts: one of the three")
    return varying[0]


def _line(axes: Axes, name: str, x: list[float], y: list[float]) -> None:
    colour, dash, marker = STYLES[name]
    axes.plot(x, y, label=name, color=colour, linestyle=dash, marker=marker, markersize=4)


def _draw_times(axes: Axes, plans: list[Plan], value: Callable[[Plan], float], log: bool) -> None:
    x = [value(p) for p in plans]
    _line(axes, "plan", x, [p.choice.post_seconds * 1e3 for p in plans])
    for name in ("ring", "rhd", "direct"):
        _line(axes, name, x, [p.baselines[name] * 1e3 for p in plans])
    if all(p.published is not None for p in plans):
        _line(axes, "published StragglAR", x, [(p.published or 0) * 1e3 for p in plans])
    _line(axes, "bound", x, [p.bound_seconds * 1e3 for p in plans])
    axes.set_ylabel("modelled ms after the last arrival")
    if log:
        axes.set_yscale("log")


def _draw_speedups(axes: Axes, plans: list[Plan]) -> None:
    x = [float(p.situation.ranks) for p in plans]
    _line(axes, "plan", x, [p.speedup for p in plans])
    if all(p.published for p in plans):
        _line(axes, "published StragglAR", x, [p.baselines["ring"] / (p.published or 1) for p in plans])
    for name in ("rhd", "ring"):
        _line(axes, name, x, [p.baselines["ring"] / p.baselines[name] for p in plans])
    _line(axes, "bound", x, [p.baselines["ring"] / p.bound_seconds for p in plans])
    axes.set_ylabel("modelled speedup over ring")
