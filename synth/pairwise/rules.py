"""What pairing means, checked on rounds, and what it costs at least."""

from __future__ import annotations

from ...schedules import bounds
from ..merge.rounds import InvalidMergeError, MergeRounds
from ..merge.verify import check_merge_rounds


def check_pairwise(m: MergeRounds) -> None:
    """Replay the rounds as `check_merge_rounds` does, and check that every send peer is the receive peer.

    Raises:
        InvalidMergeError: naming the rule and the round.
    """
    check_merge_rounds(m)
    for r, rows in enumerate(m.rounds):
        to = dict(rows[:, :2].tolist())
        for src, dst in to.items():
            if to.get(dst, src) != src:
                raise InvalidMergeError(f"round {r}: rank {dst} receives from {src} but sends to {to[dst]}")


def pairwise_bound(early: int, chunks: int) -> int:
    """Fewest rounds of any pairwise post phase for N early ranks and k chunks.

    Count the deliveries that bring an early rank the late rank's part of a chunk: N k are needed. In
    round r = 0, 1, ... at most min(2^r, N) early ranks get one, as holders of such parts double. Where N
    is even, pairs leave out one of the N + 1 ranks, in k rounds or more not the late one, which has k
    parts to send: then an early rank gets nothing. In k + 1 rounds, if no more rounds are allowed than
    without pairing: the other holder of the last part is not enough to bring it to all.

    >>> pairwise_bound(5, 5), pairwise_bound(6, 6)  # the latter is one over the bound without pairing
    (7, 9)
    """
    startup, fewest = bounds.ceil_log2(early), bounds.post_rounds(early + 1, chunks, 1)
    alone_too_slow = startup > fewest - chunks

    def rounds(swaps: int) -> int:
        lost = max(0, swaps - startup) if early % 2 == 0 else 0
        needed = early * chunks + lost - ((1 << startup) - 1)
        return max(fewest, startup + max(0, -(-needed // early)))

    return max(rounds(chunks), min(rounds(chunks + alone_too_slow), fewest + 1))
