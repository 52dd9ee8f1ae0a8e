"""The networks of the compose backend: free subnets, commands in a node's network namespace, and cuts.

Whether datagrams arrive is seen from inside that namespace, too.

A one-way cut "nothing that A sends reaches B" is a rule in B's network namespace that drops what comes from A's address on
the data network. The rules are in a chain of our own, whose name says whose they are.
"""

import ipaddress
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from prozess.clusters.compose.engine import PROBLEMS, EngineClient
from prozess.clusters.machine.node_network import PROBE_PORT, PROBE_TRIES, DatagramProbe, bound, call_in_network
from prozess.harness.errors import ClusterFailed, HarnessFailed, MissingTool
from prozess.harness.schema import Tristate

T = TypeVar("T")
CHAIN = "PROZESS"
SUBNETS = {"data": "10.214", "observer": "10.215"}
"""The first two numbers of the addresses; the third is the same for both networks of a run."""
COMMAND_TIMEOUT_S = 15.0
TOOLS_PATH = os.environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin:/sbin"


def free_prefixes(taken: Iterable[str], *, first: int, routes: str | None = None) -> dict[str, str]:
    """Finds subnets that are free: network → first three numbers of its addresses.

    No network in `taken` ("10.0.0.0/8") and no route of this host has them. The search begins at number `first` and goes
    around. ClusterFailed if there are none."""
    used = [ipaddress.ip_network(text, strict=False) for text in taken]
    used += _routed(Path("/proc/net/route").read_text() if routes is None else routes)
    for shift in range(256):
        number = (first + shift) % 256
        prefixes = {name: f"{start}.{number}" for name, start in SUBNETS.items()}
        if not any(ipaddress.ip_network(f"{p}.0/24").overlaps(other) for p in prefixes.values() for other in used):
            return prefixes
    raise ClusterFailed(
        f"Every subnet of {' and '.join(f'{start}.0.0/16' for start in SUBNETS.values())} is taken by a network of Docker or "
        "a route of this machine. `prozess heal` removes those of older runs."
    )


def _routed(routes: str) -> list[ipaddress.IPv4Network]:
    """Returns the networks in /proc/net/route (hexadecimal, little-endian), without the default route."""
    found = []
    for line in routes.splitlines()[1:]:
        words = line.split()
        address, mask = (int.from_bytes(bytes.fromhex(words[i]), "little") for i in (1, 7))
        if mask:
            found.append(ipaddress.IPv4Network((address, mask.bit_count()), strict=False))
    return found


def network_problem() -> str | None:
    """Returns why network namespaces of containers cannot be entered from here; None if they can."""
    if os.geteuid() != 0:
        return "entering a container's network namespace needs root"
    if shutil.which("iptables", path=TOOLS_PATH) is None:
        return "iptables is not installed here"
    return None


