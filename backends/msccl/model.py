"""The runtime model: executes an MSCCL program as the real interpreters do and says whether it is right.

`verify` is the whole check: it looks for races, runs the program symbolically under several slices,
calls and interleavings, and with the late ranks absent at first. `run` executes it on given data.

    report = verify(read_program(text))
    report.require()

What is modelled, and from where in the interpreters, is told in `layout.py` (sizes), `model_code.py`
(steps), `model_machine.py` (execution) and `happens.py` (order). Not modelled: chains of `re` that a
parser merges (`rules.py` refuses the ones that go wrong), memory fences, time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...schedules.errors import InvalidScheduleError, UsageError
from .happens import Race, order_of, races
from .happens_paths import Rounds, early_events, longest_chain, rounds_of
from .layout import MAX_COUNT
from .model_code import BlockCode, Code, StepRef, describe, load
from .model_machine import REDUCTIONS, Array, Machine
from .model_symbolic import symbolic_inputs, wrong_results
from .model_waits import Deadlock, Waiting, deadlock, waiting
from .program import Program

__all__ = [
    "REDUCTIONS",
    "Deadlock",
    "Machine",
    "ModelReport",
    "PrePhase",
    "Race",
    "Rounds",
    "Waiting",
    "deadlock",
    "pre_phase",
    "run",
    "verify",
    "waiting",
]


@dataclass(frozen=True, slots=True)
class PrePhase:
    """What happened before the late ranks came.

    `steps` need no late rank. `missing` says which of them had not run for every slice, and why: a
    block that also has steps for the late ranks stops there in the first slice.
    """

    steps: frozenset[StepRef]
    missing: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether all that can happen early did."""
        return not self.missing


@dataclass(frozen=True, slots=True)
class ModelReport:
    """What the model found.

    `invalid` is set where the program cannot be executed at all, and then nothing else is. `wrong`
    names results that are not the sum, uses of uninitialised chunks, a changed input, messages left
    over. `pre_phase` is None without late ranks. `messages` and `steps` count one slice of one call.
    """

    invalid: str = ""
    wrong: tuple[str, ...] = ()
    deadlock: Deadlock | None = None
    races: tuple[Race, ...] = ()
    pre_phase: PrePhase | None = None
    rounds: Rounds = field(default_factory=lambda: Rounds(0, 0))
    critical_path: int = 0
    steps: int = 0
    messages: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings()

    def findings(self) -> list[str]:
        """Everything that is wrong, a line each."""
        lines = [self.invalid] if self.invalid else []
        if self.deadlock is not None:
            lines += [f"deadlock: {line}" for line in str(self.deadlock).splitlines()]
        lines += [f"race: {race}" for race in self.races]
        lines += self.wrong
        if self.pre_phase is not None:
            lines += self.pre_phase.missing
        return lines

    def summary(self, most: int = 3) -> str:
        """The first findings in one line, or that there are none."""
        lines = self.findings()
        rest = [f"and {len(lines) - most} more"] if len(lines) > most else []
        return "; ".join(lines[:most] + rest) or "correct"

    def require(self) -> None:
        """Does nothing for a correct program.

        Raises:
            InvalidScheduleError: it is not; says what is wrong.
        """
        if not self.ok:
            raise InvalidScheduleError(f"the program fails in the runtime model: {self.summary()}")


def run(
    program: Program,
    inputs: Sequence[Array],
    *,
    reduction: str = "sum",
    in_place: bool | None = None,
    slot_elements: int | None = None,
    iterations: int = 1,
    seed: int | None = None,
    absent: Collection[int] = (),
) -> Machine:
    """Executes a program on `inputs[rank]`, with the kernels of `absent` ranks not launched.

    Returns the machine where nothing moves any more: `outputs`, `buffer`, `problems` say what came of
    it, `waiting(machine)` who has stopped. `launch(absent)` and `run()` on it let the absent come.
    `slot_elements` defaults to what the protocol's buffers hold of the inputs' type.

    Raises:
        InvalidScheduleError: the program cannot be loaded.
        UsageError: inputs that do not fit the program, or an unknown reduction.
    """
    if reduction not in REDUCTIONS:
        raise UsageError(f"reduction {reduction!r} is not one of {', '.join(REDUCTIONS)}")
    code = load(program, program.in_place if in_place is None else in_place)
    machine = Machine(
        code, inputs, reduction=reduction, slot_elements=slot_elements, iterations=iterations, seed=seed
    )
    machine.launch(set(range(program.ranks)) - set(absent))
    machine.run()
    return machine


def pre_phase(machine: Machine, late: Collection[int]) -> PrePhase:
    """What a machine that ran without the late ranks has done of what needs none of them."""
    order = order_of(machine.code)
    early = early_events(order, late)
    return _pre_phase(machine, frozenset(order.events[index].ref for index in early))


