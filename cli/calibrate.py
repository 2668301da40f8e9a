"""`stragglar calibrate`: measures alpha and bandwidth of this machine's links, for the cost model."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from statistics import median
from typing import Any

import click

from ..backends.calibration import Fit, fit_link
from ..backends.mpi.pingpong import Sweep, measure, sweep_sizes
from ..backends.torch import pingpong as torch_pingpong
from ..schedules.profile import Profile, dump_profile, save_profile
from ..schedules.units import format_bandwidth, format_bytes, format_seconds
from .options import SECONDS, SIZE, json_option, output_option

ROUGH = 0.25
"""A residual above this is worth a remark."""

BUSY = 1.5
"""Medians so many times the fastest samples, typically, are worth another."""


@click.command("calibrate")
@click.option(
    "--on",
    type=click.Choice(["mpi", "torch"]),
    default="mpi",
    show_default=True,
    help="What to measure: MPI, or torch.distributed over gloo.",
)
@click.option("-n", "--ranks", type=int, default=2, show_default=True, help="Ranks that exchange at once.")
@click.option(
    "--min-bytes", "smallest", type=SIZE, default="256", show_default=True, help="Smallest message."
)
@click.option(
    "--max-bytes", "largest", type=SIZE, default="16MiB", show_default=True, help="Largest message."
)
@click.option(
    "--fit",
    "statistic",
    type=click.Choice(["median", "fastest"]),
    default="median",
    show_default=True,
    help="Which of a size's samples to fit: what is usual, or what is possible on a busy machine.",
)
@click.option("--repeat", type=int, default=11, show_default=True, help="Samples of every size.")
@click.option("--time-limit", type=SECONDS, default="120s", show_default=True, help="For the measurement.")
@output_option("Profile to write; - is standard output.", default=None)
@json_option
def command(
    on: str,
    ranks: int,
    smallest: int,
    largest: int,
    statistic: str,
    repeat: int,
    time_limit: float,
    output: str | None,
    as_json: bool,
) -> None:
    """Measure alpha and bandwidth over exchanges of growing messages, and fit the cost model to them.

    Every rank sends to the next and receives from the one before, at once. Starts the ranks on this
    machine, or uses those it was started under (mpiexec, srun; torchrun). Transfers alone are measured:
    what adding the data and the program around it cost comes on top. --json prints the profile.

    \b
    Examples:
      stragglar calibrate --on mpi -o profile.json
      mpiexec -n 2 --hosts a,b stragglar calibrate --on mpi -o profile.json
      stragglar calibrate --on torch -o profile.json
    """
    how = measure if on == "mpi" else torch_pingpong.measure
    sweep = how(ranks, sweep_sizes(smallest, largest), repeat, time_limit)
    if sweep is None:  # not the first rank under a launcher
        return
    fit = fit_link(sweep.sizes, sweep.medians if statistic == "median" else sweep.fastest)
    profile = Profile(fit.link, measured(on, sweep, fit, statistic))
    if output is not None:
        save_profile(profile, output)
    on_stdout = as_json or output == "-"
    click.echo(table(sweep, fit), err=on_stdout)
    if as_json and output != "-":
        click.echo(dump_profile(profile), nl=False)


def measured(on: str, sweep: Sweep, fit: Fit, statistic: str) -> dict[str, Any]:
    """How the numbers of a profile came about, as plain values; times in seconds."""
    rows = zip(sweep.sizes, sweep.medians, sweep.fastest, fit.residuals, strict=True)
    return {
        "on": on,
        "method": f"{statistic} of simultaneous neighbour exchanges, Huber fit of relative errors",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "hosts": list(sweep.hosts),
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": os.cpu_count(),
        "ranks": sweep.ranks,
        "library": sweep.library,
        "relative_spread": fit.spread,
        "messages": [
            {"bytes": size, "median": usual, "fastest": fastest, "residual": residual}
            for size, usual, fastest, residual in rows
        ],
    }


def table(sweep: Sweep, fit: Fit) -> str:
    """The measurements beside the model, for people."""
    link = fit.link
    lines = [
        f"measured over {sweep.library}: {sweep.ranks} ranks on {', '.join(sweep.hosts)}",
        f"alpha {format_seconds(link.alpha)}, bandwidth {format_bandwidth(link.bandwidth)} a port",
        "",
        f"{'message':<12}{'median':>12}{'fastest':>12}{'model':>12}{'off by':>10}",
    ]
    rows = zip(sweep.sizes, sweep.medians, sweep.fastest, fit.residuals, strict=True)
    for size, usual, fastest, residual in rows:
        times = (usual, fastest, link.alpha + size * link.beta)
        cells = "".join(f"{format_seconds(t):>12}" for t in times)
        lines.append(f"{format_bytes(size):<12}{cells}{residual:>+10.1%}")
    off = [abs(residual) for residual in fit.residuals]
    worst = max(off)
    lines.append(f"residuals: median {median(off):.1%}, largest {worst:.1%}")
    if worst > ROUGH:
        lines.append("one line does not fit all sizes: narrow --min-bytes and --max-bytes to those you use")
    slower = median(m / f for m, f in zip(sweep.medians, sweep.fastest, strict=True))
    if slower > BUSY:
        lines.append(
            f"medians are {slower:.1f} times the fastest: measure on a quiet machine, or --fit fastest"
        )
    return "\n".join(lines)
