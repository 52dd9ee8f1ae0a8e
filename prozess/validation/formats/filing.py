"""Puts each name of a file into exactly one place of its reading: a setting of Kafka's, aside, or not understood."""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Literal

import javaproperties

from prozess.harness import inputs
from prozess.harness.config.known_properties import CLIENTS, Setting, properties_of, versions
from prozess.harness.errors import BadInput
from prozess.validation.reading import (
    FileMapping,
    FileValue,
    Reading,
    Scope,
    is_foreign,
    of_no_promise,
    placeholder_in,
)

ClientScope = Literal["producer", "consumer"]
CLIENT_SCOPES: tuple[ClientScope, ClientScope] = ("producer", "consumer")
REPLICATION = "replication.factor"
"""For a topic; Kafka has it outside the topic's configuration."""
_NEAR = 0.75
_OTHERS = re.compile(
    r"listener\.name\.|cruise\.control\.metrics\.|confluent\.(support|license|metrics|reporters|balancer|telemetry)\."
)
"""Properties of brokers that are no part of Kafka's own list, and change none of its promises: of listeners, of reporters."""


@cache
def names_of(scope: Scope, library: str = "") -> frozenset[str]:
    """Returns every name that Kafka knows in this part, in any version that is known. `library`: java or librdkafka, else
    either."""
    clients = [client for client in CLIENTS if library in (client, "")] or list(CLIENTS)
    found = {name for client in clients for version in versions() for name in properties_of(scope, client, version)}
    return frozenset(found | ({REPLICATION} if scope == "topic" else set()))


def word_of(value: object) -> str | None:
    """Returns a single value, or a list of them, as Kafka spells it; None for anything else."""
    if isinstance(value, Setting):
        return value.value
    if isinstance(value, list):
        parts = [word_of(part) for part in value if not isinstance(part, list)]
        words = [part for part in parts if part is not None]
        return ",".join(words) if len(words) == len(value) else None
    if isinstance(value, Mapping):
        return None
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


def leaf_values(document: FileValue, above: str = "") -> Iterator[tuple[str, FileValue]]:
    """Yields (dotted name, value) of everything in nested mappings, without lists of mappings taken apart; an empty mapping
    is a leaf."""
    if isinstance(document, Mapping) and document:
        for key, value in document.items():
            yield from leaf_values(value, f"{above}.{key}" if above else str(key))
    else:
        yield above, document


def value_below(document: object, *keys: str) -> FileValue:
    """Returns what is below these keys in nested mappings; None where there is nothing."""
    found: FileValue = document if isinstance(document, Mapping) else None
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def mapping_in(value: object) -> FileMapping:
    """Returns a value of the file if it is a mapping, and an empty mapping if it is anything else."""
    return value if isinstance(value, Mapping) else {}


def documents_of(document: FileValue) -> Sequence[FileValue]:
    """Returns the documents of a YAML file, or the one value of a JSON file."""
    return [each for each in document if each is not None] if isinstance(document, list) else [document]


def unwrapped_document(document: FileValue, *names: str) -> tuple[str, FileMapping] | None:
    """Returns the one document of a file, or what is below the library's name in it; with where that is."""
    documents = documents_of(document)
    if len(documents) != 1 or not isinstance(documents[0], Mapping):
        return None
    for name in names:
        inner = documents[0].get(name)
        if isinstance(inner, Mapping) and len(documents[0]) == 1:
            return f"{name}.", inner
    return "", documents[0]


def properties_in(text: str, where: str) -> dict[str, str]:
    """Parses Java properties in a text that is a value of the file; the last of one name counts, as in Java."""
    inputs.refuse_endless_line(text, where)
    try:
        return dict(javaproperties.load(StringIO(text)))
    except ValueError as error:
        raise BadInput(f"{where} holds no properties: {error}. Write name=value in each of its lines.") from error


