"""Fitting a link, profile files, and measuring on two real MPI processes."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from stragglar.backends.calibration import fit_link
from stragglar.cli.calibrate import command
from stragglar.schedules import FormatError, Link, MissingError, RunError, StragglarError, UsageError
from stragglar.schedules.profile import Profile, dump_profile, load_profile, parse_profile, save_profile

SIZES = [256 * 4**i for i in range(9)]


@given(st.floats(1e-7, 1e-3), st.floats(1e6, 1e12))
def test_exact_times_give_the_link_back(alpha, bandwidth):
    sizes = [bandwidth * alpha * f for f in (0.01, 0.1, 1, 10, 100)]  # both terms can be told
    fit = fit_link(sizes, [alpha + s / bandwidth for s in sizes])
    assert fit.link.alpha == pytest.approx(alpha, rel=1e-6)
    assert fit.link.bandwidth == pytest.approx(bandwidth, rel=1e-6)
    assert max(map(abs, fit.residuals)) < 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_noise_and_outliers_hardly_matter(seed):
    random = np.random.default_rng(seed)
    sizes = np.repeat(SIZES, 11)
    times = (3e-6 + sizes / 10e9) * random.lognormal(0, 0.05, len(sizes))
    times[random.choice(len(sizes), 10, replace=False)] *= 5  # one in ten, five times too slow
    fit = fit_link(sizes, times)
    # 5 % noise on 99 samples, about half of which tell either term: one standard error is 0.7 %. One
    # outlier in ten pulls a Huber fit up by about 0.1 * 1.345 standard deviations / 0.9, another 1 to 2 %.
    assert fit.link.alpha == pytest.approx(3e-6, rel=0.05)
    assert fit.link.bandwidth == pytest.approx(10e9, rel=0.05)
    assert 0.03 < fit.spread < 0.1


def test_alpha_is_never_negative():
    fit = fit_link([1e3, 1e4, 1e5], [0.5e-6, 10e-6, 120e-6])
    assert fit.link.alpha == 0 and fit.link.bandwidth > 0


@pytest.mark.parametrize(
    ("sizes", "seconds", "error"),
    [
        ([1, 2], [1, 2], UsageError),
        ([1, 1, 1], [1, 2, 3], UsageError),
        ([1, 2, 3], [1, 2], UsageError),
        ([1, 2, 3], [1, 2, 0], UsageError),
        ([1, 2, 3], [1, 2, float("nan")], UsageError),
        ([1, 2, 3], [3, 2, 1], RunError),
        ([1, 2, 3], [1, 1, 1], RunError),
    ],
)
def test_what_cannot_be_fitted(sizes, seconds, error):
    with pytest.raises(error):
        fit_link(sizes, seconds)


def test_a_profile_survives_its_file(tmp_path):
    profile = Profile(Link(3.25e-6, 4.8e11), {"hosts": ["a"], "residual": 0.1})
    path = str(tmp_path / "p.json")
    save_profile(profile, path)
    assert load_profile(path) == profile.link
    assert parse_profile(dump_profile(profile).encode()) == profile


GOOD = '"format":"stragglar-profile","version":1,"alpha_seconds":1e-6,"bandwidth_bytes_per_second":1e9'


def test_the_least_profile():
    assert parse_profile(f"{{{GOOD}}}".encode()) == Profile(Link(1e-6, 1e9))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "{" + GOOD,
        f'{{{GOOD},"more":1}}',
        f'{{{GOOD},"measured":[]}}',
        f'{{{GOOD},"version":1}}',
        f"{{{GOOD}}}".replace('"version":1', '"version":2'),
        f"{{{GOOD}}}".replace('"version":1', '"version":true'),
        f"{{{GOOD}}}".replace('"alpha_seconds":1e-6,', ""),
        *(f"{{{GOOD}}}".replace("1e-6", bad) for bad in ("-1", "NaN", "Infinity", '"1"', "true", "null")),
        *(f"{{{GOOD}}}".replace("1e9", bad) for bad in ("0", "-1", "1e999", "9" * 400, "9" * 5000)),
        "[" * 100_000,
    ],
)
def test_what_is_no_profile(text):
    with pytest.raises(FormatError, match=r"p\.json"):
        parse_profile(text.encode(), "p.json")


@given(st.binary(max_size=200))
def test_bytes_that_are_no_profile(data):
    with pytest.raises(FormatError):
        parse_profile(data)


def test_calibrate_without_mpi_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    caught = CliRunner().invoke(command, [])
    assert isinstance(caught.exception, MissingError) and "stragglar[mpi]" in str(caught.exception)


@pytest.mark.parametrize(
    "options", [["-n", "1"], ["--repeat", "0"], ["--max-bytes", "1KiB"], ["--max-bytes", "2GiB"]]
)
def test_calibrate_refuses_what_it_cannot_measure(options):
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    assert isinstance(CliRunner().invoke(command, options).exception, UsageError)


def test_calibrate_on_two_processes(tmp_path):
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    path = tmp_path / "p.json"
    options = ["--repeat", "3", "--max-bytes", "1MiB", "-o", str(path), "--json"]
    ran = CliRunner().invoke(command, options)
    if isinstance(ran.exception, MissingError):
        pytest.skip(str(ran.exception))
    assert ran.exit_code == 0, ran.exception
    assert json.loads(ran.stdout) == json.loads(path.read_text())
    profile = parse_profile(path.read_bytes())
    told = profile.measured
    assert 0 <= profile.link.alpha < 1 and 1e5 < profile.link.bandwidth < 1e13
    assert told["ranks"] == 2 and told["on"] == "mpi" and told["library"]
    assert [m["bytes"] for m in told["messages"]][::6] == [256, 1 << 20]
    for message in told["messages"]:
        modelled = profile.link.alpha + message["bytes"] * profile.link.beta
        assert message["median"] == pytest.approx(modelled * (1 + message["residual"]))
        assert 0 < message["fastest"] <= message["median"]
    assert "residuals" in ran.stderr


def test_a_rank_that_fails_is_an_error_with_its_words():
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    from stragglar.backends.mpi import pingpong

    try:
        with pytest.raises(RunError, match="failed with code"):
            pingpong.measure(2, (1, 2, "three"), 1)
    except MissingError as missing:
        pytest.skip(str(missing))


def test_all_errors_have_exit_codes():
    assert issubclass(RunError, StragglarError) and MissingError.exit_code == 4
