"""Every rule catches a mutation, with its exact words, and agrees with the second opinion of `brute.py`."""

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from stragglar.schedules import (
    RULES,
    InvalidScheduleError,
    Op,
    Phase,
    Schedule,
    Transfer,
    require_valid,
    trace,
    validate,
)
from stragglar.schedules.ir import MAX_CHUNKS

from . import brute
from .cases import (
    FOUR_POST,
    C,
    R,
    arbitrary,
    four,
    published,
    rebuilt,
    ring,
    rows_of,
    two_groups,
    valid_schedules,
)

EXCHANGE = ((0, 1, 0, 1, C), (1, 0, 0, 1, C))


def _post(**rounds):
    post = [list(rows) for rows in FOUR_POST] + [[]]
    for name, rows in rounds.items():
        post[int(name[1:])] += rows
    return four(post=[rows for rows in post if rows])


MUTATIONS = {
    "one-send": (_post(r0=[(0, 1, 0, 1, C)]), ["post round 0: rank 0 sends 2 messages"]),
    "one-receive": (_post(r3=[(0, 1, 0, 1, C)]), ["post round 3: rank 1 receives 2 messages"]),
    "late-untouched": (
        four(pre=lambda rounds: [*rounds, [(3, 0, 2, 1, C)]]),
        ["pre round 2: 3 -> 0 touches rank 3, which has not arrived"],
    ),
    "send-of-arriving": (
        _post(r4=EXCHANGE),
        [
            "post round 4: rank 0 sends chunk 0 to rank 1 while this round delivers it to rank 0",
            "post round 4: rank 1 sends chunk 0 to rank 0 while this round delivers it to rank 1",
        ],
    ),
    "double-count": (
        _post(r4=[(1, 0, 0, 1, R)]),
        ["post round 4: rank 0 would add rank 0's part of chunk 0 twice (and 3 other parts)"],
    ),
    "incomplete": (
        four(post=(*FOUR_POST[:3], FOUR_POST[3][:2])),
        ["after post: rank 0 ends without rank 1's part of chunk 2 (and 2 other parts)"],
    ),
}


def test_every_rule_has_a_mutation():
    assert set(MUTATIONS) == set(RULES)


@pytest.mark.parametrize("rule", RULES)
def test_a_mutation_is_caught_in_these_words(rule):
    assert validate(four()).valid
    schedule, messages = MUTATIONS[rule]
    outcome = validate(schedule)
    assert [str(v) for v in outcome.violations] == messages
    assert {v.rule for v in outcome.violations} == {rule}
    assert outcome.total == len(messages)


def test_one_part_counted_twice_is_named():
    filler = [[(0, 1, 0, 1, R)], [(1, 3, 0, 1, R)], [(3, 4, 0, 1, R)]]
    rounds = [[(5, 2, 3, 1, R)], *filler, [(5, 2, 3, 1, R)]]
    outcome = validate(Schedule(6, (), 4, (Phase.build("post", rounds),)))
    first = outcome.violations[0]
    assert str(first) == "post round 4: rank 2 would add rank 5's part of chunk 3 twice"
    assert (first.rule, first.phase, first.round, first.rank, first.chunk) == (
        "double-count",
        "post",
        4,
        2,
        3,
    )


def test_one_other_part_is_singular():
    rounds = [[(0, 1, 0, 1, R)], [(1, 2, 0, 1, R)], [(1, 2, 0, 1, R)]]
    outcome = validate(Schedule(3, (), 1, (Phase.build("post", rounds),)))
    assert (
        str(outcome.violations[0])
        == "post round 2: rank 2 would add rank 0's part of chunk 0 twice (and 1 other part)"
    )


@pytest.mark.parametrize("index", range(len(valid_schedules())))
def test_valid_schedules_are_valid_twice_over(index):
    schedule = valid_schedules()[index]
    held, faults = brute.follow(schedule)
    assert not faults and brute.is_allreduce(schedule, held)
    assert validate(schedule).valid
    assert require_valid(schedule) is schedule


@pytest.mark.parametrize("ranks", [63, 64, 65, 130])
def test_sets_of_more_ranks_than_a_word_has_bits(ranks):
    assert validate(ring(ranks)).valid
    phases = rows_of(ring(ranks))
    phases[0][-1] = phases[0][-1][:-1]
    assert validate(rebuilt(ring(ranks), phases)).total == 1


def _as_reported(outcome):
    return sorted((v.rule, v.phase, v.round, v.rank, v.chunk) for v in outcome.violations)


def _agree(schedule):
    held, faults = brute.follow(schedule)
    outcome = validate(schedule, limit=100_000)
    assert _as_reported(outcome) == sorted(faults)
    assert outcome.total == len(faults)
    assert outcome.valid == (not faults)
    assert brute.is_allreduce(schedule, held) or not outcome.valid


@given(arbitrary())
@settings(max_examples=100)
def test_agrees_with_multisets_on_arbitrary_schedules(schedule):
    _agree(schedule)


