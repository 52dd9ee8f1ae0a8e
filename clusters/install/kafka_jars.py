"""Kafka's own jars, in the user's cache: fetched once per version, and put in place whole or not at all.

Whenever they are used their SHA-256 sums are compared with those of a lock. prozess brings locks along for some versions.
What any other version needs, the Apache Ivy inside pyspark finds out, once: the lock that comes of it is pinned in the cache,
and counts from then on. What a lock names is fetched by plain GETs (`repository`).
"""

import hashlib
import logging
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit
from xml.sax.saxutils import quoteattr

from prozess.clusters.install.locks import (
    Coordinates,
    JarsLock,
    LockedJar,
    format_lock,
    lock_of,
    locked_versions,
    parse_lock,
    read_lock,
)
from prozess.clusters.install.tools import Progress, alone, find_java
from prozess.harness.config.configuration import version_numbers
from prozess.harness.config.releases import NEWEST_PATCHES, RELEASES, nearest_releases
from prozess.harness.errors import BadInput, MissingTool
from prozess.harness.installation import cache_directory, make_cache, sha256_of, sums_in

if TYPE_CHECKING:
    from prozess.clusters.install.repository import Repository

_VERSION = re.compile(r"\d+\.\d+\.\d+(-rc\d+)?")
_MANIFEST = "jars.lock"
_log = logging.getLogger(__name__)
WAIT_TIMEOUT_S = 900.0
"""How long to wait for another process that fetches the same."""


def ensure_jars(
    version: str, *, progress: Progress | None = None, environment: Mapping[str, str] = os.environ
) -> tuple[Path, ...]:
    """Returns the jars of any version of Kafka: its clients, its tools and its servers, sorted.

    They are fetched if they are not in the cache or have changed there, and verified by the lock that prozess has of the
    version, or by the one that was pinned when it was first fetched here. `progress` gets sentences for a person.
    BadInput for what is no version; MissingTool if the jars cannot be had, or are not those of the lock; NotReady if
    another process keeps fetching beyond the limit.
    """
    check_version(version)
    progress = progress or _log.info
    directory = make_cache("jars", environment=environment)
    target = directory / f"kafka-{version}"
    jars, changed = _present(target, lock_of(version, directory))
    if jars:
        return jars
    with alone(
        directory / f"kafka-{version}.flock",
        awaited=f"another process that fetches Kafka {version}",
        timeout_s=WAIT_TIMEOUT_S,
    ):
        locked = lock_of(version, directory)
        jars, changed = _present(target, locked)
        if jars:
            return jars
        if changed:
            progress(f"Kafka {version}: {changed} All of its jars are fetched again.")
        try:
            _fetch_into(target, version, locked, progress, environment)
        except MissingTool as error:
            raise (MissingTool(f"Kafka {version}: {changed} {error}") if changed else error) from error
    jars, changed = _present(target, lock_of(version, directory))
    assert jars, (target, changed)
    return jars


