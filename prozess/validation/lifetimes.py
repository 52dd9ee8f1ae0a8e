"""Finds what a configuration forgets or gives up after a time, so that somebody who is away for longer, or does not
look, loses it: records, committed offsets, tombstones, producers, and records that a client stops sending. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prozess.harness.config.configuration import version_numbers
from prozess.harness.config.known_properties import (
    Property,
    Setting,
    Settings,
    default_of,
    is_placeholder,
    number,
    properties_of,
)
from prozess.validation.availability import KAFKAS_DEFAULT, Concern
from prozess.validation.trial import ConfigurationParts

AWAY_MAX_MS = 86_400_000
"""A consumer, a group or a broker that is away for up to a day must miss nothing: a night in which nobody looks."""
OF_RECORDS = ("skipped", "unprocessed")
"""Anomalies of a consumer that comes too late for what was deleted."""
ELECTED_MS = 4_000
"""After a broker's session is over, another leads and clients know it within so long."""
_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000
_OF_BROKERS = (("log.retention.ms", 1), ("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS))
"""What brokers keep records for, by property, the first that is set counts, and how many ms its unit has.
[KafkaConfig.getLogRetentionTimeMillis]"""
_WEEK = {name: f"{name}={7 * 24 * _HOUR_MS // unit_ms}" for name, unit_ms in (("retention.ms", 1), *_OF_BROKERS)}
"""Each of these settings with a week, which is Kafka's default (log.retention.hours=168)."""
_SESSIONS = {"zookeeper": "zookeeper.session.timeout.ms"}
"""Metadata mode → the property after which a dead broker counts as dead; else broker.session.timeout.ms."""
_EXPONENTIAL = (3, 7)
"""The first release whose Java clients wait longer before each further retry (KIP-580)."""
RULES: Mapping[str, str] = {
    "lifetime/records": "Kafka documentation, topic configuration retention.ms: 'an SLA on how soon consumers must "
    "read their "
    "data'; retention.bytes",
    "lifetime/offsets": "KIP-211; Kafka documentation, broker configuration offsets.retention.minutes",
    "lifetime/tombstones": "Kafka documentation, topic configuration delete.retention.ms: 'a bound on the time in which a "
    "consumer must complete a read if they begin from offset 0'",
    "lifetime/producers": "KIP-854; Kafka documentation, broker configuration producer.id.expiration.ms: the same or higher "
    "than delivery.timeout.ms",
    "client/gives-up": "Kafka documentation, producer configuration delivery.timeout.ms; librdkafka CONFIGURATION, "
    "message.timeout.ms, retries",
}
"""Every rule of this file → the source that says so."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """How long something is kept. `value`: ms, or None for ever."""

    name: str
    value: int | None
    text: str
    """The value that is set, or Kafka's default."""
    origin: str = ""
    """Where somebody set it; empty: nobody did."""

    def blame(self) -> str:
        """ "retention.ms=60000 (topic.properties:3)" """
        return f"{self.name}={self.text} ({self.origin or KAFKAS_DEFAULT})"

    def shorter_than(self, ms: int) -> bool:
        """Returns whether somebody who is away for so long finds it gone."""
        return self.value is not None and self.value < ms


def lifetimes(parts: ConfigurationParts, *, defaults_hold: bool) -> Iterator[Concern]:
    """Yields the data that is deleted, or given up, too soon. Settings that no file has are left out unless Kafka's defaults
    hold.
    """
    servers_given = parts.servers.broker is not None or defaults_hold
    only_producer = parts.producer is not None and parts.consumer is None  # who reads what it writes is not asked
    if not parts.compacted and not only_producer:
        yield from _of_records(parts, servers_given)
    if servers_given and parts.consumer is not None:
        yield from _of_offsets(parts)
    if parts.compacted and (kept := tombstones(parts)) is not None and kept.shorter_than(AWAY_MAX_MS):
        yield _concern(
            "lifetime/tombstones",
            f"a reader that takes longer than {in_words(kept.value)} from a record to its tombstone, or a broker that is "
            "away for longer, keeps a deleted key with its older value",
            f"{kept.name}=86400000, Kafka's default, or longer",
            kept,
            denies=("tombstone-lost",),
            permitted_by=("tombstone-lost/slow-audit", "tombstone-lost/replica-away"),
        )
    if servers_given and parts.producer is not None:
        yield from _of_producers(parts)
    if parts.producer is not None:
        yield from _given_up(parts)


def conditions(parts: ConfigurationParts, *, defaults_hold: bool) -> Iterator[str]:
    """Yields how long somebody may be away, where that is long enough to be promised, as sentences."""
    if parts.consumer is None or parts.compacted:
        return
    kept = records(parts)
    if kept.value is not None and not kept.shorter_than(AWAY_MAX_MS):
        yield f"no consumer is away for longer than {in_words(kept.value)}, after which records are deleted: {kept.blame()}"
    if parts.servers.broker is not None or defaults_hold:
        offsets = offsets_of_groups(parts)
        if offsets.value is not None and not offsets.shorter_than(AWAY_MAX_MS):
            yield f"no group is without members for longer than {in_words(offsets.value)}: {offsets.blame()}"


def duties(parts: ConfigurationParts) -> Iterator[str]:
    """Yields what the application itself must do, whatever is set, as sentences."""
    if parts.producer is None:
        return
    if parts.base["producer.acks"] == "0":
        yield "acks=0: no delivery report says whether a broker has a record, so your application cannot know what is lost"
        return
    given_up_ms = int(parts.base["producer.delivery_timeout_ms"])
    where = parts.origins.get("producer.delivery_timeout_ms", "the default")
    yield (
        "look at every delivery report (the callback or Future of Kafka's client, on_delivery and poll() of librdkafka), and "
        f"send again or stop when it is an error: after {in_words(given_up_ms)} (delivery.timeout.ms={given_up_ms}, {where}) "
        "the client stops sending it. If you ignore a failed delivery report, the record is lost"
    )


def records(parts: ConfigurationParts) -> Lifetime:
    """Returns how long the topic keeps records, by its own setting, else by the brokers', else by Kafka's default."""
    own = _given(parts.servers.topic, "retention.ms")
    if own is not None:
        return _lifetime("retention.ms", own, 1)
    for name, unit_ms in _OF_BROKERS:
        setting = _given(parts.servers.broker, name)
        if setting is not None:
            return _lifetime(name, setting, unit_ms)
    return _by_default("retention.ms", properties_of("topic", "java", parts.version), 1)


def offsets_of_groups(parts: ConfigurationParts) -> Lifetime:
    """Returns how long brokers keep the offsets of a group without members."""
    name = "offsets.retention.minutes"
    setting = _given(parts.servers.broker, name)
    if setting is not None:
        return _lifetime(name, setting, _MINUTE_MS)
    return _by_default(name, properties_of("broker", "java", parts.version), _MINUTE_MS)


def tombstones(parts: ConfigurationParts) -> Lifetime | None:
    """Returns how long a compacted topic keeps tombstones, where a file sets it; Kafka's default is a day."""
    for settings, name in (
        (parts.servers.topic, "delete.retention.ms"),
        (parts.servers.broker, "log.cleaner.delete.retention.ms"),
    ):
        setting = _given(settings, name)
        if setting is not None:
            return _lifetime(name, setting, 1)
    return None


def producers(parts: ConfigurationParts) -> Lifetime:
    """Returns how long brokers remember a producer that writes nothing: before 3.4 for as long as a transactional.id."""
    known = properties_of("broker", "java", parts.version)
    name = "producer.id.expiration.ms" if "producer.id.expiration.ms" in known else "transactional.id.expiration.ms"
    setting = _given(parts.servers.broker, name)
    if setting is not None:
        return _lifetime(name, setting, 1)
    return _by_default(name, known, 1)


def in_words(ms: int | None) -> str:
    """ "1 minute", "7 days", "90 s" """
    if ms is None:
        return "ever"
    for unit_ms, word in ((AWAY_MAX_MS, "day"), (_HOUR_MS, "hour"), (_MINUTE_MS, "minute")):
        if ms >= unit_ms and ms % unit_ms == 0:
            count = ms // unit_ms
            return f"{count} {word}{'s' if count > 1 else ''}"
    return f"{ms / 1000:g} s"


def _of_records(parts: ConfigurationParts, servers_given: bool) -> Iterator[Concern]:
    kept = records(parts)
    if (kept.origin or servers_given) and kept.shorter_than(AWAY_MAX_MS):
        yield _concern(
            "lifetime/records",
            f"what is older than {in_words(kept.value)} is deleted, whether somebody has read it or not: a consumer that is "
            "away for longer, or as far behind, never gets it",
            f"{kept.name} longer than any consumer may be away, such as {_WEEK[kept.name]}, Kafka's default",
            kept,
            denies=OF_RECORDS,
            permitted_by=("skipped/deleted", "unprocessed/reset-to-latest"),
        )
    size = _given(parts.servers.topic, "retention.bytes") or _given(parts.servers.broker, "log.retention.bytes")
    if size is not None and number(size.value) >= 0:
        name = "retention.bytes" if _given(parts.servers.topic, "retention.bytes") else "log.retention.bytes"
        bounded = Lifetime(name, int(number(size.value)), size.value, size.origin)
        yield _concern(
            "lifetime/records",
            f"once a partition has more than {bounded.value} bytes its oldest segments are deleted, whether somebody has "
            "read them or not: a consumer that is further behind never gets them",
            f"{name}=-1, with a {'retention.ms' if name == 'retention.bytes' else 'log.retention.ms'} that the disks "
            "can hold",
            bounded,
            denies=OF_RECORDS,
            permitted_by=("skipped/deleted", "unprocessed/reset-to-latest"),
        )


def _of_offsets(parts: ConfigurationParts) -> Iterator[Concern]:
    kept = offsets_of_groups(parts)
    if not kept.shorter_than(AWAY_MAX_MS):
        return
    reset = parts.base["group.auto_offset_reset"]
    begins = {
        "earliest": "begins at the start again (auto.offset.reset=earliest)",
        "latest": "begins at the end (auto.offset.reset=latest)",
    }.get(reset, "has no position")
    skips = ("unprocessed",) if reset == "latest" else ()
    yield _concern(
        "lifetime/offsets",
        f"a group that is without members for {in_words(kept.value)} has no committed offsets any more, and {begins}",
        "offsets.retention.minutes=10080, Kafka's default, or longer",
        kept,
        denies=(*skips, "reprocessed", "commit-regression"),
        permitted_by=(
            "reprocessed/offsets-expired",
            "commit-regression/offsets-expired",
            "unprocessed/reset-to-latest",
        ),
    )


def _of_producers(parts: ConfigurationParts) -> Iterator[Concern]:
    kept, given_up_ms = producers(parts), int(parts.base["producer.delivery_timeout_ms"])
    if not parts.base["producer.enable_idempotence"] or not kept.shorter_than(given_up_ms + 1):
        return  # without idempotence a retry is stored again whatever brokers remember
    yield _concern(
        "lifetime/producers",
        f"brokers forget a producer after {in_words(kept.value)}, and a send may take {in_words(given_up_ms)} "
        f"(delivery.timeout.ms={given_up_ms}): a retry that comes later is stored again",
        f"{kept.name} longer than delivery.timeout.ms, such as 86400000, Kafka's default",
        kept,
        denies=("duplicate",),
        permitted_by=("duplicate/forgot",),
    )


def _given_up(parts: ConfigurationParts) -> Iterator[Concern]:
    """Records are given up before another broker can lead: whoever does not look loses them at each failure."""
    if parts.base["producer.acks"] == "0":
        return
    name = _SESSIONS.get("zookeeper" if parts.zookeeper else "", "broker.session.timeout.ms")
    session_ms = _number_of_broker(parts, name)
    needed_ms, given_up_ms = session_ms + ELECTED_MS, int(parts.base["producer.delivery_timeout_ms"])
    dead = f"{name}={session_ms}: so long a dead broker counts as alive, and nobody else leads"
    if given_up_ms < needed_ms:
        origin = parts.origins.get("producer.delivery_timeout_ms", KAFKAS_DEFAULT)
        yield Concern(
            rule="client/gives-up",
            what=f"when a broker dies, the client gives up after {in_words(given_up_ms)} what only another leader can take, "
            f"after about {in_words(needed_ms)} ({dead}). If you ignore the failed delivery reports, these records are lost",
            blame=(f"delivery.timeout.ms={given_up_ms} ({origin})",),
            change="delivery.timeout.ms=120000, Kafka's default, or longer",
            source=RULES["client/gives-up"],
        )
    retries = parts.base["producer.retries"]
    if retries == "max":
        return
    lasts_ms = _retried_for_ms(parts, int(retries))
    if lasts_ms < min(needed_ms, given_up_ms):
        origin = parts.origins.get("producer.retries", KAFKAS_DEFAULT)
        yield Concern(
            rule="client/gives-up",
            what="a record that brokers refuse for a while (NOT_ENOUGH_REPLICAS, NOT_LEADER_OR_FOLLOWER) is not sent again "
            f"after {retries} retries, within about {in_words(lasts_ms)}, although it may be sent for "
            f"{in_words(given_up_ms)} (delivery.timeout.ms). If you ignore the failed delivery report, it is lost",
            blame=(f"retries={retries} ({origin})",),
            change="retries left at their default",
            source=RULES["client/gives-up"],
        )


def _retried_for_ms(parts: ConfigurationParts, retries: int) -> int:
    """Returns how long so many retries last, each after a wait that is doubled up to a limit (KIP-580), if the answers
    come at once; without the random part."""
    client = parts.base["producer.client"]
    known = properties_of("producer", client, parts.version)

    def of(name: str) -> int:
        text = str(parts.base.get(f"producer.properties.{name}", default_of(name, known) or "0"))
        return int(number(text, client=client))

    wait_ms, most_ms = of("retry.backoff.ms"), of("retry.backoff.max.ms")
    if client == "java" and version_numbers(parts.version)[:2] < _EXPONENTIAL:
        most_ms = wait_ms
    total_ms = 0
    for _ in range(min(retries, 100)):
        total_ms += wait_ms
        wait_ms = max(wait_ms, min(2 * wait_ms, most_ms))
    return total_ms


def _concern(
    rule: str, what: str, change: str, kept: Lifetime, *, denies: tuple[str, ...], permitted_by: tuple[str, ...]
) -> Concern:
    return Concern(
        rule=rule,
        what=what,
        blame=(kept.blame(),),
        change=change,
        source=RULES[rule],
        denies=denies,
        permitted_by=permitted_by,
    )


def _given(settings: Settings | None, name: str) -> Setting | None:
    setting = (settings or {}).get(name)
    return None if setting is None or is_placeholder(setting.value) else setting


def _lifetime(name: str, setting: Setting, unit_ms: int) -> Lifetime:
    value = int(number(setting.value))
    return Lifetime(name, None if value < 0 else value * unit_ms, setting.value, setting.origin)


def _by_default(name: str, known: Mapping[str, Property], unit_ms: int) -> Lifetime:
    text = default_of(name, known)
    return Lifetime(name, None if int(text) < 0 else int(text) * unit_ms, text)


def _number_of_broker(parts: ConfigurationParts, name: str) -> int:
    setting = _given(parts.servers.broker, name)
    known = properties_of("broker", "java", parts.version)
    return int(number(setting.value if setting is not None else default_of(name, known) or "9000"))
