"""Calibration over torch.distributed: two gloo processes give a profile; without torch it says so."""

import importlib.util
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from stragglar.backends.torch import HOW, pingpong
from stragglar.cli import calibrate
from stragglar.schedules import MissingError, RunError, UsageError
from stragglar.schedules.profile import load_profile

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason=HOW)


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    ran = CliRunner().invoke(calibrate.command, ["--on", "torch"])
    assert isinstance(ran.exception, MissingError) and ran.exception.exit_code == 4
    assert "pip install 'stragglar[torch]'" in str(ran.exception)


@pytest.mark.parametrize("numbers", [(1, 1, 1.0), (65, 1, 1.0), (2, 1001, 1.0), (2, 1, 0.0)])
def test_numbers_out_of_range(numbers):
    ranks, repeat, limit = numbers
    with pytest.raises(UsageError):
        pingpong.measure(ranks, (1, 2, 3), repeat, limit)


@needs_torch
def test_two_processes_give_a_profile(tmp_path):
    path = tmp_path / "here.json"
    options = ["--on", "torch", "--fit", "fastest", "--repeat", "5", "--json", "-o", str(path)]
    ran = CliRunner().invoke(calibrate.command, options, catch_exceptions=False)
    told = json.loads(ran.stdout)
    assert told["measured"]["on"] == "torch" and told["measured"]["ranks"] == 2
    assert told["measured"]["library"].startswith("torch ") and told["measured"]["library"].endswith("gloo")
    link = load_profile(str(path))
    assert 0 <= link.alpha < 0.1 and 1e6 < link.bandwidth < 1e12


@needs_torch
def test_it_ends_with_its_time_limit_and_leaves_no_process(monkeypatch, tmp_path):
    monkeypatch.setattr(pingpong, "STARTUP_SECONDS", 0.5)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(RunError, match="did not end within"):
        pingpong.measure(2, (1 << 26, 1 << 27, 1 << 28), 1000, 0.1)
    assert list(tmp_path.iterdir()) == []
    others = [p for p in Path("/proc").glob("[0-9]*/cmdline") if p.parent.name != str(os.getpid())]
    assert not [p for p in others if str(tmp_path).encode() in p.read_bytes()]