def cached_jars(version: str, *, environment: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Returns the jars of a version if they are in the cache and are what they should be; else none, at once."""
    directory = cache_directory(environment) / "jars"
    return _present(directory / f"kafka-{version}", lock_of(version, directory))[0]


def jar_facts(version: str, *, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Returns what versions.json says of the jars of a version; empty if they are not in the cache.

    `verified`: do they have the sums of the lock that comes with prozess? `pinned`: do they have those that they had when
    they were first fetched here? `sha256`: the sum of the list of all their sums and names."""
    directory = cache_directory(environment) / "jars"
    locked = lock_of(version, directory)
    jars, _ = _present(directory / f"kafka-{version}", locked)
    if not jars or locked is None:
        return {}
    sums = sums_in(jars[0].parent, [jar.name for jar in jars])
    listed = "".join(f"{sums[jar.name]}  {jar.name}\n" for jar in jars)
    pinned = {"pinned": True} if locked.pin is not None else {}
    return {"verified": locked.pin is None, **pinned, "sha256": hashlib.sha256(listed.encode()).hexdigest()}


def class_path(jars: tuple[Path, ...]) -> str:
    """Returns the one class path that every JVM of a version uses. Class-data archives are valid for exactly this
    string."""
    return ":".join(map(str, jars))


def check_version(version: str) -> None:
    """Raises BadInput for what is no version of Kafka."""
    if not _VERSION.fullmatch(version):
        raise BadInput(f"Kafka version {version!r} is not one; it has the form {NEWEST_PATCHES[-1]}.")


def _present(target: Path, locked: JarsLock | None) -> tuple[tuple[Path, ...], str]:
    """Returns the jars if each is there and has the sum of the lock.

    Else returns none, and a sentence about the first jar that is not what it should be."""
    if locked is None:
        return (), ""
    try:
        manifest = parse_lock((target / _MANIFEST).read_text(encoding="utf-8"))
        names = sorted(entry.name for entry in os.scandir(target) if entry.name.endswith(".jar"))
        sums = sums_in(target, names)
    except FileNotFoundError:
        return (), ""
    except (OSError, ValueError) as error:
        return (), f"its cache {str(target)!r} cannot be read ({error})."
    if manifest != locked.jars:
        return (), ""  # fetched for an older lock
    should = {jar.coordinates.file_name: jar.sha256 for jar in manifest}
    if wrong := sorted(name for name in {*sums, *should} if sums.get(name) != should.get(name)):
        return (), _difference(target / wrong[0], sums.get(wrong[0]), should.get(wrong[0]), locked.name)
    return tuple(target.absolute() / name for name in names), ""


def _difference(path: Path, found: str | None, should: str | None, whose: str) -> str:
    if found is None:
        return f"{path.name} is gone from the cache."
    if should is None:
        return f"{str(path)!r} is there, and is not in {whose}."
    return f"{str(path)!r} has changed (SHA-256 {found[:16]}…; {whose} says {should[:16]}…)."


def _fetch_into(
    target: Path, version: str, locked: JarsLock | None, progress: Progress, environment: Mapping[str, str]
) -> None:
    """Fetches the jars, verifies them, and puts them in place by a rename. What was found out without a lock is pinned.

    The caller holds the lock, so every other workspace is a dead process's. What a fetch of a lock has already, right by
    its sum, is used by the next one."""
    from prozess.clusters.install.repository import fetch_locked, repository_of

    repository = repository_of(environment)
    kept, prefix = target.parent / f".{target.name}.partial", f".fetching-{version}-"
    for stale in target.parent.glob(f"{prefix}*"):
        shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=target.parent, ignore_cleanup_errors=True) as name:
        workspace = Path(name)
        whole = workspace / "whole"
        if locked is not None:
            progress(f"Fetching Kafka {version} from {repository.origin}: {_amount(locked.jars)} …")
            kept.mkdir(exist_ok=True)
            fetch_locked(locked.jars, kept, repository, what=f"Kafka {version}", lock=locked.name)
            whole.mkdir()
            for jar in locked.jars:
                (kept / jar.coordinates.file_name).rename(whole / jar.coordinates.file_name)
            shutil.rmtree(kept, ignore_errors=True)
            by = "verified" if locked.pin is None else "the same as when they were first fetched here"
            progress(f"Kafka {version}: {len(locked.jars)} jars, {by}.")
        else:
            progress(f"Fetching Kafka {version} from {repository.origin} with Ivy (about 55 MB, a minute or two) …")
            jars = resolve(version, workspace, repository, into=whole, environment=environment)
            locked = JarsLock(jars, target.with_name(f"{target.name}.pin"))
            progress(
                f"Kafka {version}: {len(jars)} jars, UNVERIFIED: prozess has a lock only for {_known()}. "
                "From now on they must be what they are now."
            )
            pin = workspace / "pin"
            pin.write_text(format_lock(version, jars), encoding="utf-8")
            pin.rename(target.with_name(f"{target.name}.pin"))
        (whole / _MANIFEST).write_text(format_lock(version, locked.jars), encoding="utf-8")
        if target.exists():
            target.rename(workspace / "damaged")
        whole.rename(target)


