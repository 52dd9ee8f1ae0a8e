"""Makes the plan of a test afterwards: its recorded clients as cells and clients of a trial. Pure.

A cell is a topic with the configuration of those who wrote it and of the group that consumed it; so the guarantee table
judges what the clients really had.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prozess.harness.config.client_settings import translate_consumer, translate_producer
from prozess.harness.config.configuration import (
    GroupConfiguration,
    ProducerConfiguration,
    TopicConfiguration,
    TransactionConfiguration,
    Variant,
)
from prozess.harness.config.known_properties import Setting
from prozess.harness.interfaces.application import Property, RegisteredClient, RegisteredTopic
from prozess.harness.plan.catalogue import RECORDED
from prozess.harness.plan.cell_work import GroupWork, RecordedWork, TransactionsWork, group_session
from prozess.harness.plan.plan import (
    ISOLATION_LEVELS,
    SENTINEL_CLIENT,
    Cell,
    Plan,
    PlannedClient,
    PlannedPartition,
)
from prozess.harness.plan.schedule import Step
from prozess.harness.plan.trial import Limits

DELIVERY_MS_MAX = 2**31 - 1
"""message.timeout.ms=0: no limit."""
_OWN_OF_TOPICS = {
    "min.insync.replicas": "min_insync_replicas",
    "unclean.leader.election.enable": "unclean_leader_election_enable",
    "cleanup.policy": "cleanup_policy",
    "flush.messages": "flush_messages",
}
_NEVER = 2**63 - 1
"""flush.messages where it is not set."""


@dataclass(frozen=True, slots=True)
class RecordedTest:
    """The recording of a test's own clients, and the cluster that they used."""

    name: str
    topics: Sequence[RegisteredTopic]
    clients: Sequence[RegisteredClient]
    steps: Sequence[Step] = ()
    backend: str = "local"
    variant: Variant = field(default_factory=Variant)
    title: str = ""
    doubts: tuple[str, ...] = ()
    blind: bool = False
    token: str = ""
    limits: Limits = field(default_factory=Limits)


def make_test_plan(recorded: RecordedTest) -> Plan:
    """Returns the plan of a test. BadInput for a property that contradicts another: the client would have refused it, too."""
    parts = _Parts(recorded)
    return Plan(
        origin="recorded",
        trial=recorded.name,
        title=recorded.title or recorded.name,
        scenarios=(),
        seed=0,
        backend=recorded.backend,
        variant=recorded.variant,
        limits=recorded.limits,
        settle_s=0,
        cells=tuple(parts.cells),
        excluded=(),
        partitions=tuple(parts.partitions),
        clients=tuple(parts.clients),
        steps=tuple(recorded.steps),
        controls=(),
        metrics=False,
        doubts=(*recorded.doubts, *parts.doubts),
        blind=recorded.blind,
    )


def notes_of(recorded: RecordedTest) -> list[str]:
    """Returns notes on clients that are not judged: further groups of one topic."""
    notes = []
    for topic in recorded.topics:
        groups = _groups_on(topic.name, recorded.clients)
        for other in groups[1:]:
            notes.append(
                f"{topic.name}: prozess checks what group {other!r} read, but not what it committed: it judges "
                "a topic for one "
                f"group, {groups[0]!r}"
            )
    return notes


