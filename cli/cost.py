"""`stragglar cost`: modelled seconds of a schedule, beside the baselines and the bound."""

from __future__ import annotations

import json
from typing import Any

import click

from ..schedules import Link, Schedule, cost, load_schedule
from ..schedules.cost import bandwidth_bound
from ..schedules.units import format_bandwidth, format_bytes, format_seconds
from ..synth import Request
from ..synth.families import count_rounds
from .options import BANDWIDTH, SECONDS, SIZE, input_argument, json_option, link_of

BASELINES = ("ring", "rhd", "direct")


@click.command("cost")
@input_argument
@click.option("--bytes", "size", type=SIZE, required=True, help="Size of the buffer, e.g. 1GiB.")
@click.option("--alpha", type=SECONDS, help="Time of a round without data.  [default: 3us]")
@click.option("--bandwidth", type=BANDWIDTH, help="Of a port, each way.  [default: 450GiB/s]")
@click.option("--profile", metavar="FILE", help="Alpha and bandwidth from `stragglar calibrate`.")
@click.option("--delay", type=SECONDS, default="0", show_default=True, help="How late the last rank comes.")
@json_option
def command(
    file: str,
    size: int,
    alpha: float | None,
    bandwidth: float | None,
    profile: str | None,
    delay: float,
    as_json: bool,
) -> None:
    """Model how long a schedule takes (alpha-beta model, not a measurement).

    \b
    Example:
      stragglar cost s.json --bytes 1GiB --alpha 3us --bandwidth 450GiB/s --delay 5ms
    """
    report = cost_report(load_schedule(file), size, link_of(alpha, bandwidth, profile), delay)
    if as_json:
        click.echo(json.dumps(report))
    else:
        click.echo(_text(report))


def cost_report(schedule: Schedule, size: int, link: Link, delay: float) -> dict[str, Any]:
    """Everything `cost` prints, as plain values; times in seconds."""
    own = cost(schedule, size, link, delay)
    baselines = {
        name: count_rounds(Request(schedule.ranks, schedule.late, name)).post_seconds(size, link, delay)
        for name in BASELINES
    }
    return {
        "model": "alpha-beta",
        "family": schedule.origin.family,
        "ranks": schedule.ranks,
        "late": list(schedule.late),
        "chunks": schedule.chunks,
        "bytes": size,
        "alpha_seconds": link.alpha,
        "bandwidth_bytes_per_second": link.bandwidth,
        "delay_seconds": delay,
        "phases": [
            {
                "name": p.name,
                "rounds": p.rounds,
                "chunk_rounds": p.chunk_rounds,
                "seconds": p.seconds,
                "exposed_seconds": p.exposed_seconds,
            }
            for p in own.phases
        ],
        "post_seconds": own.post_seconds,
        "bound_seconds": bandwidth_bound(schedule, size, link, delay),
        "baselines": baselines,
    }


def _text(report: dict[str, Any]) -> str:
    link = f"alpha {format_seconds(report['alpha_seconds'])}, "
    link += format_bandwidth(report["bandwidth_bytes_per_second"])
    lines = [
        f"model (alpha-beta): {format_bytes(report['bytes'])}, {report['ranks']} ranks, {link},"
        f" the last rank {format_seconds(report['delay_seconds'])} late",
        "",
        f"{'phase':<22}{'rounds':>8}{'takes':>14}{'waited for':>14}",
    ]
    for phase in report["phases"]:
        takes, waited = format_seconds(phase["seconds"]), format_seconds(phase["exposed_seconds"])
        lines.append(f"{phase['name']:<22}{phase['rounds']:>8}{takes:>14}{waited:>14}")
    own = report["post_seconds"]
    lines += ["", f"{'from the last arrival':<30}{'time':>14}{'over this':>14}"]
    rows = {f"this schedule ({report['family']})": own, **report["baselines"]}
    rows["bound (bandwidth only)"] = report["bound_seconds"]
    for name, seconds in rows.items():
        ratio = f"{seconds / own:.3f}" if own else "-"
        lines.append(f"{name:<30}{format_seconds(seconds):>14}{ratio:>14}")
    return "\n".join(lines)
