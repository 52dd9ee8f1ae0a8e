"""What only the local backend promises: clients outside, nothing left behind, fallbacks, other versions and shapes."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from prozess.clusters.machine.processes import sweep_pids
from prozess.clusters.machine.sandbox import ISOLATION_VARIABLE
from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.errors import BadInput, ClusterFailed, NotReady
from prozess.harness.interfaces import Capability, NodeState
from prozess.harness.run_directory import RunDirectory
from prozess.workloads.librdkafka import close
from tests.support.servers.clusters import READY_S, enter_with_jars, new_run, plan_of, processes_naming
from tests.support.servers.hosted import HostedCluster

pytestmark = pytest.mark.cluster
CLOCK = SystemClock()
END_S = 30.0


def nothing_left(run: RunDirectory) -> None:
    """Wait until no process names the run, then look for namespaces and links of ours out here."""
    wait_until(
        lambda: not processes_naming(str(run.path)),
        awaited="every process of the run to be gone",
        timeout_s=END_S,
        clock=CLOCK,
        last_seen=lambda: str(processes_naming(str(run.path))),
    )
    names = {path.name for path in Path("/run/netns").glob("*")} if Path("/run/netns").exists() else set()
    assert not names & {"broker-1", "broker-2", "broker-3", "controller-3001"}
    assert not {path.name for path in Path("/sys/class/net").iterdir()} & {"data", "observer"}
    assert str(run.path) not in Path("/proc/self/mountinfo").read_text()


def write_and_read(servers: str, count: int) -> int:
    """Records of the ready topic read back, of `count` written with acks=all, from out here."""
    outcomes: list[object] = []
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    for number in range(count):
        producer.produce("prozess-ready", str(number).encode(), on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(30) == 0
    assert outcomes == [None] * count
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "outside", "enable.auto.commit": False})
    consumer.assign([TopicPartition("prozess-ready", 0, 0)])
    seen: list[Any] = []
    try:
        wait_until(
            lambda: seen.extend(consumer.consume(1000, 0.5)) or len(seen) >= count + 1,  # type: ignore[func-returns-value]
            awaited="what was written",
            timeout_s=30.0,
            clock=CLOCK,
            last_seen=lambda: f"{len(seen)} records",
        )
    finally:
        consumer.close()
    assert all(message.error() is None for message in seen)
    return len({message.value() for message in seen} & {str(number).encode() for number in range(count)})


def with_checkout(**more: str) -> dict[str, str]:
    """An environment in which a child process finds our packages."""
    paths = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **more}


def bring_up(cluster: HostedCluster) -> None:
    cluster.setup()
    cluster.wait_ready(timeout_s=READY_S)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostedCluster]:
    built = HostedCluster(plan_of(brokers=1), new_run(tmp_path_factory.mktemp("run")), clock=CLOCK, close=close)
    try:
        bring_up(built)
        yield built
    finally:
        built.teardown()


def test_callers_outside_write_and_read_through_the_relay(local: HostedCluster) -> None:
    assert write_and_read(local.relay_servers, 500) == 500


def test_an_error_inside_is_raised_outside_as_what_it_is(local: HostedCluster) -> None:
    broker = local.nodes[-1]
    broker.pause()
    with pytest.raises(NotReady, match=r"waited 1 s for .*unfenced.*broker 1 does not answer"):
        local.wait_ready(timeout_s=1.0)
    broker.resume()
    local.wait_ready(timeout_s=READY_S)


def test_a_server_that_dies_at_once_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    plan = plan_of(brokers=1, properties={"num.network.threads": "many"})
    cluster = HostedCluster(plan, run, clock=CLOCK, close=close)
    try:
        with pytest.raises(ClusterFailed, match=r"ended by itself \(exit 1\)(.|\n)*num\.network\.threads"):
            bring_up(cluster)
    finally:
        cluster.teardown()
    nothing_left(run)


def test_a_property_that_the_backend_sets_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"'listeners'.*Remove it"):
        HostedCluster(plan_of(properties={"listeners": "X://:1"}), new_run(tmp_path), clock=CLOCK, close=close)


def test_no_cut_touches_the_observers_link(tmp_path: Path, need: Callable[[str], None]) -> None:
    need("namespaces")
    run = new_run(tmp_path)
    run.plan.write_text(plan_of(brokers=2).model_dump_json())
    done = subprocess.run(
        enter_with_jars([sys.executable, str(Path(__file__).with_name("inside_the_sandbox.py")), str(run.path)]),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env=with_checkout(),
    )
    assert (done.returncode, done.stdout) == (0, "observed\n"), done.stderr
    nothing_left(run)


def both_servers(run: RunDirectory) -> list[str]:
    """The command lines of a broker and a controller. `setup` returns once both are forked, which may be before both have
    become Java."""
    return wait_until(
        lambda: servers if len(servers := servers_of(run)) == 2 else None,
        awaited="two Kafka servers",
        timeout_s=END_S,
        clock=CLOCK,
        last_seen=lambda: str(processes_naming(str(run.path))),
    )


def servers_of(run: RunDirectory) -> list[str]:
    return [line for line in processes_naming(str(run.path)).values() if "kafka.Kafka" in line]


def test_nothing_is_left_after_teardown(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    cluster = HostedCluster(plan_of(brokers=1), run, clock=CLOCK, close=close)
    cluster.setup()
    servers = both_servers(run)
    assert all(f"-Djava.io.tmpdir={run.nodes}/" in line for line in servers)  # a killed JVM leaves files there
    cluster.teardown()
    nothing_left(run)
    assert (run.nodes / "broker-1" / "data" / "meta.properties").is_file()  # data stays readable
    assert (run.logs / "broker-1.log").is_file()


_CALLER = """
import sys
from pathlib import Path
from tests.support.servers.hosted import HostedCluster
from prozess.workloads.librdkafka import close
from prozess.harness.clock import SystemClock
from prozess.harness.plan.plan import parse_plan
from prozess.harness.run_directory import RunDirectory
run = RunDirectory(Path(sys.argv[1]))
cluster = HostedCluster(parse_plan(run.plan.read_text(), source="plan"), run, clock=SystemClock(), close=close)
cluster.setup()
print("up", cluster.host_pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("level", ["namespaces", pytest.param("signals", marks=pytest.mark.long)])
@pytest.mark.parametrize("victim", ["caller", "host"])
def test_nothing_is_left_after_a_sigkill(tmp_path: Path, level: str, victim: str, need: Callable[[str], None]) -> None:
    if level == "namespaces":
        need("namespaces")
    run = new_run(tmp_path)
    run.plan.write_text(plan_of(brokers=1).model_dump_json())
    environment = with_checkout(**{ISOLATION_VARIABLE: level})
    caller = subprocess.Popen(
        [sys.executable, "-c", _CALLER, str(run.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert caller.stdout is not None
        assert caller.stdin is not None
        word, host_pid = caller.stdout.readline().split()
        assert word == "up"
        both_servers(run)
        os.kill(caller.pid if victim == "caller" else int(host_pid), signal.SIGKILL)
        if victim == "caller":
            caller.wait(END_S)
            nothing_left(run)
        else:
            wait_until(
                lambda: set(processes_naming(str(run.path))) <= {caller.pid},
                awaited="the servers to be gone, though the caller lives",
                timeout_s=END_S,
                clock=CLOCK,
                last_seen=lambda: str(processes_naming(str(run.path))),
            )
    finally:
        caller.kill()
        caller.wait(END_S)
        caller.stdin.close()
        caller.stdout.close()
        sweep_pids(run)
    nothing_left(run)


def test_without_namespaces_nodes_share_the_host_and_partitions_are_lacking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ISOLATION_VARIABLE, "signals")
    run = new_run(tmp_path)
    cluster = HostedCluster(plan_of(brokers=2), run, clock=CLOCK, close=close)
    try:
        bring_up(cluster)
        assert {Capability.BLOCK, Capability.CUT_CLIENTS} <= set(cluster.lacks)
        assert "no network namespaces" in cluster.lacks[Capability.BLOCK]
        assert cluster.describe()["isolation"]["level"] == "signals"
        broker = cluster.nodes[-1]
        broker.pause()
        assert broker.state() is NodeState.PAUSED
        broker.kill()
        broker.start()
        cluster.wait_ready(timeout_s=READY_S)
        assert write_and_read(cluster.relay_servers, 50) == 50
        assert write_and_read(cluster.bootstrap_servers, 50) == 50
    finally:
        cluster.teardown()
    assert sweep_pids(run) == []
    nothing_left(run)


@pytest.mark.parametrize(
    ("version", "mode", "brokers", "controllers"),
    [
        pytest.param("4.3.1", "kraft-isolated", 3, 3, marks=pytest.mark.long),
        pytest.param("3.9.2", "kraft-combined", 3, 1, marks=pytest.mark.long),
        pytest.param("4.3.1", "kraft-combined", 1, 1, marks=pytest.mark.long),
        pytest.param("4.3.1", "kraft-combined", 3, 1, marks=pytest.mark.long),
        pytest.param("3.9.2", "kraft-isolated", 3, 1, marks=pytest.mark.long),
    ],
)
def test_other_versions_and_shapes_get_ready_too(
    tmp_path: Path, version: str, mode: str, brokers: int, controllers: int
) -> None:
    run = new_run(tmp_path)
    plan = plan_of(kafka_version=version, metadata_mode=mode, brokers=brokers, controllers=controllers)
    cluster = HostedCluster(plan, run, clock=CLOCK, close=close)
    try:
        bring_up(cluster)
        features = cluster.describe()["features"]
        assert features["metadata.version"] == (30 if version == "4.3.1" else 21)
        assert len(cluster.nodes) == brokers + (controllers if mode == "kraft-isolated" else 0)
        if mode == "kraft-combined":
            assert all(node.roles == {"broker", "controller"} for node in cluster.nodes)
        assert write_and_read(cluster.relay_servers, 20) == 20
    finally:
        cluster.teardown()
    nothing_left(run)
