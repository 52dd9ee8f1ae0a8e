"""Finds out how many brokers may be down and how many disks may be lost, for a topic and for the topics that Kafka keeps for
itself, and what is weak about that. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from prozess.harness.config.known_properties import Setting, default_of, is_true, properties_of
from prozess.harness.guarantees.table import TABLE
from prozess.harness.guarantees.table.cell_configuration import parse_version
from prozess.harness.guarantees.table.rules import RuleEffect
from prozess.validation.tiers import OF_STORE, STORE_FACTOR, STORE_MINIMUM, is_tiered
from prozess.validation.trial import MIN_ISR_BOUNDED, ConfigurationParts


def rules_resting_on(*facts: str) -> tuple[tuple[str, str], ...]:
    """Returns (anomaly, rule) of each rule of the guarantee table that permits something where one of these facts holds; of
    a remote store only if it is among the facts."""
    return tuple(
        (name, rule.id)
        for name, guarantee in TABLE.items()
        for rule in guarantee.rules
        if rule.effect is RuleEffect.PERMITTED
        and not set(facts).isdisjoint(rule.when)
        and (TIERED_STORAGE not in rule.when or TIERED_STORAGE in facts)
    )


def _denied(*facts: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name, _ in rules_resting_on(*facts)))


TIERED_STORAGE = "tiered storage"
WIPED = (
    "wiped",
    "wiped of either",
    "wiped after the read",
    "wiped after it was there",
    "wiped before",
    "wiped since the other",
)
"""Facts of a topic whose last copies were destroyed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopic:
    """A topic that Kafka keeps for itself."""

    id: str
    """The first part of its rules' ids."""
    name: str
    factor: str
    """The broker's property that says how many copies it has."""
    minimum: str
    """The property that says how many copies must be in sync."""
    stands: str
    """What stops while a partition of this topic accepts no writes, as a subject and a verb."""
    keeps: str
    """What the topic contains, for a person."""
    lost: tuple[str, ...] = ()
    """The facts of the guarantee table that hold where this topic loses what it has."""
    takes: tuple[str, ...] = ()
    """Anomalies that are possible then, where no rule of the table says so."""

    @property
    def settings(self) -> tuple[str, str]:
        """The names of the two properties about its copies."""
        return self.factor, self.minimum

    @property
    def rests(self) -> tuple[str, ...]:
        """Anomalies that are possible where this topic loses what it has."""
        return (*_denied(*self.lost), *self.takes)


OFFSETS = InternalTopic(
    id="internal-offsets",
    name="__consumer_offsets",
    factor="offsets.topic.replication.factor",
    minimum="min.insync.replicas",
    stands="its groups can neither join nor commit",
    keeps="what groups have committed",
    lost=("group state lost",),
)
"""It has the brokers' own min.insync.replicas and unclean.leader.election.enable.
[GroupCoordinatorService.groupMetadataTopicConfigs: cleanup.policy, compression.type, segment.bytes]"""
TRANSACTIONS = InternalTopic(
    id="internal-transactions",
    name="__transaction_state",
    factor="transaction.state.log.replication.factor",
    minimum="transaction.state.log.min.isr",
    stands="its transactional.ids can neither begin nor end a transaction",
    keeps="the outcome of transactions",
    lost=("transaction state lost", "transaction decision lost"),
)
"""No broker elects it uncleanly. [TransactionStateManager.transactionTopicConfigs]"""
SHARES = InternalTopic(
    id="internal-shares",
    name="__share_group_state",
    factor="share.coordinator.state.topic.replication.factor",
    minimum="share.coordinator.state.topic.min.isr",
    stands="its share groups receive no records",
    keeps="what share groups have acknowledged",
)


REMOTE_METADATA = InternalTopic(
    id="internal-remote-metadata",
    name="__remote_log_metadata",
    factor=STORE_FACTOR,
    minimum=STORE_MINIMUM,
    stands="segments of its partitions are neither copied to the remote store nor deleted there",
    keeps="what brokers know of the remote store",
    lost=(TIERED_STORAGE,),
    takes=("lost", "skipped", "remote-gap"),
)


# Topics that Kafka Connect and Kafka Streams make for themselves, as far as a file sets how many copies they have.


FRAMEWORK_ID = "internal-framework"
"""Begins the ids of their rules."""


