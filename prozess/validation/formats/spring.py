"""Spring Boot: application.yml and application.properties with documents of profiles, and variables SPRING_KAFKA_…;
durations and sizes as it writes them."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from prozess.harness.config.known_properties import Setting, properties_of, versions
from prozess.validation.reading import (
    SCOPES,
    FileMapping,
    FileValue,
    Format,
    Properties,
    Reading,
    Scope,
    entries,
    is_foreign,
    json_value,
    placeholder_in,
)

_MS = {"ns": Decimal(1) / 1_000_000, "us": Decimal(1) / 1000, "ms": Decimal(1), "s": Decimal(1000)}
_MS |= {"m": _MS["s"] * 60, "h": _MS["s"] * 3600, "d": _MS["s"] * 86400, "": Decimal(1)}
_ISO = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)
_BYTES = {"": 1, "B": 1, "KB": 1024, "MB": 1024**2, "GB": 1024**3, "TB": 1024**4}


def milliseconds(text: str) -> str | None:
    """Returns "5s", "500ms", "PT1M", "500" (milliseconds) as whole milliseconds, as Spring's DurationStyle reads them;
    None: it is none."""
    plain = re.fullmatch(r"([+-]?\d+)([a-zA-Z]{0,2})", text.strip())
    if plain is not None and plain[2].lower() in _MS:
        return str(int(int(plain[1]) * _MS[plain[2].lower()]))
    iso = _ISO.fullmatch(text.strip())
    if iso is None or not any(iso.groups()):
        return None
    days, hours, minutes, seconds = (Decimal(part or 0) for part in iso.groups())
    return str(int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000))


def data_size_bytes(text: str) -> str | None:
    """Returns "16KB", "1MB", "16384" as bytes, as Spring's DataSize reads them (1KB is 1024 bytes); None: it is none."""
    found = re.fullmatch(r"([+-]?\d+)([a-zA-Z]{0,2})", text.strip())
    if found is None or found[2] not in _BYTES:
        return None
    return str(int(found[1]) * _BYTES[found[2]])


# Which documents of a Spring Boot file count, by the profiles that are active (Spring Boot, Externalized
# Configuration).


