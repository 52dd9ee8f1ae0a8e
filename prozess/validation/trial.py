"""Makes the trial of somebody's configuration: a cell for each part of it, beside them one that is expected to lose, and
the versions it is for."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from prozess.harness.config.client_settings import Translated, Unclear
from prozess.harness.config.configuration import version_numbers
from prozess.harness.config.known_properties import Client, alike, librdkafka_version, versions
from prozess.harness.config.librdkafka_fixes import later_fixes_note
from prozess.harness.errors import BadInput, MissingTool
from prozess.harness.guarantees.table.cell_configuration import parse_version
from prozess.harness.plan.plan import Plan
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.schedule import FaultAction, Step, TakeOver
from prozess.harness.plan.trial import Trial
from prozess.harness.plan.trial_files import load_trial, parse_trial
from prozess.harness.plan.validity import JAVA_COMMITS, OLDEST_JAVA
from prozess.validation.reading import Reading
from prozess.validation.schedules import BATCH, RATE_HZ, RECORD_MS
from prozess.validation.servers import ServerSettings, variant_of

NAME = "validate"
FAULTS_OF = "safe"
"""The trial whose steps `validate` takes: every fault, one after the other, each healed."""
CONTROL = {"producer.acks": "1", "producer.retries": "max", "producer.max_in_flight": 5}
"""For the control: it is expected to lose where leaders die."""
SAFE_PRODUCER = {"producer.acks": "all", "producer.enable_idempotence": True}
"""For a trial's own producers, where nobody gave one."""
HASTE = {
    "topic.properties.segment.ms": 1000,
    "topic.properties.internal.segment.bytes": 65536,
    "topic.properties.min.cleanable.dirty.ratio": 0.01,
    "topic.properties.max.compaction.lag.ms": 2000,
    "compaction.keys": 100,
}
"""For a compacted topic: with segments of a week nothing would be compacted while a trial lasts."""
MIN_ISR_BOUNDED = (3, 7)
"""From this release on brokers count no more replicas than there are. [KAFKA-15583, KAFKA-21110: the effective minimum is
min(min.insync.replicas, replicas); Partition.effectiveMinIsr]"""
_TRANSACTION_CELL = "transactions"
PARTITIONS = 3
"""For each cell: the steps name partitions 0 to 2."""