class Filing:
    """Fills a reading, and sees to it that no name is dropped and none counts twice."""

    def __init__(self, path: Path, format_: str, library: str = "", stands_in: str = "") -> None:
        self.reading = Reading(path, format_, library)
        self.reading.stands_in = stands_in
        self._given: dict[tuple[Scope, str], str] = {}

    def setting(self, scope: Scope, name: str, spelt: str, value: object) -> bool:
        """Files a setting, and returns whether it was understood. `name`: Kafka's; `spelt`: where it stands in the file. What
        cannot be a setting is not understood; is it one?"""
        word, before = word_of(value), self._given.get((scope, name))
        if name not in names_of(scope, self.reading.library):
            if (scope == "broker" and _OTHERS.match(name)) or (scope != "broker" and is_foreign(name)):
                self.aside(spelt)
            else:
                self.unclear(spelt, self._unknown(scope, name), f"unknown-property:{name}")
        elif before is not None:
            self.unclear(spelt, f"sets {name}, as {before} does: leave only one of them")
        elif word is None:
            self._given[scope, name] = spelt
            self.unclear(spelt, f"is not a single value, as {name} must be")
        elif (found := placeholder_in(word)) and of_no_promise(name):
            self.aside(spelt)
        elif found:
            self._given[scope, name] = spelt
            self.unclear(spelt, f"is a placeholder ({found}): write the value that it will have")
        else:
            self._given[scope, name] = spelt
            self.reading.put(scope, name, word, self._origin(spelt, value))
            return True
        return False

    def default(self, scope: Scope, name: str, value: str, origin: str) -> None:
        """Sets what the library takes by default."""
        self.reading.scopes.setdefault(scope, {})
        if (scope, name) not in self._given:
            self.reading.defaults.setdefault(scope, {})[name] = Setting(value, origin)

    def value(self, scope: Scope, name: str) -> Setting | None:
        """Returns what the file says, else the library's default; None where neither is understood."""
        found = self.reading.scopes.get(scope, {}).get(name)
        return found or self.reading.defaults.get(scope, {}).get(name)

    def is_given(self, scope: Scope, name: str) -> bool:
        """Returns whether the file says anything about this property, understood or not."""
        return (scope, name) in self._given

    def touch(self, scope: Scope, name: str, spelt: str) -> None:
        """Notes that the file says something about this property that was not understood: it has no default any more."""
        self._given.setdefault((scope, name), spelt)

    def aside(self, spelt: str) -> None:
        """Files a name that changes nothing that Kafka promises."""
        self.reading.aside.append(spelt)

    def unclear(self, spelt: str, why: str, rule: str = "") -> None:
        """Files a name that was not understood. `why`: the end of a sentence whose subject is the name; `rule`: by which a
        person may accept it."""
        self.reading.doubt(spelt, str(self.reading.path), why, rule)

    def _origin(self, spelt: str, value: object) -> str:
        return value.origin if isinstance(value, Setting) else f"{self.reading.path}, {spelt}"

    def _unknown(self, scope: Scope, name: str) -> str:
        near = difflib.get_close_matches(name, names_of(scope, self.reading.library), n=1, cutoff=_NEAR)
        whose = "librdkafka's" if self.reading.library == "librdkafka" else "Kafka's"
        return f"is no {scope} property of {whose}" + (f": did you mean {near[0]}?" if near else "")


# One topic of several that a file describes.


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as a file describes it."""

    name: str
    spelt: str
    """Where it stands in the file."""
    replicas: tuple[str, object] | None
    """Where the number of copies stands, and what it is; None: it is left to the brokers."""
    config: tuple[str, FileValue] | None
    others: list[str] = field(default_factory=list)
    """Names that are no part of its configuration: partitions, labels."""
    unknown: list[str] = field(default_factory=list)
    """Names that nobody knows."""

    def alike(self) -> object:
        """Returns what two topics must have in common to be judged as one."""
        replicas = None if self.replicas is None else word_of(self.replicas[1])
        config = self.config[1] if self.config else None
        same = {str(k): word_of(v) for k, v in config.items()} if isinstance(config, Mapping) else repr(config)
        return replicas, same or None, tuple(self.unknown)


def file_topic(filing: Filing, topics: list[Topic], wanted: str | None, needed: bool) -> None:
    """Files the topic of this name, else the only one, else any if all are alike. BadInput if one must be chosen."""
    if not topics:
        return
    names = ", ".join(topic.name for topic in topics)
    where = filing.reading.path
    if wanted is not None:
        chosen = next((topic for topic in topics if topic.name == wanted), None)
        if chosen is None:
            raise BadInput(f"{where} has no topic {wanted!r}. It has: {names}.")
    elif all(topic.alike() == topics[0].alike() for topic in topics):
        chosen = topics[0]
    elif needed:
        raise BadInput(
            f"{where} has {len(topics)} topics that are not set alike, and one is judged at a time: {names}. "
            "Say which with --topic-name."
        )
    else:
        for topic in topics:
            filing.unclear(
                topic.spelt, f"is one of several topics that are not set alike ({names}): say which with --topic-name"
            )
        return
    for topic in topics:
        if topic is chosen:
            _file_topic(filing, topic)
        else:
            filing.aside(topic.spelt)


def _file_topic(filing: Filing, topic: Topic) -> None:
    if topic.replicas is not None:
        spelt, number = topic.replicas
        filing.setting("topic", REPLICATION, spelt, number)
    if topic.config is not None:
        spelt, config = topic.config
        if isinstance(config, Mapping):
            for name, value in config.items():
                filing.setting("topic", str(name), f"{spelt}.{name}", value)
        elif config is not None:
            filing.unclear(spelt, "is no mapping of topic properties")
    for name in topic.others:
        filing.aside(name)
    for name in topic.unknown:
        filing.unclear(name, "is not understood")
