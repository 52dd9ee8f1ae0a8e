"""What the attach backend can do to the link between the trial's clients and a broker, by toxiproxy's toxics.

Toxics: https://github.com/Shopify/toxiproxy#toxics. "downstream" is what the broker answers, "upstream" what clients send.
"""

from contextlib import suppress

from clusters.attach_node import AttachNode
from clusters.attach_proxy import Toxiproxy
from harness.errors import HarnessFailed
from harness.impairments import CLIENTS, Bandwidth, ClientCut, Latency, ResetConnections
from harness.schema import Tristate

STREAMS = ("upstream", "downstream")
_STREAM_OF = {"to-node": "upstream", "from-node": "downstream"}
_KB = 1000


def _server(node: AttachNode, peer: str | None) -> Toxiproxy:
    """HarnessFailed if the link is not one of the trial's clients, or nothing is between them and the node."""
    if peer != CLIENTS:
        raise HarnessFailed(
            f"{node.name}: only the link to the trial's own clients can be impaired here (peer {CLIENTS!r})."
        )
    if node.toxiproxy is None:
        raise HarnessFailed(f"{node.name}: no proxy stands between it and the clients.")
    return node.toxiproxy


def _toxics_seen(node: AttachNode, peer: str | None, name: str) -> tuple[Tristate, str]:
    """By what the server says it does, now."""
    if node.toxiproxy is None or peer != CLIENTS:
        return Tristate.NO, "no proxy stands between clients and the node"
    try:
        there = node.toxiproxy.toxics(node.name)
    except HarnessFailed as error:
        return Tristate.UNKNOWN, str(error)
    found = [toxic for toxic_name, toxic in there.items() if toxic_name.startswith(name)]
    if not found:
        return Tristate.NO, f"toxiproxy has no {name} on the link"
    return Tristate.YES, "toxiproxy says " + ", ".join(f"{t['stream']} {t['type']} {t['attributes']}" for t in found)


def _repair(node: AttachNode, name: str) -> None:
    if node.toxiproxy is not None:
        for stream in STREAMS:
            node.toxiproxy.remove(node.name, f"{name}-{stream}")


class LatencyOfLink:
    """The toxic `latency`, each way."""

    def impair(self, node: AttachNode, impairment: Latency) -> None:
        server = _server(node, impairment.peer)
        for stream, (late_ms, jitter_ms) in impairment.streams.items():
            server.add(
                node.name,
                f"latency-{stream}",
                "latency",
                stream=stream,
                latency=round(late_ms),
                jitter=round(jitter_ms),
            )

    def repair(self, node: AttachNode, impairment: Latency) -> None:
        _repair(node, "latency")

    def impaired(self, node: AttachNode, impairment: Latency) -> tuple[Tristate, str]:
        return _toxics_seen(node, impairment.peer, "latency")


class BandwidthOfLink:
    """The toxic `bandwidth` on what the node sends; its unit is kB/s."""

    def impair(self, node: AttachNode, impairment: Bandwidth) -> None:
        rate = max(1, round(impairment.bytes_per_s / _KB))
        _server(node, impairment.peer).add(
            node.name, "bandwidth-downstream", "bandwidth", stream="downstream", rate=rate
        )

    def repair(self, node: AttachNode, impairment: Bandwidth) -> None:
        _repair(node, "bandwidth")

    def impaired(self, node: AttachNode, impairment: Bandwidth) -> tuple[Tristate, str]:
        return _toxics_seen(node, impairment.peer, "bandwidth")


class CutOfLink:
    """The toxic `timeout` with 0: nothing passes that way, and nobody is told. Connections are still taken, by the proxy."""

    def impair(self, node: AttachNode, impairment: ClientCut) -> None:
        stream = _STREAM_OF[impairment.way]
        _server(node, impairment.peer).add(node.name, f"cut-{stream}", "timeout", stream=stream, timeout=0)

    def repair(self, node: AttachNode, impairment: ClientCut) -> None:
        if node.toxiproxy is not None:
            node.toxiproxy.remove(node.name, f"cut-{_STREAM_OF[impairment.way]}")

    def impaired(self, node: AttachNode, impairment: ClientCut) -> tuple[Tristate, str]:
        return _toxics_seen(node, impairment.peer, f"cut-{_STREAM_OF[impairment.way]}")


class ResetOfLink:
    """A proxy that is disabled drops its connections at once; then it takes new ones again."""

    def harm(self, node: AttachNode, harm: ResetConnections) -> str:
        server = _server(node, harm.peer)
        try:
            server.enable(node.name, enabled=False)
        finally:
            with suppress(HarnessFailed):
                server.enable(node.name, enabled=True)
        return "the proxy dropped every connection of the trial's clients to the node"
