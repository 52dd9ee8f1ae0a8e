"""Every part that acts on links, for a backend that has `clusters.links.Links`."""

from collections.abc import Mapping
from pathlib import Path

from clusters.impairers import Harmer, Impairer
from clusters.link_bandwidth import LimitBandwidth
from clusters.link_connections import Reset, Vanishing
from clusters.link_late import LateConnections
from clusters.link_latency import DelayConnections
from clusters.link_loss import LosePackets
from clusters.links import Links
from harness.capabilities import Capability
from harness.clock import Clock

WAYS: Mapping[Capability, str] = {
    Capability.LOSE: "an iptables rule in the receiving node's network namespace drops by chance",
    Capability.SHAPE: "a class of htb on the sending node's device",
    Capability.DELAY: "toxiproxy in the network namespace of whoever opens a connection",
    Capability.RESET: "the node's kernel aborts connections (ss -K)",
}
"""How each is done; whether it works here, `clusters.link_support` says."""


def impairers(links: Links, *, logs: Path, clock: Clock, record_pids: Path | None = None) -> dict[str, Impairer]:
    """By kind of impairment. `logs`: where a toxiproxy writes its own. `record_pids`: where it is written down that it runs;
    None where the sandbox's end is its end."""
    return {
        "loss": LosePackets(links),
        "bandwidth": LimitBandwidth(links),
        "latency": DelayConnections(links, logs=logs, clock=clock, record_pids=record_pids),
    }


def harmers(links: Links, clock: Clock, made: Mapping[str, Impairer]) -> dict[str, Harmer]:
    """By kind of harm. `made`: the impairers of the same links."""
    delays = made["latency"]
    assert isinstance(delays, DelayConnections), delays
    return {
        "reset-connections": Reset(links, clock),
        "vanish": Vanishing(links),
        "delay-open": LateConnections(links, delays, clock),
    }