class ConfigurationParts:
    """Somebody's whole configuration as settings of a trial: what there is of producer, consumer, topic and brokers."""

    def __init__(
        self,
        servers: ServerSettings,
        producer: Translated | None,
        consumer: Translated | None,
        version: str,
        readings: tuple[Reading, ...] = (),
        *,
        client_version: str | None = None,
        client_given: bool = True,
        version_given: bool = True,
    ) -> None:
        """`version`: of the brokers. `client_version`: of the client library; None if it is not known. `client_given`: did
        somebody say which library it is, or a name that only one has? Else it is taken to be Kafka's own.
        `version_given`: is the brokers' version known?"""
        self.servers, self.producer, self.consumer, self.version = servers, producer, consumer, version
        self.readings = readings
        self.client_version, self.client_given = client_version, client_given
        self.version_given = version_given

    @property
    def unclear(self) -> tuple[Unclear, ...]:
        """Returns what was not understood in the files: nothing is promised while there is something."""
        parts = (self.servers, self.producer, self.consumer)
        found = [unclear for reading in self.readings for unclear in reading.unclear]
        found += [unclear for part in parts if part is not None for unclear in part.unclear]
        return tuple(unclear for unclear in found if unclear.rule != OTHER_CLIENT)

    @property
    def others(self) -> tuple[Unclear, ...]:
        """Returns the clients in the files that no trial runs: what they promise of themselves is not known either."""
        run = [
            Unclear(reading.library, str(reading.path), f"is not run: {reading.stands_in}", OTHER_CLIENT)
            for reading in self.readings
            if reading.stands_in
        ]
        parts = [part for part in (self.producer, self.consumer) if part is not None]
        other = [unclear for part in parts for unclear in part.unclear if unclear.rule == OTHER_CLIENT]
        return tuple(dict.fromkeys(run + other))

    @property
    def base(self) -> dict[str, Any]:
        """Returns every setting, as `scope.key` → value."""
        parts = (self.servers, self.producer, self.consumer)
        return {key: value for part in parts if part is not None for key, value in part.base.items()}

    @property
    def origins(self) -> dict[str, str]:
        """Returns where each setting comes from: `scope.key` → file and line."""
        parts = (self.servers, self.producer, self.consumer)
        return {key: origin for part in parts if part is not None for key, origin in part.origins.items()}

    @property
    def notes(self) -> list[str]:
        """Returns notes on what was left out or changed."""
        parts = (self.servers, self.producer, self.consumer)
        notes = [note for reading in self.readings for note in reading.notes]
        notes += [note for part in parts if part is not None for note in part.notes]
        if self.compacted:
            notes.append(
                "cleanup.policy=compact: the producer's cell is compacted, and its clients are librdkafka's, whatever the "
                "file's are; segments roll and are cleaned within seconds (segment.ms, min.cleanable.dirty.ratio), so that "
                "it happens at all; groups and transactions run on topics that are not compacted"
            )
        java = self.consumer is not None and self.consumer.base["group.client"] == "java"
        if self.consumer is not None and java and (why := why_no_java_member(self.consumer.base)):
            notes.append(f"the trials' members are librdkafka's, whatever the file's are: {why}")
        return list(dict.fromkeys(notes))

    def trial(
        self,
        base: dict[str, Any] | None = None,
        *,
        backend: str = "local",
        control: bool = True,
        steps: Sequence[Step] | None = None,
    ) -> Trial:
        """Returns the trial that these settings (or `base` in their place) make. `steps`: None = every fault that applies.
        BadInput if they contradict each other."""
        settings = _bounded(self.base if base is None else base, self.version)
        variant = variant_of(Translated(base=settings), self.version)
        document: dict[str, Any] = {
            "name": NAME,
            "title": "Your configuration, under every fault",
            "backend": backend,
            "variant": variant.model_dump(),
            "workloads": self._workloads(settings, control=control),
            "steps": [step.model_dump(exclude_none=True) for step in (self.every_step if steps is None else steps)],
        }
        if control:
            document["controls"] = [{"anomaly": "lost", "cells": {"producer.acks": "1", "workload": "log"}}]
        return parse_trial(document, source="the given configuration")

    def plan(
        self,
        base: dict[str, Any] | None = None,
        *,
        seed: int = 1,
        backend: str = "local",
        control: bool = True,
        steps: Sequence[Step] | None = None,
    ) -> Plan:
        """Returns the plan of that trial."""
        return make_plan(self.trial(base, backend=backend, control=control, steps=steps), seed=seed)

    @property
    def every_step(self) -> tuple[Step, ...]:
        """Returns the steps with every fault, one after the other, each healed; then a look whether it goes on."""
        blocks, closing = self.faults
        return tuple(step for block in (*blocks, closing) for step in block)

    @property
    def faults(self) -> tuple[tuple[tuple[Step, ...], ...], tuple[Step, ...]]:
        """Returns the steps in blocks: each fault with those that follow it until the next one; and the last steps alone."""
        return _blocks(_steps(self))

    def _workloads(self, settings: dict[str, Any], *, control: bool) -> list[dict[str, Any]]:
        topic = _scope(settings, "topic")
        producer = self._of_its_version(_scope(settings, "producer"), "producer")
        java = producer.get("producer.client") == "java"
        found = []
        if self.producer is not None and not self.transactional and self.compacted:
            found.append(_workload("compaction", topic | _librdkafka(producer) | HASTE))
        elif self.producer is not None and not self.transactional:
            found.append(_workload("verifiable" if java else "log", topic | producer))
        # Groups, transactions and the control are judged record by record, which compaction would take away.
        topic = topic | {"topic.cleanup_policy": "delete"}
        if self.transactional:
            mine = _librdkafka(producer) | _scope(settings, "transaction")
            limit = int(mine.get("transaction.transaction_timeout_ms", 60_000))
            mine["producer.delivery_timeout_ms"] = min(int(mine["producer.delivery_timeout_ms"]), limit)
            mine["producer.enable_idempotence"] = True
            mine["transaction.standby"] = True  # a step has every transactional.id taken over
            found.append(_workload(_TRANSACTION_CELL, topic | mine))
        if self.consumer is not None:
            mine = _librdkafka(producer) if producer and not self.transactional else SAFE_PRODUCER
            group = self._of_its_version(_scope(_as_members_can(settings), "group"), "group")
            found.append(_workload("group", topic | mine | _work(group) | group))
        if not found:  # topic and brokers alone: a producer that asks all of them for all they promise
            found.append(_workload("log", topic | SAFE_PRODUCER))
        if control:
            plain = {key: value for key, value in topic.items() if not key.startswith("topic.properties.")}
            found.append(_workload("log", plain | CONTROL))
        return found

    def _of_its_version(self, settings: dict[str, Any], scope: str) -> dict[str, Any]:
        """Returns the settings with the version of the client that was given, if a trial can run it."""
        client, version = settings.get(f"{scope}.client"), self.client_version
        if version is None or client is None or not re.fullmatch(r"\d+\.\d+\.\d+", version):
            return settings
        usual = self.version if client == "java" else librdkafka_version()
        old = client == "java" and version_numbers(version)[:2] < OLDEST_JAVA
        return settings if version == usual or old else settings | {f"{scope}.client_version": version}

    @property
    def compacted(self) -> bool:
        """Returns whether the topic is compacted: then records need keys, which only one workload gives them."""
        return bool(self.servers.base.get("topic.cleanup_policy") == "compact")

    @property
    def zookeeper(self) -> bool:
        """Returns whether ZooKeeper keeps the cluster's metadata."""
        return variant_of(self.servers, self.version).metadata_mode == "zookeeper"

    @property
    def transactional(self) -> bool:
        """Returns whether the producer has a transactional.id."""
        return self.producer is not None and "transactional.id" in self.producer.origins


