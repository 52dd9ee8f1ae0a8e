"""This module says how the verifiable clients of a trial are started: Kafka's own from the jars, prozess's own from
this package. Mostly pure.

Both get the same options and the same file of properties, in Java's spelling. Which options there are differs by version:
`--producer.config` and `--consumer.config` are the only form before 4.2, and deprecated since (KIP-1147).
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from prozess.harness.config.configuration import GroupConfiguration, ProducerConfiguration
from prozess.harness.config.library_defaults import MEMBER_PROPERTY_OF
from prozess.harness.plan.cell_work import GroupSession, GroupWork, work_as
from prozess.harness.plan.plan import PlannedClient
from prozess.harness.recording.jolokia import agent_flags
from prozess.workloads.java import JAVA_FOR_A_BROKEN_CLUSTER
from prozess.workloads.metrics import ATTRIBUTES, HOST
from prozess.workloads.settings import JavaInstallation, LaunchContext, RoleOptions, Settings, left_properties

MAX_BLOCK_MS = 10_000
DEFAULT_MAX_BLOCK_MS = 60_000
"""The default of max.block.ms. [Kafka documentation, producer configuration]"""
KEYS = 100
"""Keys make every partition get records: without keys a Java producer stays with one partition for batch.size bytes
(KIP-794), which at the rate of a trial is minutes."""
_JVM = ("-Xms16m", "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:-UsePerfData")
_SCRATCH = "-Djava.io.tmpdir=@tools-directory"
"""A directory in which codecs unpack native libraries, which a killed tool leaves behind."""
_LOG4J2 = (
    "status=error\nappender.e.type=Console\nappender.e.name=e\nappender.e.target=SYSTEM_ERR\n"
    "appender.e.layout.type=PatternLayout\nappender.e.layout.pattern=[%d] %p %m (%c)%n\n"
    "rootLogger.level=WARN\nrootLogger.appenderRef.e.ref=e\n"
)
_LOG4J1 = (
    "log4j.rootLogger=WARN, e\nlog4j.appender.e=org.apache.log4j.ConsoleAppender\nlog4j.appender.e.target=System.err\n"
    "log4j.appender.e.layout=org.apache.log4j.PatternLayout\n"
    "log4j.appender.e.layout.ConversionPattern=[%d] %p %m (%c)%n\n"
)


class ToolCommand(RoleOptions):
    """Says how a tool is started."""

    command: tuple[str, ...]
    files: dict[str, str]
    """What is written when the client starts: name, `@name` in the command → text."""
    metrics: str | None = None
    """The kind of tool whose metrics are read; None: none are."""


class ToolOptions(RoleOptions):
    """Describes what every client that runs a tool needs."""

    tool: ToolCommand


class ProducerToolOptions(ToolOptions):
    """A producer's. `report_limit_ms`: the most that passes between send() and its report; None: nobody knows."""

    report_limit_ms: int | None


class ConsumerToolOptions(ToolOptions):
    """A consumer's. `group`: the number of its group, which is its cell. `yours`: it is a program of yours, so nobody knows
    when it began a commit, where it stood then, and how it commits."""

    group: int
    yours: bool = False


def launch_verifiable_producer(context: LaunchContext) -> Settings:
    """Makes the settings of a client with the role `verifiable-producer`."""
    planned = context.planned
    assert planned.producer is not None, planned
    arguments = [
        *("--bootstrap-server", context.servers, "--topic", _topic(context)),
        *("--acks", {"0": "0", "1": "1", "all": "-1"}[planned.producer.acks]),
        *("--throughput", str(max(1, round(planned.traffic.rate_hz * len(planned.partitions))))),
        *("--value-prefix", str(planned.client), "--repeating-keys", str(KEYS)),
    ]
    library = planned.producer.defaults == "library"
    limit_ms = planned.producer.delivery_timeout_ms + (DEFAULT_MAX_BLOCK_MS if library else MAX_BLOCK_MS)
    tool = _tool(context, "producer", arguments, producer_file(planned.producer, planned.name))
    # What a program of yours does with a record, and for how long, nobody knows.
    known = client_of(planned) != "command"
    return Settings({}, ProducerToolOptions(tool=tool, report_limit_ms=limit_ms if known else None))


def launch_verifiable_consumer(context: LaunchContext) -> Settings:
    """Makes the settings of a client with the role `verifiable-consumer`."""
    planned = context.planned
    assert planned.group_id is not None
    assert planned.cell is not None
    arguments = [
        *("--bootstrap-server", context.servers, "--topic", _topic(context), "--group-id", planned.group_id),
        *("--reset-policy", "earliest", "--verbose"),
    ]
    file = {"isolation.level": str(planned.isolation_level), "client.id": planned.name}
    tool = _tool(context, "consumer", arguments, file)
    return Settings({}, ConsumerToolOptions(tool=tool, group=planned.cell, yours=planned.reads_by_command))


