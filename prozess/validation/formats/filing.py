"""Puts each name of a file into exactly one place of its reading: a setting of Kafka's, aside, or not understood."""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Literal

import javaproperties

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


def properties_in(text: str, where: str) -> dict[str, str]:
    """Parses Java properties in a text that is a value of the file; the last of one name counts, as in Java."""
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


# Settings of client libraries that are not Kafka's own, as Kafka's: names, values, and what the library takes by
# default.


ClientScope = Literal["producer", "consumer"]
CLIENT_SCOPES: tuple[ClientScope, ClientScope] = ("producer", "consumer")
Convert = Callable[[str], str | None]
"""The library's value as librdkafka has it; None: the library has no such value, or librdkafka has not."""


def unchanged(value: str) -> str | None:
    """Returns the value as it is."""
    return value


def true_or_false(value: str) -> str | None:
    """Returns true or false; None for anything else."""
    return value.lower() if value.lower() in ("true", "false") else None


def negated(value: str) -> str | None:
    """Returns false for true and true for false; None for anything else."""
    return {"true": "false", "false": "true"}.get(value.lower())


def number(value: str) -> str | None:
    """Returns the value if it is a whole number and not negative, else None."""
    return value if re.fullmatch(r"\d+", value) else None


def one_of(**values: str) -> Convert:
    """Makes a conversion by a table of the library's words, whatever their case."""
    table = {key.lower(): value for key, value in values.items()}
    return lambda value: table.get(value.lower())


def acks_of(value: str) -> str | None:
    """Converts 0, 1, -1 and all; None for anything else."""
    return {"-1": "all", "all": "all", "0": "0", "1": "1"}.get(value.lower())


_UNITS_MS = {"ms": 1.0, "s": 1_000.0, "m": 60_000.0, "h": 3_600_000.0}


def go_duration_ms(value: str) -> str | None:
    """Converts a Go duration to milliseconds: 1m30s is 90000. A number without a unit is nanoseconds to Go and milliseconds
    to most who write it: None."""
    if value in ("0", "0s"):
        return "0"
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h)", value)
    if not parts or "".join(amount + unit for amount, unit in parts) != value:
        return None
    return str(round(sum(float(amount) * _UNITS_MS[unit] for amount, unit in parts)))


@dataclass(frozen=True, slots=True)
class Option:
    """One option of the library, as a property of librdkafka."""

    name: str
    convert: Convert = unchanged


@dataclass(frozen=True, slots=True)
class Default:
    """A library's default. `source`: which file of which version says so."""

    value: str
    source: str


@dataclass(frozen=True, slots=True)
class Library:
    """A client library and its options. Names are looked up as `spell` makes them."""

    name: str
    article: str
    """For a person: "options of kafkajs"."""
    stands_in: str
    options: Mapping[ClientScope, Mapping[str, Option]]
    defaults: Mapping[ClientScope, Mapping[str, Default]]
    aside: frozenset[str]
    """Options that change nothing of what Kafka promises; a name that ends in `.` stands for all that begin with it."""
    unclear: Mapping[str, str] = field(default_factory=dict)
    """Options that change it in a way that librdkafka cannot be set to → why."""
    harmless: Mapping[str, str] = field(default_factory=dict)
    """For `unclear`, the value that changes nothing; without an entry: false."""
    spell: Callable[[str], str] = unchanged  # type: ignore[assignment]

    def knows(self, name: str) -> bool:
        """Returns whether this is any option of the library."""
        return (
            any(name in self.options[scope] for scope in CLIENT_SCOPES) or self.is_aside(name) or name in self.unclear
        )

    def is_aside(self, name: str) -> bool:
        """Returns whether this option changes nothing that Kafka promises."""
        return name in self.aside or any(name.startswith(each) for each in self.aside if each.endswith("."))


def stand_in_sentence(library: str) -> str:
    """Returns the sentence for a library in whose place trials run librdkafka."""
    return f"the trials run librdkafka with the same settings, so {library}'s own code is not judged"


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


