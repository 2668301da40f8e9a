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


@pytest.mark.parametrize("form", ["text", "html"])
def test_an_msccl_file(files, form):
    assert run(["show", "s.xml", "--as", form, "-o", "out"]) == 0
    assert b"stragglar-n4-late3-k3" in (files / "out").read_bytes()


def test_what_an_msccl_file_is_not_shown_as(files, capsys):
    assert run(["show", "s.xml", "--as", "svg"]) == 2
    assert "text or html" in capsys.readouterr().err


@pytest.mark.parametrize(("against", "name"), [("ring", "ring"), ("s.json", "stragglar"), ("none", None)])
def test_against(files, against, name):
    assert run(["show", "s.json", "--as", "html", "--against", against, "-o", "out"]) == 0
    data = (files / "out").read_text().split('id="data">')[1].split("</script>")[0]
    other = json.loads(data)["against"]
    assert (other and other["name"]) == name
