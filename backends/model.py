"""All ranks in one process, on numpy: what a schedule computes, bit for bit, without any communication."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..schedules import Op, Phase, Schedule, UsageError
from ..schedules.ir import COUNT, DST, FIRST, OP, SRC
from .elements import Array, chunk_bounds, combine, expected, finish, prepare, rank_input, reduction
from .report import RunReport, report_for
from .request import RunRequest

Index = NDArray[np.int64]


def run_model(schedule: Schedule, inputs: Sequence[Array] | Array, op: str, upto: str | None = None) -> Array:
    """Runs a schedule on the given inputs.

    Args:
        schedule: any schedule, also one that is not a correct AllReduce.
        inputs: one array a rank, shape (ranks, count), any count; not changed.
        op: sum, max, min, prod or avg.
        upto: name of the last phase to run (`pre`: the state that the late rank meets); None: all.

    Returns:
        What each rank holds afterwards, shape (ranks, count), the type of the inputs.

    Raises:
        UsageError: inputs of another shape, or an unknown reduction or phase.
    """
    reduction(op)
    data = np.asarray(inputs)
    if data.ndim != 2 or len(data) != schedule.ranks:
        raise UsageError(f"inputs must have shape ({schedule.ranks}, count), not {data.shape}")
    names = [phase.name for phase in schedule.phases]
    if upto is not None and upto not in names:
        raise UsageError(f"phase {upto!r} is not in this schedule: {', '.join(names)}")
    last = len(names) if upto is None else names.index(upto) + 1
    state, where = _chunked(data, schedule.chunks)
    with np.errstate(over="ignore", invalid="ignore"):
        prepare(op, state, schedule.ranks)
        for phase in schedule.phases[:last]:
            _run_phase(state, phase, op)
        if last == len(names):
            finish(op, state, schedule.ranks)
    flat = state.reshape(schedule.ranks, -1)
    return flat if where is None else flat.take(where, axis=1)


def _chunked(data: Array, chunks: int) -> tuple[Array, Index | None]:
    """A copy of shape (ranks, chunks, width), and where its elements lie in the flattened rows.

    Uneven chunks are padded to the longest; the padding goes through the reductions and is dropped.
    """
    ranks, count = data.shape
    if count % chunks == 0:
        return data.reshape(ranks, chunks, count // chunks).copy(), None
    bounds, width = chunk_bounds(count, chunks), -(-count // chunks)
    chunk = np.repeat(np.arange(chunks), np.diff(bounds))
    where = chunk * width + np.arange(count) - bounds[chunk]
    state = np.ones((ranks, chunks * width), dtype=data.dtype)
    state[:, where] = data
    return state.reshape(ranks, chunks, width), where


@dataclass(frozen=True, slots=True)
class _Cells:
    """Messages taken apart into single chunks; `reduce` splits them by the order of the operands."""

    src: Index
    dst: Index
    chunk: Index


def _run_phase(state: Array, phase: Phase, op: str) -> None:
    table = phase.table.astype(np.int64)
    rows = np.repeat(np.arange(len(table)), table[:, COUNT])
    starts = np.concatenate(([0], np.cumsum(table[:, COUNT])))
    chunk = table[rows, FIRST] + np.arange(len(rows)) - starts[rows]
    # Within a round: copies, then reductions whose own operand comes first, then the others.
    kind = np.where(table[rows, OP] == Op.COPY, 0, np.where(table[rows, DST] < table[rows, SRC], 1, 2))
    order = np.lexsort((kind, phase.round_index()[rows]))
    cells = _Cells(table[rows, SRC][order], table[rows, DST][order], chunk[order])
    keys = phase.round_index()[rows][order] * 3 + kind[order]
    cuts = np.searchsorted(keys, np.arange(3 * len(phase) + 1)).tolist()
    for index in range(0, 3 * len(phase), 3):
        _run_round(state, cells, cuts[index : index + 4], op)


def _run_round(state: Array, cells: _Cells, cuts: list[int], op: str) -> None:
    low, *_, high = cuts
    # One read of everything before any write: the round sees the state from before it.
    incoming = state[cells.src[low:high], cells.chunk[low:high]]
    for kind, (start, end) in enumerate(pairwise(cuts)):
        if start == end:
            continue
        at = cells.dst[start:end], cells.chunk[start:end]
        part = incoming[start - low : end - low]
        if kind:
            combine(op, state[at], part, own_first=kind == 1, out=part)
        state[at] = part


def run(schedule: Schedule, request: RunRequest) -> RunReport:
    """Runs a schedule on test data in this process and checks every rank's result.

    Delays change nothing here. `compute_seconds` is the time this process took, a claim about nothing.
    """
    ranks, count = schedule.ranks, request.elements
    inputs = [rank_input(r, ranks, count, request.dtype, request.op, request.seed) for r in range(ranks)]
    start = time.perf_counter()
    results = run_model(schedule, inputs, request.op)
    seconds = time.perf_counter() - start
    right = expected(ranks, count, request.dtype, request.op, request.seed)
    wrong = sum(right.wrong(result) for result in results)
    report = report_for("model", schedule, request, wrong)
    return replace(report, compute_seconds=seconds, library=f"numpy {np.__version__}")
