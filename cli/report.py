"""`stragglar report`: what there is to say about files that runs leave; `report trace` is `trace report`."""

from __future__ import annotations

import click

from .trace import report


@click.group("report")
def command() -> None:
    """Report on a file that a run left.

    \b
    Example:
      stragglar report trace arrivals.csv --bytes 25MiB
    """


command.add_command(report, "trace")
