"""`stragglar load`: an MSCCL XML file goes where a runtime looks, and what to set so that it is used."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path

import click

from ..backends.msccl.install import RUNTIMES, load
from ..backends.msccl.xml_read import MAX_INPUT_BYTES
from ..schedules.files import read_bounded
from .options import input_argument, json_option


@click.command("load")
@input_argument
@click.option("--runtime", type=click.Choice(RUNTIMES), required=True, help="Who will read the file.")
@click.option("--dir", "directory", metavar="D", help="Where to put it, if not where the runtime looks.")
@json_option
def command(file: str, runtime: str, directory: str | None, as_json: bool) -> None:
    """Check an MSCCL XML file against a runtime's own rules and put it where that runtime looks.

    Prints the exports to set and the sizes for which the runtime will pick the file. Refuses where the
    runtime would reject the file, or read it and never use it.

    \b
    Example:
      stragglar load s.xml --runtime msccl-executor --dir algos
    """
    text = read_bounded(file, MAX_INPUT_BYTES)
    filename = None if file == "-" else Path(file).name
    plan = load(text, runtime, None if directory is None else Path(directory), filename)
    if as_json:
        values = {
            "runtime": plan.runtime,
            "path": str(plan.path),
            "exports": dict(plan.exports),
            "sizes": asdict(plan.selection),
            "notes": list(plan.notes),
        }
        click.echo(json.dumps(values))
        return
    click.echo(f"# wrote {plan.path}")
    for name, value in plan.exports:
        click.echo(f"export {name}={shlex.quote(value)}")
    for line in (plan.selection.describe(), *plan.notes):
        click.echo(f"# {line}")
