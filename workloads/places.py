"""Who has the place of each planned client, over all that had it.

A place that is taken again has a new client, with an id of its own, as a restarted application is a new client to Kafka.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

from harness.clock import Clock
from harness.errors import ClusterFailed, NotReady
from harness.plan import PlannedClient
from harness.protocols import ClientNode
from harness.schema import SENDING
from harness.targets import client_target, means_client, parse_target
from workloads.client import Launch
from workloads.client_clock import PlaceClock
from workloads.client_nodes import ClientPlace
from workloads.processes import ClientProcess, ClientProcesses


class Places:
    """The places of a trial's clients: who has each now, and how it is taken again.

    `launch(planned, client, name)` makes what a new client is started with; `taken(planned, process)` is told of each that
    was started in a place. New ids are beyond the plan's. `late`: partitions that are not there from the start.
    `place_clock`: of a place, whose clients' ids it asks for.
    """

    def __init__(  # noqa: PLR0913 - parts of one trial, by name
        self,
        planned: Sequence[PlannedClient],
        *,
        processes: ClientProcesses,
        launch: Callable[[PlannedClient, int, str], Launch],
        taken: Callable[[PlannedClient, ClientProcess], None],
        first_new_client: int,
        late: Collection[int],
        rows: Path,
        clock: Clock,
        place_clock: Callable[[PlannedClient, Callable[[], Sequence[int]]], PlaceClock],
    ) -> None:
        self._processes, self._launch, self._taken = processes, launch, taken
        self._next = first_new_client
        self._incarnations = {client.client: [client.client] for client in planned}
        self.nodes: tuple[ClientNode, ...] = tuple(
            ClientPlace(
                client,
                had_by=partial(self._had_by, client),
                restart=partial(self._restart, client),
                end=partial(self._end, client),
                partitions=len(set(client.partitions) - set(late)),
                rows=rows,
                clock=clock,
                place_clock=place_clock(client, partial(self._incarnations.__getitem__, client.client)),
            )
            for client in planned
        )

    def planned_of(self, client: int) -> int:
        """The planned client whose place a client has, or had."""
        return next((planned for planned, ids in self._incarnations.items() if client in ids), client)

    def named(self, name: str) -> list[ClientNode]:
        """By the name of the planned client, `member(CELL, INSTANCE)`, or `producers`. ClusterFailed if there is none."""
        target = parse_target(client_target(name))
        found = [
            node
            for node in self.nodes
            if means_client(target, name=node.name, role=node.client_role, cell=node.cell, instance=node.instance)
        ]
        if not found:
            raise ClusterFailed(f"There is no client {name!r} that could be stopped or started.")
        return found

    def processes_of(self, nodes: Sequence[ClientNode]) -> list[ClientProcess]:
        """Who has these places now and lives."""
        alive = (client for node in nodes for client in node.clients_alive[-1:])
        return [self._processes.clients[client] for client in alive]

    def _had_by(self, planned: PlannedClient) -> list[ClientProcess]:
        self._processes.poll()
        clients = self._processes.clients
        return [clients[client] for client in self._incarnations[planned.client] if client in clients]

    def _restart(self, planned: PlannedClient) -> None:
        """A new client; of a late starter, which nobody was yet, the planned one itself."""
        ids, client, name = self._incarnations[planned.client], planned.client, planned.name
        if client in self._processes.clients:
            client, self._next = self._next, self._next + 1
            ids.append(client)
            name = f"{name}~{len(ids)}"
        (process,) = self._processes.start([self._launch(planned, client, name)])
        self._taken(planned, process)

    def _end(self, planned: PlannedClient, timeout_s: float) -> None:
        process = next((p for p in reversed(self._had_by(planned)) if p.running), None)
        if process is None:
            return
        process.expected_to_end = True
        if planned.role in SENDING:
            self._processes.tell([process], "finish", timeout_s=timeout_s)
        else:
            self._processes.tell([process], "stop")
        if not self._processes.wait([process], timeout_s=timeout_s):
            raise NotReady(
                awaited=f"client {process.name} to end in order", timeout_s=timeout_s, last_seen="it still runs"
            )
