"""What all tests share: settings, data, golden files.

Golden files: `tests/golden/<folder>/<test module>/<test>.txt`, rewritten by `--update-golden`. A test
that takes the fixture `golden` compares one text: `golden(text)`. Every golden file needs such a test: one
that is left over fails the run (and is deleted by `--update-golden`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import settings

# Shared machines are slow at times: a test says something about results, never about time.
settings.register_profile("default", deadline=None)
settings.load_profile("default")

TESTS = Path(__file__).parent
GOLDEN = TESTS / "golden"
LEFT_OVER = pytest.StashKey[str]()


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Files that nobody here made: published schedules, what real parsers accept."""
    return TESTS / "data"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files")


def _folder(module: Path) -> Path:
    return GOLDEN / module.relative_to(TESTS).with_suffix("")


def _path(item: pytest.Item) -> Path:
    return _folder(item.path) / (re.sub(r"[^A-Za-z0-9_-]+", "-", item.name).strip("-") + ".txt")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str], None]:
    path, update = _path(request.node), request.config.getoption("--update-golden")

    def compare(text: str) -> None:
        name = path.relative_to(TESTS)
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
        if not path.exists():
            pytest.fail(f"{name} does not exist: read the text, then use --update-golden\n{text}")
        assert text == path.read_text(encoding="utf-8"), f"differs from {name} (see --update-golden)"

    return compare


# First of all hooks: `-k` and `-m` must not make the files of deselected tests look left over.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    if any("::" in argument for argument in config.args):
        return  # single tests were named: the others of their modules are not collected
    used = [_path(item) for item in items if "golden" in getattr(item, "fixturenames", ())]
    if len(set(used)) != len(used):
        raise pytest.UsageError("two tests would share a golden file")
    left_over = [path for path in sorted(_candidates(config, items)) if path not in set(used)]
    if left_over and config.getoption("--update-golden"):
        for path in left_over:
            path.unlink()
    elif left_over and items:
        items[0].stash[LEFT_OVER] = ", ".join(str(path.relative_to(TESTS)) for path in left_over)


# Reported by a test, not by the collection: pytest-xdist shows an error of that as an internal one.
def pytest_runtest_setup(item: pytest.Item) -> None:
    names = item.stash.get(LEFT_OVER, "")
    if names:
        pytest.fail(f"golden files that no test reads: {names} (--update-golden deletes them)", pytrace=False)


def _candidates(config: pytest.Config, items: Sequence[pytest.Item]) -> set[Path]:
    # Everything if all tests were collected; else the files of the modules that were.
    whole = any((config.invocation_params.dir / argument).resolve() == TESTS for argument in config.args)
    folders = {GOLDEN} if whole else {_folder(item.path) for item in items if TESTS in item.path.parents}
    return {path for folder in folders if folder.exists() for path in folder.rglob("*") if path.is_file()}
