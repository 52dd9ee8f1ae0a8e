"""Lock files: exactly which jars make up one version of Kafka, with checksums, so that what was fetched can be verified.

One file per version, `kafka-VERSION.lock`: comment lines, then `SHA-256  bytes  group:artifact:version[:classifier]` per
jar. Made by `python -m tools.kafka_lock VERSION` from a real fetch; reviewed and committed like code. The cache has such
a file for each other version that was fetched there, its pin.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from prozess.harness.errors import MissingTool

_LINE = re.compile(r"(?P<sha256>[0-9a-f]{64})  (?P<size>\d+)  (?P<coordinates>[\w.-]+(:[\w.-]+){2,3})")


@dataclass(frozen=True, slots=True, order=True)
class Coordinates:
    """The coordinates that name an artifact in a Maven repository."""

    group: str
    artifact: str
    version: str
    classifier: str = ""

    @property
    def file_name(self) -> str:
        """Returns the name that Maven and Ivy give the file."""
        return f"{self.artifact}-{self.version}{'-' * bool(self.classifier)}{self.classifier}.jar"

    @classmethod
    def parse(cls, text: str) -> "Coordinates":
        """Reads `group:artifact:version` or `group:artifact:version:classifier`."""
        return cls(*text.split(":"))

    def __str__(self) -> str:
        return ":".join(filter(None, (self.group, self.artifact, self.version, self.classifier)))


@dataclass(frozen=True, slots=True)
class LockedJar:
    """A jar that a lock names, with its size and its checksum."""

    coordinates: Coordinates
    size: int
    """bytes"""
    sha256: str


def locked_versions(product: str = "kafka") -> tuple[str, ...]:
    """The versions of a product that have a lock."""
    pattern = re.compile(rf"{re.escape(product)}-(\d[^-]*)\.lock")
    found = (pattern.fullmatch(entry.name) for entry in files(__name__).iterdir())
    return tuple(sorted(match[1] for match in found if match))


def read_lock(version: str, *, product: str = "kafka") -> tuple[LockedJar, ...] | None:
    """The lock of a version, by file name; None if there is none. `product`: what else is fetched, such as "jolokia"."""
    entry = files(__name__) / f"{product}-{version}.lock"
    return parse_lock(entry.read_text(encoding="utf-8")) if entry.is_file() else None


def parse_lock(text: str) -> tuple[LockedJar, ...]:
    """Reads the text of a lock. ValueError, with the line, if it is none."""
    jars = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"line {number} of the lock is not `SHA-256  bytes  coordinates`: {line!r}")
        jars.append(LockedJar(Coordinates.parse(match["coordinates"]), int(match["size"]), match["sha256"]))
    names = [jar.coordinates.file_name for jar in jars]
    if len(set(names)) != len(names):
        raise ValueError("two jars of the lock have the same file name")
    return tuple(sorted(jars, key=lambda jar: jar.coordinates.file_name))


def format_lock(version: str, jars: Iterable[LockedJar]) -> str:
    """The text of a lock, as `parse_lock` reads it."""
    lines = [
        f"# The jars of Apache Kafka {version}: SHA-256, bytes, coordinates. See clusters/install/locks/__init__.py."
    ]
    lines += [
        f"{jar.sha256}  {jar.size}  {jar.coordinates}"
        for jar in sorted(jars, key=lambda jar: jar.coordinates.file_name)
    ]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class JarsLock:
    """What the jars of a version must be. `pin`: the file in the cache that says so; None if prozess brought it along."""

    jars: tuple[LockedJar, ...]
    pin: Path | None = None

    @property
    def name(self) -> str:
        """Returns what it is called in a sentence."""
        return "its lock" if self.pin is None else f"its pin {str(self.pin)!r}"


def lock_of(version: str, directory: Path) -> JarsLock | None:
    """Returns what the jars of a version must be; None if it was never fetched here and prozess has no lock of it.

    `directory`: where the cache has its jars. MissingTool if a pin is there and cannot be read: what it pinned is not known.
    """
    if (jars := read_lock(version)) is not None:
        return JarsLock(jars)
    pin = directory / f"kafka-{version}.pin"
    try:
        return JarsLock(parse_lock(pin.read_text(encoding="utf-8")), pin)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise MissingTool(
            f"Kafka {version}: {str(pin)!r}, which says what its jars were when they were first fetched, cannot be read "
            f"({error}). Remove it, and they are found out anew."
        ) from error
