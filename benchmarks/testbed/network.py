"""The network of a testbed: hosts with one shaped port each on one bridge, as commands for ip and tc.

One port, full duplex, of a fixed rate: the model of the paper. Every veth pair has a token bucket on both
ends, so that the rate holds each way. Only text and numbers here; `keeper.py` gives them to the kernel.

What brings TCP within a few per cent of theory on such ports was found by trying: see `docs/measured.md`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..schedules.errors import UsageError

MAX_HOSTS = 64
PORT = "eth0"
"""Name of a host's port, inside its namespace."""

BRIDGE = "bridge"
BRIDGE_ADDRESS = "10.77.0.254"
PREFIX = 24

GSO = 65536
"""Largest piece of a stream that the kernel handles at a time; smaller ones double the work of the CPU."""

_HEADERS = 14
_TCP_IP = 20 + 20 + 12
"""Bytes of an Ethernet header, and of IP and TCP with timestamps: what a frame carries beside payload."""

_HOUR = 360_000
"""In hundredths of a second: so long the bridge knows behind which port a host is, and floods nothing."""

_QUEUE_BYTES = 16_000_000
"""What a port may queue before it drops: more than all windows of its senders together."""

SYSCTLS = {
    "net/ipv4/tcp_congestion_control": "reno",
    "net/ipv4/tcp_wmem": "4096 262144 262144",
    "net/ipv4/tcp_limit_output_bytes": "65536",
    "net/ipv4/tcp_rmem": "4096 1048576 6291456",
    "net/ipv4/tcp_slow_start_after_idle": "0",
    "net/ipv4/tcp_no_metrics_save": "1",
    "net/ipv6/conf/all/disable_ipv6": "1",
}
"""Settings of every host's namespace; the last one keeps the ports free of neighbour discovery."""

BRIDGE_SYSCTLS = {
    "net/ipv6/conf/all/disable_ipv6": "1",
    "net/bridge/bridge-nf-call-iptables": "0",
    "net/bridge/bridge-nf-call-ip6tables": "0",
    "net/bridge/bridge-nf-call-arptables": "0",
}


@dataclass(frozen=True, slots=True)
class Network:
    """What a testbed looks like.

    Attributes:
        hosts: how many, 2 or more.
        rate: of a port each way, bytes a second, Ethernet headers included.
        mtu: bytes of the largest packet.

    Raises:
        UsageError: a number outside what can be built.
    """

    hosts: int
    rate: float
    mtu: int = 9000

    def __post_init__(self) -> None:
        if not 2 <= self.hosts <= MAX_HOSTS:
            raise UsageError(f"a testbed has 2..{MAX_HOSTS} hosts, not {self.hosts}")
        if not 12_500 <= self.rate <= 12_500_000_000:
            raise UsageError("the rate of a port must be 100kbit/s to 100Gbit/s")
        if not 576 <= self.mtu <= GSO:
            raise UsageError(f"the MTU must be 576..{GSO} bytes, not {self.mtu}")

    @property
    def payload_rate(self) -> float:
        """Bytes of data a second that TCP can carry through a port, one way."""
        return self.rate * (self.mtu - _TCP_IP) / (self.mtu + _HEADERS)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The hosts' IP addresses."""
        return tuple(f"10.77.0.{host + 1}" for host in range(self.hosts))

    def to_json(self) -> dict[str, Any]:
        """The network as plain JSON values; `Network(**values)` gives it back."""
        return asdict(self)


def bridge_commands(network: Network) -> str:
    """What `ip -batch` makes of the bridge's namespace, before the hosts have ports."""
    lines = [
        "link set lo up",
        f"link add {BRIDGE} address {_mac(254)} mtu {network.mtu} type bridge stp_state 0 mcast_snooping 0"
        f" ageing_time {_HOUR}",
        f"addr add {BRIDGE_ADDRESS}/{PREFIX} dev {BRIDGE}",
        f"link set {BRIDGE} up",
        *_neighbours(network, BRIDGE, 254),
    ]
    return "\n".join(lines) + "\n"


def host_commands(network: Network, host: int, bridge_namespace: str) -> str:
    """What `ip -batch` does in one host's namespace: its port, with the other end at the bridge.

    Args:
        network: the testbed.
        host: which one.
        bridge_namespace: how ip may name the bridge's namespace: a process in it.
    """
    sizes = f"mtu {network.mtu} gso_max_size {GSO}"
    lines = [
        "link set lo up",
        f"link add {PORT} address {_mac(host)} {sizes} type veth"
        f" peer name port{host} {sizes} netns {bridge_namespace}",
        f"addr add {network.addresses[host]}/{PREFIX} dev {PORT}",
        f"link set {PORT} up",
        *_neighbours(network, PORT, host),
    ]
    return "\n".join(lines) + "\n"


def join_commands(network: Network) -> str:
    """What `ip -batch` does at the bridge once all ports are there."""
    return "".join(f"link set port{h} master {BRIDGE} up\n" for h in range(network.hosts))


def shape_command(network: Network, device: str) -> str:
    """What `tc -batch` does at one end of a port: a token bucket, as deep as one largest piece."""
    burst = GSO + 2 * network.mtu
    rate = round(network.rate * 8)
    return f"qdisc add dev {device} root tbf rate {rate}bit burst {burst} limit {_QUEUE_BYTES}\n"


def shape_bridge(network: Network) -> str:
    """What `tc -batch` does at the bridge: all ports, towards the hosts."""
    return "".join(shape_command(network, f"port{host}") for host in range(network.hosts))


def _mac(host: int) -> str:
    return f"02:77:00:00:00:{host + 1:02x}"


def _neighbours(network: Network, device: str, own: int) -> list[str]:
    # Nobody has to ask for an address in the middle of a measurement.
    known = {host: address for host, address in enumerate(network.addresses) if host != own}
    if own != 254:
        known[254] = BRIDGE_ADDRESS
    return [
        f"neigh add {address} lladdr {_mac(host)} dev {device} nud permanent"
        for host, address in known.items()
    ]
