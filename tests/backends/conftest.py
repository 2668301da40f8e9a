from __future__ import annotations

import tempfile

import pytest
from run_folder import left_over


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder for the run's temporary files; nothing of a run may be left when the test ends."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    assert list(tmp_path.iterdir()) == []
    assert left_over(tmp_path) == []
