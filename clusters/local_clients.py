"""Cutting the trial's clients off from one node of the local backend, one way: blackhole rules, as between nodes.

The clients are in the run stage's own namespace. What a node sends them is dropped there, by its address on the data network;
administration comes over the observer's link, from another address.
"""

from typing import Protocol

from clusters.links import Links
from harness.impairments import CLIENTS, ClientCut
from harness.protocols import Node
from harness.schema import Tristate

TRIES = 3
"""Datagrams that do not arrive, before the way counts as cut."""


class Blocks(Protocol):
    """What one end sends to another is dropped: `clusters.network.Network`, or what another backend has for it."""

    def block(self, name: str | None, source_address: str) -> None:
        """Drop what the address sends to the node; None: to the clients. Safe to repeat."""
        ...

    def unblock(self, name: str | None, source_address: str) -> None:
        """Undo `block`; safe when nothing is blocked."""
        ...


class ClientCuts:
    """`clusters.impairers.Impairer` of `ClientCut`."""

    def __init__(self, network: Blocks, links: Links) -> None:
        self._network, self._links = network, links

    def impair(self, node: Node, impairment: ClientCut) -> None:
        self._network.block(*self._rule(node, impairment))

    def repair(self, node: Node, impairment: ClientCut) -> None:
        self._network.unblock(*self._rule(node, impairment))

    def impaired(self, node: Node, impairment: ClientCut) -> tuple[Tristate, str]:
        way = (CLIENTS, node.name) if impairment.way == "to-node" else (node.name, CLIENTS)
        for _ in range(TRIES):
            if self._links.arrivals(*way):
                return Tristate.NO, f"datagrams of {way[0]} arrive at {way[1]}"
        return Tristate.YES, f"datagrams of {way[0]} do not arrive at {way[1]}"

    def _rule(self, node: Node, impairment: ClientCut) -> tuple[str | None, str]:
        """(where it is dropped, whose address)"""
        if impairment.way == "to-node":
            return node.name, self._links[CLIENTS].address
        return None, node.address
