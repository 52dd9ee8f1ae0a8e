"""The roles that a client of a trial can have. A new role is one line here.

A role says two things: with which settings such a client is launched, and what it then does in its process.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaException, Producer

from prozess.harness.errors import BadInput
from prozess.harness.interfaces import ClientSpec
from prozess.harness.plan.plan import Plan, PlannedClient
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import SENDING, Isolation
from prozess.workloads.client import Client, ClientLaunch, SteppedWork, Work
from prozess.workloads.exactly_once.applications import (
    Application,
    JavaCopier,
    launch_application,
    launch_java_copier,
)
from prozess.workloads.exactly_once.copier import GroupCopier, launch_copier
from prozess.workloads.group.member import GroupMember, launch_member
from prozess.workloads.group.observer import CommittedObserver, launch_observer
from prozess.workloads.log.audit import AuditReader, SentinelWriter
from prozess.workloads.log.errors_producer import ErrorsProducer
from prozess.workloads.log.producer import KeyedProducer, LogProducer, TextProducer
from prozess.workloads.log.reader import LogReader
from prozess.workloads.metrics import INTERVAL_MS, INTERVAL_PROPERTY
from prozess.workloads.settings import (
    LaunchContext,
    Property,
    Settings,
    Toolbox,
    launch_errors_producer,
    launch_keyed_producer,
    launch_producer,
    launch_reader,
    launch_sentinel,
)
from prozess.workloads.share.member import ShareMember, launch_share_member
from prozess.workloads.transactions.launch import launch_fencer, launch_transactor
from prozess.workloads.transactions.transactor import Fencer, Transactor
from prozess.workloads.verifiable.clients import VerifiableConsumer, VerifiableProducer, VerifiableShareConsumer
from prozess.workloads.verifiable.java_member import JavaMember
from prozess.workloads.verifiable.settings import (
    launch_java_member,
    launch_verifiable_consumer,
    launch_verifiable_producer,
    launch_verifiable_share_consumer,
)


@dataclass(frozen=True, slots=True)
class ClientRole:
    """Says how a client is launched, and what it does."""

    work: Callable[[Client], Work]
    """What runs in the client's process."""
    launch: Callable[[LaunchContext], Settings]
    """Makes the client's properties and options from the plan."""


ROLES: dict[str, ClientRole] = {
    "producer": ClientRole(LogProducer, launch_producer),
    "keyed-producer": ClientRole(KeyedProducer, launch_keyed_producer),
    "errors-producer": ClientRole(ErrorsProducer, launch_errors_producer),
    "text-producer": ClientRole(TextProducer, launch_producer),
    "verifiable-producer": ClientRole(VerifiableProducer, launch_verifiable_producer),
    "verifiable-consumer": ClientRole(VerifiableConsumer, launch_verifiable_consumer),
    "verifiable-share-consumer": ClientRole(VerifiableShareConsumer, launch_verifiable_share_consumer),
    "transactor": ClientRole(Transactor, launch_transactor),
    "fencer": ClientRole(Fencer, launch_fencer),
    "copier": ClientRole(GroupCopier, launch_copier),
    "java-copier": ClientRole(JavaCopier, launch_java_copier),
    "application": ClientRole(Application, launch_application),
    "reader": ClientRole(LogReader, launch_reader),
    "member": ClientRole(GroupMember, launch_member),
    "java-member": ClientRole(JavaMember, launch_java_member),
    "share-member": ClientRole(ShareMember, launch_share_member),
    "observer": ClientRole(CommittedObserver, launch_observer),
    "audit": ClientRole(AuditReader, launch_reader),
    "sentinel": ClientRole(SentinelWriter, launch_sentinel),
}
SHARED: dict[str, Callable[[Client], SteppedWork]] = {"producer": LogProducer, "keyed-producer": KeyedProducer}
"""Roles of which several clients may share one process (`prozess.workloads.runtime.fork_server`)."""


OF_THE_AUDIT = ("sentinel", "audit", "fencer", "observer")
"""Roles that are started after healing, over the observer's listeners."""
_GROWING = ("producer", "text-producer")
"""Roles that write late partitions once they learn that these exist."""
ISOLATION = {
    "read_uncommitted": Isolation.READ_UNCOMMITTED,
    "read_committed": Isolation.READ_COMMITTED,
}


class ClientServers(Protocol):
    """The part of a cluster that its clients need: where its listeners are, and how a process gets to them."""

    @property
    def bootstrap_servers(self) -> str: ...
    @property
    def observer_servers(self) -> Mapping[int, tuple[str, int]]: ...
    @property
    def client_prefix(self) -> Sequence[str]:
        """The words before the command of the process that clients are forked from; empty if it needs none."""
        ...


