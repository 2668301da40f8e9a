"""Lower bounds: what no schedule can beat. Every schedule is shown next to them.

Rounds are counted in *chunk-rounds*: a round counts as many as the longest message in it has chunks
(one, for all schedules that move one chunk a message), so that schedules of different grain compare.
Proofs: `docs/bounds.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from .errors import UsageError


def ceil_log2(n: int) -> int:
    """Rounds that it takes one holder to become n, doubling: the ceiling of log2(n), for n >= 1."""
    return (n - 1).bit_length()


def post_rounds(ranks: int, chunks: int, late: int) -> int:
    """Fewest chunk-rounds after the last arrival, for `late` ranks arriving last together.

    With late ranks: each of their k raw chunks must leave them, one a round; the one that leaves last
    is complete on at most two ranks after round k, and holders at most double a round. Several late
    ranks: (n - 1 + g) k transfers are left for n receive ports. Nobody late: the same two arguments
    from scratch, 2 (n - 1) k transfers in all and ceil(log2 n) doublings.

    Raises:
        UsageError: fewer than 2 ranks, no chunks, or not 0 <= late < ranks.
    """
    if ranks < 2 or chunks < 1 or not 0 <= late < ranks:
        raise UsageError(f"no bound for {ranks} ranks, {chunks} chunks, {late} late")
    if late == 0:
        return max(ceil_log2(ranks), -(-2 * (ranks - 1) * chunks // ranks))
    return max(chunks + ceil_log2(ranks) - 1, -(-(ranks - 1 + late) * chunks // ranks))


def post_seconds_after_delay(ranks: int, seconds: float, delay: float) -> float:
    """Least time from the late rank's arrival to the end, one late rank, counting bandwidth only.

    Args:
        ranks: n.
        seconds: s beta, the time a whole buffer takes through one port.
        delay: how long the others were there before it, in seconds.

    Returns:
        max(s beta, 2 (n-1)/n s beta - (n-1)/n delay): every second of delay can buy (n-1)/n of one.
    """
    share = (ranks - 1) / ranks
    return max(seconds, 2 * share * seconds - share * delay)


def post_seconds_several(ranks: int, seconds: float, late: int) -> float:
    """Least time after `late` ranks arrive together, the early ones being reduced; bandwidth only.

    Returns:
        max(1, (n - 1 + late)/n) times s beta, in seconds.
    """
    return max(1.0, (ranks - 1 + late) / ranks) * seconds


def completion_seconds(arrivals: Sequence[float], seconds: float, alpha: float = 0.0) -> float:
    """Earliest end of any AllReduce whose ranks come at `arrivals`, by counting transfers.

    From any time t on, with g ranks that come at t or later, at least n - 1 + g transfers of the buffer are
    left, each with a latency, for n ports of which a rank's opens when it comes. And the last rank's own
    buffer leaves through one port, after which its last part is on two ranks and doubles. Holds for
    messages of any sizes, and for any order of them (docs/bounds.md, Theorem 6).

    Args:
        arrivals: when each rank comes, in seconds on any clock, for 2 ranks or more.
        seconds: s beta, the time a whole buffer takes through one port.
        alpha: seconds that a message takes beside its bytes.

    Returns:
        Seconds on the clock of the arrivals.

    Raises:
        UsageError: fewer than 2 ranks, or times that are not finite.

    >>> completion_seconds([0.0, 0.0, 0.0, 5.0], 1.0)
    6.0
    """
    ranks, times = len(arrivals), sorted(arrivals)
    if ranks < 2 or not all(map(isfinite, (*times, seconds, alpha))):
        raise UsageError("a bound needs the finite arrivals of 2 ranks or more")
    least = times[-1] + seconds + ceil_log2(ranks) * alpha
    for place, time in enumerate(times):
        # Before the second rank comes nothing can be done; so no earlier time is better.
        if place == 1 or (place and time > times[place - 1]):
            late = min(ranks - place, ranks - 1)
            opened = time * place + sum(times[place:])
            least = max(least, (opened + (ranks - 1 + late) * (seconds + alpha)) / ranks)
    return least
