"""Turns the producer and consumer properties of somebody's files into settings of a trial: defaults filled in, and what a
client would refuse refused."""

import re
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from prozess.harness.config.configuration import RETRIES_MAX, version_numbers
from prozess.harness.config.existing_clusters import MAY_BE_WRITTEN
from prozess.harness.config.known_properties import (
    Client,
    Setting,
    Settings,
    canonical,
    check,
    default_of,
    does_nothing,
    is_placeholder,
    is_true,
    notes_of,
    number,
    properties_of,
    trimmed,
)
from prozess.harness.config.library_defaults import is_idempotent_by_default
from prozess.harness.errors import BadInput

SettingValue: TypeAlias = str | int | float | bool
"""The value of a setting in a trial file."""


@dataclass(frozen=True, slots=True)
class Unclear:
    """Something in a file that was not understood, and that may matter: nothing is promised while there is one."""

    name: str
    """The name as the file spells it."""
    origin: str
    """File and line, or the place in the document, for a person."""
    why: str
    """What is not understood, as the end of a sentence whose subject is the name: "is a placeholder: …"."""
    rule: str = ""
    """The rule by which a person may accept it: `unknown-property:NAME`, `other-client`; empty: it cannot be accepted."""

    def sentence(self) -> str:
        """Returns this as a sentence for people."""
        return f"{self.origin}: {self.name} {self.why}"


@dataclass(slots=True)
class Translated:
    """Settings of a trial (`scope.key` → value) and where each comes from; what was left out or is only nearly so."""

    base: dict[str, SettingValue] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    """`scope.key` → file and line; absent: a default."""
    notes: list[str] = field(default_factory=list)
    unclear: list[Unclear] = field(default_factory=list)
    """Settings that no trial can have: nothing is promised while there is one."""

    def set(self, key: str, value: SettingValue, setting: Setting | None = None) -> None:
        """Sets one setting of the trial, with its origin if somebody set it."""
        self.base[key] = value
        if setting is not None:
            self.origins[key] = setting.origin

    def doubt(self, name: str, setting: Setting, why: str) -> None:
        """Notes a setting that trials cannot have as it is. `why`: the end of a sentence whose subject is the name."""
        self.unclear.append(Unclear(name, setting.origin, why))


# Settings of one client, looked up by Kafka's names and read as the client itself reads them.


_MORE = ("replication.factor",)


class SettingReader:
    """Reads the settings of one client by Kafka's names, each once; aliases are one name."""

    def __init__(self, settings: Settings, scope: str, client: Client, version: str) -> None:
        """Takes the settings. BadInput for misspelt names and for values that the client refuses. `version`: of Kafka's Java
        clients."""
        self.client, self.version = client, version
        self.known = properties_of(scope, client, version)
        self.ignored = check(scope, settings, self.known, more=_MORE, client=client)
        """Names that are nobody's."""
        whole = {canonical(name, self.known): setting for name, setting in settings.items()}
        self.placeholders = {name: setting for name, setting in whole.items() if is_placeholder(setting.value)}
        """Settings whose value is not known: as if nobody had set them, which is not to be relied on."""
        self._settings = {name: setting for name, setting in whole.items() if name not in self.placeholders}
        self._asked: set[str] = set()

    def has(self, name: str) -> bool:
        """Returns whether this is a property of this client in this version."""
        return name in self.known

    def aside(self) -> "SettingReader":
        """Returns the same settings for somebody who only looks: what it asks for still counts as not asked for."""
        found = copy(self)
        found._asked = set(self._asked)
        return found

    def given(self, name: str) -> Setting | None:
        """Returns the setting if somebody set it, else None."""
        name = canonical(name, self.known)
        self._asked.add(name)
        return self._settings.get(name)

    def text(self, name: str) -> str:
        """Returns the value without surrounding spaces, or the client's default."""
        setting = self.given(name)
        return default_of(name, self.known) if setting is None else trimmed(setting.value)

    def number(self, name: str) -> int | float:
        """Returns the value as the client reads a number, or the client's default."""
        return number(self.text(name), client=self.client)

    def true(self, name: str) -> bool:
        """Returns the value as the client reads a truth value."""
        return is_true(self.text(name), client=self.client)

    def ignored_notes(self) -> list[str]:
        """Returns notes on names that have no effect, and on those that occur twice."""
        return notes_of(self._settings) + [does_nothing(name, [*self.known, *_MORE]) for name in self.ignored]

    def rest(self) -> Mapping[str, Setting]:
        """Returns the settings that nobody has asked for so far."""
        return {name: s for name, s in self._settings.items() if name not in self._asked and name not in self.ignored}


