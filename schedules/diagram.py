"""The step diagram of `stragglar show`: rounds down, ranks across, and who holds what after every round.

Where the ranks do not fit the width, and none were chosen, a row sums its round up instead. The text is
a function of the arguments alone: neither the terminal nor the environment is asked anything.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.text import Text

from .certificate import certify
from .diagram_table import (
    ASCII,
    LEAST_CELL,
    UNICODE,
    Layout,
    Part,
    Symbols,
    choose_layout,
    make_parts,
    make_table,
    summary_layout,
    table_width,
)
from .errors import UsageError
from .ir import Schedule
from .validate import Validation, validate

MIN_WIDTH = 50
MARKED = 1000
"""Violations that are marked at their transfers, at most."""
LISTED = 10
"""Violations that are listed below the diagram, at most."""


def render(
    schedule: Schedule,
    width: int,
    color: bool,
    rounds: range | None = None,
    ranks: range | None = None,
    ascii_only: bool = False,
) -> str:
    """Draws a schedule, valid or not.

    Args:
        schedule: what to draw.
        width: columns of the terminal; below 50 counts as 50.
        color: whether to use ANSI colours.
        rounds: the rounds of every phase to show, counted from 0; None: all.
        ranks: the ranks to show one by one, in several bands if they need it; None: all of them if
            they fit the width, and a summary of every round if not.
        ascii_only: plain ASCII instead of arrows and lines.

    Returns:
        Lines that end in newlines; wider than `width` only where one cell alone is.

    Raises:
        UsageError: no such rank, or no such round in any phase.
    """
    _check_ranges(schedule, rounds, ranks)
    symbols = ASCII if ascii_only else UNICODE
    width = max(width, MIN_WIDTH)
    found = validate(schedule, limit=MARKED)
    shown = [r for r in range(schedule.ranks) if ranks is None or r in ranks]
    hopeless = ranks is None and table_width(len(shown), LEAST_CELL, 0) > width
    parts = make_parts(schedule, rounds, frozenset(() if hopeless else shown), found.violations, symbols)
    layout = summary_layout() if hopeless else choose_layout(parts, shown, width, ranks is not None)
    pieces: list[RenderableType] = [*_head(schedule, found, layout, symbols)]
    for index, part in enumerate(parts):
        pieces += [Text(), _phase_heading(schedule, index, found.valid, symbols)]
        pieces += _phase_tables(part, layout, symbols)
    pieces += _foot(schedule, found, layout, width, symbols)
    return _print(pieces, width, color)


def _check_ranges(schedule: Schedule, rounds: range | None, ranks: range | None) -> None:
    if ranks is not None and not any(r in ranks for r in range(schedule.ranks)):
        raise UsageError(f"no such rank to show: the ranks are 0..{schedule.ranks - 1}")
    longest = max(len(p) for p in schedule.phases)
    if rounds is not None and longest and not any(r in rounds for r in range(longest)):
        raise UsageError(f"no such round to show: the longest phase has rounds 0..{longest - 1}")


def _print(pieces: Sequence[RenderableType], width: int, color: bool) -> str:
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        _environ={},
    )
    for piece in pieces:
        console.print(piece, crop=False)
    return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())


# ---- what is said around the tables


def _head(schedule: Schedule, found: Validation, layout: Layout, symbols: Symbols) -> Iterator[Text]:
    late = f"{_names(schedule.late)} late" if schedule.late else "nobody late"
    facts = (f"{schedule.ranks} ranks", _many(schedule.chunks, "chunk"), late)
    joint = f" {symbols.dot} "
    yield Text(joint.join((*facts, _many(schedule.transfer_count, "message"))), style="bold")
    origin = schedule.origin
    text = ", ".join((origin.family, *(f"{key} {value}" for key, value in origin.parameters)))
    yield Text(text.encode("ascii", "backslashreplace").decode() if symbols is ASCII else text, style="dim")
    if found.valid:
        yield Text("valid: every rank ends with every part of every chunk, once", style="green")
    else:
        yield Text(f"NOT VALID: {_many(found.total, 'violation')}, marked {symbols.bad}", style="bold red")
    yield from (Text(line, style="dim") for line in _legend(schedule.ranks, layout, symbols))


def _legend(ranks: int, layout: Layout, symbols: Symbols) -> Iterator[str]:
    if layout.kind != "summary":
        signs = (
            f"{symbols.send}5:2 sends chunk 2 to rank 5",
            f"{symbols.reduce}5:2 adds chunk 2 from rank 5",
            f"{symbols.copy}5:2 copies it",
        )
        yield "   ".join(signs)
    if layout.explicit:
        yield "complete: 0-2:all 3:4 = chunks 0 to 2 on all ranks, chunk 3 on 4 of them"
    else:
        many = f"all{symbols.times}3"
        yield f"complete: {many} 4 = 3 chunks on all ranks, one on 4 of them"


def _phase_tables(part: Part, layout: Layout, symbols: Symbols) -> Iterator[RenderableType]:
    for number, band in enumerate(layout.bands if part.rounds else ()):
        if number:
            yield Text()
        yield make_table(part, band, layout, symbols)
    if len(part.rounds) < len(part.phase):
        yield Text(f"{_many(len(part.phase) - len(part.rounds), 'round')} not shown", style="dim")


def _phase_heading(schedule: Schedule, index: int, valid: bool, symbols: Symbols) -> Text:
    phase, absent = schedule.phases[index], schedule.absent(index)
    arrived = f"after {_names(schedule.arrivals[index - 1])} arrived" if index else ""
    waiting = f"while {_names(absent)} {'is' if len(absent) == 1 else 'are'} late" if absent else ""
    when = ", ".join(filter(None, (arrived, waiting))) or "nobody is late"
    length = _many(len(phase), "round")
    if phase.chunk_rounds != len(phase):
        length += f" = {_many(phase.chunk_rounds, 'chunk-round')}"
    if phase is schedule.post:
        certificate = certify(schedule)
        length += f", bound {certificate.post_bound}"
        length += f", gap {certificate.gap}" if valid else ""  # a bound is one for AllReduces alone
    return Text.assemble((phase.name, "bold"), f": {when} {symbols.dot} {length}")


def _foot(
    schedule: Schedule, found: Validation, layout: Layout, width: int, symbols: Symbols
) -> Iterator[Text]:
    if not found.valid:
        yield Text()
    listed = found.violations[:LISTED]
    yield from (Text(f"{symbols.bad} {violation}", style="red") for violation in listed)
    if found.total > len(listed):
        yield Text(f"{symbols.bad} and {found.total - len(listed)} more", style="red")
    if layout.kind == "summary":
        some = f"0-{min(7, schedule.ranks - 1)}"
        problem = f"The {schedule.ranks} ranks do not fit {width} columns"
        yield Text()
        yield Text(f"{problem}: choose some, such as {some}, to see their messages", style="dim")


def _names(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:8]))}{', ...' if len(ranks) > 8 else ''}"


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