class NodeNetwork:
    """The network namespace of one node, found by a process in it (`pid`, as the engine says it)."""

    def __init__(self, name: str, pid: Callable[[], int]) -> None:
        self._name, self._pid = name, pid
        self._probe = DatagramProbe(name)

    def run_as_root(self, argv: Sequence[str], *, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Runs a command of this host in the node's network namespace, as root.

        The caller judges what it returns. MissingTool or HarnessFailed if it cannot be run or does not end in time."""
        try:
            return self.call(
                lambda: subprocess.run(
                    list(argv),
                    input=text,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=COMMAND_TIMEOUT_S,
                    check=False,
                    env={**os.environ, "PATH": TOOLS_PATH, "LC_ALL": "C"},
                )
            )
        except FileNotFoundError as error:
            raise MissingTool(f"`{argv[0]}` is not installed here; faults of the network need it.") from error
        except subprocess.TimeoutExpired as error:
            raise HarnessFailed(f"{' '.join(argv)} did not end within {COMMAND_TIMEOUT_S:g} s.") from error

    def call(self, function: Callable[[], T]) -> T:
        """Calls `function` in the node's network namespace, in a thread of its own, since setns(2) acts on the calling
        thread.

        A socket it makes stays there, and a process it starts is born there."""
        return call_in_network(Path(f"/proc/{self._pid()}/ns/net"), function, who=self._name)

    def drop_from(self, address: str) -> None:
        """Drops what comes from that address, from now on. Safe to repeat."""
        self._drop("INPUT", "-s", address)

    def accept_from(self, address: str) -> None:
        """Undoes `drop_from`; safe when nothing is dropped."""
        self._accept("INPUT", "-s", address)

    def drop_to(self, address: str) -> None:
        """Drops what is sent to that address, from now on. Safe to repeat."""
        self._drop("OUTPUT", "-d", address)

    def accept_to(self, address: str) -> None:
        """Undoes `drop_to`; safe when nothing is dropped."""
        self._accept("OUTPUT", "-d", address)

    def _drop(self, hook: str, match: str, address: str) -> None:
        chain = f"{CHAIN}-{hook}"
        if not self._ruled(["-C", hook, "-j", chain]):
            self._restore(f"*filter\n:{chain} - [0:0]\n-I {hook} 1 -j {chain}\nCOMMIT\n")
        if not self._ruled(["-C", chain, match, address, "-j", "DROP"]):
            self._restore(f"*filter\n-A {chain} {match} {address} -j DROP\nCOMMIT\n")

    def _accept(self, hook: str, match: str, address: str) -> None:
        rule = [f"{CHAIN}-{hook}", match, address, "-j", "DROP"]
        while self._ruled(["-D", *rule]):
            pass
        if self._ruled(["-C", *rule]):
            raise HarnessFailed(f"Packets of {self._name} ({match} {address}) are still dropped.")

    def _ruled(self, arguments: Sequence[str]) -> bool:
        """Returns whether iptables did it. Exit 1: no such rule or chain; others are faults of its own (iptables(8))."""
        done = self.run_as_root(["iptables", "-w", "10", *arguments])
        if done.returncode not in (0, 1, 2):
            raise HarnessFailed(f"iptables in {self._name}'s network refused: {done.stderr.strip()[-300:]}")
        return done.returncode == 0

    def _restore(self, rules: str) -> None:
        done = self.run_as_root(["iptables-restore", "-w", "10", "--noflush"], text=rules)
        if done.returncode:
            raise HarnessFailed(f"iptables in {self._name}'s network refused: {done.stderr.strip()[-300:]}")

    # Observation

    def open_probe(self, address: str) -> None:
        """Binds a socket there that receives the datagrams of others."""
        self._probe.open(lambda: self.call(lambda: bound(address)))

    def close_probe(self) -> None:
        """Closes that socket. Safe to repeat."""
        self._probe.close()

    def hears(self, source: "NodeNetwork", *, address: str, source_address: str) -> Tristate:
        """Does a datagram of `source` arrive at `address` now?"""
        return self._probe.hears(source._probe, address=address, source_address=source_address)


def first_number(label: str) -> int:
    """The number at which this run begins to look for free subnets: runs begin at different ones."""
    return sum(label.encode()) * 37 % 256


def subnets_of(networks: Sequence[Mapping[str, object]]) -> list[str]:
    """Returns the IPv4 subnets in the engine's answer about its networks."""
    found = []
    for network in networks:
        ipam = network.get("IPAM")
        for configured in (ipam.get("Config") or []) if isinstance(ipam, Mapping) else []:
            subnet = str(configured.get("Subnet", ""))
            if subnet and ":" not in subnet:
                found.append(subnet)
    return found


# Cuts between containers where this process may not enter their network namespaces: iptables is run inside, by a
# privileged exec of the engine. It needs no root here, and an image that has iptables and bash (`prozess images build`
# builds one).
#
# Whether a datagram arrives is shown by a rule that counts what came past the cuts.


WAY_VARIABLE = "PROZESS_CONTAINER_NETWORKS"
"""A user may set it to `exec`, where namespaces are not to be entered."""
_COUNTER = f"{CHAIN}-SEEN"
_FEED = 'text=$1; shift; printf %s "$text" | "$@"'


def by_exec() -> bool:
    """Must the engine make the cuts, since network namespaces cannot or should not be entered?"""
    return os.environ.get(WAY_VARIABLE) == "exec" or network_problem() is not None


class ExecNetwork(NodeNetwork):
    """The network of one node, acted on from within a container (`holder`) that is in it."""

    def __init__(self, name: str, holder: str, client: Callable[[], EngineClient]) -> None:
        super().__init__(name, self._no_pid)
        self._holder, self._client = holder, client

    def run_as_root(self, argv: Sequence[str], *, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Runs a command of the image in its container. HarnessFailed if the engine does not run it."""
        command = list(argv) if text is None else ["bash", "-c", _FEED, "bash", text, *argv]
        try:
            api = self._client().api
            made = api.exec_create(self._holder, command, user="0", privileged=True)["Id"]
            out, errors = api.exec_start(made, demux=True)
            code = api.exec_inspect(made)["ExitCode"]
        except PROBLEMS as error:
            raise HarnessFailed(f"{argv[0]} could not be run in {self._holder}: {error}.") from error
        lines = [(part or b"").decode(errors="replace") for part in (out, errors)]
        return subprocess.CompletedProcess(command, int(code), *lines)

    def call(self, function: Callable[[], T]) -> T:
        """Always raises HarnessFailed: the namespace cannot be entered."""
        raise HarnessFailed(f"The network of {self._name} cannot be entered from here: that needs root.")

    def open_probe(self, address: str) -> None:
        """Binds nothing: a rule counts what arrives."""

    def hears(self, source: NodeNetwork, *, address: str, source_address: str) -> Tristate:
        """Does a datagram of `source` come past the cuts now?"""
        try:
            for _ in range(PROBE_TRIES):
                before = self._counted(source_address)
                # A packet that could be sent says nothing: a rule of the sender, or an answer to an earlier one, may refuse.
                source.run_as_root(["bash", "-c", f"echo > /dev/udp/{address}/{PROBE_PORT}"])
                if self._counted(source_address) > before:
                    return Tristate.YES
        except HarnessFailed:
            return Tristate.UNKNOWN
        return Tristate.NO

    def _counted(self, address: str) -> int:
        """Counts the datagrams of that address so far. The counting chain is the last one, behind every cut."""
        rule = ["-p", "udp", "--dport", str(PROBE_PORT), "-s", address]
        if not self._ruled(["-C", "INPUT", "-j", _COUNTER]):
            self._restore(f"*filter\n:{_COUNTER} - [0:0]\n-A INPUT -j {_COUNTER}\nCOMMIT\n")
        if not self._ruled(["-C", _COUNTER, *rule]):
            self._restore(f"*filter\n-A {_COUNTER} {' '.join(rule)}\nCOMMIT\n")
        output = self.run_as_root(["iptables", "-w", "10", "-vnxL", _COUNTER]).stdout
        match = re.search(rf"^\s*(\d+)\s.*\s{re.escape(address)}\s", output, re.MULTILINE)
        if match is None:
            raise HarnessFailed(f"iptables did not say what {self._name} was sent: {output.strip()[-200:]}")
        return int(match[1])

    def _no_pid(self) -> int:
        raise HarnessFailed(f"The network of {self._name} cannot be entered from here: that needs root.")
