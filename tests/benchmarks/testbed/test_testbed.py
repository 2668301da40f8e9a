"""Real testbeds: links that are shaped, and nothing left behind however they end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stragglar.cli.main import run
from stragglar.schedules.errors import MissingError, RunError
from stragglar.testbed import testbed as testbeds
from stragglar.testbed.network import Network
from stragglar.testbed.testbed import temporary_testbed

FAST = 125e6


pytestmark = pytest.mark.usefixtures("namespaces")


def until(what, seconds=20.0):
    """Waits for something to become true: a test says whether, not how soon."""
    end = time.monotonic() + seconds
    while not what() and time.monotonic() < end:
        time.sleep(0.02)
    return what()


def on_host(bed, host, script, name="log"):
    log = bed.folder / name
    process = bed.start(["sh", "-c", script], log, host)
    assert until(lambda: bed.exit_code(process) is not None)
    return bed.exit_code(process), log.read_text()


def networks(folder=None):
    """The network namespaces of processes, of all or of one testbed's."""
    found = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (folder is None or str(folder) in (entry / "cmdline").read_text()):
                found.add(str((entry / "ns" / "net").readlink()))
    return found


def test_a_host_has_one_shaped_port_and_the_settings_of_its_own(bed):
    code, text = on_host(
        bed, 1, "tc qdisc show dev eth0; ip -o -4 addr show eth0; cat /proc/sys/net/ipv4/tcp_*"
    )
    assert code == 0 and "tbf" in text and "rate 1Gbit" in text and "10.77.0.2/24" in text
    assert {"reno", "4096\t262144\t262144"} <= set(text.splitlines())


def test_what_is_set_inside_is_not_set_outside():
    names = ("tcp_congestion_control", "tcp_wmem", "tcp_rmem", "tcp_slow_start_after_idle")
    outside = [Path(f"/proc/sys/net/ipv4/{name}").read_text() for name in names]
    links = subprocess.run(["ip", "link"], capture_output=True, check=True).stdout
    with temporary_testbed(Network(2, FAST), 60):
        assert [Path(f"/proc/sys/net/ipv4/{name}").read_text() for name in names] == outside
        assert subprocess.run(["ip", "link"], capture_output=True, check=True).stdout == links
    assert subprocess.run(["ip", "link"], capture_output=True, check=True).stdout == links


def test_bytes_cross_the_ports_and_are_counted(bed):
    size = 200_000
    serve = f"""import socket
s = socket.create_server(('{bed.network.addresses[0]}', 9)); c, _ = s.accept(); n = 0
while (d := c.recv(65536)): n += len(d)
print(n)"""
    send = f"""import socket, time
for _ in range(500):
    try: c = socket.create_connection(('{bed.network.addresses[2]}'.replace('.3', '.1'), 9)); break
    except OSError: time.sleep(0.02)
c.sendall(bytes({size})); c.close()"""
    before = bed.counters()
    logs = [bed.folder / "serve", bed.folder / "send"]
    server = bed.start([sys.executable, "-c", serve], logs[0], 0)
    bed.start([sys.executable, "-c", send], logs[1], 2)
    assert until(lambda: bed.exit_code(server) is not None), logs[1].read_text()
    assert logs[0].read_text().strip() == str(size)
    moved = [(b[0] - a[0], b[1] - a[1]) for a, b in zip(before, bed.counters(), strict=True)]
    assert size < moved[0][0] < 1.1 * size and size < moved[2][1] < 1.1 * size
    assert max(moved[1]) < 2000  # the third host has no part in it


def test_hosts_reach_nothing_outside(bed):
    code, text = on_host(bed, 0, "ip route")
    assert code == 0 and text.split() and "default" not in text
    with socket.create_server(("127.0.0.1", 0)) as outside:
        port = outside.getsockname()[1]
        try_it = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
        process = bed.start([sys.executable, "-c", try_it], bed.folder / "out", 0)
        assert until(lambda: bed.exit_code(process) is not None) and bed.exit_code(process) != 0


def test_nothing_is_left_after_the_with(namespaces):
    with temporary_testbed(Network(2, FAST), 60) as bed:
        folder = bed.folder
        on_host(bed, 0, "sleep 600 & sleep 600 & true")
        assert testbeds.alive(folder)
    assert not folder.exists() and not networks(folder)


def test_nothing_is_left_after_an_error(namespaces):
    with pytest.raises(KeyError), temporary_testbed(Network(2, FAST), 60) as bed:
        folder = bed.folder
        raise KeyError
    assert not folder.exists() and not networks(folder)


