"""versions.json: versions of everything that a run depended on, so that its result can be understood, and had again, later.

prozess    version; of a checkout the commit, and whether it had changes
python, machine   interpreter, kernel, processors, memory
packages   name → version of each distribution that prozess needs and that is installed
kafka      versions of the servers
tools      name → version of what is no Python package: Java, librdkafka, toxiproxy, a Docker engine
"""

import os
import platform
import re
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Any

from harness import catalogue
from harness.errors import ProzessError
from harness.plan import Plan
from harness.run_directory import RunDirectory, write_json

PACKAGE = "prozess"
GIT_TIMEOUT_S = 5.0


def stamp_versions(run: RunDirectory, plan: Plan) -> None:
    """Write versions.json. What cannot be found out is left out: a version is never guessed."""
    write_json(run.versions, versions_of(plan))


def versions_of(plan: Plan) -> dict[str, Any]:
    """All of it, as JSON values."""
    return {
        PACKAGE: _own(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "machine": _machine(),
        "packages": _packages(),
        "kafka": [] if plan.backend == "attach" else list(plan.variant.kafka_versions),
        "tools": _tools(plan.backend),
    }


def _own() -> dict[str, Any]:
    told: dict[str, Any] = {"version": _installed(PACKAGE)}
    root = Path(__file__).parents[1]
    if not (root / ".git").exists():
        return told
    commit, changes = _git(root, "rev-parse", "HEAD"), _git(root, "status", "--porcelain", "--untracked-files=no")
    if commit is not None:
        told |= {"commit": commit, "changed": bool(changes)}
    return told


def _git(root: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _machine() -> dict[str, Any]:
    return {
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "processors": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def _packages() -> dict[str, str]:
    """Those that the distribution's own metadata names, those of extras included."""
    try:
        needed = distribution(PACKAGE).requires or []
    except PackageNotFoundError:  # a checkout on the path that was never installed
        return {}
    names = {re.split(r"[^\w.-]", text, maxsplit=1)[0].lower() for text in needed}
    found = {name: _installed(name) for name in sorted(names)}
    return {name: told for name, told in found.items() if told is not None}


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _tools(backend: str) -> Mapping[str, str]:
    try:
        told: Mapping[str, str] = catalogue.service("tool-versions")(backend)
    except ProzessError as error:  # the run itself will say what is missing
        return {"unknown": str(error)}
    return told
