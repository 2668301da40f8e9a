"""`plan`, `tune` and their ranges, traces, tables and plots, as they are typed."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from stragglar.cli.main import run
from stragglar.schedules import load_schedule, validate
from stragglar.schedules.arrival_files import save_trace
from stragglar.schedules.arrivals import ArrivalTrace
from stragglar.synth.tuning import load_tuning

ONE = ["plan", "-n", "8", "--late", "3", "--bytes", "1GiB", "--alpha", "3us", "--bandwidth", "450GiB/s"]


@pytest.fixture
def cli(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        code = run([str(a) for a in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_one_plan(cli):
    code, out, _ = cli(*ONE, "--delay", "5ms", "--json", "-o", "s.json")
    report = json.loads(out)
    assert code == 0
    assert {"post_seconds", "bound_seconds", "family", "chunks", "split", "baselines"} <= report.keys()
    assert {"ring", "rhd", "direct"} <= report["baselines"].keys()
    assert report["baselines"]["ring"] / report["post_seconds"] > 1.59
    schedule = load_schedule("s.json")
    assert schedule.late == (3,) and schedule.chunks == report["chunks"]
    code, out, _ = cli("cost", "s.json", "--bytes", "1GiB", "--delay", "5ms", "--json")
    assert json.loads(out)["post_seconds"] == pytest.approx(report["post_seconds"])
    text = cli(*ONE, "--delay", "5ms")[1]
    assert "model" in text and "bound" in text and "StragglAR as published" in text


def test_the_split_is_told(cli):
    report = json.loads(cli(*ONE, "--delay", "1ms", "--json")[1])
    assert report["family"] == "split" and 0 < report["split"] < 1
    assert json.loads(cli(*ONE, "--delay", "5ms", "--json")[1])["split"] == 1.0
    assert json.loads(cli("plan", "-n", "8", "--bytes", "1GiB", "--json")[1])["split"] == 0.0


def test_tables_and_plots(cli):
    code, out, _ = cli(
        "plan", "-n", "8", "--bytes", "4KiB..4GiB", "--delay", "5ms", "--plot", "s.svg", "--csv", "-"
    )
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0 and [int(row["bytes"]) for row in rows] == [1 << b for b in range(12, 33)]
    assert all(float(row["post_seconds"]) <= float(row["ring_seconds"]) for row in rows)
    assert Path("s.svg").read_text().startswith("<?xml")
    code, out, _ = cli(
        "plan", "-n", "8", "--bytes", "1GiB", "--delay", "0..4ms/5", "--json", "--plot", "d.png"
    )
    plans = json.loads(out)["plans"]
    assert [p["delay_seconds"] for p in plans] == [0, 0.001, 0.002, 0.003, 0.004]
    assert Path("d.png").read_bytes().startswith(b"\x89PNG")
    code, out, _ = cli("plan", "-n", "4..64", "--bytes", "1GiB", "--delay", "50ms", "--plot", "n.svg")
    assert code == 0 and len(out.splitlines()) == 2 + 5
    first = Path("n.svg").read_bytes()
    cli("plan", "-n", "4..64", "--bytes", "1GiB", "--delay", "50ms", "--plot", "n.svg")
    assert Path("n.svg").read_bytes() == first


def test_a_plan_for_a_trace(cli):
    late = [[0.0] * 5 + [0.01] + [0.0] * 2] * 9 + [[0.0] * 2 + [0.01] + [0.0] * 5]
    save_trace(ArrivalTrace.of(late * 4), "t.csv")
    code, out, _ = cli("plan", "--arrivals", "t.csv", "--bytes", "1GiB", "--json", "-o", "s.json")
    report = json.loads(out)
    assert code == 0 and report["late"] == [5] and report["ranks"] == 8
    gain = report["gain_over_ring"]
    assert 1 < gain["low"] <= gain["value"] <= gain["high"]
    assert report["guess"]["wrong"] > report["guess"]["right"]
    assert report["expected_post_seconds"] <= min(report["baselines"].values())
    assert validate(load_schedule("s.json")).valid
    assert "rank 5 is last" in cli("plan", "--arrivals", "t.csv", "--bytes", "1GiB")[1]


def test_a_trace_without_a_habit_keeps_a_baseline(cli):
    """Every rank late equally often, by next to nothing: nothing straggler-aware pays."""
    rows = [[1e-9 if rank == i % 4 else 0.0 for rank in range(4)] for i in range(40)]
    save_trace(ArrivalTrace.of(rows), "t.csv")
    report = json.loads(cli("plan", "--arrivals", "t.csv", "--bytes", "1GiB", "--json")[1])
    assert report["expected_post_seconds"] <= min(report["baselines"].values()) * (1 + 1e-12)


def test_a_plan_for_one_arrival_of_each_rank(cli):
    come = ["plan", "--arrivals", "0,0,0,0,0,9ms,0,8ms", "--bytes", "1GiB"]
    code, out, _ = cli(*come, "--json", "-o", "s.json")
    report = json.loads(out)
    assert code == 0 and report["groups"] == [[7], [5]] and report["late"] == [5, 7]
    keys = {"model", "ranks", "bytes", "family", "chunks", "split", "parameters", "rounds", "post_seconds"}
    assert keys | {"bound_seconds", "baselines", "speedup_over_ring", "arrivals_seconds"} <= report.keys()
    assert report["rounds"].keys() == {"pre", "arrival1", "post"}
    assert report["bound_seconds"] <= report["post_seconds"] <= min(report["baselines"].values())
    schedule = load_schedule("s.json")
    assert schedule.arrivals == ((7,), (5,)) and validate(schedule).valid
    text = cli(*come)[1]
    assert "event simulation" in text and "late 7/5" in text and "bound" in text
    assert cli(*come, "--json")[1] == out
    # What the plan says can be asked for again.
    named = report["parameters"]
    again = ["synth", "-n", "8", "--arrival-groups", "7/5", "--chunks", named["chunks"], "-o", "t.json"]
    assert cli(*again, *(["--before", named["before"]] if "before" in named else []))[0] == 0
    assert Path("t.json").read_bytes() == Path("s.json").read_bytes()


def test_a_vector_and_a_file_are_told_apart(cli):
    save_trace(ArrivalTrace.of([[0.0, 0.0, 0.01]] * 4), "0,1ms.csv")
    assert (
        json.loads(cli("plan", "--arrivals", "0,1ms.csv", "--bytes", "1MiB", "--json")[1])["iterations"] == 4
    )
    assert "arrivals_seconds" in cli("plan", "--arrivals", "0, 1ms,1ms", "--bytes", "1MiB", "--json")[1]


def test_a_trace_in_which_two_come_one_after_another(cli):
    """Groups are planned for, which is better than to let six ranks wait for the seventh."""
    save_trace(ArrivalTrace.of([[0.0] * 5 + [0.009, 0.0, 0.01]] * 8), "t.csv")
    report = json.loads(cli("plan", "--arrivals", "t.csv", "--bytes", "1GiB", "--json", "-o", "s.json")[1])
    assert report["late"] == sorted(rank for group in report["groups"] for rank in group)
    assert report["groups"][-1] == [7]
    single = json.loads(cli(*ONE, "--delay", "1ms", "--json")[1])
    assert report["expected_post_seconds"] < 0.9 * single["post_seconds"]
    assert load_schedule("s.json").late == tuple(report["late"])


def test_tune(cli):
    code, _, err = cli(
        "tune", "-n", "8", "--late", "3", "--bytes", "1KiB..1GiB", "--delay", "0,5ms", "-o", "t.json"
    )
    assert code == 0 and "2 delays" in err
    assert load_tuning("t.json").lookup(1 << 30, 5e-3).algorithm == "stragglar"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan", "-n", "8"], "--bytes"),
        (["plan", "--bytes", "1GiB"], "-n"),
        (["plan", "-n", "8", "--bytes", "1GiB", "--bandwidth", "0"], "bandwidth"),
        (["plan", "-n", "8", "--bytes", "1Gxx"], "1Gxx"),
        (["plan", "-n", "8", "--bytes", "1GiB", "--delay", "5"], "5"),
        (["plan", "-n", "8", "--bytes", "4GiB..1GiB"], "smaller"),
        (["plan", "-n", "8", "--bytes", "1GiB", "--delay", "0..1ms/1"], "count"),
        (["plan", "-n", "8", "--bytes", "1GiB", "--late", "9"], "rank 9"),
        (["plan", "-n", "8", "--bytes", "1GiB", "--late", "1,2"], "one late rank"),
        (["plan", "--bytes", "1GiB", "--arrivals", "0,5"], "has no unit"),
        (["plan", "--bytes", "1KiB..1GiB", "--arrivals", "0,5ms"], "one size"),
        (["plan", "--bytes", "1GiB", "--arrivals", "5ms"], "cannot read"),
        (["plan", "--bytes", "1GiB", "--arrivals", "0,nan,1ms"], "'nan' is not a time"),
        (["plan", "--bytes", "1GiB", "--arrivals", "0,-1ms"], "-1ms"),
        (["plan", "--bytes", "1GiB", "--arrivals", "5ms,"], "'' is not a time"),
        (["plan", "--bytes", "1GiB", "--arrivals", "./0,1ms"], "cannot read"),
        (["plan", "-n", "2", "--bytes", "1GiB", "--arrivals", "0,5ms"], "--arrivals"),
        (["plan", "-n", "x", "--bytes", "1GiB"], "'x'"),
        (["plan", "-n", "8", "--bytes", "1KiB..1GiB", "-o", "s.json"], "one schedule"),
        (["plan", "-n", "8", "--bytes", "1GiB", "--plot", "p.svg"], "several"),
        (["plan", "-n", "4,8", "--bytes", "1GiB", "--plot", "p.pdf"], ".png"),
        (["plan", "-n", "8", "--bytes", "1GiB", "--profile", "p.json", "--alpha", "1us"], "--profile"),
        (["plan", "-n", "8", "--bytes", "1GiB", "--arrivals", "t.csv"], "--arrivals"),
        (["plan", "--bytes", "1GiB", "--arrivals", "one.csv"], "2 ranks"),
        (["plan", "--bytes", "1GiB", "--arrivals", "missing.csv"], "missing.csv"),
        (["tune", "-n", "8", "--late", "1,2", "-o", "t.json"], "one late rank"),
    ],
)
def test_one_line_and_exit_2(cli, arguments, words):
    Path("one.csv").write_text("iteration,rank,arrival_s\n0,0,0.0\n1,0,0.0\n")
    code, out, err = cli(*arguments)
    assert code == 2, (code, err)
    assert words in err and err.count("\n") == 1 and out == ""
    assert not Path("s.json").exists() and not Path("p.svg").exists()


def test_a_profile_serves_plan_tune_and_cost(cli):
    profile = {
        "format": "stragglar-profile",
        "version": 1,
        "alpha_seconds": 1e-4,
        "bandwidth_bytes_per_second": 1e9,
    }
    Path("p.json").write_text(json.dumps(profile | {"measured": {}}))
    code, out, err = cli(
        "plan",
        "-n",
        "4",
        "--late",
        "1",
        "--bytes",
        "1GB",
        "--delay",
        "5s",
        "--profile",
        "p.json",
        "--json",
        "-o",
        "s.json",
    )
    assert code == 0, err
    planned = json.loads(out)
    assert planned["alpha_seconds"] == 1e-4 and planned["bandwidth_bytes_per_second"] == 1e9
    code, out, err = cli("cost", "s.json", "--bytes", "1GB", "--delay", "5s", "--profile", "p.json", "--json")
    assert code == 0, err
    assert json.loads(out)["post_seconds"] == pytest.approx(planned["post_seconds"])
    assert (
        cli("tune", "-n", "4", "--late", "1", "--bytes", "1KiB", "--profile", "p.json", "-o", "t.json")[0]
        == 0
    )
    assert cli("cost", "s.json", "--bytes", "1GB", "--profile", "p.json", "--alpha", "1us")[0] == 2
