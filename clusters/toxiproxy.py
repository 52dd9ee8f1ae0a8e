"""The toxiproxy server: found on PATH, or built once with Go at a pinned version into the cache, before a run starts (the
sandbox has no network). https://github.com/Shopify/toxiproxy
"""

import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from filelock import FileLock, Timeout

from clusters.cache import cache_directory, make_cache
from clusters.jars import Progress
from harness.errors import MissingTool, NotReady

VERSION = "2.12.0"
MODULE = f"github.com/Shopify/toxiproxy/v2/cmd/server@v{VERSION}"
NAMES = ("toxiproxy-server", "toxiproxy")
BUILD_TIMEOUT_S = 300.0
"""With downloads, on a slow machine; 35 s measured on two cores."""
_log = logging.getLogger(__name__)


def toxiproxy_server(*, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The server's program, if it is on PATH or in the cache; None, at once, if not."""
    for name in NAMES:
        if found := shutil.which(name, path=environment.get("PATH", os.defpath)):
            return Path(found)
    built = _target(environment)
    return built if os.access(built, os.X_OK) else None


def ensure_toxiproxy(*, progress: Progress | None = None, environment: Mapping[str, str] = os.environ) -> Path:
    """The same, built if it is not there. MissingTool if there is no Go, or it cannot build; NotReady if another process
    keeps building beyond the limit."""
    if found := toxiproxy_server(environment=environment):
        return found
    go = shutil.which("go", path=environment.get("PATH", os.defpath))
    if go is None:
        raise MissingTool(
            f"toxiproxy is not on PATH ({' or '.join(NAMES)}), and neither is Go to build it. Faults of latency need it: "
            "install one of them."
        )
    directory = make_cache("tools", environment=environment)
    try:
        with FileLock(directory / f"toxiproxy-{VERSION}.flock", timeout=BUILD_TIMEOUT_S):
            if (found := toxiproxy_server(environment=environment)) is None:
                (progress or _log.info)(f"building toxiproxy {VERSION} with {go}")
                _build(go, directory, environment)
    except Timeout as error:
        raise NotReady(
            awaited="another process that builds toxiproxy", timeout_s=BUILD_TIMEOUT_S, last_seen="its lock is held"
        ) from error
    found = toxiproxy_server(environment=environment)
    assert found, directory
    return found


def _target(environment: Mapping[str, str]) -> Path:
    return cache_directory(environment) / "tools" / f"toxiproxy-{VERSION}"


def _build(go: str, directory: Path, environment: Mapping[str, str]) -> None:
    """Into a workspace, then in place by one rename. The caller holds the lock."""
    with tempfile.TemporaryDirectory(prefix=".building-toxiproxy-", dir=directory, ignore_cleanup_errors=True) as made:
        try:
            done = subprocess.run(
                [go, "install", MODULE],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=BUILD_TIMEOUT_S,
                check=False,
                env={**environment, "GOBIN": made, "CGO_ENABLED": "0"},
            )
        except subprocess.TimeoutExpired as error:
            raise MissingTool(f"toxiproxy was not built within {BUILD_TIMEOUT_S:g} s.") from error
        if done.returncode:
            raise MissingTool(f"Go could not build {MODULE}: {done.stderr.strip()[-400:]}")
        (Path(made) / "server").rename(_target(environment))
