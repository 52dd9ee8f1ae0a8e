"""The faults of links: the parts that make them, for any backend that has `Links`, and which of them work on this machine."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache

from prozess.clusters.impairers import AnyHarmer, AnyImpairer
from prozess.clusters.install.tools import toxiproxy_server
from prozess.clusters.links import kernel_probe
from prozess.clusters.links.latency import DelayConnections, LateLinks
from prozess.clusters.links.links import ConnectionResets, LimitedLinks, Links, LossyLinks, Vanishing
from prozess.clusters.machine.processes import captured
from prozess.clusters.machine.sandbox import ISOLATION_VARIABLE, probe
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


TIMEOUT_S = 30.0
_TRIED = tuple(Capability(kind) for kind in kernel_probe.TRIALS)
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
        return dict.fromkeys(_TRIED, "there are no network namespaces here")
    try:
        done = captured(
            [*prefix, sys.executable, "-I", "-S", kernel_probe.__file__],
            timeout_s=TIMEOUT_S,
            environment={**os.environ, "PATH": _PATH, "LC_ALL": "C"},
        )
        document = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        return dict.fromkeys(_TRIED, f"it could not be tried: {error}")
    return {capability: document[capability] for capability in _TRIED if document[capability]}
