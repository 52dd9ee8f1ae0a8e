"""Client libraries with options of their own: what each option is in librdkafka, and what the library takes by default.

The libraries are in client_libraries.toml, which says what its tables mean. `read_library` reads a file by one of them.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prozess.validation.formats.filing import CLIENT_SCOPES, ClientScope, Filing, leaf_values, word_of
from prozess.validation.reading import FileMapping, FileValue, Scope, placeholder_in

PARTS: Mapping[str, ClientScope] = {scope: scope for scope in CLIENT_SCOPES}
Convert = Callable[[str], str | None]
"""The library's value as librdkafka has it; None: the library has no such value, or librdkafka has not."""

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


def _whole(value: str) -> str | None:
    return value if re.fullmatch(r"\d+", value) else None


def _retries_of_attempts(value: str) -> str | None:
    return str(max(0, int(value) - 1)) if _whole(value) else None


def _retries(value: str) -> str | None:
    """Returns a number of retries, of which infinity is one: the largest that librdkafka has."""
    return "2147483647" if value.strip(".").lower() in ("inf", "infinity") else _whole(value)


_CONVERSIONS: Mapping[str, Convert] = {
    "acks": lambda value: {"-1": "all", "all": "all", "0": "0", "1": "1"}.get(value.lower()),
    "attempts": _retries_of_attempts,
    "boolean": lambda value: value.lower() if value.lower() in ("true", "false") else None,
    "go-duration": go_duration_ms,
    "negated": lambda value: {"true": "false", "false": "true"}.get(value.lower()),
    "retries": _retries,
    "unchanged": lambda value: value,
    "whole": _whole,
}


@dataclass(frozen=True, slots=True)
class Option:
    """One option of the library, as a property of librdkafka."""

    name: str
    convert: Convert


@dataclass(frozen=True, slots=True)
class Default:
    """A library's default. `source`: which file of which version says so."""

    value: str
    source: str


@dataclass(frozen=True, slots=True)
class Library:
    """A client library and its options, as its table in client_libraries.toml has them."""

    name: str
    article: str
    stands_in: str
    options: Mapping[ClientScope, Mapping[str, Option]]
    defaults: Mapping[ClientScope, Mapping[str, Default]]
    aside: frozenset[str]
    own: frozenset[str] = frozenset()
    unclear: Mapping[str, str] = field(default_factory=dict)
    harmless: Mapping[str, str] = field(default_factory=dict)
    any_case: bool = False

    def spell(self, name: str) -> str:
        """Returns a name of a file as the options have it."""
        return name.lower() if self.any_case else name

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


def _by_words(table: Mapping[str, list[str]], calls: bool) -> Convert:
    """Makes a conversion by a table of [words]. `calls`: "kgo.NewOffset().AtStart()" is the word newoffset.atstart."""
    words = {word: value for value, spelt in table.items() for word in spelt}
    if calls:
        return lambda value: words.get(value.replace("()", "").removeprefix("kgo.").lower())
    return lambda value: words.get(value.lower())


def _library(name: str, document: Mapping[str, Any]) -> Library:
    table = document[name]
    like = document[table["like"]] if "like" in table else {}

    def option(text: str | list[str]) -> Option:
        property_, conversion = (text, "unchanged") if isinstance(text, str) else text
        convert = _CONVERSIONS.get(conversion)
        return Option(property_, convert or _by_words(document["words"][conversion], table.get("calls", False)))

    def of(scope: ClientScope, what: str) -> Mapping[str, Any]:
        return {k: v for each in (like, table) for k, v in each.get(what, {}).get(scope, {}).items()}

    return Library(
        name=name,
        article=table["article"],
        stands_in=stand_in_sentence(name),
        options={s: {spelt: option(text) for spelt, text in of(s, "options").items()} for s in CLIENT_SCOPES},
        defaults={s: {key: Default(*pair) for key, pair in of(s, "defaults").items()} for s in CLIENT_SCOPES},
        aside=frozenset(f"{like.get('aside', '')} {table['aside']}".split()),
        own=frozenset(table.get("own", "").split()),
        unclear=table.get("unclear", {}),
        harmless=table.get("harmless", {}),
        any_case=table.get("any_case", False),
    )


def _libraries() -> Mapping[str, Library]:
    document = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    return {name: _library(name, document) for name in document if name != "words"}


LIBRARIES = _libraries()


class Sections:
    """The parts of a document: settings of the producer, of the consumer, of both."""

    def __init__(
        self, document: FileMapping, above: str, library: Library, parts: Mapping[str, ClientScope] = PARTS
    ) -> None:
        """`above`: where the document is in the file; `parts`: the names that parts have."""
        self.above, self.keys = above, frozenset(map(str, document))
        self.of: dict[ClientScope, dict[str, tuple[str, FileValue]]] = {}
        """Name → where it stands in the file, and its value."""
        self.both: dict[str, tuple[str, FileValue]] = {}
        for key, value in document.items():
            scope = parts.get(str(key))
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
