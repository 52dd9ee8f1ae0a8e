"""The matrix: axes to combinations, invalid ones left out by rule, each with its reason. Pure."""

from collections.abc import Mapping
from itertools import product
from typing import Any

from pydantic import ValidationError

from harness.configuration import (
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
}
SCOPES_OF: dict[str, tuple[str, ...]] = {"log": ("topic", "producer")}
"""Which configurations the cells of each kind of workload have."""


class Combination(Frozen):
    """One choice for every axis, and the configurations it makes."""

    axes: dict[str, str]
    topic: TopicConfiguration
    producer: ProducerConfiguration
    group: GroupConfiguration | None = None
    transaction: TransactionConfiguration | None = None


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
    if topic.min_insync_replicas > topic.replication_factor:
        return (
            f"min.insync.replicas={topic.min_insync_replicas} exceeds replication.factor={topic.replication_factor}: "
            "refuses every acks=all write before 3.7, is silently lowered since (KAFKA-15583)"
        )
    if topic.replication_factor > variant.brokers:
        return f"replication.factor={topic.replication_factor} needs as many brokers, the variant has {variant.brokers}"
    return None


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
        configured: dict[str, Any] = {scope: _configured(scope, chosen) for scope in SCOPES_OF[workload.kind]}
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
    if name == "properties" or name not in scopes.get(scope, {}):
        known = [f"{s}.{field}" for s, fields in scopes.items() for field in fields if field != "properties"]
        raise BadInput(f"{key!r} is not a setting of a {kind} cell. Known: {', '.join(sorted(known))}.")


def _configured(scope: str, values: Mapping[str, Any]) -> Frozen:
    mine = {key.partition(".")[2]: value for key, value in values.items() if key.startswith(scope + ".")}
    try:
        return _SCOPES[scope].model_validate(mine)
    except ValidationError as error:
        problem = error.errors()[0]
        key = f"{scope}.{problem['loc'][0]}"
        raise BadInput(f"{key} = {problem['input']!r}: {problem['msg']}.") from error
