"""Kafka's own jars, in the user's cache: fetched once per version, verified against a lock, put in place whole or not at all.

Who fetches, in this order: with `PROZESS_MAVEN_URL` set, from there (Ivy, else Maven); Maven if it is on PATH, with the
user's own settings; the Ivy that pyspark carries, from the mirror in `~/.m2/settings.xml` or Maven Central.
"""

import logging
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from filelock import FileLock, Timeout

from clusters.cache import home_directory, make_cache, sha256_of
from clusters.ivy import fetch_with_ivy, find_ivy
from clusters.java import find_java
from clusters.locks import Coordinates, LockedJar, format_lock, locked_versions, parse_lock, read_lock
from clusters.maven import fetch_with_maven
from clusters.repository import FETCH_TIMEOUT_S, Request, mirror_of_central
from harness.errors import BadInput, MissingTool, NotReady

Progress = Callable[[str], None]
_VERSION = re.compile(r"\d+\.\d+\.\d+(-rc\d+)?")
_MANIFEST = "jars.lock"
_log = logging.getLogger(__name__)


def ensure_jars(
    version: str, *, progress: Progress | None = None, environment: Mapping[str, str] = os.environ
) -> tuple[Path, ...]:
    """The absolute jar paths of that version of Kafka, sorted, fetched if they are not in the cache.

    A version without a lock is fetched and usable, and said to be unverified. `progress` gets sentences for a person.
    BadInput for what is no version; MissingTool if the jars cannot be had, or are not those of the lock; NotReady if
    another process keeps fetching beyond the limit.
    """
    _check_version(version)
    tell = progress or _log.info
    directory = make_cache("jars", environment=environment)
    target = directory / f"kafka-{version}"
    locked = read_lock(version)
    if jars := _present(target, locked):
        return jars
    lock = FileLock(directory / f"kafka-{version}.flock", timeout=FETCH_TIMEOUT_S)
    try:
        with lock:
            if jars := _present(target, locked):
                return jars
            _fetch_into(target, version, locked, tell, environment)
    except Timeout as error:
        raise NotReady(
            awaited=f"another process that fetches Kafka {version}",
            timeout_s=FETCH_TIMEOUT_S,
            last_seen=f"{lock.lock_file} is held",
        ) from error
    jars = _present(target, locked)
    assert jars, target
    return jars


def resolved_lock(
    version: str, *, progress: Progress | None = None, environment: Mapping[str, str] = os.environ
) -> str:
    """A lock for that version, from a fresh resolution of its dependencies that no older lock takes part in. For
    maintainers. Errors as of `ensure_jars`."""
    _check_version(version)
    with tempfile.TemporaryDirectory(prefix="prozess-lock-") as directory:
        request = Request(version, roots(version), exact=False)
        fetched = fetch(request, Path(directory), progress or _log.info, environment)
        return format_lock(version, collect(fetched, Path(directory) / "whole"))


def class_path(jars: tuple[Path, ...]) -> str:
    """The one class path that every JVM of a version uses. Class-data archives are valid for exactly this string."""
    return ":".join(map(str, jars))


def roots(version: str) -> tuple[Coordinates, ...]:
    """What a broker, its tools and their logging need, before dependencies.

    kafka_2.13 has no logging binding of its own: up to 3.x the release's is slf4j-reload4j, from 4.0 on Log4j 2
    (KIP-653, KIP-1013); slf4j stays at 1.7, hence log4j-slf4j-impl.
    """
    kafka = (
        Coordinates("org.apache.kafka", "kafka_2.13", version),
        Coordinates("org.apache.kafka", "kafka-tools", version),
    )
    if int(version.partition(".")[0]) < 4:
        return (*kafka, Coordinates("org.slf4j", "slf4j-reload4j", "1.7.36"))
    log4j = "org.apache.logging.log4j"
    return (*kafka, Coordinates(log4j, "log4j-slf4j-impl", "2.25.5"), Coordinates(log4j, "log4j-core", "2.25.5"))


def _check_version(version: str) -> None:
    if not _VERSION.fullmatch(version):
        raise BadInput(f"Kafka version {version!r} is not one; it has the form 4.3.1. Locked: {_known()}.")


def _present(target: Path, locked: tuple[LockedJar, ...] | None) -> tuple[Path, ...] | None:
    """The jars if the directory is whole: its manifest (made from the files' checksums) is the lock's, sizes match."""
    try:
        manifest = parse_lock((target / _MANIFEST).read_text(encoding="utf-8"))
        sizes = {entry.name: entry.stat().st_size for entry in os.scandir(target) if entry.name.endswith(".jar")}
    except (OSError, ValueError):
        return None
    if (locked is not None and manifest != locked) or sizes != {j.coordinates.file_name: j.size for j in manifest}:
        return None
    return tuple(sorted(target.absolute() / name for name in sizes))


