"""A member of a share group: Kafka's own KafkaShareConsumer in this process (KIP-932).

The application in small: a poll, the processing of what it gave, and an acknowledgement of each record, which is answered
while later polls go on. There is no loop of Java's to vectorise: each record is an object of Java's, and is asked for its
offset, delivery count, key and value one by one.
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib import import_module
from types import ModuleType

from prozess.harness.clock import NS_PER_S
from prozess.harness.config.configuration import ShareConfiguration, version_numbers
from prozess.harness.plan.cell_work import ShareWork, work_as
from prozess.harness.plan.validity import GROUP_LIMITS_SINCE
from prozess.harness.recording.rows import RowWriter
from prozess.harness.schema import NONE, OBSERVATIONS, ObservationKind
from prozess.workloads import messages
from prozess.workloads.client import Client, FatalClient
from prozess.workloads.java import (
    JAVA_FOR_A_BROKEN_CLUSTER,
    REQUEST_MS,
    JavaObject,
    JavaOptions,
    JavaThrowable,
    java_list,
    java_machine,
    java_options,
    java_properties,
)
from prozess.workloads.record.members import in_order
from prozess.workloads.settings import LaunchContext, Property, RoleOptions, Settings, options_of
from prozess.workloads.share.dead_letters import SET_LIMIT_S, DeadLetters
from prozess.workloads.share.deliveries import ACCEPT, REJECT, RELEASE, DeliveryRows, Given

POLL_MS = 100
WAIT_S = 0.05
CLOSE_LIMIT_S = 10
LOOK_EVERY_NS = NS_PER_S // 2
"""How often a member asks for the group's start offsets at most."""
REPORT_NS = 100_000_000
RENEW = 4
_NAMES = {ACCEPT: "ACCEPT", RELEASE: "RELEASE", REJECT: "REJECT", RENEW: "RENEW"}
_ENDS = (
    "IllegalStateException",
    "UnsupportedVersionException",
    "GroupAuthorizationException",
    "InvalidConfigurationException",
)
"""Exceptions of a poll after which no other can succeed. [KafkaShareConsumer.poll]"""


class ShareOptions(RoleOptions):
    """Describes how a member acknowledges, and what its group is set to."""

    java: JavaOptions
    group: int
    """The number of the group: its cell."""
    group_id: str
    topic: str
    dead_letter_replicas: int
    settings: dict[str, str]
    """Properties of the group, as brokers spell them."""
    explicit: bool
    release_share: float
    reject_share: float
    renew_share: float
    processing_ms: float
    batch: int
    seed: str


