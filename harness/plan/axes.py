"""The matrix of a trial: turns axes into combinations, leaves out invalid ones by rules, each with its reason, and
covers the rest with few of them.

Everything here is pure: it reads no clock, file or cluster.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import ValidationError

from prozess.harness.config.configuration import (
    AUTHORIZER_PROPERTIES,
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
    version_numbers,
)
from prozess.harness.config.existing_clusters import refuse_unwritable
from prozess.harness.config.known_properties import misspelt
from prozess.harness.config.library_defaults import with_library_defaults, with_members_defaults
from prozess.harness.errors import BadInput
from prozess.harness.plan.cell_work import OwnConfiguration
from prozess.harness.plan.covering import ChosenRows, choose, chosen_of, is_enumerated, rows_of
from prozess.harness.plan.mistakes import explain_truth, truths_for_numbers
from prozess.harness.plan.plan import Exclusion
from prozess.harness.plan.schedule import selects
from prozess.harness.plan.trial import Trial, WorkloadSpec
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


class Combination(Frozen):
    """One choice for every axis, and the configurations that it makes."""

    axes: dict[str, str]
    topic: TopicConfiguration
    producer: ProducerConfiguration
    own: OwnConfiguration | None = None
    """The configuration that only its kind of workload has (`WorkloadKind.own`)."""
    delivery: DeliveryBound | None = None


def text_of(value: object) -> str:
    """Returns a value as Kafka spells it: booleans in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def why_invalid(combination: Combination, variant: Variant) -> str | None:
    """Returns the rule that this combination breaks, with its source. None means that it is valid."""
    topic, producer = combination.topic, combination.producer
    if producer.enable_idempotence and producer.acks != "all":
        return f"enable.idempotence=true needs acks=all, not acks={producer.acks} (KIP-98)"
    if producer.enable_idempotence and producer.retries == "0":
        return "enable.idempotence=true needs retries > 0 (KIP-98)"
    if producer.enable_idempotence and producer.max_in_flight > 5:
        return f"enable.idempotence=true needs max.in.flight <= 5, not {producer.max_in_flight} (KAFKA-5494)"
    if why := why_invalid_client(combination, variant) or why_invalid_scope(combination, variant):
        return why
    if topic.min_insync_replicas > topic.replication_factor:
        return (
            f"min.insync.replicas={topic.min_insync_replicas} exceeds replication.factor={topic.replication_factor}: "
            "before 3.7 a broker refuses every write with acks=all, since then it silently lowers the minimum (KAFKA-15583)"
        )
    if topic.replication_factor > variant.brokers:
        return f"replication.factor={topic.replication_factor} needs as many brokers, the variant has {variant.brokers}"
    return None


OLDEST_JAVA = (2, 8)
"""The oldest minor version of Kafka's Java clients whose settings prozess knows, and whose tools it starts."""
SHARE_GROUPS_SINCE = (4, 2)
"""The first release whose share groups are for production. [KIP-932]"""
GROUP_LIMITS_SINCE = (4, 3)
"""The first release in which a share group may have a delivery count limit of its own. [KIP-1240]"""
DEAD_LETTERS_SINCE = (4, 4)
"""The first release in which a share group may have a dead-letter queue. [KIP-1191]"""
_CONSUMER_PROTOCOL_SINCE: Mapping[str, tuple[tuple[int, int], str]] = {
    "librdkafka": ((2, 4), "librdkafka 2.4.0, CHANGELOG"),
    "java": ((3, 7), "Kafka 3.7, early access"),
}
"""Client → the first version that has group.protocol=consumer, and where that stands."""


