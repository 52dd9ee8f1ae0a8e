"""Reads files that Kubernetes wraps: ConfigMaps and Secrets that hold files, and the variables of applications' containers.

What is inside is read by the format that it has. Its lines are those of the manifest, as far as the text stands there line by
line (`|`)."""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from prozess.harness.config.known_properties import Setting
from prozess.harness.errors import BadInput
from prozess.validation.formats.filing import documents_of, mapping_in, value_below, word_of
from prozess.validation.reading import (
    SCOPES,
    FileMapping,
    FileValue,
    Format,
    Key,
    Reading,
    Scope,
    parse,
)

_FILE = re.compile(r".+\.(properties|conf|ya?ml|json|toml|ini|env)|\.env")
_HOLDERS = ("ConfigMap", "Secret")
_WORKLOADS = ("StatefulSet", "Deployment", "DaemonSet", "ReplicaSet", "Job", "Pod")
_OF_SCOPE: Mapping[str, Scope] = {
    "producer": "producer",
    "consumer": "consumer",
    "server": "broker",
    "broker": "broker",
    "topic": "topic",
}


@dataclass(frozen=True, slots=True)
class _Inner:
    """Something that a format reads, inside of a manifest."""

    spelt: str
    name: Path
    document: FileValue
    line: int | None
    """For its key in the manifest."""
    format: Format
    doubts: tuple[tuple[str, str], ...] = ()


class WrappedFiles:
    """ConfigMaps, Secrets, and workloads with an application's variables."""

    name = "Kubernetes, files and variables of applications"

    def __init__(self, formats: Callable[[], Sequence[Format]], plain: Format) -> None:
        """`formats`: returns all formats, of which any but this one may be inside; `plain`: for files with Kafka's own
        names."""
        self._all, self._plain = formats, plain

    @property
    def _formats(self) -> Sequence[Format]:
        return [each for each in self._all() if each is not self]

    def recognises(self, document: FileValue, path: Path) -> bool:
        """Returns whether a resource holds something that a format recognises."""
        try:
            return next(self._inner(document), None) is not None
        except (BadInput, RecursionError):
            return True

    def read(self, document: FileValue, path: Path, wanted: Iterable[Scope]) -> Reading:
        """Reads what is inside; files of one family one over the other. BadInput where one part occurs twice."""
        wanted = tuple(wanted)
        found = [self._read(each, path, wanted) for each in self._inner(document)]
        whole: Reading | None = None
        for reading in sorted(found, key=lambda each: each.rank):
            if whole is None:
                whole = reading
            elif reading.family and reading.family == whole.family and reading.rank > whole.rank:
                whole = whole.under(reading)
            else:
                whole = _beside(whole, reading)
        assert whole is not None, path
        whole.path, whole.format, whole.over = path, f"{whole.format}, in a manifest of Kubernetes", ()
        if whole.family != "Kafka Connect":
            whole.family = ""
        return whole

    def _read(self, inner: _Inner, path: Path, wanted: tuple[Scope, ...]) -> Reading:
        scopes = wanted
        if inner.format is self._plain and len(wanted) > 1:
            named = next((scope for word, scope in _OF_SCOPE.items() if word in inner.name.name.lower()), None)
            scopes = wanted if named is None else (named,)
        reading = inner.format.read(inner.document, inner.name, scopes)
        _give_lines(reading, inner, path)
        for name, why in inner.doubts:
            reading.doubt(f"{inner.spelt}.{name}", str(path), why)
        return reading

    def _inner(self, document: FileValue) -> Iterator[_Inner]:
        resources = [each for each in documents_of(document) if isinstance(each, Mapping) and each.get("apiVersion")]
        for each in resources:
            kind, spelt = str(each.get("kind")), f"{each.get('kind')}/{value_below(each, 'metadata', 'name')}"
            if kind in _HOLDERS:
                yield from self._of_holder(spelt, each)
            elif kind in _WORKLOADS:
                yield from self._of_workload(spelt, each, resources)

    def _of_holder(self, spelt: str, resource: FileMapping) -> Iterator[_Inner]:
        variables: dict[str, Setting] = {}
        for key, text in _texts(resource):
            line = key.line if isinstance(key, Key) else None
            if _FILE.fullmatch(str(key)):
                name = Path(str(key))
                loaded = parse(name, text)
                chosen = next((each for each in self._formats if each.recognises(loaded, name)), None)
                plain = any(word in name.stem.lower() for word in _OF_SCOPE) and name.suffix in (".properties", ".conf")
                if chosen is not None or plain:
                    yield _Inner(f"{spelt}.{key}", name, loaded, line, chosen or self._plain)
            else:
                variables[str(key)] = Setting(text, f"{spelt}, {key}")
        yield from self._of_variables(spelt, variables, ())

    def _of_workload(self, spelt: str, resource: FileMapping, resources: Sequence[FileMapping]) -> Iterator[_Inner]:
        pod = (
            value_below(resource, "spec")
            if resource.get("kind") == "Pod"
            else value_below(resource, "spec", "template", "spec")
        )
        containers = value_below(pod, "containers")
        for each in containers if isinstance(containers, list) else ():
            variables, doubts = _variables(mapping_in(each), resources)
            yield from self._of_variables(f"{spelt}.{mapping_in(each).get('name')}", variables, doubts)

    def _of_variables(
        self, spelt: str, variables: Mapping[str, Setting], doubts: Sequence[tuple[str, str]]
    ) -> Iterator[_Inner]:
        name = Path("variables.env")
        chosen = next((each for each in self._formats if variables and each.recognises(variables, name)), None)
        if chosen is not None:
            yield _Inner(spelt, name, variables, None, chosen, tuple(doubts))


