"""Statistics of traces against plain counting, and synthetic traces against what they claim."""

import json
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from stragglar.cli.trace import command
from stragglar.schedules import UsageError
from stragglar.schedules.arrival_files import dump_trace, load_trace
from stragglar.schedules.arrival_generator import (
    CAP,
    CONCENTRATION,
    JITTER,
    PRESETS,
    SHARE,
    STICKINESS,
    expected_persistence,
    generate_trace,
)
from stragglar.schedules.arrival_stats import arrival_report, bootstrap, last_ranks, leads
from stragglar.schedules.arrivals import ArrivalTrace

SIGMAS = 5
"""Tolerance of estimates, in standard errors: a right generator fails one seed in a million."""


@settings(max_examples=25)
@given(
    st.integers(2, 5).flatmap(
        lambda n: st.lists(st.lists(st.integers(0, 3), min_size=n, max_size=n), min_size=1, max_size=12)
    )
)
def test_statistics_against_plain_counting(rows):
    trace = ArrivalTrace.of(rows)
    report = arrival_report(trace)
    last = [row.index(max(row)) if row.count(max(row)) == 1 else -1 for row in rows]
    counts = Counter(rank for rank in last if rank >= 0)
    assert last_ranks(trace).tolist() == last
    assert report.last == tuple(counts[rank] for rank in range(trace.ranks))
    assert report.tied == last.count(-1) and sum(report.last) + report.tied == report.iterations
    assert report.usual_share.value == pytest.approx(max(report.last) / len(rows))
    assert report.last[report.usual] == max(report.last)
    assert leads(trace).tolist() == [sorted(row)[-1] - sorted(row)[-2] for row in rows]
    spread = [max(row) - min(row) for row in rows]
    assert report.after_first.mean.value == pytest.approx(np.mean(spread))
    assert report.after_first.maximum == max(spread)
    again = [b == a for a, b in pairwise(last) if a >= 0]
    assert (report.persistence is None) == (not again)
    if report.persistence is not None:
        assert report.persistence.value == pytest.approx(np.mean(again))


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("seed", range(3))
def test_the_generator_keeps_its_word(preset, seed):
    count, mean = 4000, PRESETS[preset]
    trace = generate_trace(8, count, seed, mean=mean)
    delays, report = leads(trace), arrival_report(trace)
    # Variance of a beta variate, and that of a mean over independent iterations.
    spread = CAP * np.sqrt(mean / CAP * (1 - mean / CAP) / (CONCENTRATION + 1))
    assert abs(delays.mean() - mean) < SIGMAS * spread / np.sqrt(count)
    assert abs(delays.std() - spread) < 0.1 * spread
    assert delays.min() > 0 and delays.max() <= CAP * (1 + 1e-12)
    # Keeping a draw with chance p multiplies the variance of a share by (1 + p)/(1 - p).
    error = np.sqrt(SHARE * (1 - SHARE) / count * (1 + STICKINESS) / (1 - STICKINESS))
    assert abs(report.usual_share.value - SHARE) < SIGMAS * error
    assert 0.77 < report.usual_share.value < 0.95
    # Successive repeats are dependent no longer than the runs are.
    again = expected_persistence(8)
    error = np.sqrt(again * (1 - again) / count * (1 + STICKINESS) / (1 - STICKINESS))
    assert report.persistence is not None and abs(report.persistence.value - again) < SIGMAS * error
    assert report.tied == 0
    others = np.sort(trace.seconds, axis=1)[:, :-1]
    assert others.max() <= JITTER


@pytest.mark.parametrize(
    ("share", "stickiness", "again"), [(1.0, 0.0, 1.0), (0.0, 1.0, 1.0), (0.5, 0.0, 0.5)]
)
def test_extremes_of_the_generator(share, stickiness, again):
    trace = generate_trace(2, 500, 1, share=share, stickiness=stickiness, usual=1, jitter=0)
    report = arrival_report(trace)
    assert expected_persistence(2, share, stickiness) == again
    assert abs(report.persistence.value - again) <= SIGMAS * np.sqrt(again * (1 - again) / 499)
    if share == 1:
        assert report.last == (0, 500)


def test_other_late_ranks_are_all_of_the_others():
    trace = generate_trace(5, 4000, 0, share=0.2, stickiness=0, usual=2)
    error = np.sqrt(0.2 * 0.8 / 4000)
    for count in arrival_report(trace).last:
        assert abs(count / 4000 - 0.2) < SIGMAS * error


