"""Writes the server.properties of each Kafka server, from a variant and from where each node listens.

ZooKeeper's own configuration is at the end.

Listeners of a broker, each on its own port:
    DATA        between brokers, and for workload clients: on the network that faults touch
    OBSERVER    for administration and audit: on the link that no fault touches
    CLIENT      for callers outside the sandbox, through the relay: advertised as 127.0.0.1 (only if there is a relay)
Listeners of a controller:
    CONTROLLER          quorum and brokers, on the network that faults touch
    CONTROLLEROBSERVER  DescribeQuorum of the observer. Kafka talks to controllers on the first of
                        `controller.listener.names` only (documentation of that setting), so this one carries nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from prozess.clusters.install.kafka_jars import check_version, remote_store
from prozess.clusters.machine.tiered import check_tiered, remote_properties
from prozess.harness.config.configuration import FIRST_CONTROLLER_ID, FIRST_ZOOKEEPER_ID, Variant, version_numbers
from prozess.harness.config.releases import NEWEST_PATCHES, READY_KRAFT
from prozess.harness.errors import BadInput

BROKER, CONTROLLER, ZOOKEEPER = "broker", "controller", "zookeeper"
Stage = Literal["zookeeper", "migrating", "kraft"]
"""The stages of a server on the way from ZooKeeper to KRaft: while it is `migrating` it knows both (KIP-866)."""

HEAP: dict[str, tuple[str, ...]] = {
    BROKER: ("-Xms64m", "-Xmx256m"),
    CONTROLLER: ("-Xms32m", "-Xmx128m"),
    ZOOKEEPER: ("-Xms32m", "-Xmx128m"),
}
"""Heap options by role; a combined node is a broker. Three such brokers took 100 k records/s without running out."""
DEDUPE_BUFFER_BYTES = 2 * 1024 * 1024
"""The log cleaner's buffer, which is a part of the heap. Kafka's default of 128 MiB is half of a broker's heap here."""
JVM_FLAGS: tuple[str, ...] = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # halves the CPU time of a start
    "-Xss512k",
    "-XX:MaxDirectMemorySize=64m",
    "-XX:ReservedCodeCacheSize=64m",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:-UsePerfData",  # its files in /tmp are named by pid, and pids of sandboxes are alike
    "-Djava.awt.headless=true",
    "-Djava.net.preferIPv4Stack=true",
)
SCRATCH = "scratch"
"""The folder for a node's temporary files: codecs unpack native libraries, which a killed broker leaves behind."""

_SHAPING_KRAFT = (
    "broker.session.timeout.ms",
    "broker.heartbeat.interval.ms",
    "controller.quorum.election.timeout.ms",
    "controller.quorum.fetch.timeout.ms",
)
_SHAPING_ZOOKEEPER = ("zookeeper.session.timeout.ms", "zookeeper.connection.timeout.ms")
_SHAPING = (
    *("replica.lag.time.max.ms", "unclean.leader.election.enable", "log.flush.interval.messages"),
    *("request.timeout.ms", "group.initial.rebalance.delay.ms"),
)
KAFKA_DEFAULTS = {
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "2000",
    "replica.lag.time.max.ms": "30000",
    "request.timeout.ms": "30000",
    "group.initial.rebalance.delay.ms": "3000",
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "2000",
    "zookeeper.session.timeout.ms": "18000",
    "log.flush.interval.messages": str(2**63 - 1),
}
"""Kafka's own defaults of settings that we leave alone and the report states (documentation of 3.9 and 4.3)."""

