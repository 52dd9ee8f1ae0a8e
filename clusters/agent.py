"""The metrics agent inside every Kafka JVM: Jolokia, JMX over HTTP (`harness.jolokia`), in a server on the observer's address
only.

Measured with Java 17: 0.2 s of CPU time when a node starts, 0.8 MB on disk, 2 MiB of
memory, 6-12 ms of CPU time per scrape of 32 MBeans. Class-data archives go on working beside it.
"""

import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from filelock import FileLock, Timeout

from clusters.cache import cache_directory, make_cache, sha256_of
from clusters.jars import Progress, collect, fetch, verify
from clusters.locks import LockedJar, read_lock
from clusters.repository import FETCH_TIMEOUT_S, Request
from harness.errors import NotReady

VERSION = "2.5.1"
_log = logging.getLogger(__name__)


def metrics_agent(*, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The agent's jar, if it is in the cache and is the one that is locked; None, at once, if not."""
    locked = _locked()
    path = cache_directory(environment) / "jars" / f"jolokia-{VERSION}" / locked.coordinates.file_name
    try:
        whole = path.stat().st_size == locked.size and sha256_of(path) == locked.sha256
    except OSError:
        return None
    return path if whole else None


def ensure_agent(*, progress: Progress | None = None, environment: Mapping[str, str] = os.environ) -> Path:
    """The same, fetched if it is not there. MissingTool if it cannot be had or is not what the lock says; NotReady if
    another process keeps fetching beyond the limit."""
    if found := metrics_agent(environment=environment):
        return found
    tell = progress or _log.info
    directory = make_cache("jars", environment=environment)
    lock = FileLock(directory / f"jolokia-{VERSION}.flock", timeout=FETCH_TIMEOUT_S)
    try:
        with lock:
            if metrics_agent(environment=environment) is None:
                _fetch_into(directory, tell, environment)
    except Timeout as error:
        raise NotReady(
            awaited=f"another process that fetches Jolokia {VERSION}",
            timeout_s=FETCH_TIMEOUT_S,
            last_seen=f"{lock.lock_file} is held",
        ) from error
    found = metrics_agent(environment=environment)
    assert found, directory
    return found


def _locked() -> LockedJar:
    locked = read_lock(VERSION, product="jolokia")
    assert locked is not None, VERSION
    (jar,) = locked
    return jar


def _fetch_into(directory: Path, tell: Progress, environment: Mapping[str, str]) -> None:
    """Fetch, verify, put in place. The caller holds the lock."""
    locked = _locked()
    prefix = f".fetching-jolokia-{VERSION}-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=directory, ignore_cleanup_errors=True) as workspace:
        request = Request(VERSION, (locked.coordinates,), exact=True, other=f"Jolokia {VERSION}")
        whole = Path(workspace) / "whole"
        fetched = collect(fetch(request, Path(workspace), tell, environment), whole)
        verify(VERSION, fetched, (locked,), product="Jolokia")
        target = directory / f"jolokia-{VERSION}"
        if target.exists():
            target.rename(Path(workspace) / "damaged")
        whole.rename(target)
