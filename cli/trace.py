"""`stragglar trace`: arrival traces: who is late, how often, by how much; and synthetic ones."""

from __future__ import annotations

import json
from typing import Any

import click

from ..schedules import Link, UsageError
from ..schedules.arrival_files import load_trace, save_trace
from ..schedules.arrival_generator import CAP, JITTER, PRESETS, SHARE, STICKINESS, generate_trace
from ..schedules.arrival_stats import ArrivalReport, Interval, Summary, arrival_report
from ..schedules.arrivals import ArrivalTrace
from ..schedules.units import format_seconds
from .options import BANDWIDTH, SECONDS, SIZE, input_argument, json_option, link_of, output_option

SHOWN = 8
"""How many ranks the table names: those that are last most often."""


@click.group("trace")
def command() -> None:
    """Arrival traces: when every rank comes to a collective, iteration by iteration.

    \b
    Example:
      stragglar trace generate -n 8 --preset 9.5ms -o t.csv
      stragglar trace report t.csv
    """


@command.command("generate")
@click.option("-n", "--ranks", type=int, required=True, help="Number of ranks, 2 or more.")
@click.option("--iterations", type=int, default=1000, show_default=True, help="Number of iterations.")
@click.option(
    "--preset",
    type=click.Choice(list(PRESETS)),
    default="4.5ms",
    show_default=True,
    help="Mean delay, after the two published ones.",
)
@click.option("--mean", type=SECONDS, help="Another mean delay, e.g. 12ms; replaces --preset.")
@click.option(
    "--share", type=float, default=SHARE, show_default=True, help="How often the usual rank is late."
)
@click.option(
    "--stickiness",
    type=float,
    default=STICKINESS,
    show_default=True,
    help="Chance that the late rank stays late without being drawn anew.",
)
@click.option("--usual", type=int, metavar="RANK", help="The rank that is usually late; else drawn.")
@click.option("--cap", type=SECONDS, default=CAP, show_default=format_seconds(CAP), help="Largest delay.")
@click.option(
    "--jitter", type=SECONDS, default=JITTER, show_default=format_seconds(JITTER), help="Of the others."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Equal seeds give equal traces.")
@output_option("Trace to write (CSV); - is standard output.")
def generate(
    ranks: int,
    iterations: int,
    preset: str,
    mean: float | None,
    share: float,
    stickiness: float,
    usual: int | None,
    cap: float,
    jitter: float,
    seed: int,
    output: str,
) -> None:
    """Make a synthetic trace. Its first line says that it is one.

    \b
    Example:
      stragglar trace generate -n 8 --iterations 1000 --preset 9.5ms --seed 1 -o t.csv
    """
    trace = generate_trace(
        ranks,
        iterations,
        seed,
        mean=PRESETS[preset] if mean is None else mean,
        share=share,
        stickiness=stickiness,
        usual=usual,
        cap=cap,
        jitter=jitter,
    )
    save_trace(trace, output)
    click.echo(f"{iterations} iterations of {ranks} ranks; {trace.note}", err=True)


@command.command("report")
@input_argument
@click.option("--bytes", "size", type=SIZE, help="Say the gain to expect for this size of buffer, too.")
@click.option("--alpha", type=SECONDS, help="For --bytes: time of a round without data.  [default: 3us]")
@click.option("--bandwidth", type=BANDWIDTH, help="For --bytes: of a port, each way.  [default: 450GiB/s]")
@click.option("--profile", metavar="FILE", help="Alpha and bandwidth from `stragglar calibrate`.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the confidence intervals.")
@json_option
def report(
    file: str,
    size: float | None,
    alpha: float | None,
    bandwidth: float | None,
    profile: str | None,
    seed: int,
    as_json: bool,
) -> None:
    """Say who is late in a trace (CSV or JSON lines), how often, by how much and how persistently.

    Columns iteration, rank and a time with its unit (arrival_s, start_ns, ts_us, ..), or rank_0, rank_1, ..
    With --bytes also the gain to expect, modelled, of what `stragglar plan --arrivals` chooses.
    `stragglar report trace` is the same command.

    \b
    Examples:
      stragglar trace report t.csv --json
      stragglar report trace t.csv --bytes 25MiB --profile here.json
    """
    if size is None and (alpha, bandwidth, profile) != (None, None, None):
        raise UsageError("--alpha, --bandwidth and --profile are for the gain to expect: say --bytes, too")
    if size is not None and size < 1:
        raise UsageError("the buffer must have at least one byte")
    link = link_of(alpha, bandwidth, profile)
    trace = load_trace(file)
    _warn(trace)
    found = arrival_report(trace, seed)
    gain = None if size is None else _gain(trace, int(size), link, seed)
    if as_json:
        click.echo(json.dumps(found.to_json() | ({} if gain is None else {"plan": gain})))
        return
    click.echo(report_text(found))
    if gain is not None:
        from .plan_arrivals import plan_text

        click.echo(f"\n{plan_text(gain)}")


def _gain(trace: ArrivalTrace, size: int, link: Link, seed: int) -> dict[str, Any]:
    """What `stragglar plan --arrivals` says, without the statistics of the trace."""
    # Simulation and planner are imported here: `trace generate` need not wait for them.
    from ..synth.planner import MAX_CHUNKS
    from .plan_arrivals import choose, sample, trace_json

    part = sample(trace)
    made = trace_json(trace, part, choose(part, size, link, MAX_CHUNKS), size, seed)
    return {name: value for name, value in made.items() if name != "arrivals"}


def _warn(trace: ArrivalTrace) -> None:
    if trace.incomplete:
        named = "; ".join(trace.complaints) + (", .." if trace.incomplete > len(trace.complaints) else "")
        click.echo(f"stragglar: {trace.incomplete} incomplete iterations left out: {named}", err=True)


def report_text(report: ArrivalReport) -> str:
    """A report for people; intervals are 95 % confidence."""
    lines = [f"{report.iterations} iterations of {report.ranks} ranks"]
    if report.note:
        lines.append(report.note)
    lines += ["", f"{'rank':<8}{'last in':>10}{'share':>10}{'mean after first':>20}"]
    order = sorted(range(report.ranks), key=lambda rank: (-report.last[rank], rank))
    for rank in order[:SHOWN]:
        share, mean = report.last[rank] / report.iterations, report.mean_after_first[rank]
        lines.append(f"{rank:<8}{report.last[rank]:>10}{share:>10.1%}{format_seconds(mean):>20}")
    if report.ranks > SHOWN:
        lines.append(f"... and {report.ranks - SHOWN} more")
    if report.tied:
        lines.append(f"{'tied':<8}{report.tied:>10}{report.tied / report.iterations:>10.1%}")
    heads = ("median", "p90", "p99", "most")
    again = _share(report.persistence) if report.persistence is not None else "unknown"
    lines += [
        "",
        f"rank {report.usual} is last in {_share(report.usual_share)} of the iterations",
        f"the same rank is last again in {again}",
        "",
        f"{'the last rank':<18}{'mean':>10}{'95 % interval':>24}" + "".join(f"{h:>10}" for h in heads),
        _delays("after the second", report.after_second),
        _delays("after the first", report.after_first),
    ]
    return "\n".join(lines)


def _share(found: Interval) -> str:
    return f"{found.value:.1%} ({found.low:.1%} to {found.high:.1%})"


def _delays(name: str, found: Summary) -> str:
    span = f"{format_seconds(found.mean.low)} to {format_seconds(found.mean.high)}"
    rest = "".join(f"{format_seconds(t):>10}" for t in (found.p50, found.p90, found.p99, found.maximum))
    return f"{name:<18}{format_seconds(found.mean.value):>10}{span:>24}{rest}"