# What a client refuses of settings that are each right by themselves, when it is started. BadInput says which, why,
# and what to change. Kafka's Java clients, and librdkafka's `rd_kafka_conf_finalize` and
# `rd_kafka_topic_conf_finalize`.


MORE_THAN_FIVE = 5
"""Idempotence keeps the order of so many requests in flight at most (KAFKA-5494)."""
_CONSUMER_PROTOCOL_REFUSES = (4, 0)
"""From then on ConsumerConfig.checkUnsupportedConfigsPostProcess; before, what is the brokers' to say did nothing."""
_OF_BROKERS = ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy")
"""With group.protocol=consumer (KIP-848)."""


def refuse_without_idempotence(reader: SettingReader) -> None:
    """Transactions need idempotence with either client (ProducerConfig.postProcessAndValidateIdempotenceConfigs;
    rd_kafka_conf_finalize)."""
    idempotence = reader.given("enable.idempotence")
    if (
        reader.given("transactional.id") is not None
        and idempotence is not None
        and not reader.true("enable.idempotence")
    ):
        raise BadInput(
            f"{idempotence.origin}: transactional.id needs enable.idempotence=true (KIP-98): the client refuses to start. "
            "Change enable.idempotence, or leave transactional.id out."
        )


def _refuse(reader: SettingReader, name: str, why: str, way_out: str) -> None:
    setting = reader.given(name)
    assert setting is not None, name
    raise BadInput(f"{setting.origin}: {name} = {setting.value!r} {why}: the client refuses to start. {way_out}")


def refuse_producer(reader: SettingReader) -> None:
    """Refuses times and queues of a producer that do not fit each other (BadInput)."""
    if reader.client == "java":
        _refuse_java_producer(reader.aside())
    else:
        _refuse_librdkafka_producer(reader.aside())


def _refuse_java_producer(reader: SettingReader) -> None:
    linger_ms, request_ms = min(reader.number("linger.ms"), 2**31 - 1), reader.number("request.timeout.ms")
    least_ms = min(linger_ms + request_ms, 2**31 - 1)
    if reader.given("delivery.timeout.ms") is not None and reader.number("delivery.timeout.ms") < least_ms:
        why = (
            f"must be at least linger.ms + request.timeout.ms, {linger_ms} + {request_ms} "
            "(KafkaProducer.configureDeliveryTimeout)"
        )
        _refuse(reader, "delivery.timeout.ms", why, f"Set it to {least_ms} or more, or lower the other two.")


def _refuse_librdkafka_producer(reader: SettingReader) -> None:
    delivery_ms, linger_ms = reader.number("delivery.timeout.ms"), reader.number("linger.ms")
    transactional = reader.given("transactional.id") is not None
    if transactional and reader.given("delivery.timeout.ms") is None:
        delivery_ms = min(delivery_ms, reader.number("transaction.timeout.ms"))
    if reader.given("linger.ms") is not None and delivery_ms != 0 and delivery_ms <= linger_ms:
        why = f"must be less than message.timeout.ms, {delivery_ms} (rd_kafka_conf_finalize)"
        _refuse(reader, "linger.ms", why, "Lower it, or raise message.timeout.ms (delivery.timeout.ms).")
    if transactional:
        transaction_ms = reader.number("transaction.timeout.ms")
        if reader.given("delivery.timeout.ms") is not None and delivery_ms > transaction_ms:
            why = f"must be at most transaction.timeout.ms, {transaction_ms} (rd_kafka_topic_conf_finalize)"
            _refuse(reader, "delivery.timeout.ms", why, "Lower it, or raise transaction.timeout.ms.")
        if reader.given("socket.timeout.ms") is not None and reader.number("socket.timeout.ms") > transaction_ms + 100:
            why = f"must be at most transaction.timeout.ms + 100, {transaction_ms} + 100 (rd_kafka_conf_finalize)"
            _refuse(reader, "socket.timeout.ms", why, "Lower it, or raise transaction.timeout.ms.")
    if reader.true("enable.idempotence") or transactional:
        threshold = reader.number("queue.buffering.backpressure.threshold")
        if reader.given("queue.buffering.backpressure.threshold") is not None and threshold > 1:
            why = "must be 1 for an idempotent producer (rd_kafka_conf_finalize)"
            _refuse(reader, "queue.buffering.backpressure.threshold", why, "Set it to 1, or leave it out.")
        if reader.text("queuing.strategy").lower() != "fifo":
            why = "must be fifo for an idempotent producer (rd_kafka_topic_conf_finalize)"
            _refuse(reader, "queuing.strategy", why, "Set it to fifo, or leave it out.")
    elif reader.given("enable.gapless.guarantee") is not None and reader.true("enable.gapless.guarantee"):
        why = "needs enable.idempotence=true (rd_kafka_conf_finalize)"
        _refuse(reader, "enable.gapless.guarantee", why, "Set enable.idempotence=true, or leave it out.")
    _refuse_backoff(reader)


