"""Links between machines of the ssh backend: loss and bandwidth, made by their own tools and seen from one to the other.

Only links between nodes: administration, the trial's clients and ssh itself come over the same network from elsewhere, and
what hits everybody would hit the hand that must mend it.
"""

import re
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from clusters.firewall import CHAIN, PROBE_PORT
from clusters.impairers import Impairer
from clusters.link_bandwidth import LimitBandwidth
from clusters.link_loss import LosePackets
from clusters.links import LinkEnd, Links
from clusters.ssh_host import SshHost
from clusters.ssh_node import SshNode
from harness.capabilities import Capability
from harness.clock import Clock
from harness.errors import HarnessFailed
from harness.impairments import CLIENTS

T = TypeVar("T")
TRANSFER_PORT = 29_099
"""Where the receiving machine listens while a transfer is measured."""
WAYS: Mapping[Capability, str] = {
    Capability.LOSE: "a rule of iptables on the receiving machine drops by chance",
    Capability.SHAPE: "a class of htb on the sending machine's device",
}
FAULTS = ("loss", "bandwidth")
_SLACK_S = 10.0
"""For ssh itself, beyond what is measured."""
_TRIED = {
    Capability.LOSE: "iptables -A INPUT -m statistic --mode random --probability 0.5 -s 192.0.2.1 -j DROP",
    Capability.SHAPE: "ip link set lo up && tc qdisc add dev lo root handle 1: htb default 0",
}
"""In a network namespace that is thrown away: nothing of the machine is touched."""
_DEVICE = """
command -v python3 >/dev/null || { echo 'python3, by which transfers are measured, is missing' >&2; exit 1; }
device=$(ip -o -4 address show | awk -v wanted={address} '{ split($4, at, "/"); if (at[1] == wanted) { print $2; exit } }')
[ -n "$device" ] || { echo 'no device has the address {address}' >&2; exit 1; }
queue=$(tc qdisc show dev "$device" root | grep -v ' 0: ')
[ -z "$queue" ] || { echo "$device has a queue that somebody made, and it would be lost: $queue" >&2; exit 1; }
"""
# Who is asked for a transfer counts from its first byte; 5: not through by the limit.
_TAKE = """
import socket, sys, time
address, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
connect_s, limit_s = float(sys.argv[4]), float(sys.argv[5])
listener = socket.create_server((address, port))
listener.settimeout(connect_s)
connection, _ = listener.accept()
begun = time.monotonic()
while count > 0:
    left_s = limit_s - (time.monotonic() - begun)
    if left_s <= 0:
        sys.exit(5)
    connection.settimeout(left_s)
    try:
        received = len(connection.recv(65536))
    except TimeoutError:
        sys.exit(5)
    if not received:
        sys.exit(4)
    count -= received
print(time.monotonic() - begun)
"""
_GIVE = """
import socket, sys, time
ours, address, port, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
connect_s, limit_s = float(sys.argv[5]), float(sys.argv[6])
until = time.monotonic() + connect_s
while True:
    try:
        connection = socket.create_connection((address, port), 1, source_address=(ours, 0))
        break
    except OSError:
        if time.monotonic() > until:
            raise
        time.sleep(0.02)
connection.settimeout(limit_s)
try:
    connection.sendall(bytes(count))
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)
except OSError:
    pass
"""


