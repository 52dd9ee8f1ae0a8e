"""The network of the nodes: one namespace per node, inside the sandbox.

Faults are routing rules, so iproute2 is all that is needed.

    run stage's namespace      bridge `data` .254 .253        bridge `observer` .254
                               |      |      |                |      |      |
    one namespace per node    .1     .2     .11              .1     .2     .11

A one-way cut "nothing that A sends reaches B" is the rule `from A blackhole` in B's namespace: what arrives from A on the
data network is dropped on input, without an answer, on connections old and new; what B sends to A is untouched, and so
is the observer's link, whose source addresses are others. For rules to be asked before the table `local` (which has
preference 0, and would deliver first), that one is moved back to preference 100 at set-up. See ip-rule(8).
Neighbours are permanent entries, since a blackholed A would get no ARP answer and so *learn* "no route to host".
Namespaces outlive the processes in them: a restart of a server undoes no cut.
"""

import ctypes
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from prozess.harness.errors import HarnessFailed, MissingTool
from prozess.harness.schema import Tristate

T = TypeVar("T")
DATA, OBSERVER = "data", "observer"
SUBNETS = {DATA: "10.213.77", OBSERVER: "10.213.78"}
"""The subnets of the two networks. They are only in the sandbox's own namespace, so they cannot collide with the host's."""
RUN_STAGE_HOST = 254
RELAY_HOST = 253
"""The address from which relayed clients call, so that they can be cut off without the run stage's own."""
NAMESPACES = Path("/run/netns")
COMMAND_TIMEOUT_S = 15.0
_BLOCK_PREFERENCE, _LOCAL_PREFERENCE = 10, 100
_LOCAL_LAST = [f"rule add pref {_LOCAL_PREFERENCE} lookup local", "rule del pref 0"]


def address_of(host: int, network: str) -> str:
    """Returns the address of the node with that host number (1…254) on that network."""
    return f"{SUBNETS[network]}.{host}"


def _mac_of(host: int, network: str) -> str:
    return f"02:00:00:00:{list(SUBNETS).index(network):02x}:{host:02x}"


class Network:
    """The network namespaces of one cluster, by name → host number. A sandbox holds at most one at a time."""

    def __init__(self, hosts: Mapping[str, int]) -> None:
        assert len(set(hosts.values())) == len(hosts), hosts
        assert all(0 < host < RELAY_HOST for host in hosts.values()), hosts
        self._hosts = dict(hosts)

    def setup(self) -> None:
        """Makes everything, by one `ip` process for the run stage and one per node. HarnessFailed if `ip` refuses."""
        refuse_outside()
        NAMESPACES.mkdir(parents=True, exist_ok=True)
        everyone = {host: host for host in (*self._hosts.values(), RUN_STAGE_HOST)} | {RELAY_HOST: RUN_STAGE_HOST}
        lines = list(_LOCAL_LAST) if not _local_rule_is_last() else []
        for network in SUBNETS:
            lines += [
                f"link add {network} address {_mac_of(RUN_STAGE_HOST, network)} type bridge forward_delay 0 stp_state 0",
                f"addr add {address_of(RUN_STAGE_HOST, network)}/24 dev {network}",
                f"link set {network} up",
                *_neighbours(network, everyone, RUN_STAGE_HOST),
            ]
        lines.append(f"addr add {address_of(RELAY_HOST, DATA)}/24 dev {DATA}")
        lines += [line for name, host in self._hosts.items() for line in _attach(name, host)]
        _ip_batch([], lines)
        for name, host in self._hosts.items():
            inside = ["link set lo up", *_LOCAL_LAST]
            for network in SUBNETS:
                inside += [
                    f"addr add {address_of(host, network)}/24 dev {network}",
                    f"link set {network} up",
                    *_neighbours(network, everyone, host),
                ]
            _ip_batch(["-n", name], inside)

    def teardown(self) -> None:
        """Removes everything that is there. Safe to call twice, and after a failed set-up."""
        # Links first, by name: a namespace's own end of its links goes with it only some time after `netns del`.
        links = [f"{network}{host}" for host in self._hosts.values() for network in SUBNETS] + list(SUBNETS)
        existing = {name for _, name in socket.if_nameindex()}
        lines = [f"link del {link}" for link in links if link in existing]
        lines += [f"netns del {name}" for name in self._hosts if (NAMESPACES / name).exists()]
        if lines:
            _ip_batch([], lines)

    def block(self, name: str | None, source_address: str) -> None:
        """Drops what `source_address` sends to the node `name` (None: to the run stage). Safe to repeat."""
        done = _ip([*_inside(name), "rule", "add", *_rule(source_address)])
        if done.returncode and "File exists" not in done.stderr:
            raise HarnessFailed(f"ip could not cut {source_address} → {name or 'clients'}: {done.stderr.strip()}")

    def unblock(self, name: str | None, source_address: str) -> None:
        """Undoes `block`; safe when nothing is blocked."""
        while (done := _ip([*_inside(name), "rule", "del", *_rule(source_address)])).returncode == 0:
            pass
        if "No such file" not in done.stderr:
            raise HarnessFailed(f"ip could not heal {source_address} → {name or 'clients'}: {done.stderr.strip()}")

    def run_inside(self, name: str, function: Callable[[], T]) -> T:
        """Calls `function` in the node's network namespace, in a thread of its own: setns(2) acts on the calling thread.

        A socket it makes stays in that namespace, and a process it starts is born there."""
        return call_in_network(NAMESPACES / name, function, who=name)


