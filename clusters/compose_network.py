"""The networks of the compose backend: subnets that nobody has, commands in a node's network namespace, cuts, and whether
datagrams arrive.

A one-way cut "nothing that A sends reaches B" is a rule in B's network namespace that drops what comes from A's address on
the data network. The rules are in a chain of our own, whose name says whose they are.
"""

import ipaddress
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from clusters.datagrams import Probe, bound
from clusters.entering import call_in_network
from harness.errors import ClusterFailed, HarnessFailed, MissingTool
from harness.schema import Tristate

T = TypeVar("T")
CHAIN = "PROZESS"
SUBNETS = {"data": "10.214", "observer": "10.215"}
"""First two numbers of the addresses; the third is the same for both networks of a run."""
COMMAND_TIMEOUT_S = 15.0
TOOLS_PATH = os.environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin:/sbin"


def free_prefixes(taken: Iterable[str], *, first: int, routes: str | None = None) -> dict[str, str]:
    """Network → first three numbers of addresses that no network in `taken` ("10.0.0.0/8") and no route of this host has,
    searched from number `first` on, around. ClusterFailed if there are none."""
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
    """Of /proc/net/route (hexadecimal, little-endian), the default route left out."""
    found = []
    for line in routes.splitlines()[1:]:
        words = line.split()
        address, mask = (int.from_bytes(bytes.fromhex(words[i]), "little") for i in (1, 7))
        if mask:
            found.append(ipaddress.IPv4Network((address, mask.bit_count()), strict=False))
    return found


def network_problem() -> str | None:
    """Why network namespaces of containers cannot be entered from here; None if they can."""
    if os.geteuid() != 0:
        return "entering a container's network namespace needs root"
    if shutil.which("iptables", path=TOOLS_PATH) is None:
        return "iptables is not installed here"
    return None


class NodeNetwork:
    """The network namespace of one node, found by a process in it (`pid`, as the engine says it)."""

    def __init__(self, name: str, pid: Callable[[], int]) -> None:
        self._name, self._pid = name, pid
        self._probe = Probe(name)

    def run_as_root(self, argv: Sequence[str], *, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command of this host in the node's network namespace, as root. What it returns is the caller's to judge;
        MissingTool or HarnessFailed if it cannot be run or does not end in time."""
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
        """Call `function` in the node's network namespace, in a thread of its own: setns(2) acts on the calling thread. A
        socket it makes stays there, and a process it starts is born there."""
        return call_in_network(Path(f"/proc/{self._pid()}/ns/net"), function, who=self._name)

    def drop_from(self, address: str) -> None:
        """From now on nothing from that address arrives. Safe to repeat."""
        self._drop("INPUT", "-s", address)

    def accept_from(self, address: str) -> None:
        """Undo `drop_from`; safe when nothing is dropped."""
        self._accept("INPUT", "-s", address)

    def drop_to(self, address: str) -> None:
        """From now on nothing leaves for that address. Safe to repeat."""
        self._drop("OUTPUT", "-d", address)

    def accept_to(self, address: str) -> None:
        """Undo `drop_to`; safe when nothing is dropped."""
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
        """Did iptables do it? Exit 1: no such rule or chain; others are faults of its own (iptables(8))."""
        done = self.run_as_root(["iptables", "-w", "10", *arguments])
        if done.returncode not in (0, 1, 2):
            raise HarnessFailed(f"iptables in {self._name}'s network refused: {done.stderr.strip()[-300:]}")
        return done.returncode == 0

    def _restore(self, rules: str) -> None:
        done = self.run_as_root(["iptables-restore", "-w", "10", "--noflush"], text=rules)
        if done.returncode:
            raise HarnessFailed(f"iptables in {self._name}'s network refused: {done.stderr.strip()[-300:]}")

    # --- observation ------------------------------------------------------------------------------------------------

    def open_probe(self, address: str) -> None:
        """Bind a socket there for datagrams of others."""
        self._probe.open(lambda: self.call(lambda: bound(address)))

    def close_probe(self) -> None:
        """Safe to repeat."""
        self._probe.close()

    def hears(self, source: "NodeNetwork", *, address: str, source_address: str) -> Tristate:
        """Does a datagram of `source` arrive at `address` now?"""
        return self._probe.hears(source._probe, address=address, source_address=source_address)


def first_number(label: str) -> int:
    """Runs look for free subnets in different places first."""
    return sum(label.encode()) * 37 % 256


def subnets_of(networks: Sequence[Mapping[str, object]]) -> list[str]:
    """The IPv4 subnets in the engine's answer about its networks."""
    found = []
    for network in networks:
        ipam = network.get("IPAM")
        for configured in (ipam.get("Config") or []) if isinstance(ipam, Mapping) else []:
            subnet = str(configured.get("Subnet", ""))
            if subnet and ":" not in subnet:
                found.append(subnet)
    return found
