"""How the verifiable clients of a trial are started: Kafka's own from the jars, ours from this package. Mostly pure.

Both get the same options and the same file of properties, in Java's spelling. Which options there are differs by version:
`--producer.config` and `--consumer.config` are the only form before 4.2, and deprecated since (KIP-1147).
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from harness import catalogue
from harness.configuration import ProducerConfiguration
from harness.jolokia import agent_flags
from harness.plan import PlannedClient
from workloads.java_metrics import ATTRIBUTES, HOST
from workloads.properties import LaunchContext, Settings

MAX_BLOCK_MS = 10_000
KEYS = 100
"""So that every partition gets records: without keys a Java producer stays with one partition for batch.size bytes (KIP-794),
which at the rate of a trial is minutes."""
_RETRIES = {"0": "0", "max": "2147483647"}
_JVM = ("-Xms16m", "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:-UsePerfData")
_SCRATCH = "-Djava.io.tmpdir=@tools-directory"
"""Codecs unpack native libraries there, which a killed tool leaves behind."""
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


class JavaRuntime(Protocol):
    """What finds Java gives."""

    @property
    def executable(self) -> Path: ...


def launch_verifiable_producer(context: LaunchContext) -> Settings:
    """Of the role `verifiable-producer`."""
    planned = context.planned
    assert planned.producer is not None, planned
    arguments = [
        *("--bootstrap-server", context.servers, "--topic", _topic(context)),
        *("--acks", {"0": "0", "1": "1", "all": "-1"}[planned.producer.acks]),
        *("--throughput", str(max(1, round(planned.traffic.rate_hz * len(planned.partitions))))),
        *("--value-prefix", str(planned.client), "--repeating-keys", str(KEYS)),
    ]
    limit_ms = planned.producer.delivery_timeout_ms + MAX_BLOCK_MS
    return _settings(
        context, "producer", arguments, producer_file(planned.producer, planned.name), {"report_limit_ms": limit_ms}
    )


def launch_verifiable_consumer(context: LaunchContext) -> Settings:
    """Of the role `verifiable-consumer`."""
    planned = context.planned
    assert planned.group_id is not None
    assert planned.cell is not None
    arguments = [
        *("--bootstrap-server", context.servers, "--topic", _topic(context), "--group-id", planned.group_id),
        *("--reset-policy", "earliest", "--verbose"),
    ]
    file = {"isolation.level": str(planned.isolation_level), "client.id": planned.name}
    return _settings(context, "consumer", arguments, file, {"group": planned.cell})


def launch_verifiable_share_consumer(context: LaunchContext) -> Settings:
    """Of the role `verifiable-share-consumer`: Kafka's own, whoever produces. It acknowledges what a poll gave before
    the next one (`sync`), and says which offsets."""
    planned = context.planned
    assert planned.group_id is not None
    assert planned.cell is not None
    arguments = [
        *("--bootstrap-server", context.servers, "--topic", _topic(context), "--group-id", planned.group_id),
        *("--acknowledgement-mode", "sync", "--offset-reset-strategy", "earliest", "--verbose"),
    ]
    options = {"group": planned.cell}
    return java_settings(context, "share-consumer", arguments, {"client.id": planned.name}, options)


def producer_file(configuration: ProducerConfiguration, client_name: str) -> dict[str, str]:
    """Everything that the options cannot say. The file beats the options, acks included; retries are named always, since the
    tool's own 0 would switch idempotence off."""
    return {
        "client.id": client_name,
        "acks": configuration.acks,
        "enable.idempotence": str(configuration.enable_idempotence).lower(),
        "retries": _RETRIES[configuration.retries],
        "max.in.flight.requests.per.connection": str(configuration.max_in_flight),
        "linger.ms": str(int(configuration.linger_ms)),
        "request.timeout.ms": str(max(1, min(10_000, configuration.delivery_timeout_ms // 2))),
        "delivery.timeout.ms": str(configuration.delivery_timeout_ms),
        "compression.type": configuration.compression_type,
        "max.block.ms": str(MAX_BLOCK_MS),
        **configuration.properties,
    }


def file_option(kind: str, kafka_version: str) -> str:
    """How a tool of that version is given its file."""
    major, minor = (int(part) for part in kafka_version.split(".")[:2])
    return "--command-config" if (major, minor) >= (4, 2) else f"--{kind}.config"


def _settings(
    context: LaunchContext, kind: str, arguments: list[str], file: Mapping[str, str], options: Mapping[str, int]
) -> Settings:
    """The command of one tool; its file is written when the client starts (`files` of the options)."""
    planned = context.planned
    if client_of(planned) == "java":
        return java_settings(context, kind, arguments, file, options)
    name, files = _file_of(planned, kind, file)
    ours = [sys.executable, "-P", "-m", f"workloads.verifiable_{kind}"]
    return Settings({}, {"command": [*ours, *arguments, "--command-config", f"@{name}"], "files": files, **options})


def java_settings(
    context: LaunchContext, kind: str, arguments: list[str], file: Mapping[str, str], options: Mapping[str, Any]
) -> Settings:
    """The same, of Kafka's own tool."""
    version = context.plan.variant.kafka_version
    name, files = _file_of(context.planned, kind, file)
    runtime, jars = catalogue.service("java")(), catalogue.service("jars")(version)
    main = f"org.apache.kafka.tools.Verifiable{kind.title().replace('-', '')}"
    metrics = context.plan.metrics and kind in ATTRIBUTES
    agent = catalogue.service("metrics-agent-here")() if metrics else None
    java, more = java_command(version, main, runtime, jars, flags=agent_flags(agent, host=HOST, port=0))
    command = [*java, *arguments, file_option(kind, version), f"@{name}"]
    told: dict[str, Any] = {"metrics": kind} if metrics else {}
    return Settings({}, {"command": command, "files": files | more, **told, **options})


def _file_of(planned: PlannedClient, kind: str, file: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The name of its file of properties, and that file."""
    name = f"{kind}-{planned.client}.properties"
    return name, {name: "".join(f"{key}={value}\n" for key, value in file.items())}


def java_command(
    version: str, main: str, runtime: JavaRuntime, jars: Sequence[Path], *, flags: Sequence[str] = ()
) -> tuple[list[str], dict[str, str]]:
    """The words before the arguments of a tool of Kafka's, and the file it needs: it logs to standard error. `flags`: more
    options of the JVM."""
    new = int(version.split(".")[0]) >= 4
    logging = "-Dlog4j2.configurationFile=" if new else "-Dlog4j.configuration=file:"
    path = ":".join(str(jar) for jar in jars)
    command = [str(runtime.executable), *_JVM, *flags, _SCRATCH, f"{logging}@tools-log.properties", "-cp", path, main]
    return command, {"tools-log.properties": _LOG4J2 if new else _LOG4J1}


def client_of(planned: PlannedClient) -> str:
    """java or librdkafka."""
    assert planned.producer is not None, planned
    return planned.producer.client


def _topic(context: LaunchContext) -> str:
    (topic,) = {context.plan.partitions[p].topic_name for p in context.planned.partitions}
    return topic


def written(command: list[str], files: Mapping[str, str], directory: Path) -> list[str]:
    """The files written there, and the command with their paths for `@name`; `@tools-directory` is where they are."""
    directory.mkdir(exist_ok=True)
    command = [part.replace("@tools-directory", str(directory)) for part in command]
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")
        command = [part.replace(f"@{name}", str(directory / name)) for part in command]
    return command
