"""The fewest rounds of a post phase, searched upward from the bound, one CP-SAT question a round count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...schedules import bounds
from ...schedules.errors import InfeasibleError
from ..merge.rounds import IntArray
from .model import PostModel
from .moves import to_rounds

WORK = 200.0
"""Solver work granted to one call, in CP-SAT's deterministic seconds: minutes on one core, and the same
answer on every machine."""
ATTEMPTS = 5
"""Round counts tried from the bound upward; each gets half of the work that is left."""


@dataclass(frozen=True, slots=True, eq=False)
class ExactResult:
    """A post phase found by search, and how much is known about shorter ones.

    Attributes:
        early: N >= 1; the late rank has index N.
        chunks: k >= 1; chunk c belongs to early rank c mod N.
        pairwise: whether each rank's send and receive peer had to be the same.
        rounds: one int32 array a round, shape (transfers, 4), columns src, dst, chunk, adds (1: the
            receiver adds, 0: it copies), sorted and read-only.
        undecided: round counts below len(rounds), the bound or more, for which it is not known
            whether they would do: cut off by a limit, or never asked for.
    """

    early: int
    chunks: int
    pairwise: bool
    rounds: tuple[IntArray, ...]
    undecided: tuple[int, ...]

    def __post_init__(self) -> None:
        for rows in self.rounds:
            rows.setflags(write=False)

    @property
    def bound(self) -> int:
        """k + ceil(log2 n) - 1."""
        return bounds.post_rounds(self.early + 1, self.chunks, 1)

    @property
    def gap(self) -> int:
        """Rounds over the bound."""
        return len(self.rounds) - self.bound

    @property
    def proved(self) -> bool:
        """Whether no post phase of this kind has fewer rounds."""
        return not self.undecided

    @property
    def status(self) -> str:
        """In words: optimal, or which round counts are left open."""
        if self.proved:
            return "optimal"
        return f"cut off: {', '.join(map(str, self.undecided))} rounds not excluded"


def exact_rounds(
    early: int,
    chunks: int,
    *,
    pairwise: bool = False,
    rounds: int | None = None,
    time_limit: float | None = None,
) -> ExactResult:
    """The fewest rounds of any post phase for N early ranks and k chunks, for a few ranks (N <= 7 or so).

    What counts as a post phase is said in model.py. The same arguments give the same answer, unless
    `time_limit` is given: seconds of wall time depend on the machine.

    Args:
        early: N >= 1.
        chunks: k >= 1.
        pairwise: let every rank send only to the rank it receives from (or one of the two rests).
        rounds: T: decide only whether T rounds do, even for a T below the bound.
        time_limit: seconds of wall time to stop after, beside the limit on the solver's work.

    Raises:
        ValueError: an argument out of range.
        InfeasibleError: no post phase of T rounds exists, or none was found within the limits;
            the message says which.

    Example:
        >>> result = exact_rounds(4, 4)
        >>> len(result.rounds), result.status
        (6, 'optimal')
    """
    if early < 1 or chunks < 1 or (rounds is not None and rounds < 1):
        raise ValueError(f"{early} early ranks, {chunks} chunks, {rounds} rounds: all must be at least 1")
    bound = bounds.post_rounds(early + 1, chunks, 1)
    counts = range(bound, bound + ATTEMPTS) if rounds is None else range(rounds, rounds + 1)
    undecided = list(range(bound, counts.start))
    work, seconds = WORK, time_limit
    for count in counts:
        if rounds is None:
            work, seconds = work / 2, None if seconds is None else seconds / 2
        found = _decide(PostModel(early, chunks, count, pairwise), work, seconds)
        if isinstance(found, list):
            answer = to_rounds(found, early, chunks)
            fewer = tuple(c for c in undecided if c < len(answer))
            return ExactResult(early, chunks, pairwise, answer, fewer)
        undecided += [] if found else [count]
    raise InfeasibleError(_refusal(early, chunks, pairwise, counts, undecided, time_limit))


def _decide(post: PostModel, work: float, seconds: float | None) -> list[Any] | bool:
    """The moves of a solution; True: proved that there is none; False: not decided within the limits."""
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    # One worker and a fixed seed: several race each other, and the winner differs from run to run.
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_deterministic_time = work
    if seconds is not None:
        solver.parameters.max_time_in_seconds = seconds
    status = solver.solve(post.model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return post.moves(solver)
    return bool(status == cp_model.INFEASIBLE)


def _refusal(
    early: int, chunks: int, pairwise: bool, counts: range, undecided: list[int], seconds: float | None
) -> str:
    kind = "pairwise post phase" if pairwise else "post phase"
    what = f"{kind} of {' or '.join(map(str, counts))} rounds for {early + 1} ranks and {chunks} chunks"
    if not set(undecided) & set(counts):
        return f"no {what} exists"
    limit = "the solver's work limit" if seconds is None else f"{seconds:g} s"
    return f"no {what} found within {limit}: cut off before it was decided"
