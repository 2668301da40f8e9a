"""Chrome trace events, which Perfetto (ui.perfetto.dev) and chrome://tracing open: pieces, and the file.

Format: the "Trace Event Format" of the Chromium project, as a JSON object with `traceEvents`. Processes and
threads are only names for rows here. Times go in as seconds and come out as microseconds.

What Perfetto's importer (its `json_trace_parser_impl.cc` and `slice_tracker`) does decides some details. It
looks threads up by their number alone and keeps 0 for itself, so no two threads share a number. It cuts times
to whole nanoseconds, and what begins before its forerunner on the thread has ended counts as part of that, so
times are whole nanoseconds already; what really crosses goes on several threads (`Lanes`). An arrow binds to
what began last on its thread, so it ends a nanosecond before its target does. Processes are ordered by name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

Event = dict[str, Any]

_THREAD_BITS = 16


def process(pid: int, words: str, place: int) -> Iterator[Event]:
    """Names a process and says where it stands among the others."""
    yield {"ph": "M", "name": "process_name", **_row(pid, 0), "args": {"name": words}}
    yield {"ph": "M", "name": "process_sort_index", **_row(pid, 0), "args": {"sort_index": place}}


def thread(pid: int, tid: int, words: str) -> Iterator[Event]:
    """Names a thread of a process; they stand in the order of their numbers."""
    yield {"ph": "M", "name": "thread_name", **_row(pid, tid), "args": {"name": words}}
    yield {"ph": "M", "name": "thread_sort_index", **_row(pid, tid), "args": {"sort_index": tid}}


def rank_words(rank: int, ranks: int) -> str:
    """`rank 03` of 16: names sort as the numbers do."""
    return f"rank {rank:0{len(str(ranks - 1))}}"


def _row(pid: int, tid: int) -> Event:
    """The numbers in the file of process `pid` and thread `tid`, both counted from 0."""
    return {"pid": pid + 1, "tid": (pid + 1) << _THREAD_BITS | tid}


def _nanoseconds(time: float) -> int:
    # Off the halves, where sums that differ in their last digits would be rounded apart.
    return math.floor(time * 1e9 + 0.37)


def _micro(nanoseconds: int) -> float:
    """Microseconds that come to so many nanoseconds whether a reader rounds or cuts."""
    value = nanoseconds / 1000
    return value if int(value * 1000) == nanoseconds else value + 1e-4


def span(
    pid: int, tid: int, category: str, words: str, start: float, end: float, facts: Event | None = None
) -> Event:
    """Something that a thread does from `start` to `end`."""
    first, last = _nanoseconds(start), _nanoseconds(end)
    event: Event = {"ph": "X", "cat": category, "name": words, **_row(pid, tid)}
    event |= {"ts": _micro(first), "dur": _micro(last - first)}
    return event if facts is None else event | {"args": facts}


def arrow(
    number: int, source: tuple[int, int, float], target: tuple[int, int, float, float]
) -> Iterator[Event]:
    """A message; `number` is unlike that of any other arrow.

    Args:
        number: of the arrow.
        source: process, thread, and when the span begins that the arrow starts from.
        target: process, thread, begin and end of the span in which the arrow ends.
    """
    begin = _nanoseconds(source[2])
    end = max(_nanoseconds(target[2]), _nanoseconds(target[3]) - 1)
    common: Event = {"name": "message", "cat": "message", "id": number}
    yield common | {"ph": "s", **_row(*source[:2]), "ts": _micro(begin)}
    yield common | {"ph": "f", "bp": "e", **_row(*target[:2]), "ts": _micro(max(begin, end))}


def moment(pid: int, tid: int, words: str, time: float) -> Event:
    """A line across all rows."""
    event: Event = {"ph": "i", "s": "g", "cat": "arrival", "name": words, **_row(pid, tid)}
    return event | {"ts": _micro(_nanoseconds(time))}


def arrive_words(ranks: Iterable[int]) -> str:
    """`rank 3 arrives`, `ranks 2, 5 arrive`."""
    names = list(map(str, ranks))
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return f"rank {shown} arrives" if len(names) == 1 else f"ranks {shown} arrive"


class Lanes:
    """Spreads the spans of one row over as few threads as let none cross: the first that is free."""

    def __init__(self) -> None:
        self._free: list[float] = []

    def place(self, start: float, end: float) -> int:
        """The number of the thread for a span; spans must come in order of their starts."""
        lane = next((i for i, free in enumerate(self._free) if free <= start), len(self._free))
        self._free[lane : lane + 1] = [end]
        return lane

    def __len__(self) -> int:
        """Number of threads in use."""
        return len(self._free)


def file_text(facts: dict[str, Any], events: Iterable[Event]) -> str:
    """The file: what it is about, and its events, a line each."""
    lines = ",\n".join(json.dumps(event, allow_nan=False) for event in events)
    head = json.dumps(facts, allow_nan=False)
    return f'{{"displayTimeUnit":"ms","otherData":{head},"traceEvents":[\n{lines}\n]}}\n'