class _Parts:
    """Cells, partitions and clients, as they are numbered."""

    def __init__(self, recorded: RecordedTest) -> None:
        self._recorded = recorded
        self.doubts: list[str] = []
        self.cells: list[Cell] = []
        self.partitions: list[PlannedPartition] = []
        for topic in recorded.topics:
            self._add(topic)
        self.clients = self._clients()

    def _add(self, topic: RegisteredTopic) -> None:
        number, clients = len(self.cells), self._recorded.clients
        writers = [client for client in clients if topic.name in client.wrote]
        producer, transaction = self._written_by(topic, writers)
        groups = _groups_on(topic.name, clients)
        group = self._group(groups[0], clients) if groups else None
        cell = Cell(
            cell=number,
            name=topic.name,
            workload=RECORDED,
            topic_name=topic.name,
            axes={},
            topic=topic_configuration(topic),
            producer=producer,
            work=RecordedWork(
                token=self._recorded.token,
                group=group,
                transactions=None if transaction is None else TransactionsWork(configuration=transaction),
            ),
            partitions=topic.partitions,
        )
        self.cells.append(cell.model_copy(update={"axes": _axes(cell, writers)}))
        for index, assignment in enumerate(topic.assignment):
            self.partitions.append(
                PlannedPartition(
                    partition=topic.first + index,
                    topic_name=topic.name,
                    number=index,
                    cell=number,
                    assignment=assignment,
                )
            )

    def _written_by(
        self, topic: RegisteredTopic, writers: Sequence[RegisteredClient]
    ) -> tuple[ProducerConfiguration, TransactionConfiguration | None]:
        found = {producer_of(writer.properties).model_dump_json(): writer for writer in writers}
        if len(found) > 1:
            ways = " and ".join(_in_words(producer_of(writer.properties)) for writer in found.values())
            self.doubts.append(
                f"topic {topic.name} was written by producers with different configurations ({ways}), which "
                "promise different things; give each producer its own topic"
            )
        first = writers[0].properties if writers else {}
        configuration = producer_of(first)
        if "transactional.id" not in first:
            return configuration, None
        timeout = int(first.get("transaction.timeout.ms", 60_000))
        return configuration, TransactionConfiguration(transaction_timeout_ms=timeout)

    def _group(self, group_id: str, clients: Sequence[RegisteredClient]) -> GroupWork:
        members = [client for client in clients if group_of(client) == group_id]
        alike = {"commit": "none", "members": 1, "static_membership": False}
        if len({group_of_members([m]).model_copy(update=alike).model_dump_json() for m in members}) > 1:
            self.doubts.append(
                f"the members of group {group_id} have different configurations, so prozess cannot judge the "
                "group; give all its members the same configuration"
            )
        group = group_of_members(members)
        return GroupWork(configuration=group, session=group_session(group, self._recorded.variant))

    # Clients.

    def _clients(self) -> list[PlannedClient]:
        every = tuple(p.partition for p in self.partitions)
        clients = [PlannedClient(client=SENTINEL_CLIENT, role="sentinel", name="sentinel", partitions=every)]
        clients += [self._client(facts) for facts in self._recorded.clients]
        more: list[PlannedClient] = []
        if grouped := self._of_cells(cell for cell in self.cells if cell.group is not None):
            more.append(PlannedClient(client=0, role="observer", name="observer-committed", partitions=grouped))
        if transactional := self._of_cells(cell for cell in self.cells if cell.transaction is not None):
            more.append(PlannedClient(client=0, role="fencer", name="fencer", partitions=transactional))
        more += [
            PlannedClient(client=0, role="audit", name=f"audit-{level}", partitions=every, isolation_level=level)
            for level in ISOLATION_LEVELS
        ]
        first = 1 + max(client.client for client in clients)
        return [*clients, *(c.model_copy(update={"client": first + index}) for index, c in enumerate(more))]

    @staticmethod
    def _of_cells(cells: Iterable[Cell]) -> tuple[int, ...]:
        return tuple(p for cell in cells for p in cell.partitions)

    def _client(self, facts: RegisteredClient) -> PlannedClient:
        named = str(facts.properties.get("client.id", ""))
        name = f"{facts.kind}-{facts.client}" + (f" ({named})" if named else "")
        if facts.kind == "producer":
            cells = [cell for cell in self.cells if cell.topic_name in facts.wrote]
            transactional = facts.properties.get("transactional.id")
            return PlannedClient(
                client=facts.client,
                role="recorded-command" if facts.is_command else "recorded-producer",
                name=name,
                partitions=self._of_cells(cells),
                producer=producer_of(facts.properties),
                cell=cells[0].cell if cells else None,
                transactional_id=None if transactional is None else str(transactional),
            )
        return self._consumer(facts, name)

    def _consumer(self, facts: RegisteredClient, name: str) -> PlannedClient:
        group_id = group_of(facts)
        judged = {t.name: _groups_on(t.name, self._recorded.clients)[:1] for t in self._recorded.topics}
        cells = [
            c
            for c in self.cells
            if c.topic_name in facts.read and (group_id is None or group_id in judged[c.topic_name])
        ]
        committed = str(facts.properties.get("isolation.level", "read_committed")) == "read_committed"
        return PlannedClient(
            client=facts.client,
            role="recorded-reader" if group_id is None else "recorded-member",
            name=name,
            partitions=self._of_cells(cells),
            isolation_level="read_committed" if committed else "read_uncommitted",
            cell=cells[0].cell if cells else None,
            group_id=group_id,
        )