DRIVER = """
import sys, time
from pathlib import Path
from stragglar.testbed.network import Network
from stragglar.testbed.testbed import temporary_testbed
with temporary_testbed(Network(2, 125e6), 60) as bed:
    mark = str(bed.folder)
    for host in range(2):
        bed.start([sys.executable, "-c", "import time; time.sleep(600)", mark], bed.folder / "log", host)
    print(mark, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM], ids=["9", "int", "term"])
def test_nothing_is_left_when_the_maker_is_killed(number):
    driver = subprocess.Popen([sys.executable, "-P", "-c", DRIVER], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    folder = Path(driver.stdout.readline().strip())
    assert until(lambda: len(networks(folder)) >= 3)  # the bridge's and both hosts'
    driver.send_signal(number)
    assert until(lambda: not networks(folder)) and until(lambda: not folder.exists())
    assert driver.wait() != 0


def test_nothing_is_left_when_the_keeper_is_killed(bed):
    mark = str(bed.folder)
    sleep = [sys.executable, "-c", "import time; time.sleep(600)", mark]
    bed.start(sleep, bed.folder / "log", 0)
    own = {str(Path("/proc/self/ns/net").readlink())}
    for entry in testbeds._processes(bed.folder):
        os.kill(entry, signal.SIGKILL)
    assert until(lambda: not networks(bed.folder) - own)
    with pytest.raises(RunError, match="the testbed is gone"):
        bed.counters()


def test_it_ends_when_its_time_is_over():
    folder = testbeds.up(Network(2, FAST), 1.0)
    try:
        assert until(lambda: not networks(folder)) and until(lambda: not folder.exists())
    finally:
        testbeds.take_down(folder)


def test_up_stays_and_down_takes_it_away():
    folder = testbeds.up(Network(2, FAST), 60)
    try:
        assert folder in testbeds.folders() and testbeds.kept(folder)
        bed = testbeds.attach(folder)
        assert on_host(bed, 1, "exit 3")[0] == 3
        bed.leave()
        assert testbeds.alive(folder)
    finally:
        testbeds.take_down(folder)
    assert not folder.exists() and not networks(folder)
    with pytest.raises(RunError, match="no testbed is up"):
        testbeds.attach(folder)


def test_leftovers_of_a_dead_one_are_found_and_removed(place):
    dead = place / f"{testbeds.NAME}dead"
    dead.mkdir()
    (dead / "settings.json").write_text(json.dumps({"attached": False}))
    assert testbeds.down_dead() == 0  # it may be about to start
    os.utime(dead, (1, 1))
    assert testbeds.folders() == [dead] and not testbeds.kept(dead)
    assert testbeds.down_dead() == 1 and not dead.exists()


def test_a_missing_tool_is_named(monkeypatch):
    monkeypatch.setattr(testbeds.shutil, "which", lambda name, path=None: None if name == "tc" else name)
    with pytest.raises(MissingError, match="tc: install iproute2"), temporary_testbed(Network(2, FAST)):
        pass


def test_a_kernel_that_refuses_namespaces_is_told(monkeypatch):
    refusing = ["sh", "-c", "echo 'unshare failed: Operation not permitted' >&2; exit 1"]
    monkeypatch.setattr(testbeds, "_command", lambda folder: refusing)
    with (
        pytest.raises(MissingError, match=r"Operation not permitted.*CAP_SYS_ADMIN"),
        temporary_testbed(Network(2, FAST)),
    ):
        pass
    assert not testbeds.folders()


def test_the_commands(capfd):
    assert run(["bench", "up", "--hosts", "2"]) == 0
    (folder,) = testbeds.folders()
    assert capfd.readouterr().out.strip() == folder.name.removeprefix(testbeds.NAME)
    assert run(["bench", "run", "--", "sh", "-c", "echo $RANK of $RANKS is $ADDRESS; test $RANK = 0"]) == 1
    out, err = capfd.readouterr()
    assert out.splitlines() == ["0: 0 of 2 is 10.77.0.1", "1: 1 of 2 is 10.77.0.2"]
    assert err.strip() == "stragglar: the command failed on host 1 with exit code 1"
    assert run(["bench", "run", "--time-limit", "100ms", "sleep", "600"]) == 1
    assert "did not end on 2 hosts" in capfd.readouterr().err
    assert run(["bench", "down"]) == 0
    assert not testbeds.folders() and not networks(folder)
    assert run(["bench", "down"]) == 0 and "none was up" in capfd.readouterr().err
    # With none up, one is made for the command alone.
    assert run(["bench", "run", "--hosts", "2", "true"]) == 0 and not testbeds.folders()
