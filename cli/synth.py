"""`stragglar synth`: a request becomes a schedule file."""

from __future__ import annotations

import click

from ..schedules import certify, save_schedule
from ..synth import ALGORITHMS, Request, synthesize
from .options import late_option, output_option


@click.command("synth")
@click.option("-n", "--ranks", type=int, required=True, help="Number of ranks, 2 or more.")
@late_option(help="The late rank, or several; the paper calls it the straggler.")
@click.option("--refine", "-m", type=int, metavar="M", help="Cut the buffer into M times as many chunks.")
@click.option("--chunks", "-k", type=int, metavar="K", help="Cut the buffer into exactly K chunks.")
@click.option(
    "--algorithm",
    type=click.Choice(list(ALGORITHMS)),
    default="stragglar",
    show_default=True,
    help="What to make.",
)
@output_option("Schedule file to write; - is standard output.")
def command(
    ranks: int, late: tuple[int, ...], refine: int | None, chunks: int | None, algorithm: str, output: str
) -> None:
    """Make a schedule for N ranks of which some come late.

    The schedule is validated before it is written. What it takes, and how far that is from the lower
    bound, goes to stderr.

    \b
    Examples:
      stragglar synth -n 8 --late 3 -o s.json
      stragglar synth -n 8 --late 3 --chunks 128 -o s.json   # power-of-two buffers fit MSCCL
      stragglar synth -n 12 --algorithm ring | stragglar show -
    """
    schedule = synthesize(Request(ranks, late, algorithm, refine, chunks))
    save_schedule(schedule, output)
    made = certify(schedule)
    rounds = f"{made.rounds['pre']} pre and {made.rounds['post']} post rounds"
    click.echo(
        f"{algorithm}, {ranks} ranks, {schedule.chunks} chunks: {rounds};"
        f" bound {made.post_bound}, gap {made.gap}",
        err=True,
    )