@dataclass(frozen=True, slots=True)
class FrameworkTopic:
    """A topic that Connect or Streams creates for itself, or several that are set in the same way."""

    name: str
    factor: str
    """The framework's setting for the number of copies."""
    minimum: str
    """The framework's setting for how many copies must be in sync."""
    stands: str
    """What stops while a partition of this topic accepts no writes, as a subject and a verb."""
    keeps: str
    """What the topic contains, for a person."""


FRAMEWORK_TOPICS = (
    FrameworkTopic(
        "Connect's topic of offsets",
        "offset.storage.replication.factor",
        "offset.storage.min.insync.replicas",
        "source connectors cannot commit offsets",
        "the progress of source connectors",
    ),
    FrameworkTopic(
        "Connect's topic of configurations",
        "config.storage.replication.factor",
        "config.storage.min.insync.replicas",
        "no connector can be created or changed",
        "the configuration of every connector",
    ),
    FrameworkTopic(
        "Connect's topic of states",
        "status.storage.replication.factor",
        "status.storage.min.insync.replicas",
        "Connect cannot report the state of connectors",
        "the state of every connector",
    ),
    FrameworkTopic(
        "a topic that Streams creates (changelogs, repartitions)",
        "replication.factor",
        "topic.min.insync.replicas",
        "the application stops",
        "the content of the application's state stores",
    ),
)
"""[Kafka documentation, Connect: offset, config and status storage; KIP-605: their other settings; Streams:
replication.factor, topic.…] Their defaults are three copies with Connect, and what the brokers have with Streams."""


# How many brokers of a topic may be down, how many disks may be lost, and what a loss of power does. Pure.


@dataclass(frozen=True, slots=True)
class FaultTolerance:
    """Says how many brokers and disks may be gone while acks=all keeps its promise."""

    replication_factor: int
    min_insync_replicas: int
    flushed: bool
    """flush.messages=1"""

    @property
    def writes(self) -> int:
        """Returns how many brokers of a partition may be down while it accepts writes with acks=all."""
        return max(0, self.replication_factor - self.min_insync_replicas)

    @property
    def disks(self) -> int:
        """Returns how many disks of a partition may be destroyed at any moment without losing an acknowledged record."""
        return min(self.min_insync_replicas, self.replication_factor) - 1

    def sentences(self) -> Iterator[str]:
        """Returns this as a sentence for people."""
        down = (
            f"at most {self.writes} of its {self.replication_factor} brokers {'is' if self.writes == 1 else 'are'} down"
        )
        if not self.writes:
            down = "none of its brokers is down" if self.replication_factor > 1 else "its only broker is up"
        yield (
            f"replication.factor={self.replication_factor}, min.insync.replicas={self.min_insync_replicas}: a "
            f"partition accepts writes with acks=all while {down}"
        )
        disks = f"{self.disks} disk{'s' if self.disks > 1 else ''}"
        change = (
            "min.insync.replicas=2" if self.replication_factor > 2 else "replication.factor=3, min.insync.replicas=2"
        )
        safe = (
            f"survives the loss of any {disks}"
            if self.disks
            else f"may be lost with a single disk; {change} prevents this"
        )
        yield f"min.insync.replicas={self.min_insync_replicas}: a record that was acknowledged with acks=all {safe}"
        yield (
            "flush.messages=1: acknowledged records survive a loss of power"
            if self.flushed
            else "flush.messages is not 1: if all brokers that have a copy lose power at the same time, records that "
            "the operating system had not yet written to disk are lost"
        )


# Weaknesses that no anomaly says: how many brokers may be down until nobody writes, and what one disk takes away, of
# the topic and of the topics that brokers keep for themselves. Pure.


