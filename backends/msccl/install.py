"""Puts an MSCCL file where a runtime looks for it, and says which calls the runtime will use it for.

`plan_load` decides and checks without touching anything, `load` also writes. Both refuse what the
runtime would reject, or would read and then never use: the runtimes themselves fall back to their
own AllReduce without a word.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...schedules.errors import FormatError, InvalidScheduleError, MissingError, UsageError
from .profiles import Profile, profile_named
from .program import Program
from .rules import check_text, summary
from .selection import Selection, selection_of
from .xml_read import parse_document, program_of, read_bytes

# The name that the executor and RCCL give their own directory, next to the library; where that is
# missing they take ../share/nccl/msccl-algorithms (../share/rccl/...), the executor at last
# /usr/share/nccl/msccl-algorithms. We write into none of these but name ours in MSCCL_ALGO_DIR.
ALGORITHM_DIRECTORY = "msccl-algorithms"
RUNTIMES = ("msccl", "msccl-executor", "rccl")
_LARGE_SCRATCH = 2**30


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """Where a file goes and what then happens.

    Attributes:
        runtime: one of `RUNTIMES`.
        path: where the file must lie (absolute).
        content: the bytes to write there, unchanged from the file given.
        exports: environment variables to set before the communicator is made, in order.
        selection: the calls that the runtime uses the file for.
        notes: what the user should know, a sentence each.
    """

    runtime: str
    path: Path
    content: bytes
    exports: tuple[tuple[str, str], ...]
    selection: Selection
    notes: tuple[str, ...]


def load(
    text: str | bytes, runtime: str, directory: Path | None = None, filename: str | None = None
) -> LoadPlan:
    """Checks a file and writes it where the runtime finds it; a reader sees it whole or not at all.

    Args and errors are those of `plan_load`.

    Raises:
        MissingError: the directory cannot be made or written.
    """
    plan = plan_load(text, runtime, directory, filename)
    folder = plan.path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # In a directory of its own: runtimes read every file next to theirs, half-written ones too.
        staging = Path(tempfile.mkdtemp(prefix=".stragglar-", dir=folder))
        try:
            with (staging / plan.path.name).open("xb") as file:
                file.write(plan.content)
                file.flush()
                os.fsync(file.fileno())
            (staging / plan.path.name).replace(plan.path)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        raise MissingError(f"{plan.path}: cannot be written: {error.strerror}; give another --dir") from error
    return plan


def plan_load(
    text: str | bytes, runtime: str, directory: Path | None = None, filename: str | None = None
) -> LoadPlan:
    """Where a file must lie for a runtime, which variables to set, and which calls it is used for.

    Args:
        text: the content of the MSCCL file.
        runtime: one of `RUNTIMES`.
        directory: where to put it; for the executor and RCCL it must hold nothing but MSCCL files.
            None: `msccl-algorithms` under the current directory, for microsoft/msccl the current one.
        filename: the file's name there; None: the name of the algorithm. The executor and RCCL
            take the first file that fits in the order of names.

    Raises:
        UsageError: no such runtime, or a name that cannot be a file's there.
        InvalidScheduleError: the runtime would reject the file, never use it or always prefer
            another; or another file in the directory would make it fail.
    """
    if runtime not in RUNTIMES:
        raise UsageError(f"cannot load for {runtime!r}; runtimes are {' '.join(RUNTIMES)}")
    profile = profile_named(runtime)
    if found := check_text(text, runtime):
        raise InvalidScheduleError(f"{profile.title} would not run this file: {summary(found)}")
    program = program_of(parse_document(text))
    selection = selection_of(program, profile)
    if selection.empty:
        raise InvalidScheduleError(f"{profile.title} would never use this file: {_why_empty(selection)}")
    path = _target(program, runtime, directory, filename)
    notes = [*_notes(program, profile, path)]
    if runtime != "msccl":
        notes += _compete(path, program, selection, profile)
    content = text.encode() if isinstance(text, str) else text
    return LoadPlan(runtime, path, content, _exports(runtime, path), selection, tuple(notes))


def _why_empty(selection: Selection) -> str:
    return (
        f"no size from {selection.min_bytes} to {selection.last_bytes} bytes is a multiple of "
        f"{selection.multiple} elements; widen minBytes and maxBytes"
    )


def _target(program: Program, runtime: str, directory: Path | None, filename: str | None) -> Path:
    folder = directory or (Path() if runtime == "msccl" else Path(ALGORITHM_DIRECTORY))
    name = filename or re.sub(r"[^A-Za-z0-9._-]", "_", program.name or "schedule") + ".xml"
    if name in (".", "..") or re.search(r"[/\0]", name) or len(name.encode()) > 255:
        raise UsageError(f"{name[:80]!r} cannot be a file name")
    path = folder.absolute() / name
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a directory")
    if path.is_dir():
        raise UsageError(f"{path} is a directory; give another file name")
    if runtime == "msccl" and ":" in str(path):
        raise UsageError(
            f"{path} has a colon, which separates the files in MSCCL_XML_FILES; give another --dir"
        )
    return path


def _exports(runtime: str, path: Path) -> tuple[tuple[str, str], ...]:
    match runtime:
        case "msccl":
            return ("MSCCL_XML_FILES", str(path)), ("NCCL_ALGO", "MSCCL,RING,TREE")
        case "msccl-executor":
            return ("NCCL_MSCCL_ENABLE", "1"), ("MSCCL_ALGO_DIR", str(path.parent))
        case _:
            return (
                ("RCCL_MSCCL_ENABLE", "1"),
                ("RCCL_MSCCL_FORCE_ENABLE", "1"),
                ("MSCCL_ALGO_DIR", str(path.parent)),
            )


def _notes(program: Program, profile: Profile, path: Path) -> Iterator[str]:
    if path.exists():
        yield f"replaces {path}"
    match profile.name:
        case "msccl":
            yield "several files: MSCCL_XML_FILES=a:b, at most 4, the first that fits is used"
            yield "calls grouped with others use NCCL's own algorithms"
        case "msccl-executor":
            yield "works with one GPU a process only, and not where libmsccl-scheduler.so is found"
        case _:
            yield "needs an RCCL built with MSCCL, which releases after 2024 dropped"
    if profile.name == "msccl" and program.protocol == "LL128":
        yield "NCCL enables LL128 on Volta and Ampere with NVLink only; elsewhere add NCCL_PROTO=LL128"
    scratch = max(gpu.scratch_chunks for gpu in program.gpus)
    needed = program.max_bytes * scratch // program.chunks
    if profile.scratch_at_init and needed > _LARGE_SCRATCH:
        yield f"allocates {needed} bytes of scratch a rank at init, for maxBytes; a lower maxBytes needs less"


def _compete(path: Path, program: Program, ours: Selection, profile: Profile) -> Iterator[str]:
    """What the other files in the directory mean for this one; raises where they defeat it."""
    for other in _neighbours(path):
        rival = _rival(other, program.ranks, profile)
        if rival is None:
            yield f"{other.name} is for other communicators and has faults"
            continue
        theirs = selection_of(rival, profile)
        both = ours.overlap(theirs)
        if both is None:
            continue
        earlier = os.fsencode(other.name) < os.fsencode(path.name)
        if earlier and both.same_calls(ours):
            raise InvalidScheduleError(
                f"{profile.title} would never use {path.name}: {other} comes first and fits the same calls; "
                f"remove that file, or give a name that sorts before it, as 0-{path.name}"
            )
        first, second = (other.name, path.name) if earlier else (path.name, other.name)
        yield f"{first} is used instead of {second} for {both.describe()}"


def _neighbours(path: Path) -> Iterator[Path]:
    """The other files that the runtime would read: all of them, whatever their names end in."""
    try:
        with os.scandir(path.parent) as entries:
            names = [entry.name for entry in entries if entry.is_symlink() or entry.is_file()]
    except FileNotFoundError:
        return
    except OSError as error:
        raise MissingError(f"{path.parent}: cannot be listed: {error.strerror}") from error
    for name in sorted(names, key=os.fsencode):
        if name != path.name:
            yield path.parent / name


def _rival(path: Path, ranks: int, profile: Profile) -> Program | None:
    """The program in a neighbouring file; None if it is broken, but read for other communicators only.

    Of files for other numbers of ranks the runtimes read the first element, of the rest everything.
    """
    problem = "every file there is read at init, and this one would make it fail; move it away"
    try:
        content = read_bytes(path)
        document = parse_document(content, path.name)
    except (FormatError, MissingError) as error:
        raise InvalidScheduleError(f"{path}: {problem} ({error})") from error
    found = check_text(content, profile.name, path.name)
    if not found:
        return program_of(document)
    in_head = any(violation.line is not None and violation.line <= document.algo.line for violation in found)
    if in_head or document.algo.attributes.get("ngpus") == str(ranks):
        raise InvalidScheduleError(f"{path}: {problem} ({summary(found)})")
    return None
