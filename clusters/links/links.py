"""The links between the nodes of a cluster and its clients, and rules that drop, slow, reset or cut what passes on them.

A backend gives one `LinkEnd` per node and one for the trial's clients; with them it has every part of
`prozess.clusters.links.support`. Everything here is done from inside an end's network namespace, so the observer's link
is left alone by choosing addresses of the data network, and a rule belongs to the node and not to its process.
"""

import json
import math
import socket
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

from prozess.clusters.links.kernel_probe import IPTABLES
from prozess.harness.clock import NS_PER_S, Clock, wait_until
from prozess.harness.config.impairments import CLIENTS, Bandwidth, ClientCut, Loss, ResetConnections, Vanish
from prozess.harness.errors import HarnessFailed, NotReady
from prozess.harness.interfaces import Node
from prozess.harness.schema import Tristate

T = TypeVar("T")
API_VERSIONS = b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff"
"""An ApiVersions request (v0, correlation 1, no client id), which every Kafka server answers (KIP-35)."""
FOUR_LETTERS = b"srvr"
"""A question that a ZooKeeper server answers: the only word that `4lw.commands.whitelist` has by default."""
ARRIVE_S = 0.1
"""How long a datagram may take; between namespaces of one machine it takes microseconds, on a starved one milliseconds."""
_BURST = 40
"""Datagrams sent before any is taken out: fewer than a socket's default buffer holds (rmem_default, 208 KiB)."""


