"""Quarkus: application.properties and application.yaml with SmallRye's channels (`mp.messaging.outgoing.CHANNEL.…`,
`mp.messaging.incoming.CHANNEL.…`), `kafka.…` for all of them, and `%profile.` before a name.

What SmallRye sets by itself is from its source: KafkaConnector (acks is 1),
ReactiveKafkaConsumer.getKafkaConsumerConfiguration (enable.auto.commit is false), KafkaSink (it sends again by itself),
KafkaThrottledLatestProcessedCommit. A channel's own name counts more than the connector's
(`mp.messaging.connector.smallrye-kafka.…`), and that more than `kafka.…` (ConfigHelper.retrieveChannelConfiguration)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from prozess.harness.config.known_properties import Setting, properties_of, versions
from prozess.validation.reading import (
    SCOPES,
    FileValue,
    Format,
    Reading,
    Scope,
    entries,
    of_no_promise,
    placeholder_in,
)

_NAME = re.compile(r"mp\.messaging\.(outgoing|incoming)\.(\"[^\"]+\"|[^.]+)\.(.+)")
_CONNECTOR = re.compile(r"mp\.messaging\.connector\.smallrye-kafka\.(.+)")
_PROFILE = re.compile(r"\"?%(\{[^}]+\}|[^.\"]+)\"?\.(.+)")
_SCOPE: Mapping[str, Scope] = {"outgoing": "producer", "incoming": "consumer"}
_KAFKA = "smallrye-kafka"
_ASIDE = re.compile(
    r"connector|enabled|topics?|pattern|partitions?|concurrency|broadcast|key|merge|propagate-.+|close-timeout|health-.+|"
    r"tracing-enabled|cloud-events.*|client-id-prefix|lazy-client|graceful-shutdown|poll-timeout|pause-if-no-requests|"
    r"max-queue-size-factor|retry|retry-attempts|retry-max-wait|fail-on-deserialization-failure|max-inflight-messages|"
    r"(key|value)-(de)?serialization-failure-handler|dead-letter-queue\..+|consumer-rebalance-listener\.name|"
    r"throttled\..+|batch|interceptor-bean|apicurio\..+"
)
"""Attributes of SmallRye's connector that change nothing of what Kafka's clients promise."""
_DEFAULTS: Mapping[Scope, Mapping[str, str]] = {
    "producer": {"acks": "1"},
    "consumer": {"enable.auto.commit": "false", "auto.offset.reset": "latest"},
}


@dataclass(frozen=True, slots=True)
class Quarkus:
    """Files of this framework. `chosen`: the profiles that are active; none: prod, as of a built application."""

    chosen: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Returns the name of the format, for a person."""
        return "Quarkus"

    def in_profiles(self, profiles: Sequence[str]) -> Format:
        """Returns the format with these profiles active."""
        return Quarkus(tuple(profiles))

    def recognises(self, document: FileValue, path: Path) -> bool:
        """Returns whether the file has names of channels, or of Quarkus."""
        sign = re.compile(r"(\"?%[^.]+\.)?(mp\.messaging|quarkus)\.|MP_MESSAGING_")
        return any(sign.match(name) for name, _ in entries(document, path))

    def read(self, document: FileValue, path: Path, wanted: Iterable[Scope]) -> Reading:
        """Reads the file, and refuses nothing."""
        wanted = tuple(wanted)
        profile = re.fullmatch(r"application-(.+)", path.stem)
        reading = Reading(
            path,
            f"Quarkus' {path.name}",
            "java",
            profiles=bool(self.chosen),
            family="Quarkus",
            rank=0 if profile is None else 1,
            finish=_assume,
        )
        named = [(_of_variable(name), setting) for name, setting in entries(document, path)]
        if any(name.startswith("MP_MESSAGING_") for name, _ in entries(document, path)):
            reading.rank = 2
        reading.known_profiles += _profiles_of(named, profile)
        found = self._active(named, reading)
        channels = _channels(found)
        for name, setting in found.items():
            if _NAME.fullmatch(name) is None and _CONNECTOR.fullmatch(name) is None and not name.startswith("kafka."):
                _take_other(name, setting, reading)
        shared = {scope: _shared(found, scope) for scope in _SCOPE.values()}
        for direction, scope in _SCOPE.items():
            mine = {channel: each for (where, channel), each in channels.items() if where == direction}
            of_kafka = {channel: each for channel, each in mine.items() if _of_kafka(channel, each, reading)}
            if scope in wanted and (of_kafka or wanted != SCOPES):
                _take_channels(scope, of_kafka, shared[scope], reading)
            else:
                reading.aside += [f"{channel}.{name}" for channel, each in of_kafka.items() for name in each]
        taken = {name for scope in reading.scopes for name, _ in shared[scope].values()}
        common = [name for name in found if name.startswith("kafka.") or _CONNECTOR.fullmatch(name)]
        reading.aside += [name for name in common if name not in taken]
        return reading

    def _active(self, found: Sequence[tuple[str, Setting]], reading: Reading) -> dict[str, Setting]:
        """Returns what counts, by name: a name with an active profile counts more, the last one chosen most."""
        own = dict(found).get("quarkus.profile")
        names = self.chosen or ("prod",)
        reading.active_profiles = names
        if own is not None and not self.chosen:
            names = reading.active_profiles = tuple(own.value.split(","))
            if placeholder_in(own.value):
                reading.doubt("quarkus.profile", own.origin, "is a placeholder: say --profile")
        weighted: list[tuple[int, str, Setting]] = []
        for name, setting in found:
            reading.notes += [setting.note] if setting.note else []
            profiled = _PROFILE.fullmatch(name)
            if profiled is None:
                weighted.append((0, name, setting))
                continue
            of = [word.strip() for word in profiled[1].strip("{}").split(",")]
            if any(word in names for word in of):
                weighted.append((1 + max(names.index(word) for word in of if word in names), profiled[2], setting))
            else:
                reading.aside.append(name)
        return {name: setting for _, name, setting in sorted(weighted, key=lambda each: each[0])}


