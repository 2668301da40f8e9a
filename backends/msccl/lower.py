"""Lowering a schedule to an MSCCL program: the passes in order, and what is checked between them.

schedule -> messages (`messages.py`) -> thread blocks with dependencies (`emit.py`, `blocks.py`) ->
numbers, channels, instances (`assemble.py`) -> `Program` -> rules of the runtime (`rules.py`) -> text ->
read back -> executed in the runtime model -> the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from ...schedules.errors import InfeasibleError, InvalidScheduleError
from ...schedules.ir import Schedule
from ...schedules.validate import require_valid
from .assemble import assemble
from .emit import EmitOptions, emit
from .model import ModelReport, verify
from .options import LowerOptions, algorithm_name
from .profiles import Profile, profile_named
from .program import Program
from .rules import check_program, summary
from .violations import Violation
from .xml_read import read_program
from .xml_write import write_program

LIMIT_RULES = {
    "channel-count": "fewer instances or chunks",
    "channel-in-range": "fewer instances or chunks",
    "block-ids": "fewer ranks or instances",
    "blocks-per-channel": "fewer ranks",
    "step-count": "fewer chunks",
    "node-count": "fewer chunks or instances",
    "in-buffer": "fewer chunks or instances",
    "dependency": "fewer instances",
}
"""Rules that a correct lowering breaks only by being too large -> what to ask for instead."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """A lowered schedule: the program, its text, and what the runtime model said about the text."""

    program: Program
    text: str
    report: ModelReport


def lower(schedule: Schedule, options: LowerOptions | None = None) -> Lowered:
    """Lowers a schedule and checks the result: rules, read back, executed, compared.

    Raises:
        InvalidScheduleError: the schedule is not an AllReduce.
        InfeasibleError: it does not fit the runtime: names the limit and what would fit.
    """
    options = options or LowerOptions()
    program, phase_of = _fitting(require_valid(schedule), options)
    report = verify(program)
    if report.pre_phase is not None and not report.pre_phase.complete:
        # Some of what a later phase does needs nobody who comes then, and waits in a block beside what does.
        # A file cannot tell that from what is early, so it names no late rank; here the phases are known.
        report = _verify_phases(schedule, program, phase_of)
        program = replace(program, late=())
    text = write_program(program)
    if read_program(text, "the lowered program") != program:
        raise InvalidScheduleError("internal: the printed program reads back differently")
    if not report.ok:
        raise InvalidScheduleError(f"internal: the lowered program fails in the model: {report.summary()}")
    return Lowered(program, text, report)


def _verify_phases(schedule: Schedule, program: Program, phase_of: Sequence[int]) -> ModelReport:
    """The first phase that does not run to its end while those are absent who come after it, or the last."""
    report = ModelReport()
    for number in range(len(schedule.phases) - 1):
        later = [channel for channel, phase in enumerate(phase_of) if phase > number]
        report = verify(program, late=schedule.absent(number), later=later)
        if not report.ok:
            break
    return report


def lower_program(schedule: Schedule, options: LowerOptions) -> Program:
    """The passes without the checks by execution.

    Raises:
        InfeasibleError: the schedule does not fit the runtime's limits.
    """
    return _fitting(schedule, options)[0]


def _fitting(schedule: Schedule, options: LowerOptions) -> tuple[Program, tuple[int, ...]]:
    """The program, and for every channel its phase."""
    profile = profile_named(options.runtime)
    failures: list[list[Violation]] = []
    # One block a peer and direction cannot deadlock whatever the sizes; with many ranks these are
    # too many blocks, and both directions of a peer share one.
    for paired in (False, True):
        program, phase_of = _program(schedule, options, profile, paired)
        violations = check_program(program, options.runtime)
        if not violations:
            return program, phase_of
        failures.append(violations)
    raise _refusal(schedule, failures, profile)


def _program(
    schedule: Schedule, options: LowerOptions, profile: Profile, paired: bool
) -> tuple[Program, tuple[int, ...]]:
    shape = EmitOptions(
        in_place=options.in_place,
        fused=options.fused,
        paired=paired,
        max_steps=profile.steps_per_block,
        max_count=profile.largest_count,
    )
    assembly = assemble(emit(schedule, shape), schedule.chunks, options.instances)
    program = Program(
        name=options.name or algorithm_name(schedule),
        protocol=options.protocol,
        channels=assembly.channels,
        chunks=schedule.chunks * options.instances,
        ranks=schedule.ranks,
        collective="allreduce",
        in_place=options.in_place,
        out_of_place=not options.in_place,
        min_bytes=options.min_bytes,
        max_bytes=options.max_bytes,
        gpus=assembly.gpus,
        # A program that does nothing before the late ranks come is not made for them.
        late=schedule.late if any(len(phase) for phase in schedule.phases[:-1]) else (),
    )
    return program, assembly.phase_of


def _refusal(schedule: Schedule, failures: list[list[Violation]], profile: Profile) -> Exception:
    wrong = [v for found in failures for v in found if v.rule not in LIMIT_RULES]
    if wrong and "op-known" not in {v.rule for v in wrong}:
        return InvalidScheduleError(f"internal: lowering broke a rule: {summary(wrong)}")
    violations = failures[0]
    rule, _ = next(groupby(violations, key=lambda v: v.rule))
    advice = LIMIT_RULES.get(rule, "leave --fused out")
    return InfeasibleError(
        f"{schedule.ranks} ranks and {schedule.chunks} chunks do not fit {profile.title}: {violations[0]};"
        f" try {advice}, or another --runtime"
    )
