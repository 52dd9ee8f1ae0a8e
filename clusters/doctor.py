"""`prozess doctor`: what this machine offers, found by trying it, and what each lack costs.

Probes run side by side, each within its limit; none raises, and none leaves anything behind.
"""

import os
import re
import resource
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from prozess.clusters.compose.engine import endpoint
from prozess.clusters.disks.shim import shim_support
from prozess.clusters.disks.volumes import disk_support, groups_support
from prozess.clusters.existing import client_network
from prozess.clusters.install.locks import locked_versions
from prozess.clusters.install.repository import repository_of
from prozess.clusters.install.tools import TOXIPROXY_NAMES, TOXIPROXY_VERSION, find_java, toxiproxy_server
from prozess.clusters.links.support import refusals
from prozess.clusters.machine import sandbox
from prozess.harness.config.configuration import version_numbers
from prozess.harness.config.impairments import Capability
from prozess.harness.console import console
from prozess.harness.errors import BadInput, ProzessError
from prozess.harness.installation import cache_directory

PROBE_TIMEOUT_S = 20.0
COMMAND_TIMEOUT_S = 8.0
FREE_DISK_MIN_BYTES = 2 * 1024**3
MEMORY_MIN_BYTES = 1536 * 1024**2
"""One controller and three brokers take 430 MB, Spark and the clients about 1 GB."""
DESCRIPTORS_MIN = 8192
"""A broker holds about three files per replica; hundreds of cells make thousands."""
CORES_MIN = 2
LOAD_PER_CORE_MAX = 2.0


@dataclass(frozen=True, slots=True)
class MachineProbe:
    """Something that a machine may have, and whether this one has it."""

    name: str
    found: bool
    detail: str
    """What was found, or why it is not there."""
    costs: str
    """What the lack costs, or would cost, in one sentence."""


def show_probes(probes: Sequence[MachineProbe]) -> None:
    """Prints what the machine offers: one line per probe, with the cost of each lack."""
    out = console()
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("", "what", "found", "without it"):
        table.add_column(heading)
    for probe in probes:
        sign = "[green]✓[/green]" if probe.found else "[yellow]✗[/yellow]"
        table.add_row(sign, escape(probe.name), escape(probe.detail), "" if probe.found else escape(probe.costs))
    out.print(table)


@dataclass(frozen=True, slots=True)
class _Question:
    name: str
    answer: Callable[[Mapping[str, str]], tuple[bool, str]]
    costs: str


def probes(environment: Mapping[str, str] = os.environ, *, timeout_s: float = PROBE_TIMEOUT_S) -> list[MachineProbe]:
    """Runs every probe, and returns them in the order of `prozess doctor`. Takes at most `timeout_s`."""
    return _ask_all(_QUESTIONS, environment, timeout_s=timeout_s)


def _ask_all(questions: Sequence[_Question], environment: Mapping[str, str], *, timeout_s: float) -> list[MachineProbe]:
    answers: dict[str, tuple[bool, str]] = {}

    def ask(question: _Question) -> None:
        try:
            answers[question.name] = question.answer(environment)
        except subprocess.TimeoutExpired as error:
            answers[question.name] = False, f"{Path(error.cmd[0]).name} gave no answer within {error.timeout:g} s"
        except Exception as error:  # noqa: BLE001 - whatever a strange machine does, the other probes are shown
            answers[question.name] = False, f"could not be tried: {error}"

    threads = [threading.Thread(target=ask, args=(q,), daemon=True, name=f"probe {q.name}") for q in questions]
    for thread in threads:
        thread.start()
    stop = threading.Event()
    timer = threading.Timer(timeout_s, stop.set)
    timer.daemon = True
    timer.start()
    for thread in threads:
        while thread.is_alive() and not stop.is_set():
            thread.join(0.05)
    timer.cancel()
    silent = False, f"no answer within {timeout_s:g} s"
    return [MachineProbe(q.name, *answers.get(q.name, silent), q.costs) for q in questions]


def _run(command: Sequence[str], *, directory: Path | None = None) -> tuple[int, str]:
    """Runs a command, and returns its exit code and output; 127 if there is no such program."""
    try:
        done = subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=COMMAND_TIMEOUT_S,
            cwd=directory,
            check=False,
        )
    except OSError as error:
        return 127, error.strerror or str(error)
    return done.returncode, done.stdout.strip()


def _line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:160] if lines else "it printed nothing"


