"""`versions.json` has the versions of everything that a run depended on, so that its result can be understood, and
repeated, later.

prozess    version; of a checkout the commit, and whether it had changes
python, machine   interpreter; name of the host, kernel, processors, memory, other trials when this one began
packages   name → version of each distribution that prozess needs and that is installed
kafka      versions of the servers
servers    version → where its program is from, and whether prozess verified that it is what was published
clients    one for each client library on trial: library, version, where it is from, and whether prozess verified it
tools      name → version of what is no Python package: Java, librdkafka, toxiproxy, a Docker engine
"""

import os
import platform
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution, version
from itertools import pairwise
from pathlib import Path
from typing import Any

from prozess.harness import installation, plugins
from prozess.harness.errors import HistoryUnreadable, ProzessError
from prozess.harness.plan import catalogue
from prozess.harness.plan.checks import versions_installed
from prozess.harness.plan.plan import Plan
from prozess.harness.processes import argument_lists
from prozess.harness.run_directory import RunDirectory, read_object, write_json

PACKAGE = "prozess"
GIT_TIMEOUT_S = 5.0


JarFacts = Callable[[str], Mapping[str, Any]]
"""A version of Kafka → what is known of its jars in the cache: `verified`, `pinned`, `sha256`. {} if they are not there."""
LibraryFacts = Callable[[str], Mapping[str, Any]]
"""A version of librdkafka → what is known of its wheel in the cache: `verified`, `wheel` and `sha256`. {} if it is not
there."""
ToolVersions = Callable[[str], Mapping[str, str]]
"""A backend → name and version of each tool that it uses. ProzessError if a tool that it needs is missing."""


def stamp_versions(
    run: RunDirectory, plan: Plan, *, jar_facts: JarFacts, library_facts: LibraryFacts, tool_versions: ToolVersions
) -> None:
    """Writes versions.json. What cannot be found out is left out: a version is never guessed."""
    stamped = versions_of(plan, jar_facts=jar_facts, library_facts=library_facts, tool_versions=tool_versions)
    write_json(run.versions, stamped)


