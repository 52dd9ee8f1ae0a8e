"""The matrix: axes to combinations, invalid ones left out by rule, each with its reason. Pure."""

from collections.abc import Mapping
from itertools import product
from typing import Any

from pydantic import ValidationError

from harness.configuration import (
    CompactionConfiguration,
    Frozen,
    GroupConfiguration,
    ProducerConfiguration,
    TopicConfiguration,
    TransactionConfiguration,
    Variant,
)
from harness.errors import BadInput
from harness.schedule import Selector
from harness.trial import Trial, WorkloadSpec

_SCOPES: dict[str, type[Frozen]] = {
    "topic": TopicConfiguration,
    "producer": ProducerConfiguration,
    "group": GroupConfiguration,
    "transaction": TransactionConfiguration,
    "compaction": CompactionConfiguration,
}
SCOPES_OF: dict[str, tuple[str, ...]] = {
    "log": ("topic", "producer"),
    "group": ("topic", "producer", "group"),
    "transactions": ("topic", "producer", "transaction"),
    "compaction": ("topic", "producer", "compaction"),
    "verifiable": ("topic", "producer"),
}
"""Which configurations the cells of each kind of workload have."""


_PROPERTY = "properties."
"""`topic.properties.segment.ms` is Kafka's own `segment.ms`, for what no configuration here has a name of its own."""


class Combination(Frozen):
    """One choice for every axis, and the configurations it makes."""

    axes: dict[str, str]
    topic: TopicConfiguration
    producer: ProducerConfiguration
    group: GroupConfiguration | None = None
    transaction: TransactionConfiguration | None = None
    compaction: CompactionConfiguration | None = None


class Exclusion(Frozen):
    """A combination that was left out, and why."""

    axes: dict[str, str]
    reason: str


def text_of(value: Any) -> str:  # noqa: ANN401 - a TOML value
    """A value as Kafka spells it: booleans in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def selects(selector: Selector, axes: Mapping[str, str]) -> bool:
    """Do these axis values satisfy the selector? An axis the cell does not have never matches."""
    return all(axes.get(key) in (value if isinstance(value, tuple) else (value,)) for key, value in selector.items())


def why_invalid(combination: Combination, variant: Variant) -> str | None:
    """The rule this combination breaks, with its source; None = valid."""
    topic, producer = combination.topic, combination.producer
    if producer.enable_idempotence and producer.acks != "all":
        return f"enable.idempotence=true needs acks=all, not acks={producer.acks} (KIP-98)"
    if producer.enable_idempotence and producer.retries == "0":
        return "enable.idempotence=true needs retries > 0 (KIP-98)"
    if producer.enable_idempotence and producer.max_in_flight > 5:
        return f"enable.idempotence=true needs max.in.flight <= 5, not {producer.max_in_flight} (KAFKA-5494)"
    if combination.transaction and (why := _why_invalid_transaction(combination.transaction, producer, variant)):
        return why
    if combination.group and (why := _why_invalid_group(combination.group, variant)):
        return why
    if topic.min_insync_replicas > topic.replication_factor:
        return (
            f"min.insync.replicas={topic.min_insync_replicas} exceeds replication.factor={topic.replication_factor}: "
            "refuses every acks=all write before 3.7, is silently lowered since (KAFKA-15583)"
        )
    if topic.replication_factor > variant.brokers:
        return f"replication.factor={topic.replication_factor} needs as many brokers, the variant has {variant.brokers}"
    return None


def _why_invalid_group(group: GroupConfiguration, variant: Variant) -> str | None:
    if group.protocol != "consumer":
        return None
    if not variant.kafka_version.startswith(tuple("456789")):
        return f"group.protocol=consumer needs brokers of 4.0 or later, not {variant.kafka_version} (KIP-848)"
    classic_only = {"session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"}
    of_brokers = sorted(classic_only & set(group.properties))
    if of_brokers:
        return f"group.protocol=consumer has no {of_brokers[0]}: it is the brokers' to set (KIP-848)"
    return None


TRANSACTION_MAX_MS = 900_000
"""Default of the brokers' transaction.max.timeout.ms. [Kafka documentation, broker configuration]"""


