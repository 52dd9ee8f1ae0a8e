"""This module says how clients are configured: librdkafka's properties, and what else a client is launched with. Pure.

The back-offs are lowered for a cluster that is being broken: with the defaults (reconnect.backoff.max.ms 10 s,
topic.metadata.refresh.interval.ms 5 min) the time to recover would be the client's and not the cluster's. They shape what is
measured, so they are here in one place, for the report to state. A configuration's own `properties` win over all.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

from prozess.harness.config.configuration import Error, IsolationLevel, ProducerConfiguration, version_numbers
from prozess.harness.config.library_defaults import PROPERTY_OF
from prozess.harness.errors import BadInput
from prozess.harness.interfaces import ClientSpec
from prozess.harness.plan.catalogue import RECORDED
from prozess.harness.plan.cell_work import ApplicationWork, CompactionWork, ErrorsWork, RecordedWork, work_as
from prozess.harness.plan.plan import Plan, PlannedClient
from prozess.workloads.librdkafka import BACKOFF_KEY, BACKOFF_MS, LIMIT_KEY, backoff_limit_ms
from prozess.workloads.record.identity import CopyRules

Property = str | int | float | bool
FOREIGN = frozenset({"verifiable", "verifiable-share"})
"""Kinds of workload whose records carry the identity of Kafka's verifiable clients, and not ours."""
_RETRY_KEYS = ("message.send.max.retries", "retries")


class JavaInstallation(Protocol):
    """A Java installation, as found on this machine."""

    @property
    def executable(self) -> Path: ...


class ClockSupport(Protocol):
    """A library that moves the clock of a process; `path` is None if there is none here."""

    @property
    def path(self) -> Path | None: ...


class ClientClocks(Protocol):
    """Moves the wall clocks of clients, each by a file (`prozess.clusters.disks.shim`)."""

    def client_shim(self) -> ClockSupport:
        """Returns what a process is started with whose clock is to be moved. Without a path nothing can move it here."""
        ...

    def environment(self, shim: Path, *, clock: Path | None = None) -> Mapping[str, str]:
        """Returns the environment of such a process. `clock`: its file."""
        ...

    def set_clock(self, path: Path, *, offset_ns: int, drift_ppm: int, since_ns: int) -> None:
        """Sets the clock of every process that has this file, at once. The file is made if need be."""
        ...

    def get_clock(self, path: Path, *, now_ns: int) -> int:
        """Returns by how many nanoseconds the clock is off now. `now_ns`: monotonic."""
        ...

    def clock_is(self, path: Path) -> tuple[int, int]:
        """Returns the (offset in nanoseconds, drift in ppm) that were asked for."""
        ...


@dataclass(frozen=True, slots=True)
class Toolbox:
    """Describes what clients need of the machine they run on, and no workload finds by itself. Each is looked for when
    a client needs it, and no earlier: MissingTool then, if it is not there."""

    java: Callable[[], JavaInstallation]
    jars: Callable[[str], Sequence[Path]]
    """Returns the jars of a version of Kafka. They are fetched if need be."""
    librdkafka: Callable[[str], Path]
    """Returns the directory that has confluent_kafka with librdkafka of a version. It is fetched if need be."""
    metrics_agent: Callable[[], Path | None]
    """Returns the agent that reads a JVM's metrics, if it is in the cache."""
    clocks: ClientClocks


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """Describes what the settings of a client are made from."""

    plan: Plan
    planned: PlannedClient
    servers: str
    limit_s: float
    """How long the client's work may take, if it is limited; else 0."""
    toolbox: Toolbox


class RoleOptions(BaseModel):
    """Describes what only the clients of one role need. It is made from the plan, and read once in the client's
    process."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Options = TypeVar("Options", bound=RoleOptions)


def options_of(spec: ClientSpec, model: type[Options]) -> Options:
    """Returns the options of a client as its role has them."""
    return model.model_validate(spec.options)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one client: librdkafka's properties, and what only its role needs."""

    properties: dict[str, Property]
    options: RoleOptions = field(default_factory=RoleOptions)


FOR_A_BROKEN_CLUSTER: dict[str, Property] = {
    "socket.timeout.ms": 10_000,
    "socket.connection.setup.timeout.ms": 3_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 300,
    "topic.metadata.refresh.interval.ms": 1_000,
    "topic.metadata.refresh.fast.interval.ms": 100,
    BACKOFF_KEY: BACKOFF_MS,
    LIMIT_KEY: 200,  # of consumers; producers' is `prozess.workloads.librdkafka`
    "log_level": 2,  # what it says before an assertion of its own ends the process
    "log.connection.close": False,
}
QUIET = {key: FOR_A_BROKEN_CLUSTER[key] for key in ("log_level", "log.connection.close")}
"""What even a client that the trial sets nothing on is reported: what it logs."""
_QUEUE_MESSAGES_MAX = 10_000_000


