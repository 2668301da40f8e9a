"""What a compilation needs and where it is: nvcc, NCCL's headers and library, GPUs."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...schedules import MissingError, RunError

NEEDS = "needs nvcc and NCCL headers: pip install 'stragglar[cuda]'"

_CAPABILITY = (75, 76)
"""The CUDA driver's numbers for the two parts of a device's compute capability."""


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A compiler and a NCCL.

    Attributes:
        nvcc: the compiler.
        include: folder with nccl.h.
        library: libnccl.so, as a file.
    """

    nvcc: Path
    include: Path
    library: Path

    def command(self, folder: Path, target: Path, arch: str, *options: str) -> list[str]:
        """The command that compiles the project in `folder` to a benchmark program."""
        sources = [str(folder / name) for name in ("benchmark.cc", "schedule.cc", "kernels.cu")]
        # The runtime of a wheel lies in lib/, where its own nvcc does not look.
        lib = self.nvcc.resolve().parent.parent / "lib"
        link = [f"-L{lib}"] if lib.is_dir() else []
        where = self.library.parent
        link += [f"-L{where}", f"-l:{self.library.name}", "-Xlinker", f"-rpath={where}"]
        start = [str(self.nvcc), "-O3", "-std=c++17", f"-arch={arch}", *options, f"-I{self.include}"]
        return [*start, *sources, *link, "-o", str(target)]


def find_toolchain() -> Toolchain:
    """The first nvcc and NCCL found: the environment (`NCCL_HOME`), installed wheels, the system.

    Raises:
        MissingError: either is missing.
    """
    wheels = list(_wheels())
    path = shutil.which("nvcc") or next((str(p) for w in wheels for p in w.glob("cu*/bin/nvcc")), None)
    homes = [Path(os.environ[name]) for name in ("NCCL_HOME", "NCCL_ROOT") if os.environ.get(name)]
    for home in (*homes, *(w / "nccl" for w in wheels), Path("/usr/local"), Path("/usr")):
        libraries = [p for pattern in ("lib*/libnccl.so*", "lib/*/libnccl.so*") for p in home.glob(pattern)]
        if path and libraries and (home / "include" / "nccl.h").exists():
            return Toolchain(Path(path), home / "include", min(libraries))
    raise MissingError(NEEDS)


def _wheels() -> Iterator[Path]:
    """The folders in which NVIDIA's wheels put their parts."""
    spec = importlib.util.find_spec("nvidia")
    if spec is not None:
        yield from map(Path, spec.submodule_search_locations or ())


def compute_capabilities() -> tuple[str, ...]:
    """The architecture (`sm_90`) of every GPU that this process may use, asked from the driver.

    Raises:
        MissingError: there is no driver or no GPU.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise MissingError("no GPU here: NVIDIA's driver (libcuda.so.1) is not installed") from error
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        raise MissingError("no GPU here: NVIDIA's driver finds none that it can use")
    return tuple(_capability(driver, device) for device in range(count.value))


def _capability(driver: ctypes.CDLL, device: int) -> str:
    parts = []
    for attribute in _CAPABILITY:
        value = ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        parts.append(value.value)
    return f"sm_{parts[0]}{parts[1]}"


def cache_folder() -> Path:
    """Where compiled programs are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "stragglar" / "nccl"


def compiled(texts: Mapping[str, str], tools: Toolchain, arch: str, *options: str) -> Path:
    """The benchmark program of a project, compiled unless the same one was before.

    Args:
        texts: the files of the project.
        tools: what to compile with.
        arch: for which GPU, `sm_90`.
        options: more options for nvcc.

    Raises:
        RunError: the compiler refuses; with what it says.
    """
    key = repr((sorted(texts.items()), tools, tools.library.stat().st_size, arch, options))
    target = cache_folder() / hashlib.sha256(key.encode()).hexdigest()[:20] / "allreduce_bench"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        folder = Path(name)
        for file, text in texts.items():
            (folder / file).write_text(text, encoding="utf-8")
        partial = folder / "allreduce_bench"
        command = tools.command(folder, partial, arch, *options)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RunError(f"nvcc failed: {(done.stderr or done.stdout).strip()[-2000:]}")
        partial.rename(target)  # whole or not at all, also with two at a time
    return target
