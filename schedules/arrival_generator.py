"""Synthetic arrival traces, after the little that is published about real ones.

Published for StragglAR (arXiv 2505.23523): the last rank comes up to 30 ms late, 4.5 or 9.5 ms on average in
two workloads, and the same rank is late in 77 to 95 % of the iterations. The shape of the distribution,
the jitter of the others and how long others stay late are assumptions of ours; `docs/arrivals.md`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .arrivals import MAX_ENTRIES, ArrivalTrace
from .errors import UsageError
from .ir import MAX_RANKS

PRESETS = {"4.5ms": 4.5e-3, "9.5ms": 9.5e-3}
"""Name -> mean delay in seconds."""

CAP = 30e-3
"""Largest delay, in seconds."""

SHARE = 0.86
"""Share of the iterations in which the usual rank is late: the middle of 77 and 95 %."""

STICKINESS = 0.5
JITTER = 0.2e-3
CONCENTRATION = 8.0


def generate_trace(
    ranks: int,
    iterations: int,
    seed: int = 0,
    *,
    mean: float = PRESETS["4.5ms"],
    share: float = SHARE,
    stickiness: float = STICKINESS,
    usual: int | None = None,
    cap: float = CAP,
    jitter: float = JITTER,
    concentration: float = CONCENTRATION,
) -> ArrivalTrace:
    """Makes a synthetic trace: exactly one rank is late in every iteration.

    Args:
        ranks: number of ranks.
        iterations: number of iterations.
        seed: equal arguments give equal traces.
        mean: seconds from the second last arrival to the last, on average.
        share: share of the iterations, in the long run, in which the usual rank is the late one; else each
            other rank is with equal chance.
        stickiness: chance that the late rank is that of the iteration before without being drawn anew. The
            same rank is late again with chance stickiness + (1 - stickiness) (share^2 + (1 - share)^2 /
            (ranks - 1)): `expected_persistence`.
        usual: the rank that is usually late; None: drawn.
        cap: largest delay, in seconds.
        jitter: the other ranks come within so many seconds, evenly.
        concentration: how close delays are to their mean: cap times a beta variate with parameters
            concentration mean/cap and concentration (1 - mean/cap).

    Raises:
        UsageError: a parameter out of its range.
    """
    _check(ranks, iterations, seed, usual, (mean, cap, jitter, concentration), (share, stickiness))
    random = np.random.default_rng(seed)
    chosen = int(random.integers(ranks)) if usual is None else usual
    late = _late_ranks(random, ranks, iterations, chosen, share, stickiness)
    centre = mean / cap
    delays = cap * random.beta(concentration * centre, concentration * (1 - centre), iterations)
    times = random.uniform(0, jitter, (iterations, ranks)) if jitter else np.zeros((iterations, ranks))
    rows = np.arange(iterations)
    times[rows, late] = -np.inf
    times[rows, late] = times.max(axis=1) + delays
    note = (
        f"synthetic, not measured: seed {seed}, mean {mean:g} s, cap {cap:g} s, rank {chosen} late in"
        f" {share:g} of the iterations, stickiness {stickiness:g}, jitter {jitter:g} s"
    )
    return ArrivalTrace.of(times, note)


def expected_persistence(ranks: int, share: float = SHARE, stickiness: float = STICKINESS) -> float:
    """Chance that the late rank of a generated iteration is that of the one before."""
    drawn_again = share**2 + (1 - share) ** 2 / (ranks - 1)
    return stickiness + (1 - stickiness) * drawn_again


def _late_ranks(
    random: np.random.Generator, ranks: int, iterations: int, usual: int, share: float, stickiness: float
) -> NDArray[np.int64]:
    # What is drawn is kept for a while: every iteration by itself is distributed like a fresh draw.
    other = (usual + random.integers(1, ranks, iterations)) % ranks
    fresh = np.where(random.random(iterations) < share, usual, other)
    renewed = random.random(iterations) >= stickiness
    renewed[0] = True
    return fresh[np.maximum.accumulate(np.where(renewed, np.arange(iterations), 0))]


def _check(
    ranks: int,
    iterations: int,
    seed: int,
    usual: int | None,
    sizes: tuple[float, float, float, float],
    chances: tuple[float, float],
) -> None:
    mean, cap, jitter, concentration = sizes
    if not 2 <= ranks <= MAX_RANKS or iterations < 1 or ranks * iterations > MAX_ENTRIES or seed < 0:
        raise UsageError(
            f"a trace has 2 to {MAX_RANKS} ranks, 1 iteration or more, {MAX_ENTRIES} arrivals at most, and"
            f" a seed from 0: not {ranks} ranks, {iterations} iterations, seed {seed}"
        )
    if usual is not None and not 0 <= usual < ranks:
        raise UsageError(f"the usual late rank must be in 0..{ranks - 1}, not {usual}")
    if not (0 < mean < cap <= 3000 and 0 <= jitter <= 100 and 0 < concentration <= 1e6):
        raise UsageError(
            f"needs 0 < mean < cap, 0 <= jitter and a concentration above 0: not mean {mean:g} s,"
            f" cap {cap:g} s, jitter {jitter:g} s, concentration {concentration:g}"
        )
    if not all(0 <= chance <= 1 for chance in chances):
        raise UsageError(f"share and stickiness are between 0 and 1, not {chances[0]:g} and {chances[1]:g}")
