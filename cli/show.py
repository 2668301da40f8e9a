"""`stragglar show`: the step diagram of a schedule in the terminal."""

from __future__ import annotations

import shutil
import sys

import click

from ..schedules import load_schedule
from ..schedules.diagram import render
from .options import Span, input_argument


@click.command("show")
@input_argument
@click.option("--rounds", type=Span(), metavar="A..B", help="Only these rounds of each phase.")
@click.option("--ranks", type=Span(), metavar="A..B", help="Only these ranks.")
@click.option("--width", type=click.IntRange(40, 1000), help="Columns, if not the terminal's (or 100).")
@click.option("--ascii", "ascii_only", is_flag=True, help="No characters outside ASCII.")
@click.option("--color/--no-color", default=None, help="Colours, if not just when it is a terminal.")
def command(
    file: str,
    rounds: range | None,
    ranks: range | None,
    width: int | None,
    ascii_only: bool,
    color: bool | None,
) -> None:
    """Draw a schedule's steps: rounds down, ranks across.

    \b
    Example:
      stragglar show s.json
      stragglar show s.json --rounds 3..9 --ranks 0..7
    """
    terminal = sys.stdout.isatty()
    columns = width or (shutil.get_terminal_size((100, 24)).columns if terminal else 100)
    encoding = sys.stdout.encoding or "ascii"
    plain = ascii_only or "utf" not in encoding.lower()
    picture = render(
        load_schedule(file),
        width=columns,
        color=terminal if color is None else color,
        rounds=rounds,
        ranks=ranks,
        ascii_only=plain,
    )
    click.echo(picture.rstrip("\n"), color=True)
