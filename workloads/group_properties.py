"""Members of consumer groups as librdkafka spells them, and who looks up what groups committed. Pure."""

from typing import Any

from harness.configuration import GroupConfiguration
from harness.errors import BadInput
from workloads.properties import FOR_A_BROKEN_CLUSTER, LaunchContext, Property, Settings

HEARTBEAT_MAX_MS = 3_000
"""Default of heartbeat.interval.ms."""
ASSIGNORS = {"classic-eager": "range", "classic-cooperative": "cooperative-sticky"}


def launch_member(context: LaunchContext) -> Settings:
    """Of the role `member`. Options: the group's number (its cell) and what the application does with what it is given."""
    planned = context.planned
    group = planned.group
    assert group is not None, planned
    assert planned.group_id is not None, planned
    properties = member_properties(
        group,
        bootstrap_servers=context.servers,
        client_name=planned.name,
        group_id=planned.group_id,
        instance=planned.instance,
    )
    options: dict[str, Any] = {
        "group": planned.cell,
        "commit": group.commit,
        "processing_ms": group.processing_ms,
        "batch": group.batch,
        "eager": group.protocol == "classic-eager",
    }
    return Settings(properties, options)


def launch_observer(context: LaunchContext) -> Settings:
    """Of the role `observer`. Options: (group.id, topic, number, dense id) of every partition of every group it looks at."""
    wanted = set(context.planned.partitions)
    groups = {
        c.group_id: c.partitions for c in context.plan.clients if c.group_id and wanted.intersection(c.partitions)
    }
    partitions = context.plan.partitions
    looked_up = [
        (group_id, partitions[p].topic_name, partitions[p].number, p) for group_id, of in groups.items() for p in of
    ]
    properties: dict[str, Property] = {
        **FOR_A_BROKEN_CLUSTER,
        "bootstrap.servers": context.servers,
        "client.id": context.planned.name,
    }
    return Settings(properties, {"committed": looked_up})


def heartbeat_ms(group: GroupConfiguration) -> int:
    """heartbeat.interval.ms of the classic protocols: at most a quarter of the session, as Kafka's documentation advises
    no more than a third."""
    return min(HEARTBEAT_MAX_MS, max(1, group.session_timeout_ms // 4))


def member_properties(
    group: GroupConfiguration, *, bootstrap_servers: str, client_name: str, group_id: str, instance: int
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
            "heartbeat.interval.ms": heartbeat_ms(group),
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
