"""Reads configuration files: their content, with the line of every key, and how much of it was understood."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import javaproperties
import yaml

from prozess.harness import inputs
from prozess.harness.config.client_settings import Unclear
from prozess.harness.config.known_properties import Setting, Settings, trimmed
from prozess.harness.errors import BadInput

Scope = Literal["producer", "consumer", "topic", "broker"]
SCOPES: tuple[Scope, ...] = ("producer", "consumer", "topic", "broker")
FileValue: TypeAlias = "bool | int | float | str | date | Setting | list[FileValue] | FileMapping | None"
"""Anything that a configuration file may hold, in JSON, YAML or lines of name=value."""
FileMapping: TypeAlias = "Mapping[Any, FileValue]"
"""A mapping in a configuration file. Keys of JSON are texts; keys of YAML may be numbers, truth values or nothing, too."""


@dataclass(frozen=True, slots=True)
class OfReleases:
    """A setting that only some releases of Kafka have, or whose value only some take."""

    name: str
    setting: Setting
    since: tuple[int, ...]
    """The first of them."""
    removed: tuple[int, ...]
    """The first release after them."""
    why: str
    """What is wrong with it in another release, as the end of a sentence whose subject is the name."""


@dataclass(slots=True)
class Reading:
    """One configuration file, read. Every name in it is in exactly one of `scopes`, `own`, `internal`, `aside` and
    `unclear`."""

    path: Path
    format: str
    """For a person, as it stands after a comma: "Spring Boot's application.yml"."""
    library: str = ""
    """The client library whose names these are: java, librdkafka, sarama, …; empty: the file does not say."""
    scopes: dict[Scope, dict[str, Setting]] = field(default_factory=dict)
    """What was understood, by Kafka's names (or librdkafka's): these are what clients and brokers are set to."""
    aside: list[str] = field(default_factory=list)
    """Names that are no Kafka setting and cannot change what Kafka promises: `server.port` of a Spring application."""
    unclear: list[Unclear] = field(default_factory=list)
    defaults: dict[Scope, dict[str, Setting]] = field(default_factory=dict)
    """What a framework sets where nobody does (Connect's worker sets acks=all). For a part alone that the file has."""
    commits: Setting | None = None
    """How the application commits, in the words of `--commits`, where the file says it."""
    brokers: int | None = None
    """How many brokers there are, where the file says it."""
    kafka_version: str | None = None
    """The version of the brokers, if the file says it."""
    no_version: list[Unclear] = field(default_factory=list)
    """Why the file does not say the version although it names what runs: unclear unless somebody says it otherwise."""
    makes_topics: list[Unclear] = field(default_factory=list)
    """What makes topics with settings that are not read: unclear unless somebody says what the topic has."""
    stands_in: str = ""
    """What runs in the trial in place of the file's own client, as a sentence, where that is another program."""
    notes: list[str] = field(default_factory=list)
    """A sentence for the user about the format: what its files never contain."""
    own: dict[str, Setting] = field(default_factory=dict)
    """The framework's own settings that were understood and decide something: `processing.guarantee`."""
    of_releases: list[OfReleases] = field(default_factory=list)
    """What is unclear where the client is of another release: which one it is no file says."""
    internal: dict[str, Setting] = field(default_factory=dict)
    """What topics are set to that a framework makes for itself, by the file's names: `offset.storage.replication.factor`."""
    creates: dict[str, Setting] = field(default_factory=dict)
    """What topics are made with that a framework makes: it counts where nobody says what the topic is set to."""
    profiles: bool = False
    """Whether the format has profiles, of which some were chosen."""
    known_profiles: list[str] = field(default_factory=list)
    """The profiles that the file has something for."""
    active_profiles: tuple[str, ...] = ()
    """The profiles that are active; empty: nobody says which."""
    over: tuple[Path, ...] = ()
    """Other files that this one lies over, and that are in it."""
    family: str = ""
    """For files that are read one over the other by their format's own rules; empty: of no such format."""
    rank: int = 0
    """Within the family: what a file of a higher rank says counts."""
    narrows: bool = False
    """Has only the parts that this file has, whatever parts those under it have: a connector in a worker."""
    finish: Callable[["Reading"], None] | None = None
    """What is done once all files of the family are one reading: what the framework sets by itself, what is missing."""

    def of(self, scope: Scope) -> Mapping[str, Setting] | None:
        """Returns the settings of this part; None if the file has none."""
        return self.scopes.get(scope)

    def put(self, scope: Scope, name: str, value: str, origin: str) -> None:
        """Keeps a setting of a scope: the last value of a name counts. `origin`: where it was read."""
        self.scopes.setdefault(scope, {})[name] = Setting(value, origin)

    def doubt(self, name: str, origin: str, why: str, rule: str = "") -> None:
        """Adds something that was not understood."""
        self.unclear.append(Unclear(name, origin, why, rule))

    def under(self, other: "Reading") -> "Reading":
        """Returns this file with the other one laid over it: what the other says counts."""
        scopes = _over(self.scopes, other.scopes)
        return replace(
            other,
            format=f"{other.format} over {self.format} ({self.path})",
            library=other.library or self.library,
            scopes={scope: scopes[scope] for scope in scopes if not other.narrows or scope in other.scopes},
            aside=self.aside + other.aside,
            unclear=self.unclear + other.unclear,
            defaults=_over(self.defaults, other.defaults),
            commits=other.commits or self.commits,
            brokers=other.brokers or self.brokers,
            kafka_version=other.kafka_version or self.kafka_version,
            no_version=self.no_version + other.no_version,
            makes_topics=self.makes_topics + other.makes_topics,
            stands_in=other.stands_in or self.stands_in,
            notes=list(dict.fromkeys(self.notes + other.notes)),
            own=self.own | other.own,
            of_releases=self.of_releases + other.of_releases,
            internal=self.internal | other.internal,
            creates=self.creates | other.creates,
            profiles=self.profiles or other.profiles,
            known_profiles=self.known_profiles + other.known_profiles,
            active_profiles=other.active_profiles or self.active_profiles,
            over=(self.path, *self.over),
            finish=other.finish or self.finish,
        )

    @property
    def understood(self) -> int:
        """The number of Kafka's settings that were understood."""
        found = sum(
            setting is not self.defaults.get(scope, {}).get(name)
            for scope, settings in self.scopes.items()
            for name, setting in settings.items()
        )
        return found + len(self.own) + len(self.internal)

    def summary(self) -> str:
        """ "app.yml, Spring Boot's application.yml: 7 settings understood, 12 not of Kafka, 1 not understood" """
        parts = [f"{self.understood} setting{'s' if self.understood != 1 else ''} understood"]
        parts += [f"{len(self.aside)} not of Kafka"] if self.aside else []
        parts += [f"{len(self.unclear)} not understood"] if self.unclear else []
        return f"{self.path}, {self.format}: {', '.join(parts)}"


def settings_of(readings: Iterable[Reading], scope: Scope) -> Settings | None:
    """Returns the settings of this part; None if no file has it. One has it at most: whoever reads the files refuses two."""
    return next((reading.scopes[scope] for reading in readings if scope in reading.scopes), None)


def _over(
    below: Mapping[Scope, Mapping[str, Setting]], above: Mapping[Scope, Mapping[str, Setting]]
) -> dict[Scope, dict[str, Setting]]:
    both = [scope for scope in SCOPES if scope in below or scope in above]
    return {scope: {**below.get(scope, {}), **above.get(scope, {})} for scope in both}


_PLACEHOLDER = re.compile(
    r"\$\{[^}]*\}?"  # Spring, Quarkus, Compose, Kafka's ConfigProvider (KIP-297), a shell
    r"|\$\([^)]*\)"  # Kubernetes
    r"|\{\{.*?(?:\}\}|$)|\{%.*?(?:%\}|$)"  # Helm and Go templates, Jinja (Ansible)
    r"|[%#@]\{[^}]*\}?"  # Terraform and Puppet, Spring's expressions, Octopus
    r"|\$[A-Za-z_][A-Za-z0-9_]*"  # a shell, Compose
    r"|%[A-Za-z_][A-Za-z0-9_]*%"  # Windows
    r"|@[A-Za-z_][A-Za-z0-9_.-]*@"  # Maven's filtered resources
    r"|__[A-Z][A-Z0-9_]*__"
    r"|<[A-Za-z_][^<>]*>|<%.*?(?:%>|$)"  # a person's, ERB
    r"|\bENC\("  # Jasypt
    r"|!(?:Ref|Sub|vault)\b",
    re.DOTALL,
)


def placeholder_in(value: str) -> str | None:
    """Returns the part of a value that stands for another value, which is nowhere in the file: `${ACKS}`, `${ACKS:all}`,
    `$(ACKS)`, `{{ .Values.acks }}`. None: the value is one. A default (`all` in `${ACKS:all}`) counts only where nobody sets
    the variable, which no file says."""
    found = _PLACEHOLDER.search(value)
    return None if found is None else found[0]


class Format(Protocol):
    """A way in which people write Kafka's settings down. One file of `formats/`, one line of `formats.FORMATS`.

    `document` is what the file's ending says: a mapping or a list of documents for JSON and YAML (YAML files may hold several
    documents: always a list), the flat mapping name → Setting of .properties and environment files."""

    @property
    def name(self) -> str:
        """Returns the name of the format, for a person."""
        ...

    def recognises(self, document: FileValue, path: Path) -> bool:
        """Returns whether the file has this format. Never raises."""
        ...

    def read(self, document: FileValue, path: Path, wanted: Iterable[Scope]) -> Reading:
        """Reads the file. `wanted`: the parts that the file was given for. BadInput for what is wrong with it."""
        ...


# What a configuration file holds before anybody asks what it means: by its ending, with the line of every key.


ENDINGS_YAML = (".yaml", ".yml")
_OF_NO_USE = {
    ".xml": "XML",
    ".hocon": "HOCON",
    ".tf": "Terraform's HCL (write the `config` of its topic into a .properties file, with replication.factor)",
    ".hcl": "HCL (write its settings into a .properties file)",
    ".java": "source code",
    ".kt": "source code",
    ".py": "source code",
    ".go": "source code",
    ".js": "source code",
    ".ts": "source code",
}
"""Endings of files whose lines look like settings, and are none."""


class Key(str):
    """A key of a JSON or YAML document, which knows its line."""

    __slots__ = ("line",)
    line: int

    def __new__(cls, text: str, line: int) -> "Key":
        """`line` counts from 1."""
        made = super().__new__(cls, text)
        made.line = line
        return made


def origin(path: Path, key: object) -> str:
    """Returns file and line for a person; only the file if the line is not known."""
    return f"{path}:{key.line}" if isinstance(key, Key) else str(path)


def load(path: Path) -> FileValue:
    """Loads a file by its ending. JSON: its value; YAML: the list of its documents; an environment file and Java's
    .properties, whose format librdkafka's files share: name → Setting. BadInput for a file that is not there, or not what its
    ending says."""
    ending = path.suffix.lower()
    if ending in _OF_NO_USE:
        raise BadInput(
            f"{path}: {_OF_NO_USE[ending]} is not read by prozess. Give a .properties, .json, .yaml or .env file."
        )
    plain = not (ending in (".json", ".toml", ".ini", *ENDINGS_YAML) or _is_environment(path))
    return parse(path, _text_of_properties(path) if plain else _text(path))


def _is_environment(path: Path) -> bool:
    return path.suffix == ".env" or path.name.startswith(".env")


def parse(path: Path, text: str) -> FileValue:
    """Parses the text of a file by its ending, as `load` does."""
    ending = path.suffix.lower()
    if ending == ".json":
        return _parsed(path, lambda: json_value(text), "JSON")
    if ending in ENDINGS_YAML:
        return _parsed(path, lambda: yaml_documents(text), "YAML")
    if ending == ".toml":
        return _parsed(path, lambda: toml_value(text), "TOML")
    if ending == ".ini":
        return _parsed(path, lambda: ini_value(text), "INI")
    return _environment_file(text, path) if _is_environment(path) else _properties(text, path)


def load_yaml(path: Path) -> list[FileValue]:
    """Loads the documents of a YAML file, whatever its ending. BadInput for what is none."""
    return _parsed(path, lambda: yaml_documents(_text(path)), "YAML")


def load_environment(path: Path) -> dict[str, Setting]:
    """Loads an environment file, whatever its ending. BadInput for what is none."""
    return _environment_file(_text(path), path)


def as_kafka_spells(value: object) -> str:
    """Returns a value of JSON or YAML as Kafka spells it."""
    if isinstance(value, list):
        return ",".join(as_kafka_spells(part) for part in value)
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


def flat(document: FileMapping, path: Path, above: tuple[str, ...] = ()) -> Iterator[tuple[str, Setting]]:
    """Yields the names and settings of nested mappings, whose names are joined by dots: {"linger": {"ms": 5}}. BadInput for
    one name in two spellings."""
    seen: dict[str, str] = {}
    for name, setting in _flat(document, path, above):
        if name in seen:
            raise BadInput(f"{setting.origin}: {name!r} is there twice, and only one can be meant: remove the other.")
        seen[name] = setting.origin
        yield name, setting


def entries(document: FileValue, path: Path) -> list[tuple[str, Setting]]:
    """Returns the names and settings of what `load` gave, of all of its documents; nothing of what is no mapping."""
    if isinstance(document, list):
        return [entry for each in document for entry in entries(each, path)]
    if not isinstance(document, Mapping):
        return []
    settings = [(str(name), each) for name, each in document.items() if isinstance(each, Setting)]
    if len(settings) == len(document):
        return settings
    return list(flat(document, path))


def _flat(document: FileMapping, path: Path, above: tuple[str, ...]) -> Iterator[tuple[str, Setting]]:
    for key, value in document.items():
        name = (*above, as_kafka_spells(key))
        if isinstance(value, Mapping) and value:
            yield from _flat(value, path, name)
        elif isinstance(value, list) and any(isinstance(part, (Mapping, list)) for part in value):
            for index, part in enumerate(value):
                yield from _flat({Key(f"{name[-1]}[{index}]", getattr(key, "line", 1)): part}, path, name[:-1])
        else:
            yield (
                ".".join(name),
                Setting("" if isinstance(value, Mapping) else as_kafka_spells(value), origin(path, key)),
            )


# JSON.

_KEY_OR_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"(\s*:)?', re.DOTALL)


def json_value(text: str) -> FileValue:
    """Parses JSON. ValueError for what is no JSON, or has a key twice."""
    value = json.loads(text, object_pairs_hook=_each_once)
    return _with_lines(value, _lines_of_keys(text))


def _lines_of_keys(text: str) -> Iterator[int]:
    """Returns lines in the order of the text, which is that of the document: a mapping's key comes before what it holds."""
    line, position = 1, 0
    for found in _KEY_OR_TEXT.finditer(text):
        line += text.count("\n", position, found.start())
        position = found.start()
        if found[1] is not None:
            yield line


def _with_lines(value: FileValue, lines: Iterator[int]) -> FileValue:
    if isinstance(value, dict):
        made: dict[str, FileValue] = {}
        for key, each in value.items():
            mine = Key(key, next(lines))
            made[mine] = _with_lines(each, lines)
        return made
    return [_with_lines(each, lines) for each in value] if isinstance(value, list) else value


def _each_once(pairs: list[tuple[str, FileValue]]) -> dict[str, FileValue]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} is there twice, and only one can be meant: remove the other")
    return made


