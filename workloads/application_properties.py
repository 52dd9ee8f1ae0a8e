"""How copiers that are not ours are started: a process of the user's, and TransactionalMessageCopier from the jars."""

import sys

from harness import catalogue
from harness.plan import Cell, PlannedClient
from harness.trial import trial_directories
from workloads.properties import LaunchContext, Settings
from workloads.verifiable_properties import java_command

JAVA_STOP_S = 15.0
"""Its shutdown hook closes producer and consumer, which may wait for brokers."""


def launch_application(context: LaunchContext) -> Settings:
    """Of the role `application`."""
    planned, application = context.planned, context.planned.application
    assert application is not None, planned
    words = placeholders(context)
    return Settings(
        {},
        {
            "command": [word.format_map(words) for word in application.command],
            "environment": {name: value.format_map(words) for name, value in application.environment.items()},
            "stop_s": application.stop_s,
        },
    )


def placeholders(context: LaunchContext) -> dict[str, str]:
    """What the words of a command may name (`harness.combination_rules.PLACEHOLDERS`)."""
    planned = context.planned
    cell = _cell_of(context, planned)
    assert planned.group_id is not None, planned
    assert cell.derived_topic_name is not None, cell
    return {
        "bootstrap": context.servers,
        "input": cell.topic_name,
        "output": cell.derived_topic_name,
        "group": planned.group_id,
        "instance": str(planned.instance),
        "delivery": cell.delivery or "",
        "python": sys.executable,
        "trials": str(trial_directories()[0]),
    }


def launch_java_copier(context: LaunchContext) -> Settings:
    """Of the role `java-copier`. `--group-mode` subscribes; `--use-group-metadata` fences by generation (KIP-447); the
    number of a partition is required all the same. The tool keeps its own settings: no file can be given."""
    planned, copier = context.planned, context.planned.copier
    assert copier is not None, planned
    assert planned.transactional_id is not None, planned
    named = placeholders(context)
    arguments = [
        *("--broker-list", named["bootstrap"], "--input-topic", named["input"], "--input-partition", "0"),
        *("--output-topic", named["output"]),
        *("--consumer-group", named["group"], "--group-mode", "--use-group-metadata"),
        *("--transactional-id", planned.transactional_id, "--transaction-size", str(copier.batch)),
        *("--transaction-timeout", str(copier.transaction_timeout_ms), "--enable-random-aborts"),
    ]
    version = context.plan.variant.kafka_version
    runtime, jars = catalogue.service("java")(), catalogue.service("jars")(version)
    command, files = java_command(version, "org.apache.kafka.tools.TransactionalMessageCopier", runtime, jars)
    return Settings({}, {"command": [*command, *arguments], "files": files, "stop_s": JAVA_STOP_S})


def _cell_of(context: LaunchContext, planned: PlannedClient) -> Cell:
    assert planned.cell is not None, planned
    return context.plan.cells[planned.cell]