def launch_verifiable_share_consumer(context: LaunchContext) -> Settings:
    """Makes the settings of a client with the role `verifiable-share-consumer`: Kafka's own tool, whichever client
    produces. It acknowledges what a poll gave before the next one (`sync`), and says which offsets."""
    planned = context.planned
    assert planned.group_id is not None
    assert planned.cell is not None
    arguments = [
        *("--bootstrap-server", context.servers, "--topic", _topic(context), "--group-id", planned.group_id),
        *("--acknowledgement-mode", "sync", "--offset-reset-strategy", "earliest", "--verbose"),
    ]
    tool = java_tool(context, "share-consumer", arguments, {"client.id": planned.name})
    return Settings({}, ConsumerToolOptions(tool=tool, group=planned.cell))


def producer_file(configuration: ProducerConfiguration, client_name: str) -> dict[str, str]:
    """Returns the properties of a producer that the tool's options cannot say. The file beats the options, acks
    included; retries are named always, since the tool's own 0 would switch idempotence off.

    Therefore acks and retries are named even where they are left to the library, with its own values. That is the same to it:
    what was named and what was not differ for it only where a value contradicts idempotence (KIP-679;
    ProducerConfig.postProcessAndValidateIdempotenceConfigs)."""
    named = {
        "acks": configuration.acks,
        "enable.idempotence": str(configuration.enable_idempotence).lower(),
        "retries": str(configuration.retries_most),
        "max.in.flight.requests.per.connection": str(configuration.max_in_flight),
        "linger.ms": str(int(configuration.linger_ms)),
        "request.timeout.ms": str(max(1, min(10_000, configuration.delivery_timeout_ms // 2))),
        "delivery.timeout.ms": str(configuration.delivery_timeout_ms),
        "compression.type": configuration.compression_type,
    }
    if configuration.defaults == "library":
        left = left_properties(configuration) - {"acks", "retries"}
        kept = {key: value for key, value in named.items() if key not in left and key != "request.timeout.ms"}
        return {"client.id": client_name, **kept, **configuration.properties}
    return {"client.id": client_name, **named, "max.block.ms": str(MAX_BLOCK_MS), **configuration.properties}


def file_option(kind: str, kafka_version: str) -> str:
    """Returns the option by which a tool of that version is given its file."""
    major, minor = (int(part) for part in kafka_version.split(".")[:2])
    return "--command-config" if (major, minor) >= (4, 2) else f"--{kind}.config"


def _tool(context: LaunchContext, kind: str, arguments: list[str], file: Mapping[str, str]) -> ToolCommand:
    """Makes the command of one tool."""
    planned = context.planned
    name, files = _file_of(planned, kind, file)
    if planned.command:
        yours = [word.format_map({"python": sys.executable}) for word in planned.command]
        return ToolCommand(command=(*yours, *arguments, "--command-config", f"@{name}"), files=files)
    if client_of(planned) == "java":
        return java_tool(context, kind, arguments, file)
    ours = [sys.executable, "-P", "-m", "prozess.workloads.verifiable.tools", kind]
    return ToolCommand(command=(*ours, *arguments, "--command-config", f"@{name}"), files=files)


def java_tool(context: LaunchContext, kind: str, arguments: list[str], file: Mapping[str, str]) -> ToolCommand:
    """Makes the command of Kafka's own tool."""
    version = context.plan.java_version(context.planned)
    name, files = _file_of(context.planned, kind, file)
    runtime, jars = context.toolbox.java(), context.toolbox.jars(version)
    main = f"org.apache.kafka.tools.Verifiable{kind.title().replace('-', '')}"
    metrics = context.plan.metrics and kind in ATTRIBUTES
    agent = context.toolbox.metrics_agent() if metrics else None
    java, more = java_command(version, main, runtime, jars, flags=agent_flags(agent, host=HOST, port=0))
    command = (*java, *arguments, file_option(kind, version), f"@{name}")
    return ToolCommand(command=command, files=files | more, metrics=kind if metrics else None)


def _file_of(planned: PlannedClient, kind: str, file: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Returns the name of a tool's file of properties, and that file."""
    name = f"{kind}-{planned.client}.properties"
    return name, {name: "".join(f"{key}={value}\n" for key, value in file.items())}


def java_command(
    version: str, main: str, runtime: JavaInstallation, jars: Sequence[Path], *, flags: Sequence[str] = ()
) -> tuple[list[str], dict[str, str]]:
    """Returns the words before the arguments of one of Kafka's tools, and the file it needs: it logs to standard
    error. `flags`: more options of the JVM."""
    new = int(version.split(".")[0]) >= 4
    logging = "-Dlog4j2.configurationFile=" if new else "-Dlog4j.configuration=file:"
    path = ":".join(str(jar) for jar in jars)
    # Clients of several versions share a directory: what one writes must not be read by another.
    file = "tools-log4j2.properties" if new else "tools-log4j1.properties"
    command = [str(runtime.executable), *_JVM, *flags, _SCRATCH, f"{logging}@{file}", "-cp", path, main]
    return command, {file: _LOG4J2 if new else _LOG4J1}


def client_of(planned: PlannedClient) -> str:
    """Returns which client produces: java, librdkafka or command."""
    assert planned.producer is not None, planned
    return planned.producer.client


def _topic(context: LaunchContext) -> str:
    (topic,) = {context.plan.partitions[p].topic_name for p in context.planned.partitions}
    return topic


def written(command: Sequence[str], files: Mapping[str, str], directory: Path) -> list[str]:
    """Writes the files into that directory, and returns the command with their paths for `@name`. `@tools-directory`
    is the directory."""
    directory.mkdir(exist_ok=True)
    command = [part.replace("@tools-directory", str(directory)) for part in command]
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")
        command = [part.replace(f"@{name}", str(directory / name)) for part in command]
    return command


# How Kafka's VerifiableConsumer is started as a member of a group. Its options beat its file, so each setting is where
# the tool takes it from.


ASSIGNORS = {"classic-eager": "range", "classic-cooperative": "cooperative-sticky"}
"""Protocol of a group → the assignor that its members name, unless the trial names another."""
_CLASSES = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
"""Assignor → its class in org.apache.kafka.clients.consumer."""
_FOR_TOOLS = {key: str(value) for key, value in JAVA_FOR_A_BROKEN_CLUSTER.items()} | {"fetch.max.wait.ms": "100"}


class JavaMemberOptions(ConsumerToolOptions):
    """Says how Kafka's consumer works as a member of a group."""

    group_id: str
    auto: bool
    """Whether it commits by itself."""
    eager: bool
    """Whether its assignments are of all partitions at once."""
    latest: bool
    """Whether it is reset to the end."""


def launch_java_member(context: LaunchContext) -> Settings:
    """Makes the settings of a client with the role `java-member`."""
    planned, work = context.planned, work_as(GroupWork, context.planned.work)
    group = work.configuration
    assert planned.cell is not None, planned
    assert planned.group_id is not None, planned
    cell = context.plan.cells[planned.cell]
    arguments = [
        *("--bootstrap-server", context.servers, "--topic", cell.topic_name, "--group-id", planned.group_id),
        *("--reset-policy", group.auto_offset_reset, "--verbose"),
        *_protocol(group),
        *(("--group-instance-id", f"{planned.group_id}-{planned.instance}") if group.static_membership else ()),
        *(("--enable-autocommit",) if group.commit == "auto" else ()),
    ]
    options = JavaMemberOptions(
        tool=java_tool(context, "consumer", arguments, member_file(group, planned.name, work.session)),
        group=planned.cell,
        group_id=planned.group_id,
        auto=group.commit == "auto",
        eager=group.protocol == "classic-eager",
        latest=group.auto_offset_reset == "latest",
    )
    return Settings({}, options)


def member_file(group: GroupConfiguration, client_name: str, session: GroupSession) -> dict[str, str]:
    """Returns the properties of a member that the tool's options cannot say. In the consumer protocol heartbeats are
    the brokers' to set (KIP-848): a Java consumer refuses a configuration that names them."""
    if group.defaults == "library":  # the tool's options have the others, with the library's own values
        kept = {
            "isolation_level": group.isolation_level,
            "auto_commit_interval_ms": str(group.auto_commit_interval_ms),
            "max_poll_interval_ms": str(group.max_poll_interval_ms),
        }
        written_ = {MEMBER_PROPERTY_OF[name]: text for name, text in kept.items() if name not in group.left_to_client}
        return {"client.id": client_name, **written_, **group.properties}
    classic = {"heartbeat.interval.ms": str(session.heartbeat_ms)} if group.protocol != "consumer" else {}
    return {
        **_FOR_TOOLS,
        **classic,
        "client.id": client_name,
        "isolation.level": group.isolation_level,
        "auto.commit.interval.ms": str(group.auto_commit_interval_ms),
        "max.poll.interval.ms": str(group.max_poll_interval_ms),
        "max.poll.records": str(group.batch),
        "allow.auto.create.topics": "false",
        **group.properties,
    }


def _protocol(group: GroupConfiguration) -> tuple[str, ...]:
    """Returns the options for the group's protocol. `--group-protocol` is not there before 3.7, where classic is all
    there is."""
    chosen = None if group.assignor == "default" else group.assignor
    if group.protocol == "consumer":
        return ("--group-protocol", "consumer", *(("--group-remote-assignor", chosen) if chosen else ()))
    class_name = _CLASSES[chosen or ASSIGNORS[group.protocol]]
    return (
        *("--assignment-strategy", f"org.apache.kafka.clients.consumer.{class_name}"),
        *("--session-timeout", str(group.session_timeout_ms)),
    )