def _texts(resource: FileMapping) -> Iterator[tuple[object, str]]:
    """Each key and its text; what a Secret has in `data` is in base 64."""
    secret = resource.get("kind") == "Secret"
    for part in ("data", "stringData"):
        for key, value in mapping_in(resource.get(part)).items():
            text = word_of(value)
            if text is None:
                continue
            if secret and part == "data":
                try:
                    text = base64.b64decode("".join(text.split()), validate=True).decode("utf-8")
                except (binascii.Error, ValueError):
                    continue
            yield key, text


def _variables(
    container: FileMapping, resources: Sequence[FileMapping]
) -> tuple[dict[str, Setting], list[tuple[str, str]]]:
    """A container's variables, `envFrom` first; and what has its value from elsewhere."""
    maps = {
        str(value_below(each, "metadata", "name")): dict(_texts(each))
        for each in resources
        if each.get("kind") == "ConfigMap"
    }
    found: dict[str, Setting] = {}
    doubts: list[tuple[str, str]] = []
    for index, source in enumerate(_mappings(container.get("envFrom"))):
        name = value_below(source, "configMapRef", "name")
        if isinstance(name, str) and name in maps and not source.get("prefix"):
            found |= {str(key): Setting(text, f"ConfigMap/{name}, {key}") for key, text in maps[name].items()}
        else:
            doubts.append(
                (f"envFrom[{index}]", "takes variables from a Secret or a ConfigMap that is not in this file")
            )
    for variable in _mappings(container.get("env")):
        name = str(variable.get("name"))
        key = value_below(variable, "valueFrom", "configMapKeyRef")
        data = {str(each): text for each, text in maps.get(str(value_below(key, "name")), {}).items()}
        text = (
            word_of(variable.get("value", ""))
            if "valueFrom" not in variable
            else data.get(str(value_below(key, "key")))
        )
        found[name] = Setting(f"${{{name}}}" if text is None else text, f"env, {name}")
    return found, doubts


def _mappings(value: object) -> list[FileMapping]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _give_lines(reading: Reading, inner: _Inner, path: Path) -> None:
    """Names the manifest in place of the file inside, with the line there."""

    def location(origin: str) -> str:
        matched = re.fullmatch(rf"{re.escape(str(inner.name))}:(\d+)(.*)", origin)
        if matched is not None and inner.line is not None:
            return f"{path}:{inner.line + int(matched[1])}, {inner.spelt}{matched[2]}"
        return f"{path}, {inner.spelt}.{origin.rpartition(', ')[2]}"

    for settings in (*reading.scopes.values(), reading.own, reading.internal, reading.creates):
        for name, setting in settings.items():
            settings[name] = Setting(setting.value, location(setting.origin), setting.note)
    reading.unclear[:] = [replace(one, origin=location(one.origin)) for one in reading.unclear]
    if reading.commits is not None and reading.commits.origin.startswith(str(inner.name)):
        reading.commits = Setting(reading.commits.value, location(reading.commits.origin))


def _beside(one: Reading, other: Reading) -> Reading:
    """Two files of one manifest that say different things: a producer's and a consumer's. BadInput if both say the same."""
    twice = [scope for scope in SCOPES if scope in one.scopes and scope in other.scopes]
    if twice:
        raise BadInput(
            f"{one.path} and {other.path} in one manifest each say what the {twice[0]} is set to, and only one can be meant: "
            "take the one that counts out into a file of its own."
        )
    both = one.under(other)
    both.scopes = {**one.scopes, **other.scopes}
    return both