class _Machine:
    """`clusters.links.NetworkSeam` of a machine that is only reached by ssh."""

    def __init__(self, host: SshHost) -> None:
        self._host = host

    def run_as_root(self, argv: Sequence[str], *, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """There."""
        return self._host.run_as_root(argv, text=text)

    def call(self, function: Callable[[], T]) -> T:
        """Nothing of this process can be there."""
        raise HarnessFailed(f"{self._host.where} is another machine.")


class SshLinks(Links):
    """Between the nodes. What is seen of a link, both of its ends say."""

    def __init__(self, nodes: Callable[[], Sequence[SshNode]], *, clock: Clock) -> None:
        super().__init__(lambda: [LinkEnd(n.name, n.address, _Machine(n.host)) for n in nodes()], clock=clock)
        self._nodes = nodes

    def _node(self, name: str) -> SshNode:
        return next(node for node in self._nodes() if node.name == name)

    def arrivals(self, source: str, receiver: str, *, count: int = 1, bytes_each: int = 32) -> int:
        """Sent by the one machine, counted behind our rules by the other one's firewall."""
        sender, taker = self._node(source), self._node(receiver)
        probe = f"printf %{bytes_each}s . > /dev/udp/{taker.address}/{PROBE_PORT}"
        with self._probing:
            taker.firewall.count_from(sender.address)
            try:
                sent = sender.host.run(f"bash -c 'for ((i = 0; i < {count}; i++)); do {probe} || exit 3; done'")
            finally:
                counted = taker.firewall.counted(sender.address)
        if sent.returncode or counted is None:
            raise HarnessFailed(f"{source} could not send datagrams to {receiver}: {sent.stderr.strip()[-200:]}")
        return counted

    def transfer(self, source: str, receiver: str, count: int, *, connect_s: float, limit_s: float) -> float | None:
        sender, taker = self._node(source), self._node(receiver)
        limits = [f"{connect_s:g}", f"{limit_s:g}"]
        to = [taker.address, str(TRANSFER_PORT), str(count), *limits]
        timeout_s = connect_s + limit_s + _SLACK_S
        with self._probing, ThreadPoolExecutor(2, thread_name_prefix="transfer") as pool:
            taken = pool.submit(taker.host.run, _python(_TAKE, to), timeout_s=timeout_s)
            given = pool.submit(sender.host.run, _python(_GIVE, [sender.address, *to]), timeout_s=timeout_s)
            received, sent = taken.result(), given.result()
        if received.returncode == 0:
            return float(received.stdout)
        if received.returncode == 5:
            return None
        said = (received.stderr + sent.stderr).strip()[-300:]
        raise HarnessFailed(f"{source} cannot send {count} bytes to {receiver} on port {TRANSFER_PORT}: {said}")


def impairers_of(links: SshLinks, nodes: Callable[[], Sequence[SshNode]]) -> dict[str, Impairer]:
    """By kind."""

    def prepare(name: str) -> None:
        next(node for node in nodes() if node.name == name).firewall.ensure_chain()

    return {"loss": LosePackets(links, chain=CHAIN, prepare=prepare), "bandwidth": LimitBandwidth(links)}


def problems_of(node: SshNode) -> dict[Capability, str]:
    """Why the node's machine cannot do it; nothing of what it can."""
    found = {}
    for capability, script in _TRIED.items():
        done = node.host.run_as_root(["unshare", "-n", "sh", "-c", script])
        if not done.returncode and capability is Capability.SHAPE:
            done = node.host.run_as_root(["sh", "-c", _DEVICE.replace("{address}", node.address)])
        if done.returncode:
            said = (done.stderr.strip().splitlines() or ["it says nothing"])[-1][:200]
            found[capability] = f"not on {node.host.where}: {said}"
    return found


def refusal_of(fault: str, parameters: Mapping[str, object]) -> str | None:
    """Why this very fault of links cannot be made; None if it can."""
    others = parameters.get("others")
    if fault not in FAULTS or not (others is None or others in (CLIENTS, "everybody") or _names_clients(others)):
        return None
    return (
        f"others = {others!r} would hit administration and ssh, too, which come over the same network from elsewhere; only "
        'links between nodes can be broken: others = "all", "brokers", "controllers", "followers" or a list of nodes'
    )


def _names_clients(others: object) -> bool:
    return isinstance(others, list | tuple) and CLIENTS in others


def _python(program: str, arguments: Sequence[str]) -> str:
    """A script of sh that runs it."""
    mark = "END_OF_PROGRAM"
    assert not re.search(mark, program)
    return f"python3 - {shlex.join(arguments)} <<'{mark}'\n{program}\n{mark}\n"
