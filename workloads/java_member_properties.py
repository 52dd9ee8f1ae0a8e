"""How Kafka's VerifiableConsumer is started as a member of a group. Its options beat its file, so each setting is where the
tool takes it from."""

from harness.configuration import GroupConfiguration
from harness.plan import GroupSession
from workloads.properties import LaunchContext, Settings
from workloads.verifiable_properties import java_settings

ASSIGNORS = {
    "classic-eager": "org.apache.kafka.clients.consumer.RangeAssignor",
    "classic-cooperative": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
FOR_A_BROKEN_CLUSTER = {
    "request.timeout.ms": "10000",
    "socket.connection.setup.timeout.ms": "3000",
    "reconnect.backoff.ms": "50",
    "reconnect.backoff.max.ms": "300",
    "metadata.max.age.ms": "1000",
    "retry.backoff.ms": "100",
    "fetch.max.wait.ms": "100",
}
"""As `workloads.properties.FOR_A_BROKEN_CLUSTER`, in Java's spelling: the time to recover is to be the cluster's."""


def launch_java_member(context: LaunchContext) -> Settings:
    """Of the role `java-member`. Options beside the tool's: the group's id and number (its cell), whether it commits by
    itself, whether its assignments are of all partitions at once, and whether it is reset to the end."""
    planned, group = context.planned, context.planned.group
    assert group is not None, planned
    assert planned.cell is not None, planned
    assert planned.group_id is not None, planned
    cell = context.plan.cells[planned.cell]
    assert cell.session is not None, cell
    arguments = [
        *("--bootstrap-server", context.servers, "--topic", cell.topic_name, "--group-id", planned.group_id),
        *("--reset-policy", group.auto_offset_reset, "--verbose"),
        *_protocol(group),
        *(("--group-instance-id", f"{planned.group_id}-{planned.instance}") if group.static_membership else ()),
        *(("--enable-autocommit",) if group.commit == "auto" else ()),
    ]
    options = {
        "group": planned.cell,
        "group_id": planned.group_id,
        "auto": group.commit == "auto",
        "eager": group.protocol == "classic-eager",
        "latest": group.auto_offset_reset == "latest",
    }
    return java_settings(context, "consumer", arguments, member_file(group, planned.name, cell.session), options)


def member_file(group: GroupConfiguration, client_name: str, session: GroupSession) -> dict[str, str]:
    """What the options cannot say. In the consumer protocol heartbeats are the brokers' to set (KIP-848): a Java consumer
    refuses a configuration that names them."""
    classic = {"heartbeat.interval.ms": str(session.heartbeat_ms)} if group.protocol != "consumer" else {}
    return {
        **FOR_A_BROKEN_CLUSTER,
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
    """`--group-protocol` is not there before 3.7, where classic is all there is."""
    if group.protocol == "consumer":
        return ("--group-protocol", "consumer")
    return (
        *("--assignment-strategy", ASSIGNORS[group.protocol]),
        *("--session-timeout", str(group.session_timeout_ms)),
    )
