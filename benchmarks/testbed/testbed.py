"""Testbeds from outside: making one, asking its keeper, finding those that are up, taking them down."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ..schedules.errors import MissingError, RunError
from .channel import Channel, Closed
from .keeper import SOCKET, STATE
from .network import Network

NAME = "stragglar-bench-"
"""How the folders of testbeds begin; their processes have the folder on their command line."""

START_SECONDS = 30.0
END_SECONDS = 5.0
DEFAULT_LIFETIME = 1800.0
_POLL_SECONDS = 0.005
_LONGEST_FOLDER = 60
"""A Unix socket's path has at most 107 bytes."""

_ADMIN = "/usr/local/sbin:/usr/sbin:/sbin"
"""Where ip and tc are, also where the PATH of a user does not name it."""


@dataclass(slots=True)
class Testbed:
    """A testbed that is up.

    Attributes:
        folder: what its processes share; gone when it is.
        network: its hosts and links.
    """

    __test__ = False  # for pytest, which takes the name for a test

    folder: Path
    network: Network
    _keeper: Channel

    def ask(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401
        """One request to the keeper.

        Raises:
            RunError: the testbed is gone.
        """
        try:
            self._keeper.send(request)
            return self._keeper.receive(START_SECONDS)
        except (Closed, TimeoutError) as error:
            raise RunError("the testbed is gone: its time was over, or somebody took it down") from error

    def start(
        self, argv: Sequence[str], log: Path, host: int | None = None, env: Mapping[str, str] | None = None
    ) -> int:
        """Starts a process on a host (None: at the bridge); returns its number inside the testbed."""
        path = f"{os.environ.get('PATH', os.defpath)}:{_ADMIN}"
        own = {"PATH": path, "TMPDIR": str(self.folder), **(env or {})}
        return int(self.ask(op="start", argv=list(argv), env=own, host=host, log=str(log))["pid"])

    def exit_code(self, process: int) -> int | None:
        """What a process ended with; None while it runs."""
        code = self.ask(op="code", pid=process)["code"]
        return None if code is None else int(code)

    def kill(self, process: int) -> None:
        """Ends a process and those that it has started in its session."""
        self.ask(op="kill", pid=process)

    def counters(self) -> list[tuple[int, int]]:
        """Bytes that each host's port has received and sent, headers included."""
        return [(received, sent) for received, sent in self.ask(op="counters")["counters"]]

    def leave(self) -> None:
        """Disconnects; the testbed stays."""
        self._keeper.close()

    def close(self) -> None:
        """Takes it down, and returns when it is."""
        with contextlib.suppress(Closed):
            self._keeper.send({"op": "end"})
        self._keeper.close()
        take_down(self.folder)


@contextlib.contextmanager
def temporary_testbed(network: Network, lifetime: float = DEFAULT_LIFETIME) -> Iterator[Testbed]:
    """A testbed for the time of a `with`; also gone when this process is, however it ends.

    Raises:
        MissingError: namespaces, ip or tc cannot be had here; says which.
        RunError: the kernel refuses a link.
    """
    folder = _prepare(network, lifetime, attached=True)
    # The keeper reads from this pipe: when this process ends, it sees the end of it.
    lifeline = _launch(folder, subprocess.PIPE)
    try:
        bed = _connect(folder, lifeline)
        try:
            yield bed
        finally:
            bed.close()
    finally:
        if lifeline.stdin is not None:
            lifeline.stdin.close()
        take_down(folder)
        lifeline.wait()


def up(network: Network, lifetime: float = DEFAULT_LIFETIME) -> Path:
    """A testbed that stays after this process, until `down` or for `lifetime` seconds; returns its folder.

    Raises:
        MissingError, RunError: as `temporary_testbed`.
    """
    down_dead()
    folder = _prepare(network, lifetime, attached=False)
    process = _launch(folder, subprocess.DEVNULL)
    try:
        _connect(folder, process)
    except BaseException:
        take_down(folder)
        raise
    return folder


def attach(folder: Path) -> Testbed:
    """Connects to a testbed that is up.

    Raises:
        RunError: it is not.
    """
    try:
        network = Network(**json.loads((folder / STATE).read_text(encoding="utf-8"))["network"])
        return Testbed(folder, network, Channel.connect(folder / SOCKET))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{folder}: no testbed is up there") from error


def folders() -> list[Path]:
    """The folders of this user's testbeds, dead or alive, oldest first."""
    found = [path for path in _place().glob(f"{NAME}*") if path.is_dir() and not path.is_symlink()]
    mine = [path for path in found if path.stat().st_uid == os.geteuid()]
    return sorted(mine, key=lambda path: path.stat().st_mtime)


def kept(folder: Path) -> bool:
    """Whether a testbed is up and was made to stay."""
    try:
        settings = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return not settings.get("attached", True) and alive(folder)


def alive(folder: Path) -> bool:
    """Whether any process of a testbed is there."""
    return bool(_processes(folder))


def down_dead() -> int:
    """Removes what testbeds that ended badly have left; returns how many."""
    # A folder without processes may be about to get one: leave it a moment.
    dead = [f for f in folders() if not alive(f) and time.time() - f.stat().st_mtime > START_SECONDS]
    for folder in dead:
        take_down(folder)
    return len(dead)


def take_down(folder: Path) -> None:
    """Ends all processes of a testbed and removes its folder."""
    until = time.monotonic() + END_SECONDS
    patience = time.monotonic() + 1.0
    with contextlib.suppress(OSError, Closed):
        channel = Channel.connect(folder / SOCKET)
        channel.send({"op": "end"})
        channel.close()
    while (left := _processes(folder)) and time.monotonic() < until:
        if time.monotonic() > patience:
            for process in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)
    shutil.rmtree(folder, ignore_errors=True)


