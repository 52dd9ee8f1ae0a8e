"""Settings of copying groups, as librdkafka spells them. Pure."""

from typing import Any

from harness.configuration import CopierConfiguration, GroupConfiguration
from harness.plan import group_session
from workloads.group_properties import member_properties, outputs_of
from workloads.properties import LaunchContext, Property, Settings, producer_properties
from workloads.transaction_properties import living_within, owner_of, within_transaction

IN_FLIGHT_MAX = 10_000
IDLE_MAX_MS = 3_000
"""send_offsets_to_transaction may wait for ever for a group coordinator that is gone, whatever its timeout, until any
connection of the producer changes (librdkafka#5456, #5511; seen with 2.16.0). Idle ones are closed, so that one does."""


def launch_copier(context: LaunchContext) -> Settings:
    """Of the role `copier`: the consumer's properties; the producer's are among the options."""
    planned, copier = context.planned, context.planned.copier
    assert copier is not None, planned
    assert planned.group_id is not None, planned
    assert planned.cell is not None, planned
    group = group_of(copier)
    properties = member_properties(
        group,
        bootstrap_servers=context.servers,
        client_name=planned.name,
        group_id=planned.group_id,
        instance=planned.instance,
        heartbeat_ms=group_session(group, context.plan.variant).heartbeat_ms,
    )
    transactional_id = planned.transactional_id
    options: dict[str, Any] = {
        "group": planned.cell,
        "commit": "none",
        "processing_ms": copier.processing_ms,
        "batch": copier.batch,
        "eager": copier.protocol == "classic-eager",
        "subscribe": [context.plan.cells[planned.cell].topic_name],
        "failure_share": group.failure_share,
        "retry_after_ms": group.retry_after_ms,
        "outputs": outputs_of(context.plan, planned),
        "delivery": copier.delivery,
        "abort_share": copier.abort_share,
        "seed": f"{context.plan.seed}-{planned.name}",
        "transactional_id": owner_of(context.plan, transactional_id) if transactional_id else planned.client,
        "producer": _producer(context, copier),
    }
    return Settings(properties, options)


def group_of(copier: CopierConfiguration) -> GroupConfiguration:
    """Its members as members of any group that commits by itself."""
    return GroupConfiguration(
        protocol=copier.protocol,
        commit="none",
        session_timeout_ms=copier.session_timeout_ms,
        max_poll_interval_ms=copier.max_poll_interval_ms,
        batch=copier.batch,
        members=copier.members,
        properties=copier.properties,
    )


def _producer(context: LaunchContext, copier: CopierConfiguration) -> dict[str, Property]:
    planned = context.planned
    assert planned.producer is not None, planned
    timeout_ms, in_transactions = copier.transaction_timeout_ms, planned.transactional_id is not None
    properties = producer_properties(
        living_within(planned.producer, timeout_ms) if in_transactions else planned.producer,
        bootstrap_servers=context.servers,
        client_name=planned.name,
        partitions=len(planned.partitions),
        unacknowledged_max=IN_FLIGHT_MAX,
    )
    if planned.transactional_id is None:
        return properties
    properties = {"connections.max.idle.ms": IDLE_MAX_MS} | properties
    return within_transaction(properties, planned.transactional_id, timeout_ms=timeout_ms)
