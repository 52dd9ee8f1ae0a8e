"""The matrix of a trial: turns axes into combinations, leaves out invalid ones by rules, each with its reason, and
covers the rest with few of them.

Everything here is pure: it reads no clock, file or cluster.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import ValidationError

from prozess.harness.config.configuration import (
    PROVOCATIONS,
    ApplicationConfiguration,
    CompactionConfiguration,
    ConsumerConfiguration,
    CopierConfiguration,
    DeliveryBound,
    GroupConfiguration,
    ProducerConfiguration,
    ProvocationConfiguration,
    ShareConfiguration,
    TopicConfiguration,
    TransactionConfiguration,
    Variant,
)
from prozess.harness.config.existing_clusters import refuse_unwritable
from prozess.harness.config.known_properties import misspelt
from prozess.harness.config.library_defaults import with_library_defaults, with_members_defaults
from prozess.harness.errors import BadInput
from prozess.harness.plan.covering import ChosenRows, choose, chosen_of, is_enumerated, rows_of
from prozess.harness.plan.delivery_bounds import SCOPE, check_measurable, stated_bound
from prozess.harness.plan.mistakes import explain_truth, truths_for_numbers
from prozess.harness.plan.plan import Exclusion
from prozess.harness.plan.schedule import selects
from prozess.harness.plan.trial import Trial, WorkloadSpec
from prozess.harness.plan.validity import Combination, why_invalid
from prozess.harness.plan.workloads.registry import KINDS
from prozess.harness.suggestions import did_you_mean
from prozess.harness.values import Frozen

SCOPE_MODELS: dict[str, type[Frozen]] = {
    "topic": TopicConfiguration,
    "producer": ProducerConfiguration,
    "group": GroupConfiguration,
    "share_group": ShareConfiguration,
    "transaction": TransactionConfiguration,
    "compaction": CompactionConfiguration,
    "provocation": ProvocationConfiguration,
    "consumer": ConsumerConfiguration,
    "copier": CopierConfiguration,
    "application": ApplicationConfiguration,
    "delivery": DeliveryBound,
}
SCOPES = tuple(SCOPE_MODELS)


DEFAULT = "default"
"""The value of an axis that sets nothing."""
_PROPERTY = "properties."
"""How a key begins that is Kafka's own property: `topic.properties.segment.ms` is `segment.ms`. It is for properties
that have no name of their own here."""


_NOT_SET = ("properties", "left_to_client")
"""Fields of configurations that are no settings of a trial."""


def text_of(value: object) -> str:
    """Returns a value as Kafka spells it: booleans in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)


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
"""The client properties that a trial sets itself: which servers to connect to, and who is who."""
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
"""Scope → property of Kafka → the setting that stands for it here. Verdicts go by the setting, so it must be the only
place."""


def _check_property(scope: str, name: str) -> None:
    """Raises BadInput for a property that must not be set as one."""
    if own := _NAMED.get(scope, {}).get(name):
        raise BadInput(f"{scope}.{_PROPERTY}{name} has a name of its own here: set {scope}.{own}.")
    if scope != "topic" and name in _OF_THE_TRIAL:
        raise BadInput(f"{scope}.{_PROPERTY}{name} is set by prozess for every client. Remove it.")
    if near := misspelt(_KAFKA_HAS.get(scope, ""), name):
        raise BadInput(f"{scope}.{_PROPERTY}{name} is no property of Kafka's. Did you mean {near!r}?")
    if scope != "topic":
        refuse_unwritable([name], f"{scope}.{_PROPERTY}")


_KAFKA_HAS = {
    "topic": "topic",
    "producer": "producer",
    "transaction": "producer",
    "group": "consumer",
    "copier": "consumer",
}
"""Scope → the kind of Kafka's properties that it takes, where they belong to only one program."""


