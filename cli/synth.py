"""`stragglar synth`: a request becomes a schedule file."""

from __future__ import annotations

import re
from fractions import Fraction

import click

from ..schedules import Schedule, UsageError, certify, save_schedule
from ..synth import ALGORITHMS, Request, synthesize
from ..synth.families import ALIASES
from .options import SECONDS, groups_option, late_option, output_option


class Share(click.ParamType[Fraction]):
    """An exact part of the buffer, `2/5` or `0.4`."""

    name = "fraction"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Fraction:
        """Turns text into a fraction; whether it is one of the buffer is for the request to say."""
        match = re.fullmatch(r"[0-9]{1,9}(/0*[1-9][0-9]{0,8}|\.[0-9]{1,9})?", str(value))
        if match is None:
            self.fail(f"{value!r} is not a fraction such as 2/5 or 0.4", param, ctx)
        return Fraction(match[0])


class Numbers(click.ParamType[tuple[int, ...]]):
    """Numbers separated by commas, e.g. `60,80`."""

    name = "numbers"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Turns text into numbers; whether they fit the chunks and groups is for the request to say."""
        if re.fullmatch(r"[0-9]{1,9}(,[0-9]{1,9})*", str(value)) is None:
            self.fail(f"{value!r} is not numbers such as 60,80", param, ctx)
        return tuple(int(part) for part in str(value).split(","))


NUMBERS = Numbers()


def _choices(option: str) -> click.Choice[str]:
    """Every value that some algorithm takes for an option; which takes which is for `synthesize` to say."""
    values = (value for family in ALGORITHMS.values() for value in family.options.get(option, ()))
    return click.Choice(list(dict.fromkeys(values)))


@click.command("synth")
@click.option("-n", "--ranks", type=int, required=True, help="Number of ranks, 2 or more.")
@late_option(help="The late rank, or several; the paper calls it the straggler.")
@groups_option
@click.option("--refine", "-m", type=int, metavar="M", help="Cut the buffer into M times as many chunks.")
@click.option("--chunks", "-k", type=int, metavar="K", help="Cut the buffer into exactly K chunks.")
@click.option(
    "--algorithm",
    type=click.Choice([*ALGORITHMS, *ALIASES]),
    default="stragglar",
    show_default=True,
    help="What to make.",
)
@click.option(
    "--fraction", type=Share(), metavar="P/Q", help="split: the part of the buffer to merge.  [default: 1/2]"
)
@click.option(
    "--pre", type=_choices("pre"), help="stragglar, merge-allreduce: what early ranks do meanwhile."
)
@click.option("--inner", type=_choices("inner"), help="split: the AllReduce of the rest.  [default: ring]")
@click.option(
    "--before",
    type=NUMBERS,
    metavar="K[,R..]",
    help="stragglar: chunks that the early ranks reduce, then rounds of each later phase before the last"
    " arrival.  [default: all]",
)
@click.option("--pairwise", is_flag=True, help="stragglar: send only to the rank that one receives from.")
@click.option("--exact", is_flag=True, help="stragglar: search all merges with a solver; for a few ranks.")
@click.option(
    "--time-limit", type=SECONDS, help="Of the exact search; the result then depends on the machine."
)
@output_option("Schedule file to write; - is standard output.")
def command(
    ranks: int,
    late: tuple[int, ...],
    groups: tuple[tuple[int, ...], ...] | None,
    refine: int | None,
    chunks: int | None,
    algorithm: str,
    fraction: Fraction | None,
    pre: str | None,
    inner: str | None,
    before: tuple[int, ...] | None,
    pairwise: bool,
    exact: bool,
    time_limit: float | None,
    output: str,
) -> None:
    """Make a schedule for N ranks of which some come late.

    The schedule is validated before it is written. What it takes, and how far that is from the lower
    bound, goes to stderr.

    \b
    Examples:
      stragglar synth -n 8 --late 3 -o s.json
      stragglar synth -n 8 --late 3 --chunks 128 -o s.json   # power-of-two buffers fit MSCCL
      stragglar synth -n 8 --late 3 --algorithm split --fraction 2/5 -o s.json
      stragglar synth -n 8 --arrival-groups 3/5,6 --chunks 96 -o s.json
      stragglar synth -n 12 --algorithm ring | stragglar show -
    """
    if late and groups:
        raise UsageError("--arrival-groups names the late ranks: leave --late out")
    options = (fraction, pre, inner, pairwise or None, exact or None, time_limit, groups or (), before)
    schedule = synthesize(Request(ranks, late, algorithm, refine, chunks, *options))
    save_schedule(schedule, output)
    made = certify(schedule)
    *first, last = (f"{count} {name}" for name, count in made.rounds.items())
    rounds = f"{', '.join(first)} and {last} rounds"
    click.echo(
        f"{schedule.origin.family}, {ranks} ranks, {schedule.chunks} chunks: {rounds};"
        f" bound {made.post_bound}, gap {made.gap}{_merge_note(schedule)}",
        err=True,
    )


def _merge_note(schedule: Schedule) -> str:
    """How a merge that was searched for came out: whether fewer rounds are excluded."""
    merge = str(dict(schedule.origin.parameters).get("merge", ""))
    return f" ({merge})" if merge.startswith("exact") else ""
