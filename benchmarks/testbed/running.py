"""Runs a command on every host of a testbed: `stragglar bench run`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

from ..schedules.errors import RunError
from . import testbed as testbeds
from .network import Network
from .testbed import Testbed, temporary_testbed

_POLL_SECONDS = 0.02
START_SECONDS = 60.0


def run_everywhere(
    network: Network, words: Sequence[str], seconds: float, say: Callable[[str], None]
) -> list[int]:
    """Runs a command on all hosts at the same time.

    Args:
        network: what to make if no testbed is up.
        words: the command.
        seconds: for it to end on all hosts.
        say: told its output, host by host, when all have ended.

    Returns:
        Its exit codes, by host.

    Raises:
        RunError: it does not end in time.
        MissingError: no testbed can be made here.
    """
    with _any_testbed(network, seconds + START_SECONDS) as bed:
        mark = f"run-{time.monotonic_ns()}"
        logs = [bed.folder / f"{mark}-{host}.log" for host in range(bed.network.hosts)]
        processes = [bed.start(words, log, host, _names(bed, host)) for host, log in enumerate(logs)]
        codes = _codes(bed, processes, seconds)
        for host, log in enumerate(logs):
            text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
            for line in text.splitlines():
                say(f"{host}: {line}")
            log.unlink(missing_ok=True)
    return codes


@contextlib.contextmanager
def _any_testbed(network: Network, lifetime: float) -> Iterator[Testbed]:
    """The newest testbed that is up, else one for the time of the `with`."""
    alive = [folder for folder in testbeds.folders() if testbeds.kept(folder)]
    if not alive:
        with temporary_testbed(network, lifetime) as bed:
            yield bed
        return
    bed = testbeds.attach(alive[-1])
    try:
        yield bed
    finally:
        bed.leave()


def _names(bed: Testbed, host: int) -> dict[str, str]:
    addresses = bed.network.addresses
    return {
        "RANK": str(host),
        "RANKS": str(bed.network.hosts),
        "ADDRESS": addresses[host],
        "ADDRESSES": ",".join(addresses),
    }


def _codes(bed: Testbed, processes: Sequence[int], seconds: float) -> list[int]:
    until = time.monotonic() + seconds
    while True:
        codes = [bed.exit_code(process) for process in processes]
        ended = [code for code in codes if code is not None]
        if len(ended) == len(codes):
            return ended
        if time.monotonic() > until:
            for process in processes:
                bed.kill(process)
            raise RunError(f"the command did not end on {len(codes) - len(ended)} hosts within {seconds:g} s")
        time.sleep(_POLL_SECONDS)
