"""`stragglar tune`: a table size x delay -> schedule that runtimes look up at call time."""

from __future__ import annotations

import click

from ..schedules.units import parse_seconds, parse_size
from ..synth.planner import MAX_CHUNKS
from ..synth.tuning import save_tuning, tune
from .options import BANDWIDTH, SECONDS, late_option, link_of, output_option
from .ranges import Series


@click.command("tune")
@click.option("-n", "--ranks", type=int, required=True, help="Number of ranks.")
@late_option(required=True, help="The late rank.")
@click.option(
    "--bytes",
    "sizes",
    type=Series(parse_size, doubling=True, whole=True),
    default="4KiB..4GiB",
    show_default=True,
    help="Sizes of the buffer.",
)
@click.option(
    "--delay",
    "delays",
    type=Series(parse_seconds, doubling=False, whole=False),
    default="0..30ms/31",
    show_default=True,
    help="How late the late rank comes.",
)
@click.option("--alpha", type=SECONDS, help="Time of a round without data.  [default: 3us]")
@click.option("--bandwidth", type=BANDWIDTH, help="Of a port, each way.  [default: 450GiB/s]")
@click.option("--profile", metavar="FILE", help="Alpha and bandwidth from `stragglar calibrate`.")
@click.option("--max-chunks", type=int, default=MAX_CHUNKS, show_default=True, help="The most chunks to use.")
@output_option("Tuning file to write; - is standard output.")
def command(
    ranks: int,
    late: tuple[int, ...],
    sizes: list[int],
    delays: list[float],
    alpha: float | None,
    bandwidth: float | None,
    profile: str | None,
    max_chunks: int,
    output: str,
) -> None:
    """Plan a table of sizes and delays (modelled), to be looked up at call time.

    \b
    Example:
      stragglar tune -n 8 --late 3 --profile here.json -o tuning.json
    """
    if len(late) != 1:
        raise click.UsageError("name one late rank with --late")
    table = tune(ranks, late[0], sizes, delays, link_of(alpha, bandwidth, profile), max_chunks)
    save_tuning(table, output)
    found = sorted({request.algorithm for row in table.choices for request in row})
    click.echo(f"{len(table.sizes)} sizes, {len(table.delays)} delays: {', '.join(found)}", err=True)
