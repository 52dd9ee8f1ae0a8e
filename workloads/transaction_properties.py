"""Settings of transactional clients, as librdkafka spells them. Pure."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness import catalogue
from harness.configuration import ProducerConfiguration
from harness.errors import BadInput
from harness.plan import Plan, PlannedClient
from workloads.properties import (
    LaunchContext,
    Property,
    Settings,
    producer_properties,
    reader_properties,
    sentinel_properties,
)
from workloads.transaction_calls import SLICE_S

FENCING_TRANSACTION_MS = 60_000
JAVA_REQUEST_MS = 10_000
"""As long as librdkafka's clients wait here (socket.timeout.ms)."""


def launch_transactor(context: LaunchContext) -> Settings:
    """Of the role `transactor`: one transactional.id."""
    planned = context.planned
    assert planned.producer is not None, planned
    assert planned.transaction is not None, planned
    assert planned.transactional_id is not None, planned
    if planned.producer.client == "java":
        return Settings({}, {**_options(context), "java": _java(context)})
    transaction = planned.transaction
    properties = producer_properties(
        living_within(planned.producer, transaction.transaction_timeout_ms),
        bootstrap_servers=context.servers,
        client_name=planned.name,
        partitions=len(planned.partitions),
        unacknowledged_max=planned.traffic.unacknowledged_max,
    )
    properties = within_transaction(properties, planned.transactional_id, timeout_ms=transaction.transaction_timeout_ms)
    return Settings(properties | dict(transaction.properties), {**_options(context), "java": None})


def _options(context: LaunchContext) -> dict[str, Any]:
    """What it does, whoever its producer is."""
    planned, transaction = context.planned, context.planned.transaction
    assert transaction is not None, planned
    assert planned.transactional_id is not None, planned
    return {
        "transactional_id": owner_of(context.plan, planned.transactional_id),
        "standby": planned.on_standby,
        "records": transaction.records,
        "dwell_ms": transaction.dwell_ms,
        "abort_share": transaction.abort_share,
        "timeout_share": transaction.timeout_share,
        "transaction_timeout_ms": transaction.transaction_timeout_ms,
        "rate_hz": transaction.rate_hz,
        "reads": _reading_properties(context),
        "hold_whole": planned.number % 2 == 0,
        "seed": f"{context.plan.seed}-{planned.name}",
    }


def _java(context: LaunchContext) -> dict[str, Any]:
    """What a `workloads.java_producer.JavaProducer` is made of. Clients are of the version of the variant."""
    planned, transaction = context.planned, context.planned.transaction
    assert planned.producer is not None, planned
    assert transaction is not None, planned
    if find_spec("jpype") is None:
        raise BadInput('producer.client = "java" needs JPype in transactions. Install it: pip install "prozess[java]".')
    runtime = catalogue.service("java")()
    jars = catalogue.service("jars")(context.plan.variant.kafka_version)
    timeout_ms = transaction.transaction_timeout_ms
    properties: dict[str, Property] = {
        "bootstrap.servers": context.servers,
        "client.id": planned.name,
        "transactional.id": str(planned.transactional_id),
        "transaction.timeout.ms": timeout_ms,
        "delivery.timeout.ms": min(planned.producer.delivery_timeout_ms, timeout_ms),
        "request.timeout.ms": min(JAVA_REQUEST_MS, timeout_ms // 2),
        "max.block.ms": int(SLICE_S * 1000),
        "linger.ms": int(planned.producer.linger_ms),
        **planned.producer.properties,
    }
    library = Path(runtime.executable).resolve().parents[1] / "lib" / "server" / "libjvm.so"
    return {"library": str(library), "jars": [str(jar) for jar in jars], "properties": properties}


def _reading_properties(context: LaunchContext) -> dict[str, Property] | None:
    """Of the consumer inside the transactions; None = they do not read."""
    planned = context.planned
    if planned.isolation_level is None:
        return None
    name = f"{planned.name}-inside"
    return reader_properties(planned.isolation_level, bootstrap_servers=context.servers, client_name=name)


def living_within(producer: ProducerConfiguration, timeout_ms: int) -> ProducerConfiguration:
    """The same, with records that do not outlive a transaction."""
    return producer.model_copy(update={"delivery_timeout_ms": min(producer.delivery_timeout_ms, timeout_ms)})


def within_transaction(
    properties: dict[str, Property], transactional_id: str, *, timeout_ms: int
) -> dict[str, Property]:
    """A transactional producer: librdkafka refuses deliveries and requests that may outlive the transaction (CONFIGURATION,
    transaction.timeout.ms)."""
    return properties | {
        "transactional.id": transactional_id,
        "transaction.timeout.ms": timeout_ms,
        "delivery.timeout.ms": min(int(properties["delivery.timeout.ms"]), timeout_ms),
        "socket.timeout.ms": min(int(properties["socket.timeout.ms"]), timeout_ms),
    }


def launch_fencer(context: LaunchContext) -> Settings:
    """Of the role `fencer`: every transactional.id that others use on its partitions."""
    mine = set(context.planned.partitions)
    ids = [c.transactional_id for c in context.plan.clients if c.transactional_id and mine.intersection(c.partitions)]
    properties = sentinel_properties(
        bootstrap_servers=context.servers, client_name=context.planned.name, timeout_s=FENCING_TRANSACTION_MS / 1000
    )
    own: dict[str, Property] = {"enable.idempotence": True, "transaction.timeout.ms": FENCING_TRANSACTION_MS}
    return Settings(
        properties | own,
        options={"transactional_ids": [(owner_of(context.plan, text), text) for text in dict.fromkeys(ids)]},
    )


def owner_of(plan: Plan, transactional_id: str) -> int:
    """The first planned client with this transactional.id: the number that stands for it in `transactions`."""

    def has_it(client: PlannedClient) -> bool:
        return client.transactional_id == transactional_id

    return next(client.client for client in plan.clients if has_it(client))
