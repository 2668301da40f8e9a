"""`stragglar bench`: hosts on this machine, with shaped links, and what an AllReduce takes between them."""

from __future__ import annotations

import json
from typing import Any

import click

from ..schedules.errors import RunError, UsageError
from ..schedules.files import write_atomic
from ..schedules.units import parse_size
from ..testbed import running, testbed
from ..testbed.links import links
from ..testbed.network import Network
from ..testbed.report import without_refused
from ..testbed.sweep import AXES, sweep
from .bench_options import (
    buffer_options,
    late_by_option,
    links_request,
    measure_options,
    network_options,
    plain_seconds,
)
from .bench_output import links_text, trace_text
from .options import SECONDS, json_option
from .ranges import Series, parse_count


@click.group("bench")
def command() -> None:
    """Measure on hosts made on this machine: network namespaces, each with one port of a fixed rate.

    Needs Linux and root, or a user who may make user namespaces; ip and tc (Debian: iproute2). Nothing of
    this machine's own network is touched, no traffic leaves the namespaces, and nothing stays behind.

    \b
    Example:
      stragglar bench links --hosts 8 --rate 200mbit --seconds 1.1 --late-by full --json
      stragglar bench up --hosts 4
      stragglar bench run -- ip addr
      stragglar bench down
    """


@command.command("up")
@network_options
@click.option("--lifetime", type=SECONDS, default="30min", show_default=True, help="Then it is taken down.")
def up(hosts: int, rate: float, mtu: int, lifetime: float) -> None:
    """Make hosts that stay until `down`, for `run` and for trying things by hand."""
    folder = testbed.up(Network(hosts, rate, mtu), lifetime)
    click.echo(folder.name.removeprefix(testbed.NAME))
    click.echo(f"{hosts} hosts are up: stragglar bench run -- COMMAND, stragglar bench down", err=True)


@command.command("down")
def down() -> None:
    """Take down all testbeds of this user and remove what dead ones have left."""
    found = testbed.folders()
    for folder in found:
        testbed.take_down(folder)
    click.echo(f"{len(found)} taken down" if found else "none was up", err=True)


@command.command("run", context_settings={"ignore_unknown_options": True})
@network_options
@click.option(
    "--time-limit", type=SECONDS, default="60s", show_default=True, help="For the command, on all hosts."
)
@click.argument("words", nargs=-1, required=True, metavar="COMMAND...", type=click.UNPROCESSED)
def run(hosts: int, rate: float, mtu: int, time_limit: float, words: tuple[str, ...]) -> int:
    """Run a command on every host: of the testbed that is up, else of one made for it.

    It finds RANK, RANKS, ADDRESS (its own) and ADDRESSES (all, with commas) in its environment. Output comes
    host by host, each line after the host's rank. The exit code is 1 if any is not 0.

    \b
    Example:
      stragglar bench run --hosts 4 -- sh -c 'echo I am $ADDRESS'
    """
    codes = running.run_everywhere(Network(hosts, rate, mtu), words, time_limit, click.echo)
    failed = [rank for rank, code in enumerate(codes) if code]
    if failed:
        raise RunError(f"the command failed on host {failed[0]} with exit code {codes[failed[0]]}")
    return 0


@command.command("links")
@network_options
@buffer_options
@late_by_option
@click.option(
    "--trace",
    metavar="FILE",
    help="What every rank did in one more repetition of each of our schedules: Chrome trace events.",
)
@measure_options
@json_option
def links_command(
    hosts: int,
    rate: float,
    mtu: int,
    trace: str | None,
    force: bool,
    output: str | None,
    as_json: bool,
    **rest: Any,  # noqa: ANN401
) -> int:
    """Measure AllReduces between hosts, interleaved, from the last arrival to the last end.

    Algorithms: ring, rhd, stragglar:M (M chunks an early rank), split, merge-allreduce:K, plan, published,
    file:FILE on our TCP engine; mpi:NAME for the same on MPI; mpi, mpi-ring, mpi-rd, mpi-rabenseifner, which
    are MPI's own, and gloo. `spread` is (slowest - fastest) / median; `over_ring` how many times as long
    ring takes; `over_theory` and `over_bound` are the time over the model's and over the least possible.

    A figure above its theory while the CPU was busy is not reported, and the exit code is 1.

    \b
    Example:
      stragglar bench links --hosts 8 --seconds 1.1 --late-by full --algorithms ring,stragglar:10
    """
    request = links_request(Network(hosts, rate, mtu), trace=trace is not None, **rest)
    report, recorded = links(request, _say)
    if trace is not None:
        write_atomic(trace, trace_text(recorded))
    shown = report if force else without_refused(report)
    if output:
        write_atomic(output, json.dumps(shown, indent=1) + "\n")
    click.echo(json.dumps(shown) if as_json else links_text(shown))
    return _verdict([report], force)


@command.command("sweep")
@click.option("--over", type=click.Choice(AXES), required=True, help="What varies.")
@click.option(
    "--values",
    required=True,
    help="delay: multiples of what hides the ReduceScatter, e.g. 0,0.1,0.5,1; size: e.g. 4KiB..16MiB;"
    " hosts: e.g. 2,4,8.",
)
@network_options
@buffer_options
@late_by_option
@click.option("--plot", metavar="FILE", help="Draw it: a .png or .svg file (needs stragglar[plot]).")
@measure_options
@json_option
def sweep_command(
    over: str,
    values: str,
    hosts: int,
    rate: float,
    mtu: int,
    plot: str | None,
    force: bool,
    output: str | None,
    as_json: bool,
    **rest: Any,  # noqa: ANN401
) -> int:
    """Measure as `links` does for several delays, sizes or numbers of hosts.

    \b
    Example:
      stragglar bench sweep --over delay --values 0,0.25,0.5,1 --seconds 0.5 -o delays.json --plot delays.svg
    """
    request = links_request(Network(hosts, rate, mtu), **rest)
    reports = sweep(request, over, _values(over, values), _say)
    shown = [report if force else without_refused(report) for report in reports]
    text = {"over": over, "points": shown}
    if output:
        write_atomic(output, json.dumps(text, indent=1) + "\n")
    if plot:
        from .bench_plots import draw_sweep

        draw_sweep(over, shown, plot)
    click.echo(json.dumps(text) if as_json else "\n\n".join(map(links_text, shown)))
    return _verdict(reports, force)


def _values(over: str, text: str) -> list[float]:
    """The values of a sweep, in the unit of its axis."""
    if over == "hosts":
        return [float(v) for v in Series(parse_count, doubling=True, whole=True).convert(text, None, None)]
    if over == "size":
        return [float(v) for v in Series(parse_size, doubling=True, whole=True).convert(text, None, None)]
    return Series(_multiple, doubling=False, whole=False).convert(text, None, None)


def _multiple(text: str) -> float:
    value = plain_seconds(text)
    if not 0 <= value <= 100:
        raise UsageError(f"{text!r}: a multiple of the hiding delay is a number from 0 to 100")
    return value


def _verdict(reports: list[dict[str, Any]], force: bool) -> int:
    """The exit code of a measurement; says on standard error what is wrong with it."""
    refused = [row for report in reports for row in report["algorithms"] if row["refused"]]
    for row in refused:
        what = "reported by --force" if force else "not reported (--force shows it)"
        click.echo(f"stragglar: {row['name']}: {what}: {row['refused']}", err=True)
    right = all(report["correct"] for report in reports)
    return 0 if right and (force or not refused) else 1


def _say(line: str) -> None:
    click.echo(f"{line} ...", err=True)