@cache
def _attributes() -> Mapping[str, str]:
    """An attribute of a channel as variables spell it → its name: Kafka's, or SmallRye's."""
    kafkas = {
        name for scope in _SCOPE.values() for version in versions() for name in properties_of(scope, "java", version)
    }
    own = {*_OF_SMALLRYE, *kafkas}
    return {re.sub(r"[^A-Z0-9]", "_", name.upper()): name for name in sorted(own)}


_OF_SMALLRYE = (
    "connector", "topic", "topics", "commit-strategy", "failure-strategy", "fail-on-deserialization-failure",
    "waitForWriteCompletion", "max-inflight-messages", "enabled", "health-enabled", "tracing-enabled", "partitions",
    "dead-letter-queue.topic", "pooled-producer", "share-group", "batch", "key", "merge", "broadcast",
)  # fmt: skip


def _of_variable(name: str) -> str:
    """Returns the name that a variable stands for: MP_MESSAGING_OUTGOING_PRICES_ACKS → mp.messaging.outgoing.prices.acks. The
    longest attribute that is known ends it, and what is before is the channel. Any other name is as it is."""
    matched = re.fullmatch(r"MP_MESSAGING_(OUTGOING|INCOMING)_(.+)", name)
    if matched is not None:
        words = matched[2].split("_")
        for index in range(1, len(words)):
            attribute = _attributes().get("_".join(words[index:]))
            if attribute is not None:
                return f"mp.messaging.{matched[1].lower()}.{'-'.join(words[:index]).lower()}.{attribute}"
        return f"mp.messaging.{matched[1].lower()}.{words[0].lower()}.{'.'.join(words[1:]).lower()}"
    connector = re.fullmatch(r"MP_MESSAGING_CONNECTOR_SMALLRYE_KAFKA_(.+)", name)
    if connector is not None:
        return f"mp.messaging.connector.smallrye-kafka.{_attributes().get(connector[1], connector[1].lower())}"
    return "quarkus.profile" if name == "QUARKUS_PROFILE" else name


