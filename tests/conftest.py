"""Shared by all tests: parts of the machine that a test needs, skipped loudly, or failed where CI requires them."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# A machine that stands still for a moment has not made a test wrong: no case has a deadline.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

REQUIRED = frozenset(filter(None, os.environ.get("PROZESS_REQUIRE", "").split(",")))


def _namespaces() -> str | None:
    from clusters.sandbox import probe

    support = probe()
    return None if support.level == "namespaces" else support.reason


def _chromium() -> str | None:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    return None if found else "no chromium on PATH"


def _java() -> str | None:
    from clusters.java import find_java
    from harness.errors import MissingTool

    try:
        find_java()
    except MissingTool as error:
        return str(error)
    return None


def _docker() -> str | None:
    from clusters.compose_network import network_problem
    from clusters.engine import engine_problem

    return engine_problem() or network_problem()


def _loop_disks() -> str | None:
    from clusters.disks import disk_support

    support = disk_support()
    return None if support.kind == "loop" else support.reason


def _shim() -> str | None:
    from clusters.shim import shim_support

    support = shim_support()
    return None if support.path is not None else support.reason


def _sshd() -> str | None:
    if os.geteuid() != 0:
        return "sshd for several users' machines needs root"
    if not Path("/usr/sbin/sshd").exists() or shutil.which("ssh-keygen") is None:
        return "no /usr/sbin/sshd (Debian: openssh-server)"
    return None if shutil.which("iptables", path="/usr/sbin:/sbin:/usr/bin") else "no iptables"


def _toxiproxy() -> str | None:
    from clusters.toxiproxy import ensure_toxiproxy
    from harness.errors import MissingTool

    try:
        ensure_toxiproxy()
    except MissingTool as error:
        return str(error)
    return None


def _disk_groups() -> str | None:
    from clusters.throttles import groups_support

    where, how = groups_support()
    return None if where is not None else how


PARTS: dict[str, Callable[[], str | None]] = {
    "namespaces": _namespaces,
    "chromium": _chromium,
    "java": _java,
    "docker": _docker,
    "loop-disks": _loop_disks,
    "shim": _shim,
    "toxiproxy": _toxiproxy,
    "disk-groups": _disk_groups,
    "sshd": _sshd,
}


@pytest.fixture(scope="session")
def need() -> Callable[[str], None]:
    """`need("chromium")`: go on if the machine has it; else skip with the reason, or fail if CI requires it."""
    lacking: dict[str, str | None] = {}

    def check(part: str) -> None:
        if part not in lacking:
            lacking[part] = PARTS[part]()
        why = lacking[part]
        if why is None:
            return
        if part in REQUIRED:
            pytest.fail(f"PROZESS_REQUIRE names {part!r}, which is missing: {why}", pytrace=False)
        pytest.skip(f"needs {part}: {why}")

    return check
