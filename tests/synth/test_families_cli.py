"""`stragglar synth` with the options that single families take."""

from __future__ import annotations

import pytest

from stragglar.cli.main import run
from stragglar.schedules import load_schedule


@pytest.fixture
def synth(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str]:
        code = run(["synth", "-o", "s.json", *arguments])
        return code, capsys.readouterr().err

    return call


@pytest.mark.parametrize("text", ["2/5", "0.4", "4/10"])
def test_a_fraction_as_people_write_it(synth, text):
    code, said = synth("-n", "8", "--late", "3", "--algorithm", "split", "--fraction", text, "--inner", "rhd")
    assert code == 0 and "split, 8 ranks" in said
    assert dict(load_schedule("s.json").origin.parameters)["fraction"] == "2/5"


@pytest.mark.parametrize("text", ["1/0", "half", "1e-3", "-1/2", "2/5/7", "nan", "١/٢", "9" * 40])
def test_what_is_no_fraction(synth, text):
    code, said = synth("-n", "8", "--late", "3", "--algorithm", "split", f"--fraction={text}")
    assert code == 2 and "is not a fraction such as 2/5 or 0.4" in said


def test_options_of_other_algorithms_are_refused(synth):
    code, said = synth("-n", "8", "--late", "3", "--algorithm", "ring", "--pre", "rhd")
    assert code == 2 and "ring takes no pre: it is for stragglar and merge-allreduce" in said
    assert synth("-n", "8", "--late", "3", "--pre", "star")[0] == 2
    assert synth("-n", "8", "--late", "3", "--algorithm", "split", "--fraction", "3/2")[0] == 2


def test_the_name_that_a_schedule_bears_is_the_canonical_one(synth):
    code, said = synth("-n", "8", "--algorithm", "rabenseifner")
    assert code == 0 and said.startswith("rhd, 8 ranks")


def test_what_early_ranks_do_is_recorded(synth):
    assert synth("-n", "9", "--late", "3", "--algorithm", "merge-allreduce", "--pre", "ring")[0] == 0
    assert dict(load_schedule("s.json").origin.parameters)["pre"] == "ring"