def _place() -> Path:
    place = Path(tempfile.gettempdir())
    return place if len(str(place)) <= _LONGEST_FOLDER else Path("/tmp")


def _prepare(network: Network, lifetime: float, attached: bool) -> Path:
    _demand_tools()
    folder = Path(tempfile.mkdtemp(prefix=NAME, dir=_place()))
    settings = {"network": network.to_json(), "lifetime": lifetime, "attached": attached}
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


def _demand_tools() -> None:
    path = f"{os.environ.get('PATH', os.defpath)}:{_ADMIN}"
    packages = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "nsenter": "util-linux"}
    for tool, package in packages.items():
        if sys.platform != "linux" or not shutil.which(tool, path=path):
            raise MissingError(f"a testbed needs Linux and the command {tool}: install {package}")


def _command(folder: Path) -> list[str]:
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    spaces = ["--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--net"]
    keeper = [sys.executable, "-P", "-m", "stragglar.testbed.keeper", str(folder)]
    return ["unshare", *user, *spaces, "--", *keeper]


def _launch(folder: Path, stdin: int) -> subprocess.Popen[bytes]:
    """Starts the keeper, in a session of its own: Ctrl-C is for the process that measures and cleans up."""
    env = os.environ | {"PATH": f"{os.environ.get('PATH', os.defpath)}:{_ADMIN}"}
    with (folder / "keeper.log").open("wb") as log:
        return subprocess.Popen(
            _command(folder), stdin=stdin, stdout=log, stderr=log, start_new_session=True, env=env
        )


def _connect(folder: Path, process: subprocess.Popen[bytes]) -> Testbed:
    """Waits until the keeper is ready."""
    until = time.monotonic() + START_SECONDS
    while not (folder / SOCKET).exists() or not (folder / STATE).exists():
        if process.poll() is not None:
            _say_why(folder)
        if time.monotonic() > until:
            raise RunError(f"the testbed was not up after {START_SECONDS:.0f} s")
        time.sleep(_POLL_SECONDS)
    return attach(folder)


def _say_why(folder: Path) -> NoReturn:
    state = folder / STATE
    if state.exists():
        raise RunError(str(json.loads(state.read_text(encoding="utf-8")).get("error")))
    log = (folder / "keeper.log").read_text(encoding="utf-8", errors="replace")
    told = " ".join(log.split())[-200:] or "it says nothing"
    who = "root" if os.geteuid() == 0 else "a user who may make user namespaces, or root"
    raise MissingError(f"namespaces cannot be made here ({told}): a testbed needs {who} and CAP_SYS_ADMIN")


def _processes(folder: Path) -> list[int]:
    """The keeper and what has made it: processes with the folder on their command line, not this one."""
    mark, found = str(folder).encode(), []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if mark in words and b"stragglar.testbed.keeper" in words:
                found.append(int(entry.name))
    return found
