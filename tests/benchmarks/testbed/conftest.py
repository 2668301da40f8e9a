"""Testbeds for the tests that need a real one; they skip by name where none can be made."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from stragglar.schedules.errors import MissingError
from stragglar.testbed.network import Network
from stragglar.testbed.testbed import NAME, Testbed, temporary_testbed

FAST = 125e6
"""A gigabit a second: what a test sends takes no time."""


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Skips where no testbed can be made."""
    try:
        with temporary_testbed(Network(2, FAST), 60):
            pass
    except MissingError as error:
        pytest.skip(f"needs network namespaces: {error}")


@pytest.fixture(autouse=True)
def place(monkeypatch, tmp_path_factory) -> Iterator[Path]:
    """A place of the test's own for the folders of testbeds, also in processes that it starts.

    Not below `tmp_path`: a Unix socket's path is short. And no test sees the testbeds of another.
    """
    tmp_path_factory.getbasetemp()  # pytest's own folder is chosen before the place changes
    folder = Path(tempfile.mkdtemp(prefix="sb-", dir="/tmp"))
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    left = list(folder.glob(f"{NAME}*"))
    shutil.rmtree(folder)
    assert not left, "a test has left the folder of a testbed"


@pytest.fixture
def bed(namespaces) -> Iterator[Testbed]:
    with temporary_testbed(Network(3, FAST), 60) as made:
        yield made
