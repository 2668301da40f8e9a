"""`stragglar show`: a schedule or an MSCCL program to look at: in the terminal, as a picture, as a page."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from ..schedules import Link, Schedule, UsageError, parse_schedule
from ..schedules.files import read_bounded, write_atomic, write_atomic_bytes
from .options import BANDWIDTH, SECONDS, SIZE, Span, input_argument, late_option, output_option

if TYPE_CHECKING:
    from ..backends.view.program_data import Analysis

FORMS = ("text", "svg", "png", "html", "trace")
BASELINES = ("ring", "rhd", "direct", "none")


@dataclass(frozen=True, slots=True)
class Look:
    """How to show a file: the command's options under their names."""

    form: str
    rounds: range | None
    ranks: range | None
    width: int | None
    ascii_only: bool
    color: bool | None
    by: str
    against: str
    size: float
    link: Link
    delay: float
    mode: str


@click.command("show")
@input_argument
@click.option(
    "--as", "form", type=click.Choice(FORMS), default="text", show_default=True, help="What to make."
)
@output_option("File to write; - is standard output.")
@click.option("--rounds", type=Span(), metavar="A..B", help="Only these rounds of each phase (all but html).")
@click.option("--ranks", type=Span(), metavar="A..B", help="Only these ranks (all but html).")
@click.option("--width", type=click.IntRange(40, 1000), help="Columns, if not the terminal's (or 100).")
@click.option("--ascii", "ascii_only", is_flag=True, help="No characters outside ASCII.")
@click.option("--color/--no-color", default=None, help="Colours, if not just when it is a terminal.")
@click.option(
    "--by", type=click.Choice(("chunk", "age")), default="chunk", show_default=True, help="What colours say."
)
@click.option(
    "--against",
    default="ring",
    show_default=True,
    metavar="FILE",
    help="html: a file, ring, rhd, direct, none.",
)
@click.option("--bytes", "size", type=SIZE, default="1GiB", show_default=True, help="In a model: buffer.")
@click.option("--alpha", type=SECONDS, default="3us", show_default=True, help="In a model: time of a round.")
@click.option(
    "--bandwidth", type=BANDWIDTH, default="450GiB/s", show_default=True, help="In a model: of a port."
)
@click.option("--delay", type=SECONDS, default="5ms", show_default=True, help="In a model: of the last rank.")
@click.option(
    "--mode",
    type=click.Choice(("strict", "relaxed")),
    default="strict",
    show_default=True,
    help="trace: waits.",
)
@late_option(help="Late ranks of an XML file that does not name them.")
def command(
    file: str, output: str, alpha: float, bandwidth: float, late: tuple[int, ...], **options: object
) -> None:
    """Draw a schedule's steps: in the terminal, as a picture, a page to explore, or a timeline.

    An MSCCL XML file, ours or not: its thread blocks, critical path, and where it is wrong. Times are
    modelled: html and trace of a schedule, svg, png and trace of an MSCCL file.

    \b
    Example:
      stragglar show s.json
      stragglar show s.json --rounds 3..9 --ranks 0..7
      stragglar show s.json --as svg -o s.svg
      stragglar show s.json --as html --against ring --delay 2ms -o s.html
      stragglar show s.json --as trace -o trace.json    # for ui.perfetto.dev
      stragglar show s.xml --as svg --ranks 0..3 --delay 2ms -o x.svg
      stragglar show s.xml --as html -o s.xml.html
    """
    look = Look(link=Link(alpha, bandwidth), **options)  # type: ignore[arg-type]
    if look.form == "html" and (look.rounds is not None or look.ranks is not None):
        raise UsageError("--rounds and --ranks do not go with html: the page has filters of its own")
    data = read_bounded(file)
    if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        _write(_program(data, file, late, look), output, look.form == "text")
    else:
        _write(_schedule(parse_schedule(data, file), look, output), output, look.form == "text")


def _write(made: str | bytes, output: str, colored: bool = False) -> None:
    if isinstance(made, str) and colored and output == "-":
        click.echo(made.rstrip("\n"), color=True)
    elif isinstance(made, str):
        write_atomic(output, made)
    elif output == "-":
        sys.stdout.buffer.write(made)
    else:
        write_atomic_bytes(output, made)


def _schedule(schedule: Schedule, look: Look, output: str) -> str | bytes:
    if look.form == "text":
        return _text(schedule, look, sys.stdout.isatty() and output == "-")
    if look.form == "trace":
        from ..backends.view.timeline import Rows, trace_text

        rows = Rows(ranks=look.ranks, rounds=look.rounds)
        return trace_text(schedule, look.size, look.link, look.delay, look.mode, rows=rows)
    if look.form == "html":
        from ..backends.view.inspector import schedule_page
        from ..backends.view.schedule_data import require_drawable

        require_drawable(schedule)  # before the schedule beside it is made, which would be as large
        other = _other(schedule, look.against)
        return schedule_page(schedule, other, look.size, look.link, look.delay)
    from ..schedules.svg import draw_svg

    picture = draw_svg(schedule, look.by, look.rounds, look.ranks)
    if look.form == "svg":
        return picture
    from ..backends.view.png import png_of

    return png_of(picture)


def _text(schedule: Schedule, look: Look, terminal: bool) -> str:
    from ..schedules.diagram import render

    encoding = sys.stdout.encoding or "ascii"
    return render(
        schedule,
        width=look.width or (shutil.get_terminal_size((100, 24)).columns if terminal else 100),
        color=terminal if look.color is None else look.color,
        rounds=look.rounds,
        ranks=look.ranks,
        ascii_only=look.ascii_only or "utf" not in encoding.lower(),
    )


def _other(schedule: Schedule, against: str) -> Schedule | None:
    if against == "none" or (against == schedule.origin.family and against in BASELINES):
        return None
    if against not in BASELINES:
        return parse_schedule(read_bounded(against), against)
    from ..synth import Request, synthesize

    return synthesize(Request(schedule.ranks, schedule.late, against))


def _program(data: bytes, name: str, late: tuple[int, ...], look: Look) -> str | bytes:
    if look.rounds is not None:
        raise UsageError("an MSCCL file has no rounds, its blocks go on by themselves: choose --ranks")
    from ..backends.view.program_data import analyse

    found = analyse(data, name, late)
    if look.form in ("svg", "png", "trace"):
        return _program_in_time(found, look)
    if look.form == "html":
        from ..backends.view.inspector import program_page

        return program_page(found)
    from ..backends.view.program_text import program_text

    return program_text(found, look.ranks)


def _program_in_time(found: Analysis, look: Look) -> str | bytes:
    terms = look.size, look.link, look.delay, look.ranks
    if look.form == "trace":
        from ..backends.view.program_trace import program_trace_text

        return program_trace_text(found, *terms)
    from ..backends.view.program_svg import program_svg

    picture = program_svg(found, *terms)
    if look.form == "svg":
        return picture
    from ..backends.view.png import png_of

    return png_of(picture)
