"""Producer and consumer properties as settings of a trial: defaults filled in, what contradicts itself refused as the client
would refuse it, what cannot be part of a trial left out and said."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.errors import BadInput
from harness.validation.known import (
    Client,
    Setting,
    Settings,
    canonical,
    check,
    default_of,
    does_nothing,
    properties_of,
)

_LEFT_OUT: dict[str, str] = {
    "bootstrap.servers": "the trial has a cluster of its own",
    "metadata.broker.list": "the trial has a cluster of its own",
    "client.id": "the trial names its clients",
    "client.rack": "the trial's clients are in no rack",
    "group.id": "the trial names its groups",
    "transactional.id": "the trial names its producers",
    "group.instance.id": "the trial names its members",
    "statistics.interval.ms": "the trial asks for statistics itself",
    "allow.auto.create.topics": "the trial creates its topics",
}
_LEFT_OUT_BY_PREFIX: dict[str, str] = {
    "ssl.": "connections of a trial are plain",
    "sasl.": "connections of a trial are plain",
    "security.": "connections of a trial are plain",
    "schema.registry.": "records of a trial have their own form",
    "key.": "records of a trial have their own form",
    "value.": "records of a trial have their own form",
    "interceptor.": "the application's own code",
    "metric": "the application's own code",
    "plugin.": "the application's own code",
    "debug": "the trial logs by itself",
    "log": "the trial logs by itself",
}
_MORE = ("replication.factor",)


@dataclass(slots=True)
class Translated:
    """Settings of a trial, `scope.key` → value, and where each comes from; what was left out or is only nearly so."""

    base: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    """`scope.key` → file and line; absent: a default."""
    notes: list[str] = field(default_factory=list)

    def set(self, key: str, value: Any, setting: Setting | None = None) -> None:  # noqa: ANN401 - a TOML value
        """Set, with its origin where somebody set it."""
        self.base[key] = value
        if setting is not None:
            self.origins[key] = setting.origin


class Reader:
    """Settings of one client, looked up by Kafka's name, each once; aliases are one name."""

    def __init__(self, settings: Settings, scope: str, client: Client, version: str) -> None:
        """BadInput for misspelt names and values of another type."""
        self.known = properties_of(scope, client, version)
        self.ignored = check(scope, settings, self.known, more=_MORE)
        """Names that are nobody's."""
        self._settings = {canonical(name, self.known): setting for name, setting in settings.items()}
        self._asked: set[str] = set()

    def given(self, name: str) -> Setting | None:
        """As somebody set it."""
        name = canonical(name, self.known)
        self._asked.add(name)
        return self._settings.get(name)

    def value(self, name: str) -> str:
        """As somebody set it, else the client's default."""
        setting = self.given(name)
        return default_of(name, self.known) if setting is None else setting.value

    def ignored_notes(self) -> list[str]:
        """What to say of names that are nobody's."""
        return [does_nothing(name, [*self.known, *_MORE]) for name in self.ignored]

    def rest(self) -> Mapping[str, Setting]:
        """What nobody asked for."""
        return {name: s for name, s in self._settings.items() if name not in self._asked and name not in self.ignored}


# --- producers ----------------------------------------------------------------------------------------------------------

_MORE_THAN_FIVE = 5
"""Idempotence keeps the order of so many requests in flight at most (KAFKA-5494)."""
_NEEDS = (
    ("enable.idempotence=true", "set enable.idempotence=false"),
    ("transactional.id", "leave transactional.id out"),
)
"""What makes demands on other settings, and how to be rid of it: without and with transactions."""


def translate_producer(settings: Settings, client: Client, version: str) -> Translated:
    """`producer.…` of a trial."""
    reader, found = Reader(settings, "producer", client, version), Translated()
    found.set("producer.client", client)
    _acks_and_order(reader, found, client)
    for name, key, kind in (
        ("delivery.timeout.ms", "producer.delivery_timeout_ms", int),
        ("compression.type", "producer.compression_type", str),
        ("linger.ms", "producer.linger_ms", float),
    ):
        found.set(key, kind(reader.value(name)), reader.given(name))
    transactional = reader.given("transactional.id")
    if transactional is not None:
        found.origins["transactional.id"] = transactional.origin
        timeout = int(reader.value("transaction.timeout.ms"))
        found.set("transaction.transaction_timeout_ms", timeout, reader.given("transaction.timeout.ms"))
    _keep_rest(reader, found, "producer")
    return found