_CONDITION = re.compile(r"spring\.(config\.activate\.on-?profile|profiles)", re.IGNORECASE)
CONFIG_SERVERS = re.compile(
    r"spring\.cloud\.(config|vault|(consul|nacos|zookeeper|kubernetes)\.(config|secrets)|azure\.app-?configuration|"
    r"aws\.(param-?store|secrets-?manager))(\..+)?",
    re.IGNORECASE,
)
"""What Spring Cloud takes an application's settings from, in the application's own file or in bootstrap.yml."""
_PLATFORM = re.compile(r"spring\.config\.activate\.on-?cloud-?platform", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Active:
    """The profiles that are active, and whether any source names them."""

    names: frozenset[str]
    chosen_by_somebody: bool
    """Stated on the command line, by the name of a file, or in the file (spring.profiles.active)."""

    @staticmethod
    def of(documents: Sequence[Mapping[str, Setting]], chosen: Sequence[str], *, chosen_by_somebody: bool) -> "Active":
        """`chosen` counts more than what a file says; groups and `include` are followed."""
        names = list(chosen)
        groups: dict[str, list[str]] = {}
        for document in documents:
            for name, setting in document.items():
                if not chosen and name == "spring.profiles.active" and not placeholder_in(setting.value):
                    names += _words(setting.value)
                    chosen_by_somebody = True
                elif name == "spring.profiles.include":
                    names += _words(setting.value)
                elif name.startswith("spring.profiles.group."):
                    groups[name.removeprefix("spring.profiles.group.").partition("[")[0]] = _words(setting.value)
        found: set[str] = set()
        while names:
            name = names.pop()
            if name not in found:
                found.add(name)
                names += groups.get(name, [])
        return Active(frozenset(found or {"default"}), chosen_by_somebody)


def document_counts(document: Mapping[str, Setting], active: Active) -> bool | str:
    """Returns whether the document counts. A text: why that is not known."""
    for name, setting in document.items():
        if _PLATFORM.fullmatch(name):
            return f"is in a document for {name}={setting.value}: which platform the application runs on is in no file"
        if _CONDITION.fullmatch(name):
            return _holds(setting.value, active)
    return True


def _holds(condition: str, active: Active) -> bool | str:
    if re.search(r"[&|()]", condition) or placeholder_in(condition):
        return f"is in a document for the profiles {condition!r}, a condition that prozess does not read"
    if not active.chosen_by_somebody:
        return (
            f"is in a document for the profile {condition!r}, and no file says which profile is active: say --profile"
        )
    return any(
        (word[1:] not in active.names) if word.startswith("!") else word in active.names for word in _words(condition)
    )


def _words(value: str) -> list[str]:
    return [word.strip() for word in value.split(",") if word.strip()]


# Spring Boot: application.yml and application.properties, with documents of profiles, and variables SPRING_KAFKA_….
#
# What binds to what, and what Spring Boot and Spring for Apache Kafka set by themselves, is from their source:
# KafkaProperties (buildCommonProperties, Consumer.buildProperties, Producer.buildProperties: a `properties` map counts
# more than the names of its own part, and both more than what all clients share),
# ConcurrentKafkaListenerContainerFactoryConfigurer, KafkaMessageListenerContainer.determineAutoCommit
# (enable.auto.commit is false unless somebody sets it, since 2.3), ContainerProperties (AckMode.BATCH),
# ConsumerProperties.syncCommits, SeekUtils.DEFAULT_BACK_OFF.


_Convert = Callable[[str], str | None]


def _as_it_is(text: str) -> str | None:
    return text


def _isolation(text: str) -> str | None:
    """Returns the isolation level of an IsolationLevel constant, in whatever case and with whatever dashes."""
    name = re.sub(r"[-_]", "", text.lower())
    return {"readcommitted": "read_committed", "readuncommitted": "read_uncommitted"}.get(name)


_SHARED: Mapping[str, tuple[str, _Convert]] = {
    "bootstrapservers": ("bootstrap.servers", _as_it_is),
    "clientid": ("client.id", _as_it_is),
    "securityprotocol": ("security.protocol", _as_it_is),
}
_OF: Mapping[Scope, Mapping[str, tuple[str, _Convert]]] = {
    "producer": {
        **_SHARED,
        "acks": ("acks", _as_it_is),
        "batchsize": ("batch.size", data_size_bytes),
        "buffermemory": ("buffer.memory", data_size_bytes),
        "compressiontype": ("compression.type", _as_it_is),
        "keyserializer": ("key.serializer", _as_it_is),
        "valueserializer": ("value.serializer", _as_it_is),
        "retries": ("retries", _as_it_is),
        "transactionidprefix": ("transactional.id", _as_it_is),
    },
    "consumer": {
        **_SHARED,
        "autocommitinterval": ("auto.commit.interval.ms", milliseconds),
        "autooffsetreset": ("auto.offset.reset", _as_it_is),
        "enableautocommit": ("enable.auto.commit", _as_it_is),
        "fetchmaxwait": ("fetch.max.wait.ms", milliseconds),
        "fetchminsize": ("fetch.min.bytes", data_size_bytes),
        "groupid": ("group.id", _as_it_is),
        "heartbeatinterval": ("heartbeat.interval.ms", milliseconds),
        "isolationlevel": ("isolation.level", _isolation),
        "keydeserializer": ("key.deserializer", _as_it_is),
        "valuedeserializer": ("value.deserializer", _as_it_is),
        "maxpollrecords": ("max.poll.records", _as_it_is),
        "maxpollinterval": ("max.poll.interval.ms", milliseconds),
    },
}
"""Name under spring.kafka.producer and .consumer without dashes → Kafka's name, and how the value is read."""
_ASIDE = re.compile(
    r"(producer|consumer|streams|admin)?(ssl|jaas)\..*|(ssl|jaas)\..*|(producer|consumer)\.ssl\..*|admin\..*|"
    r"template\.(defaulttopic|closetimeout|observationenabled)|"
    r"listener\.(type|clientid|concurrency|polltimeout|nopollthreshold|ackcount|acktime|idlebetweenpolls|idleeventinterval|"
    r"idlepartitioneventinterval|monitorinterval|logcontainerconfig|missingtopicsfatal|immediatestop|autostartup|"
    r"changeconsumerthreadname|observationenabled|authexceptionretryinterval|onlylogrecordmetadata)"
)
"""Names under spring.kafka that change nothing of what is promised."""
_COMMITS = {"record": "sync-after", "batch": "sync-after", "time": "sync-after", "count": "sync-after"}
_COMMITS |= {"counttime": "sync-after"}
"""AckMode → `--commits`: all of them commit what the listener is through with."""


@dataclass(frozen=True, slots=True)
class Spring:
    """Files of this framework. `chosen`: the profiles that are active; none: what the file itself says."""

    chosen: tuple[str, ...] = ()
    name: str = field(default="Spring Boot", init=False)

    def in_profiles(self, profiles: Sequence[str]) -> Format:
        """Returns the format with these profiles active."""
        return Spring(tuple(profiles))

    def recognises(self, document: FileValue, path: Path) -> bool:
        """Returns whether the file has names under `spring.`, or variables SPRING_KAFKA_…."""
        names = [name for name, _ in entries(document, path) if not is_foreign(name)]
        return any(re.match(r"spring\.|SPRING_(KAFKA_|CLOUD_STREAM_|APPLICATION_JSON$)", name) for name in names)

    def read(self, document: FileValue, path: Path, wanted: Iterable[Scope]) -> Reading:
        """Reads the file. BadInput for a name that is there twice."""
        of_environment = isinstance(document, dict) and any(str(name).startswith("SPRING_") for name in document)
        profile = re.fullmatch(r"(?:application|bootstrap)-(.+)", path.stem)
        reading = Reading(
            path,
            f"Spring Boot's {'environment' if of_environment else path.name}",
            "java",
            profiles=bool(self.chosen),
            family="Spring Boot",
            rank=1000 if of_environment else 0 if profile is None else 1 + _rank(profile[1], self.chosen),
            finish=_assume,
        )
        found: list[tuple[str, Setting]] = []
        documents = [dict(entries(each, path)) for each in _documents(document)]
        documents = [_with_json(each, path, reading) for each in documents]
        active = Active.of(documents, self.chosen, chosen_by_somebody=bool(self.chosen) or profile is not None)
        reading.active_profiles = tuple(sorted(active.names)) if active.chosen_by_somebody else ()
        reading.known_profiles += [*_profiles_of(documents), *([] if profile is None else [profile[1]])]
        for settings in documents:
            mine = [(_canonical(name), setting) for name, setting in settings.items() if not _of_profiles(name)]
            counts = document_counts(settings, active)
            for name, setting in mine:
                if counts is True or not name.startswith("spring.kafka"):
                    found.append((name, setting))
                elif counts is False:
                    reading.aside.append(name)
                else:
                    reading.doubt(name, setting.origin, counts)
            reading.aside += [name for name in settings if _of_profiles(name)]
        _Application(reading, tuple(wanted)).take(found)
        return reading


_JSON = ("SPRING_APPLICATION_JSON", "spring.application.json")


def _with_json(settings: Mapping[str, Setting], path: Path, reading: Reading) -> dict[str, Setting]:
    """Puts in what the variable SPRING_APPLICATION_JSON holds, which counts more than other variables."""
    found = {name: each for name, each in settings.items() if name not in _JSON}
    for name in _JSON:
        if name not in settings:
            continue
        try:
            document = json_value(settings[name].value)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, Mapping):
            reading.doubt(
                name, settings[name].origin, "holds no mapping in JSON, and sets what Spring Boot reads first"
            )
            continue
        inner = {key: Setting(each.value, f"{settings[name].origin}, {name}") for key, each in entries(document, path)}
        given = {_canonical(key) for key in inner}
        found = {key: each for key, each in found.items() if _canonical(key) not in given} | inner
    return found