def versions_of(
    plan: Plan, *, jar_facts: JarFacts, library_facts: LibraryFacts, tool_versions: ToolVersions
) -> dict[str, Any]:
    """Returns everything that versions.json says, as JSON values."""
    tools = _tools(plan.backend, tool_versions)
    return {
        PACKAGE: own_version(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "machine": _machine() | {"other_trials": other_trials(argument_lists())},
        "packages": _packages(),
        "kafka": [] if catalogue.BACKENDS.named(plan.backend).protocol_only else list(plan.variant.kafka_versions),
        "servers": _servers(plan, jar_facts),
        "clients": _clients(plan, jar_facts, library_facts, installed=tools.get("librdkafka")),
        "tools": tools,
    }


def own_version() -> dict[str, Any]:
    """Returns the version of prozess. For a checkout it has also the commit, and whether files differ from it."""
    version: dict[str, Any] = {"version": _installed(PACKAGE)}
    root = installation.SEARCH_PATH
    if not (root / ".git").exists():
        return version
    commit, changes = _git(root, "rev-parse", "HEAD"), _git(root, "status", "--porcelain", "--untracked-files=no")
    if commit is not None:
        version |= {"commit": commit, "changed": bool(changes)}
    return version


def _git(root: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


_RUN_STAGES = ("prozess.app.run.inside_sandbox", "prozess.app.run.session")
"""The modules whose processes hold a cluster while it runs."""
_NOT_KNOWN = "unknown"
"""Stands for the version of servers that were there before, in versions.json."""


def _servers(plan: Plan, jar_facts: JarFacts) -> dict[str, dict[str, Any]]:
    """Returns each version of a server once. Nobody knows yet which version a cluster has that was there before."""
    versions = dict.fromkeys((*plan.variant.kafka_versions, *versions_installed(plan)))
    backend = catalogue.BACKENDS.named(plan.backend)
    return {
        version: {"from": backend.servers_from, "verified": False}
        | (dict(jar_facts(version)) if backend.from_cache else {})
        for version in ((_NOT_KNOWN,) if backend.protocol_only else versions)
    }


def _clients(
    plan: Plan, jar_facts: JarFacts, library_facts: LibraryFacts, *, installed: str | None
) -> list[dict[str, Any]]:
    """Returns each client library on trial. Without a version it is librdkafka's that prozess runs with."""
    libraries: list[dict[str, Any]] = []
    for library in plan.libraries:
        version = library.version
        if version is None:
            libraries.append({"library": library.client, "version": installed, "from": "the installed package"})
        elif library.client == "java":
            facts = {"from": "jars in the cache", "verified": False} | dict(jar_facts(version))
            libraries.append({"library": "java", "version": version} | facts)
        else:
            facts = {"from": "a wheel in the cache", "verified": False} | dict(library_facts(version))
            libraries.append({"library": library.client, "version": version} | facts)
    commands = dict.fromkeys(command for client in plan.clients if (command := client.command))
    return [*libraries, *({"command": list(command), "from": "a program of yours"} for command in commands)]


def machine_of(run: RunDirectory) -> dict[str, Any]:
    """Returns what versions.json says of the machine that ran the trial; {} where nobody noted it, or it cannot be read."""
    try:
        machine = read_object(run.versions).get("machine", {}) if run.versions.exists() else {}
    except HistoryUnreadable:
        return {}
    return machine if isinstance(machine, dict) else {}


def concurrent_runs_note(run: RunDirectory) -> str:
    """Returns a sentence if other trials ran on the machine when this one began, else nothing. What they cost is time: each
    has its own namespaces, ports, cgroups and directories."""
    machine = machine_of(run)
    others = machine.get("other_trials", 0)
    if not others:
        return ""
    many = "another trial ran" if others == 1 else f"{others} other trials ran"
    where = f"the {machine.get('processors', 'same')} processors of this machine"
    return f"When it began, {many} on {where}, so times may be longer."


def unverified(run: RunDirectory) -> list[str]:
    """Returns one sentence for each server and client library in versions.json whose program nobody verified."""
    try:
        stamped = read_object(run.versions) if run.versions.exists() else {}
    except HistoryUnreadable as error:
        return [f"it is not known which programs the servers ran: {error}"]
    servers, clients = stamped.get("servers", {}), stamped.get("clients", [])
    jars = [(_server(name, run), facts) for name, facts in (servers.items() if isinstance(servers, dict) else ())]
    # The installed package is the user's own, and the jars of a server's version are named with it.
    jars += [
        (f"The clients' {one.get('library')} {one.get('version')}", one)
        for one in (clients if isinstance(clients, list) else ())
        if isinstance(one, dict) and "verified" in one and one.get("version") not in servers
    ]
    return [
        f"{name} ran from {facts.get('from', 'somewhere')}, for which prozess has no SHA-256 sums"
        + (" but those that they had when they were first fetched." if facts.get("pinned") is True else ".")
        for name, facts in jars
        if isinstance(facts, dict) and facts.get("verified") is not True
    ]


def _server(version: str, run: RunDirectory) -> str:
    """Returns a name for servers of this version. For a cluster that was there before, the release that its brokers
    reported."""
    if version != _NOT_KNOWN:
        return f"Kafka {version}"
    try:
        release = read_object(run.cluster).get("kafka_version") if run.cluster.exists() else None
    except HistoryUnreadable:
        release = None
    return "Kafka, of a release that its brokers did not say," if release is None else f"Kafka {release}"


def _machine() -> dict[str, Any]:
    return {
        "host": platform.node(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "processors": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def other_trials(processes: Iterable[tuple[int, Sequence[str]]]) -> int:
    """Returns how many other clusters of prozess run on this machine. `processes`: pid and arguments of each, asked for
    before a trial starts its own. Several processes may belong to one directory, which is the argument behind the module."""
    return len(
        {directory for _, arguments in processes for module, directory in pairwise(arguments) if module in _RUN_STAGES}
    )


def _packages() -> dict[str, str]:
    """Returns the versions of the packages that the distribution's own metadata names, including those of extras, and of
    packages that add faults, checkers or workloads."""
    try:
        needed = distribution(PACKAGE).requires or []
    except PackageNotFoundError:  # a checkout on the path that was never installed
        return {}
    names = {re.split(r"[^\w.-]", text, maxsplit=1)[0].lower() for text in needed}
    found = {name: _installed(name) for name in sorted(names)}
    return {name: version for name, version in found.items() if version is not None} | plugins.packages()


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _tools(backend: str, tool_versions: ToolVersions) -> Mapping[str, str]:
    try:
        return tool_versions(backend)
    except ProzessError as error:  # the run itself will say what is missing
        return {"unknown": str(error)}
