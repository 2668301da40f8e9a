"""Messages over Unix sockets."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stragglar.testbed.channel import Channel, Closed, listen

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(st.lists(st.dictionaries(st.text(), VALUES, max_size=3), max_size=5))
def test_messages_arrive_whole_and_in_order(messages):
    ours, theirs = map(Channel, socket.socketpair())
    for message in messages:
        ours.send(message)
    assert [theirs.receive(5) for _ in messages] == messages
    ours.close()
    with pytest.raises(Closed):
        theirs.receive(5)
    theirs.close()


@pytest.mark.parametrize("data", [b"{\n", b"[]\n", b"\xff\n", b"{}"])
def test_what_is_no_message_ends_the_conversation(data):
    ours, theirs = socket.socketpair()
    ours.sendall(data)
    ours.close()
    channel = Channel(theirs)
    with pytest.raises(Closed):
        channel.receive(5)
    channel.close()


def test_nothing_comes():
    ours, theirs = map(Channel, socket.socketpair())
    with pytest.raises(TimeoutError):
        ours.receive(0.01)
    theirs.send({"late": 1})
    assert ours.receive(5) == {"late": 1}
    ours.close()
    theirs.close()


def test_a_socket_with_a_path_is_for_its_user_alone(tmp_path):
    path = tmp_path / "s"
    with listen(path) as listener:
        assert path.stat().st_mode & 0o077 == 0
        channel = Channel.connect(path)
        listener.accept()[0].close()
        with pytest.raises(Closed):
            channel.receive(5)
        channel.close()