def launch_producer(context: LaunchContext) -> Settings:
    """Makes the settings of a client with the role `producer`."""
    planned = context.planned
    assert planned.producer is not None, planned
    return Settings(
        producer_properties(
            planned.producer,
            bootstrap_servers=context.servers,
            client_name=planned.name,
            partitions=len(planned.partitions),
            unacknowledged_max=planned.traffic.unacknowledged_max,
        )
    )


class KeyedOptions(RoleOptions):
    """Describes what a keyed producer draws, and from which seed."""

    seed: str
    keys: int
    tombstone_share: float


def launch_keyed_producer(context: LaunchContext) -> Settings:
    """Makes the settings of a client with the role `keyed-producer`: a producer's properties. Keys and tombstones are
    drawn by the trial's seed."""
    compaction = work_as(CompactionWork, context.planned.work).configuration
    options = KeyedOptions(
        seed=f"{context.plan.seed} {context.planned.name}",
        keys=compaction.keys,
        tombstone_share=compaction.tombstone_share,
    )
    return Settings(launch_producer(context).properties, options)


class ErrorsOptions(RoleOptions):
    """The name of the error that is provoked, and with every how many turns."""

    error: Error
    every: int


def launch_errors_producer(context: LaunchContext) -> Settings:
    """Makes the settings of a client with the role `errors-producer`: a producer's properties, and the errors that it
    provokes."""
    provocation = work_as(ErrorsWork, context.planned.work).configuration
    options = ErrorsOptions(error=provocation.error, every=provocation.every)
    return Settings(launch_producer(context).properties, options)


class ReaderOptions(RoleOptions):
    """Says how a reader finds out who sent a record."""

    foreign: tuple[int, ...] = ()
    """Partitions whose records carry the identity of Kafka's verifiable clients."""
    senders: tuple[int, ...] | None = None
    """The clients whose records these are, if others may write there, too."""
    copies: CopyRules = CopyRules()


def launch_reader(context: LaunchContext) -> Settings:
    """Makes the settings of a client with the role `reader` or `audit`."""
    planned = context.planned
    assert planned.isolation_level is not None, planned
    cells = context.plan.cells
    foreign = [p for p in planned.partitions if cells[context.plan.partitions[p].cell].workload in FOREIGN]
    commands = [client for client in context.plan.clients if client.role == "recorded-command"]
    common = sorted(set(planned.partitions) & {p for client in commands for p in client.partitions})
    return Settings(
        reader_properties(planned.isolation_level, bootstrap_servers=context.servers, client_name=planned.name),
        ReaderOptions(
            foreign=tuple(common or foreign),
            senders=tuple(client.client for client in commands) if common else None,
            copies=copy_rules(context),
        ),
    )


def copy_rules(context: LaunchContext) -> CopyRules:
    """Returns where the identity is in the cells that have a derived topic, or text in the written one."""
    rules: dict[str, list[int]] = {}
    token = next((cell.work.token for cell in context.plan.cells if isinstance(cell.work, RecordedWork)), "")
    mine = set(context.planned.partitions)
    for cell in context.plan.cells:
        source, copy = cell.carriers
        if (source == "value" and not cell.derived) or mine.isdisjoint(cell.partitions):
            continue
        ours = not isinstance(cell.work, ApplicationWork) and copy == "value"
        for name, partitions in (
            ("by_header", cell.written if source == "header" else ()),
            ("by_header", cell.derived if copy == "header" else ()),
            ("transformed" if ours else "handed_on", cell.derived),
            ("digested", cell.partitions if copy == "content" else ()),
            ("shared", cell.partitions if cell.workload == RECORDED else ()),
        ):
            rules.setdefault(name, []).extend(p for p in partitions if p in mine)
    return CopyRules(**{name: tuple(partitions) for name, partitions in rules.items()}, token=token)


def launch_sentinel(context: LaunchContext) -> Settings:
    """Makes the settings of a client with the role `sentinel`."""
    return Settings(
        sentinel_properties(
            bootstrap_servers=context.servers, client_name=context.planned.name, timeout_s=context.limit_s
        )
    )


