"""Clusters for the contract suite: each backend behind the same fixture, one cluster per module."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from prozess.clusters.existing.adoption import adopt, run_prefix
from prozess.clusters.machine.sandbox import enter_command
from prozess.harness import machine_record
from prozess.harness.clock import SystemClock
from prozess.harness.config.configuration import Variant
from prozess.harness.config.existing_clusters import Adoption
from prozess.harness.errors import BadInput
from prozess.harness.plan.plan import Plan
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.run_directory import RunDirectory
from prozess.workloads.librdkafka import close

READY_S = 120.0
SESSION_TIMEOUT_S = 4.0

EVERY_VARIANT = "PROZESS_EVERY_VARIANT"
"""In the environment: the contract is tested on variants of the compose backend that CI has no time for."""
COMPOSE = "prozess.clusters.compose.cluster:ComposeCluster"
KRAFT: dict[str, Any] = {}
ZOOKEEPER = {"metadata_mode": "zookeeper", "kafka_version": "3.9.2"}
WORLD = os.environ.get("PROZESS_WORLD")
"""Inside `tests.support.servers.ssh`: where its machines are stated."""
BACKENDS = [
    pytest.param(("tests.support.fake_cluster.cluster:FakeCluster", KRAFT), id="fake"),
    pytest.param(("tests.support.servers.hosted:HostedCluster", KRAFT), id="local", marks=pytest.mark.cluster),
    pytest.param(
        ("tests.support.servers.hosted:HostedCluster", ZOOKEEPER),
        id="local-zookeeper",
        marks=[pytest.mark.cluster, pytest.mark.long],
    ),
    pytest.param((COMPOSE, KRAFT), id="compose", marks=[pytest.mark.cluster, pytest.mark.docker]),
    pytest.param(
        (COMPOSE, ZOOKEEPER),
        id="compose-zookeeper",
        marks=[
            pytest.mark.cluster,
            pytest.mark.docker,
            pytest.mark.skipif(
                EVERY_VARIANT not in os.environ, reason=f"one variant is enough; {EVERY_VARIANT} runs all"
            ),
        ],
    ),
]
if WORLD is not None:
    BACKENDS = [pytest.param(("prozess.clusters.existing.ssh:SshCluster", KRAFT), id="ssh", marks=pytest.mark.cluster)]


def ensure_images(version: str, *, zookeeper: bool = False) -> None:
    """Built here where no registry gave any; and the metrics agent, which is given to containers."""
    from prozess.clusters.compose.engine import build_images, find_image
    from prozess.clusters.install.kafka_jars import ensure_extra

    ensure_extra()

    try:
        find_image("kafka", version, zookeeper=zookeeper)
    except BadInput:
        build_images([version], progress=lambda _: None)


def numbered_from_zero(brokers: int, image: str) -> str:
    """A person's Compose file with these combined nodes, which says nothing of prozess: numbered from 0, as in Bitnami's."""
    from prozess.clusters.compose.file import persons_file
    from prozess.clusters.machine.servers import first_port, free_ports

    text = persons_file(Variant(metadata_mode="kraft-combined", brokers=brokers), name="mine")
    text = text.replace(f"${{KAFKA_IMAGE:-apache/kafka:{Variant().kafka_version}}}", image)
    for number, port in enumerate(free_ports(["127.0.0.1"], brokers, first=first_port()), start=1):
        for old, new in (
            (f"${{PORT_{number}:-{19090 + number}}}", str(port)),
            (f'KAFKA_NODE_ID: "{number}"', f'KAFKA_NODE_ID: "{number - 1}"'),
            (f"{number}@broker-{number}:", f"{number - 1}@broker-{number}:"),
        ):
            assert old in text
            text = text.replace(old, new)
    return text


def enter_with_jars(command: list[str]) -> list[str]:
    """The command within a sandbox. What its cluster needs is fetched first: inside there is no network to fetch it over."""
    from prozess.clusters.install.kafka_jars import ensure_extra, ensure_jars

    ensure_extra()
    ensure_jars(Variant().kafka_version)
    return enter_command(command)


def plan_of(**variant: Any) -> Plan:
    """A plan with that variant and one small cell; brokers' sessions are short."""
    properties = {
        "broker.session.timeout.ms": str(int(SESSION_TIMEOUT_S * 1000)),
        "broker.heartbeat.interval.ms": "500",
        "zookeeper.session.timeout.ms": str(int(SESSION_TIMEOUT_S * 1000)),
    }
    document = {
        "name": "contract",
        "title": "The contract of a cluster",
        "workload": "log",
        "base": {"topic.replication_factor": 1},
        "variant": {"properties": properties, **variant},
    }
    if WORLD is None:
        return make_plan(parse_trial(document, source="contract"), seed=1)
    document |= {"backend": "ssh", "ssh": json.loads(Path(WORLD).read_text())}
    plan = make_plan(parse_trial(document, source="contract"), seed=1)
    assert plan.ssh is not None
    # As a run has it: with names that no other has.
    return adopt(plan, Adoption(prefix=run_prefix("contract", token_hex(6)), broker_ids=plan.ssh.broker_ids))


def new_run(path: Path) -> RunDirectory:
    """A directory as a run has it, with this machine's record of it."""
    run = RunDirectory(path)
    run.create()
    machine_record.begin(run)
    return run


def new_cluster(backend: str, plan: Plan, run: RunDirectory) -> Any:
    module, _, name = backend.partition(":")
    more = {"close": close} if name == "HostedCluster" else {}
    return getattr(import_module(module), name)(plan, run, clock=SystemClock(), **more)


@pytest.fixture(scope="module", params=BACKENDS)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, need: Callable[[str], None]
) -> Iterator[Any]:
    """1 controller (or ZooKeeper server) and 3 brokers, ready. Tests leave it as they found it: whole and healed."""
    backend, variant = request.param
    if backend == COMPOSE:
        need("docker")
        ensure_images(variant.get("kafka_version", "4.4.0"), zookeeper=bool(variant))
    built = new_cluster(backend, plan_of(**variant), new_run(tmp_path_factory.mktemp("run")))
    try:
        built.setup()
        built.wait_ready(timeout_s=READY_S)
        yield built
    finally:
        built.teardown()


def processes_naming(text: str) -> dict[int, str]:
    """pid → command line of every process (but this one) whose command line names `text`."""
    found = {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit() and int(directory.name) != os.getpid():
            try:
                line = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue  # ended meanwhile
            if text in line:
                found[int(directory.name)] = line
    return found


def end_at_once(directory: Path) -> None:
    """SIGKILL to the command whose files are there, its run stage and its supervisor. They are stopped first: none of them is
    to see another one's end."""
    named = ("-m prozess run ", "-m prozess.app.run.")
    found = [pid for pid, line in processes_naming(str(directory)).items() if any(name in line for name in named)]
    assert len(found) >= 3, f"the command, its run stage and its supervisor: {found}"
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in found:
            os.kill(pid, number)
