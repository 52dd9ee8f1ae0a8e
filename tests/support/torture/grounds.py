"""Clusters that are there before a round of torture, and must be as they were after it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

from prozess.clusters.existing.ssh import BALLAST, SshCluster
from prozess.harness.clock import SystemClock
from prozess.harness.interfaces import NodeState
from prozess.workloads.librdkafka import close
from tests.support.paths import ROOT
from tests.support.servers.clusters import READY_S, enter_with_jars, new_run, plan_of
from tests.support.servers.hosted import HostedCluster
from tests.support.servers.ssh import VARIABLE

CLOCK = SystemClock()
ASK_S = 30.0


class Ground:
    """Nothing: the run makes its cluster itself. `tail`: the end of the trial file."""

    tail = ""

    def remains(self, run: str) -> list[str]:
        """What the run of that name left there, or changed; one sentence each."""
        return []


class Attached(Ground):
    """Somebody else's cluster, of which only its brokers are reached."""

    def __init__(self, cluster: HostedCluster) -> None:
        self._servers = cluster.relay_servers
        self.tail = f"\n[attach]\nbootstrap_servers = {json.dumps(self._servers.split(','))}\n"

    def remains(self, run: str) -> list[str]:
        return _topics(self._servers, run)


class Machines(Ground):
    """Machines behind sshd: `tests.support.servers.ssh`, in which this process is."""

    def __init__(self, ssh: dict[str, Any], look: Path) -> None:
        lines = ["\n[ssh]", *(f"{key} = {json.dumps(value)}" for key, value in ssh.items() if key != "nodes")]
        for node in ssh["nodes"]:
            lines += ["[[ssh.nodes]]", *(f"{key} = {json.dumps(value)}" for key, value in node.items())]
        self.tail = "\n".join(lines) + "\n"
        self._cluster = SshCluster(plan_of(), new_run(look), clock=CLOCK)

    def remains(self, run: str) -> list[str]:
        found = []
        for node in self._cluster.nodes:
            for tool in (["iptables-save"], ["tc", "qdisc", "show", "dev", "data"]):
                said = node.host.run_as_root(tool).stdout.splitlines()
                found += [f"{node.name}: {line}" for line in said if "PROZESS" in line or " htb " in line]
            if BALLAST in node.host.names_in(str(node.remote_data)):
                found.append(f"{node.name}: its disk is full of our ballast")
            if (state := node.state()) is not NodeState.RUNNING:
                found.append(f"{node.name} is {state.value}")
        return [line for line in found if "-j PROZESS" not in line or "DROP" in line] + _topics(
            self._cluster.bootstrap_servers, run
        )


def _topics(servers: str, run: str) -> list[str]:
    there = AdminClient({"bootstrap.servers": servers, "log_level": 0}).list_topics(timeout=ASK_S).topics
    return [f"topic {name}" for name in there if name.startswith(f"prozess-{run}-")]


@contextmanager
def ground_of(backend: str, directory: Path) -> Iterator[Ground]:
    """What trials of that backend are run on."""
    if backend == "ssh":
        yield Machines(json.loads(Path(os.environ[VARIABLE]).read_text(encoding="utf-8")), directory / "look")
        return
    if backend != "attach":
        yield Ground()
        return
    cluster = HostedCluster(plan_of(), new_run(directory / "theirs"), clock=CLOCK, close=close)
    try:
        cluster.setup()
        cluster.wait_ready(timeout_s=READY_S)
        yield Attached(cluster)
    finally:
        cluster.teardown()


def in_a_world(command: list[str], directory: Path, *, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run it where `ground_of("ssh")` is to be had."""
    here = ROOT
    return subprocess.run(
        enter_with_jars([sys.executable, "-m", "tests.support.servers.ssh", str(directory / "world"), *command]),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        cwd=here,
        env={**os.environ, "PYTHONPATH": str(here)},
    )
