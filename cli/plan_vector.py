"""`stragglar plan --arrivals 0,0,0,200ms`: the plan for one expected arrival of every rank."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click

from ..backends.simulation import simulate
from ..schedules import Link, Schedule, UsageError, save_schedule
from ..schedules.units import format_bandwidth, format_bytes, format_seconds
from ..synth.arrival_plan import ArrivalPlan, ArrivalSituation, plan_arrivals
from .plan_output import groups_text


class Arrivals(click.ParamType[str | tuple[float, ...]]):
    """Times separated by commas, one a rank, or the name of a file with a trace."""

    name = "arrivals"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | tuple[float, ...]:
        """Numbers with units, separated by commas, are times; all else is a file (`./0,1ms` too).

        Where there is no such file, what has commas was meant as times, and the faulty one is named.
        """
        from .options import TIMES

        text = str(value)
        part = r"\s*[0-9][0-9.e+-]*\s*[a-zµ]*\s*"
        listed = re.fullmatch(rf"{part}(,{part})+", text) is not None
        if not listed and ("," not in text or "/" in text or Path(text).exists()):
            return text
        return TIMES.convert(text, param, ctx)


def plan_for_vector(
    arrivals: tuple[float, ...],
    sizes: list[int],
    link: Link,
    max_chunks: int,
    output: str | None,
    as_json: bool,
) -> None:
    """Plans for one arrival vector, prints the plan and writes the schedule."""
    if len(sizes) != 1:
        raise UsageError("a plan for arrivals takes one size")
    situation = ArrivalSituation(arrivals, sizes[0], link, max_chunks)

    def ends(schedule: Schedule) -> float:
        return simulate(schedule, situation.size, link, situation.arrivals).completion

    made = plan_arrivals(situation, ends)
    if output:
        save_schedule(made.schedule(), output)
    report = vector_json(made)
    if as_json:
        click.echo(json.dumps(report))
    elif output != "-":
        click.echo(_text(report))


def vector_json(made: ArrivalPlan) -> dict[str, Any]:
    """A plan as plain values; times in seconds, from the last arrival on."""
    situation, choice = made.situation, made.choice
    request, counts = choice.request, choice.counts
    merges = request.algorithm in ("stragglar", "merge-allreduce")
    between = {f"arrival{i}": rounds for i, (rounds, _) in enumerate(counts.between, start=1)}
    return {
        "model": "event simulation",
        "ranks": situation.ranks,
        "late": list(request.late),
        "groups": [list(group) for group in request.arrivals],
        "bytes": situation.size,
        "arrivals_seconds": list(situation.arrivals),
        "alpha_seconds": situation.link.alpha,
        "bandwidth_bytes_per_second": situation.link.bandwidth,
        "family": request.algorithm,
        "chunks": counts.chunks,
        "split": float(request.fraction) if request.fraction is not None else float(merges),
        "parameters": dict(request.granularity()),
        "rounds": {"pre": counts.pre_rounds, **between, "post": counts.post_rounds},
        "post_seconds": choice.post_seconds,
        "bound_seconds": situation.bound_seconds,
        "baselines": made.baselines,
        "speedup_over_ring": made.speedup,
        "compared": made.compared,
    }


def _text(report: dict[str, Any]) -> str:
    link = f"alpha {format_seconds(report['alpha_seconds'])}, "
    link += format_bandwidth(report["bandwidth_bytes_per_second"])
    come = report["arrivals_seconds"]
    named = "".join(f", {name} {value}" for name, value in report["parameters"].items() if name != "chunks")
    lines = [
        f"plan (model, event simulation): {format_bytes(report['bytes'])} over {report['ranks']} ranks"
        f" that come within {format_seconds(max(come) - min(come))}; {link}",
        f"take {report['family']}, {report['chunks']} chunks, late {groups_text(report['groups'])}{named}"
        f"  (best of {report['compared']})",
        "",
        f"{'from the last arrival':<34}{'time':>14}{'over the plan':>16}",
    ]
    rows = {"this plan": report["post_seconds"]}
    rows |= {f"{name}, started then": seconds for name, seconds in report["baselines"].items()}
    rows["bound (transfers and latency)"] = report["bound_seconds"]
    for name, seconds in rows.items():
        over = seconds / report["post_seconds"]
        lines.append(f"{name:<34}{format_seconds(seconds):>14}{over:>16.3f}")
    return "\n".join(lines)