def _profiles_of(documents: Iterable[Mapping[str, Setting]]) -> list[str]:
    """The profiles that the documents have settings for, or groups of."""
    found: list[str] = []
    for document in documents:
        for name, setting in document.items():
            if _CONDITION.fullmatch(name):
                found += re.findall(r"[^\s,&|()!]+", setting.value)
            elif name.startswith("spring.profiles.group."):
                found += [name.removeprefix("spring.profiles.group.").partition("[")[0], *_words(setting.value)]
    return found


def _rank(profile: str, chosen: Sequence[str]) -> int:
    return chosen.index(profile) if profile in chosen else 0


def _documents(document: FileValue) -> list[FileMapping]:
    if isinstance(document, Properties):
        return list(document.documents)
    several = document if isinstance(document, list) else [document]
    return [each for each in several if isinstance(each, Mapping)]


_OF_PROFILES = re.compile(
    r"spring\.(config\.activate\.on-?profile|profiles(\.(active|include|default))?|profiles\.group\..+)"
)


def _of_profiles(name: str) -> bool:
    return _OF_PROFILES.fullmatch(name) is not None


_MAP = re.compile(r"(spring\.kafka\.(?:(?:producer|consumer|streams|admin)\.)?properties)\.?(.+)")
_PARTS = ("producer", "consumer", "listener", "template", "admin", "streams", "ssl", "jaas", "security", "retry")