class NetworkSeam(Protocol):
    """Says how a backend acts in the network namespace of one end."""

    def run_as_root(self, argv: Sequence[str], *, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Runs a command of this host there, as root. The caller judges what it returns.

        MissingTool or HarnessFailed if it cannot be run or does not end in time."""
        ...

    def call(self, function: Callable[[], T]) -> T:
        """Calls `function` there: a socket it makes stays in that namespace, and a process it starts is born there."""
        ...


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """One end of links: a node, or the trial's clients."""

    name: str
    address: str
    """Its address on the network that faults touch."""
    network: NetworkSeam
    ports: tuple[int, ...] = ()
    """The TCP ports on which it serves there."""
    question: bytes = API_VERSIONS
    """The question that the server at the first of them answers."""
    has_rules: bool = True
    """May rules be made in its network? Where not, they are made at the other end of its links."""


class Links(Mapping[str, LinkEnd]):
    """The ends of all links, by name. They are asked for each time, since a restart may change addresses and namespaces."""

    def __init__(self, ends: Callable[[], Iterable[LinkEnd]], *, clock: Clock) -> None:
        self._ends, self._clock = ends, clock
        self._probing = threading.Lock()
        self._probes = 0

    def __getitem__(self, name: str) -> LinkEnd:
        for end in self._ends():
            if end.name == name:
                return end
        raise HarnessFailed(f"This cluster has no node {name!r} with links.")

    def __iter__(self) -> Iterator[str]:
        return (end.name for end in self._ends())

    def __len__(self) -> int:
        return sum(1 for _ in self._ends())

    def besides(self, name: str) -> list[LinkEnd]:
        """All ends but that one."""
        return [end for end in self._ends() if end.name != name]

    def arrivals(self, source: str, receiver: str, *, count: int = 1, bytes_each: int = 32) -> int:
        """Sends datagrams from `source`, and counts how many reach `receiver`.

        One that a rule at its own end forbids does not arrive. OSError or HarnessFailed if it could not be tried."""
        sender, taker = self[source], self[receiver]
        with self._probing, ExitStack() as closing:
            ours = closing.enter_context(taker.network.call(lambda: _bound(taker.address)))
            theirs = closing.enter_context(sender.network.call(lambda: _bound(sender.address)))
            arrived = 0
            for begun in range(0, count, _BURST):
                burst = min(_BURST, count - begun)
                self._probes += 1
                mark = self._probes.to_bytes(8).ljust(bytes_each, b".")
                for _ in range(burst):
                    try:
                        theirs.sendto(mark, ours.getsockname())
                    except PermissionError:
                        continue
                arrived += _take(ours, mark, burst)
            return arrived

    def transfer(self, source: str, receiver: str, count: int, *, connect_s: float, limit_s: float) -> float | None:
        """Measures the seconds that so many bytes take on a new connection that `source` opens.

        None if they are not through by the limit. HarnessFailed if there is no connection."""
        sender, taker = self[source], self[receiver]
        arrived_ns: list[int] = []
        with self._probing, _sink(taker, connect_s) as listener:
            reader = threading.Thread(target=_receive_all, args=(listener, count, arrived_ns, self._clock), daemon=True)
            reader.start()
            try:
                connection = sender.network.call(lambda: _connected(sender, listener.getsockname(), connect_s))
            except OSError as error:
                raise HarnessFailed(f"{source} cannot connect to {receiver}: {error}.") from error
            with connection, suppress(TimeoutError):
                begun_ns = self._clock.monotonic_ns()
                connection.settimeout(limit_s)
                connection.sendall(bytes(count))
                connection.shutdown(socket.SHUT_WR)
                reader.join(limit_s)
        return (arrived_ns[0] - begun_ns) / NS_PER_S if arrived_ns else None


def _connected(sender: LinkEnd, to: tuple[str, int], timeout_s: float) -> socket.socket:
    return socket.create_connection(to, timeout_s, source_address=(sender.address, 0))


def _sink(taker: LinkEnd, timeout_s: float) -> socket.socket:
    def listen() -> socket.socket:
        return socket.create_server((taker.address, 0))

    listener = taker.network.call(listen)
    listener.settimeout(timeout_s)
    return listener


def _receive_all(listener: socket.socket, count: int, arrived_ns: list[int], clock: Clock) -> None:
    """Notes when the last of so many bytes of one connection came, if it did."""
    try:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(listener.gettimeout())
            while count > 0:
                received = len(connection.recv(65536))
                if not received:
                    return
                count -= received
    except OSError:
        return
    arrived_ns.append(clock.monotonic_ns())


def _bound(address: str) -> socket.socket:
    found = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    found.settimeout(ARRIVE_S)
    try:
        found.bind((address, 0))
    except OSError:
        found.close()
        raise
    return found


def _take(ours: socket.socket, mark: bytes, expected: int) -> int:
    """Counts the datagrams with that mark until none comes for a while."""
    arrived = 0
    while arrived < expected:
        try:
            arrived += ours.recv(65536) == mark
        except TimeoutError:
            break
    return arrived


# Connections of a node on the data network: reset, or left half-open by an end that vanished. ss(8) does it, whose -K needs
# a kernel with CONFIG_INET_DIAG_DESTROY.


Connection = tuple[str, str]
"""The own and the other address, each with its port."""
GONE_S = 3.0


class ConnectionResets:
    """Resets open connections: the node's kernel aborts them, and informs the other side by RST."""

    def __init__(self, links: Links, clock: Clock) -> None:
        self._links, self._clock = links, clock

    def harm(self, node: Node, harm: ResetConnections) -> str:
        """Resets them. HarnessFailed if there was none, or one of them goes on at either end."""
        end = self._links[node.name]
        others = [self._links[harm.peer]] if harm.peer else self._links.besides(node.name)
        open_before = {other.name: connections(end, other) for other in others}
        if not any(open_before.values()):
            raise HarnessFailed(
                f"{node.name} has no open connection with {harm.peer or 'anybody'} that could be reset."
            )
        for other in others:
            destroy(end, other)
        for other in others:
            self._await_gone(end, other, open_before[other.name])
        counts = ", ".join(f"{len(were)} with {name}" for name, were in sorted(open_before.items()) if were)
        return f"connections reset, seen to be gone at both ends: {counts}"

    def _await_gone(self, end: LinkEnd, other: LinkEnd, were: set[Connection]) -> None:
        mirrored = {(theirs, ours) for ours, theirs in were}
        try:
            wait_until(
                lambda: not (were & connections(end, other)) and not (mirrored & connections(other, end)),
                awaited=f"{len(were)} connections of {end.name} with {other.name} to be gone at both ends",
                timeout_s=GONE_S,
                clock=self._clock,
                last_seen=lambda: f"{len(mirrored & connections(other, end))} still open at {other.name}",
            )
        except NotReady as error:
            raise HarnessFailed(str(error)) from error


class Vanishing:
    """Makes a node vanish: it is killed, and its kernel forgets its connections before it can inform the other side."""

    def __init__(self, links: Links) -> None:
        self._links = links

    def harm(self, node: Node, harm: Vanish) -> str:
        """Makes the node vanish without closing its connections. HarnessFailed if nobody is left with a connection that
        goes nowhere."""
        end = self._links[node.name]
        node.kill()
        for other in self._links.besides(node.name):
            destroy(end, other)  # what would go on sending FIN
        counts = {other.name: len(connections(other, end)) for other in self._links.besides(node.name)}
        left = {name: count for name, count in sorted(counts.items()) if count}
        if not left:
            raise HarnessFailed(
                f"Nobody has an open connection to {node.name} left: the end of each connection was noticed."
            )
        return "connections half-open: " + ", ".join(f"{count} of {name}" for name, count in left.items())


def connections(end: LinkEnd, other: LinkEnd) -> set[Connection]:
    """The established connections between the two, as `end` sees them."""
    sockets = _ss(end, "-Htn", "state", "established", "src", end.address, "dst", other.address)
    return {(words[-2], words[-1]) for line in sockets.splitlines() if len(words := line.split()) >= 4}


def destroy(end: LinkEnd, other: LinkEnd, *, to_ports: Sequence[int] = ()) -> None:
    """Aborts every connection between the two at `end`, in whatever state, or only those that it opened to these ports."""
    between = ["-KHtn", "state", "connected", "src", end.address, "dst", other.address]
    for port in to_ports:
        _ss(end, *between, "dport", "=", f":{port}")
    if not to_ports:
        _ss(end, *between)


def _ss(end: LinkEnd, *arguments: str) -> str:
    done = end.network.run_as_root(["ss", *arguments])
    if done.returncode:
        raise HarnessFailed(f"ss of {end.name} refused: {done.stderr.strip()[-300:]}")
    return done.stdout


# Redirects: rules of the table nat that lead connections to a proxy.


def is_redirected(end: LinkEnd, rule: Sequence[str]) -> bool:
    """Says whether the end has this redirect. HarnessFailed if iptables does not say."""
    done = end.network.run_as_root([*IPTABLES, "-t", "nat", "-C", *rule])
    if done.returncode not in (0, 1, 2):
        raise HarnessFailed(f"iptables of {end.name} did not say which redirects it has: {done.stderr.strip()[-300:]}")
    return done.returncode == 0


def change_redirect(end: LinkEnd, do: str, rule: Sequence[str]) -> None:
    """Puts the redirect behind all others (`-A`) or before them (`-I`), or takes it away once (`-D`). HarnessFailed if
    that is refused."""
    done = end.network.run_as_root([*IPTABLES, "-t", "nat", do, *rule])
    if done.returncode:
        raise HarnessFailed(f"iptables of {end.name} refused a redirect: {done.stderr.strip()[-300:]}")


def lead_no_more(end: LinkEnd, rule: Sequence[str]) -> None:
    """Takes the redirect away. Safe where there is none."""
    while is_redirected(end, rule):
        change_redirect(end, "-D", rule)


def listen_port(first: int, other: LinkEnd, index: int) -> int:
    """Returns the port on which a proxy listens in its namespace: another one for every port of every node."""
    return first + int(other.address.rpartition(".")[2]) * 8 + index


# Packet loss, bandwidth, and cuts of clients: rules in the network namespace of a node that drop or slow what comes or
# goes.
#
# Only what is sent to the node's address on the data network counts; the observer comes to another address. See
# iptables-extensions(8), `statistic`.


CHANCE_OF_NO_LOSS = 1e-9
"""The probability that all probes come through although the rule works."""
PROBES_MIN, PROBES_MAX = 100, 3000
DEVIATIONS_MAX = 6.0
"""How far the share that is seen may be from the one that was asked for, in standard deviations of a binomial."""


class LossyLinks:
    """Drops a share of the packets that come to a node."""

    def __init__(
        self, links: Links, *, chain: str = "INPUT", prepare: Callable[[str], None] = lambda name: None
    ) -> None:
        """`prepare` makes the chain at the node of that name, if it has none."""
        self._links, self._chain, self._prepare = links, chain, prepare

    def impair(self, node: Node, impairment: Loss) -> None:
        self._prepare(node.name)
        if not self._there(node, impairment):
            self._iptables(node, "-A", impairment)

    def repair(self, node: Node, impairment: Loss) -> None:
        while self._there(node, impairment):
            self._iptables(node, "-D", impairment)

    def impaired(self, node: Node, impairment: Loss) -> tuple[Tristate, str]:
        """Counts datagrams that do not come. Without the rule it is not impaired, whatever else drops packets."""
        source = impairment.source or self._links.besides(node.name)[0].name
        count = probes_for(impairment.share)
        lost = count - self._links.arrivals(source, node.name, count=count)
        seen = f"{lost} of {count} datagrams of {source} were lost"
        if not self._there(node, impairment):
            return Tristate.NO, f"{seen}, and the rule is gone"
        if not lost:
            return Tristate.NO, seen
        return (Tristate.YES if fits(lost, count, impairment.share) else Tristate.UNKNOWN), seen

    def _there(self, node: Node, impairment: Loss) -> bool:
        done = self._links[node.name].network.run_as_root([*IPTABLES, "-C", *self._rule(node, impairment)])
        if done.returncode not in (0, 1, 2):
            raise HarnessFailed(f"iptables of {node.name} did not say whether packets are lost: {done.stderr.strip()}")
        return done.returncode == 0

    def _iptables(self, node: Node, do: str, impairment: Loss) -> None:
        done = self._links[node.name].network.run_as_root([*IPTABLES, do, *self._rule(node, impairment)])
        if done.returncode:
            raise HarnessFailed(f"iptables of {node.name} refused {do} of a loss: {done.stderr.strip()[-300:]}")

    def _rule(self, node: Node, impairment: Loss) -> list[str]:
        source = ["-s", self._links[impairment.source].address] if impairment.source else []
        statistic = ["-m", "statistic", "--mode", "random", "--probability", f"{impairment.share:.6f}"]
        return [self._chain, "-d", self._links[node.name].address, *source, *statistic, "-j", "DROP"]


def probes_for(share: float) -> int:
    """Returns how many datagrams show a loss of that share almost certainly."""
    wanted = math.ceil(math.log(CHANCE_OF_NO_LOSS) / math.log1p(-share))
    return min(max(wanted, PROBES_MIN), PROBES_MAX)


def fits(lost: int, count: int, share: float) -> bool:
    """Is the number of lost datagrams what this share would lose?"""
    return abs(lost - count * share) <= DEVIATIONS_MAX * math.sqrt(count * share * (1 - share)) + 1


# Bandwidth: what a node sends to a peer, or to anybody, goes through a class of htb with a rate (tc-htb(8),
# tc-u32(8)).
#
# The queue is on the node's device of the data network; what no filter takes passes unlimited (`default 0`).


MEASURE_S = 0.5
"""How long the limit lets the bytes take that are sent to see it."""
SEEN_SHARE = 0.6
"""The share of that time which a limited transfer must take: buffers on the way take some bytes at once."""
BURST_MIN_BYTES = 3200
"""The least burst of a class: two packets of 1500 bytes must pass at any rate."""
_CONNECT_S = 20.0
_ANYBODY = 0xFFFF


class LimitedLinks:
    """Limits what a node sends, to a peer or to anybody, or what the trial's clients send to a node."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._changing = threading.Lock()
        """The limits of clients to several nodes are on one device."""

    def impair(self, node: Node, impairment: Bandwidth) -> None:
        """Limits the link. HarnessFailed if another limit is on it, or the sender's network takes no rules."""
        end, to = self._ways(node, impairment)
        if not end.has_rules:
            raise HarnessFailed(f"What {end.name} send to {to} cannot be limited: no rules are made in their network.")
        number, device = self._number(to), _device(end)
        with self._changing:
            classes = _classes(end, device)
            if classes.get(number) == impairment.bytes_per_s:
                return
            if number in classes:
                raise HarnessFailed(f"{end.name}: this link has a limit already, of {classes[number]} bytes/s.")
            if not classes:
                _tc(end, "qdisc", "replace", "dev", device, "root", "handle", "1:", "htb", "default", "0")
            rate = f"{impairment.bytes_per_s}bps"  # of tc: bytes per second
            burst = str(_burst(impairment))
            limit = ["htb", "rate", rate, "ceil", rate, "burst", burst, "cburst", burst]
            _tc(end, "class", "add", "dev", device, "parent", "1:", "classid", f"1:{number:x}", *limit)
            address = f"{self._links[to].address}/32" if to else "0.0.0.0/0"
            match = ["protocol", "ip", "pref", str(number), "u32", "match", "ip", "dst", address]
            _tc(end, "filter", "add", "dev", device, "parent", "1:", *match, "flowid", f"1:{number:x}")

    def repair(self, node: Node, impairment: Bandwidth) -> None:
        end, to = self._ways(node, impairment)
        if not end.has_rules:
            return
        number, device = self._number(to), _device(end)
        with self._changing:
            classes = _classes(end, device)
            if classes.get(number) != impairment.bytes_per_s:
                return
            if len(classes) == 1:
                _tc(end, "qdisc", "del", "dev", device, "root")
                return
            _tc(end, "filter", "del", "dev", device, "parent", "1:", "pref", str(number))
            _tc(end, "class", "del", "dev", device, "classid", f"1:{number:x}")

    def impaired(self, node: Node, impairment: Bandwidth) -> tuple[Tristate, str]:
        """Looks how long a transfer takes. Without its class nothing is limited."""
        end, to = self._ways(node, impairment)
        classes = _classes(end, _device(end)) if end.has_rules else {}
        if classes.get(self._number(to)) != impairment.bytes_per_s:
            return Tristate.NO, "the limit is gone"
        others = [to] if to else [other.name for other in self._links.besides(end.name)]
        taker = next((other for other in others if to or self._number(other) not in classes), None)
        if taker is None:
            return Tristate.UNKNOWN, "every peer has a limit of its own"
        size = int(impairment.bytes_per_s * MEASURE_S) + 2 * _burst(impairment)
        took_s = self._links.transfer(end.name, taker, size, connect_s=_CONNECT_S, limit_s=2 * MEASURE_S)
        sent = f"{size} bytes of {end.name} to {taker}" if end.name == CLIENTS else f"{size} bytes to {taker}"
        if took_s is None:  # others share the limit
            return Tristate.YES, f"{sent} take more than {2 * MEASURE_S:g} s"
        return (Tristate.YES if took_s >= SEEN_SHARE * MEASURE_S else Tristate.NO), f"{sent} took {took_s:.2f} s"

    def _ways(self, node: Node, impairment: Bandwidth) -> tuple[LinkEnd, str | None]:
        """Returns the end that sends, and the name of the one to which it does; None is anybody."""
        if impairment.way == "from-node":
            return self._links[node.name], impairment.peer
        assert impairment.peer == CLIENTS, impairment
        return self._links[CLIENTS], node.name

    def _number(self, to: str | None) -> int:
        """Returns the number of class and filter: from the taker's address, so that any process finds it. Anybody's
        filter is asked last."""
        return _ANYBODY if to is None else self._number_of(to)

    def _number_of(self, peer: str) -> int:
        *_, third, fourth = map(int, self._links[peer].address.split("."))
        return (third << 8 | fourth) & 0x7FFF or 1


def _burst(impairment: Bandwidth) -> int:
    return max(impairment.bytes_per_s // 100, BURST_MIN_BYTES)


def _device(end: LinkEnd) -> str:
    """Returns the device with the end's address."""
    output = _run(end, "ip", "-json", "-4", "address", "show")
    for device in json.loads(output):
        if any(address.get("local") == end.address for address in device.get("addr_info", ())):
            return str(device["ifname"])
    raise HarnessFailed(f"{end.name} has no device with the address {end.address}.")


def _classes(end: LinkEnd, device: str) -> dict[int, int]:
    """Returns the number of each of our classes → its bytes per second."""
    found = {}
    for line in _run(end, "tc", "class", "show", "dev", device).splitlines():
        words = line.split()
        if words[:2] == ["class", "htb"]:
            found[int(words[2].partition(":")[2], 16)] = _bytes_per_s(words[words.index("rate") + 1])
    return found


def _bytes_per_s(text: str) -> int:
    """Reads a rate of tc: `800Kbit` are 100000 bytes per second."""
    units = {"Tbit": 10**12, "Gbit": 10**9, "Mbit": 10**6, "Kbit": 10**3, "bit": 1}
    unit = next(unit for unit in units if text.endswith(unit))
    return round(float(text.removesuffix(unit)) * units[unit] / 8)


def _tc(end: LinkEnd, *arguments: str) -> None:
    _run(end, "tc", *arguments)


def _run(end: LinkEnd, *argv: str) -> str:
    done = end.network.run_as_root(argv)
    if done.returncode:
        raise HarnessFailed(f"{' '.join(argv[:3])} of {end.name} refused: {done.stderr.strip()[-300:]}")
    return done.stdout


# Cutting the trial's clients off from one node of the local backend, one way: blackhole rules, as between nodes.
#
# The clients are in the run stage's own namespace. What a node sends them is dropped there, by its address on the data
# network; administration comes over the observer's link, from another address.


TRIES = 3
"""How many datagrams must fail to arrive before the way counts as cut."""


class Blocks(Protocol):
    """Drops what one end sends to another, in the way of the backend."""

    def block(self, name: str | None, source_address: str) -> None:
        """Drops what the address sends to the node, or with None to the clients. Safe to repeat."""
        ...

    def unblock(self, name: str | None, source_address: str) -> None:
        """Undoes `block`; safe when nothing is blocked."""
        ...


class ClientCuts:
    """Cuts the trial's clients off from one node, one way."""

    def __init__(self, network: Blocks, links: Links) -> None:
        self._network, self._links = network, links

    def impair(self, node: Node, impairment: ClientCut) -> None:
        self._network.block(*self._rule(node, impairment))

    def repair(self, node: Node, impairment: ClientCut) -> None:
        self._network.unblock(*self._rule(node, impairment))

    def impaired(self, node: Node, impairment: ClientCut) -> tuple[Tristate, str]:
        way = (CLIENTS, node.name) if impairment.way == "to-node" else (node.name, CLIENTS)
        for _ in range(TRIES):
            if self._links.arrivals(*way):
                return Tristate.NO, f"datagrams of {way[0]} arrive at {way[1]}"
        return Tristate.YES, f"datagrams of {way[0]} do not arrive at {way[1]}"

    def _rule(self, node: Node, impairment: ClientCut) -> tuple[str | None, str]:
        """Returns where the packets are dropped, and the address that they come from."""
        if impairment.way == "to-node":
            return node.name, self._links[CLIENTS].address
        return None, node.address
