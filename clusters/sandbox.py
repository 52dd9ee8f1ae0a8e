"""The sandbox of the run stage: fresh user, network, mount and pid namespaces, made by util-linux's unshare(1).

The first process inside is pid 1 of its pid namespace: when it dies, the kernel kills everything it started, and with
the last process the network namespaces and every rule in them are gone. No root is needed where user namespaces are
allowed; real root needs none. Where neither works, nodes are plain processes on loopback addresses and `pids.jsonl` of
the run says which (`clusters.orphans`).
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, cast, get_args

from clusters.orphans import sweep_pids as sweep_pids
from harness.errors import BadInput

Isolation = Literal["namespaces", "signals"]
ISOLATION_VARIABLE = "PROZESS_ISOLATION"
"""Set inside by `enter_command`; a user may set it to force a lesser level."""
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
    """How nodes are kept apart here."""

    level: Isolation
    reason: str
    """Why this level and not a better one; how it is done."""
    costs: tuple[str, ...] = ()
    """What cannot be done at this level, one sentence each."""
    prefix: tuple[str, ...] = ()
    """Of a command that is to run inside; empty: no namespaces."""


COSTS: dict[Isolation, tuple[str, ...]] = {
    "namespaces": (),
    "signals": (
        "No network partitions, one-way or both ways: trials with the fault `partition` are refused. (Firewall rules by "
        "owner could make them for root even here; this version makes none.)",
        "A supervisor must end servers after a crash of the harness; the kernel does not.",
    ),
}


def probe() -> SandboxSupport:
    """The best level that works here, found by really trying it in a short child (about 50 ms; once per process)."""
    return _probe(os.environ.get(ISOLATION_VARIABLE, ""))


def enter_command(argv: Sequence[str]) -> list[str]:
    """`argv`, wrapped so that it runs in a fresh sandbox; or, where that does not work, told the level it has instead.

    File descriptors, environment and working directory pass through. Standard error of the wrapper is the command's.
    """
    support = probe()
    if support.level != "namespaces":
        return ["env", f"{ISOLATION_VARIABLE}={support.level}", *argv]
    script = f'{_INSIDE}export {ISOLATION_VARIABLE}=namespaces\nexec "$@"\n'
    return [*support.prefix, "sh", "-c", script, "prozess", *argv]


def isolation_here() -> Isolation:
    """The level this process runs at, as `enter_command` said; outside any sandbox "signals"."""
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
    """Why the namespaces of that command do not do what is needed; None if they do."""
    try:
        done = subprocess.run(
            [*prefix, "sh", "-c", _INSIDE + _PROVE],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=TRIAL_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {TRIAL_TIMEOUT_S:g} s"
    except OSError as error:
        return str(error)
    if done.returncode == 0 and "namespaces-work" in done.stdout:
        return None
    return (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1][:200]


def _which(tool: str) -> str | None:
    return shutil.which(tool, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")
