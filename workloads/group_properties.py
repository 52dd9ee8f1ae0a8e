"""Members of consumer groups as librdkafka spells them, and who looks up what groups committed. Pure."""

from typing import Any

from harness.configuration import GroupConfiguration
from harness.errors import BadInput
from harness.plan import Plan, PlannedClient
from workloads.properties import (
    FOR_A_BROKEN_CLUSTER,
    LaunchContext,
    Property,
    Settings,
    copy_rules,
    producer_properties,
)

HANDED_ON_MAX = 1_000
"""Per partition: more than a batch of any member."""
ASSIGNORS = {"classic-eager": "range", "classic-cooperative": "cooperative-sticky"}


def launch_member(context: LaunchContext) -> Settings:
    """Of the role `member`. Options: the group's number (its cell) and what the application does with what it is given."""
    planned = context.planned
    group = planned.group
    assert group is not None, planned
    assert planned.group_id is not None, planned
    assert planned.cell is not None, planned
    session = context.plan.cells[planned.cell].session
    assert session is not None, planned
    properties = member_properties(
        group,
        bootstrap_servers=context.servers,
        client_name=planned.name,
        group_id=planned.group_id,
        instance=planned.instance,
        heartbeat_ms=session.heartbeat_ms,
    )
    partitions = context.plan.partitions
    topics = sorted({partitions[p].topic_name for p in planned.partitions if not partitions[p].late})
    options: dict[str, Any] = {
        "group": planned.cell,
        # librdkafka takes what begins with ^ for a regular expression. [rd_kafka_subscribe]
        "subscribe": [f"^{topic}.*" for topic in topics] if group.subscription == "pattern" else topics,
        "failure_share": group.failure_share,
        "retry_after_ms": group.retry_after_ms,
        "commit": group.commit,
        "processing_ms": group.processing_ms,
        "batch": group.batch,
        "eager": group.protocol == "classic-eager",
        "retry_topic": _retry_topic(context, group) if group.hands_on else None,
        **copy_rules(context),
    }
    return Settings(properties, options)


def outputs_of(plan: Plan, planned: PlannedClient) -> list[tuple[int, int, str, int]]:
    """(input partition, the output partition of the same number, its topic and number), of every input partition."""
    assert planned.cell is not None, planned
    cell = plan.cells[planned.cell]
    outputs = [plan.partitions[p] for p in cell.derived]
    return [(source, o.partition, o.topic_name, o.number) for source, o in zip(cell.written, outputs, strict=True)]


def _retry_topic(context: LaunchContext, group: GroupConfiguration) -> dict[str, Any]:
    """As `workloads.retry_topic.RetryTopic` wants it: a member sends as the producers of its cell do."""
    planned = context.planned
    assert planned.producer is not None, planned
    return {
        "producer": producer_properties(
            planned.producer,
            bootstrap_servers=context.servers,
            client_name=planned.name,
            partitions=len(planned.partitions),
            unacknowledged_max=HANDED_ON_MAX,
        ),
        "outputs": outputs_of(context.plan, planned),
        "awaited": group.on_failure == "retry-topic",
    }


def launch_observer(context: LaunchContext) -> Settings:
    """Of the role `observer`. Options: (group.id, topic, number, dense id) of every partition of every group it looks at."""
    wanted = set(context.planned.partitions)
    groups = {c.group_id: c for c in context.plan.clients if c.group_id and wanted.intersection(c.partitions)}
    partitions = context.plan.partitions
    written = context.plan.written  # what copiers derive they do not consume; what a group hands on it does
    looked_up = [
        (group_id, partitions[p].topic_name, partitions[p].number, p)
        for group_id, member in groups.items()
        for p in member.partitions
        if p in written or member.group is not None
    ]
    properties: dict[str, Property] = {
        **FOR_A_BROKEN_CLUSTER,
        "bootstrap.servers": context.servers,
        "client.id": context.planned.name,
    }
    in_transactions = any(c.transactional_id is not None for c in context.plan.clients if c.group_id in groups)
    return Settings(properties, {"committed": looked_up, "stable": in_transactions})


def member_properties(
    group: GroupConfiguration,
    *,
    bootstrap_servers: str,
    client_name: str,
    group_id: str,
    instance: int,
    heartbeat_ms: int,
) -> dict[str, Property]:
    """One member. BadInput if the configuration is for another client.

    enable.auto.offset.store is on with `auto` alone: then librdkafka stores what it has *delivered*, processed or not, which
    is its default and no Java client's way (CONFIGURATION.md, enable.auto.offset.store). In the consumer protocol sessions
    and heartbeats are the brokers' (KIP-848): librdkafka refuses a configuration that names them.
    """
    if group.client != "librdkafka":
        raise BadInput(f'group.client={group.client!r} is not a client that runs here yet. Set it to "librdkafka".')
    protocol: dict[str, Property] = {"group.protocol": "consumer"}
    if group.protocol != "consumer":
        protocol = {
            "group.protocol": "classic",
            "partition.assignment.strategy": ASSIGNORS[group.protocol],
            "session.timeout.ms": group.session_timeout_ms,
            "heartbeat.interval.ms": heartbeat_ms,
        }
    if group.static_membership:
        protocol["group.instance.id"] = f"{group_id}-{instance}"
    return {
        **FOR_A_BROKEN_CLUSTER,
        **protocol,
        "bootstrap.servers": bootstrap_servers,
        "client.id": client_name,
        "group.id": group_id,
        "isolation.level": group.isolation_level,
        "check.crcs": True,
        "auto.offset.reset": group.auto_offset_reset,
        "enable.auto.commit": group.commit in ("auto", "auto-stored"),
        "enable.auto.offset.store": group.commit == "auto",
        "auto.commit.interval.ms": group.auto_commit_interval_ms,
        # librdkafka wants max.poll.interval.ms >= session.timeout.ms.
        "max.poll.interval.ms": group.max_poll_interval_ms,
        "enable.partition.eof": True,
        "allow.auto.create.topics": False,
        "fetch.wait.max.ms": 100,
        "fetch.error.backoff.ms": 100,
        "fetch.queue.backoff.ms": 100,
        **group.properties,
    }