def _acks_and_order(reader: Reader, found: Translated, client: Client) -> None:
    acks = {"-1": "all"}.get(reader.value("acks").lower(), reader.value("acks").lower())
    if acks not in ("0", "1", "all"):
        found.notes.append(f"acks={acks}: brokers know 0, 1 and -1 (all) alone since 0.9; run as acks=all")
        acks = "all"
    retries = reader.value("retries")
    in_flight = int(reader.value("max.in.flight.requests.per.connection"))
    transactional = reader.given("transactional.id")
    idempotent = reader.value("enable.idempotence").lower() == "true" or transactional is not None
    demanded = reader.given("enable.idempotence") or transactional
    _refuse_transactions_without_idempotence(reader)
    cause, way_out = _NEEDS[transactional is not None]
    for name, breaks, why in (
        ("acks", acks != "all", f"acks=all, not {acks}"),
        ("retries", retries == "0", "retries > 0"),
        ("max.in.flight.requests.per.connection", in_flight > _MORE_THAN_FIVE, f"at most 5 in flight, not {in_flight}"),
    ):
        other = reader.given(name)
        if not idempotent or not breaks:
            continue
        if demanded is not None and (other is not None or client == "java"):
            where = other.origin if other is not None else demanded.origin
            raise BadInput(
                f"{where}: {cause} needs {why} (KIP-98, KIP-679): the client refuses to start. "
                f"Change {name}, or {way_out}."
            )
        if demanded is None:
            idempotent = False
            found.notes.append(f"idempotence is silently off: it needs {why} (KIP-679)")
    if idempotent and client == "librdkafka":
        in_flight = min(
            in_flight, _MORE_THAN_FIVE
        )  # librdkafka lowers what nobody set [CONFIGURATION, enable.idempotence]
    found.set("producer.acks", acks, reader.given("acks"))
    found.set("producer.enable_idempotence", idempotent, demanded)
    found.set("producer.max_in_flight", in_flight, reader.given("max.in.flight.requests.per.connection"))
    found.set("producer.retries", "0" if retries == "0" else "max", reader.given("retries"))
    if retries not in ("0", default_of("retries", reader.known)):
        found.notes.append(f"retries={retries} is run as retries without limit: delivery.timeout.ms ends them")


def _refuse_transactions_without_idempotence(reader: Reader) -> None:
    """Either client does (ProducerConfig.postProcessAndValidateIdempotenceConfigs; rd_kafka_conf_finalize)."""
    idempotence = reader.given("enable.idempotence")
    if (
        reader.given("transactional.id") is not None
        and idempotence is not None
        and idempotence.value.lower() == "false"
    ):
        raise BadInput(
            f"{idempotence.origin}: transactional.id needs enable.idempotence=true (KIP-98): the client refuses to start. "
            "Change enable.idempotence, or leave transactional.id out."
        )


def idempotent_by_default(base: Mapping[str, Any]) -> bool:
    """Is a producer idempotent if nobody says so? Java's is, where acks, retries and requests in flight fit (KIP-679)."""
    fits = base["producer.acks"] == "all" and base["producer.retries"] != "0"
    return bool(fits and base["producer.client"] == "java" and base["producer.max_in_flight"] <= _MORE_THAN_FIVE)


# --- consumers ----------------------------------------------------------------------------------------------------------


def translate_consumer(settings: Settings, client: Client, version: str, *, commits: str) -> Translated:
    """`group.…` of a trial. `commits`: how the application commits where enable.auto.commit is false, which no file says."""
    reader, found = Reader(settings, "consumer", client, version), Translated()
    found.set("group.client", client)
    found.set("group.protocol", _protocol(reader), reader.given("group.protocol"))
    automatic = reader.value("enable.auto.commit").lower() == "true"
    stored = client == "librdkafka" and reader.value("enable.auto.offset.store").lower() == "false"
    chosen = "auto-stored" if automatic and stored else "auto" if automatic else commits
    found.set("group.commit", chosen, reader.given("enable.auto.commit"))
    found.set("group.auto_commit_interval_ms", int(reader.value("auto.commit.interval.ms")))
    found.set("group.auto_offset_reset", _reset(reader.value("auto.offset.reset")), reader.given("auto.offset.reset"))
    found.set("group.isolation_level", reader.value("isolation.level"), reader.given("isolation.level"))
    static = reader.given("group.instance.id")
    found.set("group.static_membership", static is not None, static)
    if found.base["group.protocol"] != "consumer":
        timeout = reader.given("session.timeout.ms")
        found.set("group.session_timeout_ms", int(reader.value("session.timeout.ms")), timeout)
    found.set(
        "group.max_poll_interval_ms", int(reader.value("max.poll.interval.ms")), reader.given("max.poll.interval.ms")
    )
    if not automatic:
        found.notes.append(
            f"enable.auto.commit=false: how the application commits is in no file; taken to be {commits!r} (--commits)"
        )
    _keep_rest(reader, found, "group")
    return found


def _protocol(reader: Reader) -> str:
    if reader.value("group.protocol").lower() == "consumer":
        return "consumer"
    strategy = reader.value("partition.assignment.strategy").lower()
    first = strategy.strip("[]").split(",")[0]
    return "classic-cooperative" if "cooperative" in first else "classic-eager"


def _reset(value: str) -> str:
    return {"smallest": "earliest", "beginning": "earliest", "largest": "latest", "end": "latest", "none": "error"}.get(
        value, value
    )


def _keep_rest(reader: Reader, found: Translated, scope: str) -> None:
    """Everything else goes to the trial's clients as it is, or is left out with the reason."""
    for name, setting in reader.rest().items():
        why = _LEFT_OUT.get(name) or next((w for p, w in _LEFT_OUT_BY_PREFIX.items() if name.startswith(p)), None)
        if why is None:
            found.set(f"{scope}.properties.{name}", setting.value, setting)
        elif name not in ("bootstrap.servers", "metadata.broker.list", "client.id"):
            found.notes.append(f"{name} is left out: {why}")
    found.notes += reader.ignored_notes()
