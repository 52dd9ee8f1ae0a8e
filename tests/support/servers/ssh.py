"""Machines for the ssh backend: in each network namespace of a sandbox a real sshd and a real Kafka server.

    python -m tests.support.servers.ssh DIRECTORY COMMAND…     inside the sandbox

runs the command, with `PROZESS_WORLD` naming a JSON file: `[ssh]` of a trial that runs there. Everything ends with the
sandbox.
"""

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from prozess.clusters.local.cluster import LocalCluster, LocalNode
from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.plan.plan import Plan
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.run_directory import RunDirectory
from tests.support.servers.clusters import READY_S, plan_of

VARIABLE = "PROZESS_WORLD"
SSHD_START_S = 30.0
SSHD = "/usr/sbin/sshd"
_CONFIG = """
ListenAddress {address}
HostKey {keys}/host
AuthorizedKeysFile {keys}/authorized
PermitRootLogin prohibit-password
PasswordAuthentication no
StrictModes no
UsePAM no
PidFile none
Subsystem sftp internal-sftp
"""


def make_keys(directory: Path) -> Path:
    """A host key, and one to log in with that is let in."""
    directory.mkdir(parents=True)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)], check=True)
    shutil.copy(directory / "user.pub", directory / "authorized")
    return directory


def start_sshd(node: LocalNode, keys: Path) -> str:
    """In the node's network; returns its line of known_hosts."""
    address = node.placement.observer_address
    config = keys / f"{node.name}.conf"
    config.write_text(_CONFIG.format(address=address, keys=keys), encoding="utf-8")
    command = [
        "nsenter",
        f"--net=/run/netns/{node.name}",
        SSHD,
        "-D",
        "-E",
        str(keys / f"{node.name}.log"),
        "-f",
        str(config),
    ]
    subprocess.Popen(command)

    def answers() -> bool:
        try:
            with socket.create_connection((address, 22), timeout=1):
                return True
        except OSError:
            return False

    wait_until(answers, awaited=f"sshd of {node.name}", timeout_s=SSHD_START_S, clock=SystemClock())
    return f"{address} {' '.join((keys / 'host.pub').read_text().split()[:2])}\n"


def write_start(node: LocalNode, directory: Path) -> None:
    """A script that starts the very server that runs there now."""
    words = Path(f"/proc/{node.os_pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0")
    assert "kafka.Kafka" in words, words
    log = directory / f"{node.name}.log"
    script = f"setsid {shlex.join(words)} >> {shlex.quote(str(log))} 2>&1 < /dev/null &\n"
    (directory / f"start-{node.name}").write_text(script, encoding="utf-8")


def options_of(cluster: LocalCluster, directory: Path, keys: Path) -> dict[str, object]:
    """`[ssh]` of a trial."""
    nodes = []
    for node in cluster.nodes:
        at = node.placement
        found: dict[str, object] = {"id": at.node_id, "roles": sorted(at.roles)}
        found |= {"host": at.observer_address, "address": at.data_address}
        if "broker" in at.roles:
            found["listener"] = f"{at.data_address}:{at.data_port}"
            found["observer"] = f"{at.observer_address}:{at.observer_port}"
        else:
            found["controller"] = f"{at.observer_address}:{at.controller_observer_port}"
        nodes.append(found)
    return {
        "user": "root",
        "key_file": str(keys / "user"),
        "known_hosts": str(keys / "known_hosts"),
        "sudo": "env",  # any command that runs another one
        "start": f"sh {directory}/start-{{name}}",
        "pid_pattern": r"kafka\.Kafka .*/{name}/server\.properties",
        "log": f"{directory}/logs/{{name}}.log",
        "data_directory": f"{directory}/nodes/{{name}}/data",
        "nodes": nodes,
    }


def plan_with_disks() -> Plan:
    """Of a cluster whose data directories are on file systems of their own."""
    step = {"name": "full", "do": {"kind": "fault", "fault": "disk-full", "targets": ["leader(0)"]}}
    document = {"name": "world", "title": "", "base": {"topic.replication_factor": 1}, "steps": [step]}
    steps = make_plan(parse_trial(document, source="world"), seed=1).steps
    return plan_of().model_copy(update={"backend": "local", "steps": steps})


def main() -> int:
    """Make the machines, run the command, end."""
    if os.getpid() != 1:
        raise SystemExit("only as the first process of a sandbox: everything must end with it")
    directory, command = Path(sys.argv[1]).resolve(), sys.argv[2:]
    Path("/run/sshd").mkdir(exist_ok=True)
    run = RunDirectory(directory)
    run.create()
    cluster = LocalCluster(plan_with_disks(), run, clock=SystemClock(), isolation="namespaces")
    keys = make_keys(directory / "keys")
    cluster.setup()
    known = ""
    for node in cluster.nodes:
        known += start_sshd(node, keys)
    (keys / "known_hosts").write_text(known, encoding="utf-8")
    cluster.wait_ready(timeout_s=READY_S)
    for node in cluster.nodes:  # not before: a process that is just becoming Java has no command line
        write_start(node, directory)
    world = directory / "world.json"
    world.write_text(json.dumps(options_of(cluster, directory, keys)), encoding="utf-8")
    try:
        return subprocess.run(command, env={**os.environ, VARIABLE: str(world)}, check=False).returncode
    finally:
        cluster.teardown()


if __name__ == "__main__":
    raise SystemExit(main())
