"""The published evaluation made again with our families: modelled speedups and times, a page and three plots.

    python benchmarks/evaluation.py [-o docs]

Nothing here is measured: alpha-beta model, alpha = 3 us, 450 GiB/s a port, as in the paper.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from stragglar.cli.plots import draw_plans
from stragglar.schedules import Link
from stragglar.schedules.files import write_atomic
from stragglar.schedules.units import format_bytes, format_seconds
from stragglar.synth.planner import Plan, Situation, plan, with_latency

LINK = Link(3e-6, 450 * 2.0**30)
GIB = 1 << 30
HIDDEN = 0.05
"""A delay, in seconds, that hides every pre phase here."""

HEAD = """# The published evaluation, made again

Made by `python benchmarks/evaluation.py -o docs`. **Everything here is modelled** (alpha-beta, α = 3 µs, 450
GiB/s a port, as in the paper), from the late rank's arrival to the end. *Published* is StragglAR with one
chunk an early rank; *plan* is what `stragglar plan` takes; *bound* counts bandwidth only.
"""


def speedups(plans: list[Plan]) -> Iterator[str]:
    """Speedups over ring against the number of ranks."""
    yield "\n## 1 GiB, a delay that hides the pre phase: speedup over ring\n"
    yield "![speedup over ring](figures/speedup-ranks.svg)\n"
    yield "| n | published | plan | takes | halving-doubling | limit: ring over the bound |"
    yield "| ---: | ---: | ---: | --- | ---: | ---: |"
    for made in plans:
        ring = made.baselines["ring"]
        theirs, ours = ring / (made.published or 1), made.speedup
        others = f"{ring / made.baselines['rhd']:.3f} | {ring / made.bound_seconds:.3f}"
        yield f"| {made.situation.ranks} | {theirs:.3f} | {ours:.3f} | {_taken(made)} | {others} |"


def sizes(plans: list[Plan]) -> Iterator[str]:
    """Times against the size of the buffer."""
    yield "\n## 8 ranks, 4 KiB to 4 GiB, a delay that hides the pre phase\n"
    yield "![time against size](figures/time-size.svg)\n"
    yield "| size | plan | takes | published | ring | halving-doubling | direct | over the best baseline |"
    yield "| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: |"
    for made in plans:
        others = [made.published or 0.0, *(made.baselines[name] for name in ("ring", "rhd", "direct"))]
        times = " | ".join(map(format_seconds, others))
        best = min(made.baselines.values()) / made.choice.post_seconds
        mine = format_seconds(made.choice.post_seconds)
        yield f"| {format_bytes(made.situation.size)} | {mine} | {_taken(made)} | {times} | {best:.3f} |"


def delays(plans: list[Plan], size: int) -> Iterator[str]:
    """Times against the delay."""
    yield f"\n## 8 ranks, {format_bytes(size)}, delays from 0 to 2 sβ\n"
    if size == GIB:
        yield "![time against delay](figures/time-delay.svg)\n"
    yield "| delay / sβ | plan | takes | published | ring | bound | plan / (bound + latency) |"
    yield "| ---: | ---: | --- | ---: | ---: | ---: | ---: |"
    for made in plans:
        share = made.situation.delay / (size * LINK.beta)
        times = (made.published or 0.0, made.baselines["ring"], made.bound_seconds)
        cells = " | ".join(map(format_seconds, times))
        mine = format_seconds(made.choice.post_seconds)
        ratio = made.choice.post_seconds / with_latency(made.situation)
        yield f"| {share:.2f} | {mine} | {_taken(made)} | {cells} | {ratio:.3f} |"


def _taken(made: Plan) -> str:
    fraction = made.choice.request.fraction
    share = f", {float(fraction):.0%} merged" if fraction is not None else ""
    return f"{made.choice.request.algorithm}, k = {made.choice.counts.chunks}{share}"


@click.command()
@click.option("-o", "--output", default="docs", show_default=True, help="Folder of the page and its figures.")
def main(output: str) -> None:
    """Make the page of the modelled evaluation."""
    folder = Path(output)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    ranks = [plan(Situation(n, 0, GIB, LINK, HIDDEN)) for n in (4, 8, 16, 32, 64, 128, 256)]
    steps = [plan(Situation(8, 0, 1 << bits, LINK, HIDDEN)) for bits in range(12, 33)]
    lines = [HEAD, *speedups(ranks), *sizes(steps)]
    for size in (1 << 26, GIB, 1 << 32):
        waits = [plan(Situation(8, 0, size, LINK, size * LINK.beta * i / 10)) for i in range(21)]
        lines += delays(waits, size)
        if size == GIB:
            draw_plans(waits, str(folder / "figures" / "time-delay.svg"))
    lines.append(
        "\n*Bound + latency* is B + Lα + 2 √(B·Lα), what a pipeline of rounds over L = ⌈log₂ n⌉ − 1 doublings"
        " takes with the best number of chunks, where B is the bandwidth bound for the delay less (n − 2) α:"
        " the rounds of the ReduceScatter take that much of the delay before they move a byte."
    )
    draw_plans(ranks, str(folder / "figures" / "speedup-ranks.svg"))
    draw_plans(steps, str(folder / "figures" / "time-size.svg"))
    write_atomic(str(folder / "evaluation.md"), "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
