"""Who is to blame for a wait that has been too long."""

from hypothesis import given
from hypothesis import strategies as st

from stragglar.backends.waits import EVERYONE, Blocked, blame

PHASES = ("pre", "post")


def test_whoever_does_not_answer_is_named():
    answers = {0: Blocked(1, 1, 4), 1: Blocked(2, 1, 4)}
    assert blame(0, range(3), answers, 2.0, PHASES) == (
        "rank 2 does not respond: rank 0 waited 2.0 s for rank 1 in post round 4"
    )
    assert blame(0, range(4), answers, 2.0, PHASES).startswith("ranks 2, 3 do not respond")


def test_the_end_of_the_chain_holds_up_the_others():
    answers = {0: Blocked(1, 0, 0), 1: Blocked(2, 0, 0), 2: EVERYONE}
    assert blame(0, range(3), answers, 1.0, PHASES).startswith("rank 2 holds up the others: rank 0 waited")


@given(st.integers(2, 9), st.data())
def test_chains_of_any_shape_end_at_a_rank_that_is_waited_for(n, data):
    answers = {r: Blocked(data.draw(st.integers(-1, n - 1)), 0, 0) for r in range(n)}
    told = blame(0, range(n), answers, 1.0, PHASES)
    culprit = int(told.split()[1])
    waited_for = {a.peer for a in answers.values()}
    assert culprit in waited_for or culprit == 0