def _refuse_backoff(reader: SettingReader) -> None:
    least_ms, most_ms = reader.number("reconnect.backoff.ms"), reader.number("reconnect.backoff.max.ms")
    if most_ms < least_ms:
        name = next(n for n in ("reconnect.backoff.max.ms", "reconnect.backoff.ms") if reader.given(n) is not None)
        why = f"must leave reconnect.backoff.max.ms, {most_ms}, at least reconnect.backoff.ms, {least_ms}"
        _refuse(reader, name, f"{why} (rd_kafka_conf_finalize)", "Change one of the two.")


# Consumers.


def refuse_consumer(reader: SettingReader) -> None:
    """Refuses settings with which a consumer does not start (BadInput)."""
    reader = reader.aside()
    new = reader.has("group.protocol") and reader.text("group.protocol").lower() == "consumer"
    _refuse_what_brokers_say(reader, new=new)
    if reader.client == "java":
        _refuse_java_consumer(reader, new=new)
    else:
        _refuse_librdkafka_consumer(reader, new=new)


def _refuse_what_brokers_say(reader: SettingReader, *, new: bool) -> None:
    if not new or (reader.client == "java" and version_numbers(reader.version) < _CONSUMER_PROTOCOL_REFUSES):
        return
    more = ("group.protocol.type",) if reader.client == "librdkafka" else ()
    source = (
        "ConsumerConfig.checkUnsupportedConfigsPostProcess" if reader.client == "java" else "rd_kafka_conf_finalize"
    )
    for name in (*_OF_BROKERS, *more):
        if reader.given(name) is not None:
            why = f"is decided by the brokers with group.protocol=consumer (KIP-848, {source})"
            _refuse(reader, name, why, f"Leave {name} out, or set group.protocol=classic.")


def _refuse_java_consumer(reader: SettingReader, *, new: bool) -> None:
    if not new and reader.number("heartbeat.interval.ms") >= reader.number("session.timeout.ms"):
        name = next((n for n in ("heartbeat.interval.ms", "session.timeout.ms") if reader.given(n) is not None), None)
        if name is not None:
            why = (
                f"must leave heartbeat.interval.ms, {reader.number('heartbeat.interval.ms')}, less than session.timeout.ms, "
                f"{reader.number('session.timeout.ms')} (Heartbeat of the consumer)"
            )
            _refuse(reader, name, why, "Lower heartbeat.interval.ms to a third of session.timeout.ms.")
    assignor = reader.given("group.remote.assignor") if reader.has("group.remote.assignor") else None
    if not new and assignor is not None and version_numbers(reader.version) >= (3, 8):
        why = "cannot be set with group.protocol=classic (ConsumerConfig.checkGroupRemoteAssignor)"
        _refuse(reader, "group.remote.assignor", why, "Leave it out, or set group.protocol=consumer.")
    identity = reader.given("group.instance.id")
    if identity is not None and (
        not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", trimmed(identity.value)) or trimmed(identity.value) in (".", "..")
    ):
        why = "must be at most 249 letters, digits, '.', '_' and '-' (JoinGroupRequest.validateGroupInstanceId)"
        _refuse(reader, "group.instance.id", why, "Change it, or leave it out.")