def why_invalid_client(combination: Combination, variant: Variant) -> str | None:
    """Returns why a client of the version that is asked for cannot do what the combination asks of it; None = it can."""
    own, producer = combination.own, combination.producer
    if (producer.client == "command") != bool(producer.command):
        return 'producer.command and producer.client = "command" belong together'
    if producer.client == "command":
        return _why_invalid_command(combination)
    if producer.client == "java" and (kind := combination.axes["workload"]) in _LIBRDKAFKA_ALONE:
        return (
            f"the producers of workload {kind} use librdkafka, not producer.client=java; those of transactions and "
            "verifiable may use Kafka's"
        )
    if isinstance(own, ShareConfiguration) and version_numbers(own.client_version or "4.2") < SHARE_GROUPS_SINCE:
        return f"client_version={own.client_version} has no share groups for production (KIP-932), 4.2.0 has"
    clients: list[ProducerConfiguration | GroupConfiguration | CopierConfiguration] = [combination.producer]
    if isinstance(own, GroupConfiguration | CopierConfiguration):
        clients.append(own)
    for one in clients:
        version = version_numbers(one.client_version) if one.client_version is not None else None
        if version is not None and one.client == "java" and version[:2] < OLDEST_JAVA:
            return f"client_version={one.client_version}: prozess knows Kafka's Java clients from 2.8 on"
        if version is None or isinstance(one, ProducerConfiguration) or one.protocol != "consumer":
            continue
        since, source = _CONSUMER_PROTOCOL_SINCE[one.client]
        if version[:2] < since:
            return f"client_version={one.client_version} has no group.protocol=consumer (KIP-848; {source})"
    return None


COMMAND_PLACEHOLDERS = ("python",)
"""The placeholders in the command of a producer or a consumer."""
_LIBRDKAFKA_ALONE = ("log", "group", "compaction", "share", "exactly-once")
"""The kinds of workload whose producers are librdkafka's."""
_TAKES_COMMANDS = ("verifiable", "verifiable-share")
"""The kinds of workload whose producers may be programs of your own."""


def _why_invalid_command(combination: Combination) -> str | None:
    kind, producer = combination.axes.get("workload", ""), combination.producer
    if kind not in _TAKES_COMMANDS:
        return f"producer.command is for {' and '.join(_TAKES_COMMANDS)} workloads, not for {kind}"
    if producer.defaults == "library" or producer.client_version is not None:
        return "of a command nobody knows what its library does: producer.defaults and client_version are not for it"
    return _why_no_words("producer.command", producer.command)


def _why_no_words(key: str, command: Sequence[str]) -> str | None:
    try:
        for word in command:
            word.format_map(dict.fromkeys(COMMAND_PLACEHOLDERS, ""))
    except (KeyError, ValueError, IndexError, AttributeError) as error:
        return f"{key}: {error} is no placeholder; there is {{python}}; write {{{{ and }}}} for braces"
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
            f"Trial {trial.name!r} has no valid cell: all {len(chosen.excluded)} combinations are excluded, the first "
            f"because {chosen.excluded[0][1]}. Change `base` or `axes`."
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


# Settings of one kind of workload that cannot be combined. Each rule has its source.


PLACEHOLDERS = ("bootstrap", "input", "output", "group", "instance", "delivery", "python", "trials")
"""The placeholders in an application's command and environment."""


def why_invalid_scope(combination: "Combination", variant: Variant) -> str | None:
    """Returns the rule that is broken by settings which only one kind of workload has. None means that they are
    valid."""
    producer = combination.producer
    match combination.own:
        case TransactionConfiguration() as transaction:
            return _why_invalid_transaction(transaction, producer, variant)
        case GroupConfiguration() as group:
            return _why_invalid_group(group, producer, variant)
        case ShareConfiguration() as share:
            why = None if share.transaction is None else _why_invalid_transaction(share.transaction, producer, variant)
            return why or _why_invalid_share(share, variant)
        case CopierConfiguration() as copier:
            return _why_invalid_copier(copier, producer, variant)
        case ApplicationConfiguration() as application:
            return _why_invalid_application(application)
        case ProvocationConfiguration() as provocation:
            return _why_invalid_provocation(provocation, producer, variant)
        case ConsumerConfiguration() as consumer:
            return _why_no_words("consumer.command", consumer.command)
        case CompactionConfiguration() | None:
            return None


