"""What can be measured, by name: our schedules on our engines, and other libraries' AllReduces; with theory.

Names: `ring`, `rhd` and the other families; `stragglar:10` (ten chunks an early rank), `split`, `split:1/2`,
`merge-allreduce:4` (four chunks), `plan` (what the planner takes), `published` (the rounds that the published
synthesizer printed), `file:s.json`. All of them on the TCP engine, with `mpi:` before the name on MPI.
Not ours: `mpi`, `mpi-ring`, `mpi-rd`, `mpi-rabenseifner`, `gloo`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from ..schedules import Link, Schedule, UsageError, bounds, cost, load_schedule
from ..schedules.errors import MissingError
from ..schedules.files import read_bounded
from ..schedules.published import MAX_TEXT, import_published
from ..synth import ALGORITHMS, Request, synthesize
from ..synth.families import ALIASES, count_rounds
from ..synth.planner import MAX_CHUNKS, Situation, best_chunks, candidates, evaluate, plan
from .fleets import MPI_SETTINGS

PLAN_ALPHA = 5e-4
"""Seconds of a round without data that `plan` and `split` reckon with on a testbed: a message of our TCP
engine costs about so much where some ranks share a core."""

PUBLISHED = Path(__file__).resolve().parents[2] / "tests" / "data"
"""Where a checkout of the repository keeps what the published synthesizers printed."""

FULLY = 1.1
"""`full` is so many times what the early ranks' ReduceScatter takes."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What all contenders of a run have in common.

    Attributes:
        ranks: n.
        late: the late ranks, ascending.
        size: bytes of the buffer.
        rate: bytes of data a second through a port, each way.
        delay: seconds by which the late ranks come after the others, expected; for planning.
        alpha: seconds of a round without data, for planning.
    """

    ranks: int
    late: tuple[int, ...]
    size: int
    rate: float
    delay: float
    alpha: float = PLAN_ALPHA

    @property
    def seconds(self) -> float:
        """What the whole buffer takes through one port."""
        return self.size / self.rate

    @property
    def hiding_delay(self) -> float:
        """The delay that just hides the ReduceScatter of all early ranks."""
        early = self.ranks - len(self.late)
        return (early - 1) / early * self.seconds

    def bound(self, delay: float) -> float:
        """Least time after the last arrival of any AllReduce, in seconds, counting bandwidth only."""
        if not self.late:
            return 2 * (self.ranks - 1) / self.ranks * self.seconds
        if len(self.late) == 1:
            return bounds.post_seconds_after_delay(self.ranks, self.seconds, delay)
        return bounds.post_seconds_several(self.ranks, self.seconds, len(self.late))

    def situation(self) -> Situation:
        """The scene as the planner takes it.

        Raises:
            UsageError: several ranks are late.
        """
        if len(self.late) != 1:
            raise UsageError("plan and split are for one late rank")
        return Situation(self.ranks, self.late[0], self.size, Link(self.alpha, self.rate), self.delay)


@dataclass(frozen=True, slots=True)
class Contender:
    """One AllReduce to measure.

    Attributes:
        name: as the user wrote it.
        fleet: whose workers run it: tcp, mpi, mpi-ring, .., gloo.
        schedule: what they run; None: their library's own.
        theory: seconds after the last arrival for a delay, counting bandwidth only.
    """

    name: str
    fleet: str
    schedule: Schedule | None
    theory: Callable[[float], float]

    @property
    def engine(self) -> str:
        """tcp, mpi or gloo."""
        return self.fleet.partition("-")[0]


def contender(name: str, scene: Scene) -> Contender:
    """The contender of a name.

    Raises:
        UsageError: no such name, or one that does not go with the scene.
        MissingError: the published rounds are not at hand.
    """
    if name in MPI_SETTINGS or name == "gloo":
        return Contender(name, name, None, _native_theory(name, scene))
    on_mpi = name.startswith("mpi:")
    schedule = _schedule(name.removeprefix("mpi:"), scene)
    if schedule.ranks != scene.ranks:
        raise UsageError(f"{name} is for {schedule.ranks} ranks, the testbed has {scene.ranks} hosts")
    link = Link(0.0, scene.rate)

    def theory(delay: float) -> float:
        return cost(schedule, scene.size, link, delay).post_seconds

    return Contender(name, "mpi" if on_mpi else "tcp", schedule, theory)


def _schedule(name: str, scene: Scene) -> Schedule:
    kind, _, argument = name.partition(":")
    if kind == "file":
        return load_schedule(argument)
    if kind == "published":
        return _published(argument, scene)
    if kind == "plan" and not argument:
        return plan(scene.situation()).schedule()
    if kind == "split":
        return synthesize(_split_request(argument, scene))
    if kind == "several":
        kind = "stragglar"
    if ALIASES.get(kind, kind) not in ALGORITHMS:
        known = ", ".join([*ALGORITHMS, "several", "plan", "published", "file:FILE", *MPI_SETTINGS, "gloo"])
        raise UsageError(f"algorithm {name!r} is not known: use {known}, or mpi:NAME for one of ours on MPI")
    whole = _whole(name, argument)
    chunks = whole if kind == "merge-allreduce" else None
    refine = None if kind == "merge-allreduce" else whole
    return synthesize(Request(scene.ranks, scene.late, kind, refine=refine, chunks=chunks))


def _whole(name: str, argument: str) -> int | None:
    if not argument:
        return None
    if not (argument.isascii() and argument.isdigit()) or len(argument) > 9:
        raise UsageError(f"{name!r}: what follows the colon must be a whole number")
    return int(argument)


def _published(path: str, scene: Scene) -> Schedule:
    where = Path(path) if path else PUBLISHED / f"published_{scene.ranks}.txt"
    if not path and not where.exists():
        raise MissingError(
            f"no published rounds for {scene.ranks} ranks at hand: name a file (published:FILE),"
            " or use stragglar:1"
        )
    schedule = import_published(read_bounded(str(where), MAX_TEXT).decode("utf-8", "replace"), str(where))
    if schedule.late != scene.late:
        raise UsageError(
            f"the published rounds have rank {schedule.ranks - 1} late: use --late {schedule.ranks - 1}"
        )
    return schedule


def _split_request(argument: str, scene: Scene) -> Request:
    """The best split for the delay, or one of the fraction named."""
    situation = scene.situation()
    if argument:
        try:
            fraction = Fraction(argument)
        except (ValueError, ZeroDivisionError):
            raise UsageError(f"'split:{argument}': the fraction must be a number such as 1/2") from None
        return Request(scene.ranks, scene.late, "split", fraction=fraction)
    splits = [r for r in candidates(situation) if r.algorithm == "split"]
    # Nothing and all of it are splits as well, where the delay hides next to nothing or next to all.
    early = scene.ranks - 1
    whole = max(1, round(best_chunks(situation) / early)) * early
    for share, chunks in ((0, scene.ranks), (1, min(whole, MAX_CHUNKS))):
        splits.append(Request(scene.ranks, scene.late, "split", fraction=Fraction(share), chunks=chunks))
    return min(splits, key=lambda request: evaluate(request, situation).post_seconds)


def _native_theory(name: str, scene: Scene) -> Callable[[float], float]:
    """What the algorithm that a library is known to use takes by the model, whoever is late."""
    volume = 2 * (scene.ranks - 1) / scene.ranks * scene.seconds
    if name in ("gloo", "mpi", "mpi-ring"):  # MPICH itself chooses one of this volume for large buffers
        return lambda _: volume
    if name == "mpi-rabenseifner":
        return lambda _: _folded_volume(scene) * scene.seconds
    doubling = count_rounds(Request(scene.ranks, (), "direct"))
    return lambda _: doubling.post_chunk_rounds / doubling.chunks * scene.seconds


def _folded_volume(scene: Scene) -> float:
    """Rabenseifner's: ranks beyond a power of two give all to a partner first and get all at the end."""
    core = 1 << (scene.ranks.bit_length() - 1)
    extra = 0 if core == scene.ranks else 2
    return extra + 2 * (core - 1) / core
