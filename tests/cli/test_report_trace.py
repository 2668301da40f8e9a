"""`stragglar report trace`, which is `trace report`: who is late, and the gain to expect."""

import json

import pytest

from stragglar.cli.main import run
from stragglar.schedules import Link
from stragglar.schedules.arrival_files import save_trace
from stragglar.schedules.arrivals import ArrivalTrace
from stragglar.schedules.profile import Profile, save_profile


@pytest.fixture
def trace(tmp_path):
    """Rank 2 of 4 is late by 5 ms in three of four iterations, rank 0 in the last."""
    rows = [[0, 1e-5, 5e-3, 2e-5]] * 3 + [[5e-3, 0, 1e-5, 2e-5]]
    save_trace(ArrivalTrace.of(rows * 5), str(tmp_path / "t.csv"))
    return str(tmp_path / "t.csv")


def told(capsys, *arguments):
    assert run(list(arguments)) == 0
    return capsys.readouterr().out


def test_both_names_say_the_same(trace, capsys):
    options = [trace, "--bytes", "256MiB"]
    short, long = (told(capsys, *words, *options) for words in (["report", "trace"], ["trace", "report"]))
    assert short == long
    assert "rank 2 is last in 75.0%" in short and "the same rank is last again in" in short
    assert "gain over ring" in short and "take stragglar, late 2" in short


def test_the_gain_is_that_of_the_plan(trace, tmp_path, capsys):
    profile = str(tmp_path / "here.json")
    save_profile(Profile(Link(1e-4, 1e9)), profile)
    link = ["--bytes", "64MiB", "--profile", profile, "--json"]
    reported = json.loads(told(capsys, "report", "trace", trace, *link))
    planned = json.loads(told(capsys, "plan", "--arrivals", trace, *link))
    statistics = planned.pop("arrivals")
    assert reported.pop("plan") == planned and reported == statistics
    assert planned["gain_over_ring"]["value"] > 1
    slower = ["--bytes", "64MiB", "--alpha", "100us", "--bandwidth", "1GB/s", "--json"]
    assert json.loads(told(capsys, "report", "trace", trace, *slower))["plan"] == planned


def test_without_a_size_there_is_no_gain(trace, capsys):
    assert "plan" not in json.loads(told(capsys, "report", "trace", trace, "--json"))
    assert "gain over" not in told(capsys, "report", "trace", trace)


@pytest.mark.parametrize(
    "options",
    [["--alpha", "3us"], ["--profile", "p.json"], ["--bytes", "0"], ["--bytes", "x"], ["--bytes", "1", "-x"]],
)
def test_what_makes_no_sense_is_refused(trace, capsys, options):
    assert run(["report", "trace", trace, *options]) == 2
    assert capsys.readouterr().err.count("\n") == 1
