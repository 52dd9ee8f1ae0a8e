"""How nodes of real clusters are impaired and harmed: a part per kind, which a backend gives to its nodes.

A part is asked for one node at a time. It keeps nothing that a second process would need: what is impaired is seen.
"""

from collections.abc import Mapping
from typing import Any, Protocol, cast

from harness.errors import HarnessFailed
from harness.impairments import Harm, Impairment
from harness.protocols import Node
from harness.schema import Tristate


class Impairer(Protocol):
    """Makes and mends one kind of impairment; as `harness.protocols.Node` says of `impair`, `repair` and `impaired`."""

    def impair(self, node: Any, impairment: Any) -> None: ...  # noqa: ANN401 - of its backend and kind
    def repair(self, node: Any, impairment: Any) -> None: ...  # noqa: ANN401
    def impaired(self, node: Any, impairment: Any) -> tuple[Tristate, str]: ...  # noqa: ANN401


class Harmer(Protocol):
    """Does one kind of harm; returns what was done, seen to be done."""

    def harm(self, node: Any, harm: Any) -> str: ...  # noqa: ANN401 - of its backend and kind


class Parts:
    """The parts that a backend has: kind → part."""

    def __init__(
        self, impairers: Mapping[str, Impairer] | None = None, harmers: Mapping[str, Harmer] | None = None
    ) -> None:
        self._impairers, self._harmers = dict(impairers or {}), dict(harmers or {})

    def close(self) -> None:
        """End what parts have started. Safe to repeat."""
        for part in (*self._impairers.values(), *self._harmers.values()):
            if close := getattr(part, "close", None):
                close()

    def impair(self, node: Node, impairment: Impairment) -> None:
        """HarnessFailed if this backend has no such part."""
        if impairment.kind not in self._impairers:
            raise HarnessFailed(f"{node.name}: this backend cannot do {impairment.kind!r}.")
        self._impairers[impairment.kind].impair(node, impairment)

    def repair(self, node: Node, impairment: Impairment) -> None:
        """Nothing where this backend has no such part: it never impaired."""
        if impairment.kind in self._impairers:
            self._impairers[impairment.kind].repair(node, impairment)

    def impaired(self, node: Node, impairment: Impairment) -> tuple[Tristate, str]:
        """NO where this backend has no such part."""
        if impairment.kind not in self._impairers:
            return Tristate.NO, f"this backend has no {impairment.kind!r}"
        return self._impairers[impairment.kind].impaired(node, impairment)

    def harm(self, node: Node, harm: Harm) -> str:
        """HarnessFailed if this backend has no such part."""
        if harm.kind not in self._harmers:
            raise HarnessFailed(f"{node.name}: this backend cannot do {harm.kind!r}.")
        return self._harmers[harm.kind].harm(node, harm)


class HasParts:
    """A node whose impairments and harms are the backend's parts: as `harness.protocols.Node` says of them."""

    _parts: Parts

    def impair(self, impairment: Impairment) -> None:
        self._parts.impair(cast("Node", self), impairment)

    def repair(self, impairment: Impairment) -> None:
        self._parts.repair(cast("Node", self), impairment)

    def impaired(self, impairment: Impairment) -> tuple[Tristate, str]:
        return self._parts.impaired(cast("Node", self), impairment)

    def harm(self, harm: Harm) -> str:
        return self._parts.harm(cast("Node", self), harm)
