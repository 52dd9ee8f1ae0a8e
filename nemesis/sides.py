"""Parameters of faults of links: who is at the other end."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import BeforeValidator

from harness.impairments import CLIENTS
from harness.protocols import Capability
from harness.targets import parse_target
from nemesis.targets import is_role

SIDES = ("all", "brokers", "controllers", "zookeepers", "followers", CLIENTS, "everybody")


def _side(value: object) -> object:
    if value is None:
        return None
    if isinstance(value, str):
        if value not in SIDES:
            raise ValueError(f"it must be one of {', '.join(SIDES)}, or a list of roles and names of nodes")
        return value
    if not isinstance(value, list | tuple) or not value or not all(isinstance(text, str) for text in value):
        raise ValueError(f"it must be one of {', '.join(SIDES)}, or a list, not empty, of roles and names of nodes")
    for text in value:
        if is_role(text):
            parse_target(text)
    return tuple(value)


Side = Annotated[str | tuple[str, ...], BeforeValidator(_side)]
"""`all` other nodes, `brokers`, `controllers`, `zookeepers`, `followers` (of the partitions the targets name), `clients` (the
trial's clients), `everybody` (all nodes and clients), or a list of roles and names of nodes. Targets are never on the other
side. The nemesis makes it names of nodes (and `clients`) before a fault sees it."""
AnySide = Annotated[str | tuple[str, ...] | None, BeforeValidator(_side)]
"""None: nobody in particular."""


def names_of(others: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """As the nemesis has resolved it."""
    assert not isinstance(others, str), "the nemesis resolves `others` to names before it strikes"
    return others or ()


def capabilities_for(others: str | Sequence[str] | None) -> frozenset[Capability]:
    """What it takes beyond links between nodes."""
    of_clients = others is not None and (others in (CLIENTS, "everybody") or CLIENTS in others)
    return frozenset({Capability.CUT_CLIENTS}) if of_clients else frozenset()