def _refuse_librdkafka_consumer(reader: SettingReader, *, new: bool) -> None:
    poll_ms, session_ms = reader.number("max.poll.interval.ms"), reader.number("session.timeout.ms")
    if not new and poll_ms < session_ms:
        name = next(n for n in ("max.poll.interval.ms", "session.timeout.ms") if reader.given(n) is not None)
        why = f"must leave max.poll.interval.ms, {poll_ms}, at least session.timeout.ms, {session_ms}"
        _refuse(reader, name, f"{why} (rd_kafka_conf_finalize)", "Change one of the two.")
    fetch_bytes, message_bytes = reader.number("fetch.max.bytes"), reader.number("message.max.bytes")
    if reader.given("fetch.max.bytes") is not None and fetch_bytes < message_bytes:
        why = f"must be at least message.max.bytes, {message_bytes} (rd_kafka_conf_finalize)"
        _refuse(reader, "fetch.max.bytes", why, "Raise it, or lower message.max.bytes.")
    received = reader.number("receive.message.max.bytes")
    if reader.given("receive.message.max.bytes") is not None and received < fetch_bytes + 512:
        why = f"must be at least fetch.max.bytes + 512, {fetch_bytes} + 512 (rd_kafka_conf_finalize)"
        _refuse(reader, "receive.message.max.bytes", why, "Raise it, or lower fetch.max.bytes.")
    _refuse_backoff(reader)


# Producer and consumer properties as settings of a trial: defaults filled in, what contradicts itself refused as the
# client would refuse it, what cannot be part of a trial left out and stated.


__all__ = ["Translated", "idempotent_by_default", "translate_consumer", "translate_producer"]

_LEFT_OUT: dict[str, str] = {
    "bootstrap.servers": "they have a cluster of their own",
    "metadata.broker.list": "they have a cluster of their own",
    "client.id": "they name their clients themselves",
    "client.rack": "their clients are in no rack",
    "group.id": "they name their groups themselves",
    "transactional.id": "they name their producers themselves",
    "group.instance.id": "they name their members themselves",
    "statistics.interval.ms": "they ask for statistics themselves",
    "allow.auto.create.topics": "they create their topics themselves",
}
_LEFT_OUT_BY_PREFIX: dict[str, str] = {
    "ssl.": "they connect without TLS and without logging in",
    "sasl.": "they connect without TLS and without logging in",
    "security.": "they connect without TLS and without logging in",
    "schema.registry.": "they write records of their own",
    "key.": "they write records of their own",
    "value.": "they write records of their own",
    "metric": "they do not run your application's own code",
    "debug": "they log by themselves",
    "log": "they log by themselves",
}
# Producers.

_REFUSES_SIX_IN_FLIGHT = (4, 0)
"""Before, a Java client that nobody had asked to be idempotent silently was not (ProducerConfig,
postProcessAndValidateIdempotenceConfigs)."""
_MILLISECONDS_MAX = 2_147_483_647


def translate_producer(settings: Settings, client: Client, version: str) -> Translated:
    """Returns the `producer.…` settings of a trial. `version`: of Kafka's Java clients."""
    reader, found = SettingReader(settings, "producer", client, version), Translated()
    found.set("producer.client", client)
    _acks_and_order(reader, found)
    refuse_producer(reader)
    found.set("producer.delivery_timeout_ms", _delivery_timeout_ms(reader, found), reader.given("delivery.timeout.ms"))
    found.set("producer.compression_type", reader.text("compression.type").lower(), reader.given("compression.type"))
    found.set("producer.linger_ms", float(reader.number("linger.ms")), reader.given("linger.ms"))
    transactional = reader.given("transactional.id")
    if transactional is not None:
        found.origins["transactional.id"] = transactional.origin
        timeout = int(reader.number("transaction.timeout.ms"))
        found.set("transaction.transaction_timeout_ms", timeout, reader.given("transaction.timeout.ms"))
    _keep_rest(reader, found, "producer")
    return found


def _acks_and_order(reader: SettingReader, found: Translated) -> None:
    acks = _acks(reader)
    retries = int(reader.number("retries"))
    in_flight = int(reader.number("max.in.flight.requests.per.connection"))
    transactional = reader.given("transactional.id")
    idempotent = reader.true("enable.idempotence") or transactional is not None
    demanded = reader.given("enable.idempotence") or transactional
    refuse_without_idempotence(reader)
    if reader.client == "java" and demanded is None and idempotent and not is_idempotent_by_default(reader.version):
        idempotent = False
        found.notes.append(
            f"Kafka's client {reader.version} is idempotent only if enable.idempotence=true is set (KAFKA-13598)"
        )
    given_up: list[str] = []
    if idempotent and reader.given("acks") is None:
        acks = "all"  # before 3.0 the default was 1, which a client that is idempotent did not keep
    for name, breaks, why in (
        ("acks", acks != "all", f"acks=all, not {acks}"),
        ("retries", retries == 0, "retries > 0"),
        ("max.in.flight.requests.per.connection", in_flight > MORE_THAN_FIVE, f"at most 5 in flight, not {in_flight}"),
    ):
        other = reader.given(name)
        if not idempotent or not breaks or other is None:  # librdkafka lowers what nobody set; Java's defaults fit
            continue
        _refuse_what_idempotence_forbids(reader, name, why, other)
        given_up.append(why)
    if given_up:
        idempotent = False
        found.notes.append(f"the client silently switches idempotence off, because it needs {given_up[0]} (KIP-679)")
    if idempotent:
        in_flight = min(in_flight, MORE_THAN_FIVE)  # [librdkafka's CONFIGURATION, enable.idempotence]
    found.set("producer.acks", acks, reader.given("acks"))
    found.set("producer.enable_idempotence", idempotent, demanded)
    found.set("producer.max_in_flight", in_flight, reader.given("max.in.flight.requests.per.connection"))
    found.set("producer.retries", "max" if retries == RETRIES_MAX else str(retries), reader.given("retries"))


