"""The matrix: axes to combinations, invalid ones left out by rule, each with its reason. Pure."""

import difflib
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from pydantic import ValidationError

from harness.combination_rules import why_invalid_scope
from harness.configuration import (
    ApplicationConfiguration,
    CompactionConfiguration,
    CopierConfiguration,
    DeliveryBound,
    Frozen,
    GroupConfiguration,
    ProducerConfiguration,
    ProvocationConfiguration,
    TopicConfiguration,
    TransactionConfiguration,
    Variant,
    version_numbers,
)
from harness.covering import cover
from harness.delivery_bounds import SCOPE as BOUND
from harness.delivery_bounds import check_measurable, stated_bound
from harness.errors import BadInput
from harness.provocations import PROVOCATIONS
from harness.schedule import Selector
from harness.trial import Trial, WorkloadSpec
from harness.validation.known import misspelt

_SCOPES: dict[str, type[Frozen]] = {
    "topic": TopicConfiguration,
    "producer": ProducerConfiguration,
    "group": GroupConfiguration,
    "transaction": TransactionConfiguration,
    "compaction": CompactionConfiguration,
    "provocation": ProvocationConfiguration,
    "copier": CopierConfiguration,
    "application": ApplicationConfiguration,
    "delivery": DeliveryBound,
}
SCOPES = tuple(_SCOPES)
SCOPES_OF: dict[str, tuple[str, ...]] = {
    "log": ("topic", "producer"),
    "group": ("topic", "producer", "group"),
    "transactions": ("topic", "producer", "transaction"),
    "compaction": ("topic", "producer", "compaction"),
    "verifiable": ("topic", "producer"),
    "verifiable-share": ("topic", "producer"),
    "errors": ("topic", "producer", "provocation"),
    "exactly-once": ("topic", "producer", "copier"),
    "application": ("topic", "producer", "application"),
}
"""Which configurations the cells of each kind of workload have."""


DEFAULT = "default"
"""A value of an axis that sets nothing."""
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
    provocation: ProvocationConfiguration | None = None
    copier: CopierConfiguration | None = None
    application: ApplicationConfiguration | None = None
    delivery: DeliveryBound | None = None


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
    if why := why_invalid_scope(combination, variant):
        return why
    if topic.min_insync_replicas > topic.replication_factor:
        return (
            f"min.insync.replicas={topic.min_insync_replicas} exceeds replication.factor={topic.replication_factor}: "
            "refuses every acks=all write before 3.7, is silently lowered since (KAFKA-15583)"
        )
    if topic.replication_factor > variant.brokers:
        return f"replication.factor={topic.replication_factor} needs as many brokers, the variant has {variant.brokers}"
    return None


_OF_THE_TRIAL = (
    "bootstrap.servers",
    "metadata.broker.list",
    "client.id",
    "statistics.interval.ms",
    "group.id",
    "group.instance.id",
    "transactional.id",
    "enable.auto.offset.store",
    "enable.auto.commit",
)
"""Properties of clients that a trial sets itself: which servers, and who is who."""
_NAMED = {
    "topic": {
        "min.insync.replicas": "min_insync_replicas",
        "unclean.leader.election.enable": "unclean_leader_election_enable",
        "cleanup.policy": "cleanup_policy",
        "flush.messages": "flush_messages",
    },
    "producer": {
        **dict.fromkeys(("acks", "request.required.acks"), "acks"),
        "enable.idempotence": "enable_idempotence",
        **dict.fromkeys(("retries", "message.send.max.retries"), "retries"),
        **dict.fromkeys(("max.in.flight", "max.in.flight.requests.per.connection"), "max_in_flight"),
        **dict.fromkeys(("delivery.timeout.ms", "message.timeout.ms"), "delivery_timeout_ms"),
        **dict.fromkeys(("compression.type", "compression.codec"), "compression_type"),
        **dict.fromkeys(("linger.ms", "queue.buffering.max.ms"), "linger_ms"),
    },
    "group": {
        "group.protocol": "protocol",
        "auto.commit.interval.ms": "auto_commit_interval_ms",
        "auto.offset.reset": "auto_offset_reset",
        "isolation.level": "isolation_level",
        "max.poll.interval.ms": "max_poll_interval_ms",
    },
    "transaction": {"transaction.timeout.ms": "transaction_timeout_ms"},
    "copier": {
        "group.protocol": "protocol",
        "session.timeout.ms": "session_timeout_ms",
        "max.poll.interval.ms": "max_poll_interval_ms",
        "transaction.timeout.ms": "transaction_timeout_ms",
    },
}
"""Scope → property of Kafka's → the setting that it is here. Verdicts rest on the setting, so it must be the only place."""


def _check_property(scope: str, name: str) -> None:
    """BadInput for what must not be set as a property."""
    if own := _NAMED.get(scope, {}).get(name):
        raise BadInput(f"{scope}.{_PROPERTY}{name} has a name of its own here: set {scope}.{own}.")
    if scope != "topic" and name in _OF_THE_TRIAL:
        raise BadInput(f"{scope}.{_PROPERTY}{name} is set by prozess for every client. Remove it.")
    if near := misspelt(_KAFKA_HAS.get(scope, ""), name):
        raise BadInput(f"{scope}.{_PROPERTY}{name} is no property of Kafka's. Did you mean {near!r}?")


_KAFKA_HAS = {
    "topic": "topic",
    "producer": "producer",
    "transaction": "producer",
    "group": "consumer",
    "copier": "consumer",
}
"""Whose properties a scope's are, where they are only one program's."""


