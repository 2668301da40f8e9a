"""`stragglar plan --arrivals trace.csv`: the plan with the least expected time over a trace of arrivals."""

from __future__ import annotations

import json
from typing import Any

import click
import numpy as np

from ..backends.simulation import completions
from ..schedules import Link, Schedule, UsageError, save_schedule
from ..schedules.arrival_files import load_trace
from ..schedules.arrival_stats import arrival_report, bootstrap, last_ranks, leads
from ..schedules.arrivals import ArrivalTrace
from ..schedules.units import format_bytes, format_seconds
from ..synth import synthesize
from ..synth.expected import ExpectedPlan, Times, group_candidates, plan_expected, trace_candidates
from .plan_output import groups_text

LIKELY = 3
"""Late ranks that plans are made for: the most frequent ones."""

SIMULATED = 1000
"""Iterations of the trace that candidates are simulated on, spread evenly; all are in the statistics."""


def plan_for_trace(
    path: str, sizes: list[int], link: Link, max_chunks: int, seed: int, output: str | None, as_json: bool
) -> None:
    """Reads a trace, plans for it, prints the plan and writes the schedule."""
    if len(sizes) != 1:
        raise UsageError("a plan for a trace takes one size")
    trace = load_trace(path)
    part = sample(trace)
    made = choose(part, sizes[0], link, max_chunks)
    report = trace_json(trace, part, made, sizes[0], seed)
    if output:
        save_schedule(synthesize(made.choice.request), output)
    if as_json:
        click.echo(json.dumps(report))
    elif output != "-":
        click.echo(_text(report))


def sample(trace: ArrivalTrace) -> ArrivalTrace:
    """At most `SIMULATED` iterations of a trace, evenly spread."""
    if trace.iterations <= SIMULATED:
        return trace
    rows = np.linspace(0, trace.iterations - 1, SIMULATED).round().astype(np.int64)
    return ArrivalTrace.of(trace.seconds[rows], trace.note)


def choose(trace: ArrivalTrace, size: int, link: Link, max_chunks: int) -> ExpectedPlan:
    """The plan with the least mean time over the trace, by event simulation."""

    def waited(schedule: Schedule) -> Times:
        ends = completions(schedule, size, link, trace.seconds)
        return np.asarray(ends - trace.seconds.max(axis=1))

    last = last_ranks(trace)
    counts = np.bincount(last[last >= 0], minlength=trace.ranks)
    order = np.argsort(-counts, kind="stable")
    likely = [int(rank) for rank in order[:LIKELY] if counts[rank]]
    requests = trace_candidates(trace.ranks, likely, leads(trace), size, link, max_chunks)

    def ends(schedule: Schedule, vector: Times) -> float:
        return float(completions(schedule, size, link, vector)[0])

    requests += group_candidates(trace.seconds, likely, size, link, max_chunks, ends)
    return plan_expected(trace.ranks, list(dict.fromkeys(requests)), waited)


def trace_json(
    trace: ArrivalTrace, part: ArrivalTrace, made: ExpectedPlan, size: int, seed: int
) -> dict[str, Any]:
    """The plan, its gain over ring with a confidence interval, and the statistics of the trace."""
    choice, ring = made.choice, made.baselines["ring"]
    pairs = np.column_stack((ring.waited, choice.waited))
    gain = bootstrap(np.arange(len(pairs), dtype=np.float64), lambda rows: _ratio(pairs, rows), seed=seed)
    return {
        "model": "event simulation",
        "ranks": trace.ranks,
        "bytes": size,
        "family": choice.request.algorithm,
        "late": list(choice.request.late),
        "groups": [list(group) for group in choice.request.arrivals],
        "parameters": dict(choice.request.granularity()),
        "expected_post_seconds": choice.mean,
        "baselines": {name: baseline.mean for name, baseline in made.baselines.items()},
        "gain_over_ring": {"value": gain.value, "low": gain.low, "high": gain.high, "level": 0.95},
        "guess": made.guess(last_ranks(part)),
        "compared": made.compared,
        "iterations": trace.iterations,
        "simulated_iterations": part.iterations,
        "arrivals": arrival_report(trace, seed).to_json(),
    }


def _ratio(pairs: Times, rows: Times) -> float:
    chosen = pairs[rows.astype(np.int64)]
    return float(chosen[:, 0].sum() / chosen[:, 1].sum())


def _text(report: dict[str, Any]) -> str:
    arrivals = report["arrivals"]
    share, usual = arrivals["usual_share"], arrivals["usual"]
    lead = format_seconds(arrivals["after_second"]["mean"]["value"])
    head = (
        f"trace: {report['iterations']} iterations of {report['ranks']} ranks; rank {usual} is last in"
        f" {share['value']:.0%} of them ({share['low']:.0%} to {share['high']:.0%}); the last rank comes"
        f" {lead} after the second last on average"
    )
    return f"{head}\n{plan_text(report)}"


def plan_text(report: dict[str, Any]) -> str:
    """What `trace_json` says of the plan, for people."""
    gain = report["gain_over_ring"]
    late = groups_text(report["groups"])
    named = "".join(f", {name} {value}" for name, value in report["parameters"].items())
    lines = [
        f"take {report['family']}, late {late}{named}  (best of {report['compared']} by expected time,"
        f" event simulation of {report['simulated_iterations']} iterations, {format_bytes(report['bytes'])})",
        "",
        f"{'expected from the last arrival':<34}{'time':>14}",
        f"{'this plan':<34}{format_seconds(report['expected_post_seconds']):>14}",
    ]
    for name, seconds in report["baselines"].items():
        lines.append(f"{name:<34}{format_seconds(seconds):>14}")
    for name, seconds in report["guess"].items():
        if seconds is not None:
            lines.append(f"{f'this plan where the guess is {name}':<34}{format_seconds(seconds):>14}")
    lines.append(
        f"gain over ring {gain['value']:.3f} (95 % interval {gain['low']:.3f} to {gain['high']:.3f})"
    )
    return "\n".join(lines)
