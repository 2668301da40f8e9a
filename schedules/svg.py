"""The step diagram as SVG: ranks down, rounds across, for pages, papers and notebooks.

Few ranks: one arrow a transfer (`svg_arrows.py`). Many ranks or rounds: one cell a rank and round, or, where
that is still too much, a cell for several (`svg_cells.py`). Both mark phases, late ranks and the bound.
"""

from __future__ import annotations

from .certificate import certify
from .errors import UsageError
from .ir import Schedule
from .svg_arrows import arrow_columns, draw_arrows
from .svg_cells import draw_cells
from .svg_columns import Frame, frame_of
from .svg_paper import Paper, plain

ARROW_RANKS = 16
ARROW_LINES = 6
PAGE = 1120.0
"""Width of a page of arrows in pixels; the rest continues on the next line, at most `ARROW_LINES`."""

WAYS = ("chunk", "age")


def draw_svg(
    schedule: Schedule, by: str = "chunk", rounds: range | None = None, ranks: range | None = None
) -> str:
    """Draws a schedule as a self-contained SVG document: the same text for equal schedules.

    Args:
        schedule: any schedule; a broken one has its bad rounds marked.
        by: what colour stands for: `chunk`, or `age`, the rounds since a chunk first moved in its phase.
        rounds: the rounds of each phase to draw; None: all.
        ranks: the ranks to draw, with every message that touches one; None: all.

    Raises:
        UsageError: an unknown `by`, no such rank, no such round.

    >>> from stragglar.schedules import Phase, Schedule
    >>> swap = [(0, 1, 0, 1, 0), (1, 0, 0, 1, 0)]
    >>> draw_svg(Schedule(2, (), 1, (Phase.build("post", [swap]),))).startswith("<svg")
    True
    """
    if by not in WAYS:
        raise UsageError(f"colours by {by!r} are not known: use {' or '.join(WAYS)}")
    frame = frame_of(schedule, by, rounds, ranks)
    title = plain(f"{schedule.origin.family}: {_facts(schedule)}", 160)
    paper = Paper(title, "Step diagram: one row a rank, one column a round, from left to right.")
    paper.text(16, 26, "title", title)
    paper.text(16, 44, "bad" if not frame.found.valid else "soft", _verdict(frame))
    if len(frame.ranks) <= ARROW_RANKS:
        lines = arrow_columns(frame, PAGE)
        if len(lines) <= ARROW_LINES:
            return paper.finish(*draw_arrows(paper, frame, lines, PAGE))
    return paper.finish(*draw_cells(paper, frame))


def _facts(schedule: Schedule) -> str:
    late = ", ".join(map(str, schedule.late))
    who = f"rank{'s' if len(schedule.late) > 1 else ''} {late} late" if late else "nobody late"
    chunks = f"{schedule.chunks} chunk{'s' if schedule.chunks > 1 else ''}"
    return f"{schedule.ranks} ranks, {chunks}, {plain(who, 60)}"


def _verdict(frame: Frame) -> str:
    if not frame.found.valid:
        more = f" (and {frame.found.total - 1} more)" if frame.found.total > 1 else ""
        return f"NOT VALID, bad rounds are marked !: {frame.found.violations[0]}{more}"
    made = certify(frame.schedule)
    rounds = ", ".join(f"{name} {count}" for name, count in made.rounds.items() if count)
    least = "which no schedule beats" if made.gap <= 0 else f"{made.gap} above the bound"
    return f"valid · rounds: {rounds} · post: {made.chunk_rounds['post']} chunk-rounds, {least}"