def _why_invalid_group(group: GroupConfiguration, producer: ProducerConfiguration, variant: Variant) -> str | None:
    if group.hands_on and not group.failure_share:
        return f"on_failure={group.on_failure} needs failures: set group.failure_share"
    if group.hands_on and producer.acks != "all":
        return f"acks={producer.acks} may lose what is sent to the retry topic, which no consumer could then process"
    if group.late_members >= group.members:
        return f"late_members={group.late_members} of {group.members} members leaves nobody to begin with"
    if group.protocol != "consumer" and "session.timeout.ms" in group.properties:
        return "session.timeout.ms has a name of its own here: set group.session_timeout_ms"
    if group.client == "java" and (why := _why_not_java(group)):
        return why
    if group.assignor != "default" and (why := _why_no_such_assignor(group)):
        return why
    return _why_invalid_protocol(group.protocol, group.properties, variant)


ASSIGNORS_OF: Mapping[str, tuple[str, ...]] = {
    "classic-eager": ("range", "roundrobin", "sticky"),
    "classic-cooperative": ("cooperative-sticky",),
    "consumer": ("uniform", "range"),
}
"""Protocol of a group → the assignors that Kafka has for it. [ConsumerPartitionAssignor; KIP-429; KIP-848]"""


def _why_no_such_assignor(group: GroupConfiguration) -> str | None:
    known = ASSIGNORS_OF[group.protocol]
    if group.assignor not in known:
        return f"assignor={group.assignor} is none of those for protocol={group.protocol}: {', '.join(known)}"
    if (group.client, group.assignor) == ("librdkafka", "sticky"):
        return "librdkafka has no assignor sticky, only cooperative-sticky (CONFIGURATION.md)"
    name = "group.remote.assignor" if group.protocol == "consumer" else "partition.assignment.strategy"
    return f"{name} and assignor={group.assignor} name an assignor each: set one" if name in group.properties else None


_LOCKS = (("group.share.min.record.lock.duration.ms", 15_000), ("group.share.max.record.lock.duration.ms", 60_000))
_SESSIONS = (("group.share.min.session.timeout.ms", 45_000), ("group.share.max.session.timeout.ms", 60_000))
_DELIVERIES = (("group.share.min.delivery.count.limit", 2), ("group.share.max.delivery.count.limit", 10))
"""Properties of brokers, and their defaults, between which a share group may choose. [Kafka documentation, broker
configuration]"""
_LIMIT = "group.share.delivery.count.limit"


def _why_invalid_share(share: ShareConfiguration, variant: Variant) -> str | None:
    if share.late_members >= share.members:
        return f"late_members={share.late_members} of {share.members} members leaves nobody to begin with"
    if share.release_share + share.reject_share + share.renew_share > 1:
        return "release_share + reject_share + renew_share exceeds 1"
    if share.acknowledgement == "implicit" and share.release_share + share.reject_share + share.renew_share > 0:
        return "acknowledgement=implicit accepts everything: releases, rejects and renewals need explicit"
    if share.dead_letter_replicas and version_numbers(variant.oldest_version) < DEAD_LETTERS_SINCE:
        return f"dead_letter_replicas needs brokers of 4.4 or later, not {variant.oldest_version} (KIP-1191)"
    bounds = [
        (share.lock_duration_ms, "lock_duration_ms", _LOCKS),
        (share.session_timeout_ms, "session_timeout_ms", _SESSIONS),
    ]
    if version_numbers(variant.oldest_version) >= GROUP_LIMITS_SINCE:
        bounds.append((share.delivery_count_limit, "delivery_count_limit", _DELIVERIES))
    elif str(share.delivery_count_limit) != variant.properties.get(_LIMIT, "5"):
        return (
            f"delivery_count_limit={share.delivery_count_limit}: before 4.3 set variant.properties {_LIMIT} to the same"
        )
    for value, name, of in bounds:
        least, most = (int(variant.properties.get(key, str(default))) for key, default in of)
        if not least <= value <= most:
            return f"{name}={value} is not within the brokers' bounds, {least} to {most}: set {of[value > most][0]}"
    return None


JAVA_COMMITS = ("sync-after", "auto")
"""The ways in which a VerifiableConsumer can commit: with commitSync after each poll, or by itself at an interval."""