def _program(environment: Mapping[str, str], *names: str) -> str | None:
    """Finds the first program of these names. System directories count, although a user's PATH may lack them."""
    path = environment.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    return next(filter(None, (shutil.which(name, path=path) for name in names)), None)


def _version_of(environment: Mapping[str, str], *names: str) -> tuple[bool, str]:
    program = _program(environment, *names)
    if program is None:
        return False, f"{' or '.join(names)} is not on PATH"
    code, output = _run([program, "--version"])
    return code == 0, f"{program}: {_line(output)}"


# The probes


def _java(environment: Mapping[str, str]) -> tuple[bool, str]:
    try:
        found = find_java(environment)
    except ProzessError as error:
        return False, str(error)
    return True, f"Java {found.major} at {found.home} ({found.origin})"


def _jars(environment: Mapping[str, str]) -> tuple[bool, str]:
    directory = cache_directory(environment) / "jars"
    cached = [
        f"{version} (with ZooKeeper)" if version_numbers(version) < (4,) else version
        for version in locked_versions()
        if (directory / f"kafka-{version}").is_dir()
    ]
    here = f"in the cache: {', '.join(cached) or 'none yet'}"
    try:
        return True, f"{here}; others are fetched from {repository_of(environment).origin}"
    except ProzessError as error:
        return bool(cached), f"{here}; none can be fetched: {error}"


def _namespaces(environment: Mapping[str, str]) -> tuple[bool, str]:
    support = sandbox.probe()
    return support.level == "namespaces", support.reason


def _ip(environment: Mapping[str, str]) -> tuple[bool, str]:
    program = _program(environment, "ip")
    if program is None:
        return False, "ip is not on PATH (package iproute2)"
    code, output = _run([program, "-Version"])
    return code == 0, f"{program}: {_line(output)}"


def _link_faults(environment: Mapping[str, str]) -> tuple[bool, str]:
    refused = dict(refusals())
    refused.pop(Capability.MESSAGES, None)  # which has a line of its own
    if _toxiproxy(environment)[0]:
        refused.pop(Capability.DELAY, None)
    if refused:
        return False, "; ".join(f"{capability}: {why}" for capability, why in refused.items())
    return True, "iptables, tc and ss do what loss, bandwidth, latency and reset need"


def _messages(environment: Mapping[str, str]) -> tuple[bool, str]:
    why = refusals().get(Capability.MESSAGES)
    return why is None, why or "iptables leads connections to a proxy that understands Kafka's protocol"


def _docker(environment: Mapping[str, str]) -> tuple[bool, str]:
    program = _program(environment, "docker")
    if program is None:
        return False, "docker is not on PATH"
    try:
        endpoint(environment)
    except BadInput as error:
        return False, str(error)
    code, engine = _run([program, "version", "--format", "{{.Server.Version}}"])
    if code != 0:
        return False, f"no engine answers: {_line(engine)}"
    code, compose = _run([program, "compose", "version", "--short"])
    if code != 0:
        return False, f"engine {_line(engine)}, but no compose plugin: {_line(compose)}"
    return True, f"engine {_line(engine)}, compose {_line(compose)}"


def _loop_disks(environment: Mapping[str, str]) -> tuple[bool, str]:
    support = disk_support()
    return support.kind == "loop", support.reason


def _disk_groups(environment: Mapping[str, str]) -> tuple[bool, str]:
    where, how = groups_support()
    return where is not None, how


def _compiler(environment: Mapping[str, str]) -> tuple[bool, str]:
    support = shim_support()
    return support.path is not None, support.reason


def _toxiproxy(environment: Mapping[str, str]) -> tuple[bool, str]:
    if (found := toxiproxy_server(environment=environment)) is not None:
        return True, str(found)
    go = shutil.which("go", path=environment.get("PATH", os.defpath))
    if go is None:
        return False, f"{' or '.join(TOXIPROXY_NAMES)} is not on PATH, nor is Go, which could build it"
    return True, f"not here yet; {go} builds {TOXIPROXY_VERSION} when a trial needs it"


def _clients_network(environment: Mapping[str, str]) -> tuple[bool, str]:
    why = client_network.why_no_client_network()
    return why is None, why or "the trial's clients can be given a network of their own"


