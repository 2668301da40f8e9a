"""The reduction kernels on the CPU: against numpy, and by the program that checks them on one GPU."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stragglar.backends.nccl import toolchain
from stragglar.backends.nccl.project import template
from stragglar.schedules import MissingError

DOUBLE = Path(__file__).parent / "double"
HEADERS = ("kernels.h", "data.h", "failure.h", "options.h", "bootstrap.h")
FLAGS = ("-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-pthread")
NUMBERS = {"i32": 2, "i64": 4, "f16": 6, "f32": 7, "f64": 8, "bf16": 9}
DTYPES = {"i32": np.int32, "i64": np.int64, "f16": np.float16, "f32": np.float32, "f64": np.float64}
OPS = {0: np.add, 1: np.multiply, 2: np.maximum, 3: np.minimum}
ADDRESS = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")

LOOP = "for (size_t i = first; i < split.packs; i += step) {"
LOAD = "\n    const Pack<T> x = wide_a"
# Name -> (text of kernels.cu, the same with a bug).
BUGS = {
    "tail": (
        "i < split.count; i += step) out[i] = join(i)",
        "i + 1 < split.count; i += step) out[i] = join(i)",
    ),
    "head": (
        "i < split.head; i += step) out[i] = join(i)",
        "i < split.head / 2; i += step) out[i] = join(i)",
    ),
    "past the end": ("(count - head) / (kWide", "(count - head + 1) / (kWide"),
    "one turn": (f"{LOOP}{LOAD}", f"{LOOP.replace('split.packs', 'split.packs && i < step')}{LOAD}"),
    "no common boundary": ("return {count, 0, count};  // no common boundary", "{}  // no common boundary"),
    "max loses NaN": ("(b > a || b != b) ? b : a", "b > a ? b : a"),
    "min of zeros": ("(b < a || b != b) ? b : a", "(b <= a || b != b) ? b : a"),
    "division by the reciprocal": (
        "Wide<T>::up(x) / static_cast<typename Wide<T>::type>(divisor)",
        "Wide<T>::up(x) * (1 / static_cast<typename Wide<T>::type>(divisor))",
    ),
    "halves cut": (
        "return __float2half_rn(x);",
        "return {static_cast<uint16_t>(__float2half_rn(x).bits & ~1)};",
    ),
}


def compiled(folder, *options, edit=None):
    """Compiles the kernels with the double of CUDA and something that calls them."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++ to run emitted programs on the CPU")
    for name in (*HEADERS, "kernels.cu", "kernel_check.cc"):
        text = template(name)
        if edit and name == "kernels.cu":
            assert text.count(edit[0]) == 1, edit[0]
            text = text.replace(*edit)
        (folder / name).write_text(text)
    include = ("-I", DOUBLE / "include", "-I", DOUBLE, "-I", folder)
    sources = ("-x", "c++", folder / "kernels.cu", DOUBLE / "cuda.cc")
    command = ["g++", *FLAGS, *include, *options, *sources]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def checker(folder, *options, edit=None):
    compiled(folder, *options, folder / "kernel_check.cc", "-o", folder / "check", edit=edit)
    return folder / "check"


@pytest.fixture(scope="module")
def check(tmp_path_factory):
    return checker(tmp_path_factory.mktemp("check"), "-O1")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernels")
    compiled(folder, "-O1", "-shared", "-fPIC", DOUBLE / "kernels.cc", "-o", folder / "kernels.so")
    library = ctypes.CDLL(str(folder / "kernels.so"))
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    library.double_reduce.argtypes = [pointer, pointer, pointer, size, number, number]
    library.double_divide.argtypes = [pointer, pointer, size, number, number]
    return library


def bfloat(x):
    """The bits of float32 values rounded to bfloat16, ties to even."""
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FFF), rounded)


