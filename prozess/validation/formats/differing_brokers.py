"""Makes one set of settings of brokers that differ: where it is known which value promises less, that one decides."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from prozess.harness.config.known_properties import Setting, Settings, default_of, is_true, properties_of, trimmed


def _kept(value: str) -> float:
    """Returns how long, or how much, is kept: a negative number is for ever."""
    number = float(value)
    return math.inf if number < 0 else number


_LESS: Mapping[str, Callable[[str], float]] = {
    **dict.fromkeys(
        (
            "min.insync.replicas", "default.replication.factor", "offsets.topic.replication.factor",
            "transaction.state.log.replication.factor", "transaction.state.log.min.isr",
            "share.coordinator.state.topic.replication.factor", "share.coordinator.state.topic.min.isr",
        ),
        float,
    ),
    **dict.fromkeys(
        (
            "log.retention.ms", "log.retention.minutes", "log.retention.hours", "log.retention.bytes",
            "log.cleaner.delete.retention.ms", "offsets.retention.minutes", "producer.id.expiration.ms",
            "transactional.id.expiration.ms",
        ),
        _kept,
    ),
    "unclean.leader.election.enable": lambda value: 0.0 if is_true(value) else 1.0,
}  # fmt: skip
"""Property → how much a value of it promises."""
OF_CONTROLLERS = ("unclean.leader.election.enable", "default.replication.factor")
"""What KRaft's controllers decide by their own settings: elections, and the copies of a topic that is made without a number.
[ConfigurationControlManager.uncleanLeaderElectionEnabledForTopic; ReplicationControlManager.defaultReplicationFactor]"""
OF_ONE_NODE = re.compile(
    r"node\.id|broker\.(id|rack)|advertised\.|(inter\.broker\.)?listener|log\.dirs?$|metadata\.log\.dir|controller\.(quorum|listener)|"
    r"process\.roles|ssl\.|sasl\.|security\.|super\.users|authorizer|zookeeper\.connect$|num\.(network|io|recovery)|port$|host\.name|"
    r"metric|confluent\.|jmx|early\.start"
)
"""In what nodes of one cluster may differ without a difference to what they promise."""


@dataclass(slots=True)
class Together:
    """The settings of several brokers as one."""

    settings: dict[str, Setting] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """Where brokers differ, and which value counts."""
    doubts: list[tuple[str, str, str]] = field(default_factory=list)
    """Name, origin and why, of a difference of which nobody knows which value promises less."""


def weakest(
    brokers: Mapping[str, Settings], version: str, controllers: Mapping[str, Settings] | None = None
) -> Together:
    """Returns what brokers promise together. `brokers`, `controllers`: the name of a node → its settings; `version`: whose
    defaults hold where a node sets nothing.

    Example: k1 has min.insync.replicas=2 and k2 has none, whose default is 1. Partitions that k2 leads accept records that
    one broker alone has, so 1 counts, and a note names both."""
    first = next(iter(brokers))
    found = Together(dict(brokers[first]))
    known = properties_of("broker", "java", version)
    names = dict.fromkeys(name for settings in brokers.values() for name in settings)
    names |= dict.fromkeys(
        name for settings in (controllers or {}).values() for name in settings if name in OF_CONTROLLERS
    )
    for name in names:
        nodes = dict(brokers) | (dict(controllers or {}) if name in OF_CONTROLLERS else {})
        values = {node: settings.get(name) for node, settings in nodes.items()}
        default = default_of(name, known) if name in known else None
        values_of = {node: default if setting is None else trimmed(setting.value) for node, setting in values.items()}
        if len(set(values_of.values())) > 1 and not OF_ONE_NODE.match(name):
            _differ(found, name, values, values_of)
    return found


def _differ(
    found: Together, name: str, values: Mapping[str, Setting | None], values_of: Mapping[str, str | None]
) -> None:
    origin = next(setting.origin for setting in values.values() if setting is not None)
    listed = ", ".join(_each(values_of))
    weight = {node: _weight(name, value) for node, value in values_of.items()}
    known = {node: weight_ for node, weight_ in weight.items() if weight_ is not None}
    if len(known) < len(values_of):
        found.doubts.append((name, origin, f"differs between brokers ({listed}): make them alike"))
        return
    weak = min(known, key=lambda node: known[node])
    setting, value = values[weak], values_of[weak]
    assert value is not None, (name, values_of)
    found.notes.append(
        f"{name} differs between brokers ({listed}): the weakest decides, {value or 'which does not set it'}"
    )
    if not value:
        found.settings.pop(name, None)
        return
    found.settings[name] = setting or Setting(value, f"{weak} leaves it at Kafka's default; {origin} sets it elsewhere")


_UNSET = {"log.retention.ms": "604800000", "log.retention.minutes": "10080"}
"""Without a default of their own: then log.retention.hours counts, 168 by default. [KafkaConfig.getLogRetentionTimeMillis]"""


def _weight(name: str, value: str | None) -> float | None:
    value = value or _UNSET.get(name)
    if value is None or name not in _LESS:
        return None
    try:
        return _LESS[name](value)
    except ValueError:
        return None


def _each(texts: Mapping[str, str | None]) -> Iterator[str]:
    by_value: dict[str | None, list[str]] = {}
    for node, value in texts.items():
        by_value.setdefault(value, []).append(node)
    for value, nodes in by_value.items():
        yield f"{value or 'not set'}: {' '.join(nodes)}"