class ShareMember:
    """A member of a share group (role `share-member`). Commands: stall, drain, stop."""

    def __init__(self, client: Client) -> None:
        spec, options = client.spec, options_of(client.spec, ShareOptions)
        self._client, self._now_ns, self._options = client, client.now_ns, options
        self._jpype = java_machine(options.java.library, options.java.jars)
        self._dense = {(topic, number): dense for dense, topic, number in spec.partitions}
        self._rows = DeliveryRows(client.rows, spec.client, options.group)
        self._random = random.Random(options.seed)
        self._stopped, self._draining, self._report_ns, self._stalled_until_ns = False, False, 0, 0
        self._renewing: dict[tuple[int, int], int] = {}
        """Renewals without an answer: record → when it was sent."""
        self._renewed: set[tuple[int, int]] = set()
        """Records whose lock was renewed: the next poll gives them again. [KIP-1222]"""
        self._held: list[tuple[int, int]] = []
        """Implicit acknowledgement: what the last poll gave, and the next one accepts."""
        self._seen: dict[str, int] = {}
        self._group = ShareGroup(client, self._jpype, options)
        self._duration = self._jpype.JClass("java.time.Duration")
        self._types = self._jpype.JClass("org.apache.kafka.clients.consumer.AcknowledgeType")
        self._consumer = self._new_consumer()
        self._absent_ns = self._now_ns()

    def run(self) -> None:
        """Sets the group, joins it, works until `stop`, and then leaves it in order."""
        self._group.set()
        self._consumer.subscribe(java_list(self._jpype, [self._options.topic]))
        while not self._stopped:
            self._between()
            if self._now_ns() < self._stalled_until_ns:
                self._between(wait_s=WAIT_S)
            else:
                self._turn()
        self._consumer.close(self._duration.ofSeconds(CLOSE_LIMIT_S))
        self._group.read_dead_letters()
        self._group.close()

    def issued(self) -> int:
        """Returns how many records were given."""
        return self._rows.count

    def close(self) -> None:
        """Writes every table to its end."""
        self._rows.close()
        self._group.rows.close()

    def _new_consumer(self) -> JavaObject:
        java = self._jpype.JClass
        deserializer = java("org.apache.kafka.common.serialization.ByteArrayDeserializer")
        consumer = java("org.apache.kafka.clients.consumer.KafkaShareConsumer")(
            java_properties(self._jpype, self._options.java.properties), deserializer(), deserializer()
        )
        interface = "org.apache.kafka.clients.consumer.AcknowledgementCommitCallback"
        # It is called by this thread, within a poll or `close`. [KafkaShareConsumer.setAcknowledgementCommitCallback]
        answers = self._jpype.JProxy(interface, dict={"onComplete": self._answered})
        consumer.setAcknowledgementCommitCallback(answers)
        return consumer

    def _turn(self) -> None:
        """Polls once, processes what it gives, and acknowledges it."""
        begun_ns = self._now_ns()
        if self._held:
            self._rows.acknowledged(self._held, [ACCEPT] * len(self._held), begun_ns)
            self._held = []
        try:
            records = self._consumer.poll(self._duration.ofMillis(POLL_MS))
        except self._jpype.JException as error:
            self._failed(error)
            return
        if records.isEmpty():
            self._absent_ns = begun_ns
            return
        acquired_ns = self._now_ns()
        given, again, java = self._taken(records)
        self._rows.given(given, absent_ns=self._absent_ns, acquired_ns=acquired_ns)
        # A poll ends with fewer only where nothing more had come. [ShareFetchCollector.collect]
        if len(given.offset) + len(again) < self._options.batch:
            self._absent_ns = begun_ns
        if not self._options.explicit:
            self._process(len(given.offset))
            self._held = given.records
            return
        copies = Counter([*given.records, *again])
        decided = {record: self._decision(copies[record]) for record in given.records}
        if renewing := [record for record, kind in decided.items() if kind == RENEW]:
            now_ns = self._now_ns()
            self._renewing |= dict.fromkeys(renewing, now_ns)
            self._acknowledge(java, dict.fromkeys(renewing, RENEW))
        final = dict.fromkeys(again, ACCEPT) | {record: kind for record, kind in decided.items() if kind != RENEW}
        self._process(len(final))
        self._rows.acknowledged(list(final), list(final.values()), self._now_ns())
        for part in commits_of(final, copies):
            self._acknowledge(java, part)

    def _decision(self, copies: int) -> int:
        """Draws what becomes of a record. One that a poll gave more than once is not renewed: its first lock has ended."""
        drawn = self._random.random()
        for share, kind in (
            (self._options.release_share, RELEASE),
            (self._options.reject_share, REJECT),
            (self._options.renew_share, RENEW),
        ):
            if drawn < share:
                return ACCEPT if kind == RENEW and copies > 1 else kind
            drawn -= share
        return ACCEPT

    def _taken(self, records: JavaObject) -> tuple[Given, list[tuple[int, int]], dict[tuple[int, int], JavaObject]]:
        """Returns what a poll gave, which records it only gave back because their locks were renewed, and Java's own records.

        A poll gives a record twice if its lock ended while the member stood still and the member acquired it again: each
        copy is in a batch of its own. [ShareFetch.records, 4.4.0]
        """
        given, again, java = Given(), [], {}
        for partition in records.partitions():
            dense = self._dense[str(partition.topic()), int(partition.partition())]
            for record in records.records(partition):
                offset = int(record.offset())
                java[dense, offset] = record
                if (dense, offset) in self._renewed:
                    self._renewed.discard((dense, offset))
                    again.append((dense, offset))
                    continue
                count, key, value = record.deliveryCount(), record.key(), record.value()
                given.add(
                    dense,
                    offset,
                    int(count.get()) if count.isPresent() else NONE,
                    None if key is None else bytes(key),
                    None if value is None else bytes(value),
                )
        return given, again, java

    def _acknowledge(self, java: Mapping[tuple[int, int], JavaObject], kinds: Mapping[tuple[int, int], int]) -> None:
        for record, kind in kinds.items():
            self._consumer.acknowledge(java[record], getattr(self._types, _NAMES[kind]))
        self._consumer.commitAsync()

    def _answered(self, offsets: JavaObject, error: JavaObject) -> None:
        """Takes the answer to acknowledgements: Java calls it, partition by partition."""
        now_ns = self._now_ns()
        code = 0 if error is None else code_of(error)
        if error is not None:
            self._noted(error, "an acknowledgement was refused")
        for entry in offsets.entrySet():
            partition = entry.getKey()
            dense = self._dense[str(partition.topic()), int(partition.partition())]
            answered = [(dense, int(offset)) for offset in entry.getValue()]
            renewals = {record: self._renewing.pop(record) for record in answered if record in self._renewing}
            if code == 0:
                self._rows.renewed(renewals)
                self._renewed |= renewals.keys()
            self._rows.answered([record for record in answered if record not in renewals], code, now_ns)

    def _process(self, count: int) -> None:
        until_ns = self._now_ns() + int(count * self._options.processing_ms * 1e6)
        while not self._stopped and (left_ns := until_ns - self._now_ns()) > 0:
            self._between(wait_s=min(WAIT_S, left_ns / 1e9))

    def _failed(self, error: JavaThrowable) -> None:
        """Takes an exception of a poll: FatalClient if no other poll can succeed."""
        self._noted(error, "poll")
        if str(error.getClass().getSimpleName()) in _ENDS:
            raise FatalClient(f"{error.getClass().getSimpleName()}: {error.getMessage()}")
        self._between(wait_s=WAIT_S)

    def _noted(self, error: JavaThrowable, what: str) -> None:
        """Logs an exception of Java's, each kind once a second at most."""
        name, now_ns = str(error.getClass().getSimpleName()), self._now_ns()
        if now_ns - self._seen.get(name, now_ns - NS_PER_S) >= NS_PER_S:
            self._seen[name] = now_ns
            self._client.log(f"{what}: {name} {error.getMessage()}")

    def _between(self, *, wait_s: float = 0.0) -> None:
        """Beats, obeys commands, and asks how far the group is. Called between two polls."""
        now_ns = self._now_ns()
        self._client.heartbeat(now_ns)
        self._group.turn()
        control = self._client.control
        for order in control.until(timeout_s=wait_s) if wait_s else control.commands():
            self._obey(order)
        if self._draining and now_ns >= self._report_ns:
            self._report_ns = now_ns + REPORT_NS
            control.send(messages.DrainingEvent(at=self._group.at(), processed=self._rows.count))

    def _obey(self, order: messages.Order) -> None:
        match order.command:
            case messages.DrainCommand(quiet_s=quiet_s):
                self._draining = True
                self._group.drain(int(quiet_s * 1000))
            case messages.StopCommand():
                self._stopped = True
            case messages.StallCommand(seconds=seconds):
                self._stalled_until_ns = self._now_ns() + int(seconds * NS_PER_S)
            case unknown:
                raise AssertionError(unknown)
        self._client.control.send(messages.DoneEvent(number=order.number))


