"""Cuts between containers where this process may not enter their network namespaces: iptables is run inside, by a privileged
exec of the engine. It needs no root here, and an image that has iptables and bash (`prozess images build` builds one).

Whether a datagram arrives is told by a rule that counts what came past the cuts.
"""

import os
import re
import subprocess
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from clusters.compose_network import CHAIN, NodeNetwork, network_problem
from clusters.datagrams import PROBE_PORT, PROBE_TRIES
from clusters.engine import PROBLEMS
from harness.errors import HarnessFailed
from harness.schema import Tristate

T = TypeVar("T")
WAY_VARIABLE = "PROZESS_CONTAINER_NETWORKS"
"""A user may set it to `exec`, where namespaces are not to be entered."""
_COUNTER = f"{CHAIN}-SEEN"
_FEED = 'text=$1; shift; printf %s "$text" | "$@"'


def by_exec() -> bool:
    """Must the engine do it?"""
    return os.environ.get(WAY_VARIABLE) == "exec" or network_problem() is not None


class ExecNetwork(NodeNetwork):
    """The network of one node, acted on from within a container (`holder`) that is in it."""

    def __init__(self, name: str, holder: str, client: Callable[[], Any]) -> None:
        super().__init__(name, self._no_pid)
        self._holder, self._client = holder, client

    def run_as_root(self, argv: Sequence[str], *, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """A command of the image, in its container. HarnessFailed if the engine does not run it."""
        command = list(argv) if text is None else ["bash", "-c", _FEED, "bash", text, *argv]
        try:
            api = self._client().api
            made = api.exec_create(self._holder, command, user="0", privileged=True)["Id"]
            out, errors = api.exec_start(made, demux=True)
            code = api.exec_inspect(made)["ExitCode"]
        except PROBLEMS as error:
            raise HarnessFailed(f"{argv[0]} could not be run in {self._holder}: {error}.") from error
        told = [(part or b"").decode(errors="replace") for part in (out, errors)]
        return subprocess.CompletedProcess(command, int(code), *told)

    def call(self, function: Callable[[], T]) -> T:
        """HarnessFailed: always."""
        raise HarnessFailed(f"The network of {self._name} cannot be entered from here: that needs root.")

    def open_probe(self, address: str) -> None:
        """Nothing is bound: arrivals are counted."""

    def hears(self, source: NodeNetwork, *, address: str, source_address: str) -> Tristate:
        """Does a datagram of `source` come past the cuts now?"""
        try:
            for _ in range(PROBE_TRIES):
                before = self._counted(source_address)
                # That it could be sent says nothing: a rule of the sender, or an answer to an earlier one, may refuse.
                source.run_as_root(["bash", "-c", f"echo > /dev/udp/{address}/{PROBE_PORT}"])
                if self._counted(source_address) > before:
                    return Tristate.YES
        except HarnessFailed:
            return Tristate.UNKNOWN
        return Tristate.NO

    def _counted(self, address: str) -> int:
        """Datagrams of that address so far. The counting chain is the last one, behind every cut."""
        rule = ["-p", "udp", "--dport", str(PROBE_PORT), "-s", address]
        if not self._ruled(["-C", "INPUT", "-j", _COUNTER]):
            self._restore(f"*filter\n:{_COUNTER} - [0:0]\n-A INPUT -j {_COUNTER}\nCOMMIT\n")
        if not self._ruled(["-C", _COUNTER, *rule]):
            self._restore(f"*filter\n-A {_COUNTER} {' '.join(rule)}\nCOMMIT\n")
        told = self.run_as_root(["iptables", "-w", "10", "-vnxL", _COUNTER]).stdout
        match = re.search(rf"^\s*(\d+)\s.*\s{re.escape(address)}\s", told, re.MULTILINE)
        if match is None:
            raise HarnessFailed(f"iptables does not tell what {self._name} was sent: {told.strip()[-200:]}")
        return int(match[1])

    def _no_pid(self) -> int:
        raise HarnessFailed(f"The network of {self._name} cannot be entered from here: that needs root.")