def _bounded(settings: dict[str, Any], version: str) -> dict[str, Any]:
    """Returns the settings with no more in-sync replicas than brokers ask for: from 3.7 on never more than there are
    [KAFKA-15583]. BadInput for brokers before that, which take no write at all."""
    copies, minimum = settings["topic.replication_factor"], settings["topic.min_insync_replicas"]
    if minimum > copies and (parse_version(version) or MIN_ISR_BOUNDED)[:2] < MIN_ISR_BOUNDED:
        raise BadInput(
            f"min.insync.replicas={minimum} exceeds replication.factor={copies}: brokers of {version} refuse every write "
            f"with acks=all (before 3.7, KAFKA-15583), so there is nothing to predict. Set replication.factor={minimum + 1}."
        )
    return settings | {"topic.min_insync_replicas": min(minimum, copies)}


def _scope(settings: dict[str, Any], scope: str) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key.startswith(f"{scope}.")}


def _librdkafka(producer: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings for workloads whose producers are always librdkafka's: the settings that both clients share."""
    if producer.get("producer.client", "librdkafka") == "librdkafka":
        return dict(producer)
    javas = ("producer.properties.", "producer.client_version")
    plain = {key: value for key, value in producer.items() if not key.startswith(javas)}
    return plain | {"producer.client": "librdkafka"}


def _as_members_can(settings: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings with librdkafka's members where Kafka's own program cannot be such a member: it commits in two
    ways, and ends where there is no position. What commits by itself stays Java's: there the two clients differ."""
    if settings["group.client"] != "java" or why_no_java_member(settings) is None:
        return settings
    javas = ("group.properties.", "group.client_version")
    plain = {key: value for key, value in settings.items() if not key.startswith(javas)}
    return plain | {"group.client": "librdkafka"}


def why_no_java_member(settings: Mapping[str, Any]) -> str | None:
    """Returns why a trial runs librdkafka's members in the place of Java's, as a clause; None if it runs Java's."""
    if settings["group.auto_offset_reset"] == "error":
        return "Kafka's VerifiableConsumer ends where there is no position (NoOffsetForPartitionException)"
    commit = settings["group.commit"]
    return None if commit in JAVA_COMMITS else f"Kafka's VerifiableConsumer does not commit as you say, {commit}"


def _work(group: dict[str, Any]) -> dict[str, Any]:
    """Returns what members do for each record, where their client can be known.

    Without work no member ever dies while it processes a record. They poll well within max.poll.interval.ms."""
    if group.get("group.client", "librdkafka") != "librdkafka":
        return {}
    longest = int(group.get("group.max_poll_interval_ms", 300_000)) // (2 * RECORD_MS)
    return {"group.processing_ms": RECORD_MS, "group.batch": max(1, min(BATCH, longest))}


def _workload(kind: str, base: dict[str, Any]) -> dict[str, Any]:
    return {"kind": kind, "topics": {"partitions": PARTITIONS}, "traffic": {"rate_hz": RATE_HZ}, "base": base}


def _blocks(steps: Sequence[Step]) -> tuple[tuple[tuple[Step, ...], ...], tuple[Step, ...]]:
    """Each deed with what follows it up to the next; the last step, which only looks, alone."""
    *deeds, closing = steps
    blocks: list[list[Step]] = []
    for step in deeds:
        if isinstance(step.do, FaultAction | TakeOver) or not blocks:
            blocks.append([])
        blocks[-1].append(step)
    return tuple(map(tuple, blocks)), (closing,)


def _steps(parts: ConfigurationParts) -> list[Step]:
    """The steps of the trial with every fault; those about groups only where there is one, those about transactions too."""
    has_group, has_transactions = parts.consumer is not None, parts.transactional
    kept = []
    for step in load_trial(FAULTS_OF).steps:
        text = step.model_dump_json()
        if ("member(" in text and not has_group) or ('"take_over"' in text and not has_transactions):
            continue
        kept.append(_of_zookeeper(step) if parts.zookeeper else step)
    return kept


def _of_zookeeper(step: Step) -> Step:
    """Returns the step for a cluster without controllers of its own: where a broker is cut off from those, it is cut off from
    ZooKeeper, which keeps the metadata there."""
    do = step.do
    if not isinstance(do, FaultAction) or do.parameters.get("others") != "controllers":
        return step
    parameters = {**do.parameters, "others": "zookeepers"}
    renamed = step.name.replace("the controller alone", "ZooKeeper alone")
    return step.model_copy(update={"name": renamed, "do": do.model_copy(update={"parameters": parameters})})


# Which versions a configuration is for: one that was never published is refused, and of one whose properties nobody
# knows nothing is promised.


Ask = Callable[[str], None]
"""Is there such a version of Kafka? BadInput: the repository has none; MissingTool: nobody could be asked."""


def doubts_of_kafka(version: str, origin: str, ask: Ask) -> Iterator[Unclear]:
    """Yields doubts about the version of the brokers, or of Kafka's Java clients. `origin`: who says the version; "" =
    nobody, it is prozess's own choice or what a running cluster reported, and it is there. BadInput for a version that was
    never published."""
    if version in versions():
        return
    if origin:
        try:
            ask(version)
        except BadInput as error:
            raise BadInput(f"{origin}: {error}") from error
        except MissingTool as error:
            why = f"{version} may not exist: no repository could be asked ({error})"
            yield Unclear("the version of Kafka", origin, why)
            return
    if alike(version) is None:
        known = f"{versions()[0]} to {versions()[-1]}"
        why = f"{version} has properties that prozess does not know: it knows those of {known}"
        yield Unclear("the version of Kafka", origin or "the cluster", why)


def doubts_of_client(
    client: Client, client_version: str | None, version: str, ask: Ask, *, runs: bool = True
) -> Iterator[Unclear]:
    """Yields doubts about `--client-version`. `version`: of the brokers. `runs`: trials run this client, of this version;
    else they run librdkafka. BadInput for one that was never published."""
    if client_version is None:
        return
    origin = "--client-version"
    if client == "librdkafka":
        if client_version != librdkafka_version():
            why = (
                f"is {client_version}: prozess knows the properties and the defects of {librdkafka_version()} alone; the "
                f"trials run {client_version}"
            )
            if fixes := later_fixes_note(client_version):
                why += f". Its CHANGELOG names defects that later releases fixed: {fixes}; see docs/versions.md"
            yield Unclear("librdkafka", origin, why, OTHER_CLIENT)
        return
    yield from doubts_of_kafka(client_version, origin, ask)
    if client_version != version and not runs:
        why = f"is {client_version}: the trials of such a configuration run librdkafka"
        yield Unclear("Kafka's Java client", origin, why, OTHER_CLIENT)


OTHER_CLIENT = "other-client"
"""The name by which a person may accept that another client is run than their own."""
