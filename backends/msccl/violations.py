"""What a rule of the MSCCL legality tables looks like, and what it yields.

`Where` is a place in a program; a rule's check yields places with messages, and `rules.py` runs
the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from .profiles import Profile
from .program import Program, RankProgram, Step, ThreadBlock


class Level(StrEnum):
    """How much of a file a rule looks at: its characters, its attributes, or what it says."""

    LEXICAL = "lexical"
    SCHEMA = "schema"
    STRUCTURE = "structure"


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: which, where and what to do. `line` is known for files, the rest for programs."""

    rule: str
    level: Level
    message: str
    rank: int | None = None
    block: int | None = None
    step: int | None = None
    line: int | None = None

    def __str__(self) -> str:
        parts = [("line", self.line), ("gpu", self.rank), ("tb", self.block), ("step", self.step)]
        place = " ".join(f"{name} {number}" for name, number in parts if number is not None)
        return f"{self.rule}: {place + ': ' if place else ''}{self.message}"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a structure rule yields: a message and where in the program it applies."""

    message: str
    gpu: RankProgram | None = None
    block: ThreadBlock | None = None
    step: Step | None = None


StructureCheck = Callable[[Program, Profile], Iterator[Finding]]


@dataclass(frozen=True, slots=True)
class Rule:
    """One named structure rule: its one-line meaning and the function that finds what breaks it."""

    name: str
    meaning: str
    check: StructureCheck

    def violations(self, program: Program, profile: Profile) -> Iterator[Violation]:
        """Every place where the program breaks this rule, in file order."""
        for found in self.check(program, profile):
            yield Violation(
                rule=self.name,
                level=Level.STRUCTURE,
                message=found.message,
                rank=None if found.gpu is None else found.gpu.rank,
                block=None if found.block is None else found.block.id,
                step=None if found.step is None else found.step.index,
            )