def implied(kind: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """What a kind of workload sets unless it is chosen otherwise. A transactional.id implies idempotence, and deliveries
    that end within the transaction (librdkafka CONFIGURATION, transactional.id and transaction.timeout.ms). An error to be
    provoked implies the limit that it breaks."""
    if "provocation" in SCOPES_OF[kind]:
        error = chosen.get("provocation.error")
        # What is no such error is refused where it is configured.
        return next((dict(made.implied) for name, made in PROVOCATIONS.items() if name == error), {})
    if "copier" in SCOPES_OF[kind]:
        return {"producer.enable_idempotence": True}
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
    """The combinations that become cells, in the order of the axes, and what was left out as invalid. BadInput if nothing is
    left, or if an axis names no setting of this kind of workload."""
    kept, left_out = valid_combinations(trial, workload)
    if not kept:
        raise BadInput(
            f"Trial {trial.name!r} has no valid cell: all {len(left_out)} combinations are excluded, the first because "
            f"{left_out[0].reason}. Change `base` or `axes`."
        )
    return _shared(covering(kept, workload), workload), left_out


def valid_combinations(trial: Trial, workload: WorkloadSpec) -> tuple[tuple[Combination, ...], tuple[Exclusion, ...]]:
    """Every valid combination in the order of the axes, and what was left out."""
    stated = stated_bound(workload)
    for key in (*stated, *workload.base, *workload.axes):
        _check_key(key, workload.kind)
    check_measurable(workload)
    for key, values in workload.axes.items():
        if not values:
            raise BadInput(f"axes.{key} is empty: give at least one value, or remove the axis.")
    kept: list[Combination] = []
    left_out: list[Exclusion] = []
    made: dict[str, Frozen] = {}
    for values in product(*workload.axes.values()):
        chosen = stated | workload.base | dict(zip(workload.axes, values, strict=True))
        axes = {"workload": workload.kind} | {key: text_of(value) for key, value in chosen.items()}
        chosen = {key: value for key, value in chosen.items() if value != DEFAULT}
        whole = implied(workload.kind, chosen) | chosen
        scopes = [*SCOPES_OF[workload.kind], *sorted({BOUND} & {key.partition(".")[0] for key in whole})]
        configured: dict[str, Any] = {scope: _configured(scope, whole, made) for scope in scopes}
        combination = Combination(axes=axes, **configured)
        reason = next((e.reason for e in workload.exclude if selects(e.when, axes)), None)
        reason = reason or _why_not_here(workload.kind, trial.variant) or why_invalid(combination, trial.variant)
        if reason:
            left_out.append(Exclusion(axes=axes, reason=reason))
        else:
            kept.append(combination)
    return tuple(kept), tuple(left_out)


def covering(valid: Sequence[Combination], workload: WorkloadSpec) -> Sequence[Combination]:
    """Those of them that the workload's strength asks for."""
    if workload.strength == "full":
        return valid
    return [valid[n] for n in cover([c.axes for c in valid], list(workload.axes), workload.strength)]


def _shared(every: Sequence[Combination], workload: WorkloadSpec) -> tuple[Combination, ...]:
    """The workload's share of them, in the same order; never empty."""
    share = workload.share
    if share is None:
        return tuple(every)
    together: dict[str, list[int]] = {}
    for number, combination in enumerate(every):
        together.setdefault(_served_by(combination) if workload.kind == "log" else str(number), []).append(number)
    groups = list(together.values())
    return tuple(every[n] for n in sorted(n for group in groups[share.part % len(groups) :: share.of] for n in group))


def _served_by(combination: Combination) -> str:
    """The same for cells that one producer of the log workload serves."""
    topic = combination.topic.model_dump_json(exclude={"flush_messages"})
    return f"{combination.producer.model_dump_json()} {topic}"


def _why_not_here(kind: str, variant: Variant) -> str | None:
    """What a kind of workload needs of the cluster, whatever its cells."""
    if kind == "verifiable-share" and version_numbers(variant.oldest_version) < (4, 2):
        return f"share groups need brokers of 4.2 or later, not {variant.oldest_version} (KIP-932)"
    return None


def _check_key(key: str, kind: str) -> None:
    scopes = {scope: _SCOPES[scope].model_fields for scope in (*SCOPES_OF[kind], BOUND)}
    scope, _, name = key.partition(".")
    if name.startswith(_PROPERTY) and len(name) > len(_PROPERTY) and scope in scopes:
        return _check_property(scope, name.removeprefix(_PROPERTY))
    if name == "properties" or name not in scopes.get(scope, {}):
        known = [f"{s}.{field}" for s, fields in scopes.items() for field in fields if field != "properties"]
        near = difflib.get_close_matches(key, known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise BadInput(
            f"{key!r} is not a setting of a {kind} cell.{hint} Known: {', '.join(sorted(known))}; and any property of "
            f"Kafka's as {scope if scope in scopes else 'topic'}.{_PROPERTY}NAME."
        )


def _configured(scope: str, values: Mapping[str, Any], made: dict[str, Frozen]) -> Frozen:
    """`made`: those of earlier combinations, by what they are made of; many share one."""
    mine: dict[str, Any] = {}
    for key, value in values.items():
        owner, _, name = key.partition(".")
        if owner == scope and name.startswith(_PROPERTY):
            mine.setdefault("properties", {})[name.removeprefix(_PROPERTY)] = value
        elif owner == scope:
            mine[name] = value
    if (known := f"{scope} {mine!r}") not in made:
        made[known] = _validated(scope, mine)
    return made[known]


def _validated(scope: str, mine: Mapping[str, Any]) -> Frozen:
    try:
        return _SCOPES[scope].model_validate(mine)
    except ValidationError as error:
        problem = error.errors()[0]
        key = f"{scope}.{problem['loc'][0]}"
        raise BadInput(f"{key} = {problem['input']!r}: {problem['msg']}.") from error
