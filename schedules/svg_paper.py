"""What SVG step diagrams are drawn on: elements with escaped text, colours and styles.

Elements are built as a tree, so that a name from a stranger's file can only ever be text. Colours are
darkened or lightened versions of Okabe and Ito's, which stay apart for colour-blind readers; no meaning
hangs on colour alone. Dark colours are a media query, which renderers that know none leave out.
"""

from __future__ import annotations

import unicodedata
from xml.etree import ElementTree as ET

COLOURS = 8
"""Chunks that differ in colour; chunk c has the colour c mod 8 and its number beside it."""

AGES = 6
"""Steps of the sequential scale for `by="age"`."""

_LIGHT = ("#0067a8", "#b84d00", "#007355", "#a03a80", "#7a5c00", "#5a4fcf", "#505050", "#0c6f8a")
_DARK = ("#5fb8f0", "#f2a33c", "#3ecfa0", "#f09aca", "#f0e04a", "#aba5ff", "#cfcfcf", "#58d4ea")
_LIGHT_AGES = ("#5b1b8b", "#40469a", "#2b6a94", "#1a7f79", "#2c7d42", "#5d6c00")
_DARK_AGES = ("#d8a6ff", "#a9b4ff", "#7cc8f5", "#5fdcd0", "#7fe08f", "#d5e05a")
_INK = {"ink": "#1c2430", "soft": "#5b6675", "line": "#c3cad3", "paper": "#ffffff", "band": "#f1f3f6"}
_NIGHT = {"ink": "#e8ecf2", "soft": "#a3adba", "line": "#465060", "paper": "#14181f", "band": "#1e242d"}
_MARKS = {"late": "#a0188c", "bound": "#b00020", "bad": "#b00020", "add": "#0067a8", "put": "#d98b2b"}
_NIGHT_MARKS = {"late": "#f08fe0", "bound": "#ff8a80", "bad": "#ff8a80", "add": "#5fb8f0", "put": "#f2c27d"}

_SHAPES = """
.sg text{font-family:"Helvetica Neue",Helvetica,Arial,"Liberation Sans","DejaVu Sans",sans-serif}
.sg text{font-size:11px}
.sg .title{font-size:15px;font-weight:700}.sg .head{font-weight:700;font-size:12px}
.sg .num{text-anchor:middle}.sg .end{text-anchor:end}
.sg .tag{text-anchor:middle;font-size:10px;font-weight:700}
.sg .lane{stroke-width:1}.sg .away{stroke-width:2;stroke-dasharray:1 5;stroke-linecap:round}
.sg .arrival{stroke-width:2}.sg .goal{stroke-width:2;stroke-dasharray:7 4}
.sg .move{fill:none;stroke-width:2}.sg .copy{stroke-dasharray:4 3}
.sg .tip{stroke-width:1.6;stroke-linejoin:round}
"""


def _colours(ink: dict[str, str], marks: dict[str, str], scale: tuple[str, ...]) -> str:
    rules = [
        f".sg .paper{{fill:{ink['paper']}}}.sg .band{{fill:{ink['band']}}}.sg text{{fill:{ink['ink']}}}",
        f".sg .soft{{fill:{ink['soft']}}}.sg .lane{{stroke:{ink['line']}}}.sg .box{{fill:{ink['line']}}}",
        f".sg .tag{{fill:{ink['paper']}}}.sg .open{{fill:{ink['paper']}}}",
        f".sg .away,.sg .arrival{{stroke:{marks['late']}}}.sg .late{{fill:{marks['late']}}}",
        f".sg .goal{{stroke:{marks['bound']}}}.sg .bound,.sg .bad{{fill:{marks['bound']}}}",
        f".sg .add{{fill:{marks['add']}}}.sg .put{{fill:{marks['put']}}}",
    ]
    for index, colour in enumerate(scale):
        rules.append(f".sg .s{index}{{stroke:{colour}}}.sg .f{index}{{fill:{colour}}}")
    return "\n".join(rules)


def style() -> str:
    """The style sheet of every step diagram; colours 0..7 are chunks, 8..13 ages."""
    light = _colours(_INK, _MARKS, (*_LIGHT, *_LIGHT_AGES))
    dark = _colours(_NIGHT, _NIGHT_MARKS, (*_DARK, *_DARK_AGES))
    return f"{_SHAPES}{light}\n@media (prefers-color-scheme: dark){{\n{dark}\n}}\n"


def number(value: float) -> str:
    """A coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def plain(text: str, most: int = 90) -> str:
    """Text of a stranger on one line: bounded, and without characters that turn or hide its neighbours."""
    kept = "".join(c if unicodedata.category(c)[0] != "C" else "\N{REPLACEMENT CHARACTER}" for c in text)
    return kept if len(kept) <= most else f"{kept[: most - 1]}…"


class Paper:
    """An SVG document that grows: coordinates in pixels, styled by classes of `style`, and by `more`."""

    def __init__(self, title: str, description: str, more: str = "") -> None:
        self.root = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "class": "sg"})
        ET.SubElement(self.root, "title").text = title
        ET.SubElement(self.root, "desc").text = description
        ET.SubElement(self.root, "style").text = style() + more
        self._sheet = self.add("rect", "paper", x=0, y=0)

    def add(self, tag: str, kind: str, /, tip: str = "", **place: float | str) -> ET.Element:
        """One element of the classes `kind`; numbers are coordinates, `tip` is what a pointer shows."""
        values = {k: v if isinstance(v, str) else number(v) for k, v in place.items()}
        element = ET.SubElement(self.root, tag, {"class": kind, **values})
        if tip:
            ET.SubElement(element, "title").text = tip
        return element

    def text(self, x: float, y: float, kind: str, words: str) -> None:
        """A line of text with its baseline at y."""
        self.add("text", kind, x=x, y=y).text = words

    def line(self, kind: str, x1: float, y1: float, x2: float, y2: float) -> None:
        """A straight line."""
        self.add("line", kind, x1=x1, y1=y1, x2=x2, y2=y2)

    def finish(self, width: float, height: float) -> str:
        """The document's text, now that its size is known."""
        for element in (self.root, self._sheet):
            element.set("width", number(width))
            element.set("height", number(height))
        self.root.set("viewBox", f"0 0 {number(width)} {number(height)}")
        ET.indent(self.root, " ")
        return ET.tostring(self.root, encoding="unicode") + "\n"