class NamespaceOf:
    """The network namespace of one node or, with None, of the run stage, where the clients are."""

    def __init__(self, network: Network, name: str | None) -> None:
        self._network, self._name = network, name

    def run_as_root(self, argv: Sequence[str], *, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Runs a command there, as root of the sandbox's own user namespace."""
        return self.call(lambda: _run(argv, text=text))

    def call(self, function: Callable[[], T]) -> T:
        """Calls `function` in the namespace."""
        return function() if self._name is None else self._network.run_inside(self._name, function)


def refuse_outside(routes: Path = Path("/proc/net/route")) -> None:
    """Raises HarnessFailed where there is a default route: that is the host's own network, which is not ours to change."""
    for line in routes.read_text().splitlines()[1:]:
        words = line.split()
        if words[1] == "00000000" == words[7]:
            raise HarnessFailed(
                f"Network namespaces are made inside the sandbox only, but this process is in the network of {words[0]}. "
                "Start it through prozess.clusters.machine.sandbox.enter_command, or use another isolation."
            )


def _inside(name: str | None) -> list[str]:
    return [] if name is None else ["-n", name]


def _rule(source_address: str) -> list[str]:
    return ["pref", str(_BLOCK_PREFERENCE), "from", f"{source_address}/32", "blackhole"]


def _attach(name: str, host: int) -> list[str]:
    lines = [f"netns add {name}"]
    for network in SUBNETS:
        port = f"{network}{host}"
        lines += [
            f"link add {port} type veth peer name {network} address {_mac_of(host, network)} netns {name}",
            f"link set {port} master {network} up",
        ]
    return lines


def _neighbours(network: str, owners: Mapping[int, int], me: int) -> list[str]:
    """Returns the lines that make permanent neighbours. `owners`: host number of each address → whose interface it is
    on."""
    return [
        f"neigh replace {address_of(host, network)} lladdr {_mac_of(owner, network)} dev {network} nud permanent"
        for host, owner in owners.items()
        if owner != me
    ]


def _local_rule_is_last() -> bool:
    return "0:" not in {line.split("\t")[0] for line in _ip(["rule", "show"]).stdout.splitlines()}


def _ip(arguments: list[str], *, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return _run(["ip", *arguments], text=text)


def _run(argv: Sequence[str], *, text: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LC_ALL": "C", "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}
    try:
        return subprocess.run(
            list(argv),
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMMAND_TIMEOUT_S,
            check=False,
            env=environment,
        )
    except FileNotFoundError as error:
        raise MissingTool(
            f"`{argv[0]}` is not installed; faults of the network need it (packages iproute2 and iptables)."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise HarnessFailed(f"{' '.join(argv)} did not end within {COMMAND_TIMEOUT_S:g} s.") from error


def _ip_batch(options: list[str], lines: list[str]) -> None:
    done = _ip([*options, "-batch", "-"], text="\n".join(lines) + "\n")
    if done.returncode:
        raise HarnessFailed(f"ip {' '.join(options)} refused: {done.stderr.strip()[-500:]}")


# Calling a function in another network namespace.


_CLONE_NEWNET = 0x40000000


def call_in_network(path: Path, function: Callable[[], T], *, who: str) -> T:
    """Calls `function` in the network namespace that this file stands for.

    It does so in a thread of its own, since setns(2) acts on the calling thread. A socket it makes stays there, and a
    process it starts is born there. `who`: whose network it is. HarnessFailed if it cannot be entered."""
    results: list[T] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            _enter(path, who)
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - raised again in the calling thread
            errors.append(error)

    thread = threading.Thread(target=body, name=f"in the network of {who}")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _enter(path: Path, who: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise HarnessFailed(f"the network of {who} is gone or not ours to enter: {error.strerror}.") from error
    try:
        if libc.setns(descriptor, _CLONE_NEWNET):
            raise HarnessFailed(f"cannot enter the network of {who}: {os.strerror(ctypes.get_errno())}.")
    finally:
        os.close(descriptor)


# Whether datagrams of one node arrive at another: a TCP connection cannot say which way it fails.
#
# Each node has a socket where its server listens, which works while the server is dead or paused.


PROBE_PORT = 9099
PROBE_TRIES, PROBE_TIMEOUT_S = 3, 0.1


class DatagramProbe:
    """The socket by which one node sends and hears datagrams. Safe from many threads."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        self._asked = 0

    def open(self, bind: Callable[[], socket.socket]) -> None:
        """Opens the socket. `bind` makes it, where the node is."""
        self.close()
        self._socket = bind()

    def close(self) -> None:
        """Closes the socket. Safe to repeat."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def hears(self, source: "DatagramProbe", *, address: str, source_address: str) -> Tristate:
        """Does a datagram of `source` arrive at `address` now?"""
        with self._lock:
            ours, theirs = self._socket, source._socket
            if ours is None or theirs is None:
                return Tristate.UNKNOWN
            try:
                for _ in range(PROBE_TRIES):
                    self._asked += 1
                    asked = f"{source._name}>{self._name}:{self._asked}".encode()
                    theirs.sendto(asked, (address, ours.getsockname()[1]))
                    if _arrives(ours, asked, (source_address, theirs.getsockname()[1])):
                        return Tristate.YES
            except OSError:
                return Tristate.UNKNOWN  # not sent, or no socket any more: nothing was observed
            return Tristate.NO


def bound(address: str, port: int = PROBE_PORT) -> socket.socket:
    """Returns a socket for datagrams there, in the network namespace of the thread that calls."""
    found = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    found.settimeout(PROBE_TIMEOUT_S)
    found.bind((address, port))
    return found


def _arrives(ours: socket.socket, asked: bytes, sender: tuple[str, int]) -> bool:
    while True:
        try:
            received, address = ours.recvfrom(200)
        except TimeoutError:
            return False
        if received == asked and address == sender:  # else a late one of an earlier probe
            return True
