"""Reads .NET's appsettings.json, in which Confluent.Kafka's settings are librdkafka's in one word: `EnableIdempotence`.

Confluent.Kafka makes these names from librdkafka's own (ConfigGen), and runs librdkafka. Sections are found wherever they
are: those with `Producer` or `Consumer` in their names are of that client, others of both."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from prozess.validation.formats.filing import CLIENT_SCOPES, ClientScope, Filing, names_of, word_of
from prozess.validation.reading import SCOPES, FileMapping, FileValue, Format, Reading, Scope

DEPTH_MAX = 6
_NAMES_OF_SIGNS = """
    BootstrapServers Acks GroupId EnableIdempotence AutoOffsetReset EnableAutoCommit EnableAutoOffsetStore TransactionalId
    MessageSendMaxRetries MessageTimeoutMs LingerMs SessionTimeoutMs MaxPollIntervalMs MaxInFlight
"""
_SIGNS = frozenset(_NAMES_OF_SIGNS.split())
"""What only settings of Confluent.Kafka are called."""
_NAMES_ASIDE = "topic topics topicname name enabled deliveryreportfields consumeresultfields cancellationdelaymaxms"
_ASIDE = frozenset(_NAMES_ASIDE.split())
_UNLESS_TRUE = {
    "enabledeliveryreports": "is off: nobody learns whether a record was stored",
    "enablebackgroundpoll": "is off: whether anybody asks for delivery reports no file says",
}
_WORDS: Mapping[str, Mapping[str, str]] = {
    "acks": {"all": "all", "leader": "1", "none": "0"},
    "auto.offset.reset": {"latest": "latest", "earliest": "earliest", "error": "error"},
    "isolation.level": {"readcommitted": "read_committed", "readuncommitted": "read_uncommitted"},
    "partition.assignment.strategy": {
        "range": "range", "roundrobin": "roundrobin", "cooperativesticky": "cooperative-sticky",
    },
    "compression.type": {name: name for name in ("none", "gzip", "snappy", "lz4", "zstd")},
    "group.protocol": {"classic": "classic", "consumer": "consumer"},
    "partitioner": {
        "random": "random", "consistent": "consistent", "consistentrandom": "consistent_random", "murmur2": "murmur2",
        "murmur2random": "murmur2_random",
    },
}  # fmt: skip
"""Property → a constant of Confluent.Kafka's, in lower case → the value of librdkafka."""


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


@cache
def _known(scope: ClientScope) -> Mapping[str, str]:
    return {_plain(name): name for name in sorted(names_of(scope, "librdkafka"))}


@dataclass(frozen=True, slots=True)
class _Section:
    spelt: str
    scopes: tuple[ClientScope, ...]
    """Which clients it is; two: it does not say."""
    settings: FileMapping


def _sections(document: FileValue, above: str = "", depth: int = 0) -> Iterator[_Section]:
    if not isinstance(document, Mapping) or depth > DEPTH_MAX:
        return
    if any(str(key) in _SIGNS and not isinstance(value, Mapping) for key, value in document.items()):
        named = [scope for scope in CLIENT_SCOPES if scope in above.rpartition(".")[2].lower()]
        yield _Section(above, (named[0],) if len(named) == 1 else CLIENT_SCOPES, document)
    for key, value in document.items():
        yield from _sections(value, f"{above}.{key}" if above else str(key), depth + 1)


@dataclass(frozen=True, slots=True)
class DotNet:
    """`appsettings.json`, and `appsettings.ENVIRONMENT.json` over it. `chosen`: the environment."""

    chosen: tuple[str, ...] = ()
    name: str = field(default=".NET", init=False)

    def in_profiles(self, profiles: Sequence[str]) -> Format:
        """Returns the format in this environment (ASPNETCORE_ENVIRONMENT)."""
        return DotNet(tuple(profiles))

    def recognises(self, document: FileValue, path: Path) -> bool:
        """Returns whether there is a section with settings of Confluent.Kafka."""
        return isinstance(document, Mapping) and next(_sections(document), None) is not None

    def read(self, document: FileValue, path: Path, wanted: Iterable[Scope]) -> Reading:
        """Reads the sections of producer and consumer."""
        filing = Filing(path, f"settings of .NET ({path.name})", library="librdkafka")
        environment = re.fullmatch(r"appsettings\.(.+)", path.stem, re.IGNORECASE)
        filing.reading.family, filing.reading.rank = ".NET", 0 if environment is None else 1
        filing.reading.profiles, filing.reading.active_profiles = bool(self.chosen), self.chosen
        sections = list(_sections(document))
        own = {scope for section in sections if len(section.scopes) == 1 for scope in section.scopes}
        asked = [scope for scope in CLIENT_SCOPES if scope in set(wanted) and tuple(wanted) != SCOPES]
        for section in sorted(sections, key=lambda each: len(each.scopes)):
            scopes = section.scopes if len(section.scopes) == 1 else _of_both(section, own or set(asked))
            for key, value in section.settings.items():
                if not isinstance(value, Mapping):
                    _file(filing, section, scopes, str(key), value)
        inside = {section.spelt.partition(".")[0] for section in sections}
        for key in document if isinstance(document, Mapping) else ():
            if str(key) not in inside and inside != {""}:
                filing.aside(str(key))
        return filing.reading


def _of_both(section: _Section, own: set[ClientScope]) -> tuple[ClientScope, ...]:
    """The clients of a section that does not say it: those that have sections of their own, else those its names say."""
    if own:
        return tuple(scope for scope in CLIENT_SCOPES if scope in own)
    names = {_plain(str(key)) for key in section.settings}
    only = [
        scope
        for scope, other in (CLIENT_SCOPES, CLIENT_SCOPES[::-1])
        if names & (set(_known(scope)) - set(_known(other)))
    ]
    return tuple(only) or CLIENT_SCOPES


def _file(filing: Filing, section: _Section, scopes: Sequence[ClientScope], key: str, value: FileValue) -> None:
    plain, spelt = _plain(key), f"{section.spelt}.{key}" if section.spelt else key
    if plain in _UNLESS_TRUE:
        if word_of(value) == "true":
            filing.aside(spelt)
        else:
            filing.unclear(spelt, _UNLESS_TRUE[plain])
        return
    known = [scope for scope in scopes if plain in _known(scope)]
    shared = len(section.scopes) > 1
    mine = [scope for scope in known if not (shared and filing.is_given(scope, _known(scope)[plain]))]
    if (
        plain in _ASIDE
        or (known and not mine)
        or (not known and any(plain in _known(scope) for scope in CLIENT_SCOPES))
    ):
        filing.aside(spelt)
    elif not known:
        filing.unclear(spelt, "is no setting of Confluent.Kafka that prozess knows", f"unknown-property:{key}")
    else:
        understood = True
        for scope in mine:
            name = _known(scope)[plain]
            if understood:
                understood = filing.setting(scope, name, spelt, _value(name, value))
            else:
                filing.touch(scope, name, spelt)


def _value(name: str, value: FileValue) -> FileValue:
    word = word_of(value)
    return _WORDS.get(name, {}).get(_plain(word), value) if word is not None else value
