"""`stragglar import`: a schedule that the published synthesizers printed becomes a schedule file."""

from __future__ import annotations

import click

from ..schedules import certify, require_valid, save_schedule
from ..schedules.files import read_bounded
from ..schedules.published import MAX_TEXT, import_published
from .options import input_argument, output_option


@click.command("import")
@input_argument
@output_option("Schedule file to write; - is standard output.")
def command(file: str, output: str) -> None:
    """Read the rounds that the published synthesizers print, as a schedule like any other.

    Their text has the post phase only; the ring ReduceScatter before it is added. The result is
    validated before it is written.

    \b
    Example:
      python synthesizer_pow2.py 8 > rounds.txt
      stragglar import rounds.txt -o s.json
    """
    text = read_bounded(file, MAX_TEXT)
    schedule = require_valid(import_published(text.decode("utf-8", "replace"), file))
    save_schedule(schedule, output)
    made = certify(schedule)
    click.echo(
        f"imported, {schedule.ranks} ranks, {schedule.chunks} chunks: {made.rounds['post']} post rounds;"
        f" bound {made.post_bound}, gap {made.gap}",
        err=True,
    )