# YAML.


class _EachOnce(yaml.SafeLoader):
    """YAML says that the keys of a mapping are unique (1.2.2, 3.2.1.1); PyYAML takes the last. Keys know their lines."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        merged = {id(key) for key, _ in node.value if key.tag == "tag:yaml.org,2002:merge"}
        own = [key for key, _ in node.value if id(key) not in merged]
        names = [self.construct_object(key, deep=True) for key in own]
        for index, name in enumerate(names):
            if name in names[:index]:
                line = own[index].start_mark.line + 1
                raise ValueError(f"line {line}: {name!r} is there twice, and only one can be meant: remove the other")
        made: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        lines = {id(key): key.start_mark.line + 1 for key, _ in node.value}  # what was merged is in node.value by now
        with_lines = {}
        for key, _ in node.value:
            name = self.construct_object(key, deep=True)
            with_lines[Key(name, lines[id(key)]) if isinstance(name, str) else name] = made[name]
        return with_lines


def yaml_documents(text: str) -> list[FileValue]:
    """Parses YAML, and returns its documents without empty ones. ValueError or YAMLError for what is no YAML, or has a key
    twice."""
    loader = _EachOnce(text)
    try:
        documents = []
        while loader.check_node():
            node = loader.get_node()
            assert node is not None, "there is one"
            _refuse_bombs(node)
            documents.append(loader.construct_document(node))
    finally:
        loader.dispose()
    return [document for document in documents if document is not None]


_VALUES_MAX = 200_000
"""How many values a document may stand for. Files of thousands of lines have some ten thousand."""


def _refuse_bombs(document: yaml.Node) -> None:
    """Raises ValueError for a document that stands for more values than a file of settings has.

    A name for a part (`&a`) costs nothing, and ten uses of it (`*a`) stand for ten parts: seven such lines, one in the other,
    are ten million values. Each part is counted once, and its count used as often as it is named."""
    counted: dict[int, int] = {}
    open_: set[int] = set()

    def values_of(node: yaml.Node) -> int:
        if id(node) in counted:
            return counted[id(node)]
        if id(node) in open_:
            raise ValueError(f"line {node.start_mark.line + 1}: this part is in itself")
        open_.add(id(node))
        if isinstance(node, yaml.MappingNode):
            inner = sum(values_of(key) + values_of(value) for key, value in node.value)
        else:
            inner = sum(map(values_of, node.value)) if isinstance(node, yaml.SequenceNode) else 0
        open_.discard(id(node))
        if inner >= _VALUES_MAX:
            line = node.start_mark.line + 1
            raise ValueError(f"line {line}: its names for parts (&, *) stand for more than {_VALUES_MAX:,} values")
        counted[id(node)] = 1 + inner
        return counted[id(node)]

    values_of(document)


# TOML and INI.

_SECTION = re.compile(r"\s*\[+\s*(.+?)\s*\]+\s*(?:[#;].*)?")
_NAMED = re.compile(r"\s*([\"']?)([^\"'=:\[\]#;]+?)\1\s*[=:]")


def toml_value(text: str) -> FileValue:
    """Parses TOML. ValueError for what is none."""

    return _with_lines_of(inputs.parse_toml(text), text)


def ini_value(text: str) -> FileValue:
    """Parses an INI file, whose sections are mappings. ValueError for what is none, or has a name twice."""
    import configparser

    parser = configparser.RawConfigParser(default_section="", strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise ValueError(str(error)) from error
    return _with_lines_of({name: dict(parser[name]) for name in parser.sections()}, text)


def _with_lines_of(document: Mapping[str, Any], text: str) -> FileValue:
    """Gives the names of sections and of settings the lines at which they first stand."""
    lines: dict[tuple[str, str], int] = {}
    section = ""
    for number, line in enumerate(text.split("\n"), 1):
        if (headed := _SECTION.fullmatch(line)) is not None:
            section = headed[1]
            lines.setdefault(("", section.rpartition(".")[2]), number)
        elif (named := _NAMED.match(line)) is not None:
            lines.setdefault((section, named[2]), number)
    return _keyed(document, lines, "")


def _keyed(value: Any, lines: Mapping[tuple[str, str], int], above: str) -> FileValue:  # noqa: ANN401
    if isinstance(value, Mapping):
        made: dict[Any, FileValue] = {}
        for key, each in value.items():
            line = lines.get((above, str(key)), lines.get(("", str(key)), 1))
            made[Key(str(key), line)] = _keyed(each, lines, f"{above}.{key}" if above else str(key))
        return made
    if isinstance(value, list):
        return [_keyed(each, lines, above) for each in value]
    found: FileValue = value
    return found


# .properties and environment files.


class Properties(dict[str, Setting]):
    """A .properties file: name → setting, of the whole file, as Java reads it; and of each of its documents, which Spring
    Boot separates by a line `#---` or `!---`."""

    def __init__(self) -> None:
        super().__init__()
        self.documents: list[dict[str, Setting]] = [{}]


def _properties(text: str, path: Path) -> Properties:
    """Parses a .properties file. Java takes the last of several settings with one name; a note says so."""
    inputs.refuse_endless_line(text, path)
    found = Properties()
    line = 1
    try:
        for element in javaproperties.parse(text):
            if isinstance(element, javaproperties.KeyValue):
                _put(found, element.key, trimmed(element.value), f"{path}:{line}")
                _put(found.documents[-1], element.key, trimmed(element.value), f"{path}:{line}")
            elif re.fullmatch(r"[#!]---[ \t\r\n]*", element.source):
                found.documents.append({})
            line += element.source.count("\n")
    except javaproperties.InvalidUEscapeError as error:
        raise BadInput(
            f"{path}:{line}: {error}. Write the character itself, or \\u and four hexadecimal digits."
        ) from error
    return found


_VARIABLE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*(.*)")


def _environment_file(text: str, path: Path) -> dict[str, Setting]:
    """Parses an environment file: NAME=VALUE in each line, quotes taken off, as Compose reads an env_file. BadInput for
    another line."""
    found: dict[str, Setting] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        matched = _VARIABLE.fullmatch(line.strip())
        if matched is None:
            raise BadInput(
                f"{path}:{number}: {line.strip()!r} is no NAME=VALUE, which is all that an environment file has."
            )
        name, value = matched.groups()
        if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        else:
            value = re.sub(r"\s+#.*", "", value)
        _put(found, name, value, f"{path}:{number}")
    return found


def _put(found: dict[str, Setting], name: str, value: str, where: str) -> None:
    note = f"{where}: {name} is there again, and this one counts" if name in found else ""
    found[name] = Setting(value, where, note)


# Text.

_Parsed = TypeVar("_Parsed")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def _text_of_properties(path: Path) -> str:
    """Reads the text as UTF-8, else as Latin-1, in which Java reads such files (java.util.Properties.load of a stream, which
    is what Kafka's tools do). BadInput for one with a byte order mark."""
    try:
        content = inputs.read_bytes(path)
    except OSError:
        return _text(path)
    if content.startswith(_BYTE_ORDER_MARK):
        raise BadInput(
            f"{path} begins with a byte order mark, which Java takes for a part of the first name, so that Kafka ignores "
            "that property. Save the file as UTF-8 without one."
        )
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _text(path: Path) -> str:
    try:
        return inputs.read_text(path)
    except FileNotFoundError as error:
        raise BadInput(f"{str(path)!r} does not exist. Give a .properties, .json or .yaml file.") from error
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadInput(f"{str(path)!r} cannot be read: {why}.") from error


def _parsed(path: Path, parse: Callable[[], _Parsed], what: str) -> _Parsed:
    try:
        return parse()
    except (ValueError, TypeError, yaml.YAMLError) as error:
        raise BadInput(f"{path} is not {what}: {' '.join(str(error).split()).rstrip('.')}.") from error
    except RecursionError as error:
        raise BadInput(too_deep(path)) from error


def too_deep(path: Path) -> str:
    """Returns the error message for a file that is nested too deeply."""
    return f"{path} is nested too deeply to be read. Nothing that it may say needs more than ten levels."


# Names that stand among a client's settings and are no property of Kafka's, but are documented to change how records
# become bytes, which changes nothing that Kafka promises; and properties of Kafka's that no promise depends on.


_FOREIGN = re.compile(
    # Kafka's StringSerializer and its kin ("key.serializer.encoding"), converters and serializers by their prefixes
    r"(key|value)\..+|serializer\.encoding|deserializer\.encoding|"
    # Confluent's serializers: io.confluent.kafka.serializers.AbstractKafkaSchemaSerDeConfig and its heirs
    r"schema\.registry\..+|basic\.auth\.(credentials\.source|user\.info)|bearer\.auth\..+|auto\.register\.schemas|"
    r"use\.(latest\.version|latest\.with\.metadata|schema\.id)|latest\.(compatibility\.strict|cache\.(size|ttl\.sec))|"
    r"normalize\.schemas|id\.compatibility\.strict|avro\..+|specific\.avro\.(reader|key\.type|value\.type)|"
    r"specific\.protobuf\.(key|value)\.type|derive\.type|reference\.subject\.name\.strategy|context\.name\.strategy|"
    r"json\.(fail|value|key|oneof|schema|write|default|indent)\..+|rule\.(executors|actions|service)\..+|"
    # Apicurio's: io.apicurio.registry.serde.config
    r"apicurio\.(registry|auth|protobuf|jsonschema|avro)\..+|"
    # Spring's JsonSerializer, JsonDeserializer, DelegatingSerializer and ErrorHandlingDeserializer
    r"spring\.(json|deserializer|message|kafka\.serialization)\..+|spring\.kafka\.(key|value)\..+"
)
_OF_NO_PROMISE = re.compile(
    r"bootstrap\.servers|metadata\.broker\.list|client\.(id|rack)|group\.id|statistics\.interval\.ms|debug|"
    r"(ssl|sasl|security)\..+|schema\.registry\..+|(key|value)\.(de)?serializer|"
    r"(advertised\.)?listeners|listener\.(security\.protocol\.map|name\..+)|inter\.broker\.listener\.name|"
    r"controller\.(listener\.names|quorum\.(voters|bootstrap\.servers))|node\.id|broker\.(id|rack)|"
    r"(metadata\.)?log\.dirs?|zookeeper\.connect|super\.users|authorizer\..+|metric\.reporters|"
    r"(offset|config|status)\.storage\.topic|application\.id|state\.dir|rest\..+|plugin\.path"
)


def is_foreign(name: str) -> bool:
    """Returns whether this is a setting of a serializer or the like, which no promise depends on."""
    return _FOREIGN.fullmatch(name) is not None


def of_no_promise(name: str) -> bool:
    """Returns whether no promise depends on the value of this property. Where brokers are, who clients are."""
    return _OF_NO_PROMISE.fullmatch(name) is not None
