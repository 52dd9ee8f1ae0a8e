"""Looks at what lies beside a framework's file: files that the framework reads by itself, and that nobody gave.

Spring Boot reads `application-prod.yml` over `application.yml` where the profile `prod` is active, and
`application.properties` over both; Quarkus and .NET do alike. What such a file sets, and prozess was not given, is not
understood. A profile that no file knows is misspelt, or its file lies elsewhere: that is not understood either."""

import re
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prozess.harness.errors import BadInput
from prozess.harness.suggestions import did_you_mean
from prozess.validation import reading as documents
from prozess.validation.formats.spring import CONFIG_SERVERS
from prozess.validation.reading import Reading, entries

FILE_BYTES_MAX = 1_048_576
FILES_MAX = 100
"""At most this many files of a directory are looked at."""


@dataclass(frozen=True, slots=True)
class _Family:
    files: re.Pattern[str]
    """Names of files that the framework reads by itself; the group is the profile."""
    names: re.Pattern[str]
    """Names of settings that say something of Kafka."""
    folders: tuple[str, ...] = (".",)
    no_profiles: tuple[str, ...] = ("default",)


_FAMILIES: Mapping[str, _Family] = {
    "Spring Boot": _Family(
        re.compile(r"(?:application|bootstrap)(?:-(.+))?\.(?:ya?ml|properties)"),
        re.compile(
            r".*kafka.*|spring\.(config\.import|cloud\.stream|application\.json|profiles\.active).*|"
            + CONFIG_SERVERS.pattern,
            re.IGNORECASE,
        ),
        (".", "config"),
    ),
    "Quarkus": _Family(
        re.compile(r"application(?:-(.+))?\.(?:ya?ml|properties)"),
        re.compile(r".*(kafka|mp\.messaging).*", re.IGNORECASE),
        (".", "config"),
    ),
    ".NET": _Family(
        re.compile(r"appsettings(?:\.(.+))?\.json"),
        re.compile(r".*(kafka|producer|consumer|bootstrapservers).*", re.IGNORECASE),
    ),
}
_VARIABLES = re.compile(
    r"SPRING_(KAFKA_|CLOUD_STREAM_|APPLICATION_JSON|PROFILES_ACTIVE).*|MP_MESSAGING_.*|KAFKA_.*|QUARKUS_PROFILE"
)


def look_beside(readings: Sequence[Reading], profiles: Sequence[str]) -> None:
    """Notes in each reading what lies beside its file and was not given. `profiles`: those of `--profile`."""
    given = {_real(reading.path) for reading in readings}
    seen: set[Path] = set()
    for reading in readings:
        family = _FAMILIES.get(reading.family)
        if family is None:
            continue
        of_family = [each for each in readings if each.family == reading.family]
        # The profiles that somebody says are active; empty: nobody says it.
        active = frozenset(profiles) or frozenset(name for each in of_family for name in each.active_profiles)
        for path in _candidates(reading.path.parent, family):
            real = _real(path)
            if real not in given and real not in seen:
                seen.add(real)
                _look(reading, path, family, active)
        _profiles(reading, of_family, profiles, family)


def _candidates(folder: Path, family: _Family) -> Iterator[Path]:
    count = 0
    for inner in family.folders:
        try:
            names = sorted(each.name for each in (folder / inner).iterdir())
        except OSError:
            continue
        for name in names:
            if count < FILES_MAX and (family.files.fullmatch(name) or name == ".env"):
                count += 1
                yield folder / name if inner == "." else folder / inner / name


def _look(reading: Reading, path: Path, family: _Family, active: Collection[str]) -> None:
    matched = family.files.fullmatch(path.name)
    profile = matched[1] if matched is not None else None
    if profile is not None and active and profile not in active:
        return
    names = _names(path, _VARIABLES if matched is None else family.names)
    if names is None:
        reading.doubt(
            path.name, str(path), f"lies beside {reading.path.name} and cannot be read, and {reading.family} reads it"
        )
    elif names:
        reading.doubt(
            path.name, str(path), _why(reading, path, names[0], profile, active, of_variables=matched is None)
        )


def _why(
    reading: Reading, path: Path, name: str, profile: str | None, active: Collection[str], *, of_variables: bool
) -> str:
    sets = f"lies beside {reading.path.name}, sets {name}, and was not given"
    if of_variables:
        return f"{sets}: whether the application gets these variables no file says. Give it with --application, too"
    if profile is None:
        return f"{sets}, although {reading.family} reads it by itself: give it with --application, too"
    if active:
        return f"{sets}, although the profile {profile!r} is active: give it with --application, too"
    return (
        f"{sets}: whether the profile {profile!r} is active no file says. Give --profile {profile} and the file with "
        "--application, or the profile that is active"
    )


def _names(path: Path, wanted: re.Pattern[str]) -> list[str] | None:
    """The names in a file that say something of Kafka. None: the file cannot be read."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > FILE_BYTES_MAX:
            return None
        loaded = documents.load(path)
        found = entries(loaded, path)
    except (OSError, BadInput, RecursionError):
        return None
    return [name for name, _ in found if wanted.fullmatch(name)]


def _profiles(reading: Reading, readings: Sequence[Reading], profiles: Sequence[str], family: _Family) -> None:
    """Notes profiles that are active and of which no file has anything. For the first file of its family alone."""
    if reading is not readings[0] or reading.family == ".NET":
        return
    known = {name for each in readings for name in each.known_profiles}
    known |= {
        found[1]
        for path in _candidates(reading.path.parent, family)
        if (found := family.files.fullmatch(path.name)) and found[1]
    }
    active = profiles or [name for each in readings for name in each.active_profiles]
    for name in dict.fromkeys(active):
        if name not in known and name not in family.no_profiles:
            meant = did_you_mean(name, sorted(known), otherwise=f"they have {', '.join(sorted(known)) or 'none'}")
            origin = "--profile" if name in profiles else str(reading.path)
            reading.doubt(
                f"the profile {name!r}", origin, f"is active, and no file that was given has anything for it: {meant}"
            )


def _real(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path