def producer_properties(
    configuration: ProducerConfiguration,
    *,
    bootstrap_servers: str,
    client_name: str,
    partitions: int,
    unacknowledged_max: int,
) -> dict[str, Property]:
    """Returns the properties of a librdkafka producer with this configuration. Its queue holds the unacknowledged
    records of all its partitions, so that the cap of each, and not the queue, is what holds back; the longest wait
    between retries follows from the time that a record lives (`prozess.workloads.librdkafka`). BadInput if the
    configuration is for another client."""
    if configuration.client != "librdkafka":
        raise BadInput(
            f"producer.client={configuration.client!r} is not a client that runs here yet, only librdkafka is. "
            'Set it to "librdkafka".'
        )
    identity: dict[str, Property] = {"bootstrap.servers": bootstrap_servers, "client.id": client_name}
    named: dict[str, Property] = {
        "acks": configuration.acks,
        "enable.idempotence": configuration.enable_idempotence,
        "message.send.max.retries": configuration.retries_most,
        "max.in.flight.requests.per.connection": configuration.max_in_flight,
        "delivery.timeout.ms": configuration.delivery_timeout_ms,
        "compression.type": configuration.compression_type,
        "linger.ms": configuration.linger_ms,
    }
    if configuration.defaults == "library":
        kept = {key: value for key, value in named.items() if key not in left_properties(configuration)}
        return identity | QUIET | kept | configuration.properties
    properties: dict[str, Property] = {
        **known_to(configuration.client_version, FOR_A_BROKEN_CLUSTER),
        **identity,
        **named,
        "queue.buffering.max.messages": min(_QUEUE_MESSAGES_MAX, max(100_000, 2 * partitions * unacknowledged_max)),
        **configuration.properties,
    }
    limit = {LIMIT_KEY: configuration.properties.get(LIMIT_KEY, backoff_limit_ms(properties))}
    return properties | known_to(configuration.client_version, limit)


def left_properties(configuration: ProducerConfiguration) -> frozenset[str]:
    """Returns the properties that are not written, since the trial left them to the client's own library."""
    names = {PROPERTY_OF[name] for name in configuration.left_to_client}
    return frozenset(names | {"message.send.max.retries"} if "retries" in names else names)


def known_to(version: str | None, properties: Mapping[str, Property]) -> dict[str, Property]:
    """Returns those of the properties that prozess itself adds which librdkafka of this version has. None: the one that
    prozess runs with. What a trial names is not asked for here: librdkafka refuses what it does not know."""
    if version is None:
        return dict(properties)
    numbers = version_numbers(version)
    return {key: value for key, value in properties.items() if numbers >= _SINCE.get(key, (0,))}


_SINCE: Mapping[str, tuple[int, ...]] = {
    LIMIT_KEY: (2, 3, 0),
    "fetch.queue.backoff.ms": (2, 2, 0),
    "group.protocol": (2, 4, 0),
}
"""Property → the first version of librdkafka that has it. [librdkafka CHANGELOG: KIP-580; fetch.queue.backoff.ms; KIP-848]"""


def sentinel_properties(*, bootstrap_servers: str, client_name: str, timeout_s: float) -> dict[str, Property]:
    """Returns the properties of the audit's own writer: acks=all, retrying to its limit."""
    configuration = ProducerConfiguration(acks="all", linger_ms=0, delivery_timeout_ms=max(1, int(timeout_s * 1000)))
    return producer_properties(
        configuration, bootstrap_servers=bootstrap_servers, client_name=client_name, partitions=1, unacknowledged_max=1
    )


def reader_properties(
    isolation_level: IsolationLevel, *, bootstrap_servers: str, client_name: str
) -> dict[str, Property]:
    """Returns the properties of a reader by assignment. `auto.offset.reset=error` hands every reset (out of range,
    truncation by KIP-320) to us: we go back to the log start ourselves, as `earliest` would, and can record it.
    isolation.level and check.crcs are always set: librdkafka's defaults (read_committed, no checks) differ from
    Java's."""
    return {
        **{key: value for key, value in FOR_A_BROKEN_CLUSTER.items()},
        "bootstrap.servers": bootstrap_servers,
        "client.id": client_name,
        "group.id": f"prozess-{client_name}",  # librdkafka wants one; nothing is committed
        "isolation.level": isolation_level,
        "check.crcs": True,
        "auto.offset.reset": "error",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": False,
        "allow.auto.create.topics": False,
        "fetch.wait.max.ms": 100,
        "fetch.error.backoff.ms": 100,
        "fetch.queue.backoff.ms": 100,
        **_SMALL_FETCHES,
    }


_SMALL_FETCHES: dict[str, Property] = {
    "fetch.message.max.bytes": 262_144,
    "fetch.max.bytes": 4_194_304,
    "queued.max.messages.kbytes": 16_384,
}
"""Smaller fetches than librdkafka's defaults. It fetches ahead of us, and unpacks what it has fetched: highly
compressed batches of many partitions took 1 GB with its defaults (1 MB per partition, 50 MB per request, 64 MB
waiting)."""


def offsets_are_reported(properties: Mapping[str, Property]) -> bool:
    """Says whether a delivery report knows the offset. It does not with acks=0, where nobody answers: librdkafka
    (2.16.0) then reports none, or the position within the batch (seen with large batches to several partitions),
    which is no offset."""
    return str(properties.get("acks", properties.get("request.required.acks", "all"))) != "0"


def retries_allowed(properties: Mapping[str, Property]) -> bool:
    """Says whether the client may try twice: yes unless every spelling of the setting that is there says 0; absent is
    librdkafka's default, which is the maximum."""
    given = [str(properties[key]) for key in _RETRY_KEYS if key in properties]
    return not given or any(value.strip() != "0" for value in given)
