"""Calibration as it is started: options, time limits, a user's own mpiexec; and profiles out of range."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from stragglar.backends.calibration import fit_link
from stragglar.backends.mpi import launch
from stragglar.backends.mpi.pingpong import MAX_RANKS, Sweep, measure, sweep_sizes
from stragglar.cli import calibrate
from stragglar.schedules import FormatError, Link, MissingError, RunError, UsageError
from stragglar.schedules.profile import BANDWIDTHS, MAX_ALPHA, Profile, dump_profile, parse_profile

needs_mpi = pytest.mark.usefixtures("mpiexec")


@pytest.fixture
def mpiexec():
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    try:
        return launch.find_mpiexec()
    except MissingError as missing:
        pytest.skip(str(missing))


def made_up(noise=1.0):
    """A sweep on a link of 2 us and 1 GB/s: every second sample takes `noise` times as long."""
    sizes = sweep_sizes(256, 1 << 20)
    times = [2e-6 + size / 1e9 for size in sizes]
    return Sweep(2, sizes, tuple((t, t * noise, t * noise) for t in times), ("a", "b"), "an MPI")


@pytest.mark.parametrize(("statistic", "factor"), [("median", 3), ("fastest", 1)])
def test_what_is_fitted_is_what_was_asked_for(statistic, factor, monkeypatch):
    monkeypatch.setattr(calibrate, "measure", lambda *_: made_up(noise=3))
    ran = CliRunner().invoke(calibrate.command, ["--fit", statistic, "--json"])
    told = json.loads(ran.stdout)
    assert told["alpha_seconds"] == pytest.approx(factor * 2e-6)
    assert told["bandwidth_bytes_per_second"] == pytest.approx(1e9 / factor)
    assert told["measured"]["method"].startswith(statistic) and told["measured"]["hosts"] == ["a", "b"]
    assert "medians are 3.0 times the fastest" in ran.stderr


def test_a_quiet_machine_whose_link_is_a_line_needs_no_remark(monkeypatch):
    monkeypatch.setattr(calibrate, "measure", lambda *_: made_up())
    shown = CliRunner().invoke(calibrate.command, []).stdout
    assert "alpha 2us, bandwidth 953.7MiB/s a port" in shown and "largest 0.0%" in shown
    assert "times the fastest" not in shown and "one line" not in shown


def test_a_link_that_is_no_line_is_said_to_be_none():
    sweep = made_up()
    bent = Sweep(2, sweep.sizes, tuple((t[0] * (1 + (i % 2)),) for i, t in enumerate(sweep.seconds)), (), "")
    assert "one line does not fit" in calibrate.table(bent, fit_link(bent.sizes, bent.medians))


def test_other_ranks_of_a_launcher_print_nothing(monkeypatch):
    monkeypatch.setattr(calibrate, "measure", lambda *_: None)
    ran = CliRunner().invoke(calibrate.command, ["--json"])
    assert ran.exit_code == 0 and not ran.stdout and not ran.stderr


def test_sizes_of_a_sweep():
    assert sweep_sizes(256, 5000) == (256, 1024, 4096, 5000)
    assert sweep_sizes(1, 1 << 30)[-2:] == (1 << 28, 1 << 30)


@pytest.mark.parametrize(
    "numbers", [(1, 1, 1), (MAX_RANKS + 1, 1, 1), (2, 1001, 1), (2, 1, 0), (2, 1, np.nan)]
)
def test_numbers_out_of_range(numbers):
    ranks, repeat, limit = numbers
    with pytest.raises(UsageError):
        measure(ranks, (1, 2, 3), repeat, limit)


@needs_mpi
def test_it_ends_with_its_time_limit_and_leaves_no_process(monkeypatch, tmp_path):
    monkeypatch.setattr(launch, "STARTUP_SECONDS", 0.5)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(RunError, match="did not end within"):
        measure(2, (1 << 26, 1 << 27, 1 << 28), 1000, 0.1)
    assert list(tmp_path.iterdir()) == []
    commands = [
        p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline") if p.parent.name != str(os.getpid())
    ]
    assert not [c for c in commands if str(tmp_path).encode() in c]


UNDER = "import sys; from stragglar.cli.calibrate import command; command(sys.argv[1:])"


def under_mpiexec(mpiexec, *options):
    command = [mpiexec, *launch.launcher_options(mpiexec), "-n", "2", sys.executable, "-c", UNDER, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_under_a_users_own_mpiexec_one_rank_speaks(mpiexec):
    done = under_mpiexec(mpiexec, "--max-bytes", "64KiB", "--repeat", "3", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["measured"]["ranks"] == 2


def test_under_a_users_own_mpiexec_it_ends_too(mpiexec):
    done = under_mpiexec(mpiexec, "--max-bytes", "256MiB", "--repeat", "1000", "--time-limit", "300ms")
    assert done.returncode != 0 and "the measurement did not end within its time limit" in done.stderr


@pytest.mark.parametrize("link", [Link(MAX_ALPHA * 1.01, 1e9), *(Link(0, b) for b in (0.99, 1.01e18))])
def test_profiles_of_no_machine(link):
    with pytest.raises(FormatError, match=r"p\.json: (alpha|bandwidth).* must be"):
        parse_profile(dump_profile(Profile(link)).encode(), "p.json")


@pytest.mark.parametrize("link", [Link(MAX_ALPHA, BANDWIDTHS[0]), Link(0, BANDWIDTHS[1])])
def test_profiles_at_the_limits(link):
    assert parse_profile(dump_profile(Profile(link)).encode()).link == link


def test_no_number_of_json_in_what_is_free():
    text = dump_profile(Profile(Link(0, 1), {"spread": 1.5})).replace("1.5", "NaN")
    with pytest.raises(FormatError, match="NaN is no number of JSON"):
        parse_profile(text.encode())


@pytest.mark.parametrize("seed", range(10))
def test_the_fit_is_as_sharp_as_least_squares_can_be(seed):
    """Relative errors of 5 %: within five standard errors of the weighted normal equations."""
    sizes, alpha, beta = np.repeat(sweep_sizes(256, 1 << 24), 5).astype(float), 3e-6, 1e-10
    model = alpha + beta * sizes
    fit = fit_link(sizes, model * (1 + np.random.default_rng(seed).normal(0, 0.05, len(sizes))))
    design = np.column_stack((1 / model, sizes / model))
    errors = 0.05 * np.sqrt(np.diag(np.linalg.inv(design.T @ design)))
    assert abs(fit.link.alpha - alpha) < 5 * errors[0]
    assert abs(fit.link.beta - beta) < 5 * errors[1]
