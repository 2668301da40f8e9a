"""Reading files of a bounded size and writing them whole or not at all."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path

from .errors import FormatError, UsageError

MAX_FILE_BYTES = 1 << 30


def read_bounded(path: str, limit: int = MAX_FILE_BYTES) -> bytes:
    """Reads a file (`-`: standard input) of at most `limit` bytes.

    Raises:
        UsageError: the file cannot be opened or read.
        FormatError: it is larger than `limit`.
    """
    try:
        if path == "-":
            data = sys.stdin.buffer.read(limit + 1)
        else:
            with Path(path).open("rb") as stream:
                data = stream.read(limit + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot read it: {error.strerror or error}") from error
    if len(data) > limit:
        raise FormatError(f"{path}: larger than {limit} bytes, which no file of this kind needs")
    return data


def write_atomic(path: str, text: str) -> None:
    """Writes `text` to a file (`-`: standard output) so that nobody ever sees half of it.

    Raises:
        UsageError: the file cannot be written.
    """
    if path == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        write_atomic_bytes(path, text.encode("utf-8"))


def write_atomic_bytes(path: str, data: bytes) -> None:
    """Writes `data` to a file so that nobody ever sees half of it: a temporary file beside it, renamed.

    Raises:
        UsageError: the file cannot be written.
    """
    target = Path(path)
    try:
        if target.exists() and not target.is_file():  # a pipe or a device: nothing to rename over
            target.write_bytes(data)
        else:
            _write_and_rename(target.resolve(), data)
    except OSError as error:
        raise UsageError(f"{path}: cannot write it: {error.strerror or error}") from error


def _write_and_rename(target: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
        Path(temporary).chmod(mode)
        Path(temporary).replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