def _profiles_of(found: Iterable[tuple[str, Setting]], of_file: re.Match[str] | None) -> list[str]:
    """The profiles that the file has settings for, and those that every application of Quarkus has."""
    names = [profiled[1] for name, _ in found if (profiled := _PROFILE.fullmatch(name)) is not None]
    words = [word.strip() for name in names for word in name.strip("{}").split(",")]
    return ["prod", "dev", "test", *words, *([] if of_file is None else [of_file[1]])]


def _channels(found: Mapping[str, Setting]) -> dict[tuple[str, str], dict[str, tuple[str, Setting]]]:
    """(direction, channel) → attribute → (name in the file, setting)."""
    channels: dict[tuple[str, str], dict[str, tuple[str, Setting]]] = {}
    for name, setting in found.items():
        matched = _NAME.fullmatch(name)
        if matched is not None:
            channels.setdefault((matched[1], matched[2].strip('"')), {})[matched[3]] = (name, setting)
    return channels


def _of_kafka(channel: str, attributes: Mapping[str, tuple[str, Setting]], reading: Reading) -> bool:
    """Without a connector Quarkus attaches the only one that there is."""
    name, setting = attributes.get("connector", ("", Setting(_KAFKA, "")))
    if setting.value == _KAFKA:
        return True
    if "kafka" in setting.value.lower() or "$" in setting.value:
        reading.doubt(name, setting.origin, f"is {setting.value}, a connector that prozess does not know")
    else:
        reading.aside += [each for each, _ in attributes.values() if each != name] + [name]
    return False


def _take_other(name: str, setting: Setting, reading: Reading) -> None:
    if any(each.name == name for each in reading.unclear):
        return
    if name.startswith("quarkus.kafka-streams."):
        why = "belongs to a Streams application: give its settings in their own .properties file (docs: Kafka Streams)"
        reading.doubt(name, setting.origin, why)
    elif name.startswith("quarkus.") or "kafka" not in name.lower():
        reading.aside.append(name)
    else:
        why = "is not a name that Quarkus reads: only the application's code knows what it means"
        reading.doubt(name, setting.origin, why, f"unknown-property:{name}")


def _shared(found: Mapping[str, Setting], scope: Scope) -> dict[str, tuple[str, Setting]]:
    """Returns what all channels have: `kafka.…` as far as this client knows it, and the connector's own, which count
    more."""
    known = {name for version in versions() for name in properties_of(scope, "java", version)}
    other: Scope = "consumer" if scope == "producer" else "producer"
    others = {name for version in versions() for name in properties_of(other, "java", version)} - known
    shared: dict[str, tuple[str, Setting]] = {}
    for pattern in (re.compile(r"kafka\.(.+)"), _CONNECTOR):
        for name, setting in found.items():
            matched = pattern.fullmatch(name)
            if matched is not None and matched[1] not in others:
                shared[matched[1]] = (name, setting)
    return shared


def _take_channels(
    scope: Scope,
    channels: Mapping[str, Mapping[str, tuple[str, Setting]]],
    shared: Mapping[str, tuple[str, Setting]],
    reading: Reading,
) -> None:
    """All channels of a direction are one client's settings, as far as they are alike."""
    reading.scopes[scope] = {}
    reading.defaults[scope] = {
        name: Setting(each, "SmallRye's default (KafkaConnector)") for name, each in _DEFAULTS[scope].items()
    }
    whole = {channel: {**shared, **own} for channel, own in channels.items()} or {"": dict(shared)}
    first = next(iter(whole))
    for attribute in dict.fromkeys(name for each in whole.values() for name in each):
        values = {channel: each[attribute][1].value if attribute in each else None for channel, each in whole.items()}
        name, setting = next(each[attribute] for each in whole.values() if attribute in each)
        other = next((channel for channel, value in values.items() if value != values[first]), None)
        no_matter = _ASIDE.fullmatch(attribute) is not None or of_no_promise(attribute)
        if other is not None and not no_matter:
            why = f"differs between the channels {first!r} and {other!r}, and only one can be judged at a time"
            reading.doubt(name, setting.origin, why)
        else:
            _take(scope, attribute, name, setting, reading)