def _canonical(name: str) -> str:
    """Returns the name in the form that the binder compares: lower case, no dashes; the keys of a map as they are,
    brackets taken off."""
    if name.startswith("SPRING_KAFKA_"):
        return _of_variable(name.lower().split("_")[2:])
    head, key = name, ""
    found = _MAP.fullmatch(re.sub(r"\.?\[([^\]]+)\]", r".\1", name))
    if found is not None:
        head, key = found.groups()
    return ".".join([re.sub(r"[-_]", "", head).lower(), *([key] if key else [])])


def _of_variable(words: list[str]) -> str:
    """SPRING_KAFKA_PRODUCER_BATCH_SIZE → spring.kafka.producer.batchsize: a variable's underscores are dots or nothing."""
    part = [words.pop(0)] if words[0] in _PARTS and len(words) > 1 else []
    if words[0] == "properties" and len(words) > 1:
        return ".".join(["spring", "kafka", *part, *words])
    return ".".join(["spring", "kafka", *part, "".join(words)])


class _Application:
    """Describes what a whole application's names come to."""

    def __init__(self, reading: Reading, wanted: Sequence[Scope]) -> None:
        self.reading = reading
        self.clients: list[Scope] = [scope for scope in ("producer", "consumer") if scope in wanted]
        self.named = tuple(wanted) != SCOPES
        """Were these parts asked for by name?"""

    def take(self, found: Sequence[tuple[str, Setting]]) -> None:
        """Each name once: shared ones first, and a part's `properties` last, which is the order in which they count."""
        own = {scope: any(name.startswith(f"spring.kafka.{scope}.") for name, _ in found) for scope in self.clients}
        takers = [scope for scope in self.clients if own[scope] or self.named]
        self.reading.notes += [setting.note for _, setting in found if setting.note]
        for name, setting in sorted(found, key=lambda pair: _weight(pair[0])):
            rest = name.removeprefix("spring.kafka.")
            if rest == name:
                self._elsewhere(name, setting)
            elif rest.startswith("properties.") or rest in ("bootstrapservers", "clientid", "security.protocol"):
                self._shared(rest, setting, takers)
            elif rest.startswith(("producer.", "consumer.")):
                self._own(rest, setting)
            else:
                self._around(rest, setting)

    def _elsewhere(self, name: str, setting: Setting) -> None:
        if name.startswith("spring.cloud.stream"):
            self.reading.doubt(
                name, setting.origin, "is of Spring Cloud Stream, whose binder has defaults of its own (acks=1)"
            )
        elif name in ("spring.config.import", "spring.config.additionallocation", "spring.config.location"):
            why = "takes settings from elsewhere, which may set Kafka's properties and override these"
            self.reading.doubt(name, setting.origin, why, f"unknown-property:{name}")
        elif CONFIG_SERVERS.fullmatch(name) and setting.value.strip().lower() != "false":
            why = "takes settings from a server, which may set Kafka's properties and override these"
            self.reading.doubt(name, setting.origin, why, f"unknown-property:{name}")
        elif "kafka" in name.lower():
            why = "is not a name that Spring Boot reads: only the application's code knows what it means"
            self.reading.doubt(name, setting.origin, why, f"unknown-property:{name}")
        else:
            self.reading.aside.append(name)

    def _shared(self, rest: str, setting: Setting, takers: Sequence[Scope]) -> None:
        """Takes the settings that all clients have: each that knows the name, which Kafka's clients ignore otherwise."""
        plain = {"bootstrapservers": "bootstrap.servers", "clientid": "client.id"}.get(rest, rest)
        name = plain.removeprefix("properties.")
        known = [s for s in ("producer", "consumer") if any(name in properties_of(s, "java", v) for v in versions())]
        mine = [scope for scope in takers if scope in known]
        for scope in mine or ([] if known else takers[:1]):
            self.reading.put(scope, name, setting.value, setting.origin)
        if not mine and (known or not takers):
            self.reading.aside.append(f"spring.kafka.{rest}")

    def _own(self, rest: str, setting: Setting) -> None:
        part, _, name = rest.partition(".")
        scope = next(each for each in ("producer", "consumer") if each == part)
        if scope not in self.clients or name.startswith("ssl."):
            self.reading.aside.append(f"spring.kafka.{rest}")
        elif name.startswith("properties."):
            self.reading.put(scope, name.removeprefix("properties."), setting.value, setting.origin)
        elif (known := _OF[scope].get(name.replace(".", ""))) is not None:
            value = setting.value if placeholder_in(setting.value) else known[1](setting.value)
            if value is None:
                self.reading.doubt(f"spring.kafka.{rest}", setting.origin, f"cannot have the value {setting.value!r}")
            elif known[0] == "transactional.id" and not value:
                self.reading.doubt(
                    f"spring.kafka.{rest}", setting.origin, "is empty: whether there are transactions is unclear"
                )
            else:
                self.reading.put(scope, known[0], value, setting.origin)
        else:
            self.reading.doubt(f"spring.kafka.{rest}", setting.origin, f"is no name of a {scope} of Spring Boot's")

    def _around(self, rest: str, setting: Setting) -> None:
        """Listeners, templates, retry topics, Streams."""
        name, reading = f"spring.kafka.{rest}", self.reading
        value = re.sub(r"[-_]", "", setting.value.lower())
        if rest == "listener.ackmode" and value in _COMMITS:
            reading.commits = Setting(_COMMITS[value], setting.origin)
            reading.own[name] = setting
        elif rest == "listener.ackmode" and value in ("manual", "manualimmediate"):
            reading.commits = Setting("", setting.origin)
            reading.own[name] = setting
        elif rest == "listener.ackmode":
            reading.doubt(name, setting.origin, f"is {setting.value!r}, which is no AckMode of Spring's")
        elif rest == "listener.asyncacks":
            self._unless_false(name, setting, "lets a listener acknowledge out of order, and no trial does this")
        elif rest.startswith("retry.topic."):
            if rest == "retry.topic.enabled":
                why = "sends a record whose listener failed to a retry topic and commits it, and no trial does this"
                self._unless_false(name, setting, why)
            else:
                reading.aside.append(name)
        elif rest in ("template.transactionidprefix", "template.allownontransactional"):
            self._unless_false(name, setting, "changes which records are sent in transactions")
        elif _ASIDE.fullmatch(rest):
            reading.aside.append(name)
        elif rest.startswith("streams."):
            why = "belongs to a Streams application: give its settings in their own .properties file (docs: Kafka Streams)"
            reading.doubt(name, setting.origin, why)
        else:
            reading.doubt(name, setting.origin, "is no name of Spring Boot's that prozess knows")

    def _unless_false(self, name: str, setting: Setting, why: str) -> None:
        if setting.value.lower() == "false":
            self.reading.aside.append(name)
        else:
            self.reading.doubt(name, setting.origin, why)


