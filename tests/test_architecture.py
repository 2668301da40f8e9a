"""The shape of the house: who may import whom, and that everything is in the wheel."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("schedules", "synth", "backends", "benchmarks/testbed", "cli")
PACKAGES = {"benchmarks/testbed": "testbed"}
"""Folders whose package has another name: of `benchmarks/` only this part is installed."""
MAY_IMPORT = {
    "schedules": {"schedules"},
    "synth": {"schedules", "synth"},
    "backends": {"schedules", "backends"},
    "benchmarks/testbed": {"schedules", "synth", "backends", "testbed"},
    "cli": {"schedules", "synth", "backends", "testbed", "cli"},
}
MAY_PLAN = {"backends/torch/planned.py"}
"""Called by training programs, as `cli` is by people: ranks and sizes are known there only, so it plans."""
HEAVY = {"ortools", "scipy", "mpi4py", "torch", "matplotlib", "pandas"}
TORCH_FREE = {"__init__", "pingpong", "renaming", "rounds", "threshold"}


def package_of(folder: Path) -> str:
    """`backends/mpi` -> `stragglar.backends.mpi`."""
    name = folder.as_posix()
    for start, renamed in PACKAGES.items():
        name = name.replace(start, renamed, 1)
    return f"stragglar.{name.replace('/', '.')}"


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def imported(path: Path) -> set[str]:
    """The folders of ours and the outside packages that a module names in import statements."""
    package = tuple(package_of(path.relative_to(ROOT).parent).split("."))
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            stem = ".".join((*base, *filter(None, [node.module])))
            names |= {stem} if node.module or node.level == 0 else {f"{stem}.{a.name}" for a in node.names}
    return names


def ours(names: set[str]) -> set[str]:
    return {name.split(".")[1] for name in names if name.startswith("stragglar.")}


@pytest.mark.parametrize("folder", FOLDERS)
def test_imports_follow_the_arrows(folder):
    for path in sources(folder):
        planning = {"synth"} if path.relative_to(ROOT).as_posix() in MAY_PLAN else set()
        wrong = ours(imported(path)) - MAY_IMPORT[folder] - planning
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}: {folder} may use {MAY_IMPORT[folder]}"


def test_the_arrows_test_can_fail(tmp_path):
    inside = ROOT / "schedules" / "ir.py"
    assert "schedules" in ours(imported(inside))
    assert ours({"stragglar.synth.request", "numpy"}) == {"synth"}


def test_heavy_packages_are_imported_where_they_are_used_only():
    """`import ortools` takes half a second: no module does it at its top.

    Modules of `backends/torch/` may import torch, but for those that are used where there is none: the
    package itself, and what `stragglar calibrate` takes.
    """
    for folder in FOLDERS:
        for path in sources(folder):
            top = [n for n in ast.parse(path.read_text()).body if isinstance(n, ast.Import | ast.ImportFrom)]
            for node in top:
                module = node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
                base = (module or "").split(".")[0]
                heavy = base in HEAVY and getattr(node, "level", 0) == 0
                if base == "torch" and path.parent == ROOT / "backends" / "torch":
                    heavy = heavy and path.stem in TORCH_FREE
                assert not heavy, f"{path.relative_to(ROOT)} imports {module} at its top"


def test_every_package_is_listed():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {p.parent.relative_to(ROOT) for f in FOLDERS for p in (ROOT / f).rglob("__init__.py")}
    assert set(settings["packages"]) == {package_of(folder) for folder in folders}
    assert {k: Path(v) for k, v in settings["package-dir"].items()} == {
        package_of(folder): folder for folder in folders
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    # From a copy: setuptools would leave its build folder in the repository.
    copy = tmp_path_factory.mktemp("source")
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    built = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(target), str(copy)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout[-2000:] + built.stderr[-2000:]
    return next(target.glob("*.whl"))


def test_the_wheel_works_from_a_folder_with_backends_of_its_own(wheel, tmp_path):
    """Installed alone, run from a training repository that has folders named like ours."""
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "--no-deps", "--disable-pip-version-check", wheel], check=True
    )
    # What the wheel depends on comes from this environment: a path entry behind its own packages.
    site = next((tmp_path / "env").glob("lib/python*/site-packages"))
    depends = Path(pytest.__file__).parent.parent
    (site / "zz_dependencies.pth").write_text(f"{depends}\n")
    elsewhere = tmp_path / "training"
    for folder in FOLDERS:
        (elsewhere / folder).mkdir(parents=True)
        (elsewhere / folder / "__init__.py").write_text("raise SystemExit('the wrong folder was imported')\n")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}

    def stragglar(*arguments: str) -> str:
        done = subprocess.run(
            [python.parent / "stragglar", *arguments],
            cwd=elsewhere,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    stragglar("synth", "-n", "6", "--late", "2", "-o", "s.json")
    assert '"valid": true' in stragglar("check", "s.json", "--json")
    stragglar("lower", "s.json", "--to", "msccl-xml", "-o", "s.xml")
    stragglar("lower", "s.json", "--to", "msccl-lang", "-o", "s.py")
    stragglar("lower", "s.json", "--to", "nccl", "-o", "project")
    assert (elsewhere / "project" / "executor.h").stat().st_size > 1000
    assert '"valid": true' in stragglar("check", "s.xml", "--json")
    assert '"correct": true' in stragglar("run", "s.json", "--on", "model", "--bytes", "4KiB", "--json")
    assert "round" in stragglar("show", "s.json")
    script = (
        "import importlib, pkgutil, stragglar\n"
        "seen = [m.name for m in pkgutil.walk_packages(stragglar.__path__, 'stragglar.')]\n"
        "need = [name for name in seen if name.split('.')[2:3] not in (['mpi'], ['torch'])]\n"
        "[importlib.import_module(name) for name in need]\n"
        "print(stragglar.__path__)\n"
    )
    shown = subprocess.run(
        [python, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert shown.returncode == 0, shown.stderr
    assert str(site) in shown.stdout and str(ROOT) not in shown.stdout


def test_no_file_of_the_package_is_too_long():
    """A file over 400 lines has more than one subject."""
    for folder in (*FOLDERS, "benchmarks"):
        for path in sources(folder):
            assert len(path.read_text().splitlines()) <= 400, path
