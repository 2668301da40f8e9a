"""Whether a runtime will load an MSCCL file and then do what it says: legality as named rules.

Three tables, one a level: `LEXICAL_RULES` (characters), `SCHEMA_RULES` (attributes) and
`STRUCTURE_RULES` (what the program says). The parsers of the runtimes accept much that then
deadlocks, overruns memory or is silently never used; these rules refuse it, and are never laxer
than the parsers. `check_text` is for files, `check_program` for programs not yet printed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from ...schedules.errors import FormatError, InvalidScheduleError
from .connection_rules import CONNECTION_RULES
from .header_rules import HEADER_RULES
from .lexical import LEXICAL_RULES, pieces
from .profiles import Profile, profile_named
from .program import Program
from .schema import all_faults, to_int
from .step_rules import STEP_RULES
from .violations import Level, Rule, Violation
from .xml_read import Document, parse_document, program_of

MOST_PER_RULE = 10  # reports of one rule; the eleventh says nothing new
# Text that is no XML is cut into pieces in quadratic time, so only a short one is looked at closer.
LONGEST_BROKEN = 16_384

STRUCTURE_RULES: tuple[Rule, ...] = (*HEADER_RULES, *STEP_RULES, *CONNECTION_RULES)

# name -> meaning; `schema.all_faults` and `_thread_count` find them.
SCHEMA_RULES = {
    "well-formed": "the file is XML with one <algo> at the top",
    "attribute-missing": "every attribute that the runtime reads is there",
    "attribute-value": "every attribute has a value of its kind",
    "gpu-duplicate": "a gpu is given once",
    "step-child": "a step has no children",
    "thread-count": "nthreads, where given, is a number of whole warps",
}


def check_text(text: str | bytes, runtime: str = "portable", name: str = "<text>") -> list[Violation]:
    """Every rule that a file breaks for a runtime, by level; empty means it loads and works.

    Args:
        text: the content of the file.
        runtime: a name in `profiles.PROFILES`; "portable" is all of them at once.
        name: what messages call the file.

    Raises:
        UsageError: no such runtime.
    """
    profile = profile_named(runtime)
    try:
        document = parse_document(text, name)
    except FormatError as error:
        return [*_broken_text(text), Violation("well-formed", Level.SCHEMA, str(error))]
    found = [*_lexical(document.text), *_schema(document, profile)]
    if any(violation.level is Level.SCHEMA for violation in found):
        return found
    return found + check_program(program_of(document), runtime)


def check_program(program: Program, runtime: str = "portable") -> list[Violation]:
    """Every structure rule that a program breaks for a runtime, in the order of the table.

    Raises:
        UsageError: no such runtime.
    """
    profile = profile_named(runtime)
    found: list[Violation] = []
    for rule in STRUCTURE_RULES:
        found.extend(islice(rule.violations(program, profile), MOST_PER_RULE))
    return found


def require_legal(program: Program, runtime: str = "portable") -> None:
    """Checks a program and raises with what is wrong.

    Raises:
        InvalidScheduleError: the program breaks a rule; names up to three places.
        UsageError: no such runtime.
    """
    if found := check_program(program, runtime):
        raise InvalidScheduleError(f"not a program for {runtime}: {summary(found)}")


def summary(violations: list[Violation]) -> str:
    """The first three violations in one line, and how many more there are."""
    more = f"; and {len(violations) - 3} more" if len(violations) > 3 else ""
    return "; ".join(str(violation) for violation in violations[:3]) + more


def _broken_text(text: str | bytes) -> list[Violation]:
    if len(text) > LONGEST_BROKEN:
        return []
    return _lexical(text if isinstance(text, str) else text.decode("utf-8", "replace"))


def _lexical(text: str) -> list[Violation]:
    found = pieces(text)
    return [
        Violation(name, Level.LEXICAL, message, line=line)
        for name, (_, check) in LEXICAL_RULES.items()
        for line, message in islice(check(found), MOST_PER_RULE)
    ]


def _schema(document: Document, profile: Profile) -> Iterator[Violation]:
    for fault in islice(all_faults(document.algo, profile.required), MOST_PER_RULE):
        message = f"<{fault.element}> {fault.attribute}: {fault.message}"
        yield Violation(fault.rule, Level.SCHEMA, message, line=fault.line)
    yield from _thread_count(document, profile)


def _thread_count(document: Document, profile: Profile) -> Iterator[Violation]:
    value = document.algo.attributes.get("nthreads")
    if value is None or not profile.threads_multiple:
        return
    try:
        legal = to_int(value) >= 0 and to_int(value) % profile.threads_multiple == 0
    except ValueError:
        legal = False
    if not legal:
        message = f"nthreads {value[:40]!r} must be a multiple of {profile.threads_multiple}"
        yield Violation("thread-count", Level.SCHEMA, message, line=document.algo.line)