def _take(scope: Scope, attribute: str, name: str, setting: Setting, reading: Reading) -> None:
    off = setting.value.lower() == "false"
    if attribute == "commit-strategy" and setting.value == "throttled":
        reading.own[name] = setting
    elif attribute == "failure-strategy" and setting.value in ("fail", "dead-letter-queue"):
        reading.own[name] = setting
        if setting.value != "fail":
            reading.notes.append(f"SmallRye: a record whose processing failed goes to another topic ({name})")
    elif attribute == "fail-on-deserialization-failure" and off:
        reading.doubt(name, setting.origin, "is false: a record that cannot be read is passed over, and then committed")
    elif (attribute == "waitForWriteCompletion" and setting.value.lower() == "true") or (
        attribute in _SWITCHES and off
    ):
        reading.aside.append(name)
    elif why := _unlike_kafka(scope, attribute, setting.value):
        reading.doubt(name, setting.origin, why)
    elif _ASIDE.fullmatch(attribute):
        reading.aside.append(name)
    else:
        reading.put(scope, attribute, setting.value, setting.origin)


_SWITCHES = ("share-group", "share-group.enabled", "pooled-producer", "pooled-producer.enabled")


def _unlike_kafka(scope: Scope, attribute: str, value: str) -> str:
    """Returns what the connector makes of its own, which no trial does; empty: nothing."""
    if attribute == "enable.auto.commit" and value.lower() == "true":
        return (
            "is true: the connector polls on while records wait to be processed, so that unprocessed ones are committed"
        )
    if attribute == "retries" and scope == "producer" and value != "0":
        return "is the connector's, too: it sends again what Kafka's producer gave up, and may then be there twice"
    return {
        "commit-strategy": f"is {value}, and no trial does this",
        "failure-strategy": "is ignore: a record whose processing failed is committed all the same, and nobody processes it"
        if value == "ignore"
        else f"is {value}, and no trial does this",
        "waitForWriteCompletion": f"is {value}: with false a record counts as sent before Kafka has it",
        "kafka-configuration": "names settings that the application's own code has",
        "assign-seek": "has the consumer begin where the file says",
    }.get(attribute, "sets something of the connector that no trial does" if attribute.startswith(_PREFIXES) else "")


_PREFIXES = ("share-group", "pooled-producer", "checkpoint.", "delayed-retry-topic", "ordered", "reply.", "requests")


def _assume(reading: Reading) -> None:
    """Notes what SmallRye does that no file says."""
    if "producer" in reading.scopes:
        reading.notes.append(
            "SmallRye: acks is 1 unless the file says otherwise (KafkaConnector); no file says what the code "
            "does when a message was nacked"
        )
    if "consumer" in reading.scopes:
        reading.commits = Setting("sync-after", "SmallRye's commit-strategy throttled")
        reading.notes.append(
            "SmallRye: commit-strategy throttled commits every auto.commit.interval.ms up to the first record "
            "that is not processed, and does not wait for the answer; the trial waits for it"
        )
        transactional = reading.scopes.get("producer", {}).get("transactional.id")
        if transactional is not None:
            why = (
                "may have positions committed in the producer's transactions, and prozess does not predict "
                "this for a consumer"
            )
            reading.doubt("transactional.id", transactional.origin, why)
