"""Putting files where runtimes find them: the right place, whole or not at all, never ignored."""

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from stragglar.backends.msccl.install import load, plan_load
from stragglar.backends.msccl.profiles import EXECUTOR, MSCCL
from stragglar.backends.msccl.program import Program
from stragglar.backends.msccl.selection import selection_of
from stragglar.backends.msccl.xml_read import read_program
from stragglar.backends.msccl.xml_write import write_program
from stragglar.schedules.errors import InvalidScheduleError, MissingError, UsageError

GOOD = (Path(__file__).parents[2] / "data" / "msccl_good.xml").read_text()
PROGRAM = read_program(GOOD)


def variant(**changes: object) -> str:
    return write_program(replace(PROGRAM, **changes))


def test_microsoft_takes_a_list_of_paths(tmp_path: Path) -> None:
    plan = load(GOOD, "msccl", tmp_path)
    assert plan.path == tmp_path / "good.xml"
    assert plan.path.read_text() == GOOD
    assert plan.exports == (("MSCCL_XML_FILES", str(plan.path)), ("NCCL_ALGO", "MSCCL,RING,TREE"))


@pytest.mark.parametrize(
    ("runtime", "names"),
    [
        ("msccl-executor", ["NCCL_MSCCL_ENABLE", "MSCCL_ALGO_DIR"]),
        ("rccl", ["RCCL_MSCCL_ENABLE", "RCCL_MSCCL_FORCE_ENABLE", "MSCCL_ALGO_DIR"]),
    ],
)
def test_the_others_take_a_directory(tmp_path: Path, runtime: str, names: list[str]) -> None:
    plan = load(GOOD, runtime, tmp_path / "new" / "dir", "first.xml")
    assert [name for name, _ in plan.exports] == names
    assert plan.exports[-1] == ("MSCCL_ALGO_DIR", str(tmp_path / "new" / "dir"))
    assert [path.name for path in plan.path.parent.iterdir()] == ["first.xml"]
    assert stat.S_IMODE(plan.path.stat().st_mode) & 0o400


