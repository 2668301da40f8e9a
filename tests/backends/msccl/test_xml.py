"""MSCCL files: what is printed reads back equal, and no input does worse than a FormatError."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stragglar.backends.msccl import xml_read
from stragglar.backends.msccl.program import Buffer, OpCode, Program, RankProgram, Step, ThreadBlock
from stragglar.backends.msccl.schema import to_int
from stragglar.backends.msccl.xml_read import read_program, read_program_file
from stragglar.backends.msccl.xml_write import write_program
from stragglar.schedules.errors import FormatError, InvalidScheduleError, MissingError

GOOD = (Path(__file__).parents[2] / "data" / "msccl_good.xml").read_text()

small = st.integers(-1, 40)
steps = st.builds(
    Step,
    index=small,
    op=st.sampled_from(OpCode),
    src_buffer=st.sampled_from(Buffer),
    src_offset=small,
    dst_buffer=st.sampled_from(Buffer),
    dst_offset=small,
    count=small,
    dep_block=small,
    dep_step=small,
    has_dependents=st.booleans(),
)
blocks = st.builds(ThreadBlock, small, small, small, small, st.lists(steps, max_size=3).map(tuple))
gpus = st.lists(
    st.builds(RankProgram, small, small, small, small, st.lists(blocks, max_size=2).map(tuple)),
    max_size=3,
    unique_by=lambda gpu: gpu.rank,
)
programs = st.builds(
    Program,
    name=st.text("abcXYZ 0123456789_-+./:;()", max_size=63),
    protocol=st.sampled_from(["Simple", "LL", "LL128"]),
    channels=small,
    chunks=small,
    ranks=small,
    collective=st.just("allreduce"),
    in_place=st.booleans(),
    out_of_place=st.booleans(),
    min_bytes=st.integers(0, 2**62),
    max_bytes=st.integers(0, 2**62),
    gpus=gpus.map(tuple),
    late=st.lists(st.integers(0, 999), max_size=4).map(tuple),
)


@given(programs)
@settings(max_examples=60, deadline=None)
def test_read_back_equal_and_same_bytes(program: Program) -> None:
    text = write_program(program)
    assert read_program(text) == program
    assert write_program(read_program(text.encode())) == text


def test_good_file_is_what_the_printer_prints() -> None:
    assert write_program(read_program(GOOD)) == GOOD
    assert GOOD.endswith("</algo>\n")
    assert all(re.fullmatch(r" *</?\w+( \w+=\"[^\"]*\")*/?>", line) for line in GOOD.splitlines())


def test_late_ranks_are_kept_and_left_out_when_there_are_none() -> None:
    program = read_program(GOOD)
    assert program.late == (1,)
    assert "late" not in write_program(replace(program, late=()))
    assert 'late="3,5"' in write_program(replace(program, late=(3, 5)))


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "n" * 64},
        {"name": 'quo"te'},
        {"name": "tab\there"},
        {"name": "a&amp;b"},
        {"name": "straße"},
        {"collective": "a<b"},
        {"max_bytes": 2**63},
        {"chunks": 2**31},
        {"late": tuple(range(200))},
    ],
)
def test_what_cannot_be_written_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidScheduleError):
        write_program(replace(read_program(GOOD), **changes))


def test_msccl_tools_files_have_defaults() -> None:
    bare = re.sub(r' (outofplace|minBytes|maxBytes|late|name)="[^"]*"', "", GOOD)
    program = read_program('<?xml version="1.0"?>' + bare.replace("\n", "\n\t"))
    assert (program.min_bytes, program.max_bytes, program.out_of_place) == (0, 2**27, False)
    assert read_program(bare.replace('inplace="1"', 'inplace="0"')).out_of_place
    azure = GOOD.replace(f'maxBytes="{2**30}"', 'maxBytes="0"')
    assert read_program(azure).max_bytes == 0


@pytest.mark.parametrize(
    ("value", "number"), [("0", 0), ("-1", -1), ("+7", 7), ("0x10", 16), ("010", 8), ("-0X1f", -31)]
)
def test_numbers_are_read_as_c_reads_them(value: str, number: int) -> None:
    assert to_int(value) == number


@pytest.mark.parametrize("value", ["", " 1", "1 ", "1.0", "1e3", "one", "08", "0x", "--1", "1_000", "\u0661"])
def test_what_is_no_number_is_an_error(value: str) -> None:
    with pytest.raises(ValueError):
        to_int(value)


def laughs() -> str:
    entities = "".join(f'<!ENTITY l{k} "{f"&l{k - 1};" * 10}">' for k in range(1, 10))
    return f'<!DOCTYPE algo [<!ENTITY l0 "ha">{entities}]><algo name="&l9;"/>'


HOSTILE: dict[str, str | bytes] = {
    "empty": b"",
    "white": b" \n\n",
    "binary": bytes(range(256)) * 20,
    "utf16": GOOD.encode("utf-16"),
    "lone surrogate": GOOD.replace("good", "\ud800"),
    "nul": GOOD.replace("good", "\0"),
    "laughs": laughs(),
    "external": '<!DOCTYPE algo SYSTEM "file:///etc/passwd"><algo/>',
    "unknown entity": GOOD.replace("good", "&nope;"),
    "deep": "<algo>" * 100_000,
    "deep closed": "<a>" * 5000 + "</a>" * 5000,
    "html": "<html><body/></html>",
    "json": '{"algo": 1}',
    "two": GOOD + GOOD,
    "text": GOOD.replace("</algo>", "text</algo>"),
    "same attribute": GOOD.replace("<gpu ", '<gpu id="0" '),
    "many attributes": "<algo " + " ".join(f'a{k}=""' for k in range(100)) + "/>",
    "huge int": GOOD.replace('cnt="1"', f'cnt="{"9" * 100_000}"', 1),
    "big int": GOOD.replace('cnt="1"', f'cnt="{2**31}"', 1),
    "huge bytes": GOOD.replace(str(2**30), str(2**63)),
    "same gpu": GOOD.replace('<gpu id="1"', '<gpu id="0x0"'),
    "late": GOOD.replace('late="1"', 'late="1;2"'),
    "step child": GOOD.replace("/>", "><step/></step>", 1),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_input_is_a_format_error(name: str) -> None:
    with pytest.raises(FormatError, match=r"^evil\.xml: ") as caught:
        read_program(HOSTILE[name], "evil.xml")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_too_large_and_too_many(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(xml_read, "MAX_INPUT_BYTES", 2**20)
    monkeypatch.setattr(xml_read, "MAX_ELEMENTS", 1000)
    with pytest.raises(FormatError, match="larger than 1 MiB"):
        read_program(b" " * (2**20 + 1))
    big = tmp_path / "big.xml"
    big.write_bytes(b" " * (2**20 + 1))
    with pytest.raises(FormatError, match="larger"):
        read_program_file(big)
    with pytest.raises(FormatError, match="more than 1000 elements"):
        read_program("<algo>" + "<a/>" * 1000 + "</algo>")


def test_an_error_names_file_line_element_and_attribute() -> None:
    with pytest.raises(FormatError, match=r"^s\.xml: line 4: <step> cnt: 'x' is not a whole number"):
        read_program(GOOD.replace('cnt="1"', 'cnt="x"', 1), "s.xml")
    with pytest.raises(FormatError, match=r"^s\.xml: line 2: <gpu> s_chunks: missing"):
        read_program(GOOD.replace(' s_chunks="1"', "", 1), "s.xml")


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "s.xml"
    path.write_text(GOOD)
    assert read_program_file(path) == read_program(GOOD)
    for missing in (tmp_path / "none.xml", tmp_path):
        with pytest.raises(MissingError):
            read_program_file(missing)