KAFKAS_DEFAULT = "Kafka's default"
RULES = {
    "replication-factor-1": "Kafka documentation, Basic Kafka Operations: a replication factor of 2 or 3 is recommended, so "
    "that machines can be bounced without interrupting data consumption",
    "min-insync-1": "Kafka documentation, topic configuration min.insync.replicas: typically replication factor 3, "
    "min.insync.replicas=2 and acks=all",
    "min-insync-equals-replication-factor": "Kafka documentation, topic configuration min.insync.replicas: if the minimum "
    "cannot be met, the producer raises NotEnoughReplicas",
    "min-insync-above-replication-factor": "KAFKA-15583, KAFKA-21110: since 3.7 brokers count min(min.insync.replicas, "
    "replicas); before, the producer raises NotEnoughReplicas",
    "fewer-brokers": "StripedReplicaPlacer: the target replication factor cannot be reached; Kafka documentation, broker "
    "configuration offsets.topic.replication.factor: creation fails until the cluster is large enough",
}
"""Each thing that can be wrong with the copies of a topic → the source that says so. The id is of/what:
availability/min-insync-1."""
ONE_DISK = ("replication-factor-1", "min-insync-1")
"""Those of them with which a single disk may take away what was acknowledged."""
UNCLEAN_OFFSETS = "internal-offsets/unclean"
_UNCLEAN_SOURCE = (
    "GroupCoordinatorService.groupMetadataTopicConfigs sets no unclean.leader.election.enable, so __consumer_offsets has the "
    "brokers'; TransactionStateManager.transactionTopicConfigs sets false for __transaction_state"
)
_CONCERNED = ("availability", OFFSETS.id, TRANSACTIONS.id, SHARES.id, REMOTE_METADATA.id, FRAMEWORK_ID)
CONCERNS = (*(f"{of}/{rule}" for of in _CONCERNED for rule in RULES), UNCLEAN_OFFSETS)
"""Every rule of this file, by id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Concern:
    """A weakness of availability, which no anomaly shows."""

    rule: str
    what: str
    """What happens when: a sentence without its full stop."""
    blame: tuple[str, ...]
    """ "min.insync.replicas=1 (topic.properties:2)" """
    change: str
    source: str
    denies: tuple[str, ...] = ()
    """The anomalies that this weakness makes possible."""
    permitted_by: tuple[str, ...] = ()
    """The rules of the guarantee table that permit them in a trial where it comes to that."""

    def sentence(self) -> str:
        """Returns this as a sentence for people."""
        verb = "are" if len(self.denies) > 1 else "is"
        denied = f"{', '.join(self.denies)} {verb} possible: " if self.denies else ""
        return f"{denied}{self.what}. {', '.join(self.blame)} → {self.change}"


@dataclass(frozen=True, slots=True)
class _Value:
    number: int
    blame: str


def concerns(parts: ConfigurationParts, *, defaults_hold: bool) -> tuple[Concern, ...]:
    """Yields the weaknesses of availability in the order of the output. `defaults_hold`: settings that no file has
    are Kafka's defaults, as the user asserts; else they are left out here."""
    return tuple(_concerns(parts, defaults_hold))


def _concerns(parts: ConfigurationParts, defaults_hold: bool) -> Iterator[Concern]:
    base, origins, servers = parts.base, parts.origins, parts.servers
    factor_given = "topic.replication_factor" in origins or defaults_hold
    minimum_given = "topic.min_insync_replicas" in origins or servers.broker is not None or defaults_hold
    factor = _Value(
        base["topic.replication_factor"],
        _blame("replication.factor", base["topic.replication_factor"], origins.get("topic.replication_factor")),
    )
    minimum = _Value(
        base["topic.min_insync_replicas"],
        _blame("min.insync.replicas", base["topic.min_insync_replicas"], origins.get("topic.min_insync_replicas")),
    )
    alone = parts.producer is None and parts.consumer is None  # topic and brokers, whoever the clients are
    waits = alone or (parts.producer is not None and base["producer.acks"] == "all")
    if factor_given:
        yield from _of_topic(parts, factor, minimum if minimum_given else None, waits=waits)
    for framework_topic in FRAMEWORK_TOPICS:
        yield from _of_framework(parts, framework_topic)
    if servers.broker is None and not defaults_hold:
        return
    internal = [OFFSETS] if alone or parts.consumer is not None else []
    waits_for_transactions = (
        base.get("group.isolation_level") == "read_committed" and "group.isolation_level" in origins
    )
    internal += [TRANSACTIONS] if alone or parts.transactional or waits_for_transactions else []
    if parts.consumer is not None and servers.broker is not None and set(SHARES.settings) & set(servers.broker):
        internal.append(SHARES)  # whether members share is in no file: reported what somebody has set
    if is_tiered(parts.servers.topic or {}):
        internal.append(REMOTE_METADATA)
    for topic in internal:
        yield from _of_internal(parts, topic)
    unclean = (servers.broker or {}).get("unclean.leader.election.enable")
    if (alone or parts.consumer is not None) and unclean is not None and is_true(unclean.value):
        yield Concern(
            rule=UNCLEAN_OFFSETS,
            what="unclean elections of __consumer_offsets are allowed, too: committed offsets may be lost, and "
            "groups then process records again, or skip them",
            blame=(_blame("unclean.leader.election.enable", "true", unclean.origin),),
            change="unclean.leader.election.enable=false of the brokers",
            source=_UNCLEAN_SOURCE,
            denies=OFFSETS.rests,
        )