def implied(kind: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings that a kind of workload has unless you choose otherwise.

    A transactional.id implies idempotence, and deliveries that end within the transaction (librdkafka CONFIGURATION,
    transactional.id and transaction.timeout.ms). An error that is to be provoked implies the limit that it breaks.
    """
    if "provocation" in KINDS[kind].scopes:
        error = chosen.get("provocation.error")
        # What is no such error is refused where it is configured.
        return next((dict(made.implied) for name, made in PROVOCATIONS.items() if name == error), {})
    if "copier" in KINDS[kind].scopes:  # of the copiers and of those that write what they copy, which have no such id
        return {"producer.enable_idempotence": True}
    if "transaction" not in KINDS[kind].scopes or chosen.get("producer.defaults") == "library":
        return {}  # the library itself makes a producer with a transactional.id idempotent
    key, default = "transaction.transaction_timeout_ms", TransactionConfiguration().transaction_timeout_ms
    lasting = chosen.get(key, default)
    within = lasting if isinstance(lasting, int) else default  # another type is refused where it is configured
    return {
        "producer.enable_idempotence": True,
        "producer.delivery_timeout_ms": min(ProducerConfiguration().delivery_timeout_ms, within),
    }


def expand(trial: Trial, workload: WorkloadSpec) -> tuple[tuple[Combination, ...], tuple[Exclusion, ...]]:
    """Returns the combinations that become cells, in the order of the axes, and those that were left out as invalid.
    BadInput if none is left, or if an axis names no setting of this kind of workload."""
    chosen, cells = choose_cells(trial, workload)
    if not cells:
        raise BadInput(
            f"Trial {trial.name!r} has no valid {workload.kind} cell. Combinations are excluded: {chosen.why_none()}. "
            "Change `base` or `axes`."
        )
    return _shared(cells, workload), exclusions_of(chosen, workload)


def choose_cells(trial: Trial, workload: WorkloadSpec) -> tuple[ChosenRows, tuple[Combination, ...]]:
    """Returns the values of the axes that the workload's strength asks for, and the combinations that they make. BadInput if
    an axis names no setting of this kind of workload."""
    return CellTable(trial.name, workload).choose(trial.variant)


class CellTable:
    """The table of a workload's cells: each combination is made once, for clusters of however many kinds."""

    def __init__(self, name: str, workload: WorkloadSpec) -> None:
        """`name`: the trial's. BadInput if an axis names no setting of this kind of workload."""
        self._stated = stated_bound(workload)
        for key in (*self._stated, *workload.base, *workload.axes):
            _check_key(key, workload.kind)
        check_measurable(workload)
        for key, values in workload.axes.items():
            if not values:
                raise BadInput(f"axes.{key} is empty: give at least one value, or remove the axis.")
        self._workload, self._seed = workload, f"{name} {workload.kind}"
        self._texts = {key: {text_of(value): value for value in values} for key, values in workload.axes.items()}
        self._by_axis = {key: list(by_text) for key, by_text in self._texts.items()}
        self._base = self._stated | workload.base
        self._base_axes = {"workload": workload.kind} | {key: text_of(value) for key, value in self._base.items()}
        self._made: dict[str, Frozen] = {}
        """Configurations of earlier combinations, since many are the same."""
        self._combinations: dict[tuple[str, ...], Combination] = {}
        """Kafka's version, and the values of the axes → what they make."""
        self._rows = rows_of(self._by_axis) if is_enumerated(self._by_axis, workload.strength) else None
        self._chosen: dict[tuple[str | None, ...], ChosenRows] = {}
        """Why each row is invalid → what is chosen then: clusters of many kinds have the same cells."""

    def choose(self, variant: Variant) -> tuple[ChosenRows, tuple[Combination, ...]]:
        """Returns the values of the axes that the workload's strength asks for in such a cluster, and the combinations that
        they make."""
        workload = self._workload
        nowhere = KINDS[workload.kind].why_not_here(variant)

        def why_not(row: Mapping[str, str]) -> str | None:
            combination = self._combination_of(row, variant)
            excluded = (e.reason for e in workload.exclude if selects(e.when, combination.axes))
            return next(excluded, None) or nowhere or why_invalid(combination, variant)

        if self._rows is None:
            chosen = choose(self._by_axis, workload.strength, why_not, seed=self._seed)
        else:
            whys = tuple(map(why_not, self._rows))
            if whys not in self._chosen:
                self._chosen[whys] = chosen_of(self._by_axis, workload.strength, self._rows, whys)
            chosen = self._chosen[whys]
        return chosen, tuple(self._combination_of(row, variant) for row in chosen.rows)

    def _combination_of(self, row: Mapping[str, str], variant: Variant) -> Combination:
        known = (
            variant.kafka_version,
            *(row[axis] for axis in self._texts),
        )  # a library's defaults are those of a version
        if known not in self._combinations:
            texts, kind = self._texts, self._workload.kind
            chosen = {
                key: value
                for key, value in (self._base | {key: texts[key][text] for key, text in row.items()}).items()
                if value != DEFAULT
            }
            values = implied(kind, chosen) | chosen
            self._combinations[known] = _combination(kind, {**self._base_axes, **row}, values, self._made, variant)
        return self._combinations[known]


def why_not_here(workload: WorkloadSpec, variant: Variant) -> str | None:
    """Returns why such a cluster cannot have any cell of the workload; None if it can."""
    if (
        text_of(workload.base.get("topic.properties.remote.storage.enable", False)) == "true"
        and not variant.tiered_storage
    ):
        return "the brokers have no remote store for topics with remote.storage.enable=true (variant.tiered_storage)"
    return KINDS[workload.kind].why_not_here(variant)


def exclusions_of(chosen: ChosenRows, workload: WorkloadSpec) -> tuple[Exclusion, ...]:
    """Returns each invalid combination with the reason; of axes that were searched, each choice of values that no valid
    combination was found with."""
    kind = {"workload": workload.kind}
    if chosen.valid is None:
        apart = ((values, chosen.why_impossible(values)) for values in chosen.impossible)
        return tuple(Exclusion(axes=kind | values, reason=why) for values, why in apart)
    base = {key: text_of(value) for key, value in (stated_bound(workload) | workload.base).items()}
    return tuple(Exclusion(axes=kind | base | row, reason=why) for row, why in chosen.excluded)


def _shared(every: Sequence[Combination], workload: WorkloadSpec) -> tuple[Combination, ...]:
    """Returns the workload's share of the combinations, in the same order. It is never empty."""
    share = workload.share
    if share is None:
        return tuple(every)
    together: dict[str, list[int]] = {}
    for number, combination in enumerate(every):
        together.setdefault(_served_by(combination) if workload.kind == "log" else str(number), []).append(number)
    groups = list(together.values())
    return tuple(every[n] for n in sorted(n for group in groups[share.part % len(groups) :: share.of] for n in group))


def _served_by(combination: Combination) -> str:
    """Returns a text that is equal for cells which one producer of the log workload can serve together."""
    topic = combination.topic.model_dump_json(exclude={"flush_messages"})
    return f"{combination.producer.model_dump_json()} {topic}"


def _check_key(key: str, kind: str) -> None:
    scopes = {scope: SCOPE_MODELS[scope].model_fields for scope in (*KINDS[kind].scopes, SCOPE)}
    scope, _, name = key.partition(".")
    if name.startswith(_PROPERTY) and len(name) > len(_PROPERTY) and scope in scopes:
        return _check_property(scope, name.removeprefix(_PROPERTY))
    if name in _NOT_SET or name not in scopes.get(scope, {}):
        known = [f"{s}.{field}" for s, fields in scopes.items() for field in fields if field not in _NOT_SET]
        raise BadInput(
            f"{key!r} is not a setting of a {kind} cell; {did_you_mean(key, known)} "
            f"Known: {', '.join(sorted(known))}; and any property of "
            f"Kafka's as {scope if scope in scopes else 'topic'}.{_PROPERTY}NAME."
        )


def _combination(
    kind: str, axes: dict[str, str], values: Mapping[str, Any], made: dict[str, Frozen], variant: Variant
) -> Combination:
    fields = {"topic": "topic", "producer": "producer"}
    if (scope := KINDS[kind].own) is not None:
        fields["own"] = scope
    if any(key.startswith(f"{SCOPE}.") for key in values):
        fields["delivery"] = SCOPE
    of_scope: dict[str, dict[str, Any]] = {scope: {} for scope in fields.values()}
    for key, value in values.items():
        owner, name, is_property = _parts_of(key)
        if owner in of_scope:
            mine = of_scope[owner].setdefault("properties", {}) if is_property else of_scope[owner]
            mine[name] = value
    configured: dict[str, Any] = {field: _configured(scope, of_scope[scope], made) for field, scope in fields.items()}
    combination = Combination(axes=axes, **configured)
    own = combination.own
    if isinstance(own, GroupConfiguration) and own.defaults == "library":
        given = {name for scope, _, name in (key.partition(".") for key in values) if scope == "group"}
        own = with_members_defaults(own, given, kafka_version=variant.kafka_version)
        combination = combination.model_copy(update={"own": own})
    if combination.producer.defaults == "prozess" or combination.producer.client == "command":
        return combination
    producer = with_library_defaults(
        combination.producer,
        {name for scope, _, name in (key.partition(".") for key in values) if scope == "producer"},
        kafka_version=variant.kafka_version,
        transaction_timeout_ms=own.transaction_timeout_ms if isinstance(own, TransactionConfiguration) else None,
    )
    return combination.model_copy(update={"producer": producer})


@cache
def _parts_of(key: str) -> tuple[str, str, bool]:
    """Returns the scope of a key, its name there, and whether it is a property of Kafka's."""
    scope, _, name = key.partition(".")
    return scope, name.removeprefix(_PROPERTY), name.startswith(_PROPERTY)


def with_topic(combination: Combination, settings: Mapping[str, Any], variant: Variant) -> Combination:
    """Returns the combination with some settings of its topic changed (`topic.key` = value). BadInput for a setting that
    is none of a topic's, or that is invalid in the combination."""
    if others := [key for key in settings if not key.startswith("topic.")]:
        raise BadInput(f"settings: {others[0]!r} is no setting of a topic. Give keys as topic.retention.ms.")
    mine: dict[str, Any] = combination.topic.model_dump()
    for key, value in settings.items():
        _check_key(key, combination.axes["workload"])
        _, name, is_property = _parts_of(key)
        (mine["properties"] if is_property else mine)[name] = value
    topic = _validated("topic", mine)
    assert isinstance(topic, TopicConfiguration)
    changed = combination.model_copy(update={"topic": topic})
    if why := why_invalid(changed, variant):
        raise BadInput(f"settings {dict(settings)} make an invalid topic: {why}.")
    return changed


def _configured(scope: str, mine: dict[str, Any], made: dict[str, Frozen]) -> Frozen:
    """Makes a configuration of a combination. `made` holds those of earlier combinations."""
    if (known := f"{scope} {mine!r}") not in made:
        made[known] = _validated(scope, mine)
    return made[known]


def _validated(scope: str, mine: dict[str, Any]) -> Frozen:
    for path, value in truths_for_numbers(SCOPE_MODELS[scope], mine):
        raise BadInput(explain_truth((scope, *path), value))
    try:
        return SCOPE_MODELS[scope].model_validate(mine)
    except ValidationError as error:
        problem = error.errors()[0]
        key = f"{scope}.{problem['loc'][0]}"
        raise BadInput(f"{key} = {problem['input']!r}: {problem['msg']}.") from error