def test_planning_writes_nothing(tmp_path: Path) -> None:
    plan_load(GOOD, "rccl", tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_default_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert plan_load(GOOD, "msccl").path == tmp_path / "good.xml"
    assert plan_load(GOOD, "rccl").path == tmp_path / "msccl-algorithms" / "good.xml"


def test_max_bytes_differs_by_runtime() -> None:
    program = replace(PROGRAM, min_bytes=16, max_bytes=64)
    theirs, azure = selection_of(program, MSCCL), selection_of(program, EXECUTOR)
    assert not theirs.takes(16, 4)  # 64 bytes: strictly below
    assert azure.takes(16, 4)
    assert not azure.takes(18, 4)
    assert not azure.takes(2, 4)
    assert not azure.takes(5, 4)  # 5 is no multiple of 2
    assert not azure.takes(16, 4, in_place=False)
    assert (theirs.smallest(4), theirs.largest(4)) == (16, 56)
    assert (azure.smallest(4), azure.largest(4)) == (16, 64)
    unlimited = selection_of(replace(PROGRAM, max_bytes=0), EXECUTOR)
    assert unlimited.takes(2**50, 8)
    assert unlimited.largest(4) is None


def test_one_placement_only_for_microsoft() -> None:
    both = replace(PROGRAM, in_place=True, out_of_place=True)
    assert selection_of(both, EXECUTOR).takes(2, 4, in_place=False)
    assert not selection_of(both, MSCCL).takes(2, 4, in_place=False)
    outside = replace(PROGRAM, in_place=False, out_of_place=True)
    assert selection_of(outside, MSCCL).takes(2, 4, in_place=False)


def test_sizes_in_words(tmp_path: Path) -> None:
    words = plan_load(GOOD, "msccl-executor", tmp_path).selection.describe()
    assert words == (
        "allreduce of 2 ranks, in place, 0 bytes to 1073741824 bytes, a multiple of 2 elements "
        "(float32: 8, 16, ... bytes)"
    )


@pytest.mark.parametrize(
    ("changes", "runtime", "why"),
    [
        ({"max_bytes": 0}, "msccl", "never"),
        ({"min_bytes": 9, "max_bytes": 9}, "msccl-executor", "never use this file"),
        ({"in_place": False}, "rccl", "never be used"),
        ({"channels": 40}, "msccl", "channel-count"),
        ({"collective": "custom"}, "msccl-executor", "collective-known"),
    ],
)
def test_what_would_be_ignored_is_refused(
    tmp_path: Path, changes: dict[str, object], runtime: str, why: str
) -> None:
    with pytest.raises(InvalidScheduleError, match=why):
        load(variant(**changes), runtime, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("runtime", ["msccl-executor", "rccl"])
@pytest.mark.parametrize("other", [{}, {"min_bytes": 1}, {"max_bytes": 0}, {"out_of_place": True}])
def test_an_earlier_file_for_the_same_calls(tmp_path: Path, runtime: str, other: dict[str, object]) -> None:
    load(variant(name="earlier", **other), runtime, tmp_path)
    with pytest.raises(InvalidScheduleError, match=r"never use good\.xml: .*earlier\.xml comes first"):
        load(GOOD, runtime, tmp_path)
    plan = load(GOOD, runtime, tmp_path, "0-good.xml")
    assert any("0-good.xml is used instead of earlier.xml" in note for note in plan.notes)


@pytest.mark.parametrize(
    "other",
    [{"ranks": 3}, {"in_place": False, "out_of_place": True}, {"min_bytes": 2**30 + 8, "max_bytes": 2**31}],
)
def test_an_earlier_file_for_other_calls(tmp_path: Path, other: dict[str, object]) -> None:
    text = three_ranks() if "ranks" in other else variant(name="earlier", **other)
    (tmp_path / "earlier.xml").write_text(text)
    plan = load(GOOD, "msccl-executor", tmp_path)
    assert not any("instead" in note for note in plan.notes)


def three_ranks() -> str:
    idle = replace(
        PROGRAM.gpus[0], rank=2, blocks=(replace(PROGRAM.gpus[0].blocks[0], send_peer=-1, steps=()),)
    )
    return write_program(replace(PROGRAM, ranks=3, gpus=(*PROGRAM.gpus, idle)))


def chunks_of_four() -> Program:
    gpus = tuple(replace(gpu, input_chunks=4) for gpu in PROGRAM.gpus)
    return replace(PROGRAM, name="earlier", chunks=4, gpus=gpus)


def test_an_earlier_file_for_some_of_the_calls(tmp_path: Path) -> None:
    load(variant(name="earlier", min_bytes=8), "rccl", tmp_path, "e.xml")
    (note,) = [note for note in plan_load(GOOD, "rccl", tmp_path).notes if "instead" in note]
    assert "e.xml is used instead of good.xml" in note
    load(write_program(chunks_of_four()), "rccl", tmp_path, "e.xml")
    plan = load(GOOD, "rccl", tmp_path, "f.xml")
    (note,) = [note for note in plan.notes if "instead" in note]
    assert "e.xml is used instead of f.xml" in note
    assert "a multiple of 4 elements" in note


@pytest.mark.parametrize(
    "content", [b"", b"notes to self\n", GOOD.encode()[:-9], b"<?xml version='1.0'?>\n<a/>"]
)
@pytest.mark.parametrize("name", ["README", "zz.xml", ".hidden"])
def test_any_other_bad_file_there_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidScheduleError, match="every file there is read at init"):
        load(GOOD, "msccl-executor", tmp_path)
    load(GOOD, "msccl", tmp_path)  # which reads only what it is told to


def test_a_faulty_file_for_the_same_ranks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(variant(channels=0))
    with pytest.raises(InvalidScheduleError, match=r"a\.xml: every file .*channel-count"):
        load(GOOD, "rccl", tmp_path)
    (tmp_path / "a.xml").write_text(three_ranks().replace('cnt="1"', 'cnt="0"'))
    assert any("a.xml is for other communicators" in note for note in load(GOOD, "rccl", tmp_path).notes)


def test_folders_and_dangling_links(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    load(GOOD, "rccl", tmp_path)
    (tmp_path / "link.xml").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InvalidScheduleError, match=r"link\.xml"):
        load(GOOD, "rccl", tmp_path)


def test_replacing(tmp_path: Path) -> None:
    load(GOOD, "rccl", tmp_path)
    newer = variant(min_bytes=8)
    plan = load(newer, "rccl", tmp_path)
    assert f"replaces {plan.path}" in plan.notes
    assert plan.path.read_text() == newer


def test_scratch_for_a_large_limit_is_told(tmp_path: Path) -> None:
    plan = plan_load(variant(max_bytes=2**40), "msccl", tmp_path)
    assert any(str(2**39) in note for note in plan.notes)
    ll128 = plan_load(variant(protocol="LL128"), "msccl", tmp_path)
    assert any("LL128" in note for note in ll128.notes)


def test_usage_errors(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "dir.xml").mkdir()
    (tmp_path / "a:b").mkdir()
    for arguments in (
        ("portable", tmp_path, None),
        ("rccl", tmp_path, "a/b.xml"),
        ("rccl", tmp_path, ".."),
        ("rccl", tmp_path / "file", None),
        ("rccl", tmp_path, "dir.xml"),
        ("msccl", tmp_path / "a:b", None),
    ):
        with pytest.raises(UsageError):
            load(GOOD, *arguments)


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MissingError, match="cannot be written"):
        load(GOOD, "msccl", tmp_path / "file" / "below")
