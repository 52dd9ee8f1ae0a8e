"""The sandbox of the run stage: fresh user, network, mount and pid namespaces, with one network per node inside.

It is made by util-linux's unshare(1).

The first process inside is pid 1 of its pid namespace: when it dies, the kernel kills everything it started, and with
the last process the network namespaces and every rule in them are gone. No root is needed where user namespaces are
allowed; real root needs none. Where neither works, nodes are plain processes on loopback addresses and `pids.jsonl` of
the run says which.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, cast, get_args

from prozess.clusters.machine.processes import captured
from prozess.harness.errors import BadInput
from prozess.harness.installation import cache_directory
from prozess.harness.machine_record import STATE_HOME, state_directory

Isolation = Literal["namespaces", "signals"]
ISOLATION_VARIABLE = "PROZESS_ISOLATION"
"""The variable that `enter_command` sets inside. Set it yourself to force a lesser level."""
TRIAL_TIMEOUT_S = 20.0

NAMESPACE_FLAGS = ("-n", "-m", "-p", "-f", "--mount-proc", "--kill-child")
_INSIDE = (
    "set -e\n"
    'PATH="$PATH:/usr/sbin:/sbin"\n'
    "mount -t tmpfs -o mode=755 tmpfs /run\n"  # `ip netns` keeps its names in /run/netns
    "mkdir -p /run/netns\n"
    "ip link set lo up\n"
)
_PROVE = (
    "ip netns add one\n"
    "ip link add bridge0 type bridge forward_delay 0\n"
    "ip link add port0 type veth peer name data netns one\n"
    "ip link set port0 master bridge0 up\n"
    "ip -n one rule add pref 100 lookup local\n"
    "ip -n one rule del pref 0\n"
    "ip -n one rule add pref 10 from 10.213.77.1/32 blackhole\n"
    "ip netns del one\n"
    "echo namespaces-work\n"
)


@dataclass(frozen=True, slots=True)
class SandboxSupport:
    """Says how nodes can be kept apart on this machine."""

    level: Isolation
    reason: str
    """Why it is this level and no better one."""
    costs: tuple[str, ...] = ()
    """Sentences that say what cannot be done at this level."""
    prefix: tuple[str, ...] = ()
    """The words before a command that is to run inside; empty if there are no namespaces."""


COSTS: dict[Isolation, tuple[str, ...]] = {
    "namespaces": (),
    "signals": (
        "No network partitions, one-way or both ways: trials with the fault `partition` are refused. (With root, "
        "firewall rules by owner could make them even here, but prozess does not use such rules.)",
        "After a crash of the harness a supervisor must end the servers, since the kernel does not.",
    ),
}


def probe() -> SandboxSupport:
    """Finds the best level that works here, by trying it in a short child: about 50 ms, once per process."""
    return _probe(os.environ.get(ISOLATION_VARIABLE, ""))


def enter_command(argv: Sequence[str]) -> list[str]:
    """Wraps a command so that it runs in a fresh sandbox or, where that does not work, learns the level that it has.

    File descriptors, environment and working directory pass through. Standard error of the wrapper is the command's. Where
    the cache and the records are, is stated: whoever is root inside would look for root's home where no HOME is set.
    """
    support = probe()
    argv = ["env", f"PROZESS_CACHE={cache_directory()}", f"{STATE_HOME}={state_directory().parent}", *argv]
    if support.level != "namespaces":
        return ["env", f"{ISOLATION_VARIABLE}={support.level}", *argv]
    script = f'{_INSIDE}export {ISOLATION_VARIABLE}=namespaces\nexec "$@"\n'
    return [*support.prefix, "sh", "-c", script, "prozess", *argv]


def isolation_here() -> Isolation:
    """The level at which this process runs, as `enter_command` noted; outside any sandbox "signals"."""
    return checked_isolation(os.environ.get(ISOLATION_VARIABLE) or "signals")


def checked_isolation(text: str) -> Isolation:
    """The level of that name; BadInput if there is none."""
    if text not in get_args(Isolation):
        levels = ", ".join(get_args(Isolation))
        raise BadInput(
            f"isolation ({ISOLATION_VARIABLE}) = {text!r} must be one of {levels}, or unset for the best that works."
        )
    return cast("Isolation", text)


@cache
def _probe(forced: str) -> SandboxSupport:
    if forced and checked_isolation(forced) != "namespaces":
        level = checked_isolation(forced)
        return SandboxSupport(level, f"{ISOLATION_VARIABLE} = {forced} asks for it.", COSTS[level])
    missing = [tool for tool in ("unshare", "ip", "mount") if _which(tool) is None]
    if missing:
        return _lesser(f"{', '.join(missing)} not installed (util-linux, iproute2)")
    refused = []
    ways: list[tuple[str, tuple[str, ...]]] = [("user", ("unshare", "-U", "-r", *NAMESPACE_FLAGS))]
    if os.geteuid() == 0:
        ways.insert(0, ("root", ("unshare", *NAMESPACE_FLAGS)))
    for name, prefix in ways:
        problem = _try(prefix)
        if problem is None:
            how = "user, network, mount and pid" if name == "user" else "network, mount and pid"
            return SandboxSupport("namespaces", f"{how} namespaces work ({name}).", (), prefix)
        refused.append(f"as {name}: {problem}")
    return _lesser("; ".join(refused))


def _lesser(why: str) -> SandboxSupport:
    return SandboxSupport("signals", f"No namespaces here ({why}); nodes share the host's network.", COSTS["signals"])


def _try(prefix: Sequence[str]) -> str | None:
    """Returns why the namespaces of that command do not do what is needed; None if they do."""
    try:
        done = captured([*prefix, "sh", "-c", _INSIDE + _PROVE], timeout_s=TRIAL_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"no answer within {TRIAL_TIMEOUT_S:g} s"
    except OSError as error:
        return str(error)
    if done.returncode == 0 and "namespaces-work" in done.stdout:
        return None
    return (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1][:200]


def _which(tool: str) -> str | None:
    return shutil.which(tool, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")
