"""What a run may leave on the machine, and must not: looked for where it would be, whoever made it.

Processes are known by a token that they inherit in their environment, by the run's path in their command line or working
directory, and by `pids.jsonl`. Everything else is compared with what was there before.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.errors import NotReady
from prozess.harness.processes import is_running
from prozess.nemesis.crash_recovery import read_pids

TOKEN = "PROZESS_TOKEN"
"""Environment variable by which everything that a command started is known, whatever became of its parents."""
COMMAND_TIMEOUT_S = 30.0
_DOCKERS_OWN = re.compile(r"/docker/|^interface: (veth|br-|docker)|^firewall rule: .*(br-|docker|DOCKER)")
SHARED_VARIABLE = "PROZESS_SHARED_MACHINE"
"""Set where others make such things at the same time: then only what names the run is its own."""


def processes(run: Path, token: str) -> list[str]:
    """Processes of the run that live (zombies hold nothing), each with why it is counted."""
    found = [
        f"process {pid} ({reason}): {_read(pid, 'cmdline')[:150]}"
        for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
        if pid != os.getpid() and (reason := _belongs(pid, run, token))
    ]
    recorded = [f"process {i.pid} ({node} of pids.jsonl)" for node, i in read_pids(run / "pids.jsonl") if is_running(i)]
    return found + recorded


def _belongs(pid: int, run: Path, token: str) -> str:
    if token and f"{TOKEN}={token}" in _read(pid, "environ").split(" "):
        return "by its environment"
    if str(run) in _read(pid, "cmdline"):
        return "by its command line"
    with suppress(OSError):
        if Path(f"/proc/{pid}/cwd").readlink().is_relative_to(run):
            return "by its directory"
    return ""


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""  # ended meanwhile, or not ours to look at


def machine() -> frozenset[str]:
    """Everything outside of processes that a run could make: one line each, as the machine says it. What Docker makes for
    containers is left out: those themselves are there."""
    kinds: dict[str, Callable[[], Iterable[str]]] = {
        "network namespace": lambda: (path.name for path in _entries(Path("/run/netns"))),
        "mount": lambda: (" ".join(line.split()[:4]) for line in Path("/proc/mounts").read_text().splitlines()),
        "interface": lambda: (path.name for path in _entries(Path("/sys/class/net"))),
        "loop device": lambda: _lines("losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"),
        "firewall rule": lambda: (line for line in _lines("iptables-save") if not line.startswith(("#", ":"))),
        "routing rule": lambda: _lines("ip", "rule", "show"),
        "container": lambda: _docker("ps", "--all", "--format", "{{.Names}} {{.Labels}}"),
        "docker network": lambda: _docker("network", "ls", "--format", "{{.Name}} {{.Labels}}"),
        "docker volume": lambda: _docker("volume", "ls", "--format", "{{.Name}} {{.Labels}}"),
    }
    found = (f"{kind}: {line.strip()}" for kind, look in kinds.items() for line in look())
    return frozenset(line for line in found if not _DOCKERS_OWN.search(line))


def _entries(directory: Path) -> list[Path]:
    return list(directory.iterdir()) if directory.is_dir() else []


def _lines(*command: str) -> list[str]:
    tool = shutil.which(command[0], path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")
    if tool is None:
        return []
    done = subprocess.run([tool, *command[1:]], capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)
    return [re.sub(r"\[\d+:\d+\]", "", line) for line in done.stdout.splitlines() if line.strip()]


def _docker(*arguments: str) -> list[str]:
    return _lines("docker", *arguments) if Path("/var/run/docker.sock").exists() else []


def leftovers(before: frozenset[str], *, run: Path, token: str) -> list[str]:
    """What is there now that was not there before; empty = clean."""
    new = sorted(machine() - before)
    if os.environ.get(SHARED_VARIABLE):
        new = [line for line in new if run.name in line]
    return processes(run, token) + new


def wait_clean(before: frozenset[str], *, run: Path, token: str, timeout_s: float) -> list[str]:
    """What is still there after at most `timeout_s`."""
    left: list[str] = []

    def clean() -> bool:
        left[:] = leftovers(before, run=run, token=token)
        return not left

    with suppress(NotReady):
        wait_until(clean, awaited="a clean machine", timeout_s=timeout_s, clock=SystemClock(), interval_s=0.25)
    return left
