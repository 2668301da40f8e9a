"""The inspector: one HTML file that needs no network, to step through a schedule or an MSCCL program.

`page/` holds its sources: a template, a style sheet and scripts that browsers run as they are. What comes
from a file is data in a JSON element, never markup; the page's content security policy lets no other script
run and nothing be loaded.
"""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from typing import Any

from ...schedules import Link, Schedule
from ...schedules.svg_paper import plain
from .program_data import Analysis, program_data
from .schedule_data import link_data, schedule_data

SCRIPTS = ("model.js", "draw.js", "schedule.js", "panels.js", "compare.js", "program.js", "main.js")


def schedule_page(schedule: Schedule, against: Schedule | None, size: float, link: Link, delay: float) -> str:
    """The page of a schedule, beside `against` on one time axis where given.

    Raises:
        UsageError: a schedule with more transfers than a page can follow.
        MissingError: jinja2 is not installed.
    """
    other = None if against is None else schedule_data(against)
    data = {"kind": "schedule", "schedule": schedule_data(schedule), "against": other}
    return _page(data | {"link": link_data(size, link, delay)}, schedule.origin.family)


def program_page(found: Analysis) -> str:
    """The page of an analysed MSCCL program."""
    return _page({"kind": "program", "program": program_data(found)}, found.program.name)


def source(name: str) -> str:
    """The text of one file of the page."""
    return resources.files(__package__).joinpath("page", name).read_text(encoding="utf-8")


def _page(data: dict[str, Any], title: str) -> str:
    import jinja2

    script, style = "\n".join(map(source, SCRIPTS)), source("inspector.css")
    template = jinja2.Environment(autoescape=True).from_string(source("inspector.html"))
    return template.render(
        title=plain(title),
        data=data,
        script=script,
        style=style,
        script_hash=_hash(script),
        style_hash=_hash(style),
    )


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
