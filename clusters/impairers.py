"""This module says what a backend can do to its nodes beyond their processes: a part for each kind of impairment and of
harm.

A part is asked for one node at a time. It keeps nothing that a second process would need: what is impaired is seen.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Never, Protocol, TypeVar, cast

from prozess.harness.config.impairments import Harm, Impairment
from prozess.harness.errors import HarnessFailed
from prozess.harness.interfaces import Node
from prozess.harness.schema import Tristate

NodeT = TypeVar("NodeT", contravariant=True)
WhatT = TypeVar("WhatT", contravariant=True)


class Impairer(Protocol[NodeT, WhatT]):
    """Makes and mends one kind of impairment, as `prozess.harness.interfaces.Node` says of `impair`, `repair` and
    `impaired`."""

    def impair(self, node: NodeT, impairment: WhatT) -> None: ...
    def repair(self, node: NodeT, impairment: WhatT) -> None: ...
    def impaired(self, node: NodeT, impairment: WhatT) -> tuple[Tristate, str]: ...


class Harmer(Protocol[NodeT, WhatT]):
    """Does one kind of harm, and returns what was done, seen to be done."""

    def harm(self, node: NodeT, harm: WhatT) -> str: ...


AnyImpairer = Impairer[Never, Never]
"""An impairer of some backend's nodes and of the impairments of one kind: its key in `Parts` says which kind."""
AnyHarmer = Harmer[Never, Never]
"""A harmer of some backend's nodes and of the harms of one kind: its key in `Parts` says which kind."""


class Parts:
    """The parts that a backend has, by the kind of impairment or harm."""

    def __init__(
        self,
        impairers: Mapping[str, AnyImpairer] | None = None,
        harmers: Mapping[str, AnyHarmer] | None = None,
        *,
        close: Sequence[Callable[[], None]] = (),
    ) -> None:
        """`close`: each ends what some of the parts have started, and may be called again."""
        # A backend gives its parts its own nodes, and the kind is the type of what it is asked for.
        self._impairers = {kind: cast("Impairer[Node, Impairment]", part) for kind, part in (impairers or {}).items()}
        self._harmers = {kind: cast("Harmer[Node, Harm]", part) for kind, part in (harmers or {}).items()}
        self._close = close

    def close(self) -> None:
        """Ends what the parts have started. Safe to repeat."""
        for close in self._close:
            close()

    def impair(self, node: Node, impairment: Impairment) -> None:
        """Impairs the node. HarnessFailed if this backend has no such part."""
        if impairment.kind not in self._impairers:
            raise HarnessFailed(f"{node.name}: this backend cannot do {impairment.kind!r}.")
        self._impairers[impairment.kind].impair(node, impairment)

    def repair(self, node: Node, impairment: Impairment) -> None:
        """Repairs the node. Does nothing where this backend has no such part, since it never impaired."""
        if impairment.kind in self._impairers:
            self._impairers[impairment.kind].repair(node, impairment)

    def impaired(self, node: Node, impairment: Impairment) -> tuple[Tristate, str]:
        """Says whether the node is impaired now, and what was seen. NO where this backend has no such part."""
        if impairment.kind not in self._impairers:
            return Tristate.NO, f"this backend has no {impairment.kind!r}"
        return self._impairers[impairment.kind].impaired(node, impairment)

    def harm(self, node: Node, harm: Harm) -> str:
        """Does the harm, and returns what was done. HarnessFailed if this backend has no such part."""
        if harm.kind not in self._harmers:
            raise HarnessFailed(f"{node.name}: this backend cannot do {harm.kind!r}.")
        return self._harmers[harm.kind].harm(node, harm)


class _NodeWithParts(Node, Protocol):
    _parts: Parts


class HasParts:
    """A node whose impairments and harms are its backend's parts."""

    _parts: Parts

    def impair(self: _NodeWithParts, impairment: Impairment) -> None:
        self._parts.impair(self, impairment)

    def repair(self: _NodeWithParts, impairment: Impairment) -> None:
        self._parts.repair(self, impairment)

    def impaired(self: _NodeWithParts, impairment: Impairment) -> tuple[Tristate, str]:
        return self._parts.impaired(self, impairment)

    def harm(self: _NodeWithParts, harm: Harm) -> str:
        return self._parts.harm(self, harm)


def node_facts(node: Node) -> dict[str, Any]:
    """Returns what a cluster's `describe` says of each node, as JSON values."""
    return {
        "id": node.node_id,
        "roles": sorted(node.roles),
        "address": node.address,
        "state": node.state().value,
        "pid": node.os_pid,
    }
