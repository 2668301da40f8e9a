"""What may be asked for, and the delays that follow."""

from __future__ import annotations

import shlex

import pytest

from stragglar.cli.main import cli
from stragglar.schedules.errors import UsageError
from stragglar.testbed.links import Links
from stragglar.testbed.network import Network
from stragglar.testbed.sweep import sweep

NETWORK = Network(8, 25e6)


def links(**more):
    return Links(**{"network": NETWORK, "algorithms": ("ring",), "seconds": 1.1, **more})


def test_the_buffer_takes_the_time_asked_for():
    request = links()
    assert request.size / NETWORK.payload_rate == pytest.approx(1.1, rel=1e-6)
    assert request.size % 4 == 0 and links(seconds=None, bytes=1001).size == 1000


def test_delays():
    hides = 6 / 7 * 1.1
    assert links().delays() == pytest.approx([1.1 * hides] * 5)
    assert links(late_by="half").delays() == pytest.approx([hides / 2] * 5)
    assert links(late_by=0.25, repeat=2).delays() == (0.25, 0.25)
    chance = links(late_by="random", repeat=50).delays()
    assert len(set(chance)) == 50 and 0 <= min(chance) < max(chance) <= 1.1 * hides
    assert chance == links(late_by="random", repeat=50).delays() != links(late_by="random", seed=1).delays()
    assert links(late=(1, 2)).delays() == pytest.approx([1.1 * 5 / 6 * 1.1] * 5)


def test_contenders_are_planned_for_the_mean_delay():
    request = links(late_by="random", repeat=9)
    assert request.scene().delay == pytest.approx(sum(request.delays()) / 9)


@pytest.mark.parametrize(
    "wrong",
    [
        {"bytes": 8},
        {"seconds": None},
        {"seconds": 0.0},
        {"seconds": -1.0},
        {"seconds": float("nan")},
        {"seconds": 1e9},
        {"seconds": None, "bytes": 3},
        {"algorithms": ()},
        {"algorithms": ("ring", "ring")},
        {"late": (8,)},
        {"late": (3, 3)},
        {"late": tuple(range(8))},
        {"late_by": "later"},
        {"late_by": -0.1},
        {"late_by": float("inf")},
        {"late_by": float("nan")},
        {"repeat": 0},
        {"repeat": 10**9},
        {"warmup": -1},
        {"dtype": "f8"},
        {"op": "mean"},
    ],
    ids=str,
)
def test_a_contradiction_is_refused(wrong):
    with pytest.raises(UsageError):
        links(**wrong)


def test_the_command_in_a_result_asks_for_the_same():
    request = links(late=(2, 5), late_by=0.25, seed=3, repeat=7, dtype="f64")
    words = shlex.split(request.command())[1:]
    bench = cli.get_command(None, "bench")
    context = bench.commands["links"].make_context("links", words[2:])
    given = context.params
    assert (given["hosts"], given["rate"], given["seconds"]) == (8, 25e6, 1.1)
    assert (given["late"], given["late_by"], given["seed"]) == ((2, 5), 0.25, 3)
    assert (given["repeat"], given["dtype"], given["algorithms"]) == (7, "f64", "ring")


def test_a_sweep_checks_all_its_points_before_it_measures():
    with pytest.raises(UsageError, match="hosts"):
        sweep(links(), "hosts", [8, 1], pytest.fail)
    with pytest.raises(UsageError):
        sweep(links(), "size", [1024, 0], pytest.fail)
