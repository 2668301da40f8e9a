"""The schedule file: written and read back byte for byte; what is no schedule is refused in one line."""

import json
import subprocess
import sys
from importlib.resources import files

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stragglar.schedules import (
    FormatError,
    UsageError,
    dump_schedule,
    load_schedule,
    parse_schedule,
    save_schedule,
)
from stragglar.schedules import files as bounded_files

from .cases import arbitrary, big, four, published, ring, two_groups, valid_schedules

SCHEMA = json.loads(files("stragglar.schedules").joinpath("schedule.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


@given(arbitrary())
@settings(max_examples=60)
def test_round_trip(schedule):
    text = dump_schedule(schedule)
    again = parse_schedule(text.encode())
    assert again == schedule
    assert dump_schedule(again) == text
    VALIDATOR.validate(json.loads(text))


@pytest.mark.parametrize("index", range(len(valid_schedules())))
def test_known_schedules_round_trip(index):
    schedule = valid_schedules()[index]
    text = dump_schedule(schedule)
    assert parse_schedule(text.encode()) == schedule
    VALIDATOR.validate(json.loads(text))


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_the_text(golden):
    golden(dump_schedule(four()) + dump_schedule(two_groups()))


def test_other_spelling_of_the_same_schedule():
    document = json.loads(dump_schedule(four()))
    document["phases"][1]["rounds"][1]["reduce"].reverse()
    shuffled = {key: document[key] for key in reversed(document)}
    assert parse_schedule(json.dumps(shuffled, indent=3).encode()) == four()


PROCESS = """
import sys
from stragglar.schedules import dump_schedule, load_schedule
sys.stdout.write(dump_schedule(load_schedule(sys.argv[1])))
"""


def test_the_same_bytes_in_two_processes(tmp_path):
    path = tmp_path / "schedule.json"
    save_schedule(published(16), str(path))
    texts = [
        subprocess.run(
            [sys.executable, "-c", PROCESS, str(path)],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert texts[0] == texts[1] == path.read_bytes()


def test_files(tmp_path):
    path = tmp_path / "schedule.json"
    save_schedule(four(), str(path))
    assert load_schedule(str(path)) == four()
    save_schedule(ring(3), str(path))
    assert load_schedule(str(path)) == ring(3)
    assert [p.name for p in tmp_path.iterdir()] == ["schedule.json"]
    with pytest.raises(UsageError, match=r"missing\.json: cannot read it: No such file"):
        load_schedule(str(tmp_path / "missing.json"))
    with pytest.raises(UsageError, match="cannot write it"):
        save_schedule(four(), str(tmp_path / "no" / "folder.json"))


def test_files_too_large(tmp_path, monkeypatch):
    path = tmp_path / "schedule.json"
    save_schedule(four(), str(path))
    with pytest.raises(FormatError, match="larger than 10 bytes"):
        bounded_files.read_bounded(str(path), 10)
    monkeypatch.setattr("stragglar.schedules.format.MAX_FILE_BYTES", 10)
    with pytest.raises(FormatError, match="larger than 10 bytes"):
        parse_schedule(path.read_bytes(), str(path))


def test_a_large_file_is_small():
    schedule = big(256, 255)
    text = dump_schedule(schedule)
    assert schedule.transfer_count > 130_000
    assert len(text) < 5_000_000
    assert parse_schedule(text.encode()) == schedule


def _edited(edit):
    document = json.loads(dump_schedule(four()))
    edit(document)
    return document


def _set(*keys_and_value):
    *keys, last, value = keys_and_value

    def edit(document):
        for key in keys:
            document = document[key]
        document[last] = value

    return edit


def _round(value):
    return _set("phases", 1, "rounds", 0, value)


# message -> edits of a good document, each of which the schema must refuse as well
REFUSED_BY_SCHEMA = {
    "missing chunks": [lambda d: d.pop("chunks")],
    "unknown 'surprise'": [_set("surprise", 1)],
    'expected an object with "format": "stragglar-schedule"': [_set("format", "msccl"), _set("format", None)],
    "version 2 is not known; this program reads 1": [_set("version", 2)],
    "version '1' is not known": [_set("version", "1")],
    "version True is not known": [_set("version", True)],
    "collective": [_set("collective", "broadcast"), _set("collective", 1)],
    "ranks": [
        _set("ranks", 1),
        _set("ranks", True),
        _set("ranks", "4"),
        _set("ranks", 4.5),
        _set("ranks", 2**41),
    ],
    "chunks": [_set("chunks", 0), _set("chunks", None), _set("chunks", 2**30)],
    "late": [
        _set("late", 3),
        _set("late", [3]),
        _set("late", [[]]),
        _set("late", [["3"]]),
        _set("late", [[False]]),
    ],
    "phase": [
        _set("phases", {}),
        _set("phases", []),
        _set("phases", 0, "pre"),
        _set("phases", 0, "name", "\x1b[31m"),
        _set("phases", 0, "name", 7),
        _set("phases", 0, "rounds", {}),
        _set("phases", 0, "extra", 1),
    ],
    'post round 0: expected an object with "reduce" and/or "copy"': [
        _round({}),
        _round([]),
        _round({"add": []}),
    ],
    "post round 0: reduce: ": [
        _round({"reduce": []}),
        _round({"reduce": 5}),
        _round({"reduce": [[0, 1, 2]]}),
        _round({"reduce": [[0, 1, 2, 1, 0]]}),
        _round({"reduce": [[0, 1, 2, 1], [0, 1]]}),
        _round({"reduce": [[0, 1, 2, 0.5]]}),
        _round({"reduce": [[0, 1, 2, True]]}),
        _round({"reduce": [[0, 1, 2, None]]}),
        _round({"reduce": [[0, 1, 2, "1"]]}),
        _round({"reduce": [["0", "1", "2", "1"]]}),
        _round({"reduce": [[0, 1, 2, [1]]]}),
        _round({"reduce": [[0, 1, 2, {}]]}),
        _round({"reduce": [[2**64, 1, 2, 1]]}),
        _round({"reduce": [[2**63, 1, 2, 1]]}),
        _round({"reduce": {"0": 1}}),
    ],
    "a number is negative or above": [
        _round({"copy": [[-1, 1, 2, 1]]}),
        _round({"copy": [[0, 1, 2**40, 1]]}),
        _round({"copy": [[0, 1, -(2**63), 1]]}),
    ],
    "count is below 1": [_round({"copy": [[0, 1, 2, 0]]})],
    "origin": [
        _set("origin", "me"),
        _set("origin", {}),
        _set("origin", "family", ""),
        _set("origin", "family", 3),
        _set("origin", "who", 1),
        _set("origin", "parameters", []),
        _set("origin", "parameters", {"a": 1.5}),
        _set("origin", "parameters", {"a": True}),
        _set("origin", "parameters", {"a": 2**41}),
        _set("origin", "parameters", {"a" * 81: 1}),
        _set("origin", "bound", 4),
        _set("origin", "bound", {"post_rounds": "4"}),
        _set("origin", "bound", {"post_rounds": 4, "more": 1}),
    ],
}

# what only the reader refuses: the schema cannot express it
REFUSED_BY_READER = {
    "version 1.0 is not known": [_set("version", 1.0)],
    "ranks: expected an integer": [_set("ranks", 4.0)],
    "every transfer is four integers": [_round({"reduce": [[0, 1, 2, 1.0]]})],
    "origin: names and values are 1 to 80 printable": [_set("origin", "family", "a\tb")],
    "late ranks must be in 0..3": [_set("late", [[9]])],
    "must be ascending": [_set("late", [[3, 2]])],
    "named twice": [_set("late", [[3], [3]])],
    "phases must be pre, arrival1, post, not pre, post": [_set("late", [[2], [3]])],
    "phases must be post, not pre, post": [_set("late", [])],
    "phases must be pre, post, not post, post": [_set("phases", 0, "name", "post")],
    "dst is not a rank": [_round({"copy": [[0, 4, 0, 1]]})],
    "sends to itself": [_round({"copy": [[1, 1, 0, 1]]})],
    "chunks past the end": [_round({"copy": [[0, 1, 2, 2]]})],
}


def _cases(table):
    return [(message, edit) for message, edits in table.items() for edit in edits]


@pytest.mark.parametrize(("message", "edit"), _cases(REFUSED_BY_SCHEMA) + _cases(REFUSED_BY_READER))
def test_refused_in_one_line(message, edit):
    with pytest.raises(FormatError) as caught:
        parse_schedule(json.dumps(_edited(edit)).encode(), "some.json")
    text = str(caught.value)
    assert text.startswith("some.json: ")
    assert message in text
    assert text.isprintable()
    assert len(text) < 400


@pytest.mark.parametrize(("message", "edit"), _cases(REFUSED_BY_SCHEMA))
def test_refused_by_the_schema_too(message, edit):
    assert not VALIDATOR.is_valid(_edited(edit))


@pytest.mark.parametrize(("message", "edit"), _cases(REFUSED_BY_READER))
def test_let_pass_by_the_schema(message, edit):
    assert VALIDATOR.is_valid(_edited(edit))


GOOD = dump_schedule(four())
DEEP = "[" * 100_000
HOSTILE = {
    "empty": (b"", "not JSON"),
    "not UTF-8": (b'{"format":"\xff"}', "not UTF-8 text (byte 11)"),
    "UTF-16": (GOOD.encode("utf-16"), "not UTF-8"),
    "byte order mark": (b"\xef\xbb\xbf" + GOOD.encode(), "JSON"),
    "truncated": (GOOD[: len(GOOD) // 2].encode(), "not JSON"),
    "two documents": ((GOOD + GOOD).encode(), "not JSON: Extra data"),
    "a list": (b"[]", "not a schedule file"),
    "a number": (b"1", "not a schedule file"),
    "null": (b"null", "not a schedule file"),
    "key twice": (GOOD.replace('"ranks":4', '"ranks":4,"ranks":5').encode(), "a key stands twice"),
    "inner key twice": (
        GOOD.replace('"copy":[[0,2', '"copy":[],"copy":[[0,2').encode(),
        "a key stands twice",
    ),
    "deep": (DEEP.encode(), "JSON outside what a schedule needs"),
    "deep inside": (GOOD.replace("[[0,3", DEEP + "[[0,3").encode(), "JSON outside what a schedule needs"),
    "deep row": (GOOD.replace("[[0,3,0,1]", "[" * 90 + "0" + "]" * 90).encode(), "JSON|transfer"),
    "digits": (
        GOOD.replace('"ranks":4', '"ranks":' + "9" * 5000).encode(),
        "JSON outside what a schedule needs",
    ),
    "huge": (GOOD.replace('"ranks":4', '"ranks":' + "9" * 4000).encode(), "ranks"),
    "infinite": (GOOD.replace('"ranks":4', '"ranks":1e999').encode(), "ranks: expected an integer"),
    "infinite cell": (GOOD.replace("[0,3,0,1]", "[0,3,0,1e999]").encode(), "four integers"),
    "not a number": (GOOD.replace('"ranks":4', '"ranks":NaN').encode(), "ranks: expected an integer"),
    "not a number cell": (GOOD.replace("[0,3,0,1]", "[0,3,0,NaN]").encode(), "four integers"),
    "minus infinite": (
        GOOD.replace('"chunks":3', '"chunks":-Infinity').encode(),
        "chunks: expected an integer",
    ),
    "exponent": (GOOD.replace('"chunks":3', '"chunks":3e0').encode(), "chunks: expected an integer"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes(name):
    data, message = HOSTILE[name]
    with pytest.raises(FormatError) as caught:
        parse_schedule(data, "evil.json")
    text = str(caught.value)
    assert any(part in text for part in message.split("|"))
    assert text.startswith("evil.json: ")
    assert text.isprintable()
    assert len(text) < 400


@given(st.binary(max_size=60))
def test_noise_is_refused(data):
    with pytest.raises(FormatError):
        parse_schedule(data)


@given(st.integers(0, len(GOOD) - 1), st.sampled_from('0129-.eE"[]{},: tfn\\\x00'), st.booleans())
@settings(max_examples=400)
def test_one_wrong_character_is_refused_or_read(at, character, insert):
    text = GOOD[:at] + character + GOOD[at + (not insert) :]
    try:
        again = parse_schedule(text.encode())
    except FormatError:
        return
    assert parse_schedule(dump_schedule(again).encode()) == again


def test_too_many_messages(monkeypatch):
    monkeypatch.setattr("stragglar.schedules.ir.MAX_TRANSFERS", 5)
    with pytest.raises(FormatError, match="phase pre: more than 5 transfers"):
        parse_schedule(GOOD.encode())