# Configurations.


def producer_of(properties: Mapping[str, Property]) -> ProducerConfiguration:
    """Returns the configuration of a librdkafka producer with these properties, its defaults filled in."""
    given = _settings(properties)
    for name in ("delivery.timeout.ms", "message.timeout.ms"):
        if name in given and given[name].value == "0":
            given[name] = Setting(str(DELIVERY_MS_MAX), name)
    base = _nested(translate_producer(given, "librdkafka", "").base, "producer")
    return ProducerConfiguration(**base)


def group_of_members(members: Sequence[RegisteredClient]) -> GroupConfiguration:
    """Returns the configuration of a group with these members. Its way of committing is taken from its rows, unless it
    commits automatically.
    """
    commits = "sync-after" if any("commit" in member.how for member in members) else "none"
    base = translate_consumer(_settings(members[0].properties), "librdkafka", "", commits=commits).base
    static = any("group.instance.id" in member.properties for member in members)
    return GroupConfiguration(
        **{**_nested(base, "group"), "members": min(16, len(members)), "static_membership": static}
    )


def topic_configuration(topic: RegisteredTopic) -> TopicConfiguration:
    """Returns a topic's configuration from the settings that the brokers report."""
    own = {name: topic.properties[key] for key, name in _OWN_OF_TOPICS.items() if key in topic.properties}
    if int(own.get("flush_messages", _NEVER)) == _NEVER:
        own.pop("flush_messages", None)
    own["cleanup_policy"] = "compact" if "compact" in own.get("cleanup_policy", "delete") else "delete"
    kept = {key: value for key, value in topic.properties.items() if key == "delete.retention.ms"}
    factor = max(len(brokers) for brokers in topic.assignment)
    return TopicConfiguration.model_validate({**own, "replication_factor": factor, "properties": kept})


def _settings(properties: Mapping[str, Property]) -> dict[str, Setting]:
    return {
        key: Setting(str(value).lower() if isinstance(value, bool) else str(value), key)
        for key, value in properties.items()
        if key not in ("partitioner",)
    }


def _nested(base: Mapping[str, Any], scope: str) -> dict[str, Any]:
    """`scope.key` and `scope.properties.KEY` as the fields of a configuration."""
    found: dict[str, Any] = {"properties": {}}
    for key, value in base.items():
        if key.startswith(f"{scope}.properties."):
            found["properties"][key.removeprefix(f"{scope}.properties.")] = value
        elif key.startswith(f"{scope}."):
            found[key.removeprefix(f"{scope}.")] = value
    return found


def group_of(client: RegisteredClient) -> str | None:
    """Returns the group that a client is a member of; None if it assigns itself partitions, or it is no consumer."""
    if client.kind != "consumer" or "subscribe" not in client.how:
        return None
    return str(client.properties.get("group.id", ""))


def _groups_on(topic: str, clients: Sequence[RegisteredClient]) -> list[str]:
    """Groups with members that were given or assigned the topic; those that commit first, then in order."""
    found: dict[str, bool] = {}
    for client in clients:
        group_id = group_of(client)
        if group_id is not None and topic in client.read:
            automatic = str(client.properties.get("enable.auto.commit", True)).lower() == "true"
            explicit = "processing" in client.how or ("commit" in client.how and not automatic)
            found[group_id] = found.get(group_id, False) or explicit
    return sorted(found, key=lambda group_id: not found[group_id])


def _axes(cell: Cell, writers: Sequence[RegisteredClient]) -> dict[str, str]:
    axes = {
        "topic.name": cell.topic_name,
        "topic.replication_factor": str(cell.topic.replication_factor),
        "topic.min_insync_replicas": str(cell.topic.min_insync_replicas),
        "producer.acks": cell.producer.acks if writers else "–",
        "producer.enable_idempotence": str(cell.producer.enable_idempotence).lower() if writers else "–",
        "producer.transactions": "yes" if cell.transaction is not None else "no",
        "group.commit": cell.group.configuration.commit if cell.group is not None else "–",
    }
    return axes


def _in_words(producer: ProducerConfiguration) -> str:
    idempotent = str(producer.enable_idempotence).lower()
    return f"acks={producer.acks}, idempotent={idempotent}, retries={producer.retries}"
