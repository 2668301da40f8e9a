"""`stragglar run`: a schedule on a backend, every result checked, times from the last arrival."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ..backends.mpi.environment import rank_here as mpi_rank
from ..backends.run import RUNNERS, RunReport, RunRequest, Timing, run
from ..backends.tcp.environment import rank_here as tcp_rank
from ..schedules import Link, Schedule, UsageError, load_schedule
from ..schedules.files import write_atomic
from ..schedules.units import format_bytes, format_seconds
from .options import BANDWIDTH, SECONDS, SIZE, TIMES, input_argument, json_option, late_option, link_of

UNTRACED = {"nccl": "its ranks are a C++ program that records nothing: trace a run --on mpi, or the model"}
"""Backends whose ranks cannot say what they do, and why."""


@click.command("run")
@input_argument
@click.option(
    "--on", type=click.Choice(RUNNERS.names()), default="model", show_default=True, help="Backend to run on."
)
@click.option("--bytes", "size", type=SIZE, help="Size of the buffer, e.g. 64MiB.")
@click.option("--count", type=int, help="Size of the buffer in elements, instead of --bytes.")
@click.option("--dtype", default="f32", show_default=True, help="f16, bf16, f32, f64, i32 or i64.")
@click.option("--op", default="sum", show_default=True, help="sum, max, min, prod or avg.")
@click.option("--late-by", type=SECONDS, default="0", show_default=True, help="How late the last rank comes.")
@late_option(help="Who really is late, if others than the schedule plans for.")
@click.option(
    "--arrivals",
    "delays",
    type=TIMES,
    metavar="TIME,TIME,..",
    help="How late every rank comes, one time a rank, e.g. 0,0,0,200ms; instead of --late-by.",
)
@click.option("--repeat", type=int, default=5, show_default=True, help="Measured repetitions.")
@click.option("--warmup", type=int, default=1, show_default=True, help="Repetitions before, not measured.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the test data.")
@click.option(
    "--time-limit",
    type=SECONDS,
    default="120s",
    show_default=True,
    help="For the whole run, beside the delays asked for.",
)
@click.option(
    "--trace",
    "trace_file",
    metavar="FILE",
    help="Write what every rank did as Chrome trace events (Perfetto).",
)
@click.option("--beside-model", is_flag=True, help="trace: put the model's timeline below each rank.")
@click.option("--alpha", type=SECONDS, help="trace: of the model, time of a round.  [default: 3us]")
@click.option("--bandwidth", type=BANDWIDTH, help="trace: of the model's ports.  [default: 450GiB/s]")
@click.option("--profile", metavar="FILE", help="trace: alpha and bandwidth from `stragglar calibrate`.")
@json_option
def command(
    file: str,
    on: str,
    size: int | None,
    count: int | None,
    dtype: str,
    op: str,
    late_by: float,
    late: tuple[int, ...],
    delays: tuple[float, ...] | None,
    repeat: int,
    warmup: int,
    seed: int,
    time_limit: float,
    trace_file: str | None,
    beside_model: bool,
    alpha: float | None,
    bandwidth: float | None,
    profile: str | None,
    as_json: bool,
) -> int:
    """Run a schedule and check the result of every rank on random data.

    --on model computes in this process; --on mpi starts one MPI process a rank (or uses those it was
    started under: mpiexec, srun) and measures, beside MPI's own Allreduce in the same run; --on tcp does
    so over plain sockets, with nothing to install, beside the ring.

    \b
    Example:
      stragglar run s.json --on mpi --bytes 64MiB --late-by 200ms
      mpiexec -n 8 stragglar run s.json --on mpi --bytes 64MiB
      stragglar run s.json --on mpi --late-by 50ms --trace t.json --beside-model --profile here.json
    """
    terms = [value for value in (alpha, bandwidth, profile) if value is not None]
    _check_trace(trace_file, on, beside_model, bool(terms))
    link = link_of(alpha, bandwidth, profile)
    request = RunRequest(
        bytes=1 << 20 if size is None and count is None else size,
        count=count,
        dtype=dtype,
        op=op,
        late_by=late_by,
        late=late or None,
        delays=delays,
        repeat=repeat,
        warmup=warmup,
        seed=seed,
        time_limit=time_limit,
        trace=trace_file is not None and on != "model",
    )
    first = _rank(on) in (None, 0)  # where a user starts the ranks, every rank comes here
    if first and request.leftover:
        used = f"{request.elements} {request.dtype} elements ({request.size} bytes)"
        click.echo(f"note: running on {used}; {request.leftover} of the bytes asked for make none", err=True)
    schedule = load_schedule(file)
    report = run(schedule, on, request)
    if first:
        if trace_file is not None:
            write_atomic(trace_file, _trace(report, schedule, request, link, beside_model))
        click.echo(json.dumps(_plain(report)) if as_json else run_text(report))
    return 0 if report.correct else 1


def _rank(on: str) -> int | None:
    """Which rank of a backend this process is; None where the backend starts its ranks."""
    return {"mpi": mpi_rank, "tcp": tcp_rank}.get(on, lambda: None)()


def _check_trace(trace_file: str | None, on: str, beside: bool, terms: bool) -> None:
    """Refuses what cannot be traced, before anything runs.

    Raises:
        UsageError: says which option does not fit.
    """
    if trace_file is None:
        if beside or terms:
            raise UsageError("--beside-model, --alpha, --bandwidth and --profile are for --trace FILE")
        return
    if on in UNTRACED:
        raise UsageError(f"--trace does not go with --on {on}: {UNTRACED[on]}")
    if terms and on != "model" and not beside:
        raise UsageError("--alpha, --bandwidth and --profile are for the model: add --beside-model")
    if trace_file == "-":
        raise UsageError("--trace needs the name of a file: standard output has the report")
    folder = Path(trace_file).resolve().parent
    if not folder.is_dir():
        raise UsageError(f"{trace_file}: cannot write it: there is no folder {folder}")


def _trace(report: RunReport, schedule: Schedule, request: RunRequest, link: Link, beside: bool) -> str:
    """The trace file: of the run, with the model below each rank if asked, or of the model alone."""
    from ..backends.simulation import simulate
    from ..backends.view.run_trace import run_trace_text
    from ..backends.view.timeline import trace_text

    if report.backend == "model":
        return trace_text(schedule, request.size, link, report.late_by, arrivals=report.delays)
    if not beside:
        return run_trace_text(report)
    model = simulate(schedule, request.size, link, report.delays)
    return run_trace_text(report, beside=(schedule, model))


def run_text(report: RunReport) -> str:
    """A report for people, in nccl-tests' columns."""
    late = f", {format_seconds(report.late_by)} late: rank {_ranks(report)}" if report.late_by else ""
    lines = [
        f"{report.backend}: {report.ranks} ranks, {format_bytes(report.bytes)}"
        f" ({report.count} {report.dtype}, {report.op}){late}",
    ]
    if report.schedule is not None:
        heads = ("from last arrival", "median", "fastest", "slowest", "algbw GB/s", "busbw GB/s", "#wrong")
        lines.append(f"{heads[0]:<22}" + "".join(f"{h:>12}" for h in heads[1:]))
        lines.append(_row("schedule", report.schedule))
    if report.mpi_allreduce is not None:
        lines.append(_row("MPI Allreduce", report.mpi_allreduce))
    lines += [_row(name, timing) for name, timing in report.others.items()]
    if report.speedup is not None:
        where = "on this machine, whose cores all ranks share" if len(set(report.hosts)) == 1 else "here"
        lines.append(f"measured {where}: MPI's own Allreduce takes {report.speedup:.2f} times as long")
    verdict = (
        "every element of every rank is right" if report.correct else f"{report.wrong} elements are WRONG"
    )
    lines.append(verdict)
    return "\n".join(lines)


def _plain(report: RunReport) -> dict[str, Any]:
    """The report without its events, which are for a trace file."""
    return {name: value for name, value in report.to_json().items() if name != "events"}


def _ranks(report: RunReport) -> str:
    late = [r for r, delay in enumerate(report.delays) if delay]
    return ", ".join(map(str, late[:8])) + (" ..." if len(late) > 8 else "")


def _row(name: str, timing: Timing) -> str:
    times = (timing.seconds, timing.minimum, timing.maximum)
    cells = [*(format_seconds(t) for t in times), f"{timing.algbw:.3f}", f"{timing.busbw:.3f}"]
    return f"{name:<22}" + "".join(f"{c:>12}" for c in [*cells, str(timing.wrong)])
