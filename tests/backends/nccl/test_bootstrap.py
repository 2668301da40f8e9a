"""How processes find each other, and what they say where they cannot; over the double's hub."""

from __future__ import annotations

import os
import struct
import subprocess

import pytest

from stragglar.synth import Request, synthesize

from .test_processes import SMALL, begin, collect

LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "PMI_RANK", "PMI_SIZE", "SLURM_PROCID", "SLURM_NTASKS")


@pytest.fixture
def pair(double):
    """The benchmark for two ranks, of which the second comes late."""
    return double.build(synthesize(Request(2, (1,))), "rank")


def id_file(magic: bytes, ranks: int) -> bytes:
    return struct.pack("16si128x", magic, ranks)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"x" * 200, "is no id file of this program"),
        (id_file(b"stragglar id 1\n", 3), "is of a run of 3 ranks, this one has 2"),
    ],
)
def test_a_file_that_is_not_of_this_run_is_refused(pair, hub, tmp_path, content, message):
    (tmp_path / "id").write_bytes(content)
    (done,) = collect([begin(pair, 1, 2, hub(), *SMALL, "--id-file", tmp_path / "id")])
    assert done.code == 2 and message in done.err and "rank 1" in done.err


def test_rank_0_does_not_take_over_a_file(pair, hub, tmp_path):
    (tmp_path / "id").write_bytes(b"somebody's")
    (done,) = collect([begin(pair, 0, 2, hub(), *SMALL, "--id-file", tmp_path / "id")])
    assert done.code == 2 and "exists" in done.err
    assert (tmp_path / "id").read_bytes() == b"somebody's"


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_never_starts_is_missed_in_time(pair, hub, tmp_path, rank):
    options = (*SMALL, "--time-limit", "1", "--id-file", tmp_path / "id")
    (done,) = collect([begin(pair, rank, 2, hub(), *options)])
    wanted = "not connected in time: another rank is missing" if rank == 0 else "rank 0 did not write"
    assert done.code == 1 and wanted in done.err


def test_the_file_is_gone_when_all_have_met(pair, hub, tmp_path):
    one = hub()
    done = collect([begin(pair, rank, 2, one, *SMALL, "--id-file", tmp_path / "id") for rank in range(2)])
    assert [d.code for d in done] == [0, 0], done
    assert not (tmp_path / "id").exists()


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "which rank is this?"),
        ({"RANK": "one", "WORLD_SIZE": "2"}, "RANK is not a number: one"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "rank 2 of 2 does not exist"),
        ({"RANK": "1", "SLURM_NTASKS": "2"}, "which rank is this?"),
    ],
)
def test_what_launchers_say_is_checked(pair, tmp_path, variables, message):
    clean = {k: v for k, v in os.environ.items() if k not in LAUNCHERS}
    done = subprocess.run(
        [pair, *SMALL, "--id-file", tmp_path / "id"],
        env=clean | variables,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2 and message in done.stderr


def test_two_processes_of_one_rank_are_caught(double, hub, tmp_path):
    """A seeded bug: everybody joins as rank 0."""
    bug = {"bootstrap.h": [("place.ranks, id, place.rank)", "place.ranks, id, 0)")]}
    program, one = double.build(synthesize(Request(2, (1,))), "rank", edits=bug), hub()
    options = (*SMALL, "--time-limit", "3", "--id-file", tmp_path / "id")
    done = collect([begin(program, rank, 2, one, *options) for rank in range(2)])
    assert all(d.code != 0 for d in done)
    assert "joins twice" in one.end().err