def _chromium(environment: Mapping[str, str]) -> tuple[bool, str]:
    return _version_of(environment, "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def _netem(environment: Mapping[str, str]) -> tuple[bool, str]:
    tc = _program(environment, "tc")
    if tc is None:
        return False, "tc is not on PATH (package iproute2)"
    support = sandbox.probe()
    if support.level != "namespaces":
        return False, "it is only tried in a network namespace, and there is none here"
    code, output = _run([*support.prefix, tc, "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"])
    return code == 0, "the kernel has it" if code == 0 else _line(output)


def _spark(environment: Mapping[str, str]) -> tuple[bool, str]:
    try:
        return True, f"PySpark {version('pyspark')}"
    except PackageNotFoundError:
        return False, "it is not installed: pip install 'prozess[spark]'"


def _disk(environment: Mapping[str, str]) -> tuple[bool, str]:
    free: dict[str, int] = {}
    for what, wanted in (("cache", cache_directory(environment)), ("runs", Path.cwd())):
        there = next(p for p in (wanted, *wanted.parents) if p.exists())
        free[f"{what} at {wanted}"] = shutil.disk_usage(there).free
    text = ", ".join(f"{size / 1024**3:.1f} GiB for {what}" for what, size in free.items())
    return min(free.values()) >= FREE_DISK_MIN_BYTES, text


def _memory(environment: Mapping[str, str]) -> tuple[bool, str]:
    match = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE)
    if match is None:
        return False, "/proc/meminfo has no MemAvailable"
    available = int(match[1]) * 1024
    return available >= MEMORY_MIN_BYTES, f"{available / 1024**3:.1f} GiB available"


def _descriptors(environment: Mapping[str, str]) -> tuple[bool, str]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = hard == resource.RLIM_INFINITY or hard >= DESCRIPTORS_MIN
    limit = {resource.RLIM_INFINITY: "unlimited"}
    return enough, f"{limit.get(soft, soft)}, can be raised to {limit.get(hard, hard)} (ulimit -n, -Hn)"


def _cores(environment: Mapping[str, str]) -> tuple[bool, str]:
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    return (
        cores >= CORES_MIN and load <= LOAD_PER_CORE_MAX * cores,
        f"{cores} for this process, load {load:.1f} in the last minute",
    )


_QUESTIONS = (
    _Question("java", _java, "Nothing runs: Kafka and Spark need Java 17 or newer."),
    _Question("kafka jars", _jars, "The local backend cannot start Kafka."),
    _Question(
        "namespaces",
        _namespaces,
        "No partitions or link faults with the local backend, and a crashed harness leaves its servers to the supervisor.",
    ),
    _Question("ip", _ip, "No network namespaces for nodes, so no partitions with the local backend."),
    _Question(
        "link faults",
        _link_faults,
        "Packet loss, bandwidth limits, latency, resets or half-open connections are lacking with the local backend, as "
        "named here.",
    ),
    _Question(
        "messages",
        _messages,
        "No faults of single messages (`message`) and no steps that wait for a message with the local backend: a trial "
        "that has one is refused.",
    ),
    _Question(
        "spark",
        _spark,
        "Threads check what was recorded. There is no second opinion, and no checks on a Spark cluster.",
    ),
    _Question("docker", _docker, "The compose backend is not available: no runs on your own images."),
    _Question(
        "loop disks",
        _loop_disks,
        "No frozen, slow or failing disks; full disks take memory, and power loss is modelled by recorded fsyncs.",
    ),
    _Question("disk throttles", _disk_groups, "No slow disks: a disk's speed is limited by a control group."),
    _Question("c compiler", _compiler, "No power loss without root and no clock faults: both preload a small library."),
    _Question("toxiproxy", _toxiproxy, "No latency between nodes, or between clients and brokers (`latency`)."),
    _Question(
        "clients' network", _clients_network, "No faults on the attach backend: clients go straight to the brokers."
    ),
    _Question("chromium", _chromium, "Reports are not tested in a browser; making and reading them needs none here."),
    _Question("netem", _netem, "No kernel-level delay and jitter between nodes; latency faults go through toxiproxy."),
    _Question("disk space", _disk, "A run stops with what it has recorded when its disk is full."),
    _Question("memory", _memory, "Brokers may be killed by the kernel in mid-run, which is then no fault of Kafka's."),
    _Question("descriptors", _descriptors, "Trials with many cells end in 'Too many open files' on a broker."),
    _Question(
        "cores",
        _cores,
        "The observers run late: verdicts on timing (unavailability, stalls) become unknown, and runs are slow.",
    ),
)