def commits_of(
    kinds: Mapping[tuple[int, int], int], copies: Mapping[tuple[int, int], int]
) -> Iterator[dict[tuple[int, int], int]]:
    """Yields what to acknowledge before each commit, so that every copy of each record is. `copies`: how often a poll gave
    it.

    Source: ShareFetch.acknowledge (4.4.0) takes the first batch that has the offset, and a commit takes it out of that one.

    Example: records 4 and 5 are accepted, and 5 was given twice: {4, 5}, and then {5}.
    """
    for number in range(max((copies[record] for record in kinds), default=0)):
        yield {record: kind for record, kind in kinds.items() if copies[record] > number}


class ShareGroup:
    """The share group as its coordinator has it: its settings, and how far it is in each partition."""

    def __init__(self, client: Client, jpype: ModuleType, options: ShareOptions) -> None:
        self._client, self._jpype, self._options = client, jpype, options
        self.rows = RowWriter(client.rows, OBSERVATIONS, client.spec.client)
        servers: dict[str, Property] = {
            "bootstrap.servers": client.spec.bootstrap_servers,
            "client.id": client.spec.name,
        }
        own: dict[str, Property] = {"default.api.timeout.ms": 2 * REQUEST_MS}
        self._admin = jpype.JClass("org.apache.kafka.clients.admin.Admin").create(
            java_properties(jpype, _BACKOFFS | servers | own)
        )
        self._dead_letters = (
            DeadLetters(client, jpype, _BACKOFFS | servers, options.topic, self._observed)
            if options.dead_letter_replicas
            else None
        )
        java = jpype.JClass
        self._partitions = {
            java("org.apache.kafka.common.TopicPartition")(topic, number): dense
            for dense, topic, number in client.spec.partitions
        }
        spec = java("org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec")()
        spec.topicPartitions(java_list(jpype, self._partitions))
        self._specs = java("java.util.Collections").singletonMap(options.group_id, spec)
        self._asked: JavaObject = None
        self._again_ns = 0
        self._start: dict[int, int] = {}
        self._lag: dict[int, int] = {}

    def set(self) -> None:
        """Sets the group as the trial says, before anybody joins it. Every member does so, with the same values. FatalClient
        if the brokers refuse, or do not answer in time."""
        settings = self._options.settings
        if self._dead_letters is not None:
            self._dead_letters.make(self._admin, self._options.dead_letter_replicas)
            settings = settings | self._dead_letters.settings
        java = self._jpype.JClass
        resource = java("org.apache.kafka.common.config.ConfigResource")
        operation, entry = (
            java("org.apache.kafka.clients.admin.AlterConfigOp"),
            java("org.apache.kafka.clients.admin.ConfigEntry"),
        )
        group = resource(resource.Type.GROUP, self._options.group_id)
        wanted = [operation(entry(k, v), operation.OpType.SET) for k, v in settings.items()]
        changes = java("java.util.Collections").singletonMap(group, java_list(self._jpype, wanted))
        unit = java("java.util.concurrent.TimeUnit").SECONDS
        try:
            self._admin.incrementalAlterConfigs(changes).all().get(SET_LIMIT_S, unit)
        except self._jpype.JException as error:
            raise FatalClient(
                f"the share group {self._options.group_id} could not be set: {error.toString()}"
            ) from None

    def turn(self) -> None:
        """Takes the answer that is there, and asks again from time to time. Never waits."""
        now_ns = self._client.now_ns()
        if self._asked is not None and self._asked.isDone():
            asked, self._asked = self._asked, None
            self._take(asked, now_ns)
        if self._asked is None and now_ns >= self._again_ns:
            self._again_ns = now_ns + LOOK_EVERY_NS
            self._asked = self._admin.listShareGroupOffsets(self._specs).partitionsToOffsetInfo(self._options.group_id)

    def drain(self, quiet_ms: int) -> None:
        """Notes that the group is to finish, and forgets how much there was left: what is asked from now on says it."""
        self._asked = None
        self._lag.clear()
        for dense in self._partitions.values():
            self._observed(ObservationKind.DRAIN_BEGUN, dense, quiet_ms, self._client.now_ns())

    def at(self) -> dict[int, tuple[int, bool]]:
        """Returns, for each partition of which it is known, (start offset, whether nothing is left)."""
        return {dense: (self._start[dense], lag == 0) for dense, lag in self._lag.items()}

    def read_dead_letters(self) -> None:
        """Reads the dead-letter queue, if the group has one."""
        if self._dead_letters is not None:
            self._dead_letters.read()

    def close(self) -> None:
        """Ends the connections of the administration."""
        self._admin.close(self._jpype.JClass("java.time.Duration").ZERO)

    def _take(self, asked: JavaObject, now_ns: int) -> None:
        try:
            answer = asked.get()
        except self._jpype.JException:
            return  # it is asked again
        for partition, dense in self._partitions.items():
            info = answer.get(partition)
            start = NONE if info is None else int(info.startOffset())
            lag = int(info.lag().get()) if info is not None and info.lag().isPresent() else NONE
            if start != self._start.get(dense, NONE):
                self._observed(ObservationKind.SHARE_START, dense, start, now_ns)
            if lag != self._lag.get(dense, NONE):
                self._observed(ObservationKind.SHARE_LAG, dense, lag, now_ns)
            self._start[dense], self._lag[dense] = start, lag

    def _observed(self, kind: ObservationKind, dense: int, value: int, now_ns: int) -> None:
        values: dict[str, int] = {"time_ns": now_ns, "value": value, "partition": dense, "kind": kind}
        self.rows.append(*in_order(OBSERVATIONS, values))


