"""The text of the published synthesizers: read exactly, and refused line by line where it is not that."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stragglar.schedules import FormatError, Op, Transfer, certify, dump_schedule, parse_schedule, validate
from stragglar.schedules.published import import_published
from stragglar.schedules.reduce_scatter import ring_reduce_scatter

from .cases import DATA, published

# Rounds of the post phase as the synthesizers counted them themselves.
OFFICIAL_ROUNDS = {6: 7, 8: 9, 12: 15, 16: 18, 30: 38, 48: 55}


@pytest.mark.parametrize("ranks", OFFICIAL_ROUNDS)
def test_imports_and_is_an_allreduce(ranks):
    schedule = published(ranks)
    assert (schedule.ranks, schedule.chunks, schedule.late) == (ranks, ranks - 1, (ranks - 1,))
    assert validate(schedule).valid
    assert certify(schedule).rounds == {"pre": ranks - 2, "post": OFFICIAL_ROUNDS[ranks]}
    assert parse_schedule(dump_schedule(schedule).encode()) == schedule
    assert schedule.origin.family == "imported"
    assert dict(schedule.origin.parameters)["source"] == f"published_{ranks}.txt"


def test_every_matching_becomes_its_messages():
    text = (DATA / "published_8.txt").read_text(encoding="utf-8")
    swaps, one, two = (text.count(kind) for kind in ("StragglerM", "OneWayM", "TwoWayM"))
    ops = [t.op for r in range(9) for t in published(8).post.transfers(r)]
    assert (ops.count(Op.REDUCE), ops.count(Op.COPY)) == (2 * swaps, one + 2 * two)
    assert published(8).post.transfers(1) == (
        Transfer(1, 7, 1, 1, Op.REDUCE),
        Transfer(7, 1, 1, 1, Op.REDUCE),
        Transfer(0, 3, 0, 1, Op.COPY),
    )
    pre = [table.tolist() for table in ring_reduce_scatter(range(7), [(c, 1) for c in range(7)])]
    assert [table.tolist() for table in published(8).phases[0].rounds()] == pre


SWAP = "'StragglerMatching: 0 <-> 2, chunk_id: 0'"
SWAP_1 = "'StragglerMatching: 1 <-> 2, chunk_id: 1'"
GOOD = f"Round 0\n1 [{SWAP}]\nRound 1\n2 [{SWAP_1}, 'OneWayMatching: 0 -> 1, chunk_id: 0']\n"


def test_spaces_and_empty_lines_do_not_matter():
    again = GOOD.replace("\n", "  \r\n\n")
    assert import_published(again, "a").phases == import_published(GOOD, "a").phases


BROKEN = {
    "no StragglerMatching": ["", "\n\n", "Round 0\n1 ['OneWayMatching: 0 -> 1, chunk_id: 0']\n"],
    "t.txt:1: expected 'Round 0', not 'Round 1'": ["Round 1\n1 [" + SWAP + "]"],
    "t.txt:1: expected 'Round 0', not": [
        "round 0",
        "Round",
        "Round zero",
        "Round 0 1",
        "[]",
        "\x00",
        "Round \u0660",
    ],
    "t.txt:3: expected 'Round 1', not": [
        GOOD.replace("Round 1", "Round 0"),
        GOOD.replace("Round 1", "Round 2"),
    ],
    "t.txt:2: expected a count and a list": [
        GOOD.replace("1 [", "[", 1),
        GOOD.replace("1 [", "x [", 1),
        GOOD.replace("']\nR", "'\nR"),
        f"Round 0\n1 __import__('os').system('id')\n{GOOD}",
    ],
    "t.txt:2: expected matchings in quotes": [
        "Round 0\n0 []\n",
        "Round 0\n1 [1]\n",
        f"Round 0\n1 [{SWAP[1:]}]",
    ],
    "t.txt:2: 2 matchings announced, 1 listed": [GOOD.replace("1 [", "2 [", 1)],
    "t.txt:4: 2 matchings announced, 1 listed": [GOOD.replace(", 'OneWayMatching: 0 -> 1, chunk_id: 0'", "")],
    "t.txt:2: not a matching: 'StragglerMatching: 0 -> 2, chunk_id: 0'": [GOOD.replace("0 <-> 2", "0 -> 2")],
    "t.txt:2: not a matching: ": [
        GOOD.replace("chunk_id: 0'", "chunk_id: 0.5'", 1),
        GOOD.replace("chunk_id: 0'", "chunk_id: -1'", 1),
        GOOD.replace("chunk_id: 0'", "chunk_id: " + "9" * 30 + "'", 1),
        GOOD.replace("chunk_id: 0'", "chunk: 0'", 1),
        GOOD.replace("Straggler", "Late", 1),
        GOOD.replace("0 <-> 2", "0  <-> 2"),
    ],
    "t.txt:4: the two ways are not between the same ranks": [
        GOOD.replace(
            "OneWayMatching: 0 -> 1, chunk_id: 0", "TwoWayMatching: 0 -> 1, chunk_id: 0; 1 -> 2, chunk_id: 1"
        ),
    ],
    "t.txt:4: rank 3 is late here, rank 2 before": [GOOD.replace("1 <-> 2", "1 <-> 3")],
    "t.txt:2: rank 999999999: at most 2048 ranks are read": [GOOD.replace("<-> 2", "<-> 999999999")],
    "t.txt:4: rank 3 is above the late rank 2": [
        GOOD.replace("0 -> 1", "0 -> 3"),
        GOOD.replace("0 -> 1", "3 -> 1"),
    ],
    "t.txt:4: chunk 2 does not exist: 2 early ranks own one each": [
        GOOD.replace("-> 1, chunk_id: 0", "-> 1, chunk_id: 2")
    ],
    "t.txt:4: a rank is matched with itself": [GOOD.replace("0 -> 1", "1 -> 1")],
    "t.txt:5: the text ends after the heading of round 2": [GOOD + "Round 2"],
}


@pytest.mark.parametrize(("message", "text"), [(m, text) for m, texts in BROKEN.items() for text in texts])
def test_what_is_wrong_and_where(message, text):
    with pytest.raises(FormatError) as caught:
        import_published(text, "t.txt")
    assert message in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


def test_too_long(monkeypatch):
    monkeypatch.setattr("stragglar.schedules.published.MAX_TEXT", 10)
    with pytest.raises(FormatError, match="longer than 10 characters"):
        import_published(GOOD, "t.txt")


@pytest.mark.parametrize("name", ["/a/b/" + "x" * 200 + ".txt", "a\nb", "", "/", "\x1b[31m"])
def test_any_name_is_a_source(name):
    source = dict(import_published(GOOD, name).origin.parameters)["source"]
    assert 1 <= len(source) <= 80


@given(st.integers(0, 900), st.sampled_from("0123456789[]',:;<-> \nRSO"), st.booleans())
@settings(max_examples=300)
def test_one_wrong_character_is_refused_or_read(at, character, insert):
    text = (DATA / "published_6.txt").read_text(encoding="utf-8")
    text = text[:at] + character + text[at + (not insert) :]
    try:
        schedule = import_published(text, "t.txt")
    except FormatError as error:
        assert str(error).startswith("t.txt")
        return
    assert parse_schedule(dump_schedule(schedule).encode()) == schedule
