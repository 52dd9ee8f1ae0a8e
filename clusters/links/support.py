"""The faults of links: the parts that make them, for any backend that has `Links`, and which of them work on this machine."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from prozess.clusters.install.tools import toxiproxy_server
from prozess.clusters.links.latency import DelayConnections, LateLinks
from prozess.clusters.links.links import IPTABLES, ConnectionResets, LimitedLinks, Links, LossyLinks, Vanishing
from prozess.clusters.machine.processes import captured
from prozess.clusters.machine.sandbox import ISOLATION_VARIABLE, probe
from prozess.clusters.parts import AnyHarmer, AnyImpairer
from prozess.harness.clock import Clock
from prozess.harness.config.impairments import Capability

WAYS: Mapping[Capability, str] = {
    Capability.LOSE: "an iptables rule in the receiving node's network namespace drops by chance",
    Capability.SHAPE: "a class of htb on the sending node's device",
    Capability.DELAY: "toxiproxy in the network namespace of the end that opens a connection",
    Capability.MESSAGES: "a proxy that understands Kafka's protocol, to which iptables leads connections",
    Capability.RESET: "the node's kernel aborts connections (ss -K)",
}
"""How each fault of links is made; whether it works here is tried below."""


def impairers(links: Links, delays: DelayConnections) -> dict[str, AnyImpairer]:
    """Returns the parts that impair links, by kind of impairment. `delays`: the part for latency, which whoever made it
    closes."""
    return {"loss": LossyLinks(links), "bandwidth": LimitedLinks(links), "latency": delays}


def harmers(links: Links, delays: DelayConnections, clock: Clock) -> dict[str, AnyHarmer]:
    """Returns the parts that harm links, by kind of harm. `delays`: the part for latency of the same links."""
    return {
        "reset-connections": ConnectionResets(links, clock),
        "vanish": Vanishing(links),
        "delay-open": LateLinks(links, delays, clock),
    }


# Which faults of links work on this machine, found by making them in a network namespace of its own, once per process.
#
# python -m prozess.clusters.links.support inside such a namespace: one JSON object, capability → what was refused (""
# = works)


TIMEOUT_S = 30.0
_COMMAND_TIMEOUT_S = 10.0
_PATH = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"


def refusals() -> Mapping[Capability, str]:
    """The faults of links that do not work here, each with the reason."""
    found = dict(_refused_by_kernel())
    if Capability.DELAY not in found and toxiproxy_server() is None and not _will_be_built():
        found[Capability.DELAY] = "toxiproxy is neither on PATH nor in the cache, and was not built"
    return found


def _will_be_built() -> bool:
    """Is this outside of a run's sandbox, which has no network, so that toxiproxy can be built before a run begins?"""
    return ISOLATION_VARIABLE not in os.environ and shutil.which("go") is not None


@cache
def _refused_by_kernel() -> Mapping[Capability, str]:
    inside = os.environ.get(ISOLATION_VARIABLE) == "namespaces"
    prefix = ("unshare", "-n") if inside else probe().prefix
    if not prefix:
        return dict.fromkeys(_TRIALS, "there are no network namespaces here")
    try:
        done = captured(
            [*prefix, sys.executable, "-P", "-m", "prozess.clusters.links.support"],
            timeout_s=TIMEOUT_S,
            environment={**os.environ, "PATH": _PATH, "LC_ALL": "C"},
        )
        told = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        return dict.fromkeys(_TRIALS, f"it could not be tried: {error}")
    return {capability: told[capability] for capability in _TRIALS if told[capability]}


def _tried(commands: Sequence[Sequence[str]]) -> str:
    """Runs commands, and says which of them failed and how; "" if all went well."""
    for command in commands:
        try:
            done = subprocess.run(
                list(command), capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=False
            )
        except FileNotFoundError:
            return f"{command[0]} is not installed"
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


_TRIALS: Mapping[Capability, Callable[[], str]] = {
    Capability.LOSE: _loss,
    Capability.SHAPE: _shaping,
    Capability.DELAY: _redirecting,
    Capability.MESSAGES: _marking,
    Capability.RESET: _resetting,
}


def main() -> None:
    """Tries every fault in a namespace that is thrown away, and prints what was refused."""
    found = {
        capability: _tried([["ip", "link", "set", "lo", "up"]]) or trial() for capability, trial in _TRIALS.items()
    }
    print(json.dumps(found))  # noqa: T201 - for whoever asked


if __name__ == "__main__":
    main()
