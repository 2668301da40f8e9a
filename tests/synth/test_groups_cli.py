"""`synth --arrival-groups` and `--before`, and what the other commands make of the files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stragglar.cli.main import run
from stragglar.schedules import load_schedule, validate


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


GROUPS = ("synth", "-n", "6", "--arrival-groups", "3/5,1", "--chunks", "12", "-o", "s.json")


@pytest.mark.parametrize("more", [(), ("--before", "8,4"), ("--algorithm", "tree"), ("--algorithm", "ring")])
def test_every_command_takes_the_file(cli, more):
    code, _, said = cli(*GROUPS, *more)
    assert code == 0 and "arrival1" in said
    schedule = load_schedule("s.json")
    assert schedule.arrivals == ((3,), (1, 5)) and validate(schedule).valid
    assert cli("check", "s.json")[0] == 0
    assert cli("lower", "s.json", "--to", "msccl-xml", "-o", "s.xml")[0] == 0
    assert cli("check", "s.xml")[0] == 0
    assert json.loads(cli("run", "s.json", "--bytes", "48KiB", "--json")[1])["correct"]
    for form in ("text", "svg", "html"):
        assert cli("show", "s.json", "--as", form, "-o", "shown")[0] == 0
    report = json.loads(cli("cost", "s.json", "--bytes", "1GiB", "--delay", "20ms", "--json")[1])
    assert [phase["name"] for phase in report["phases"]] == ["pre", "arrival1", "post"]
    assert report["post_seconds"] >= report["bound_seconds"]


def test_the_same_bytes_for_the_same_groups(cli):
    assert cli(*GROUPS)[0] == 0
    first = Path("s.json").read_bytes()
    assert cli("synth", "-n", "6", "--arrival-groups", "3/1,5", "--chunks", "12", "-o", "s.json")[0] == 0
    assert Path("s.json").read_bytes() == first


def test_one_group_is_late_ranks_that_come_together(cli):
    assert cli("synth", "-n", "6", "--arrival-groups", "3,1", "-o", "a.json")[0] == 0
    assert cli("synth", "-n", "6", "--late", "1", "--late", "3", "-o", "b.json")[0] == 0
    assert Path("a.json").read_bytes() == Path("b.json").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--arrival-groups", "3//5"), "is not groups of ranks"),
        (("--arrival-groups", "x"), "is not groups of ranks"),
        (("--arrival-groups", "3/3"), "named twice"),
        (("--arrival-groups", "3/9"), "rank 9 does not exist"),
        (("--arrival-groups", "0/1,2,3,4,5"), "all ranks are late"),
        (("--arrival-groups", "3/5", "--late", "3"), "leave --late out"),
        (("--arrival-groups", "3/5", "--before", "4"), "one number for each of the 2 groups"),
        (("--arrival-groups", "3/5", "--before", "4,x"), "is not numbers"),
        (("--arrival-groups", "3/5", "--before", "400,1"), "0..4"),
        (("--arrival-groups", "3/5", "--pre", "rhd"), "one late rank"),
        (("--late", "3", "--pre", "rhd", "--before", "3"), "not for --before"),
        (("--late", "3", "--algorithm", "ring", "--before", "3"), "ring takes no before"),
    ],
)
def test_one_line_and_exit_2(cli, arguments, words):
    code, out, said = cli("synth", "-n", "6", "-o", "s.json", *arguments)
    assert code == 2 and words in said and said.count("\n") == 1 and out == ""
    assert not Path("s.json").exists()


def test_what_merges_one_late_rank_refuses_groups(cli):
    for name in ("split", "merge-allreduce"):
        code, _, said = cli(
            "synth", "-n", "6", "-o", "s.json", "--arrival-groups", "3/5", "--algorithm", name
        )
        assert code == 3 and f"{name} merges one late rank" in said