def _assume(reading: Reading) -> None:
    """Notes what Spring sets by itself, and what no file of its says."""
    if "producer" in reading.scopes:
        reading.notes.append(
            "Spring: prozess assumes Spring Boot's own producer. A ProducerFactory, a customizer or an "
            "environment variable may set more, which no file says. KafkaTemplate.send() only hands a record "
            "over: no file says what your code does if the send fails"
        )
    if "consumer" not in reading.scopes:
        return
    reading.defaults["consumer"] = {
        "enable.auto.commit": Setting("false", "Spring's default (KafkaMessageListenerContainer.determineAutoCommit)")
    }
    reading.notes.append(
        "Spring: a record whose listener fails ten times is logged and skipped (DefaultErrorHandler, "
        "SeekUtils.DEFAULT_BACK_OFF), unless the code has another error handler"
    )
    if reading.commits is None:
        reading.commits = Setting("sync-after", "Spring's default (AckMode.BATCH)")
    elif not reading.commits.value:
        reading.commits = None  # the listener's own code: no file says
    transactional = reading.scopes.get("producer", {}).get("transactional.id")
    if transactional is not None:
        why = "has listeners commit in the producer's transactions, and prozess does not predict this for a consumer"
        reading.doubt("spring.kafka.producer.transaction-id-prefix", transactional.origin, why)


def _weight(name: str) -> int:
    """Names of a greater weight count more: KafkaProperties puts them in later."""
    if re.match(r"spring\.kafka\.(producer|consumer)\.properties\.", name):
        return 3
    if re.match(r"spring\.kafka\.(producer|consumer)\.", name):
        return 2
    return 1 if name.startswith("spring.kafka.properties.") else 0