OURS = frozenset(
    {
        "node.id",
        "broker.id",
        "process.roles",
        "listeners",
        "advertised.listeners",
        "inter.broker.listener.name",
        "controller.listener.names",
        "controller.quorum.voters",
        "controller.quorum.bootstrap.servers",
        "listener.security.protocol.map",
        "log.dirs",
        "log.dir",
        "metadata.log.dir",
        "zookeeper.connect",
        "remote.log.storage.manager.class.name",
        "remote.log.storage.manager.class.path",
        "rsm.config.dir",
    }
)
"""The properties that the backend sets: a trial that sets one of them is refused."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Says where one node is: the addresses and ports of its listeners, and its data directory.

    A ZooKeeper server listens for clients at `data_port` of each of its addresses, for its peers at `controller_port`
    (followers) and `controller_observer_port` (elections)."""

    node_id: int
    roles: frozenset[str]
    data_address: str
    observer_address: str
    data_port: int
    observer_port: int
    controller_port: int
    controller_observer_port: int
    data_directory: Path
    client_port: int = 0
    """The port of the CLIENT listener inside; 0 if there is none."""
    relay_port: int = 0
    """The port on 127.0.0.1 outside, which CLIENT advertises."""
    rack: str | None = None
    metrics_port: int = 0
    """The port of the metrics agent, on the observer's address; 0 if there is none."""
    methods_port: int = 0
    """The port of the agent for calls of methods, on the observer's address; 0 if there is none."""

    @property
    def name(self) -> str:
        return node_name(self.node_id, self.roles)


def node_name(node_id: int, roles: frozenset[str]) -> str:
    """Returns the name of a node: `broker-1`; `controller-3001` if it is no broker; `zookeeper-1` by ZooKeeper's own
    number."""
    if ZOOKEEPER in roles:
        return f"{ZOOKEEPER}-{zookeeper_number(node_id)}"
    return f"{BROKER if BROKER in roles else CONTROLLER}-{node_id}"


def zookeeper_number(node_id: int) -> int:
    """Returns the number of the server in its ensemble (`myid`)."""
    return node_id - FIRST_ZOOKEEPER_ID + 1


def node_roles(variant: Variant) -> dict[int, frozenset[str]]:
    """Returns the roles of each node id. BadInput for a variant that this backend does not run."""
    check_variant(variant)
    brokers = frozenset({BROKER, CONTROLLER} if variant.metadata_mode == "kraft-combined" else {BROKER})
    return {node: _roles_of(node) or brokers for node in sorted(variant.server_names())}


def _roles_of(node_id: int) -> frozenset[str]:
    """The roles of the nodes that are no brokers."""
    if node_id >= FIRST_ZOOKEEPER_ID:
        return frozenset({ZOOKEEPER})
    return frozenset({CONTROLLER} if node_id >= FIRST_CONTROLLER_ID else ())


def server_properties(
    variant: Variant, node: Placement, nodes: Sequence[Placement], *, stage: Stage | None = None
) -> dict[str, str]:
    """Returns the server.properties of `node`. The variant's properties are laid over the defaults, never over `OURS`.
    `stage`: None = as the variant begins."""
    stage = stage or ("zookeeper" if variant.metadata_mode == "zookeeper" else "kraft")
    names = _listener_names(stage, nodes)
    return {
        **_defaults(variant),
        **({"broker.rack": node.rack} if node.rack and BROKER in node.roles else {}),
        **({} if stage == "kraft" or BROKER not in node.roles else _spoken(variant)),
        **variant.properties,
        **_membership(stage, node, nodes),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
        **_listeners(node),
    }


def _spoken(variant: Variant) -> dict[str, str]:
    """What brokers with ZooKeeper say to one another: in words of the oldest version, whatever their own is, as in the
    middle of an upgrade (https://kafka.apache.org/documentation/#upgrade). KRaft has metadata.version instead."""
    return {"inter.broker.protocol.version": _line(version_numbers(variant.oldest_version)[:2])}


def _membership(stage: Stage, node: Placement, nodes: Sequence[Placement]) -> dict[str, str]:
    """The properties that say who the server is, where its data is, and where the cluster keeps its metadata."""
    directory = {"log.dirs": str(node.data_directory)}
    ensemble = ",".join(f"{n.data_address}:{n.data_port}" for n in nodes if ZOOKEEPER in n.roles)
    if stage == "zookeeper":
        return {"broker.id": str(node.node_id), **directory, "zookeeper.connect": ensemble}
    voters = (f"{n.node_id}@{n.data_address}:{n.controller_port}" for n in nodes if CONTROLLER in n.roles)
    quorum = {
        "controller.quorum.voters": ",".join(voters),
        "controller.listener.names": "CONTROLLER,CONTROLLEROBSERVER",
    }
    migrating = {"zookeeper.connect": ensemble, "zookeeper.metadata.migration.enable": "true"}
    if stage == "migrating" and BROKER in node.roles:
        return {"broker.id": str(node.node_id), **directory, **quorum, **migrating}
    whole = {"node.id": str(node.node_id), "process.roles": ",".join(sorted(node.roles)), **directory, **quorum}
    return whole | migrating | {"inter.broker.listener.name": "DATA"} if stage == "migrating" else whole


