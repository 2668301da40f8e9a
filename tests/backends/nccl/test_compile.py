"""Emitted projects compiled and linked with the real nvcc and NCCL, where they are."""

from __future__ import annotations

import subprocess

import pytest

from stragglar.backends.nccl import toolchain
from stragglar.backends.nccl.project import project
from stragglar.schedules import MissingError, RunError
from stragglar.synth import Request, synthesize

STRICT = ("-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror")


@pytest.fixture(scope="module")
def tools():
    try:
        return toolchain.find_toolchain()
    except MissingError as error:
        pytest.skip(str(error))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def stops_without_a_gpu(program, ranks):
    try:
        toolchain.compute_capabilities()
    except MissingError:
        pass
    else:
        return  # here are GPUs: `stragglar run --on nccl` is what to try
    command = [program, "--rank", str(ranks - 1), "--ranks", str(ranks)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 4
    assert done.stderr.startswith(f"rank {ranks - 1}: no GPU that can be used here: cudaGetDeviceCount: ")


def test_compiles_without_a_warning_and_stops_without_a_gpu(tools, cache):
    texts = project(synthesize(Request(8, (3,))))
    program = toolchain.compiled(texts, tools, "sm_90", *STRICT)
    stops_without_a_gpu(program, 8)
    assert program.is_relative_to(cache)
    changed = program.stat().st_mtime_ns
    assert toolchain.compiled(texts, tools, "sm_90", *STRICT) == program
    assert program.stat().st_mtime_ns == changed, "the second time it comes from the cache"
    assert list(program.parent.iterdir()) == [program]


def test_what_the_compiler_says_is_in_the_error(tools, cache):
    texts = project(synthesize(Request(2, (0,)))) | {"schedule.cc": "int x = nonsense;"}
    with pytest.raises(RunError, match="nonsense"):
        toolchain.compiled(texts, tools, "sm_90")


@pytest.mark.slow
@pytest.mark.parametrize(
    "request_",
    [
        Request(2, (0,)),
        Request(5, (), "ring"),
        Request(7, (6,), refine=3),
        Request(8, (0,), "split"),
        Request(9, (1, 4), "tree"),
        Request(16, (5,), "merge-allreduce"),
        Request(64, (63,)),
    ],
    ids=lambda r: f"{r.ranks}-{r.algorithm}",
)
def test_other_schedules_compile(tools, cache, request_):
    program = toolchain.compiled(project(synthesize(request_)), tools, "sm_80", *STRICT)
    stops_without_a_gpu(program, request_.ranks)


def test_a_missing_compiler_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(toolchain, "_wheels", lambda: iter(()))
    with pytest.raises(MissingError, match=r"needs nvcc and NCCL headers: pip install 'stragglar\[cuda\]'"):
        toolchain.find_toolchain()


def test_a_toolchain_is_found_in_wheels(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("NCCL_HOME", raising=False)
    monkeypatch.delenv("NCCL_ROOT", raising=False)
    for name in ("cu13/bin/nvcc", "nccl/include/nccl.h", "nccl/lib/libnccl.so.2"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    monkeypatch.setattr(toolchain, "_wheels", lambda: iter([tmp_path]))
    tools = toolchain.find_toolchain()
    assert tools.nvcc == tmp_path / "cu13/bin/nvcc" and tools.library == tmp_path / "nccl/lib/libnccl.so.2"