def _why_not_java(group: GroupConfiguration) -> str | None:
    """Returns why org.apache.kafka.tools.VerifiableConsumer cannot be such a member of a group. None means that it
    can."""
    if group.commit not in JAVA_COMMITS:
        return f"VerifiableConsumer commits in the ways {' and '.join(JAVA_COMMITS)}, not {group.commit}"
    if group.processing_ms or group.failure_share:
        return "VerifiableConsumer processes a record by printing it, which takes no processing_ms and never fails"
    if group.subscription != "topics":
        return "VerifiableConsumer subscribes to one topic by its name, not to a pattern"
    if group.auto_offset_reset == "error":
        return (
            "VerifiableConsumer ends where there is no position (NoOffsetForPartitionException): it seeks none itself"
        )
    return None


def _why_invalid_protocol(protocol: str, properties: Mapping[str, str], variant: Variant) -> str | None:
    if protocol != "consumer":
        return None
    if variant.metadata_mode == "zookeeper":
        return "group.protocol=consumer needs the group coordinator of KRaft, which ZooKeeper mode has not (KIP-848)"
    if version_numbers(variant.oldest_version) < (4, 0):
        return f"group.protocol=consumer needs brokers of 4.0 or later, not {variant.oldest_version} (KIP-848)"
    classic_only = {"session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"}
    of_brokers = sorted(classic_only & set(properties))
    if of_brokers:
        return f"group.protocol=consumer has no {of_brokers[0]}: the brokers set it (KIP-848)"
    return None


def _why_invalid_provocation(
    provocation: ProvocationConfiguration, producer: ProducerConfiguration, variant: Variant
) -> str | None:
    made = PROVOCATIONS[provocation.error]
    if producer.client != "librdkafka":
        return f"errors are provoked by librdkafka clients only, not by producer.client={producer.client}"
    if made.value_bytes and made.by_broker and producer.compression_type != "none":
        return f"compression.type={producer.compression_type} makes records too small to provoke {provocation.error}"
    if provocation.error == "timeout" and producer.acks == "0":
        return "with acks=0 a record counts as delivered once it is in a socket buffer, so nothing would time out"
    if provocation.error == "invalid-timestamp" and version_numbers(variant.oldest_version) < (3, 6):
        return f"message.timestamp.before.max.ms needs brokers of 3.6 or later, not {variant.oldest_version} (KIP-937)"
    if provocation.error == "not-authorised" and variant.metadata_mode == "zookeeper":
        return "not-authorised needs StandardAuthorizer, which keeps its rules in KRaft's metadata log (KIP-801)"
    lacking = [key for key, value in AUTHORIZER_PROPERTIES.items() if variant.properties.get(key) != value]
    if provocation.error == "not-authorised" and lacking:
        return f"not-authorised needs variant.properties.{lacking[0]} = {AUTHORIZER_PROPERTIES[lacking[0]]}"
    return None


TRANSACTION_MAX_MS = 900_000
"""The default of the brokers' transaction.max.timeout.ms. [Kafka documentation, broker configuration]"""


def _why_invalid_transaction(
    transaction: TransactionConfiguration, producer: ProducerConfiguration, variant: Variant
) -> str | None:
    if not producer.enable_idempotence:
        return "a transactional.id implies enable.idempotence=true (KIP-98)"
    if transaction.abort_share + transaction.timeout_share > 1:
        return f"abort_share {transaction.abort_share:g} + timeout_share {transaction.timeout_share:g} exceeds 1"
    too_long = producer.delivery_timeout_ms > transaction.transaction_timeout_ms
    if too_long and "delivery_timeout_ms" not in producer.left_to_client:
        return (
            f"delivery.timeout.ms={producer.delivery_timeout_ms} exceeds "
            f"transaction.timeout.ms={transaction.transaction_timeout_ms} (librdkafka CONFIGURATION, transaction.timeout.ms)"
        )
    return _why_too_long(transaction.transaction_timeout_ms, variant)


