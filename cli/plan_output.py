"""What `stragglar plan` says of plans: JSON values, text, CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from ..schedules.units import format_bandwidth, format_bytes, format_seconds
from ..synth.planner import Plan


def groups_text(groups: Sequence[Sequence[int]]) -> str:
    """Groups of late ranks as `--arrival-groups` takes them."""
    return "/".join(",".join(map(str, group)) for group in groups) or "none"


def plan_json(made: Plan) -> dict[str, Any]:
    """A plan as plain values; times in seconds, from the last arrival on."""
    situation, choice = made.situation, made.choice
    fraction = choice.request.fraction
    merges = choice.request.algorithm in ("stragglar", "merge-allreduce")
    return {
        "model": "alpha-beta",
        "ranks": situation.ranks,
        "late": list(situation.late_ranks),
        "groups": [list(group) for group in choice.request.arrivals],
        "bytes": situation.size,
        "delay_seconds": situation.delay,
        "alpha_seconds": situation.link.alpha,
        "bandwidth_bytes_per_second": situation.link.bandwidth,
        "family": choice.request.algorithm,
        "chunks": choice.counts.chunks,
        "split": float(fraction) if fraction is not None else float(merges),
        "parameters": dict(choice.request.granularity()),
        "rounds": {"pre": choice.counts.pre_rounds, "post": choice.counts.post_rounds},
        "post_seconds": choice.post_seconds,
        "bound_seconds": made.bound_seconds,
        "baselines": made.baselines,
        "published_seconds": made.published,
        "speedup_over_ring": made.speedup,
    }


def plan_text(made: Plan) -> str:
    """One plan for people."""
    values, link = plan_json(made), made.situation.link
    late = ", ".join(map(str, values["late"])) or "none"
    settings = "".join(
        f", {name} {value}" for name, value in values["parameters"].items() if name != "chunks"
    )
    lines = [
        f"plan (model): {format_bytes(values['bytes'])} over {values['ranks']} ranks, late: {late}"
        f" by {format_seconds(values['delay_seconds'])}; alpha {format_seconds(link.alpha)},"
        f" {format_bandwidth(link.bandwidth)}",
        f"take {values['family']}, {values['chunks']} chunks{settings}",
        "",
        f"{'from the last arrival':<30}{'time':>14}{'over the plan':>16}",
    ]
    rows = {"this plan": values["post_seconds"], **values["baselines"]}
    if values["published_seconds"] is not None:
        rows["StragglAR as published"] = values["published_seconds"]
    rows["bound (bandwidth only)"] = values["bound_seconds"]
    for name, seconds in rows.items():
        lines.append(f"{name:<30}{format_seconds(seconds):>14}{seconds / values['post_seconds']:>16.3f}")
    return "\n".join(lines)


COLUMNS = ("ranks", "bytes", "delay_seconds", "family", "chunks", "split", "post_seconds", "bound_seconds")


def plans_csv(plans: list[Plan]) -> str:
    """A table of plans as CSV, a baseline a column."""
    stream = io.StringIO()
    names = list(plans[0].baselines)
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*COLUMNS, "published_seconds", *(f"{name}_seconds" for name in names)])
    for made in plans:
        values = plan_json(made)
        cells = [values[column] for column in (*COLUMNS, "published_seconds")]
        writer.writerow([*cells, *(made.baselines[name] for name in names)])
    return stream.getvalue()


def plans_text(plans: list[Plan]) -> str:
    """A table of plans for people."""
    heads = ("ranks", "bytes", "delay", "family", "chunks", "split", "post", "bound", "ring", "over ring")
    widths = (6, 10, 10, 18, 8, 7, 11, 11, 11, 11)
    lines = ["".join(f"{head:>{width}}" for head, width in zip(heads, widths, strict=True))]
    for made in plans:
        v = plan_json(made)
        times = (v["post_seconds"], v["bound_seconds"], made.baselines["ring"])
        cells = (
            v["ranks"],
            format_bytes(v["bytes"]),
            format_seconds(v["delay_seconds"]),
            v["family"],
            v["chunks"],
            f"{v['split']:.2f}",
            *map(format_seconds, times),
            f"{made.speedup:.3f}",
        )
        lines.append("".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)))
    return "\n".join(["modelled times from the last arrival to the end", *lines])