def _listener_names(stage: Stage, nodes: Sequence[Placement]) -> list[str]:
    names = ["DATA", "OBSERVER"]
    if stage != "zookeeper":
        names += ["CONTROLLER", "CONTROLLEROBSERVER"]
    return [*names, "CLIENT"] if any(n.client_port for n in nodes) else names


def _listeners(node: Placement) -> dict[str, str]:
    bound, advertised = [], []
    if BROKER in node.roles:
        bound += [
            f"DATA://{node.data_address}:{node.data_port}",
            f"OBSERVER://{node.observer_address}:{node.observer_port}",
        ]
        advertised += bound
        if node.client_port:
            bound = [*bound, f"CLIENT://{node.data_address}:{node.client_port}"]
            advertised = [*advertised, f"CLIENT://127.0.0.1:{node.relay_port}"]
    if CONTROLLER in node.roles:
        bound = [
            *bound,
            f"CONTROLLER://{node.data_address}:{node.controller_port}",
            f"CONTROLLEROBSERVER://{node.observer_address}:{node.controller_observer_port}",
        ]
    found = {"listeners": ",".join(bound)}
    if BROKER in node.roles:
        found |= {"advertised.listeners": ",".join(advertised), "inter.broker.listener.name": "DATA"}
    return found


WAITS_FOR_PRODUCER_IDS = ((3, 0), (3, 6))
"""The lines, from and before, whose request handlers wait until the controller has given the broker producer ids
(KAFKA-14694). With ZooKeeper the controller is a broker. Seen with 3.0.2: two handlers of each of three brokers all waited
for one another, for 30 s."""


def _io_threads(variant: Variant) -> int:
    """Two request handlers are enough for small clusters, unless they wait for those of other brokers: then it is Kafka's
    own default."""
    first, fixed = WAITS_FOR_PRODUCER_IDS
    return 8 if any(first <= version_numbers(version) < fixed for version in variant.kafka_versions) else 2


def _defaults(variant: Variant) -> dict[str, str]:
    """Returns the defaults of a small, fast cluster. Session and lag settings stay Kafka's own unless the trial sets
    them."""
    replicas = min(3, variant.brokers)
    internal = {
        "offsets.topic.num.partitions": 3,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.num.partitions": 3,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": min(2, replicas),
        "default.replication.factor": replicas,
        "num.partitions": 3,
    }
    if version_numbers(variant.oldest_version) >= (4,):  # share groups: KIP-932
        internal |= {
            "share.coordinator.state.topic.num.partitions": 3,
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": min(2, replicas),
        }
    small = {
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": 0,
        "log.cleaner.dedupe.buffer.size": DEDUPE_BUFFER_BYTES,
        "num.network.threads": 2,
        "num.io.threads": _io_threads(variant),
        "num.replica.fetchers": 1,
        "background.threads": 2,
        "log.index.size.max.bytes": 1024 * 1024,
        "unclean.leader.election.enable": "false",
    }
    # Kafka's own is the session's timeout, within which a starved machine may not start a ZooKeeper server.
    patient = {"zookeeper.connection.timeout.ms": 30_000} if variant.metadata_mode == "zookeeper" else {}
    return {key: str(value) for key, value in (internal | small | patient).items()} | remote_properties(variant)


def shaping_settings(variant: Variant) -> dict[str, str]:
    """The settings that shape a trial, as every node has them: the trial's, else ours, else Kafka's own defaults."""
    effective = KAFKA_DEFAULTS | _defaults(variant) | variant.properties
    sessions = _SHAPING_ZOOKEEPER if variant.metadata_mode == "zookeeper" else _SHAPING_KRAFT
    return {key: effective[key] for key in (*sessions, *_SHAPING)} | dict(sorted(variant.properties.items()))


