"""Objects refuse to be born invalid; equal schedules are equal however they were put together."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stragglar.schedules import InvalidScheduleError, Op, Origin, Phase, Schedule, Transfer
from stragglar.schedules.ir import MAX_CHUNKS, MAX_RANKS

from .cases import C, R, arbitrary, four, ring, rows_of, two_groups

SWAP = [(0, 1, 0, 1, R), (1, 0, 0, 1, R)]


def post(*rounds):
    return (Phase.build("post", rounds),)


SCHEDULES = {
    "ranks must be 2..16384, not 1": lambda: Schedule(1, (), 1, post()),
    "ranks must be 2..16384, not 16385": lambda: Schedule(MAX_RANKS + 1, (), 1, post()),
    "chunks must be 1..16777216, not 0": lambda: Schedule(2, (), 0, post()),
    "chunks must be 1..16777216, not 16777217": lambda: Schedule(2, (), MAX_CHUNKS + 1, post()),
    "collective 'broadcast' is not known": lambda: Schedule(2, (), 1, post(), collective="broadcast"),
    "phases must be post, not pre, post": lambda: Schedule(2, (), 1, four().phases),
    "phases must be pre, post, not post": lambda: Schedule(2, ((1,),), 1, post()),
    "phases must be pre, arrival1, post, not": lambda: Schedule(4, ((2,), (3,)), 3, four().phases),
    "a group of late ranks is empty": lambda: Schedule(2, ((),), 1, four().phases),
    "must be ascending": lambda: Schedule(4, ((3, 2),), 3, four().phases),
    "late ranks must be in 0..3": lambda: Schedule(4, ((4,),), 3, four().phases),
    "late ranks must be in 0..3, not -1": lambda: Schedule(4, ((-1,),), 3, four().phases),
    "a late rank is named twice": lambda: Schedule(4, ((3,), (3,)), 3, two_groups().phases),
    "all ranks are late": lambda: Schedule(2, ((0, 1),), 3, four().phases),
    "post round 1: src is not a rank (2 -> 1, chunks 0..0, of 2 ranks and 1 chunks)": lambda: Schedule(
        2, (), 1, post(SWAP, [(2, 1, 0, 1, R)])
    ),
    "post round 0: dst is not a rank": lambda: Schedule(2, (), 1, post([(1, 2, 0, 1, R)])),
    "a rank sends to itself": lambda: Schedule(2, (), 1, post([(1, 1, 0, 1, R)])),
    "count is below 1": lambda: Schedule(2, (), 1, post([(1, 0, 0, 0, R)])),
    "chunks past the end": lambda: Schedule(2, (), 4, post([(1, 0, 2, 3, R)])),
    "op is neither reduce nor copy": lambda: Schedule(2, (), 4, post([(1, 0, 0, 1, 2)])),
}


@pytest.mark.parametrize("message", SCHEDULES)
def test_local_rules_of_a_schedule(message):
    with pytest.raises(InvalidScheduleError) as caught:
        SCHEDULES[message]()
    assert message in str(caught.value)


SHAPE = "a round must be a non-empty set of integers"
ROUNDS = {
    "empty": ([], SHAPE),
    "empty table": (np.empty((0, 5), dtype=np.int64), "every round needs at least one transfer"),
    "four columns": ([(0, 1, 0, 1)], SHAPE),
    "different lengths": ([(0, 1, 0, 1, 0), (0, 1)], SHAPE),
    "floats": ([(0, 1, 0.5, 1, 0)], SHAPE),
    "float table": (np.array([[0, 1, 0, 1, 0]], dtype=float), SHAPE),
    "digits": ([("0", "1", "0", "1", "0")], SHAPE),
    "huge": ([(0, 1, 2**70, 1, 0)], SHAPE),
    "large": ([(0, 1, 2**40, 1, 0)], "negative or above"),
    "negative": ([(0, 1, -1, 1, 0)], "negative or above"),
}


@pytest.mark.parametrize("name", ROUNDS)
def test_local_rules_of_a_round(name):
    rows, message = ROUNDS[name]
    with pytest.raises(InvalidScheduleError, match=message):
        Phase.build("post", [SWAP, rows])


def _table(rows, dtype=np.int32):
    return np.array(rows, dtype=dtype).reshape(-1, 5)


def _offsets(*ends, dtype=np.int64):
    return np.array(ends, dtype=dtype)


PHASES = {
    "every round needs": [
        lambda: Phase("post", _table(SWAP), _offsets(0, 1)),
        lambda: Phase("post", _table(SWAP), _offsets(0, 2, 2)),
        lambda: Phase("post", _table(SWAP), _offsets(1, 2)),
        lambda: Phase("post", _table(SWAP), _offsets()),
    ],
    "5 columns": [lambda: Phase("post", np.zeros((1, 4), dtype=np.int32), _offsets(0, 1))],
    "must be int32": [
        lambda: Phase("post", _table(SWAP, np.int64), _offsets(0, 2)),
        lambda: Phase("post", _table(SWAP), _offsets(0, 2, dtype=np.int32)),
    ],
    "canonical order": [
        lambda: Phase("post", _table(SWAP[::-1]), _offsets(0, 2)),
        lambda: Phase("post", _table([(0, 1, 0, 1, C), (1, 0, 0, 1, R)]), _offsets(0, 2)),
    ],
}


@pytest.mark.parametrize(("message", "make"), [(m, make) for m, makes in PHASES.items() for make in makes])
def test_local_rules_of_a_phase(message, make):
    with pytest.raises(InvalidScheduleError, match=message):
        make()


@pytest.mark.parametrize(
    "arguments",
    [
        ("",),
        ("x" * 81,),
        ("a\nb",),
        ("\ud800",),
        ("x", (("a", 1), ("a", 2))),
        ("x", (("\x1b[31m", 1),)),
        ("x", (("a", ""),)),
    ],
)
def test_local_rules_of_an_origin(arguments):
    with pytest.raises(InvalidScheduleError, match="origin: "):
        Origin(*arguments)


def test_order_of_a_round_is_canonical():
    rows = [
        (0, 1, 0, 1, C),
        (1, 0, 2, 1, C),
        (1, 0, 0, 1, C),
        (1, 0, 0, 2, C),
        (3, 2, 0, 1, R),
        (3, 1, 0, 1, R),
    ]
    table = Phase.build("post", [rows]).table.tolist()
    assert [row[4] for row in table] == [0, 0, 1, 1, 1, 1]
    assert table == [list(row) for row in sorted(rows, key=lambda t: (t[4], *t[:4]))]


@given(arbitrary(), st.randoms())
@settings(max_examples=50)
def test_equal_however_put_together(schedule, random):
    phases = []
    for phase, rounds in zip(schedule.phases, rows_of(schedule), strict=True):
        for rows in rounds:
            random.shuffle(rows)
        objects = [[Transfer(*row[:4], Op(row[4])) for row in rows] for rows in rounds]
        phases.append(Phase.build(phase.name, objects))
    again = Schedule(
        schedule.ranks,
        schedule.arrivals,
        schedule.chunks,
        tuple(phases),
        schedule.origin,
        schedule.collective,
    )
    assert again == schedule
    assert hash(again) == hash(schedule)
    assert all(
        a.table.tobytes() == b.table.tobytes() for a, b in zip(again.phases, schedule.phases, strict=True)
    )


def test_unequal():
    assert ring(3) != ring(3, 2)
    assert four() != ring(4)
    assert Phase.build("pre", [SWAP]) != Phase.build("post", [SWAP])
    assert Phase.build("post", [SWAP]) != Phase.build("post", [SWAP[:1], SWAP[1:]])
    assert Phase.build("post", [SWAP]) != "post"


def test_what_is_built_cannot_be_changed():
    phase = four().post
    with pytest.raises(ValueError, match="read-only"):
        phase.table[0, 0] = 1
    with pytest.raises(ValueError, match="read-only"):
        phase.offsets[0] = 1
    with pytest.raises(AttributeError):
        phase.name = "pre"


def test_views():
    schedule = two_groups()
    assert (schedule.late, schedule.early) == ((2, 3), (0, 1))
    assert [schedule.absent(i) for i in range(3)] == [(2, 3), (3,), ()]
    assert schedule.post is schedule.phases[-1]
    assert schedule.transfer_count == 2 + 3 + 4
    assert four().post.transfers(3)[0] == Transfer(1, 2, 1, 1, Op.COPY)
    assert list(Transfer(0, 1, 3, 2, Op.COPY).chunks) == [3, 4]
    assert four().post.round_index().tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3]
    assert ring(3, 4).post.chunk_rounds == 16
    assert four().phases[0].chunk_rounds == 2
    assert Phase.build("pre", []).chunk_rounds == 0
    assert repr(four().post) == "Phase('post', 4 rounds, 12 transfers)"
