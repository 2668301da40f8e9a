"""SVG as PNG, by resvg: it draws the same on every machine that has the same fonts."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from ...schedules.errors import MissingError, UsageError

MOST_PIXELS = 1 << 26


def png_of(svg: str, zoom: float = 2.0) -> bytes:
    """A picture of an SVG document of ours, light, on white; `zoom` 2 is fit for print.

    Raises:
        MissingError: resvg is not installed.
        UsageError: the picture would have more than `MOST_PIXELS` pixels.
    """
    try:
        import resvg_py
    except ImportError as error:
        raise MissingError("PNG needs resvg_py: pip install 'stragglar[plot]'; or use --as svg") from error
    width, height = _size(svg)
    if width * height * zoom * zoom > MOST_PIXELS:
        raise UsageError(f"a picture of {width:.0f} x {height:.0f} points is too large for PNG: use --as svg")
    return bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=zoom, background="#ffffff"))


def _size(svg: str) -> tuple[float, float]:
    root = ET.fromstring(svg)  # our own text
    return float(root.get("width", 0)), float(root.get("height", 0))