def properties_text(properties: Mapping[str, str]) -> str:
    """Returns the text of a Java .properties file. Backslashes and line ends in values are escaped."""
    return "".join(f"{key}={_escaped(value)}\n" for key, value in properties.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def logging_properties(version: str) -> tuple[str, str, str]:
    """Returns the logging configuration: its file name, its text, and the JVM option up to and with `=`.

    Servers log to stdout, one line per event, with milliseconds."""
    if int(version.split(".")[0]) >= 4:
        text = (
            "status=error\n"
            "appender.out.type=Console\nappender.out.name=out\nappender.out.target=SYSTEM_OUT\n"
            "appender.out.layout.type=PatternLayout\nappender.out.layout.pattern=[%d] %p %m (%c)%n\n"
            "rootLogger.level=INFO\nrootLogger.appenderRef.out.ref=out\n"
        )
        return "log4j2.properties", text, "-Dlog4j2.configurationFile="
    text = (
        "log4j.rootLogger=INFO, out\n"
        "log4j.appender.out=org.apache.log4j.ConsoleAppender\nlog4j.appender.out.target=System.out\n"
        "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
        "log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n\n"
    )
    return "log4j.properties", text, "-Dlog4j.configuration=file:"


# Which variants can be run here at all, and why another cannot. Pure.


OLDEST = (2, 8)
"""The oldest line whose logs are decoded here."""
NO_ZOOKEEPER = (4, 0)
"""The first line without ZooKeeper (KIP-500)."""
OLDEST_MIGRATION = (3, 6)
"""The first line whose migration from ZooKeeper to KRaft is ready for production (KIP-866)."""
OLDEST_FEATURES = (3, 8)
"""The first line whose StorageTool takes the levels of features (KIP-1022)."""


def check_variant(variant: Variant) -> None:
    """Raises BadInput, with the reason and a way out, for a variant that is not run."""
    if taken := sorted(OURS & variant.properties.keys()):
        raise BadInput(f"variant.properties sets {taken[0]!r}, which prozess sets for each server. Remove it.")
    servers = variant.server_names()
    names = servers.values()
    if strange := sorted(set(variant.versions) - set(names)):
        raise BadInput(
            f"variant.versions names {strange[0]!r}, but the variant has no such node. Nodes: {', '.join(names)}."
        )
    for version in variant.kafka_versions:
        check_version(version)
    for name in names:
        _check_node(variant, name)
    if variant.migration_controllers and variant.metadata_mode != "zookeeper":
        raise BadInput(
            f"variant.migration_controllers = {variant.migration_controllers} is for a cluster that begins with ZooKeeper. "
            'Set metadata_mode = "zookeeper", or remove it.'
        )
    check_tiered(variant, remote_store)
    if variant.features:
        _check_features(variant)
    if variant.metadata_mode != "zookeeper" and len(variant.kafka_versions) > 1:
        _check_mixed(variant)


def _check_node(variant: Variant, name: str) -> None:
    """Checks whether the version of one node can be such a node."""
    version = variant.version_of(name)
    numbers = version_numbers(version)
    setting = (
        f"kafka_version = {version!r}" if name not in variant.versions else f"variant.versions of {name} = {version!r}"
    )
    if numbers < OLDEST:
        raise BadInput(f"{setting}: Kafka is run from {_line(OLDEST)} on. Use {_newest(from_=OLDEST)}.")
    if variant.metadata_mode == "zookeeper":
        if numbers >= NO_ZOOKEEPER:
            raise BadInput(
                f"{setting} has no ZooKeeper mode, which Kafka {_line(NO_ZOOKEEPER)} removed (KIP-500). Use "
                f'{_newest(before=NO_ZOOKEEPER)}, or metadata_mode = "kraft-isolated".'
            )
        if variant.migration_controllers and numbers < OLDEST_MIGRATION:
            raise BadInput(
                f"{setting} has no migration to KRaft that is ready for production (KIP-866, "
                f"{_line(OLDEST_MIGRATION)}). Use {_newest(before=NO_ZOOKEEPER)}, or remove variant.migration_controllers."
            )
    elif numbers < READY_KRAFT:
        raise BadInput(
            f"{setting} has KRaft only as a preview: it is ready for production from {_line(READY_KRAFT)} on (KIP-833). "
            f'Set metadata_mode = "zookeeper", or use {_newest(from_=READY_KRAFT)}.'
        )


def _line(numbers: tuple[int, ...]) -> str:
    return f"{numbers[0]}.{numbers[1]}"


def _newest(*, from_: tuple[int, int] = OLDEST, before: tuple[int, ...] = (10**6,)) -> str:
    """Returns the newest of the known releases in a span."""
    return [release for release in NEWEST_PATCHES if from_ <= version_numbers(release) < before][-1]


def _check_features(variant: Variant) -> None:
    """Checks whether the levels of features can be given when the cluster is formatted."""
    first, oldest = min(variant.features), variant.oldest_version
    if variant.metadata_mode == "zookeeper":
        raise BadInput(
            f"variant.features sets {first!r}, but features are finalized by KRaft's controllers alone "
            "(KIP-584, KIP-1022). Remove it."
        )
    if version_numbers(oldest) < OLDEST_FEATURES:
        raise BadInput(
            f"variant.features sets {first!r}, and {oldest} cannot be formatted with levels of features: that came with "
            f"{_line(OLDEST_FEATURES)} (KIP-1022). Remove it, or use {_newest(from_=OLDEST_FEATURES)}."
        )


def _check_mixed(variant: Variant) -> None:
    """Checks a cluster in the middle of an upgrade: every server must know the metadata.version, which is the oldest
    one's."""
    oldest, newest = variant.kafka_versions[0], variant.kafka_versions[-1]
    if version_numbers(newest)[0] - version_numbers(oldest)[0] > 1:
        raise BadInput(
            f"variant.versions mixes {oldest} and {newest}: Kafka can be upgraded from one major version to the next alone "
            "(https://kafka.apache.org/documentation/#upgrade). Choose versions that follow one another."
        )
    if "metadata.version" in variant.features:
        raise BadInput(
            f"variant.features sets metadata.version, which in a mixed cluster is that of {oldest}, the oldest. Remove it."
        )


# zoo.cfg of each ZooKeeper server, pure. The server is the one whose jars Kafka 3.9 brings along.
#
# https://zookeeper.apache.org/doc/r3.8.4/zookeeperAdmin.html. What is not Kafka's or ZooKeeper's default, and why:
#     sessions as short as two ticks of 1 s, as long as anybody asks for: a trial sets zookeeper.session.timeout.ms
#     four-letter words srvr and mntr: who leads, asked over the observer's link
#     log files that are not padded to 64 MiB: a trial writes a few hundred KiB
#     many proposals kept for followers that were away: they catch up by a difference, not by a snapshot, so that the
#     transaction log of each stays without gaps: it is the trial's ground truth (`prozess.clusters.files.zookeeper_log`)


MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
ZOOKEEPER_JVM_FLAGS = (
    "-Dzookeeper.preAllocSize=64",
    "-Dzookeeper.commitLogCount=200000",
    "-Dzookeeper.admin.enableServer=false",
)
"""The JVM options of ZooKeeper: preAllocSize in KiB, commitLogCount in proposals."""
TICK_MS = 1_000
EVERY_ADDRESS = "0.0.0.0"
SESSION_MAX_MS = 3_600_000


def zookeeper_properties(node: Placement, nodes: Sequence[Placement], *, own_network: bool) -> dict[str, str]:
    """Returns the zoo.cfg of `node`.

    `own_network`: it has a network namespace of its own, in which it listens everywhere, for the observer too."""
    servers = [n for n in nodes if ZOOKEEPER in n.roles]
    quorum = {
        f"server.{zookeeper_number(n.node_id)}": f"{n.data_address}:{n.controller_port}:{n.controller_observer_port}"
        for n in servers
        if len(servers) > 1
    }
    return {
        "tickTime": str(TICK_MS),
        "initLimit": "10",  # ticks
        "syncLimit": "5",
        "maxSessionTimeout": str(SESSION_MAX_MS),
        "dataDir": str(node.data_directory),
        "clientPort": str(node.data_port),
        "clientPortAddress": EVERY_ADDRESS if own_network else node.data_address,
        "maxClientCnxns": "0",
        "4lw.commands.whitelist": "srvr,mntr",
        **quorum,
    }


def prepare_directory(directory: Path, node: Placement) -> None:
    """Makes a data directory that is empty but for the number by which a ZooKeeper server knows who it is."""
    directory.mkdir(parents=True)
    (directory / "myid").write_text(f"{zookeeper_number(node.node_id)}\n", encoding="ascii")
