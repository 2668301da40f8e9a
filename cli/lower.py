"""`stragglar lower`: a schedule becomes a program for a runtime."""

from __future__ import annotations

import click

from ..backends.msccl.lower import Lowered, lower
from ..backends.msccl.options import DEFAULT_MAX_BYTES, PROTOCOLS, LowerOptions
from ..backends.msccl.profiles import PROFILES, profile_named
from ..backends.msccl.selection import selection_of
from ..schedules import Schedule, load_schedule
from ..schedules.files import write_atomic
from .options import SIZE, input_argument, output_option

TARGETS = ("msccl-xml", "msccl-lang", "nccl", "nccl4py")


@click.command("lower")
@input_argument
@click.option("--to", "target", type=click.Choice(TARGETS), required=True, help="What to write.")
@output_option("File to write; - is standard output.")
@click.option(
    "--runtime",
    type=click.Choice(list(PROFILES)),
    default="portable",
    show_default=True,
    help="Whose limits to respect; portable respects all.",
)
@click.option(
    "--in-place/--out-of-place",
    default=True,
    show_default=True,
    help="For calls whose output is their input, or for the others.",
)
@click.option("--fused", is_flag=True, help="Use the fused step rrc, which RCCL does not launch.")
@click.option("--protocol", type=click.Choice(PROTOCOLS), default="Simple", show_default=True)
@click.option("--instances", type=int, default=1, show_default=True, help="Copies on channels of their own.")
@click.option("--min-bytes", type=SIZE, default=0, show_default=True, help="Smallest buffer to use it for.")
@click.option(
    "--max-bytes",
    type=SIZE,
    default=DEFAULT_MAX_BYTES,
    show_default=True,
    help="Largest buffer to use it for.",
)
@click.option("--name", default="", help="Name of the algorithm, if not made from the schedule.")
def command(
    file: str,
    target: str,
    output: str,
    runtime: str,
    in_place: bool,
    fused: bool,
    protocol: str,
    instances: int,
    min_bytes: int,
    max_bytes: int,
    name: str,
) -> None:
    """Turn a schedule into a program for a runtime.

    msccl-xml is read back, checked and executed in the runtime model before it is written; msccl-lang is
    a program in the language of msccl-tools. nccl is a folder with a CUDA C++ project, nccl4py a Python
    program; the options from --runtime on are for MSCCL only.

    \b
    Example:
      stragglar lower s.json --to msccl-xml -o s.xml
      stragglar lower s.json --to nccl -o folder/
    """
    schedule = load_schedule(file)
    options = LowerOptions(
        runtime=runtime,
        in_place=in_place,
        fused=fused,
        protocol=protocol,
        instances=instances,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        name=name,
    )
    if target in ("nccl", "nccl4py"):
        _lower_to_nccl(schedule, target, output)
        return
    if target == "msccl-lang":
        _lower_to_language(schedule, options, output)
        return
    lowered = lower(schedule, options)
    write_atomic(output, lowered.text)
    for line in _summary(lowered, runtime):
        click.echo(line, err=True)


def _lower_to_nccl(schedule: Schedule, target: str, output: str) -> None:
    if target == "nccl":
        from ..backends.nccl.project import write_project

        written = write_project(output, schedule)
        click.echo(f"{output}: {len(written)} files; start with README.md", err=True)
        return
    from ..backends.nccl.nccl4py import write_nccl4py

    write_atomic(output, write_nccl4py(schedule))


def _lower_to_language(schedule: Schedule, options: LowerOptions, output: str) -> None:
    from ..backends.msccl.lang import write_language

    write_atomic(output, write_language(schedule, options))


def _summary(lowered: Lowered, runtime: str) -> list[str]:
    program = lowered.program
    blocks = max(len(gpu.blocks) for gpu in program.gpus)
    steps = max(len(block.steps) for gpu in program.gpus for block in gpu.blocks)
    lines = [
        f"{program.name}: {blocks} thread blocks a rank, up to {steps} steps each,"
        f" {program.channels} channels",
        f"read back and executed in the runtime model: {lowered.report.summary()}",
        f"a runtime uses it for: {selection_of(program, profile_named(runtime)).describe()}",
    ]
    if program.chunks & (program.chunks - 1):
        lines.append(
            f"no power-of-two size is a multiple of {program.chunks}: the runtime silently takes its own"
            " AllReduce for those; synth --chunks 128 makes a schedule that fits them"
        )
    return lines