def unbfloat(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def by_numpy(name, function, *operands):
    """A function of numpy on operands given as they lie in memory."""
    with np.errstate(all="ignore"):
        if name == "bf16":
            return bfloat(function(*map(unbfloat, operands)).astype(np.float32))
        return function(*operands)


def place(rng, name, count, offset):
    """Random bits, `offset` elements from a 16-byte boundary; the array that owns them, and they."""
    dtype = np.dtype(DTYPES.get(name, np.uint16))
    raw = rng.integers(0, 256, 32 + (offset + count + 1) * dtype.itemsize, dtype=np.uint8)
    start = -raw.ctypes.data % 16 + offset * dtype.itemsize
    return raw, raw[start : start + count * dtype.itemsize].view(dtype)


def same(name, got, right):
    x, y = (unbfloat(got), unbfloat(right)) if name == "bf16" else (got, right)
    nan = np.isnan(x) & np.isnan(y) if x.dtype.kind == "f" else np.zeros(x.shape, dtype=np.bool_)
    unsigned = f"u{got.dtype.itemsize}"
    return bool(((got.view(unsigned) == right.view(unsigned)) | nan).all())


CASES = {
    "name": st.sampled_from(sorted(NUMBERS)),
    "count": st.integers(0, 70) | st.integers(4000, 4200),
    "offsets": st.tuples(*[st.integers(0, 7)] * 3) | st.integers(0, 7).map(lambda k: (k, k, k)),
    "seed": st.integers(0, 1 << 30),
}


@settings(deadline=None, max_examples=120)
@given(**CASES, op=st.sampled_from(sorted(OPS)))
def test_reductions_against_numpy(kernels, name, count, offsets, seed, op):
    rng = np.random.default_rng(seed)
    whole, out = place(rng, name, count, offsets[0])
    (_, a), (_, b) = (place(rng, name, count, k) for k in offsets[1:])
    before = whole.copy()
    # Of zeros of both signs numpy takes either; the kernel takes the first operand, on every rank the same.
    right = by_numpy(name, OPS[op], a, b)
    if op >= 2:
        x, y = (unbfloat(a), unbfloat(b)) if name == "bf16" else (a, b)
        right = np.where(x == y, a, right)
    assert kernels.double_reduce(*(v.ctypes.data for v in (out, a, b)), count, NUMBERS[name], op) == 0
    assert same(name, out.copy(), right)
    inside = slice(out.ctypes.data - whole.ctypes.data, out.ctypes.data - whole.ctypes.data + out.nbytes)
    before[inside] = whole[inside]
    assert np.array_equal(before, whole), "nothing around the output has changed"


@settings(deadline=None, max_examples=60)
@given(**CASES, divisor=st.integers(1, 2000))
def test_division_against_numpy(kernels, name, count, offsets, seed, divisor):
    rng = np.random.default_rng(seed)
    (_, out), (_, a) = (place(rng, name, count, k) for k in offsets[:2])

    def divide(x):
        if x.dtype.kind == "i":  # towards zero; np.fix of a float would lose bits
            quotient = np.abs(x.astype(object)) // divisor
            return (np.sign(x.astype(object)) * quotient).astype(x.dtype)
        wide = np.float32 if x.dtype == np.float16 else x.dtype
        return (x.astype(wide) / wide(divisor) if wide is np.float32 else x / x.dtype.type(divisor)).astype(
            x.dtype
        )

    right = by_numpy(name, divide, a)
    assert kernels.double_divide(out.ctypes.data, a.ctypes.data, count, NUMBERS[name], divisor) == 0
    assert same(name, out.copy(), right)
    assert kernels.double_divide(a.ctypes.data, a.ctypes.data, count, NUMBERS[name], divisor) == 0
    assert same(name, a.copy(), right), "in place"


def test_what_is_not_supported_is_refused(kernels):
    x = np.zeros(4)
    assert kernels.double_reduce(x.ctypes.data, x.ctypes.data, x.ctypes.data, 4, 0, 0) != 0  # ncclInt8
    assert kernels.double_reduce(x.ctypes.data, x.ctypes.data, x.ctypes.data, 4, 8, 4) != 0  # ncclAvg
    assert kernels.double_divide(x.ctypes.data, x.ctypes.data, 4, 0, 2) != 0


def test_the_check_finds_nothing_and_measures(check, execute, tmp_path):
    log = tmp_path / "log.json"
    done = execute(check, "-d", "bf16", "-e", "65537", "-n", 2, "--json", log)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].endswith(" cases, 0 wrong elements") and int(lines[0].split()[1]) > 1000
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(row["type"], row["op"]) for row in rows[:2]] == [("-", "copy"), ("bf16", "sum")] and len(
        rows
    ) == 6
    assert all(row["gb_per_s"] > 0 for row in rows)


def test_the_check_complains_in_words(check, execute):
    for options, code, words in (
        (("-x", 1), 2, "unknown option -x"),
        (("-d", "f8"), 2, "unknown type f8"),
        (("-n", 0), 2, "-n must be 1 or more"),
        (("-e",), 2, "option -e needs a value"),
        (("--help",), 0, "usage: kernel_check"),
        (("-d", "f64", "-e", "1K", "--json", "/nonexistent/x"), 2, "cannot write /nonexistent/x"),
    ):
        done = execute(check, *options)
        assert done.code == code and words in done.err
    done = execute(check, DOUBLE_DEVICES=0)
    assert done.code == 4 and done.err.startswith("no GPU that can be used here")


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_in_a_kernel_is_found(execute, tmp_path, bug):
    old, new = BUGS[bug]
    program = checker(tmp_path, "-O1", edit=(old, new))
    done = execute(program, "-d", "f16", "-e", 0)
    if bug == "no common boundary" and done.code < 0:
        return  # a 16-byte load from an odd address ends the program, as it does on a GPU
    assert done.code == 1 and " wrong" in done.err, done.err[-1000:]
    assert done.out and not done.out.strip().endswith(" 0 wrong elements")


@pytest.mark.slow
def test_the_check_of_every_type(check, execute):
    done = execute(check, "-e", "1K", "-n", 1)
    assert done.code == 0 and len(done.out.splitlines()) == 1 + 2 + 1 + 6 * 5, done.err


@pytest.mark.slow
def test_the_check_under_sanitizers(execute, tmp_path):
    done = execute(
        checker(tmp_path, "-O1", *ADDRESS), "-e", "1K", "-n", 1, timeout=300, ASAN_OPTIONS="detect_leaks=0"
    )
    assert done.code == 0, done.err[-3000:]


@pytest.mark.slow
def test_the_check_compiles_for_a_gpu(tmp_path):
    try:
        tools = toolchain.find_toolchain()
    except MissingError as error:
        pytest.skip(str(error))
    for name in (*HEADERS, "kernels.cu", "kernel_check.cc"):
        (tmp_path / name).write_text(template(name))
    sources = [str(tmp_path / name) for name in ("kernel_check.cc", "kernels.cu")]
    lib = tools.nvcc.resolve().parent.parent / "lib"
    strict = ["-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror"]
    target = str(tmp_path / "check")
    command = [str(tools.nvcc), "-O3", "-std=c++17", "-arch=sm_90", *strict, f"-I{tools.include}", *sources]
    link = [f"-L{lib}"] if lib.is_dir() else []
    done = subprocess.run([*command, *link, "-o", target], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    try:
        toolchain.compute_capabilities()
    except MissingError:
        stopped = subprocess.run([target], capture_output=True, text=True, check=False)
        assert stopped.returncode == 4 and stopped.stderr.startswith("no GPU that can be used here")
