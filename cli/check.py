"""`stragglar check`: is a schedule, or an MSCCL XML file, an AllReduce, and how far from the bound."""

from __future__ import annotations

import json
from typing import Any

import click

from ..schedules import InvalidScheduleError, Schedule, bounds, certify, parse_schedule, validate
from ..schedules.files import read_bounded
from .options import input_argument, json_option, late_option


@click.command("check")
@input_argument
@json_option
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Errors to describe.")
@click.option(
    "--runtime", default="portable", show_default=True, help="Whose rules an XML file is checked against."
)
@late_option(help="Late ranks of an XML file that does not name them.")
def command(file: str, as_json: bool, limit: int, runtime: str, late: tuple[int, ...]) -> int:
    """Validate a schedule or an MSCCL XML file, and compare its rounds with the lower bound.

    A schedule is followed symbolically: every rank's part of every chunk. An XML file is checked against
    the runtime's rules and executed in the runtime model: deadlocks, races, wrong results. Nothing that
    the file claims about itself is believed.

    \b
    Example:
      stragglar check s.json --json
      stragglar check s.xml --runtime rccl
    """
    data = read_bounded(file)
    is_xml = data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<")
    try:
        if is_xml:
            report = check_xml(data, file, runtime, late, limit)
        else:
            report = check_schedule(parse_schedule(data, file), limit)
    except InvalidScheduleError as error:
        if not as_json:
            raise
        report = {"valid": False, "errors": [str(error)], "error_count": 1}
    click.echo(json.dumps(report) if as_json else check_text(report))
    return 0 if report["valid"] else 1


def check_schedule(schedule: Schedule, limit: int = 20) -> dict[str, Any]:
    """Validates a schedule and recomputes its certificate."""
    found, made = validate(schedule, limit), certify(schedule)
    claimed = schedule.origin.bound
    notes = []
    if claimed is not None and claimed != made.post_bound:
        notes.append(f"the file claims a bound of {claimed} post rounds; it is {made.post_bound}")
    return {
        "kind": "schedule",
        "valid": found.valid,
        "ranks": schedule.ranks,
        "late": list(schedule.late),
        "chunks": schedule.chunks,
        "rounds": made.rounds,
        "chunk_rounds": made.chunk_rounds,
        "bound": {
            "post_rounds": made.post_bound,
            "buffers": made.buffers_bound,
            "buffers_no_delay": made.buffers_bound_no_delay,
        },
        "gap": made.gap,
        "buffers": made.buffers,
        "errors": [str(v) for v in found.violations],
        "error_count": found.total,
        "violations": [
            {"rule": v.rule, "phase": v.phase, "round": v.round, "rank": v.rank, "chunk": v.chunk}
            for v in found.violations
        ],
        "family": schedule.origin.family,
        "notes": notes,
    }


def check_xml(data: bytes, name: str, runtime: str, late: tuple[int, ...], limit: int) -> dict[str, Any]:
    """Checks an MSCCL XML file against a runtime's rules and executes it in the model."""
    from ..backends.msccl.model import verify
    from ..backends.msccl.rules import check_text as check_rules
    from ..backends.msccl.xml_read import read_program

    program = read_program(data, name)
    late = tuple(sorted(late or program.late))
    violations = check_rules(data, runtime, name)
    errors = [str(v) for v in violations]
    report: dict[str, Any] = {
        "kind": "msccl-xml",
        "valid": False,
        "ranks": program.ranks,
        "late": list(late),
        "chunks": program.chunks,
        "runtime": runtime,
        "family": program.name,
        "notes": [],
    }
    if not violations:
        outcome = verify(program, late=late)
        errors += outcome.findings()
        report["valid"] = outcome.ok
        bound = bounds.post_rounds(program.ranks, program.chunks, len(late))
        made = outcome.rounds
        report["rounds"] = {"pre": made.pre, "post": made.post}
        report["chunk_rounds"] = {"pre": made.pre_chunks, "post": made.post_chunks}
        report["bound"] = {"post_rounds": bound}
        report["gap"] = made.post_chunks - bound
    return report | {"errors": errors[:limit], "error_count": len(errors)}


def check_text(report: dict[str, Any]) -> str:
    """A check's result for people."""
    lines = []
    if "ranks" in report:
        late = ", ".join(map(str, report["late"])) or "none"
        lines.append(f"{report['family']}: {report['ranks']} ranks, late: {late}, {report['chunks']} chunks")
    if "rounds" in report:
        rounds = ", ".join(f"{name} {count}" for name, count in report["rounds"].items())
        lines.append(f"rounds: {rounds}; post bound {report['bound']['post_rounds']}, gap {report['gap']}")
    if "buffers" in report:
        least, together = report["bound"]["buffers"], report["bound"]["buffers_no_delay"]
        moved = f"bandwidth: post moves {report['buffers']:.3f} buffers through a port"
        lines.append(f"{moved}; bound {least:.3f} after a long delay, {together:.3f} with none")
    shown, total = report["errors"], report["error_count"]
    lines += [f"error: {error}" for error in shown]
    if total > len(shown):
        lines.append(f"... and {total - len(shown)} more")
    lines += [f"note: {note}" for note in report.get("notes", ())]
    lines.append("valid" if report["valid"] else "NOT VALID")
    return "\n".join(lines)
