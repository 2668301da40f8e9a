"""How measurements are shown: the table, and plots."""

from __future__ import annotations

import pytest

from stragglar.cli.bench_output import links_text
from stragglar.cli.bench_plots import draw_sweep
from stragglar.schedules.errors import UsageError
from stragglar.testbed.contenders import Scene, contender
from stragglar.testbed.load import Load
from stragglar.testbed.measure import Samples
from stragglar.testbed.report import Measured, judge, without_refused


def report(hosts=4, delay=2.0, busy=20):
    scene = Scene(hosts, (hosts - 1,), 1_000_000, 1e6, delay)
    rows = []
    for name, times, load in (
        ("ring", [1.6, 1.5], Load(20, 0, 100)),
        ("stragglar:2", [1.9, 2.0], Load(busy, 0, 100)),
    ):
        samples = Samples(times, 0, load, [[500_000] * hosts] * 2, 0.5, [0.0, 0.0])
        rows.append(Measured(contender(name, scene), samples))
    head = {"hosts": hosts, "rate_bytes": 1e6, "mtu": 9000, "bytes": 1_000_000, "seconds": 1.0, "repeat": 2}
    head |= {"late": [hosts - 1], "delays": [delay] * 2, "machine": "a machine"}
    return head | judge(rows, scene, [delay] * 2, 1e6)


def test_the_table(golden):
    shown = without_refused(report(busy=95))
    assert [row["median_s"] for row in shown["algorithms"]] == [1.55, None]
    golden(links_text(shown) + "\n")


@pytest.mark.parametrize("over", ["delay", "size", "hosts"])
def test_plots_are_the_same_twice_and_leave_out_what_is_refused(over, tmp_path):
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    points = [report(3, 0.1), report(4, 0.6), without_refused(report(5, 2.0, busy=95))]
    paths = [tmp_path / "a.svg", tmp_path / "b.svg"]
    for path in paths:
        draw_sweep(over, points, str(path))
    assert paths[0].read_bytes() == paths[1].read_bytes()
    draw_sweep(over, points[:2], str(tmp_path / "c.svg"))
    assert (tmp_path / "c.svg").read_bytes() != paths[0].read_bytes()


def test_other_kinds_of_pictures_are_refused(tmp_path):
    with pytest.raises(UsageError, match="svg"):
        draw_sweep("delay", [report()], str(tmp_path / "a.jpg"))
