"""Connections: strangers are dropped, missing ranks are named, and nothing is left open."""

import socket
import threading
import time

import pytest
from tcp_fleet import together

from stragglar.backends.tcp import meeting
from stragglar.backends.tcp.control import MAX_FRAME
from stragglar.backends.tcp.mesh import Listener
from stragglar.backends.tcp.together import gather
from stragglar.schedules import RunError, UsageError


@pytest.mark.parametrize("ranks", [1, 2, 5, 9])
def test_everybody_meets_everybody(ranks):
    def part(mesh, rank):
        assert (mesh.rank, mesh.ranks, len(mesh.peers)) == (rank, ranks, ranks - 1)
        return gather(mesh, f"I am {rank}".encode(), 10)

    assert together(ranks, part) == [[f"I am {rank}".encode() for rank in range(ranks)]] * ranks


def test_words_of_any_length_are_gathered():
    def part(mesh, rank):
        return gather(mesh, bytes([rank]) * 3_000_000, 20)

    assert together(3, part) == [[bytes([rank]) * 3_000_000 for rank in range(3)]] * 3


def test_a_late_listener_is_tried_again():
    first, second = Listener("127.0.0.1"), Listener("127.0.0.1")
    addresses = [first.address, second.address]
    first.close()
    found = []

    def early():
        found.append(second.connect(1, addresses, 20))

    thread = threading.Thread(target=early)
    thread.start()
    time.sleep(0.2)
    found.append(Listener(*addresses[0]).connect(0, addresses, 20))
    thread.join()
    assert sorted(mesh.rank for mesh in found) == [0, 1]
    for mesh in found:
        mesh.close()


@pytest.mark.parametrize("words", [b"", b"GET / HTTP/1.1\r\n\r\n", bytes(80), bytes(200)])
def test_strangers_are_dropped(words):
    listeners = [Listener("127.0.0.1") for _ in range(2)]
    addresses = [listener.address for listener in listeners]
    strangers = [socket.create_connection(addresses[0]) for _ in range(20)]
    for stranger in strangers:
        stranger.sendall(words)
    found = [None, None]

    def one(rank):
        found[rank] = listeners[rank].connect(rank, addresses, 20, token=b"t")

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for stranger in strangers:
        stranger.settimeout(5)
        with pytest.raises(ConnectionError):
            while True:
                if not stranger.recv(100):
                    raise ConnectionError
        stranger.close()
    assert all(mesh.peers == {1 - mesh.rank} for mesh in found)
    for mesh in found:
        mesh.close()


def alone(rank, ranks, seconds=0.4, **options):
    listener = Listener("127.0.0.1")
    gone = Listener("127.0.0.1")
    addresses = [gone.address] * ranks
    gone.close()
    addresses[rank] = listener.address
    listener.connect(rank, addresses, seconds, **options)


@pytest.mark.parametrize(
    ("rank", "message"),
    [
        (0, r"^ranks 1, 2 did not come within 0 s: rank 0 waited \(expected from 127.0.0.1:\d+\)$"),
        (2, r"^ranks 0, 1 did not come within 0 s: rank 2 waited \(127.0.0.1:\d+: Connection refused\)$"),
    ],
)
def test_missing_ranks_are_named(rank, message):
    with pytest.raises(RunError, match=message):
        alone(rank, 3)


def test_another_token_is_no_rank_of_ours():
    listeners = [Listener("127.0.0.1") for _ in range(2)]
    addresses = [listener.address for listener in listeners]
    messages = [None, None]

    def one(rank):
        with pytest.raises(RunError) as error:
            listeners[rank].connect(rank, addresses, 1.0, token=b"ab"[rank : rank + 1])
        messages[rank] = str(error.value)

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert messages[0].startswith("rank 1 did not come within 1 s: rank 0 waited")
    assert messages[1].startswith("rank 0 did not come within 1 s: rank 1 waited")


def test_another_number_of_ranks_is_named():
    listeners = [Listener("127.0.0.1") for _ in range(2)]
    addresses = [listener.address for listener in listeners]

    def other():
        with pytest.raises(RunError, match="ranks 0, 2 did not come"):
            listeners[1].connect(1, [*addresses, addresses[1]], 0.5)

    thread = threading.Thread(target=other)
    thread.start()
    with pytest.raises(RunError, match="rank 1 was started for 3 ranks, rank 0 for 2"):
        listeners[0].connect(0, addresses, 5)
    thread.join()


def test_a_port_in_use_and_ranks_that_do_not_exist():
    listener = Listener("127.0.0.1")
    with pytest.raises(
        RunError, match=rf"^cannot listen at 127.0.0.1:{listener.address[1]}: Address already in"
    ):
        Listener(*listener.address)
    with pytest.raises(RunError, match=r"cannot listen at 192\.0\.2\.1:0"):
        Listener("192.0.2.1")
    with pytest.raises(UsageError, match=r"must be in 0..1"):
        listener.connect(0, [listener.address] * 2, 1, peers=[2])
    listener.close()


def test_a_silent_connection_is_given_up(monkeypatch):
    monkeypatch.setattr(meeting, "STRANGER_SECONDS", 0.1)
    deaf = socket.create_server(("127.0.0.1", 0))
    listener = Listener("127.0.0.1")
    with pytest.raises(RunError, match=r"rank 0 did not come .* it does not answer"):
        listener.connect(1, [deaf.getsockname(), listener.address], 0.5)
    deaf.close()


def test_a_frame_that_is_none_ends_the_run():
    for words in (b"\xff", b"n" + (MAX_FRAME + 1).to_bytes(4, "big")):

        def part(mesh, rank, words=words):
            if rank == 0:
                mesh.controls[1].socket.send(words)
                return mesh.take_note(1, 5)
            with pytest.raises(RunError, match="rank 0 sent what is no control frame"):
                mesh.take_note(0, 5)
            mesh.note(0, b"over")
            return b""

        assert together(2, part)[0] == b"over"


def test_a_closed_mesh_is_refused():
    def part(mesh, rank):
        gather(mesh, b"", 5)
        mesh.close()
        with pytest.raises(RunError, match=f"the connections of rank {rank} are closed"):
            mesh.require_usable()

    assert together(2, part) == [None, None]