def _why_too_long(transaction_timeout_ms: int, variant: Variant) -> str | None:
    limit_ms = int(variant.properties.get("transaction.max.timeout.ms", TRANSACTION_MAX_MS))
    if transaction_timeout_ms > limit_ms:
        return (
            f"transaction.timeout.ms={transaction_timeout_ms} exceeds the brokers' "
            f"transaction.max.timeout.ms={limit_ms} (KIP-98: INVALID_TRANSACTION_TIMEOUT)"
        )
    return None


def _why_invalid_copier(copier: CopierConfiguration, producer: ProducerConfiguration, variant: Variant) -> str | None:
    if copier.transactional and not producer.enable_idempotence:
        return "a transactional.id implies enable.idempotence=true (KIP-98)"
    if copier.abort_share and not copier.transactional:
        return f"abort_share={copier.abort_share:g} needs transactions, which delivery={copier.delivery} has none of"
    if copier.client == "java" and (copier.delivery, copier.protocol) != ("exactly-once", "classic-eager"):
        return "TransactionalMessageCopier can only do exactly-once, with the range assignor of the classic protocol"
    if copier.client == "java" and copier.abort_share:
        return "TransactionalMessageCopier aborts a third of its transactions, or none: it knows no abort_share"
    if why := _why_invalid_protocol(copier.protocol, copier.properties, variant):
        return why
    return _why_too_long(copier.transaction_timeout_ms, variant) if copier.transactional else None


def _why_invalid_application(application: ApplicationConfiguration) -> str | None:
    try:
        for text in (*application.command, *application.environment.values()):
            text.format_map(dict.fromkeys(PLACEHOLDERS, ""))
    except (KeyError, ValueError, IndexError, AttributeError) as error:
        return (
            f"application.command and environment: {error} is no placeholder. There are "
            f"{', '.join('{' + name + '}' for name in PLACEHOLDERS)}; write {{{{ and }}}} for braces"
        )
    if application.output_carrier == "header" and application.input_carrier == "value":
        return "output_carrier=header needs input_carrier=header: else there is no header to copy"
    if application.output_carrier == "value" and application.input_carrier == "header":
        return "output_carrier=value needs input_carrier=value: else the value has no identity"
    return None


# Delivery bounds: on which workloads a trial may state one, and how a trial file says it.


SCOPE = "delivery"
"""The scope of `delivery.latency_s` and so on in `base` and `axes`. A cell has it only where the trial states it."""
_SENDS_UNTIMED = "its tools do not say when they sent a record"
_OF_COPIES = "its readers tail both topics, and what they are given of one says nothing of the copies in the other"
_UNMEASURABLE = {
    "verifiable": _SENDS_UNTIMED,
    "verifiable-share": _SENDS_UNTIMED,
    "exactly-once": _OF_COPIES,
    "application": _OF_COPIES,
}
"""Kind of workload → why no delivery bound can be measured on it."""


def stated_bound(workload: WorkloadSpec) -> dict[str, Any]:
    """Returns what `[delivery]` says, in the form in which `base` would say it."""
    if workload.delivery is None:
        return {}
    return {f"{SCOPE}.{key}": value for key, value in workload.delivery.model_dump(exclude_unset=True).items()}


def check_measurable(workload: WorkloadSpec) -> None:
    """Raises BadInput if a delivery bound is stated, and no consumer gets the records by which it could be measured."""
    keys = (*stated_bound(workload), *workload.base, *workload.axes)
    if any(key.startswith(f"{SCOPE}.") for key in keys) and (why := _why_unmeasurable(workload)):
        raise BadInput(
            f"delivery: the bound cannot be measured on this {workload.kind} workload, because {why}; or remove the bound."
        )


def _why_unmeasurable(workload: WorkloadSpec) -> str | None:
    if workload.kind in _UNMEASURABLE:
        return f"{_UNMEASURABLE[workload.kind]}: state it of another workload"
    if workload.kind == "group":  # its members are given the records
        return None
    if workload.kind == "transactions" and "read_committed" not in workload.isolation_levels:
        return "records count once they are committed, and no reader is at read_committed: name it in isolation_levels"
    return None if workload.isolation_levels else "it has no tailing readers: name a level in isolation_levels"