class Launcher:
    """Makes the launches of the clients of one plan."""

    def __init__(self, plan: Plan, run: RunDirectory, *, cluster: ClientServers, toolbox: Toolbox) -> None:
        self._plan, self._run, self._cluster, self._toolbox = plan, run, cluster, toolbox
        self.absent = {p.partition for p in plan.partitions if p.late}
        """Late partitions that were assigned to no client yet."""
        self.missing = set(self.absent)
        """The partitions that are not there now, by their recorded ids. The audit leaves them out."""
        self._nameless = plan.nameless

    @property
    def observer_servers(self) -> str:
        """Returns the observer's listeners, which no fault touches, as `bootstrap.servers`."""
        return ",".join(f"{host}:{port}" for host, port in self._cluster.observer_servers.values())

    def launch(self, planned: PlannedClient) -> ClientLaunch:
        """Launches a planned client over the listeners that every client uses."""
        return self._launch(planned, self._cluster.bootstrap_servers)

    def launch_observing(self, planned: PlannedClient, *, limit_s: float = 0.0) -> ClientLaunch:
        """Launches a planned client over the observer's listeners."""
        return self._launch(planned, self.observer_servers, limit_s=limit_s)

    def relaunch(self, planned: PlannedClient, client: int, name: str) -> ClientLaunch:
        """Launches a new client in the place of a planned one."""
        # What it writes names the new one; what it is known by to Kafka stays: the instance of a group, a client.id.
        launch = self.launch(planned.model_copy(update={"client": client}))
        return launch.model_copy(
            update={"spec": launch.spec.model_copy(update={"name": name}), "planned": planned.client}
        )

    def _launch(self, planned: PlannedClient, servers: str, *, limit_s: float = 0.0) -> ClientLaunch:
        partitions = self._plan.partitions
        settings = ROLES[planned.role].launch(
            LaunchContext(plan=self._plan, planned=planned, servers=servers, limit_s=limit_s, toolbox=self._toolbox)
        )
        late = sorted(self.absent.intersection(self.served(planned))) if planned.role in _GROWING else []
        spec = ClientSpec(
            client=planned.client,
            role=planned.role,
            name=planned.name,
            bootstrap_servers=servers,
            properties=settings.properties | self._statistics(planned),
            partitions=tuple((p, partitions[p].topic_name, partitions[p].number) for p in self.served(planned)),
            rate_hz=planned.traffic.rate_hz if planned.role in SENDING else 0,
            value_bytes=planned.traffic.value_bytes,
            unacknowledged_max=planned.traffic.unacknowledged_max,
            late=tuple(late),
            options=settings.options.model_dump(mode="json"),
        )
        isolation = ISOLATION[planned.isolation_level] if planned.isolation_level else Isolation.NOT_A_READER
        if planned.reads_by_command:
            isolation = Isolation.UNREPORTED
        return ClientLaunch(
            spec=spec,
            rows=self._run.rows,
            planned=planned.client,
            library=self._library(planned),
            isolation=int(isolation),
        )

    def served(self, planned: PlannedClient) -> list[int]:
        """Returns the partitions that the client is to know, by their recorded ids."""
        left_out = self._nameless | self.missing if planned.role in OF_THE_AUDIT else self._nameless
        return [p for p in planned.partitions if p not in left_out]

    def _library(self, planned: PlannedClient) -> Path | None:
        """Returns where the client's own version of librdkafka is; None if it has the one that prozess runs with."""
        library = planned.library
        if library is None or library.client != "librdkafka" or library.version is None:
            return None
        return self._toolbox.librdkafka(library.version)

    def _statistics(self, planned: PlannedClient) -> dict[str, int]:
        wanted = self._plan.metrics and planned.role not in OF_THE_AUDIT
        return {INTERVAL_PROPERTY: INTERVAL_MS} if wanted else {}


# Configurations that librdkafka refuses, found out before anything runs: every client of a plan is made once, offline.
#
# librdkafka checks names, ranges and contradictions when a client is made, before it connects anywhere. What it
# refuses is the user's mistake, reported in librdkafka's own words with the client it is about. Java clients are not
# asked: they say so themselves when they run.


ADDRESS_OF_NOBODY = "127.0.0.1:1"
CONSUMERS = frozenset({"reader", "audit", "member"})
RUN_TOOLS = frozenset({"verifiable-producer", "verifiable-consumer", "verifiable-share-consumer", "java-member"})
_NAMES = ("client.id", "group.id", "group.instance.id", "transactional.id")
"""Properties that distinguish clients of one configuration."""


def refuse_bad_clients(plan: Plan, *, toolbox: Toolbox) -> None:
    """Raises BadInput for the first client that librdkafka refuses, or that does not run here."""
    seen: set[str] = set()
    for planned in plan.clients:
        library = planned.library
        other = library is not None and library.client == "librdkafka" and library.version is not None
        if planned.role in RUN_TOOLS or other:  # another version is asked by itself (`prozess.workloads.library_check`)
            continue
        properties = (
            ROLES[planned.role]
            .launch(LaunchContext(plan=plan, planned=planned, servers=ADDRESS_OF_NOBODY, limit_s=1.0, toolbox=toolbox))
            .properties
        )
        if not properties:  # a Java producer's
            continue
        text = json.dumps({key: value for key, value in properties.items() if key not in _NAMES}, sort_keys=True)
        if (kind := f"{planned.role in CONSUMERS} {text}") not in seen:
            seen.add(kind)
            _try(planned, properties)


def _try(planned: PlannedClient, properties: Mapping[str, Property]) -> None:
    why = why_refused(properties, consumer=planned.role in CONSUMERS)
    if why is not None:
        raise BadInput(
            f"Client {planned.name} cannot be made, librdkafka refuses its configuration: {why}. Change it in the trial's "
            "`base` or `axes`, or exclude the combination."
        )


def why_refused(properties: Mapping[str, Property], *, consumer: bool) -> str | None:
    """Returns why librdkafka refuses these properties, in its own words; None if it takes them."""
    # Without a server there is nothing to connect to.
    offline: dict[str, Any] = {key: value for key, value in properties.items() if key != "bootstrap.servers"}
    try:
        if consumer:
            Consumer({"group.id": "nobody", **offline}).close()
        else:
            Producer(offline)
    except KafkaException as error:
        return str(error.args[0].str()).strip().removeprefix("Failed to create producer: ").rstrip(".")
    return None
