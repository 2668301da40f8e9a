"""A figure to plot in, and the file it becomes: the same for all plots."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..schedules.errors import MissingError, UsageError
from ..schedules.files import write_atomic_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def figure_for(path: str) -> tuple[Any, Axes]:
    """An empty figure and its axes, for a file that `save` can write.

    Raises:
        UsageError: another kind of file than .png or .svg.
        MissingError: matplotlib is not installed.
    """
    if _kind(path) not in ("png", "svg"):
        raise UsageError(f"{path}: a plot is a .png or a .svg file")
    try:
        import matplotlib
    except ImportError as error:
        raise MissingError("plots need matplotlib: pip install 'stragglar[plot]'") from error
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "stragglar"
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained", dpi=150)
    return figure, figure.add_subplot()


def save(figure: Any, path: str) -> None:  # noqa: ANN401
    """Writes a figure; equal figures give equal files."""
    stream = io.BytesIO()
    kind = _kind(path)
    figure.savefig(stream, format=kind, metadata={"Date": None} if kind == "svg" else None)
    write_atomic_bytes(path, stream.getvalue())


def _kind(path: str) -> str:
    return Path(path).suffix.lower()[1:]
