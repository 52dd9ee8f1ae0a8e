"""Finds the line at which a setting stands, for formats that know only its name in the document."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property

from prozess.harness.config.client_settings import Unclear
from prozess.harness.config.known_properties import Setting
from prozess.validation.reading import FileValue, Key, Reading

_PARTS = re.compile(r"[.,/\s\[\]]+")


class DocumentLines:
    """The lines of everything that a JSON or YAML document has a name for."""

    def __init__(self, document: FileValue) -> None:
        self._document = document

    @cached_property
    def _named(self) -> tuple[tuple[tuple[str, ...], int, int], ...]:
        """The words of the path of a name, how many of them are its own, and its line."""
        return tuple(_walk(self._document, ()))

    def line_of(self, spelt: str) -> int | None:
        """Returns the line of the name that stands at `spelt`; None if there is none, or two fit equally well.

        Example: "Kafka/main.spec.kafka.config.retention.ms" ends as the path of `spec: {kafka: {config: {retention.ms: 1}}}`.
        A list's mapping with a name, such as a variable of a container, stands where its name does."""
        words = _words(spelt)
        best, found = 0, set[int]()
        for path, own, line in self._named:
            common = _common_end(words, path)
            if common >= own and common >= best:
                found = {line} if common > best else found | {line}
                best = common
        return found.pop() if len(found) == 1 else None


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in _PARTS.split(text) if word)


def _common_end(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    count = 0
    for mine, theirs in zip(reversed(one), reversed(other), strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def _walk(value: FileValue, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int, int]]:
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _walk(each, (*above, str(index)) if above else above)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            own = _words(str(key))
            if isinstance(key, Key):
                yield (*above, *own), len(own), key.line
                if key == "name" and isinstance(each, str) and above and above[-1].isdigit():
                    yield (*above[:-2], each), 1, key.line
            yield from _walk(each, (*above, *own))


def with_lines(reading: Reading, document: FileValue) -> None:
    """Gives each setting and each doubt of the reading the line at which it stands, where that is certain."""
    lines, path = DocumentLines(document), str(reading.path)
    for settings in (*reading.scopes.values(), reading.own, reading.internal, reading.creates):
        for name, setting in settings.items():
            file, comma, spelt = setting.origin.partition(", ")
            if comma and file == path and (line := lines.line_of(spelt)) is not None:
                settings[name] = Setting(setting.value, f"{path}:{line}, {spelt}", setting.note)
    reading.unclear[:] = [_doubt(one, path, lines) for one in reading.unclear]
    reading.no_version[:] = [_doubt(one, path, lines) for one in reading.no_version]


def _doubt(one: Unclear, path: str, lines: DocumentLines) -> Unclear:
    line = lines.line_of(one.name) if one.origin == path else None
    return one if line is None else replace(one, origin=f"{path}:{line}")
