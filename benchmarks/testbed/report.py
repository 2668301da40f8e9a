"""From samples to a report: medians, ratios to ring, theory and the bound, and what may not be reported.

A figure says something about links only if the links set it. So one that is well above its theory while the
cores of this machine were busy is refused: then the CPU may have been what it waited for. MPI's ranks poll
and keep the cores busy always; at its theory a figure stands all the same, since no CPU was missing there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from .contenders import Contender, Scene
from .load import Load
from .measure import Samples

BUSY = 0.8
"""Share of the cores' time, stolen time included, from which on the CPU may be the limit."""

OTHERS = 0.15
"""Share of the cores' time that others may take: what they take at the wrong moment delays a round."""

STOLEN = 0.05
"""Share taken by other guests of the machine from which on no time means anything."""

ABOVE_THEORY = 1.05
"""A figure within so much of its theory was set by the links, however busy the cores were."""

FEW_TICKS = 50
"""Below so many ticks of all cores a share of them is noise: nothing is said about the CPU."""

RING = "ring"
"""What others are compared with: ours, on the TCP engine."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A contender with its samples."""

    contender: Contender
    samples: Samples

    @property
    def seconds(self) -> float:
        """The median."""
        return median(self.samples.seconds)

    def theory(self, delays: Sequence[float]) -> float:
        """What the model says, the median over the repetitions' delays."""
        return median(self.contender.theory(delay) for delay in delays)

    def over_theory(self, delays: Sequence[float]) -> float:
        """The median ratio of a repetition to the theory for its own delay."""
        model = self.contender.theory
        return median(s / model(d) for s, d in zip(self.samples.seconds, delays, strict=True))


def judge(
    rows: Sequence[Measured], scene: Scene, delays: Sequence[float], rate: float, others: float = 0.0
) -> dict[str, Any]:
    """The figures of a run.

    Args:
        rows: what was measured.
        scene: under what conditions.
        delays: of the late ranks, one a repetition.
        rate: of a port each way, bytes a second, headers included.
        others: share of the cores' time that other processes of this machine took before and after.

    Returns:
        JSON values: `algorithms`, one object a contender; `bound_s`; `cpu_busy` and `cpu_stolen`, shares of
        the cores' time over all measured intervals; `cpu_others`; `correct`; `refused`, the names of those
        that are not to be reported.
    """
    bound = median(scene.bound(delay) for delay in delays)
    ring = next((row.seconds for row in rows if row.contender.name == RING), None)
    algorithms = [_row(row, bound, ring, delays, rate, others) for row in rows]
    whole = sum((row.samples.load for row in rows), Load())
    return {
        "algorithms": algorithms,
        "bound_s": bound,
        "cpu_busy": whole.busy_share,
        "cpu_stolen": whole.stolen_share,
        "cpu_others": others,
        "correct": all(row["correct"] for row in algorithms),
        "refused": [row["name"] for row in algorithms if row["refused"]],
    }


def _row(
    row: Measured,
    bound: float,
    ring: float | None,
    delays: Sequence[float],
    rate: float,
    others: float,
) -> dict[str, Any]:
    samples, seconds, theory = row.samples, row.seconds, row.theory(delays)
    schedule = row.contender.schedule
    low, high = min(samples.seconds), max(samples.seconds)
    over_theory = row.over_theory(delays)
    return {
        "name": row.contender.name,
        "engine": row.contender.fleet,
        "median_s": seconds,
        "spread": (high - low) / seconds,
        "minimum_s": low,
        "maximum_s": high,
        "samples_s": list(samples.seconds),
        "theory_s": theory,
        "over_theory": over_theory,
        "over_ring": None if ring is None else ring / seconds,
        "over_bound": seconds / bound,
        "correct": samples.wrong == 0,
        "wrong": samples.wrong,
        "chunks": None if schedule is None else schedule.chunks,
        "post_rounds": None if schedule is None else len(schedule.post),
        "port_busy": _port_busy(samples, rate),
        "cpu_busy": samples.load.busy_share,
        "cpu_stolen": samples.load.stolen_share,
        "cpu_wait": median(samples.cpu_waits),
        "rank_cpu_s": samples.cpu / len(samples.seconds),
        "refused": refusal(samples.load, over_theory, others),
    }


def _port_busy(samples: Samples, rate: float) -> dict[str, float]:
    """Share of what ports could have received from the last arrival to the end: all ports, the busiest."""
    pairs = list(zip(samples.received, samples.seconds, strict=True))
    mean = median(sum(ports) / len(ports) / (seconds * rate) for ports, seconds in pairs)
    busiest = median(max(ports) / (seconds * rate) for ports, seconds in pairs)
    return {"mean": mean, "busiest": busiest}


def refusal(load: Load, over_theory: float, others: float = 0.0) -> str:
    """Why a figure may not be reported; empty: it may.

    Args:
        load: of the machine while it was measured.
        over_theory: the figure over its theory.
        others: share of the cores' time that other processes took.
    """
    if over_theory <= ABOVE_THEORY:
        return ""
    if others > OTHERS:
        return f"other processes keep the CPU {others:.0%} busy"
    if load.total < FEW_TICKS or load.busy_share is None or load.stolen_share is None:
        return ""
    if load.stolen_share > STOLEN:
        return f"other guests of this machine took {load.stolen_share:.0%} of the CPU"
    share = load.busy_share + load.stolen_share
    if share > BUSY:
        return f"the CPU was {share:.0%} busy: it, and not the ports, may have been the limit"
    return ""


def without_refused(report: dict[str, Any]) -> dict[str, Any]:
    """The report with no figures where they are refused."""
    hidden = (
        "median_s",
        "spread",
        "minimum_s",
        "maximum_s",
        "samples_s",
        "over_theory",
        "over_ring",
        "over_bound",
    )
    rows = [row | dict.fromkeys(hidden) if row["refused"] else row for row in report["algorithms"]]
    if any(row["refused"] and row["name"] == RING for row in rows):
        rows = [row | {"over_ring": None} for row in rows]
    return report | {"algorithms": rows}
