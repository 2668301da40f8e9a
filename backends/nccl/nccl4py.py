"""Lowering to a Python program over `nccl.core` (the package nccl4py), for users who have no compiler."""

from __future__ import annotations

from collections.abc import Iterator
from string import Template

from ...schedules import Schedule, require_valid
from ...schedules.ir import Op
from .project import template, title


def write_nccl4py(schedule: Schedule) -> str:
    """The text of a Python program for a schedule.

    Raises:
        InvalidScheduleError: the schedule is not an AllReduce.
    """
    require_valid(schedule)
    text = Template(template("nccl4py.py.txt")).substitute(
        title=title(schedule),
        ranks=schedule.ranks,
        chunks=schedule.chunks,
        phases="".join(_phases(schedule)),
    )
    compile(text, "nccl4py program", "exec")
    return text


def _phases(schedule: Schedule) -> Iterator[str]:
    for phase in schedule.phases:
        yield f"{phase.name.upper()} = [\n"
        for index in range(len(phase)):
            yield f"    [  # round {index}\n"
            for t in phase.transfers(index):
                name = "reduce" if t.op is Op.REDUCE else "copy"
                yield f'        ("{name}", {t.src}, {t.dst}, {t.first}, {t.count}),\n'
            yield "    ],\n"
        yield "]\n"
    yield f"PHASES = [{', '.join(phase.name.upper() for phase in schedule.phases)}]\n"
