"""Namespaces of this kernel, from Python: entering one, making one, dying with one's parent."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG = 1


def new_network() -> int:
    """Puts this process into a network namespace of its own and returns a file descriptor of that.

    Raises:
        OSError: not permitted here.
    """
    _checked(_libc().unshare(_CLONE_NEWNET))
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def enter_network(descriptor: int) -> None:
    """Moves this process into the network namespace of a file descriptor.

    Raises:
        OSError: no such namespace, or not permitted.
    """
    _checked(_libc().setns(descriptor, _CLONE_NEWNET))


def enter_network_at(path: Path) -> None:
    """Moves this process into the network namespace that a path names.

    Raises:
        OSError: no such namespace, or not permitted.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        enter_network(descriptor)
    finally:
        os.close(descriptor)


def die_with_parent() -> None:
    """The kernel kills this process when its parent ends, however that ends."""
    _checked(_libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(code: int) -> None:
    if code != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
