"""Which clients share a process. Pure.

Only plain producers do, of a trial that has very many, and only those that no step means: a process that is killed, paused
or given another clock is one client's alone. The readers are few and busy; members and copiers are judged by what their
process did.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from harness.plan import PlannedClient
from harness.schedule import ClientAction, Step
from harness.targets import CLIENT_ROLES, Target, client_target, means_client, parse_target

ROLES = frozenset({"producer", "keyed-producer"})
"""Whose work can be done piece by piece (`workloads.company.SteppedWork`)."""
ALONE_MAX = 16
"""A trial with no more such clients gives each a process."""
TOGETHER_MAX = 24
"""Clients in one process, at most: what one that dies takes with it."""
RATE_MAX_HZ = 500.0
"""Records a second of all clients in one process, at most. One producer alone does some ten thousand; this leaves it idle
for most of the time, so that nobody waits for another's turn."""


def share(clients: Sequence[PlannedClient], steps: Sequence[Step]) -> tuple[tuple[int, ...], ...]:
    """Ids of clients that share a process, in their order; who is in none has a process to itself."""
    meant = list(targets_of(steps))
    fit = [client for client in clients if client.role in ROLES and not client.late and not _is_meant(client, meant)]
    if len(fit) <= ALONE_MAX:
        return ()
    return tuple(tuple(client.client for client in group) for group in _dealt(fit) if len(group) > 1)


def targets_of(steps: Iterable[Step]) -> Iterator[Target]:
    """What the steps mean that is clients: their targets, and roles in their parameters."""
    for step in steps:
        if isinstance(step.do, ClientAction):
            yield from (parse_target(client_target(name)) for name in step.do.client)
        elif step.do is not None:
            yield from (target for text in _texts(step.do.model_dump()) if (target := _client(text)) is not None)


def _texts(value: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)


def _client(text: str) -> Target | None:
    try:
        target = parse_target(text)
    except ValueError:
        return None
    return target if target.role in CLIENT_ROLES else None


def _is_meant(client: PlannedClient, targets: Iterable[Target]) -> bool:
    return any(
        means_client(target, name=client.name, role=client.role, cell=client.cell, instance=client.instance)
        for target in targets
    )


def _dealt(clients: Sequence[PlannedClient]) -> list[list[PlannedClient]]:
    """In order, in as few groups as the bounds allow, and of about one size."""
    groups: list[list[PlannedClient]] = []
    rate_hz, size = 0.0, -(-len(clients) // -(-len(clients) // TOGETHER_MAX))
    for client in clients:
        own_hz = client.traffic.rate_hz * len(client.partitions)
        if not groups or len(groups[-1]) == size or rate_hz + own_hz > RATE_MAX_HZ:
            groups.append([])
            rate_hz = 0.0
        groups[-1].append(client)
        rate_hz += own_hz
    return groups
