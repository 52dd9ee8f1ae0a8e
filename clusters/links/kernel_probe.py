"""Tries which faults of links this kernel makes, by making each in a network namespace that is thrown away.

    python -I -S clusters/links/kernel_probe.py

It prints one JSON object: kind of fault → what was refused ("" = works). Standard library only, and nothing of ours, because
every trial starts it.
"""

import json
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence

IPTABLES = ("iptables", "-w", "10")
_COMMAND_TIMEOUT_S = 10.0
_PACKAGES = {"iptables": "iptables", "ip": "iproute2", "tc": "iproute2", "ss": "iproute2"}
"""Program → the package that has it."""


def _tried(commands: Sequence[Sequence[str]]) -> str:
    """Runs commands, and says which of them failed and how; "" if all went well."""
    for command in commands:
        try:
            done = subprocess.run(
                list(command), capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=False
            )
        except FileNotFoundError:
            return f"{command[0]} is not installed (package {_PACKAGES[command[0]]})"
        except subprocess.TimeoutExpired:
            return f"{command[0]} does not end"
        if done.returncode:
            return f"{command[0]} refuses: {(done.stderr.strip().splitlines() or ['no reason given'])[-1][:160]}"
    return ""


def _loss() -> str:
    rule = ["-m", "statistic", "--mode", "random", "--probability", "0.5", "-s", "192.0.2.1", "-j", "DROP"]
    return _tried([[*IPTABLES, "-A", "INPUT", *rule]])


def _shaping() -> str:
    parent = ["dev", "lo", "parent", "1:"]
    match = ["protocol", "ip", "pref", "5", "u32", "match", "ip", "dst", "192.0.2.1/32", "flowid", "1:5"]
    return _tried(
        [
            ["tc", "qdisc", "add", "dev", "lo", "root", "handle", "1:", "htb", "default", "0"],
            ["tc", "class", "add", *parent, "classid", "1:5", "htb", "rate", "100000bps", "burst", "4k"],
            ["tc", "filter", "add", *parent, *match],
        ]
    )


def _redirecting() -> str:
    redirect = ["-d", "192.0.2.1", "-p", "tcp", "--dport", "9092", "-j", "DNAT", "--to-destination", "127.0.0.1:9093"]
    return _tried([[*IPTABLES, "-t", "nat", "-A", chain, *redirect] for chain in ("OUTPUT", "PREROUTING")])


def _marking() -> str:
    redirect = ["-d", "192.0.2.1", "-p", "tcp", "--dport", "9092", "-m", "mark", "!", "--mark", "0x1"]
    return _tried(
        [[*IPTABLES, "-t", "nat", "-I", "OUTPUT", *redirect, "-j", "DNAT", "--to-destination", "127.0.0.1:9093"]]
    )


def _resetting() -> str:
    """Returns why connections cannot be reset here, by really ending one over loopback; "" if they can."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), _COMMAND_TIMEOUT_S) as ours:
            if refused := _tried([["ss", "-KHtn", "dst", "127.0.0.1", "dport", "=", str(port)]]):
                return refused
            try:
                ours.send(b"?")
            except OSError:
                return ""
    return "the kernel ends no connections of others (CONFIG_INET_DIAG_DESTROY)"


TRIALS: Mapping[str, Callable[[], str]] = {
    "lose": _loss,
    "shape": _shaping,
    "delay": _redirecting,
    "messages": _marking,
    "reset": _resetting,
}
"""For each kind of fault, what tries it and returns why it does not work, or "". The kinds are capabilities of a node."""


def main() -> None:
    """Tries every fault, and prints what was refused."""
    found = {kind: _tried([["ip", "link", "set", "lo", "up"]]) or trial() for kind, trial in TRIALS.items()}
    print(json.dumps(found))  # noqa: T201 - for whoever asked


if __name__ == "__main__":
    main()
