"""What a user asks for: ranks, who is late, the algorithm, and how finely the buffer is cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from ..schedules.errors import UsageError
from ..schedules.ir import MAX_CHUNKS, MAX_RANKS


@dataclass(frozen=True, slots=True)
class Request:
    """One request; equal requests give equal schedules.

    Attributes:
        ranks: number of ranks, 2 or more.
        late: the late ranks (the paper: stragglers), in any order; they arrive together unless `groups` says.
        algorithm: a name in `synth.ALGORITHMS`.
        refine: m: cut the buffer into m times the chunks that the algorithm needs at least.
        chunks: cut the buffer into exactly so many chunks instead.
        fraction: of the buffer, what `split` merges; the rest is reduced after the arrival.
        pre: what the early ranks do before the arrival, where the algorithm leaves a choice.
        inner: the AllReduce of the part that `split` does not merge.
        pairwise: every rank sends only to the rank that it receives from, in every round of the merge.
        exact: search all merges with a solver instead of constructing one; for a few ranks.
        time_limit: seconds of wall time for that search; None: a limit on its work, the same everywhere.
        groups: the late ranks in groups, in order of arrival; () for at most one group. Gives `late`, which
            may be left out.
        before: what is done before the last arrival: how many chunks the early ranks reduce, then how many
            rounds each later phase may have; None: everything that can be. For `stragglar`.

    All from `fraction` to `time_limit`, and `before`, are for the algorithms that take them; `synthesize`
    refuses them elsewhere.

    Raises:
        UsageError: the request contradicts itself.
    """

    ranks: int
    late: tuple[int, ...] = ()
    algorithm: str = "stragglar"
    refine: int | None = None
    chunks: int | None = None
    fraction: Fraction | None = None
    pre: str | None = None
    inner: str | None = None
    pairwise: bool | None = None
    exact: bool | None = None
    time_limit: float | None = None
    groups: tuple[tuple[int, ...], ...] = ()
    before: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not 2 <= self.ranks <= MAX_RANKS:
            raise UsageError(f"ranks must be 2..{MAX_RANKS}, not {self.ranks}")
        self._canonical_groups()
        object.__setattr__(self, "late", tuple(sorted(self.late)))
        if len(set(self.late)) != len(self.late):
            raise UsageError(f"a late rank is named twice: {', '.join(map(str, self.late))}")
        outside = [r for r in self.late if not 0 <= r < self.ranks]
        if outside:
            raise UsageError(f"late rank {outside[0]} does not exist: ranks are 0..{self.ranks - 1}")
        if len(self.late) == self.ranks:
            raise UsageError("all ranks are late, so none is: name at most ranks - 1 of them")
        if self.refine is not None and self.chunks is not None:
            raise UsageError("give a refinement or a chunk count, not both")
        for name, value in (("refinement", self.refine), ("chunk count", self.chunks)):
            if value is not None and not 1 <= value <= MAX_CHUNKS:
                raise UsageError(f"the {name} must be 1..{MAX_CHUNKS}, not {value}")
        if self.fraction is not None and not 0 <= self.fraction <= 1:
            raise UsageError(f"the fraction must be 0..1, not {self.fraction}")
        if self.time_limit is not None and not (self.exact and 0 < self.time_limit < float("inf")):
            raise UsageError("a time limit is a number of seconds above 0, for the exact search")
        if self.before is not None:
            object.__setattr__(self, "before", tuple(self.before))

    def _canonical_groups(self) -> None:
        """Ranks of a group ascending, `late` their union; a single group is `late` alone."""
        groups = tuple(tuple(sorted(group)) for group in self.groups)
        named = [rank for group in groups for rank in group]
        if not all(groups):
            raise UsageError("a group of late ranks is empty")
        if groups and self.late and sorted(self.late) != sorted(named):
            raise UsageError("the late ranks are not those of the groups: name either")
        object.__setattr__(self, "late", tuple(named) or self.late)
        object.__setattr__(self, "groups", groups if len(groups) > 1 else ())

    @property
    def arrivals(self) -> tuple[tuple[int, ...], ...]:
        """The late ranks in the groups in which they arrive; empty where nobody is late."""
        return self.groups or ((self.late,) if self.late else ())

    def chunk_count(self, unit: int) -> int:
        """Chunks to use, for an algorithm whose natural number of chunks is `unit`.

        Raises:
            UsageError: more chunks than a schedule can number.
        """
        wanted = self.chunks if self.chunks is not None else unit * (self.refine or 1)
        if wanted > MAX_CHUNKS:
            raise UsageError(f"{wanted} chunks are more than the {MAX_CHUNKS} a schedule can number")
        return wanted

    def granularity(self) -> tuple[tuple[str, int | str], ...]:
        """How the buffer is cut and treated, as parameters of an `Origin`: enough to ask for the same."""
        fraction = None if self.fraction is None else str(self.fraction)
        named: tuple[tuple[str, int | str | None], ...] = (
            ("refine", self.refine),
            ("chunks", self.chunks),
            ("fraction", fraction),
            ("pre", self.pre),
            ("inner", self.inner),
            ("pairwise", "yes" if self.pairwise else None),
        )
        before = () if self.before is None else before_text(self.before)
        return (*((name, value) for name, value in named if value is not None), *before)


def before_text(before: Sequence[int]) -> tuple[tuple[str, str], ...]:
    """Numbers as parameters of an `Origin`, whose values are short: `reduced`, `reduced2`, ..

    >>> before_text((60, 8))
    (('before', '60,8'),)
    """
    lines = [""]
    for number in map(str, before):
        if lines[-1] and len(lines[-1]) + 1 + len(number) > 80:
            lines.append("")
        lines[-1] += f",{number}" if lines[-1] else number
    return tuple((f"before{i if i > 1 else ''}", line) for i, line in enumerate(lines, start=1))
