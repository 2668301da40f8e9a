"""Compiling emitted projects with the test double of CUDA and NCCL, each object file once for all tests.

What depends on no schedule (executor, kernels, double, benchmark) is compiled once, also for all workers of
pytest-xdist; a schedule costs one file of tables and a link.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from stragglar.backends.nccl.project import project
from stragglar.schedules import Schedule
from stragglar.synth import Request, synthesize

DOUBLE = Path(__file__).parent / "double"
FLAGS = ("-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas")
CAUGHT = 86
CUDA, NCCL, KERNELS = ("double", "cuda.cc"), ("double", "nccl.cc"), ("", "kernels.cu")
PROGRAMS = {
    "harness": (CUDA, NCCL, KERNELS, ("double", "harness.cc")),
    "bench": (CUDA, NCCL, KERNELS, ("double", "launcher.cc"), ("", "benchmark.cc")),
    # Ranks that are processes, and the one that plays NCCL for them.
    "rank": (CUDA, ("double", "remote.cc"), KERNELS, ("double", "process.cc"), ("", "benchmark.cc")),
    "hub": (CUDA, NCCL, KERNELS, ("double", "hub.cc")),
}
OF_NO_PROJECT = ("cuda.cc", "launcher.cc", "process.cc")
MPI = Path(sys.prefix)

Texts = Mapping[str, str]
Flags = tuple[str, ...]
Edits = Mapping[str, list[tuple[str, str]]]


@dataclass(frozen=True)
class Outcome:
    """How a program ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Hub:
    """A running hub."""

    process: subprocess.Popen[str]
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """What its ranks need."""
        return {"DOUBLE_HUB": str(self.folder / "s")}

    def end(self) -> Outcome:
        """Ends it; exit code `CAUGHT` and a word on standard error if it found fault."""
        try:
            out, err = self.process.communicate(timeout=20)
        finally:
            self.process.kill()
            shutil.rmtree(self.folder, ignore_errors=True)
        return Outcome(self.process.returncode, out, err)


@dataclass(frozen=True)
class Double:
    """Builds and runs programs; `cache` holds objects by the content of everything they are made from."""

    cache: Path
    folder: Path

    def build(
        self,
        schedule: Schedule,
        program: str = "harness",
        edits: Edits | None = None,
        flags: Flags = (),
        mpi: bool = False,
    ) -> Path:
        """An executable for a schedule; `edits` seeds bugs: file -> (text, other text) pairs."""
        texts = project(schedule)
        for name, pairs in (edits or {}).items():
            for old, new in pairs:
                assert texts[name].count(old) == 1, f"{old!r} is not once in {name}"
                texts[name] = texts[name].replace(old, new)
        own = ("-DSTRAGGLAR_MPI", f"-isystem{MPI}/include") if mpi else ()
        target = self.folder / f"{program}-{_digest(texts, (*flags, *own))}"
        target.mkdir(exist_ok=True)
        for name, text in texts.items():
            (target / name).write_text(text)
        objects = [
            self._object(target, texts, place, name, (*flags, *own) if name == "benchmark.cc" else flags)
            for place, name in PROGRAMS[program]
        ]
        link = (f"-L{MPI}/lib", "-lmpi", f"-Wl,-rpath,{MPI}/lib") if mpi else ()
        compile_(*FLAGS, *flags, "-pthread", *objects, target / "schedule.cc", *link, "-o", target / program)
        return target / program

    def _object(self, target: Path, texts: Texts, place: str, name: str, flags: Flags) -> Path:
        source = DOUBLE / name if place else target / name
        # Of the project, an object sees the headers and itself.
        seen = {k: v for k, v in texts.items() if k.endswith(".h") or k == name}
        if name in OF_NO_PROJECT:
            seen = {}
        path = self.cache / f"{name}-{_digest(seen, flags)}.o"
        with (self.cache / f"{path.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                include = ("-I", DOUBLE / "include", "-I", DOUBLE, "-I", target)
                partial = path.with_suffix(".partial")
                renamed = "-Dmain=bench_main" if name == "benchmark.cc" else "-DNDEBUG"
                compile_(*FLAGS, *flags, renamed, *include, "-x", "c++", "-c", source, "-o", partial)
                partial.rename(path)
        return path


def _digest(texts: Texts, flags: Flags) -> str:
    return hashlib.sha256(repr((sorted(texts.items()), flags)).encode()).hexdigest()[:16]


def compile_(*arguments: object) -> None:
    done = subprocess.run(["g++", *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture(scope="session")
def double(tmp_path_factory: pytest.TempPathFactory) -> Double:
    if shutil.which("g++") is None:
        pytest.skip("needs g++ to run emitted programs on the CPU")
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    cache = shared / "nccl-objects"
    cache.mkdir(exist_ok=True)
    return Double(cache, tmp_path_factory.mktemp("nccl"))


@pytest.fixture(scope="session")
def execute() -> Callable[..., Outcome]:
    """Runs a program; keyword arguments are environment variables of the double."""

    def run(*command: object, timeout: float = 120, **environment: object) -> Outcome:
        done = subprocess.run(
            [str(part) for part in command],
            env=os.environ | {k: str(v) for k, v in environment.items()},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def hub(double: Double, merge8: Schedule, tmp_path: Path) -> Iterator[Callable[..., Hub]]:
    """Starts hubs; keyword arguments are environment variables of the double."""
    started: list[Hub] = []

    def start(**environment: object) -> Hub:
        # Socket names have a limit of about 100 characters, which pytest's folders pass.
        folder = Path(tempfile.mkdtemp(prefix="hub-"))
        program = double.build(merge8, "hub")
        process = subprocess.Popen(
            [program, folder / "s"],
            env=os.environ | {k: str(v) for k, v in environment.items()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(Hub(process, folder))
        assert process.stdout is not None and process.stdout.readline() == "open\n"
        return started[-1]

    yield start
    for one in started:
        one.end()


@pytest.fixture(scope="session")
def merge8() -> Schedule:
    """Eight ranks, rank 3 late: it has reductions that run beside messages, and waits for them."""
    return synthesize(Request(8, (3,)))
