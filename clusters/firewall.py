"""Rules of one host's firewall that are ours: what drops a peer's packets, and what counts those that arrive.

They are in a chain whose name says whose they are, jumped to before any other rule of INPUT, so that everything can be taken
away without knowing what was put there. It needs no more of the host than to run `iptables` there as root.
"""

import re
import subprocess
from collections.abc import Sequence
from typing import Protocol

from harness.errors import HarnessFailed

CHAIN = "PROZESS"
PROBE_PORT = 9099
"""Of the datagrams that are counted; nobody needs to listen there."""
_COUNT = re.compile(r"^\[(?P<packets>\d+):\d+\] -A " + CHAIN + r" (?P<rule>.*)$")


class RunAsRoot(Protocol):
    """Runs a command in the host's network, as root."""

    def __call__(self, argv: Sequence[str], *, text: str | None = None) -> subprocess.CompletedProcess[str]: ...


class Firewall:
    """Of the host that `run_as_root` runs on. `name`: for errors."""

    def __init__(self, run_as_root: RunAsRoot, *, name: str) -> None:
        self._run, self._name = run_as_root, name

    def problem(self) -> str | None:
        """Why it cannot be used; None if it can. Changes nothing."""
        done = self._run(["iptables", "-w", "10", "-S", "INPUT"])
        return None if done.returncode == 0 else (done.stderr.strip().splitlines() or ["iptables does not work"])[-1]

    def drop_from(self, address: str) -> None:
        """From now on nothing from that address arrives. Safe to repeat."""
        self.ensure_chain()
        rule = ["-s", address, "-j", "DROP"]
        if not self._holds(["-C", CHAIN, *rule]):
            self._do(["-I", CHAIN, "1", *rule])

    def accept_from(self, address: str) -> None:
        """Undo `drop_from`; safe when nothing is dropped."""
        self._delete(CHAIN, "-s", address, "-j", "DROP")

    def count_from(self, address: str) -> None:
        """From now on datagrams of that address to the probe's port are counted, if no rule of ours drops them."""
        self.ensure_chain()
        self._do(["-A", CHAIN, *_counted(address)])

    def counted(self, address: str) -> int | None:
        """How many came since `count_from`; None if nobody counts. Stops counting."""
        done = self._run(["iptables-save", "-c", "-t", "filter"])
        found = None
        for line in done.stdout.splitlines():
            match = _COUNT.match(line)
            if match and f"{address}/32" in match["rule"] and f"--dport {PROBE_PORT}" in match["rule"]:
                found = int(match["packets"]) + (found or 0)
        self._delete(CHAIN, *_counted(address))
        return found

    def remove(self) -> None:
        """Take away everything of ours; safe when nothing is there."""
        self._delete("INPUT", "-j", CHAIN)
        if self._holds(["-S", CHAIN]):
            self._do(["-F", CHAIN])
            self._do(["-X", CHAIN])

    def ensure_chain(self) -> None:
        """It is there, and asked first. Safe to repeat."""
        if self._holds(["-C", "INPUT", "-j", CHAIN]):
            return
        if not self._holds(["-S", CHAIN]):
            self._do(["-N", CHAIN])
        self._do(["-I", "INPUT", "1", "-j", CHAIN])

    def _delete(self, chain: str, *rule: str) -> None:
        """Every one of these rules; nothing if there is none."""
        while self._holds(["-D", chain, *rule]):
            pass

    def _holds(self, arguments: Sequence[str]) -> bool:
        """Is it so? iptables(8): 1 = no such rule or chain (2 of its nft variant); others are faults of its own."""
        done = self._run(["iptables", "-w", "10", *arguments])
        if done.returncode not in (0, 1, 2):
            raise HarnessFailed(f"iptables on {self._name} failed: {done.stderr.strip()[-300:]}")
        return done.returncode == 0

    def _do(self, arguments: Sequence[str]) -> None:
        done = self._run(["iptables", "-w", "10", *arguments])
        if done.returncode:
            raise HarnessFailed(f"iptables {' '.join(arguments)} on {self._name} failed: {done.stderr.strip()[-300:]}")


def _counted(address: str) -> list[str]:
    return ["-s", f"{address}/32", "-p", "udp", "-m", "udp", "--dport", str(PROBE_PORT)]
