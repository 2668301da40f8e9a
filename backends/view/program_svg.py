"""An MSCCL program as SVG: a row a thread block, its steps in modelled time, their waits, what is wrong.

Up to `MOST_ROWS` blocks get rows with names, words in their steps, messages and dependencies as lines. More
are drawn small; still more share the row of their rank, sends above receives, which is what its two ports
do. What never happens stands at the end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from ...schedules import Link, UsageError
from ...schedules.svg_paper import Paper, number, plain
from ...schedules.units import format_seconds
from ..msccl.model_code import StepRef
from ..msccl.program import OpCode, Step, ThreadBlock
from .chrome import arrive_words
from .program_data import Analysis
from .program_time import Timing, program_times

MOST_ROWS = 80
LEFT, TOP, WIDTH, ROW, END = 196.0, 92.0, 900.0, 18.0, 60.0
MOST_HEIGHT = 1400.0
LEAST = 2.5
"""Height of a block that can still be seen; lower ones share a row with all of their rank."""
LISTED = 4
"""Findings that are written under the picture."""

_CSS = """.sg .dep{fill:none;stroke-width:1;stroke-dasharray:2 2}
.sg .msg{fill:none;stroke-width:1;opacity:.55}
.sg .dep,.sg .msg{stroke:#5b6675}.sg .crit{fill:none;stroke:#d98b2b;stroke-width:2.2}
.sg .fault{fill:none;stroke:#b00020;stroke-width:2.4;stroke-dasharray:4 2}
.sg .op{font-size:9px;fill:#fff;pointer-events:none}
@media (prefers-color-scheme: dark){.sg .op{fill:#14181f}.sg .dep,.sg .msg{stroke:#a3adba}
.sg .fault{stroke:#ff8a80}}"""

_KINDS = {
    "send": ("f0", "send"),
    "take": ("f2", "receive"),
    "pass": ("f3", "receive and send"),
    "local": ("f4", "local copy or reduce"),
}


@dataclass(frozen=True, slots=True)
class Row:
    """A thread block and where it is drawn: `y` is the upper edge, `shared`: with all blocks of its rank."""

    rank: int
    block: ThreadBlock
    y: float
    height: float
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Box:
    """A step and where it is drawn."""

    x: float
    width: float
    row: Row
    step: Step

    @property
    def middle(self) -> float:
        """Height of its middle."""
        return self.row.y + self.row.height / 2


def program_svg(found: Analysis, size: float, link: Link, delay: float, ranks: range | None = None) -> str:
    """Draws an analysed program as a self-contained SVG document: the same text for equal programs.

    Args:
        found: of `analyse`; a broken program has its places marked.
        size: bytes of the buffer.
        link: alpha and bandwidth of every port.
        delay: seconds by which the late ranks come late.
        ranks: whose blocks to draw; None: all.

    Raises:
        UsageError: no such rank.
    """
    shown = [gpu for gpu in found.program.gpus if ranks is None or gpu.rank in ranks]
    if not shown:
        raise UsageError(f"no such rank to show: the ranks are 0..{found.program.ranks - 1}")
    blocks = [(gpu.rank, block) for gpu in shown for block in gpu.blocks]
    name = plain(found.program.name, 60)
    title = f"{name}: {found.program.ranks} ranks, {found.program.chunks} chunks, {len(blocks)} thread blocks"
    paper = Paper(title, "One row a thread block, its steps from left to right in modelled time.", _CSS)
    return _Picture(paper, found, program_times(found, size, link, delay), blocks, title).draw()


class _Picture:
    """One drawing: rows, boxes, then what lies on top of them."""

    def __init__(
        self,
        paper: Paper,
        found: Analysis,
        timing: Timing,
        blocks: list[tuple[int, ThreadBlock]],
        title: str,
    ) -> None:
        self.paper, self.found, self.timing, self.title = paper, found, timing, title
        self.large = len(blocks) <= MOST_ROWS
        self.rows = list(_rows(blocks, self.large))
        self.bottom = max([TOP + ROW, *(row.y + row.height for row in self.rows)])
        self.boxes = {StepRef(b.row.rank, b.row.block.id, b.step.index): b for b in self._placed()}

    def x(self, time: float) -> float:
        """Where a time is."""
        return LEFT + WIDTH * time / (self.timing.end or 1.0)

    def draw(self) -> str:
        """The document's text."""
        paper, timing = self.paper, self.timing
        paper.text(16, 26, "title", self.title)
        wrong = len(self.found.findings)
        words = "valid: executed in the runtime model" if not wrong else f"NOT VALID: {wrong} findings"
        after = f"{format_seconds(timing.post_seconds)} after the last arrival (modelled, not measured)"
        late = f"late: {', '.join(map(str, self.found.late[:8])) or 'nobody'}"
        paper.text(16, 44, "bad" if wrong else "soft", plain(f"{words} · {late} · {after}", 150))
        self._frame()
        self._edges()
        self._steps()
        self._outlines()
        self._marks()
        foot = self._foot()
        return paper.finish(LEFT + WIDTH + END + 16, foot)

    def _placed(self) -> Iterator[Box]:
        """All steps: where their times say; those without behind the end, side by side."""
        for row in self.rows:
            last, gone = LEFT, LEFT + WIDTH + 6
            for step in row.block.steps:
                span = self.timing.spans.get(StepRef(row.rank, row.block.id, step.index))
                if span is not None:
                    last = self.x(span[0])
                    yield Box(last, max(1.5 if self.large else 0.5, self.x(span[1]) - last), row, step)
                    last += max(1.5, self.x(span[1]) - last)
                elif step.op is OpCode.NOP and self.timing.spans:
                    yield Box(last, 1.5, row, step)
                else:
                    yield Box(min(gone, LEFT + WIDTH + END - 10), 9, row, step)
                    gone += 11

    def _frame(self) -> None:
        paper, before = self.paper, -1
        absent = [rank for rank, come in enumerate(self.timing.arrivals) if come > 0]
        for row in self.rows:
            if row.rank != before:
                paper.line("lane", 16, row.y - 2, LEFT + WIDTH + END, row.y - 2)
                if not self.large:
                    paper.text(
                        LEFT - 8, row.y + 9, "end late" if row.rank in absent else "end", f"rank {row.rank}"
                    )
            if self.large:
                self._name(row, row.rank in absent)
            if row.rank in absent and (self.large or row.rank != before):
                paper.line(
                    "away",
                    LEFT,
                    row.y + row.height / 2,
                    self.x(self.timing.arrivals[row.rank]),
                    row.y + row.height / 2,
                )
            before = row.rank
        for place in range(5 if self.timing.end else 1):
            x, time = LEFT + WIDTH * place / 4, self.timing.end * place / 4
            paper.line("lane", x, TOP - 8, x, self.bottom)
            paper.text(x, TOP - 12, "num soft", format_seconds(time) if time else "0")

    def _name(self, row: Row, absent: bool) -> None:
        block = row.block
        ends = f"{block.recv_peer}→ " * (block.recv_peer >= 0) + f"→{block.send_peer} " * (
            block.send_peer >= 0
        )
        cycle = " cycle" if (row.rank, block.id) in self.found.cycle else ""
        kind = "end bad" if cycle else "end late" if absent else "end"
        self.paper.text(
            LEFT - 8, row.y + 12, kind, f"rank {row.rank} tb {block.id}  {ends}ch {block.channel}{cycle}"
        )

    def _steps(self) -> None:
        paths: dict[str, list[str]] = defaultdict(list)
        for ref, box in self.boxes.items():
            kind, (y, height) = _kind(box.step), self._extent(box)
            if not self.large:
                shape = f"M{number(box.x)} {y:.2f}h{number(box.width)}v{height:.2f}h-{number(box.width)}z"
                paths[kind].append(shape)
                continue
            fill = _KINDS[kind][0]
            self.paper.add(
                "rect", fill, self._tip(ref, box), x=box.x, y=y, width=box.width, height=height, rx=2
            )
            if box.width >= 8 + 4 * len(box.step.op.value) and kind in ("send", "pass"):
                self.paper.text(box.x + 4, box.row.y + 12, "op", box.step.op.value)
        for kind, shapes in sorted(paths.items()):
            self.paper.add("path", _KINDS[kind][0], _KINDS[kind][1], d="".join(shapes))

    def _extent(self, box: Box) -> tuple[float, float]:
        """Upper edge and height: what sends is tall; where blocks share a row, sends are above receives."""
        tall, row = _kind(box.step) in ("send", "pass"), box.row
        if row.shared:
            return (row.y, row.height / 2) if tall else (row.y + row.height / 2, row.height / 2)
        height = row.height * (1.0 if tall else 0.55) - (2 if self.large else 0.2)
        return row.y + row.height - height - (1 if self.large else 0.1), height

    def _tip(self, ref: StepRef, box: Box) -> str:
        step, fault = box.step, self._fault(ref)
        words = (
            f"{ref}: {step.op} {step.src_buffer}[{step.src_offset}] to {step.dst_buffer}[{step.dst_offset}]"
        )
        words += f", {step.count} chunks" if step.count > 1 else ""
        words += f", waits for tb {step.dep_block} step {step.dep_step}" if step.dep_block >= 0 else ""
        return plain(f"{words}; {fault}" if fault else words, 300)

    def _fault(self, ref: StepRef) -> str:
        places = (ref, (ref.rank, ref.block, -1), (ref.rank, -1, -1))
        return next((self.found.places[place] for place in places if place in self.found.places), "")

    def _edges(self) -> None:
        if not self.large:
            return
        messages, waits = [], []
        for message in self.timing.messages:
            a, b = self.boxes.get(message.sender), self.boxes.get(message.receiver)
            if a and b:
                ends = self.x(message.start), a.middle, self.x(message.end), b.middle
                messages.append("M{} {}L{} {}".format(*map(number, ends)))
        for ref, box in self.boxes.items():
            before = self.boxes.get(StepRef(ref.rank, box.step.dep_block, box.step.dep_step))
            if before:
                ends = before.x + before.width, before.middle, box.x, box.middle
                waits.append("M{} {}L{} {}".format(*map(number, ends)))
        for kind, lines in (("msg", messages), ("dep", waits)):
            if lines:
                self.paper.add("path", kind, d="".join(lines))

    def _outlines(self) -> None:
        critical = set(self.found.critical)
        for kind, chosen in (
            ("crit", [box for ref, box in self.boxes.items() if ref in critical]),
            ("fault", [box for ref, box in self.boxes.items() if self._fault(ref)]),
        ):
            shapes = []
            for box in chosen:
                y, height = self._extent(box) if box.row.shared else (box.row.y + 0.5, box.row.height - 1)
                w = number(box.width + 1)
                shapes.append(f"M{number(box.x - 0.5)} {number(y)}h{w}v{number(height)}h-{w}z")
                if kind == "fault" and self.large:
                    self.paper.text(box.x + 1, box.row.y + 1, "bad", "!")
            if shapes:
                self.paper.add(
                    "path", kind, "critical path" if kind == "crit" else "wrong", d="".join(shapes)
                )

    def _marks(self) -> None:
        groups: dict[float, list[int]] = defaultdict(list)
        for rank, come in enumerate(self.timing.arrivals):
            groups[come].append(rank)
        for come, group in sorted(groups.items())[1:]:
            x = self.x(come)
            self.paper.line("arrival", x, TOP - 30, x, self.bottom)
            self.paper.text(x + 4, TOP - 26, "late", plain(arrive_words(group), 60))
        if self.timing.never:
            self.paper.text(LEFT + WIDTH + 6, TOP - 12, "bad", "never")

    def _foot(self) -> float:
        y, x = self.bottom + 24, 16.0
        signs = [(fill, words) for fill, words in _KINDS.values()]
        signs += [("crit", "critical path"), ("fault", "wrong")]
        if any(row.shared for row in self.rows):
            self.paper.text(
                16, y + 18, "soft", "Upper half: what a rank sends. Lower half: what it receives."
            )
        signs += [("msg", "message"), ("dep", "dependency")] if self.large else []
        for kind, words in signs:
            if kind in ("msg", "dep"):
                self.paper.line(kind, x, y - 4, x + 20, y - 4)
            else:
                self.paper.add("rect", kind, x=x, y=y - 10, width=18, height=11)
            self.paper.text(x + 24, y, "soft", words)
            x += 44 + 5.8 * len(words)
        under = y + (36 if any(row.shared for row in self.rows) else 20)
        for place, line in enumerate(self.found.findings[:LISTED]):
            self.paper.text(16, under + 15 * place, "bad", plain(f"! {line}", 190))
        lines = min(LISTED, len(self.found.findings))
        if len(self.found.findings) > LISTED:
            self.paper.text(16, under + 15 * lines, "bad", f"! and {len(self.found.findings) - LISTED} more")
            lines += 1
        return y + (30 if any(row.shared for row in self.rows) else 16) + 15 * lines


def _rows(blocks: list[tuple[int, ThreadBlock]], large: bool) -> Iterator[Row]:
    """A row a block; small: the blocks of a rank share one row's height."""
    if large:
        for place, (rank, block) in enumerate(blocks):
            yield Row(rank, block, TOP + ROW * place, ROW - 2)
        return
    ranks: dict[int, list[ThreadBlock]] = defaultdict(list)
    for rank, block in blocks:
        ranks[rank].append(block)
    height = max(10.0, min(60.0, MOST_HEIGHT / len(ranks)))
    for place, (rank, group) in enumerate(ranks.items()):
        part = (height - 3) / len(group)
        for at, block in enumerate(group):
            if part < LEAST:
                yield Row(rank, block, TOP + height * place, height - 4, shared=True)
            else:
                yield Row(rank, block, TOP + height * place + part * at, part)


def _kind(step: Step) -> str:
    if step.op.sends and step.op.receives:
        return "pass"
    return "send" if step.op.sends else "take" if step.op.receives else "local"