def _why_invalid_transaction(
    transaction: TransactionConfiguration, producer: ProducerConfiguration, variant: Variant
) -> str | None:
    if not producer.enable_idempotence:
        return "a transactional.id implies enable.idempotence=true (KIP-98)"
    if transaction.abort_share + transaction.timeout_share > 1:
        return f"abort_share {transaction.abort_share:g} + timeout_share {transaction.timeout_share:g} exceeds 1"
    if producer.delivery_timeout_ms > transaction.transaction_timeout_ms:
        return (
            f"delivery.timeout.ms={producer.delivery_timeout_ms} exceeds "
            f"transaction.timeout.ms={transaction.transaction_timeout_ms} (librdkafka CONFIGURATION, transaction.timeout.ms)"
        )
    limit_ms = int(variant.properties.get("transaction.max.timeout.ms", TRANSACTION_MAX_MS))
    if transaction.transaction_timeout_ms > limit_ms:
        return (
            f"transaction.timeout.ms={transaction.transaction_timeout_ms} exceeds the brokers' "
            f"transaction.max.timeout.ms={limit_ms} (KIP-98: INVALID_TRANSACTION_TIMEOUT)"
        )
    return None


def implied(kind: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """What a kind of workload sets unless it is chosen otherwise. A transactional.id implies idempotence, and deliveries
    that end within the transaction (librdkafka CONFIGURATION, transactional.id and transaction.timeout.ms)."""
    if "transaction" not in SCOPES_OF[kind]:
        return {}
    key, default = "transaction.transaction_timeout_ms", TransactionConfiguration().transaction_timeout_ms
    lasting = chosen.get(key, default)
    within = lasting if isinstance(lasting, int) else default  # another type is refused where it is configured
    return {
        "producer.enable_idempotence": True,
        "producer.delivery_timeout_ms": min(ProducerConfiguration().delivery_timeout_ms, within),
    }


def expand(trial: Trial, workload: WorkloadSpec) -> tuple[tuple[Combination, ...], tuple[Exclusion, ...]]:
    """Every valid combination in the order of the axes, and what was left out. BadInput if nothing is left, or if an
    axis names no setting of this kind of workload."""
    for key in (*workload.base, *workload.axes):
        _check_key(key, workload.kind)
    for key, values in workload.axes.items():
        if not values:
            raise BadInput(f"axes.{key} is empty: give at least one value, or remove the axis.")
    kept: list[Combination] = []
    left_out: list[Exclusion] = []
    for values in product(*workload.axes.values()):
        chosen = workload.base | dict(zip(workload.axes, values, strict=True))
        axes = {"workload": workload.kind} | {key: text_of(value) for key, value in chosen.items()}
        whole = implied(workload.kind, chosen) | chosen
        configured: dict[str, Any] = {scope: _configured(scope, whole) for scope in SCOPES_OF[workload.kind]}
        combination = Combination(axes=axes, **configured)
        reason = next((e.reason for e in workload.exclude if selects(e.when, axes)), None)
        reason = reason or why_invalid(combination, trial.variant)
        if reason:
            left_out.append(Exclusion(axes=axes, reason=reason))
        else:
            kept.append(combination)
    if not kept:
        raise BadInput(
            f"Trial {trial.name!r} has no valid cell: all {len(left_out)} combinations are excluded, the first because "
            f"{left_out[0].reason}. Change `base` or `axes`."
        )
    return tuple(kept), tuple(left_out)


def _check_key(key: str, kind: str) -> None:
    scopes = {scope: _SCOPES[scope].model_fields for scope in SCOPES_OF[kind]}
    scope, _, name = key.partition(".")
    if name.startswith(_PROPERTY) and len(name) > len(_PROPERTY) and scope in scopes:
        return
    if name == "properties" or name not in scopes.get(scope, {}):
        known = [f"{s}.{field}" for s, fields in scopes.items() for field in fields if field != "properties"]
        raise BadInput(
            f"{key!r} is not a setting of a {kind} cell. Known: {', '.join(sorted(known))}; and any property of Kafka's "
            f"as {scope if scope in scopes else 'topic'}.{_PROPERTY}NAME."
        )


def _configured(scope: str, values: Mapping[str, Any]) -> Frozen:
    mine: dict[str, Any] = {}
    for key, value in values.items():
        owner, _, name = key.partition(".")
        if owner == scope and name.startswith(_PROPERTY):
            mine.setdefault("properties", {})[name.removeprefix(_PROPERTY)] = value
        elif owner == scope:
            mine[name] = value
    try:
        return _SCOPES[scope].model_validate(mine)
    except ValidationError as error:
        problem = error.errors()[0]
        key = f"{scope}.{problem['loc'][0]}"
        raise BadInput(f"{key} = {problem['input']!r}: {problem['msg']}.") from error