def _fetch_into(
    target: Path,
    version: str,
    locked: tuple[LockedJar, ...] | None,
    tell: Progress,
    environment: Mapping[str, str],
) -> None:
    """Fetch, verify, rename. The caller holds the lock, so every other workspace is a dead process's."""
    prefix = f".fetching-{version}-"
    for stale in target.parent.glob(f"{prefix}*"):
        shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=target.parent, ignore_cleanup_errors=True) as workspace:
        coordinates = tuple(jar.coordinates for jar in locked) if locked else roots(version)
        request = Request(version, coordinates, exact=locked is not None)
        fetched = fetch(request, Path(workspace), tell, environment)
        whole = Path(workspace) / "whole"
        manifest = collect(fetched, whole)
        if locked is not None:
            verify(version, manifest, locked)
            tell(f"Kafka {version}: {len(manifest)} jars, verified.")
        else:
            tell(f"Kafka {version}: {len(manifest)} jars, UNVERIFIED: prozess has a lock only for {_known()}.")
        (whole / _MANIFEST).write_text(format_lock(version, manifest), encoding="utf-8")
        if target.exists():
            target.rename(Path(workspace) / "damaged")
        whole.rename(target)


def fetch(request: Request, workspace: Path, tell: Progress, environment: Mapping[str, str]) -> dict[Coordinates, Path]:
    """The requested jars, somewhere below `workspace`. MissingTool if there is no way to have them."""
    repository = environment.get("PROZESS_MAVEN_URL") or None
    maven = shutil.which("mvn", path=environment.get("PATH", os.defpath))
    ivy = find_ivy()
    if (maven is None or repository) and ivy is not None:
        java = find_java(environment)
        if repository is None:
            repository = mirror_of_central(home_directory(environment) / ".m2" / "settings.xml", environment)
        tell(f"Fetching {request.what} with Ivy{_amount(request)} …")
        return fetch_with_ivy(
            request, ivy=ivy, java=java.executable, workspace=workspace, repository=repository, environment=environment
        )
    if maven is None:
        raise MissingTool(
            f"{request.what}'s jars cannot be fetched: neither Maven (`mvn` on PATH) nor the Ivy of "
            "the pyspark package is here. Install one of them."
        )
    tell(f"Fetching {request.what} with Maven{_amount(request)} …")
    return fetch_with_maven(
        request,
        maven=Path(maven),
        java_home=find_java(environment).home,
        workspace=workspace,
        environment=environment,
    )


def _amount(request: Request) -> str:
    return "" if request.other else " (about 55 MB, a minute or two)"


def collect(fetched: Mapping[Coordinates, Path], into: Path) -> tuple[LockedJar, ...]:
    """Move the jars side by side into one new directory, and say what they are. MissingTool if two have one name."""
    into.mkdir()
    manifest = []
    for coordinates, path in sorted(fetched.items()):
        place = into / coordinates.file_name
        if place.exists():
            raise MissingTool(
                f"{coordinates} and another artifact are both called {place.name}; this version of Kafka cannot be used."
            )
        path.rename(place)
        manifest.append(LockedJar(coordinates, place.stat().st_size, sha256_of(place)))
    return tuple(sorted(manifest, key=lambda jar: jar.coordinates.file_name))


def verify(
    version: str, manifest: tuple[LockedJar, ...], locked: tuple[LockedJar, ...], *, product: str = "Kafka"
) -> None:
    """MissingTool naming the first jar that is not what the lock says."""
    here = {jar.coordinates: jar for jar in manifest}
    way_out = "Nothing was kept; ask whoever runs that repository, or fetch from another with PROZESS_MAVEN_URL."
    for jar in locked:
        name, found = jar.coordinates.file_name, here.pop(jar.coordinates, None)
        if found is None:
            raise MissingTool(
                f"{product} {version}: the repository did not give {name}, which the lock names. {way_out}"
            )
        if found.sha256 != jar.sha256:
            raise MissingTool(
                f"{product} {version}: {name} is not the file it should be (SHA-256 {found.sha256[:16]}…, {found.size} "
                f"bytes; the lock says {jar.sha256[:16]}…, {jar.size} bytes). {way_out}"
            )
    if here:
        raise MissingTool(f"{product} {version}: {min(here).file_name} came along, and is not in the lock. {way_out}")


def _known() -> str:
    return ", ".join(locked_versions())