def _of_topic(parts: ConfigurationParts, factor: _Value, minimum: _Value | None, *, waits: bool) -> Iterator[Concern]:
    def concern(rule: str, what: str, change: str, *blame: _Value) -> Concern:
        one_disk = rule in ONE_DISK
        return Concern(
            denies=_denied(*WIPED) if one_disk else (),
            permitted_by=tuple(id for _, id in rules_resting_on(*WIPED)) if one_disk else (),
            rule=f"availability/{rule}",
            what=what,
            blame=tuple(b.blame for b in blame),
            change=change,
            source=RULES[rule],
        )

    copies = factor.number
    if copies == 1:
        yield concern(
            "replication-factor-1",
            "while the only broker of a partition is down, nobody can write to it or read from it, and all "
            "its records are lost if that broker's disk is lost",
            "replication.factor=3, min.insync.replicas=2",
            factor,
        )
    if minimum is not None and copies > 1 and minimum.number == 1:
        yield concern(
            "min-insync-1",
            "while the leader is the only replica in sync, it acknowledges acks=all alone, and the record is "
            "lost if its disk is lost"
            if waits
            else "while the leader is the only replica in sync, it alone has what consumers are given, and that is "
            "lost if its disk "
            "is lost",
            "min.insync.replicas=2" if copies > 2 else "replication.factor=3, min.insync.replicas=2",
            minimum,
        )
    minimum = minimum if waits else None  # nobody else waits for it
    if minimum is not None and copies > 1 and minimum.number == copies:
        yield concern(
            "min-insync-equals-replication-factor",
            "as soon as one of its brokers is down, a partition refuses writes with acks=all (NOT_ENOUGH_REPLICAS)",
            "replication.factor=3" if copies == 2 else f"min.insync.replicas={copies - 1}",
            factor,
            minimum,
        )
    if minimum is not None and minimum.number > copies:
        yield concern(
            "min-insync-above-replication-factor",
            _above(parts.version, "acks=all", copies),
            f"replication.factor={minimum.number + 1}",
            factor,
            minimum,
        )
    yield from _too_few(parts, "availability", "the topic cannot be created", factor)


def _too_few(parts: ConfigurationParts, of: str, what: str, factor: _Value) -> Iterator[Concern]:
    count = parts.servers.count
    if count is not None and factor.number > count:
        yield Concern(
            rule=f"{of}/fewer-brokers",
            what=f"there are fewer brokers ({count}) than copies, so {what} (INVALID_REPLICATION_FACTOR)",
            blame=(factor.blame,),
            change=f"{factor.number} brokers, or fewer copies",
            source=RULES["fewer-brokers"],
        )


def _of_internal(parts: ConfigurationParts, topic: InternalTopic) -> Iterator[Concern]:
    factor, minimum = (_of_broker(parts, name) for name in topic.settings)
    if factor is None or minimum is None:
        return  # brokers of this version have no such topic

    def concern(rule: str, what: str, change: str, *blame: _Value) -> Concern:
        return Concern(
            denies=topic.rests if rule in ONE_DISK else (),
            permitted_by=tuple(id for _, id in rules_resting_on(*topic.lost)) if rule in ONE_DISK else (),
            rule=f"{topic.id}/{rule}",
            what=what,
            blame=tuple(b.blame for b in blame),
            change=change,
            source=RULES[rule],
        )

    if factor.number == 1:
        yield concern(
            "replication-factor-1",
            f"{topic.name} has one copy: while its broker is down, {topic.stands}, and if its disk is lost, "
            f"{topic.keeps} is lost",
            f"{topic.factor}=3 before {topic.name} is created; if it exists already, use kafka-reassign-partitions.sh",
            factor,
        )
    if factor.number > 1 and minimum.number == 1:
        yield concern(
            "min-insync-1",
            f"while only one replica of {topic.name} is in sync, one broker alone has {topic.keeps}, which is "
            "lost if its disk is lost",
            f"{topic.minimum}=2" + (" of the brokers" if topic.minimum == "min.insync.replicas" else ""),
            minimum,
        )
    if factor.number > 1 and minimum.number == factor.number:
        yield concern(
            "min-insync-equals-replication-factor",
            f"as soon as one broker of a partition of {topic.name} is down, {topic.stands}",
            f"{topic.factor}={factor.number + 1}",
            factor,
            minimum,
        )
    if minimum.number > factor.number and (factor.number > 1 or _unbounded(parts.version)):
        yield concern(
            "min-insync-above-replication-factor",
            f"{topic.name}: {_above(parts.version, 'a write', factor.number)}; {topic.stands}",
            f"{topic.factor}={minimum.number + 1}",
            factor,
            minimum,
        )
    yield from _too_few(parts, topic.id, f"{topic.name} cannot be created: {topic.stands}", factor)


