"""`stragglar plan`: the best schedule for a cluster, a size and a delay."""

from __future__ import annotations

import json
from itertools import product

import click

from ..schedules import Link, UsageError, save_schedule
from ..schedules.files import write_atomic
from ..schedules.units import parse_seconds, parse_size
from ..synth.planner import MAX_CHUNKS, Situation, plan
from .options import BANDWIDTH, SECONDS, json_option, late_option, link_of
from .plan_output import plan_json, plan_text, plans_csv, plans_text
from .plan_vector import Arrivals, plan_for_vector
from .ranges import Series, parse_count


@click.command("plan")
@click.option(
    "-n", "--ranks", type=Series(parse_count, doubling=True, whole=True), help="Ranks, e.g. 8 or 4..256."
)
@late_option(help="The late rank; the last one if there is a delay and none is named.")
@click.option(
    "--bytes",
    "sizes",
    type=Series(parse_size, doubling=True, whole=True),
    required=True,
    help="Size of the buffer, e.g. 1GiB or 4KiB..4GiB.",
)
@click.option("--alpha", type=SECONDS, help="Time of a round without data.  [default: 3us]")
@click.option("--bandwidth", type=BANDWIDTH, help="Of a port, each way.  [default: 450GiB/s]")
@click.option("--profile", metavar="FILE", help="Alpha and bandwidth from `stragglar calibrate`.")
@click.option(
    "--delay",
    "delays",
    type=Series(parse_seconds, doubling=False, whole=False),
    help="How late the late rank comes, e.g. 5ms or 0..5ms/21.",
)
@click.option(
    "--arrivals",
    type=Arrivals(),
    metavar="FILE|TIME,..",
    help="Instead of a delay: a trace of arrivals, or when each rank comes, one time a rank: 0,0,0,200ms.",
)
@click.option("--max-chunks", type=int, default=MAX_CHUNKS, show_default=True, help="The most chunks to use.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the resampling of a trace.")
@click.option("-o", "--output", metavar="FILE", help="Write the chosen schedule (of a single plan).")
@click.option("--csv", "csv_file", metavar="FILE", help="Write the table as CSV; - is standard output.")
@click.option("--plot", metavar="FILE", help="Draw the table: a .png or .svg file (needs stragglar[plot]).")
@json_option
def command(
    ranks: list[int] | None,
    late: tuple[int, ...],
    sizes: list[int],
    alpha: float | None,
    bandwidth: float | None,
    profile: str | None,
    delays: list[float] | None,
    arrivals: str | tuple[float, ...] | None,
    max_chunks: int,
    seed: int,
    output: str | None,
    csv_file: str | None,
    plot: str | None,
    as_json: bool,
) -> None:
    """Choose the best schedule for a cluster, a size and a delay (modelled, not measured).

    Times count from the late rank's arrival. The plan is never worse than the best baseline. Several
    ranks, sizes or delays make a table.

    \b
    Examples:
      stragglar plan -n 8 --late 3 --bytes 1GiB --alpha 3us --bandwidth 450GiB/s --delay 5ms -o s.json
      stragglar plan -n 8 --bytes 4KiB..4GiB --delay 5ms --plot sizes.svg
      stragglar plan --arrivals 0,0,1ms,1ms,4ms,5ms --bytes 1GiB -o s.json
      stragglar plan --arrivals trace.csv --bytes 64MiB
    """
    link = link_of(alpha, bandwidth, profile)
    if arrivals is not None:
        from .plan_arrivals import plan_for_trace

        if ranks or late or delays or csv_file or plot:
            raise UsageError("--arrivals says who is late: leave -n, --late, --delay, --csv and --plot out")
        if isinstance(arrivals, str):
            plan_for_trace(arrivals, sizes, link, max_chunks, seed, output, as_json)
        else:
            plan_for_vector(arrivals, sizes, link, max_chunks, output, as_json)
        return
    if not ranks:
        raise UsageError("say how many ranks there are, with -n, or give a trace with --arrivals")
    if len(late) > 1:
        raise UsageError("a plan for a delay has one late rank; for several give --arrivals TIME,TIME,..")
    plans = [
        plan(_situation(n, late, s, d, link, max_chunks))
        for n, s, d in product(ranks, sizes, delays or [0.0])
    ]
    if output:
        if len(plans) > 1:
            raise UsageError("-o writes one schedule: give one number of ranks, one size and one delay")
        save_schedule(plans[0].schedule(), output)
    if plot:
        from .plots import draw_plans

        draw_plans(plans, plot)
    if csv_file:
        write_atomic(csv_file, plans_csv(plans))
    if as_json:
        values = [plan_json(p) for p in plans]
        click.echo(json.dumps(values[0] if len(values) == 1 else {"plans": values}))
    elif csv_file != "-" and output != "-":
        click.echo(plan_text(plans[0]) if len(plans) == 1 else plans_text(plans))


def _situation(n: int, late: tuple[int, ...], size: int, delay: float, link: Link, most: int) -> Situation:
    named = late[0] if late else (n - 1 if delay else None)
    return Situation(n, named, size, link, delay, most)