@st.composite
def mutated(draw):
    """A valid schedule with one message dropped, changed, copied or moved."""
    schedule = draw(st.sampled_from(valid_schedules()))
    phases = rows_of(schedule)
    rounds = [(p, r) for p, phase in enumerate(phases) for r in range(len(phase))]
    phase, where = draw(st.sampled_from(rounds))
    row = phases[phase][where].pop(draw(st.integers(0, len(phases[phase][where]) - 1)))
    src, dst, first, count, op = row
    rank, chunk = st.integers(0, schedule.ranks - 1), st.integers(0, schedule.chunks - 1)
    kind = draw(st.sampled_from(["drop", "src", "dst", "chunk", "count", "op", "move", "copy"]))
    to = draw(st.sampled_from(rounds)) if kind in ("move", "copy") else (phase, where)
    changed = {
        "src": lambda: (draw(rank), dst, first, count, op),
        "dst": lambda: (src, draw(rank), first, count, op),
        "chunk": lambda: (src, dst, draw(chunk), 1, op),
        "count": lambda: (src, dst, first, draw(st.integers(1, schedule.chunks - first)), op),
        "op": lambda: (src, dst, first, count, 1 - op),
    }.get(kind, lambda: row)()
    assume(changed[0] != changed[1])
    if kind == "copy":
        phases[phase][where].append(row)
    if kind != "drop":
        phases[to[0]][to[1]].append(changed)
    return rebuilt(schedule, phases)


@given(mutated())
@settings(max_examples=150)
def test_agrees_with_multisets_on_mutations(schedule):
    _agree(schedule)


def _crossed():
    """Every round adds twice at ranks 2 and 3, in chunks 0 to 5; the message to rank 3 stands first."""
    rounds = [[(0, 3, 0, 6, R), (1, 2, 0, 6, R)]] * 3
    return Schedule(4, (), 6, (Phase.build("post", rounds),))


@given(mutated() | arbitrary(), st.sampled_from([1, 130, 200, 400]), st.sampled_from([1, 3, 1000]))
@settings(max_examples=60)
@example(MUTATIONS["send-of-arriving"][0], 1, 1)
@example(_crossed(), 1, 1)
@example(_crossed(), 64, 3)
@example(_crossed(), 128, 1000)
def test_blocks_of_chunks_change_nothing(schedule, state_bytes, limit):
    whole, saved = validate(schedule, limit), trace.STATE_BYTES
    trace.STATE_BYTES = state_bytes
    try:
        assert validate(schedule, limit) == whole
    finally:
        trace.STATE_BYTES = saved


@given(mutated() | arbitrary())
@settings(max_examples=50)
@example(_crossed())
def test_the_limit_keeps_the_first_and_counts_all(schedule):
    everything = validate(schedule, limit=100_000)
    for limit in (0, 1, 2, 5):
        some = validate(schedule, limit)
        assert some.total == everything.total == len(everything.violations)
        assert some.violations == everything.violations[: max(1, limit)]


def test_many_violations_in_many_rounds_are_counted():
    rounds = [[(0, 1, 0, 8, R)]] * 50
    outcome = validate(Schedule(2, (), 8, (Phase.build("post", rounds),)), limit=3)
    assert outcome.total == 49 * 8 + 8
    assert [(v.round, v.chunk) for v in outcome.violations] == [(1, 0), (1, 1), (1, 2)]


def test_require_valid_names_the_first_and_counts_the_rest():
    with pytest.raises(InvalidScheduleError, match=r"^post round 0: rank 0 sends 2 messages$"):
        require_valid(MUTATIONS["one-send"][0])
    with pytest.raises(InvalidScheduleError, match=r"delivers it to rank 0 \(and 1 more\)$"):
        require_valid(MUTATIONS["send-of-arriving"][0])


def test_late_ranks_of_a_later_group_are_untouched():
    phases = rows_of(two_groups())
    phases[1][1].append((2, 3, 0, 1, C))
    messages = [str(v) for v in validate(rebuilt(two_groups(), phases)).violations]
    assert "arrival1 round 1: 2 -> 3 touches rank 3, which has not arrived" in messages


@pytest.mark.slow
@given(arbitrary() | mutated())
@settings(max_examples=2000)
def test_agrees_with_multisets_at_length(schedule):
    _agree(schedule)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [12, 16, 30, 48])
def test_larger_imports_agree_with_multisets(ranks):
    _agree(published(ranks))


def test_chunks_that_no_message_tells_apart_cost_nothing():
    """A short file may claim many chunks: what is followed are the chunks that messages tell apart."""
    many = MAX_CHUNKS
    swap = [Transfer(0, 1, 0, many, Op.REDUCE), Transfer(1, 0, 0, many, Op.REDUCE)]
    assert validate(Schedule(2, (), many, (Phase.build("post", [swap]),))).valid
    half = [Transfer(0, 1, 0, many - 5, Op.REDUCE), Transfer(1, 0, 0, many - 5, Op.REDUCE)]
    found = validate(Schedule(2, (), many, (Phase.build("post", [half]),)), limit=7)
    assert found.total == 10 and [v.chunk for v in found.violations] == [
        *range(many - 5, many),
        many - 5,
        many - 4,
    ]


def test_holders_of_chunks_that_no_message_tells_apart():
    """They are followed as one and counted each: such a file once took for ever to draw."""
    swap = [Transfer(0, 1, 0, MAX_CHUNKS, Op.REDUCE), Transfer(1, 0, 0, MAX_CHUNKS, Op.REDUCE)]
    (counts,) = trace.holders(Schedule(2, (), MAX_CHUNKS, (Phase.build("post", [swap]),)))
    assert counts.shape == (1, MAX_CHUNKS) and (counts == 2).all()
