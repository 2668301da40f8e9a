"""Lowering to a CUDA C++ project: the executor's sources as they are, and the schedule as constant tables.

The sources are package data in `templates/`: readable and compilable where they lie. Only `schedule.cc`
(tables) and `README.md` (a few numbers) depend on the schedule.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from string import Template

from ...schedules import InfeasibleError, Schedule, UsageError, require_valid
from ...schedules.files import write_atomic
from ...schedules.ir import Op, Phase
from .scatter import scatter_owners

MAX_TRANSFERS = 1 << 20
"""A table of more rows than this takes a compiler minutes and gigabytes."""

SOURCES = (
    "schedule.h",
    "failure.h",
    "plan.h",
    "executor.h",
    "kernels.h",
    "kernels.cu",
    "ring.h",
    "bootstrap.h",
    "options.h",
    "data.h",
    "benchmark.cc",
    "kernel_check.cc",
    "CMakeLists.txt",
)
"""The files of a project that are the same for every schedule, in the order to read them."""

_TABLES = """\
// {title}.
// Made by stragglar: what each rank sends in each round. See schedule.h.
#include "schedule.h"

namespace stragglar {{
namespace {{

constexpr Apply R = Apply::reduce;
constexpr Apply C = Apply::copy;

// src, dst, first chunk, number of chunks, reduce or copy
constexpr Transfer kTransfers[] = {{
{transfers}}};

// phase, number of the round in it, end of its transfers
constexpr RoundEnd kRounds[] = {{
{rounds}}};

constexpr const char* kPhases[] = {{{phases}}};
constexpr int32_t kLate[] = {{{late}}};{none}
{scatter}
}}  // namespace

const Schedule kSchedule = {{
    "{title}", {ranks}, {chunks}, kPhases, kLate, {late_count}, kTransfers, kRounds, {round_count},
    {scatter_fields},
}};

}}  // namespace stragglar
"""


def title(schedule: Schedule) -> str:
    """One line that says what the schedule is, safe inside a string of any language."""
    family = "".join(c for c in schedule.origin.family if c.isascii() and (c.isalnum() or c in "-_ "))
    late = f"late: {', '.join(map(str, schedule.late))}" if schedule.late else "no rank late"
    return f"{family or 'unknown'}, {schedule.ranks} ranks, {late}, {schedule.chunks} chunks"


def template(name: str) -> str:
    """The text of one file of `templates/`."""
    return (files(__package__) / "templates" / name).read_text(encoding="utf-8")


def project(schedule: Schedule) -> dict[str, str]:
    """The files of a CUDA C++ project for a schedule: name -> text.

    Raises:
        InvalidScheduleError: the schedule is not an AllReduce.
        InfeasibleError: it is too large for constant tables.
    """
    require_valid(schedule)
    if schedule.transfer_count > MAX_TRANSFERS:
        raise InfeasibleError(
            f"{schedule.transfer_count} transfers are too many for constant tables: at most {MAX_TRANSFERS}"
        )
    texts = {name: template(name) for name in SOURCES}
    texts["schedule.cc"] = schedule_tables(schedule)
    texts["README.md"] = Template(template("README.md")).substitute(
        title=title(schedule), ranks=schedule.ranks, last=schedule.ranks - 1
    )
    return texts


def write_project(folder: str, schedule: Schedule) -> tuple[Path, ...]:
    """Writes a project into a folder, which is made if it is missing.

    Raises:
        UsageError: no folder can be there, or a file cannot be written.
    """
    texts = project(schedule)
    if folder == "-":
        raise UsageError("a project is a folder: name it with -o")
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: cannot make this folder: {error.strerror or error}") from error
    written = []
    for name, text in sorted(texts.items()):
        written.append(Path(folder) / name)
        write_atomic(str(written[-1]), text)
    return tuple(written)


def schedule_tables(schedule: Schedule) -> str:
    """The text of `schedule.cc`."""
    rounds = "".join(_round_ends(schedule))
    scatter, fields = _scatter(schedule)
    return _TABLES.format(
        title=title(schedule),
        transfers="".join(line for phase in schedule.phases for line in _transfers(phase)),
        rounds=rounds,
        phases=", ".join(f'"{phase.name}"' for phase in schedule.phases),
        late=", ".join(map(str, schedule.late)) or "-1",
        none="" if schedule.late else "  // nobody",
        ranks=schedule.ranks,
        chunks=schedule.chunks,
        late_count=len(schedule.late),
        round_count=sum(len(phase) for phase in schedule.phases),
        scatter=scatter,
        scatter_fields=fields,
    )


def _scatter(schedule: Schedule) -> tuple[str, str]:
    """The tables of the ReduceScatter that a schedule begins with, and their places in it."""
    found = scatter_owners(schedule)
    if found is None:
        return "// It does not begin with a ReduceScatter of some ranks, or that is more than one.\n", (
            "nullptr, nullptr, 0"
        )
    early, owners = found
    flags = ", ".join("true" if rank in early else "false" for rank in range(schedule.ranks))
    lines = "\n".join(
        f"    {', '.join(map(str, owners[low : low + 24]))}," for low in range(0, len(owners), 24)
    )
    text = "// Its first phase is a ReduceScatter: who takes part, and who gets each chunk.\n"
    text += f"constexpr bool kEarly[] = {{{flags}}};\nconstexpr int32_t kOwners[] = {{\n{lines}\n}};\n"
    return text, f"kOwners, kEarly, {len(schedule.phases[0])}"


def _transfers(phase: Phase) -> Iterator[str]:
    for index, table in enumerate(phase.rounds()):
        yield f"    // {phase.name} round {index}\n"
        for src, dst, first, count, op in table.tolist():
            yield f"    {{{src}, {dst}, {first}, {count}, {'R' if op == Op.REDUCE else 'C'}}},\n"


def _round_ends(schedule: Schedule) -> Iterator[str]:
    before = 0
    for number, phase in enumerate(schedule.phases):
        for index, end in enumerate(phase.offsets[1:].tolist()):
            yield f"    {{{number}, {index}, {before + end}}},\n"
        before += len(phase.table)