def code_of(error: JavaThrowable) -> int:
    """Returns the code that Kafka's protocol has for an exception; UNKNOWN_SERVER_ERROR, -1, if it has none."""
    errors = import_module("jpype").JClass("org.apache.kafka.common.protocol.Errors")
    return int(errors.forException(error).code())


# How members are launched.

_BACKOFFS: dict[str, Property] = {**JAVA_FOR_A_BROKEN_CLUSTER, "retry.backoff.max.ms": 300}


def launch_share_member(context: LaunchContext) -> Settings:
    """Makes the settings of a client with the role `share-member`."""
    planned, share = context.planned, work_as(ShareWork, context.planned.work).configuration
    assert planned.cell is not None, planned
    assert planned.group_id is not None, planned
    properties: dict[str, Property] = {
        **_BACKOFFS,
        "default.api.timeout.ms": REQUEST_MS,
        "bootstrap.servers": context.servers,
        "client.id": planned.name,
        "group.id": planned.group_id,
        "share.acknowledgement.mode": share.acknowledgement,
        "max.poll.records": share.batch,
        **share.properties,
    }
    options = ShareOptions(
        java=java_options(context, properties, wanted_by="a share group"),
        group=planned.cell,
        group_id=planned.group_id,
        topic=context.plan.cells[planned.cell].topic_name,
        dead_letter_replicas=share.dead_letter_replicas,
        settings=group_settings(share, context.plan.java_version(planned)),
        explicit=share.acknowledgement == "explicit",
        release_share=share.release_share,
        reject_share=share.reject_share,
        renew_share=share.renew_share,
        processing_ms=share.processing_ms,
        batch=share.batch,
        seed=f"{context.plan.seed}-{planned.name}",
    )
    return Settings({}, options)


def group_settings(share: ShareConfiguration, version: str) -> dict[str, str]:
    """Returns the properties of the group itself, which are on the brokers. Before 4.3 a group has no limit of its own."""
    limit = {"share.delivery.count.limit": str(share.delivery_count_limit)}
    return {
        "share.auto.offset.reset": share.auto_offset_reset,
        "share.isolation.level": share.isolation_level,
        "share.record.lock.duration.ms": str(share.lock_duration_ms),
        "share.session.timeout.ms": str(share.session_timeout_ms),
        **(limit if version_numbers(version) >= GROUP_LIMITS_SINCE else {}),
    }