def verify(
    program: Program,
    *,
    late: Collection[int] | None = None,
    slices: Sequence[int] = (1, 3),
    iterations: int = 2,
    seeds: Sequence[int] = (1,),
    later: Collection[int] = (),
) -> ModelReport:
    """Checks a program in every way its file allows it to be called, in place or not.

    The late ranks (default: those the file names) are launched when nothing else can move; with each
    seed all ranks run at once in a random interleaving. `slices` are how many slices a chunk has.
    What needs no late rank has to have run then, but for steps on the channels `later`: of phases that
    are meant for later, although some of what they do could be done before.

    Raises:
        UsageError: a late rank that the program does not have, or nobody but late ranks.
    """
    late = frozenset(program.late if late is None else late)
    if not late < set(range(program.ranks)):
        raise UsageError(f"late ranks {sorted(late)} are not some of the {program.ranks} ranks")
    modes = [mode for mode, allowed in ((True, program.in_place), (False, program.out_of_place)) if allowed]
    if not modes:
        return ModelReport(invalid="the file is for calls neither in place nor out of place: never used")
    report = ModelReport()
    for mode in modes:
        try:
            code = load(program, mode)
        except InvalidScheduleError as error:
            return ModelReport(invalid=str(error))
        report = _verify_code(
            report, code, (late, frozenset(later)), _geometries(code, slices), iterations, (None, *seeds)
        )
    return report


def _verify_code(
    report: ModelReport,
    code: Code,
    absent: tuple[frozenset[int], frozenset[int]],
    geometries: Sequence[tuple[int, int]],
    iterations: int,
    seeds: Sequence[int | None],
) -> ModelReport:
    order = order_of(code)
    late, later = absent
    gpus = code.program.gpus
    refs = (order.events[index].ref for index in early_events(order, late))
    early = frozenset(ref for ref in refs if gpus[ref.rank].blocks[ref.block].channel not in later)
    report = replace(
        report,
        races=tuple(dict.fromkeys((*report.races, *races(order)))),
        critical_path=len(longest_chain(order)),
        rounds=rounds_of(order, late),
        steps=sum(len(block.transfers) for block in code.blocks),
        messages=sum(transfer.sends for block in code.blocks for transfer in block.transfers),
    )
    for chunk, slot in geometries:
        inputs = symbolic_inputs(code.program.ranks, code.program.chunks * chunk)
        for seed in seeds:
            machine = Machine(code, inputs, slot_elements=slot, iterations=iterations, seed=seed)
            report = _execute(report, machine, late if seed is None else frozenset(), early)
    return report


def _geometries(code: Code, slices: Sequence[int]) -> list[tuple[int, int]]:
    """(elements a chunk, elements a slot) to try; small chunks also as many at a time as steps say."""
    several = any(transfer.count > 1 for block in code.blocks for transfer in block.transfers)
    together = [(1, MAX_COUNT)] if several else []
    return together + [(count, 1) for count in slices]


def _execute(
    report: ModelReport, machine: Machine, late: frozenset[int], early: frozenset[StepRef]
) -> ModelReport:
    machine.launch(set(machine.ranks) - late)
    machine.run()
    before = report.pre_phase
    if late:
        now = _pre_phase(machine, early)
        missing = dict.fromkeys((*(before.missing if before else ()), *now.missing))
        before = replace(now, missing=tuple(missing))
        machine.launch(late)
        machine.run()
    wrong = dict.fromkeys((*report.wrong, *_wrong(machine)))
    stopped = report.deadlock or deadlock(machine)
    return replace(report, wrong=tuple(wrong), deadlock=stopped, pre_phase=before)


def _wrong(machine: Machine) -> list[str]:
    texts = list(machine.problems)
    for outputs in machine.outputs:
        for rank, output in sorted(outputs.items()):
            texts += wrong_results(rank, output, machine.geometry.chunk)
    for link, connection in sorted(machine.connections.items()):
        if connection.items and machine.finished:
            texts.append(
                f"rank {link.source} sends more to rank {link.target} on channel {link.channel} than it "
                "receives: the next call gets the rest"
            )
    return texts


def _pre_phase(machine: Machine, early: frozenset[StepRef]) -> PrePhase:
    missing = []
    for runner in machine.runners:
        done, inside = machine.progress(runner)
        for index, transfer in enumerate(runner.code.transfers):
            times = done + (index < inside)
            if transfer.ref in early and times < machine.geometry.slices:
                missing.append((runner.code, index, times))
                break
    stops = {(one.ref.rank, one.ref.block): one for one in waiting(machine)} if missing else {}
    return PrePhase(early, tuple(_unfinished(machine, *one, stops) for one in missing))


def _unfinished(
    machine: Machine, block: BlockCode, index: int, times: int, stops: Mapping[tuple[int, int], Waiting]
) -> str:
    transfer = block.transfers[index]
    what = describe(transfer, block, machine.code.layouts[block.rank])
    text = (
        f"{transfer.ref} ({what}) needs no late rank but has run for {times} of {machine.geometry.slices} "
        "slices when the late ranks come"
    )
    stop = stops.get((block.rank, block.block.id))
    return f"{text}: {stop}" if stop else text