def _acks(reader: SettingReader) -> str:
    """Returns acks as 0, 1 or all. BadInput for other values, which librdkafka hands on to brokers that refuse them."""
    text = reader.text("acks").lower()
    number = -1 if text == "all" else int(reader.number("acks"))
    if number not in (-1, 0, 1):
        given = reader.given("acks")
        raise BadInput(
            f"{given.origin if given else 'acks'}: acks = {text!r} must be 0, 1 or all (-1): librdkafka takes it, and "
            "brokers refuse every record with INVALID_REQUIRED_ACKS (ReplicaManager.isValidRequiredAcks). Change acks."
        )
    return "all" if number == -1 else str(number)


def _refuse_what_idempotence_forbids(reader: SettingReader, name: str, why: str, other: Setting) -> None:
    """Raises BadInput where the client refuses it; elsewhere the client silently gives idempotence up."""
    transactional, asked = reader.given("transactional.id"), reader.given("enable.idempotence")
    strict = name.startswith("max.in.flight") and version_numbers(reader.version) >= _REFUSES_SIX_IN_FLIGHT
    if transactional is None and asked is None and not strict:
        return
    cause, way_out = (
        ("transactional.id", "leave transactional.id out")
        if transactional is not None
        else ("enable.idempotence=true", "set enable.idempotence=false")
    )
    default = "" if transactional or asked else ", its default,"
    raise BadInput(
        f"{other.origin}: {cause}{default} needs {why} (KIP-98, KIP-679): the client refuses to start. "
        f"Change {name}, or {way_out}."
    )


def _delivery_timeout_ms(reader: SettingReader, found: Translated) -> int:
    """Returns the client's final delivery.timeout.ms: a default that does not fit is moved, with a note."""
    timeout_ms, given = int(reader.number("delivery.timeout.ms")), reader.given("delivery.timeout.ms")
    if reader.client == "java":
        request_ms = reader.aside().number("request.timeout.ms")
        least_ms = int(min(reader.number("linger.ms") + request_ms, _MILLISECONDS_MAX))
        if given is None and timeout_ms < least_ms:
            found.notes.append(
                f"delivery.timeout.ms is {least_ms}, not its default of {timeout_ms}: it is never less than linger.ms + "
                "request.timeout.ms (KafkaProducer.configureDeliveryTimeout)"
            )
            return least_ms
    elif timeout_ms == 0:
        found.notes.append(
            f"delivery.timeout.ms=0 is without limit in librdkafka: it is run as {_MILLISECONDS_MAX}, 24 days"
        )
        return _MILLISECONDS_MAX
    elif reader.given("transactional.id") is not None and given is None:
        return min(timeout_ms, int(reader.number("transaction.timeout.ms")))  # rd_kafka_topic_conf_finalize
    if timeout_ms == 0 and given is not None:
        found.doubt("delivery.timeout.ms", given, "is 0: every record fails at once, which no trial runs")
        return 1
    return timeout_ms


def idempotent_by_default(base: Mapping[str, Any]) -> bool:
    """Returns whether a producer is idempotent if nobody says so: Java's is, where acks, retries and requests in flight fit
    (KIP-679)."""
    fits = base["producer.acks"] == "all" and base["producer.retries"] != "0"
    return bool(fits and base["producer.client"] == "java" and base["producer.max_in_flight"] <= MORE_THAN_FIVE)


# Consumers.