class Sections:
    """The parts of a document: what is stated of the producer, of the consumer, of both."""

    def __init__(
        self,
        document: FileMapping,
        above: str,
        library: Library,
        *,
        parts: bool = True,
        more: Mapping[str, ClientScope] | None = None,
    ) -> None:
        """`more`: further names of parts."""
        self.of: dict[ClientScope, dict[str, tuple[str, FileValue]]] = {}
        """Name → where it stands in the file, and its value."""
        self.both: dict[str, tuple[str, FileValue]] = {}
        for key, value in document.items():
            scope = next((each for each in CLIENT_SCOPES if parts and key == each), (more or {}).get(str(key)))
            if scope is not None and isinstance(value, Mapping):
                mine = self.of.setdefault(scope, {})
                for name, each in leaf_values(value):
                    spelt = library.spell(name)
                    if name:  # a name that is in two parts is none of the library's, and so is not understood
                        mine[f"{key}.{spelt}" if spelt in mine else spelt] = (f"{above}{key}.{name}", each)
            else:
                self.both |= {library.spell(name): (above + name, each) for name, each in leaf_values({key: value})}

    def names(self) -> set[str]:
        """Returns the names in all parts."""
        return set(self.both).union(*self.of.values())


def read_library(library: Library, sections: Sections, path: Path, wanted: Iterable[Scope]) -> Filing:
    """Reads each option, then adds the library's defaults for the parts that the file is of."""
    filing = Filing(path, library.article, library.name, library.stands_in)
    for scope, options in sections.of.items():
        for name, (spelt, value) in options.items():
            _file(filing, library, name, spelt, value, (scope,))
    scopes = _scopes(library, sections, wanted)
    for name, (spelt, value) in sections.both.items():
        own = tuple(scope for scope in CLIENT_SCOPES if name in library.options[scope])
        targets = tuple(scope for scope in own if scope in scopes) or own
        _file(filing, library, name, spelt, value, targets, weaker=bool(sections.of))
    for scope in CLIENT_SCOPES:
        if scope in scopes:
            for name, default in library.defaults[scope].items():
                filing.default(scope, name, default.value, f"{library.name}'s default ({default.source})")
    return filing


def _scopes(library: Library, sections: Sections, wanted: Iterable[Scope]) -> set[ClientScope]:
    """Returns the parts of the file: those that are named, that only options of theirs are of, or that it was given for
    alone."""
    found = set(sections.of)
    for name in sections.both:
        own = [scope for scope in CLIENT_SCOPES if name in library.options[scope]]
        found |= set(own) if len(own) == 1 else set()
    asked = {scope for scope in CLIENT_SCOPES if scope in set(wanted)}
    return found | asked if len(asked) == 1 or not found else found


def _file(
    filing: Filing,
    library: Library,
    name: str,
    spelt: str,
    value: object,
    scopes: tuple[ClientScope, ...],
    *,
    weaker: bool = False,
) -> None:
    """One option of one part, or of several. `weaker`: what a part says itself counts instead."""
    options = [(scope, library.options[scope][name]) for scope in scopes if name in library.options[scope]]
    word = word_of(value)
    if not options:
        if name in library.unclear and word not in (library.harmless.get(name, "false"), ""):
            filing.unclear(spelt, library.unclear[name])
        elif library.is_aside(name) or name in library.unclear:
            filing.aside(spelt)
        else:
            whose = f" {scopes[0]}" if len(scopes) == 1 else ""
            filing.unclear(spelt, f"is no option of {library.name}'s{whose} that prozess knows")
        return
    if weaker:
        options = [(scope, option) for scope, option in options if not filing.is_given(scope, option.name)]
    if not options:
        filing.aside(spelt)
    understood = True
    for index, (scope, option) in enumerate(options):
        converted = word if word is None or placeholder_in(word) else option.convert(word)
        if not understood:
            filing.touch(scope, option.name, spelt)
        elif word is not None and converted is None:
            understood = False
            filing.touch(scope, option.name, spelt)
            if index == 0:
                filing.unclear(spelt, f"is {word!r}: librdkafka, which the trial runs instead, has no such value")
        else:
            understood = filing.setting(scope, option.name, spelt, converted if word is not None else value)
