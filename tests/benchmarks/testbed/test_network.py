"""The network as numbers and text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stragglar.schedules.errors import UsageError
from stragglar.testbed import network as commands
from stragglar.testbed.network import Network


def test_the_payload_share_is_that_of_tcp_with_timestamps_at_mtu_9000():
    assert Network(8, 25e6).payload_rate == pytest.approx(25e6 * 8948 / 9014)


@given(st.integers(2, commands.MAX_HOSTS), st.integers(576, 65536), st.floats(12_500, 1.25e10))
def test_every_host_has_an_address_and_a_port_of_its_own(hosts, mtu, rate):
    network = Network(hosts, rate, mtu)
    assert len(set(network.addresses)) == hosts and commands.BRIDGE_ADDRESS not in network.addresses
    assert 0 < network.payload_rate < rate
    texts = [commands.host_commands(network, host, "1") for host in range(hosts)]
    assert len({line for text in texts for line in text.splitlines() if "link add" in line}) == hosts
    # Nobody asks for an address: a host knows all others and the bridge, and not itself.
    for host, text in enumerate(texts):
        known = {line.split()[2] for line in text.splitlines() if line.startswith("neigh")}
        assert known == {*network.addresses, commands.BRIDGE_ADDRESS} - {network.addresses[host]}
    assert Network(**network.to_json()) == network


def test_both_ends_of_a_port_are_shaped_alike():
    network = Network(2, 25e6)
    host = commands.shape_command(network, commands.PORT)
    bridge = commands.shape_bridge(network).splitlines()
    assert "rate 200000000bit burst 83536 " in host
    assert [line.replace(f"port{i}", commands.PORT) for i, line in enumerate(bridge)] == [host.strip()] * 2


@pytest.mark.parametrize(
    ("hosts", "rate", "mtu"),
    [(1, 25e6, 9000), (65, 25e6, 9000), (4, 1, 9000), (4, 25e6, 100), (4, 25e6, 99999)],
)
def test_what_cannot_be_built_is_refused(hosts, rate, mtu):
    with pytest.raises(UsageError):
        Network(hosts, rate, mtu)
