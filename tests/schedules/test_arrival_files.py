"""Trace files: every documented form, round trips, and files that somebody else made badly."""

import doctest
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stragglar.schedules import (
    FormatError,
    StragglarError,
    UsageError,
    arrival_columns,
    arrival_files,
    arrivals,
)
from stragglar.schedules.arrival_files import dump_trace, load_trace, parse_trace, save_trace
from stragglar.schedules.arrivals import ArrivalTrace

EXPECTED = [[0.0, 0.002], [0.0, 0.0], [0.5, 0.0]]


def long_form(column, scale):
    rows = "".join(
        f"{i},{r},{value * scale:.12g}\n" for i, row in enumerate(EXPECTED) for r, value in enumerate(row)
    )
    return f"iteration,rank,{column}\n{rows}"


FORMS = {
    "seconds": long_form("arrival_s", 1),
    "milliseconds": long_form("arrival_ms", 1e3),
    "microseconds": long_form("ts_us", 1e6),
    "torch": long_form("ts (us)", 1e6),
    "mu": long_form("Start [µs]", 1e6),
    "nanoseconds": long_form("start_ns", 1e9),
    "spaces": long_form("arrival_s", 1).replace(",", " , ").replace("\n", "\r\n"),
    "bom and comments": "\ufeff" + long_form("timestamp_s", 1).replace("\n", "\n# more\n\n"),
    "other columns": long_form("arrival_s", 1).replace("\n", ",x\n").replace("_s,x", "_s,end_ns"),
    "exponents": "step,rank,time_s\n0,0,1e-1\n0,1,1.02E-1\n1,0,.5\n1,1,+5e-1\n2,0,1.\n2,1,0.5\n",
    "wide": "rank_0,rank_1\n1,1.002\n-1,-1\n7.5,7\n",
    "wide with iterations and units": "iteration,rank_1_ns,rank_0_ns\n5,2000000,0\n6,1,1\n7,0,500000000\n",
    "wide json": '{"rank_0": 1, "rank_1": 1.002}\n{"rank_1": 3, "rank_0": 3}\n{"rank_0": 1.5, "rank_1": 1}\n',
    "json": "".join(
        json.dumps({"rank": r, "iteration": i, "arrival_ns": int(value * 1e9), "name": "all_reduce"}) + "\n"
        for i, row in enumerate(EXPECTED)
        for r, value in enumerate(row)
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form(form):
    assert parse_trace(FORMS[form].encode()).seconds.tolist() == EXPECTED


def test_iterations_are_put_in_order():
    lines = FORMS["seconds"].splitlines()
    shuffled = "\n".join([lines[0], *reversed(lines[1:])])
    assert parse_trace(shuffled.encode()).seconds.tolist() == EXPECTED


def test_nanoseconds_since_1970_lose_nothing():
    # As doubles the two would be equal.
    text = "iteration,rank,start_ns\n0,0,1700000000000000001\n0,1,1700000000000000002\n"
    assert parse_trace(text.encode()).seconds.tolist() == [[0, 1e-9]]
    micro = "".join(f'{{"iteration":0,"rank":{r},"ts_us":1700000000000000.00{r}}}\n' for r in (0, 1))
    assert parse_trace(micro.encode()).seconds.tolist() == [[0, 1e-9]]


whole_picoseconds = st.integers(2, 5).flatmap(
    lambda ranks: st.lists(
        st.lists(st.integers(0, 10**13), min_size=ranks, max_size=ranks), min_size=1, max_size=8
    )
)


@given(whole_picoseconds)
def test_a_trace_survives_its_file(rows):
    exact = np.array(rows) - np.min(rows, axis=1, keepdims=True)
    trace = ArrivalTrace(exact / 1e12, note="made up")
    text = dump_trace(trace)
    again = parse_trace(text.encode())
    assert again.seconds.tolist() == trace.seconds.tolist() and again.note == "made up"
    assert dump_trace(again) == text


@given(st.lists(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3), min_size=1, max_size=5))
def test_a_file_keeps_picoseconds(rows):
    trace = ArrivalTrace.of(rows)
    np.testing.assert_allclose(parse_trace(dump_trace(trace).encode()).seconds, trace.seconds, atol=1.01e-12)


def test_files_on_disk(tmp_path):
    path = str(tmp_path / "t.csv")
    save_trace(ArrivalTrace.of(EXPECTED), path)
    assert load_trace(path).seconds.tolist() == EXPECTED
    with pytest.raises(UsageError, match="cannot read"):
        load_trace(str(tmp_path / "none.csv"))


def test_incomplete_iterations_are_left_out_and_named():
    text = "iteration,rank_0,rank_1,rank_2\n0,1,2,3\n10,,2,\n20,4,4,4\n30,1,1,\n"
    trace = parse_trace(text.encode())
    assert trace.seconds.tolist() == [[0, 1, 2], [0, 0, 0]] and trace.incomplete == 2
    assert trace.complaints == ("iteration 10 lacks ranks 0, 2", "iteration 30 lacks rank 2")


def test_complaints_are_few_and_short():
    rows = "".join(f"{i},{r},0\n" for i in range(100) for r in range(40) if i == 0 or r == 39)
    trace = parse_trace(f"iteration,rank,arrival_s\n{rows}".encode())
    assert trace.incomplete == 99 and len(trace.complaints) == 8
    assert trace.complaints[0].endswith("5, 6, 7 and 31 more")


HEAD = "iteration,rank,arrival_s\n0,0,1\n"
BAD = {
    "": "t.csv: empty",
    "# only this\n\n": "t.csv: empty",
    "iteration,rank,arrival_s\n": "t.csv: no arrivals",
    "rank_0,rank_1\n,\n": "t.csv: no arrivals",
    f"{HEAD}0,1": "t.csv:3: 2 cells under 3 columns",
    f"{HEAD}0,1,2,3": "t.csv:3: 4 cells under 3 columns",
    f"{HEAD}0,1,": "t.csv:3: not a time: ''",
    f"{HEAD}0,,1": "t.csv:3: the rank must be",
    f"{HEAD}-1,1,1": "t.csv:3: the iteration must be a whole number",
    f"{HEAD}0.5,1,1": "t.csv:3: the iteration must be a whole number",
    f"{HEAD}0,-1,1": "t.csv:3: the rank must be a whole number from 0",
    f"{HEAD}0,{10**6},1": "t.csv:3: the rank must be",
    f"{HEAD}0,²,1": "t.csv:3: the rank must be",
    f"{HEAD}{'9' * 5000},1,1": "t.csv:3: the iteration must be",
    f"{HEAD}\n# x\n0,1,soon": "t.csv:5: not a time: 'soon'",
    f"{HEAD}0,1,nan": "t.csv:3: not a time",
    f"{HEAD}0,1,inf": "t.csv:3: not a time",
    f"{HEAD}0,1,1e99": "t.csv:3: not a time",
    f"{HEAD}0,1,1e999999999": "t.csv:3: not a time",
    f"{HEAD}0,1,1_0": "t.csv:3: not a time",
    f"{HEAD}0,1,{'1' * 5000}": "t.csv:3: not a time",
    f"{HEAD}0,1,1e9": "t.csv:3: more than 46 days",
    f"{HEAD}0,1,5000": "t.csv: iteration number 0: rank 1 comes 4999 s after the first",
    f"{HEAD}0,0,2\n0,1,2": "t.csv:3: rank 0 of iteration 0 again, first in line 2",
    f"{HEAD}1,1,1": "t.csv: no iteration has all 2 ranks: iteration 0 lacks rank 1",
    f"{HEAD}0,2,1": "t.csv: no iteration has all 3 ranks: iteration 0 lacks rank 1",
    f'{HEAD}0,1,"1': "t.csv:3: unexpected end of data",
    f"{HEAD}0,1,1\r0,2,1": "t.csv:3: new-line character",
    f"{HEAD}{'x' * (1 << 21)}": "t.csv:3: a line this long",
    "1,2,3\n": "t.csv:1: no column rank",
    "rank,arrival_s\n": "t.csv:1: no column iteration",
    "iteration,rank,arrival\n": "t.csv:1: no time column .*: arrival has no unit, name it arrival_us",
    "iteration,rank,end_ns\n": "t.csv:1: no time column",
    "iteration,rank,rank_0\n": "t.csv:1: columns rank and rank_0 together",
    "iteration,step,rank,ts_us\n": "t.csv:1: more than one column for the iteration",
    "iteration,rank,ts_us,ts_ns\n": "t.csv:1: more than one column ts",
    "rank_0,rank_2\n": "t.csv:1: columns of 2 ranks must be rank_0 to rank_1, each once",
    "rank_0,rank_0\n": "t.csv:1: columns of 2 ranks",
    "rank_999999\n": "t.csv:1: columns of 1 ranks",
    '{"iteration":0,"rank":0,"arrival_ns":1}\n{"iteration":0': "t.csv:2: not JSON",
    '{"iteration":0,"rank":0,"arrival_ns":1}\n[]': "t.csv:2: expected one JSON object",
    '{"iteration":0,"rank":0,"arrival_ns":1}\n[[1,2]]': "t.csv:2: expected one JSON object",
    '{"iteration":0,"rank":0,"arrival_ns":1}\n7': "t.csv:2: expected one JSON object",
    '{"iteration":0,"rank":true,"arrival_ns":1}': "t.csv:1: the rank must be",
    '{"iteration":0,"rank":0.0,"arrival_ns":1}': "t.csv:1: the rank must be",
    '{"iteration":0,"rank":0,"arrival_ns":NaN}': "t.csv:1: not a time",
    '{"iteration":0,"rank":0,"arrival_ns":[1]}': "t.csv:1: not a time: 'list'",
    '{"iteration":0,"rank":0,"rank":1,"arrival_ns":1}': "t.csv:1: more than one column for the rank",
    '{"iteration":0,"rank":0}': "t.csv:1: no time column",
    '{"a":' + "[" * 100_000: "t.csv:1: ",
}


@pytest.mark.parametrize("text", BAD, ids=lambda text: text[-30:])
def test_bad_files_are_named_with_their_line(text):
    with pytest.raises(FormatError, match=BAD[text]) as caught:
        parse_trace(text.encode(), "t.csv")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("text", [HEAD, "rank_0\n1\n", '{"iteration":0,"rank":0,"arrival_s":1}'])
def test_one_rank_is_no_trace(text):
    with pytest.raises(UsageError, match="2 ranks or more"):
        parse_trace(text.encode())


def test_bytes_that_are_no_text():
    with pytest.raises(FormatError, match="not UTF-8"):
        parse_trace(b"iteration,rank\xff")


def test_more_arrivals_than_a_trace_may_have(monkeypatch):
    monkeypatch.setattr(arrival_files, "MAX_ENTRIES", 3)
    with pytest.raises(FormatError, match=":3: more than 3 arrivals"):
        parse_trace(b"rank_0,rank_1\n1,2\n1,2\n")


WORDS = (
    'iteration rank arrival_s rank_0 rank_1 ts_ns 0 1 -1 1e5 nan " { } , , , # '
    '{"iteration":0,"rank":1,"arrival_s": {"rank_0":1,"rank_1":2}'
)
pieces = st.sampled_from([*WORDS.split(), "\n", "\n", "\r"])


@given(st.one_of(st.binary(max_size=100), st.lists(pieces, max_size=60).map(lambda p: "".join(p).encode())))
def test_any_bytes_give_a_trace_or_one_of_our_errors(data):
    try:
        trace = parse_trace(data)
    except StragglarError:
        return
    assert (trace.seconds.min(axis=1) == 0).all()


@given(
    st.lists(
        st.sampled_from(["0,0,1", "0,1,2", "1,0,3", "1,1,4", "1,1,5", "0,1", "x,0,1", "2,0,1"]), max_size=8
    )
)
def test_rows_that_are_good_alone_may_be_bad_together(rows):
    """An independent reading of the rules: a bad row or a second arrival is an error, a gap a complaint."""
    keys = [row.split(",")[:2] for row in rows]
    data = "\n".join(["iteration,rank,arrival_s", *rows]).encode()
    full = [i for i in {k[0] for k in keys} if [i, "0"] in keys and [i, "1"] in keys]
    bad = any(row in ("0,1", "x,0,1") for row in rows) or any(keys.count(k) > 1 for k in keys)
    if bad or not full:
        with pytest.raises((FormatError, UsageError)):
            parse_trace(data)
    else:
        trace = parse_trace(data)
        assert trace.iterations == len(full)
        assert trace.incomplete == len({k[0] for k in keys}) - len(full)


@pytest.mark.parametrize(
    ("table", "error"),
    [
        ([[0.0]], UsageError),
        ([0.0, 1.0], UsageError),
        (np.empty((0, 2)), UsageError),
        ([["a", "b"]], UsageError),
        ([[0.0, 1.0], [0.0]], UsageError),
        ([[0.0, float("nan")]], FormatError),
        ([[0.0, float("inf")]], FormatError),
        ([[0.0, 3601.0]], FormatError),
    ],
)
def test_traces_that_cannot_be(table, error):
    with pytest.raises(error):
        ArrivalTrace.of(table)


def test_a_trace_counts_from_the_first_and_is_read_only():
    with pytest.raises(UsageError, match=r"ArrivalTrace\.of"):
        ArrivalTrace(np.array([[1.0, 2.0]]))
    with pytest.raises(ValueError, match="read-only"):
        ArrivalTrace.of([[1.0, 2.0]]).seconds[0, 0] = 1


@pytest.mark.parametrize("module", [arrivals, arrival_columns, arrival_files])
def test_examples(module):
    failed, tried = doctest.testmod(module)
    assert tried and not failed