def _amount(jars: tuple[LockedJar, ...]) -> str:
    return f"{len(jars)} jars, {sum(jar.size for jar in jars) / 1e6:.0f} MB"


def _known() -> str:
    versions = sorted(locked_versions(), key=version_numbers)
    return ", ".join(versions) or "none"


# Was this version of Kafka ever published? Asked before anything is made for it, since all of its jars take minutes.


def refuse_unpublished(
    version: str, *, progress: Progress | None = None, environment: Mapping[str, str] = os.environ
) -> None:
    """Raises BadInput, with the nearest releases, if the repository says that there is no such version of Kafka.

    A release that prozess knows, one that was fetched before and one whose jars are in the cache are there. For any other
    the description of its clients is asked for, a few kB; MissingTool, which says who was asked, if nobody says."""
    from prozess.clusters.install.repository import has_file, repository_of

    check_version(version)
    jars = cache_directory(environment) / "jars"
    if version in RELEASES or any((jars / f"kafka-{version}{ending}").exists() for ending in ("", ".pin")):
        return
    repository = repository_of(environment)
    nearest = f"The nearest releases that prozess knows: {nearest_releases(version)}."
    (progress or _log.info)(f"Asking {repository.origin} whether there is a Kafka {version} …")
    clients = Coordinates("org.apache.kafka", "kafka-clients", version)
    try:
        there = has_file(repository, clients, f"kafka-clients-{version}.pom", what=f"kafka-clients-{version}.pom")
    except MissingTool as error:
        raise MissingTool(
            f"kafka_version = {version!r} is no release that prozess knows, and whether it is a newer one could not be "
            f"asked: {repository.origin} was tried, and {error} {nearest}"
        ) from error
    if not there:
        raise BadInput(f"kafka_version = {version!r}: the repository has no such version of Kafka. {nearest}")


# What Kafka's JVMs are given besides Kafka's own jars, each a jar of its own: agents, and the remote store of tiered storage.
#
# Jolokia gives JMX over HTTP (`prozess.harness.recording.metrics`), in a server on the observer's address only. Measured with
# Java 17: 0.2 s of CPU time when a node starts, 0.8 MB on disk, 2 MiB of memory, 6-12 ms of CPU time per scrape of 32 MBeans.
# Class-data archives go on working beside it. Byteman is there only where a plan does something to calls of methods
# (`prozess.clusters.methods`).


@dataclass(frozen=True, slots=True)
class ExtraJar:
    """A jar that a JVM is given besides Kafka's own: what it is called in a repository and by people, and its version."""

    product: str
    name: str
    version: str

    @property
    def directory(self) -> str:
        """Returns the name of its directory in the cache."""
        return f"{self.product}-{self.version}"

    @property
    def locked(self) -> LockedJar:
        """Returns what its jar must be."""
        locked = read_lock(self.version, product=self.product)
        assert locked is not None, self
        (jar,) = locked
        return jar


METRICS_AGENT = ExtraJar("jolokia", "Jolokia", "2.5.1")
METHODS_AGENT = ExtraJar("byteman", "Byteman", "4.0.27")


def remote_store(version: str) -> ExtraJar:
    """Returns the jar with LocalTieredStorage, the remote store of Kafka's own tests, which brokers of this version load.

    BadInput if prozess has no lock of it: of some releases it was never published."""
    store = ExtraJar("kafka-storage", "LocalTieredStorage", version)
    if read_lock(version, product=store.product) is None:
        raise BadInput(
            f"Kafka {version} has no remote store that prozess knows (kafka-storage with its tests, on Maven Central), so "
            f"its brokers cannot have tiered storage. Versions that can: {', '.join(remote_store_versions())}."
        )
    return store


