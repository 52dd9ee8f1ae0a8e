"""How transactional clients are launched: what their processes are given, for librdkafka's and for Java's producer."""

from prozess.harness.config.configuration import ProducerConfiguration
from prozess.harness.plan.cell_work import TransactionsWork, work_as
from prozess.harness.plan.plan import Plan, PlannedClient
from prozess.workloads.java import REQUEST_MS, JavaOptions, java_options
from prozess.workloads.settings import (
    LaunchContext,
    Property,
    RoleOptions,
    Settings,
    left_properties,
    producer_properties,
    reader_properties,
    sentinel_properties,
)
from prozess.workloads.transactions.calls import SLICE_S

FENCING_TRANSACTION_MS = 60_000


def launch_transactor(context: LaunchContext) -> Settings:
    """Makes the settings of a client with the role `transactor`: one transactional.id."""
    planned = context.planned
    assert planned.producer is not None, planned
    assert planned.transactional_id is not None, planned
    if planned.producer.client == "java":
        return Settings({}, _options(context, _java(context)))
    transaction = work_as(TransactionsWork, planned.work).configuration
    properties = producer_properties(
        within_lifetime(planned.producer, transaction.transaction_timeout_ms),
        bootstrap_servers=context.servers,
        client_name=planned.name,
        partitions=len(planned.partitions),
        unacknowledged_max=planned.traffic.unacknowledged_max,
    )
    properties = within_transaction(properties, planned.transactional_id, timeout_ms=transaction.transaction_timeout_ms)
    return Settings(properties | dict(transaction.properties), _options(context, None))


class TransactorOptions(RoleOptions):
    """Describes what a transactor does. `hold_whole`: of a transaction that is held all is written before, else half."""

    transactional_id: int
    standby: bool
    records: int
    dwell_ms: float
    abort_share: float
    timeout_share: float
    transaction_timeout_ms: int
    rate_hz: float
    reads: dict[str, Property] | None
    """The properties of the consumer inside the transactions; None: they do not read."""
    hold_whole: bool
    seed: str
    java: JavaOptions | None
    """None: its producer is librdkafka's."""


def _options(context: LaunchContext, java: JavaOptions | None) -> TransactorOptions:
    planned, transaction = context.planned, work_as(TransactionsWork, context.planned.work).configuration
    assert planned.transactional_id is not None, planned
    return TransactorOptions(
        transactional_id=owner_of(context.plan, planned.transactional_id),
        standby=planned.on_standby,
        records=transaction.records,
        dwell_ms=transaction.dwell_ms,
        abort_share=transaction.abort_share,
        timeout_share=transaction.timeout_share,
        transaction_timeout_ms=transaction.transaction_timeout_ms,
        rate_hz=transaction.rate_hz,
        reads=_reading_properties(context),
        hold_whole=planned.number % 2 == 0,
        seed=f"{context.plan.seed}-{planned.name}",
        java=java,
    )


def _java(context: LaunchContext) -> JavaOptions:
    """Returns what a `JavaProducer` is made of."""
    planned, transaction = context.planned, work_as(TransactionsWork, context.planned.work).configuration
    assert planned.producer is not None, planned
    timeout_ms = transaction.transaction_timeout_ms
    properties: dict[str, Property] = {
        "bootstrap.servers": context.servers,
        "client.id": planned.name,
        "transactional.id": str(planned.transactional_id),
        "transaction.timeout.ms": timeout_ms,
        "delivery.timeout.ms": min(planned.producer.delivery_timeout_ms, timeout_ms),
        "request.timeout.ms": min(REQUEST_MS, timeout_ms // 2),
        "max.block.ms": int(SLICE_S * 1000),
        "linger.ms": int(planned.producer.linger_ms),
    }
    if planned.producer.defaults == "library":
        left = {*left_properties(planned.producer), "request.timeout.ms"}
        properties = {key: value for key, value in properties.items() if key not in left}
    properties |= planned.producer.properties
    return java_options(context, properties, wanted_by='producer.client = "java" in transactions')


def _reading_properties(context: LaunchContext) -> dict[str, Property] | None:
    """Returns the properties of the consumer inside the transactions; None = they do not read."""
    planned = context.planned
    if planned.isolation_level is None:
        return None
    name = f"{planned.name}-inside"
    return reader_properties(planned.isolation_level, bootstrap_servers=context.servers, client_name=name)


def within_lifetime(producer: ProducerConfiguration, timeout_ms: int) -> ProducerConfiguration:
    """Returns a producer's configuration with records that do not outlive a transaction."""
    if "delivery_timeout_ms" in producer.left_to_client:
        return producer
    return producer.model_copy(update={"delivery_timeout_ms": min(producer.delivery_timeout_ms, timeout_ms)})


def within_transaction(
    properties: dict[str, Property], transactional_id: str, *, timeout_ms: int
) -> dict[str, Property]:
    """Makes a producer's properties transactional. librdkafka refuses deliveries and requests that may outlive the
    transaction (CONFIGURATION, transaction.timeout.ms); those that nobody set it lowers itself."""
    lasting = {key: min(int(properties[key]), timeout_ms) for key in _WITHIN if key in properties}
    return properties | {"transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms} | lasting


_WITHIN = ("delivery.timeout.ms", "socket.timeout.ms")
"""Properties that must not exceed the timeout of a transaction."""


class FencerOptions(RoleOptions):
    """The transactional.ids that are fenced, each as (number, text)."""

    transactional_ids: tuple[tuple[int, str], ...]


def launch_fencer(context: LaunchContext) -> Settings:
    """Makes the settings of a client with the role `fencer`: every transactional.id that others use on its partitions."""
    mine = set(context.planned.partitions)
    ids = [c.transactional_id for c in context.plan.clients if c.transactional_id and mine.intersection(c.partitions)]
    properties = sentinel_properties(
        bootstrap_servers=context.servers, client_name=context.planned.name, timeout_s=FENCING_TRANSACTION_MS / 1000
    )
    own: dict[str, Property] = {"enable.idempotence": True, "transaction.timeout.ms": FENCING_TRANSACTION_MS}
    return Settings(
        properties | own,
        FencerOptions(
            transactional_ids=tuple((owner_of(context.plan, text), text) for text in dict.fromkeys(ids)),
        ),
    )


def owner_of(plan: Plan, transactional_id: str) -> int:
    """Returns the first planned client with this transactional.id: its number stands for the id in `transactions`."""

    def has_it(client: PlannedClient) -> bool:
        return client.transactional_id == transactional_id

    return next(client.client for client in plan.clients if has_it(client))
