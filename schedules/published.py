"""Imports the schedules that the published StragglAR synthesizers print, made by nobody here.

The text has one heading and one line of matchings a round:

    Round 3
    2 ['StragglerMatching: 3 <-> 5, chunk_id: 3', 'TwoWayMatching: 4 -> 0, chunk_id: 1; 0 -> 4, chunk_id: 0']

It covers the post phase only. The late rank is the last one, n - 1; early rank c owns chunk c of n - 1. A
StragglerMatching is a swap in which both ranks add; the others are copies. The pre phase, in which rank c
gets the early ranks' sum of chunk c, is ours: the ring ReduceScatter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

import numpy as np
from numpy.typing import NDArray

from . import bounds
from .errors import FormatError, InvalidScheduleError
from .ir import DST, FIRST, SRC, Op, Origin, Phase, Schedule
from .reduce_scatter import ring_reduce_scatter

MAX_TEXT = 1 << 28
MAX_RANKS = 2048
"""The pre phase grows with the square of the ranks, whatever the text holds; nobody published beyond 256."""

_ROUND = re.compile(r"Round ([0-9]{1,9})")
_COUNTED = re.compile(r"([0-9]{1,9}) \[(.*)\]")
_SWAP = re.compile(r"StragglerMatching: ([0-9]{1,9}) <-> ([0-9]{1,9}), chunk_id: ([0-9]{1,9})")
_COPY = r"([0-9]{1,9}) -> ([0-9]{1,9}), chunk_id: ([0-9]{1,9})"
_ONE_WAY = re.compile(f"OneWayMatching: {_COPY}")
_TWO_WAY = re.compile(f"TwoWayMatching: {_COPY}; {_COPY}")

_Row = tuple[int, int, int, int, int]


def import_published(text: str, name: str) -> Schedule:
    """Reads the rounds that a published synthesizer printed and puts our pre phase before them.

    Args:
        text: what the synthesizer printed; untrusted.
        name: the file's name, for messages and for the schedule's origin.

    Returns:
        The schedule, family `imported`. It is well formed; whether it is an AllReduce `validate` says.

    Raises:
        FormatError: a line is not of this format; says which one and what is wrong.

    Example:
        >>> swap = "['StragglerMatching: 0 <-> 1, chunk_id: 0']"
        >>> import_published(f"Round 0\\n1 {swap}\\n", "two.txt").phases
        (Phase('pre', 0 rounds, 0 transfers), Phase('post', 1 rounds, 2 transfers))
    """
    if len(text) > MAX_TEXT:
        raise FormatError(f"{name}: longer than {MAX_TEXT} characters, which no published schedule is")
    lines, rounds, late = [], [], -1
    for line, body in _bodies(text, name):
        rows = _rows(body, f"{name}:{line}")
        late = _late_rank(body, late, f"{name}:{line}")
        lines.append(line)
        rounds.append(np.array(rows, dtype=np.int64))
    if late < 1:
        raise FormatError(f"{name}: no StragglerMatching, so that nothing says which rank is late")
    for line, table in zip(lines, rounds, strict=True):
        _check_range(table, late, f"{name}:{line}")
    try:
        return _schedule(late + 1, rounds, name)
    except InvalidScheduleError as error:
        raise FormatError(f"{name}: {error}") from error


def _schedule(ranks: int, rounds: list[NDArray[np.int64]], name: str) -> Schedule:
    early = range(ranks - 1)
    pre = ring_reduce_scatter(early, [(chunk, 1) for chunk in early])
    base = PurePath(name).name
    source = "".join(c if c.isprintable() else "?" for c in base)[-80:] or "text"
    return Schedule(
        ranks=ranks,
        arrivals=((ranks - 1,),),
        chunks=ranks - 1,
        phases=(Phase.build("pre", pre), Phase.build("post", rounds)),
        origin=Origin(
            family="imported",
            parameters=(("source", source), ("format", "published"), ("pre", "ring reduce-scatter")),
            bound=bounds.post_rounds(ranks, ranks - 1, 1),
        ),
    )


def _bodies(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    # Yields (line number, matchings) of every round, in order.
    expected, in_round, line = 0, False, 0
    for line, content in enumerate(text.split("\n"), start=1):
        content = content.strip()
        if not content:
            continue
        where = f"{name}:{line}"
        if in_round:
            yield line, _matchings(content, where)
            expected += 1
        else:
            _check_heading(content, expected, where)
        in_round = not in_round
    if in_round:
        raise FormatError(f"{name}:{line}: the text ends after the heading of round {expected}")


def _check_heading(content: str, expected: int, where: str) -> None:
    heading = _ROUND.fullmatch(content)
    if heading is None or int(heading[1]) != expected:
        raise FormatError(f"{where}: expected 'Round {expected}', not {_shown(content)}")


def _matchings(content: str, where: str) -> list[str]:
    counted = _COUNTED.fullmatch(content)
    if counted is None:
        raise FormatError(f"{where}: expected a count and a list of matchings, not {_shown(content)}")
    body = counted[2]
    if len(body) < 2 or body[0] != "'" or body[-1] != "'":
        raise FormatError(f"{where}: expected matchings in quotes, not {_shown(body)}")
    items = body[1:-1].split("', '")
    if len(items) != int(counted[1]):
        raise FormatError(f"{where}: {int(counted[1])} matchings announced, {len(items)} listed")
    return items


def _rows(items: list[str], where: str) -> list[_Row]:
    rows: list[_Row] = []
    for item in items:
        if swap := _SWAP.fullmatch(item):
            early, late, chunk = map(int, swap.groups())
            rows += [(early, late, chunk, 1, Op.REDUCE), (late, early, chunk, 1, Op.REDUCE)]
        elif copy := _ONE_WAY.fullmatch(item):
            src, dst, chunk = map(int, copy.groups())
            rows.append((src, dst, chunk, 1, Op.COPY))
        elif copy := _TWO_WAY.fullmatch(item):
            src, dst, chunk, back, to, other = map(int, copy.groups())
            if (back, to) != (dst, src):
                raise FormatError(f"{where}: the two ways are not between the same ranks: {_shown(item)}")
            rows += [(src, dst, chunk, 1, Op.COPY), (dst, src, other, 1, Op.COPY)]
        else:
            raise FormatError(f"{where}: not a matching: {_shown(item)}")
    return rows


def _late_rank(items: list[str], known: int, where: str) -> int:
    for swap in filter(None, map(_SWAP.fullmatch, items)):
        late = int(swap[2])
        if known not in (-1, late):
            raise FormatError(f"{where}: rank {late} is late here, rank {known} before")
        if late >= MAX_RANKS:
            raise FormatError(f"{where}: rank {late}: at most {MAX_RANKS} ranks are read")
        known = late
    return known


def _check_range(table: NDArray[np.int64], late: int, where: str) -> None:
    highest_rank, highest_chunk = int(table[:, SRC : DST + 1].max()), int(table[:, FIRST].max())
    if highest_rank > late:
        raise FormatError(f"{where}: rank {highest_rank} is above the late rank {late}, which is the last")
    if highest_chunk >= late:
        raise FormatError(f"{where}: chunk {highest_chunk} does not exist: {late} early ranks own one each")
    if (table[:, SRC] == table[:, DST]).any():
        raise FormatError(f"{where}: a rank is matched with itself")


def _shown(content: str) -> str:
    return ascii(content if len(content) <= 60 else content[:57] + "...")