def remote_store_versions() -> tuple[str, ...]:
    """Returns the versions of Kafka of which prozess knows a remote store, the oldest first."""
    return tuple(sorted(locked_versions("kafka-storage"), key=version_numbers))


def cached_extra(agent: ExtraJar = METRICS_AGENT, *, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Returns the jar, if it is in the cache and is the one of the lock; else None, at once."""
    locked = agent.locked
    path = cache_directory(environment) / "jars" / agent.directory / locked.coordinates.file_name
    try:
        whole = path.stat().st_size == locked.size and sha256_of(path) == locked.sha256
    except OSError:
        return None
    return path if whole else None


def ensure_extra(
    agent: ExtraJar = METRICS_AGENT, *, progress: Progress | None = None, environment: Mapping[str, str] = os.environ
) -> Path:
    """Returns the jar, fetched if it is not there.

    MissingTool if it cannot be had or is not what the lock says; NotReady if another process keeps fetching beyond the
    limit."""
    if found := cached_extra(agent, environment=environment):
        return found
    progress = progress or _log.info
    directory = make_cache("jars", environment=environment)
    with alone(
        directory / f"{agent.directory}.flock",
        awaited=f"another process that fetches {agent.name} {agent.version}",
        timeout_s=WAIT_TIMEOUT_S,
    ):
        if cached_extra(agent, environment=environment) is None:
            _fetch_extra(agent, directory, progress, environment)
    found = cached_extra(agent, environment=environment)
    assert found, directory
    return found


def _fetch_extra(agent: ExtraJar, directory: Path, progress: Progress, environment: Mapping[str, str]) -> None:
    """Fetches the jar, verifies it, and puts it in place. The caller holds the lock."""
    from prozess.clusters.install.repository import fetch_locked, repository_of

    prefix, repository = f".fetching-{agent.directory}-", repository_of(environment)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=directory, ignore_cleanup_errors=True) as workspace:
        progress(f"Fetching {agent.name} {agent.version} from {repository.origin} …")
        whole = Path(workspace) / "whole"
        whole.mkdir()
        fetch_locked((agent.locked,), whole, repository, what=f"{agent.name} {agent.version}")
        target = directory / agent.directory
        if target.exists():
            target.rename(Path(workspace) / "damaged")
        whole.rename(target)


# Which jars a version of Kafka needs, where no lock says so: resolved and fetched by the Apache Ivy inside pyspark.


# What it is given by its environment is written nowhere, and no list of processes shows it.
_SETTINGS = """<ivysettings>
  <properties environment="env"/>
  <property name="ivy.checksums" value="sha1"/>
  <settings defaultResolver="repository"/>{credentials}
  <resolvers><ibiblio name="repository" m2compatible="true" root="${{env.PROZESS_IVY_ROOT}}"/></resolvers>
</ivysettings>
"""
_CREDENTIALS = """
  <credentials realm="${env.PROZESS_IVY_REALM}" host="${env.PROZESS_IVY_HOST}" username="${env.PROZESS_IVY_USER}"
    passwd="${env.PROZESS_IVY_PASSWORD}"/>"""
_LAYOUT = "layout/[organisation]/[artifact]/[revision]/[artifact]-[revision](-[classifier]).[ext]"


def roots(version: str) -> tuple[Coordinates, ...]:
    """Returns the artifacts that a broker, its tools and their logging need, before dependencies.

    kafka_2.13 has no logging binding of its own: up to 3.x the release's is slf4j-reload4j, from 4.0 on Log4j 2
    (KIP-653, KIP-1013); slf4j stays at 1.7, hence log4j-slf4j-impl. Before reload4j (KAFKA-13660, 3.1.1) kafka-tools
    brings Log4j 1 and its binding along, and two bindings would be one too many.
    """
    kafka = (
        Coordinates("org.apache.kafka", "kafka_2.13", version),
        Coordinates("org.apache.kafka", "kafka-tools", version),
    )
    if version_numbers(version) < (3, 1, 1):
        return kafka
    if version_numbers(version) < (4,):
        return (*kafka, Coordinates("org.slf4j", "slf4j-reload4j", "1.7.36"))
    log4j = "org.apache.logging.log4j"
    return (*kafka, Coordinates(log4j, "log4j-slf4j-impl", "2.25.5"), Coordinates(log4j, "log4j-core", "2.25.5"))


def resolve(
    version: str,
    workspace: Path,
    repository: "Repository",
    *,
    into: Path,
    environment: Mapping[str, str] = os.environ,
) -> tuple[LockedJar, ...]:
    """Puts the jars of a version side by side into the new directory `into`, and returns what they are.

    MissingTool if they cannot be had."""
    from prozess.clusters.install.repository import realm_of

    ivy = find_ivy()
    if ivy is None:
        raise MissingTool(
            f"prozess has no list of Kafka {version}'s jars. The Ivy inside Spark would make one, and there is none: "
            "pip install --force-reinstall 'prozess[spark]'."
        )
    (workspace / "ivy.xml").write_text(module_text(roots(version)), encoding="utf-8")
    address, login = without_login(repository)
    settings = _SETTINGS.format(credentials=_CREDENTIALS if login else "")
    (workspace / "ivysettings.xml").write_text(settings, encoding="utf-8")
    command = [str(find_java(environment).executable), "-XX:TieredStopAtLevel=1", *_proxy_options(repository)]
    command += [f"-Divy.default.ivy.user.dir={workspace / 'user'}", "-jar", str(ivy), "-verbose"]
    command += ["-settings", "ivysettings.xml", "-ivy", "ivy.xml", "-cache", str(workspace / "cache")]
    command += ["-retrieve", _LAYOUT]
    given = {"PROZESS_IVY_ROOT": address.rstrip("/") + "/", "PROZESS_IVY_HOST": urlsplit(address).hostname or ""}
    if login:  # Ivy logs in to the realm that was named, and to no other
        realm = realm_of(replace(repository, address=address), roots(version)[0], what=f"Kafka {version}")
        given |= {"PROZESS_IVY_REALM": realm, "PROZESS_IVY_USER": login[0], "PROZESS_IVY_PASSWORD": login[1]}
    _run_ivy(version, command, workspace, {**environment, **given})
    return collect(laid_down(workspace / "layout"), into)


def find_ivy() -> Path | None:
    """Finds the Ivy jar inside the installed pyspark, which is not imported for that; None if there is none."""
    spec = find_spec("pyspark")
    for location in (spec.submodule_search_locations or []) if spec else []:
        if jars := sorted(Path(location).glob("jars/ivy-*.jar")):
            return jars[-1]
    return None


def module_text(coordinates: Sequence[Coordinates]) -> str:
    """Returns the text of an Ivy module that depends on these."""
    dependencies = "\n".join(
        f"    <dependency org={quoteattr(one.group)} name={quoteattr(one.artifact)} rev={quoteattr(one.version)}/>"
        for one in coordinates
    )
    return f"""<ivy-module version="2.0">
  <info organisation="prozess" module="kafka-jars"/>
  <configurations><conf name="run"/></configurations>
  <dependencies defaultconf="run->default">
{dependencies}
  </dependencies>
</ivy-module>
"""


def without_login(repository: "Repository") -> tuple[str, tuple[str, str] | None]:
    """Divides an address from its user name and password, since Ivy takes none from an address."""
    parts = urlsplit(repository.address)
    if not parts.username:
        return repository.address, repository.login
    address = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return address, repository.login or (unquote(parts.username), unquote(parts.password or ""))


def _proxy_options(repository: "Repository") -> list[str]:
    if repository.proxy is None:
        return []
    proxy = urlsplit(repository.proxy)
    protocols = ("http", "https")
    return [f"-D{one}.proxy{name}" for one in protocols for name in (f"Host={proxy.hostname}", f"Port={proxy.port}")]


def _run_ivy(version: str, command: Sequence[str], workspace: Path, environment: Mapping[str, str]) -> None:
    from prozess.clusters.install.repository import FETCH_TIMEOUT_S

    try:
        done = subprocess.run(
            list(command),
            cwd=workspace,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=FETCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise MissingTool(
            f"Kafka {version}'s jars were not there after {FETCH_TIMEOUT_S:g} s of Ivy. "
            "Try again on a faster network, or set PROZESS_MAVEN_URL to a nearer Maven repository."
        ) from error
    except OSError as error:
        raise MissingTool(f"Ivy could not be started: {error.strerror}. {_WAY_OUT}") from error
    if done.returncode != 0:
        raise MissingTool(explain_failure(version, done.stdout))


def laid_down(directory: Path) -> dict[Coordinates, Path]:
    """Finds the jars below a directory in Ivy's layout: group / artifact / version / file."""
    found = {}
    for path in directory.rglob("*.jar"):
        group, artifact, version, name = path.relative_to(directory).parts
        classifier = name.removeprefix(f"{artifact}-{version}").removesuffix(".jar").removeprefix("-")
        found[Coordinates(group, artifact, version, classifier)] = path
    return found


def collect(fetched: Mapping[Coordinates, Path], into: Path) -> tuple[LockedJar, ...]:
    """Moves the jars side by side into one new directory, and returns what they are. MissingTool if two have one name."""
    into.mkdir()
    manifest = []
    for coordinates, path in sorted(fetched.items()):
        target = into / coordinates.file_name
        if target.exists():
            raise MissingTool(
                f"{coordinates} and another artifact are both called {target.name}; this version of Kafka cannot be used."
            )
        path.rename(target)
        manifest.append(LockedJar(coordinates, target.stat().st_size, sha256_of(target)))
    return tuple(sorted(manifest, key=lambda jar: jar.coordinates.file_name))


_WAY_OUT = "Set PROZESS_MAVEN_URL to a Maven repository this machine can reach, or try again."
_CAUSES = (  # the first that fits decides; the patterns are what Ivy 2.5 prints
    (
        r"No space left on device|Disk quota exceeded",
        "there is no room left on the disk",
        "Free space, or set PROZESS_CACHE.",
    ),
    (
        r"HTTP response code: 40[137]|CLIENT ERROR: (?:Unauthorized|Forbidden|Proxy)|Unauthorized",
        "the repository refuses access",
        _WAY_OUT,
    ),
    (r"UnknownHost|Host \S+ not found", "the name of the repository's host cannot be resolved", _WAY_OUT),
    (r"PKIX|SSLHandshake|SSLException|certificate", "its certificate is not trusted by this Java", _WAY_OUT),
    (
        r"Connection refused|[Tt]imed out|[Cc]onnect timeout|SERVER ERROR|unreachable|No route|Connection reset|"
        r"Server access [Ee]rror|ConnectException|SocketException",
        "the repository cannot be reached",
        _WAY_OUT,
    ),
)


def explain_failure(version: str, output: str) -> str:
    """Says why Ivy failed, and what to do, without any address in it."""
    what = f"Kafka {version}'s jars cannot be fetched with Ivy"
    for pattern, cause, way_out in _CAUSES:
        if re.search(pattern, output):
            return f"{what}: {cause}. {way_out}"
    if missing := re.search(
        r"(?:module not found|not found): ([\w.#;-]+)|([\w.-]+#[\w.-]+;[\w.-]+): not found", output
    ):
        artifact = missing[1] or missing[2]
        return f"{what}: the repository has no {artifact}. The nearest releases: {nearest_releases(version)}."
    text = re.sub(r"\x1b\[[\d;]*m|\w+://\S+", "", output)
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["nothing"]
    progressing = next((line for line in lines if "ERROR" in line), lines[-1])
    return f"{what}: it says {progressing[:200]!r}. {_WAY_OUT}"
