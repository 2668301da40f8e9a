"""The first process of a testbed: makes its namespaces, starts what runs in them, and takes all down with it.

`python -m stragglar.testbed.keeper FOLDER` runs as process 1 of a process namespace (see `testbed.py`). When
it ends, in whatever way, the kernel kills every other process there, and with the last of them go the network
namespaces, which have no name outside. So nothing can be left behind, also by `kill -9`.

It ends when told to, when whoever made it goes away, or when its time is over.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

from . import network as commands
from .channel import Channel, Closed, listen
from .kernel import enter_network, new_network
from .network import Network

POLL_SECONDS = 0.25
STATE = "state.json"
SOCKET = "keeper"


class Keeper:
    """Builds the network of a testbed and serves requests about it."""

    def __init__(self, folder: Path, network: Network, attached: bool) -> None:
        self._folder, self._network, self._attached = folder, network, attached
        self._codes: dict[int, int] = {}
        self._started: set[int] = set()
        self._hosts: list[int] = []
        self._counters: list[int] = []

    def build(self) -> None:
        """Makes the namespaces and their links.

        Raises:
            OSError, RuntimeError: the kernel or a tool refuses.
        """
        self._private_shared_memory()
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        _set(commands.BRIDGE_SYSCTLS)
        for _ in range(self._network.hosts):
            self._hosts.append(new_network())
            _set(commands.SYSCTLS)
        enter_network(own)
        _batch("ip", commands.bridge_commands(self._network))
        for host, descriptor in enumerate(self._hosts):
            # Entered by the children only: `netns 1` must go on to mean the bridge's namespace.
            _batch("ip", commands.host_commands(self._network, host, "1"), descriptor)
            _batch("tc", commands.shape_command(self._network, commands.PORT), descriptor)
        _batch("ip", commands.join_commands(self._network))
        _batch("tc", commands.shape_bridge(self._network))
        self._open_counters(own)
        self._name_hosts()

    def _private_shared_memory(self) -> None:
        # MPI leaves its files there when it is killed: these go with the namespace.
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], check=False, capture_output=True)

    def _open_counters(self, own: int) -> None:
        # A file of /proc stays with the namespace that it was opened in.
        for descriptor in self._hosts:
            enter_network(descriptor)
            self._counters.append(os.open("/proc/thread-self/net/dev", os.O_RDONLY | os.O_CLOEXEC))
        enter_network(own)

    def _name_hosts(self) -> None:
        # Paths by which processes of the testbed enter a host: seen from outside they lead nowhere.
        for address, descriptor in zip(self._network.addresses, self._hosts, strict=True):
            (self._folder / "hosts").mkdir(exist_ok=True)
            (self._folder / "hosts" / address).symlink_to(f"/proc/1/fd/{descriptor}")

    def serve(self) -> None:
        """Answers requests until the testbed is to end."""
        selector = selectors.DefaultSelector()
        listener = listen(self._folder / SOCKET)
        selector.register(listener, selectors.EVENT_READ, "listener")
        if self._attached:
            selector.register(sys.stdin.fileno(), selectors.EVENT_READ, "maker")
        _write(self._folder / STATE, {"ready": True, "network": self._network.to_json()})
        while True:
            for key, _ in selector.select(POLL_SECONDS):
                if key.data == "maker":
                    if not os.read(sys.stdin.fileno(), 1 << 10):
                        return
                elif key.data == "listener":
                    self._accept(listener, selector)
                elif not self._answer(key.data, selector):
                    return
            self._reap()

    def _accept(self, listener: socket.socket, selector: selectors.BaseSelector) -> None:
        channel = Channel(listener.accept()[0])
        selector.register(channel, selectors.EVENT_READ, channel)

    def _answer(self, channel: Channel, selector: selectors.BaseSelector) -> bool:
        try:
            request = channel.receive(5.0)
            if request.get("op") == "end":
                return False
            channel.send(self._reply(request))
        except (Closed, TimeoutError):
            selector.unregister(channel)
            channel.close()
        return True

    def _reply(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["op"] == "counters":
            return {"counters": [_bytes(descriptor) for descriptor in self._counters]}
        if request["op"] == "code":
            self._reap()
            return {"code": self._codes.get(request["pid"])}
        if request["op"] == "kill":
            if request["pid"] in self._started:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(request["pid"], signal.SIGKILL)
            return {}
        assert request["op"] == "start"
        return {"pid": self._start(request)}

    def _start(self, request: dict[str, Any]) -> int:
        """A process of the testbed: in a host's namespace, or the bridge's, its output in a file."""
        child = os.fork()
        if child:
            self._started.add(child)
            return child
        try:
            os.setsid()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
                signal.signal(number, signal.SIG_DFL)
            if request["host"] is not None:
                enter_network(self._hosts[request["host"]])
            log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            nothing = os.open(os.devnull, os.O_RDONLY)
            for target, source in enumerate((nothing, log, log)):
                os.dup2(source, target)
            os.execvpe(request["argv"][0], request["argv"], os.environ | request["env"])
        except OSError as error:
            os.write(2, f"{request['argv'][0]}: {error.strerror}\n".encode())
        finally:
            os._exit(127)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._codes[ended[0]] = os.waitstatus_to_exitcode(ended[1])

    def end(self) -> NoReturn:
        """Kills everything in the testbed, removes its folder and ends."""
        with contextlib.suppress(OSError):
            os.kill(-1, signal.SIGKILL)  # in this namespace: all but this process
        shutil.rmtree(self._folder, ignore_errors=True)
        os._exit(0)


def _set(settings: dict[str, str]) -> None:
    for name, value in settings.items():
        path = Path("/proc/sys") / name
        if path.exists():  # not every kernel has IPv6, or a firewall at bridges
            path.write_text(value)


def _batch(tool: str, text: str, descriptor: int | None = None) -> None:
    def enter() -> None:
        if descriptor is not None:
            enter_network(descriptor)

    done = subprocess.run(
        [tool, "-batch", "-"], input=text, capture_output=True, text=True, check=False, preexec_fn=enter
    )
    if done.returncode:
        why = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise RuntimeError(f"{tool} cannot make the links: {why[:300]}")


def _bytes(descriptor: int) -> list[int]:
    """Bytes that a host's port has received and sent, from its `/proc/net/dev`."""
    text = os.pread(descriptor, 1 << 16, 0).decode()
    values = text.partition(f"{commands.PORT}:")[2].split()
    return [int(values[0]), int(values[8])]


def _write(path: Path, content: dict[str, Any]) -> None:
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(content), encoding="utf-8")
    partial.replace(path)


def main(folder: Path) -> None:
    """Keeps the testbed that `settings.json` in a folder describes."""
    settings = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
    keeper = Keeper(folder, Network(**settings["network"]), settings["attached"])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, lambda *_: keeper.end())
    signal.setitimer(signal.ITIMER_REAL, settings["lifetime"])
    try:
        keeper.build()
    except (OSError, RuntimeError) as error:
        _write(folder / STATE, {"ready": False, "error": str(error)})
        os._exit(1)
    try:
        keeper.serve()
    finally:
        keeper.end()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