def _of_framework(parts: ConfigurationParts, topic: FrameworkTopic) -> Iterator[Concern]:
    """Yields the concerns about the topics of a framework, as far as a file sets them: where none does, Connect has
    three copies, and Streams what the brokers have."""
    internal_settings = {name: setting for reading in parts.readings for name, setting in reading.internal.items()}
    factor, minimum = (_set(name, internal_settings) for name in (topic.factor, topic.minimum))

    def concern(rule: str, what: str, change: str, *blame: _Value) -> Concern:
        return Concern(
            rule=f"{FRAMEWORK_ID}/{rule}",
            what=what,
            blame=tuple(b.blame for b in blame),
            change=change,
            source=RULES[rule],
        )

    if factor is not None and factor.number == 1:
        yield concern(
            "replication-factor-1",
            f"{topic.name} has one copy: while its broker is down, {topic.stands}, and if its disk is lost, "
            f"{topic.keeps} is lost",
            f"{topic.factor}=3 before it is created; if it exists already, use kafka-reassign-partitions.sh",
            factor,
        )
    elif minimum is not None and minimum.number == 1:
        yield concern(
            "min-insync-1",
            f"while only one replica of {topic.name} is in sync, one broker alone has {topic.keeps}, which is "
            "lost if its disk is lost",
            f"{topic.minimum}=2",
            minimum,
        )
    elif factor is not None and minimum is not None and minimum.number >= factor.number:
        yield concern(
            "min-insync-equals-replication-factor",
            f"as soon as one broker of a partition of {topic.name} is down, {topic.stands}",
            f"{topic.factor}={minimum.number + 1}",
            factor,
            minimum,
        )
    if factor is not None:
        yield from _too_few(parts, FRAMEWORK_ID, f"{topic.name} cannot be created: {topic.stands}", factor)


def _set(name: str, internal_settings: dict[str, Setting]) -> _Value | None:
    setting = internal_settings.get(name)
    if setting is None or not setting.value.isdecimal():  # -1: what the brokers have
        return None
    return _Value(int(setting.value), _blame(name, setting.value, setting.origin))


def _unbounded(version: str) -> bool:
    return (parse_version(version) or MIN_ISR_BOUNDED)[:2] < MIN_ISR_BOUNDED


def _above(version: str, write: str, copies: int) -> str:
    if _unbounded(version):
        return f"{write} is always refused (NOT_ENOUGH_REPLICAS): there are never as many replicas in sync"
    if copies == 1:
        return f"min.insync.replicas has no effect: Kafka {version} never requires more replicas in sync than there are"
    return (
        f"Kafka {version} never requires more replicas in sync than there are, so a partition refuses {write} "
        "(NOT_ENOUGH_REPLICAS) as "
        "soon as one of its brokers is down"
    )


def _of_broker(parts: ConfigurationParts, name: str) -> _Value | None:
    setting: Setting | None = (parts.servers.broker or {}).get(name)
    known = properties_of("broker", "java", parts.version)
    text = setting.value if setting is not None else OF_STORE.get(name) or default_of(name, known)
    if not text.isdecimal():
        return None
    return _Value(int(text), _blame(name, text, setting.origin if setting is not None else None))


def _blame(name: str, value: object, origin: str | None) -> str:
    return f"{name}={value} ({origin or KAFKAS_DEFAULT})"