def translate_consumer(settings: Settings, client: Client, version: str, *, commits: str | None) -> Translated:
    """Returns the `group.…` settings of a trial. `commits`: how the application commits where enable.auto.commit is false;
    None: nobody stated it."""
    reader, found = SettingReader(settings, "consumer", client, version), Translated()
    found.set("group.client", client)
    found.set("group.protocol", _protocol(reader), reader.given("group.protocol"))
    refuse_consumer(reader)
    automatic = reader.true("enable.auto.commit")
    stored = client == "librdkafka" and not reader.true("enable.auto.offset.store")
    chosen = "auto-stored" if automatic and stored else "auto" if automatic else commits or "sync-after"
    found.set("group.commit", chosen, reader.given("enable.auto.commit"))
    interval_ms = int(reader.number("auto.commit.interval.ms"))
    found.set("group.auto_commit_interval_ms", max(1, interval_ms))
    if automatic and not interval_ms:
        found.notes.append(_NO_INTERVAL[client])
        found.set("group.commit", "auto" if client == "java" else "none", reader.given("auto.commit.interval.ms"))
    _reset(reader, found)
    found.set("group.isolation_level", reader.text("isolation.level").lower(), reader.given("isolation.level"))
    checked = "true" if reader.true("check.crcs") else "false"
    if checked == "false" or reader.given("check.crcs") is not None:
        found.set("group.properties.check.crcs", checked, reader.given("check.crcs"))
    static = reader.given("group.instance.id")
    found.set("group.static_membership", static is not None, static)
    if found.base["group.protocol"] != "consumer":
        timeout = reader.given("session.timeout.ms")
        found.set("group.session_timeout_ms", max(1, int(reader.number("session.timeout.ms"))), timeout)
    longest_ms = max(1, int(reader.number("max.poll.interval.ms")))
    found.set("group.max_poll_interval_ms", longest_ms, reader.given("max.poll.interval.ms"))
    if not automatic and commits is not None:
        found.origins["commits"] = "--commits"
    if not automatic and commits is None:
        found.notes.append(
            "enable.auto.commit=false: no file says how the application commits; prozess assumes sync-after, "
            "after processing (--commits)"
        )
    _keep_rest(reader, found, "group")
    return found


_NO_INTERVAL = {
    "java": "auto.commit.interval.ms=0 commits with every poll: it is run as 1",
    "librdkafka": "auto.commit.interval.ms=0 turns librdkafka's automatic commits off: it is run without commits",
}


def _protocol(reader: SettingReader) -> str:
    if reader.has("group.protocol") and reader.text("group.protocol").lower() == "consumer":
        return "consumer"
    strategy = reader.text("partition.assignment.strategy").lower()
    first = strategy.strip("[]").split(",")[0]
    return "classic-cooperative" if "cooperative" in first else "classic-eager"


def _reset(reader: SettingReader, found: Translated) -> None:
    given, value = reader.given("auto.offset.reset"), reader.text("auto.offset.reset").lower()
    if value.startswith("by_duration:") and given is not None:
        found.doubt("auto.offset.reset", given, f"is {given.value}, and no trial resets by a duration (KIP-1106)")
        value = "latest"
    names = {"smallest": "earliest", "beginning": "earliest", "largest": "latest", "end": "latest", "none": "error"}
    found.set("group.auto_offset_reset", names.get(value, value), given)


_CODE = ("interceptor.classes", "plugin.library.paths")
"""Code that takes part in every record, and that no file says anything about."""


def _left_out(name: str) -> str | None:
    """Returns why a property is left out of the trials; None if it is not."""
    return _LEFT_OUT.get(name) or next(
        (why for begin, why in _LEFT_OUT_BY_PREFIX.items() if name.startswith(begin)), None
    )


def _keep_rest(reader: SettingReader, found: Translated, scope: str) -> None:
    """Everything else goes to the trial's clients as it is, or is left out with the reason."""
    for name, setting in reader.placeholders.items():
        if not _left_out(name):
            found.doubt(name, setting, f"is a placeholder: what {setting.value} stands for is not in the file")
    for name, setting in reader.rest().items():
        if name in _CODE and setting.value.strip():
            found.doubt(name, setting, f"is code that may change, drop or hold any record: {setting.value}")
            continue
        why = _left_out(name)
        if why is None and name not in MAY_BE_WRITTEN:
            why = "its value may be a secret, which must not be in the files of a run"
        if why is None:
            found.set(f"{scope}.properties.{name}", setting.value, setting)
        elif name not in ("bootstrap.servers", "metadata.broker.list", "client.id"):
            found.notes.append(f"{name} is left out of the trials: {why}")
    found.notes += reader.ignored_notes()