def test_equal_seeds_give_equal_traces():
    one, two, other = (dump_trace(generate_trace(4, 50, seed)) for seed in (7, 7, 8))
    assert one == two != other
    assert "synthetic, not measured: seed 7" in one.splitlines()[0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"ranks": 1},
        {"iterations": 0},
        {"iterations": 10**9},
        {"seed": -1},
        {"usual": 4},
        {"usual": -1},
        {"mean": 0},
        {"mean": 1},
        {"mean": float("nan")},
        {"cap": float("inf")},
        {"jitter": -1},
        {"concentration": 0},
        {"share": 1.1},
        {"stickiness": -0.1},
    ],
)
def test_what_cannot_be_generated(wrong):
    with pytest.raises(UsageError):
        generate_trace(**({"ranks": 4, "iterations": 10} | wrong))


def test_bootstrap_intervals_cover_the_truth_though_lateness_persists():
    # Of 100 intervals for the usual share about 95 should hold it; blocks that are short for the runs cost
    # some. Below 85 has a chance under 1e-4 at a true 94 %; independent draws hold it in about 74.
    truth, held, naive = 0.8, 0, 0
    for seed in range(100):
        trace = generate_trace(3, 400, seed, share=truth, stickiness=0.5, usual=0)
        values = (last_ranks(trace) == 0).astype(float)
        found = bootstrap(values, seed=seed, resamples=200, block=10)
        alone = bootstrap(values, seed=seed, resamples=200, block=1)
        held += found.low <= truth <= found.high
        naive += alone.low <= truth <= alone.high
    assert held >= 85 and held > naive


def test_bootstrap_of_a_ratio():
    random = np.random.default_rng(0)
    ours = random.uniform(1, 2, 300)
    pairs = np.column_stack((ours * 1.5, ours))
    found = bootstrap(pairs, lambda v: float(v[:, 0].mean() / v[:, 1].mean()), seed=1)
    # Drawn together, what they have in common cancels.
    assert found.value == pytest.approx(1.5) and found.high - found.low < 1e-9
    assert bootstrap(ours, seed=3) == bootstrap(ours, seed=3) != bootstrap(ours, seed=4)
    assert bootstrap(np.array([2.0])).low == 2.0


@pytest.mark.parametrize("wrong", [{"block": 0}, {"block": 4}, {"resamples": 0}, {"level": 1.0}])
def test_bootstrap_refuses(wrong):
    with pytest.raises(UsageError):
        bootstrap(np.ones(3), **wrong)


def test_bootstrap_of_nothing():
    with pytest.raises(UsageError):
        bootstrap(np.empty(0))


def test_the_command_makes_a_trace_and_reports_it(tmp_path):
    path = str(tmp_path / "t.csv")
    options = ["-n", "10", "--iterations", "300", "--preset", "9.5ms", "--usual", "3", "-o", path]
    made = CliRunner().invoke(command, ["generate", *options])
    assert made.exit_code == 0 and not made.stdout and "synthetic" in made.stderr
    assert load_trace(path).seconds.shape == (300, 10)
    text = CliRunner().invoke(command, ["report", path])
    assert text.exit_code == 0 and "rank 3 is last in" in text.stdout and "and 2 more" in text.stdout
    told = json.loads(CliRunner().invoke(command, ["report", path, "--json"]).stdout)
    assert told["usual"] == 3 and told["ranks"] == 10 and told["iterations"] == 300
    assert told["after_second"]["mean"]["low"] < told["after_second"]["mean"]["value"] < 0.03


def test_the_command_says_what_it_left_out(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("rank_0,rank_1\n0,1\n,1\n0,0\n")
    ran = CliRunner().invoke(command, ["report", str(path)])
    assert ran.exit_code == 0 and "1 incomplete iterations left out: iteration 1 lacks rank 0" in ran.stderr
    assert "tied" in ran.stdout


def test_the_command_hands_errors_on(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("rank_0\n0\n")
    caught = CliRunner().invoke(command, ["report", str(path)]).exception
    assert isinstance(caught, UsageError) and caught.exit_code == 2
    made = CliRunner().invoke(command, ["generate", "-n", "1"])
    assert isinstance(made.exception, UsageError)
