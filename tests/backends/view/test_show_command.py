"""`stragglar show` in all its forms, for schedules and MSCCL files."""

from __future__ import annotations

import json

import pytest

from stragglar.cli.main import run
from stragglar.schedules import dump_schedule
from stragglar.synth import Request, synthesize


@pytest.fixture
def files(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.json").write_text(dump_schedule(synthesize(Request(4, (3,)))))
    assert run(["lower", "s.json", "--to", "msccl-xml", "-o", "s.xml"]) == 0
    capsys.readouterr()
    return tmp_path


STARTS = {"text": b"4 ranks", "svg": b"<svg", "png": b"\x89PNG", "html": b"<!doctype html>", "trace": b"{"}


@pytest.mark.parametrize("form", list(STARTS))
def test_a_schedule(files, form):
    assert run(["show", "s.json", "--as", form, "-o", "out"]) == 0
    assert (files / "out").read_bytes().startswith(STARTS[form])


@pytest.mark.parametrize("form", list(STARTS))
def test_an_msccl_file(files, form):
    assert run(["show", "s.xml", "--as", form, "-o", "out"]) == 0
    made = (files / "out").read_bytes()
    start = b"stragglar-n4-late3-k3" if form == "text" else STARTS[form]
    assert made.startswith(start) and (form == "png" or b"stragglar-n4-late3-k3" in made)


def test_an_msccl_file_that_names_nobody_late(files):
    text = (files / "s.xml").read_text()
    (files / "plain.xml").write_text(text.replace("late3", "x"))
    assert run(["show", "plain.xml", "--as", "trace", "--late", "2", "--delay", "1ms", "-o", "out"]) == 0
    trace = json.loads((files / "out").read_text())
    assert trace["otherData"]["late"] == [2]
    assert [e["ts"] for e in trace["traceEvents"] if e["ph"] == "i"] == [1000]


@pytest.mark.parametrize("form", ["text", "svg", "trace"])
@pytest.mark.parametrize("name", ["s.json", "s.xml"])
def test_some_ranks(files, name, form):
    assert run(["show", name, "--as", form, "--ranks", "1..2", "-o", "out"]) == 0
    made = (files / "out").read_text()
    assert "rank 1" in made or form == "text"
    assert '"rank 0' not in made and ">rank 0" not in made


def test_some_rounds_of_a_timeline(files):
    assert run(["show", "s.json", "--as", "trace", "--rounds", "1..2", "-o", "out"]) == 0
    events = json.loads((files / "out").read_text())["traceEvents"]
    assert {e["args"]["round"] for e in events if e.get("cat") == "send"} == {1, 2}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["s.json", "--as", "html", "--ranks", "0..1"], "filters of its own"),
        (["s.xml", "--as", "html", "--rounds", "0"], "filters of its own"),
        (["s.xml", "--as", "svg", "--rounds", "0"], "has no rounds"),
        (["s.xml", "--as", "text", "--rounds", "0"], "has no rounds"),
        (["s.xml", "--as", "svg", "--ranks", "9"], "no such rank"),
        (["s.json", "--as", "trace", "--ranks", "9"], "no such rank"),
    ],
)
def test_what_is_refused(files, capsys, options, words):
    assert run(["show", *options, "-o", "out"]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1 and not (files / "out").exists()


@pytest.mark.parametrize(("against", "name"), [("ring", "ring"), ("s.json", "stragglar"), ("none", None)])
def test_against(files, against, name):
    assert run(["show", "s.json", "--as", "html", "--against", against, "-o", "out"]) == 0
    data = (files / "out").read_text().split('id="data">')[1].split("</script>")[0]
    other = json.loads(data)["against"]
    assert (other and other["name"]) == name
