"""Metrics of real nodes of both supported lines: each is reported over a link that no fault cuts, and absence is absence."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from prozess.clusters.install.kafka_jars import ensure_extra, ensure_jars
from prozess.clusters.machine.sandbox import enter_command
from prozess.harness.recording.metrics import code_of
from prozess.harness.recording.rows import read_rows
from prozess.harness.schema import METRICS

# Inside the sandbox: one JSON object with everything that was seen.
INSIDE = """
import json, os, socket, sys
from pathlib import Path
from prozess.clusters.protocol.admin import Admin
from prozess.clusters.protocol.metrics import MetricsObserver
from prozess.clusters.registry import backend_named
from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.plan.planning import make_plan
from prozess.harness.interfaces import TopicSpec
from prozess.harness.recording.rows import Recorder
from prozess.harness.run_directory import RunDirectory
from prozess.app.run.metrics_sampler import MetricsSampler
from prozess.harness.plan.trial_files import parse_trial

clock, run, version = SystemClock(), RunDirectory(Path(sys.argv[1])), sys.argv[2]
run.create()
plan = make_plan(parse_trial({
    "name": "contract", "title": "", "topics": {"partitions": 2}, "base": {"topic.replication_factor": 3},
    "variant": {"kafka_version": version, "properties": {"broker.session.timeout.ms": 4000}},
}, source="the test"), seed=1)
cluster = backend_named("local").make(plan, run, clock=clock)
seen = {}

def cpu_s(pid):
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")

def told_by(node):
    # The agent answers before the broker has registered its MBeans.
    return [metric for metric, value in (observer.jmx(node, timeout_s=60) or {}).items() if value is not None]

def connects(host, port):
    try:
        socket.create_connection((host, port), 1.0).close()
        return True
    except OSError:
        return False

try:
    cluster.setup()
    cluster.wait_ready(timeout_s=120)
    seen["started_cpu_s"] = {n.name: cpu_s(n.os_pid) for n in cluster.nodes}
    admin = Admin(cluster)
    topic = plan.partitions[0].topic_name
    admin.create_topics([TopicSpec(topic, ((1, 2, 3), (2, 3, 1)), {})], timeout_s=60)
    observer = MetricsObserver(cluster)
    seen["jmx"] = {n.name: dict(observer.jmx(n.node_id, timeout_s=60) or {}) for n in cluster.nodes}
    seen["expected"] = {n.name: list(observer.expected(n.node_id)) for n in cluster.nodes}
    seen["elsewhere"] = {n.name: connects(n.address, cluster.metrics_servers[n.node_id][1]) for n in cluster.nodes}
    for node in cluster.nodes:
        for source in cluster.nodes:
            if source is not node:
                node.block(source)
        node.block_address(cluster.client_address)
    seen["cut off"] = {n.name: observer.jmx(n.node_id, timeout_s=60) is not None for n in cluster.nodes}
    for node in cluster.nodes:
        for source in cluster.nodes:
            if source is not node:
                node.unblock(source)
        node.unblock_address(cluster.client_address)
    seen["quorum"] = observer.quorum(3001, timeout_s=60)
    seen["transactions"] = observer.open_transactions(1, timeout_s=60)
    node = next(n for n in cluster.nodes if n.node_id == 1)
    for _ in range(30):
        observer.jmx(1, timeout_s=60)
    before_s = cpu_s(node.os_pid)
    for _ in range(100):
        observer.jmx(1, timeout_s=60)
    seen["scrape_cpu_ms"] = (cpu_s(node.os_pid) - before_s) * 10
    wait_until(lambda: len(admin.view(2, [topic])[topic, 0].isr) == 3, awaited="whole", timeout_s=60, clock=clock)
    led = observer.led_by(1, [topic], timeout_s=60)
    seen["led"] = {f"{t}-{n}": [s.isr_size, s.high_watermark] for (t, n), s in led.items()}
    with Recorder(run) as recorder, MetricsSampler(plan, cluster, recorder, clock):
        clock.sleep(3)
        seen["alive_ns"] = clock.monotonic_ns()
        node.kill()
        seen["killed_ns"] = clock.monotonic_ns()
        clock.sleep(3)
        node.start()
        seen["started_ns"] = clock.monotonic_ns()
        wait_until(lambda: "leaders" in told_by(1), awaited="metrics again", timeout_s=60, clock=clock)
        clock.sleep(3)
    observer.close()
    admin.close()
finally:
    cluster.teardown()
print(json.dumps(seen))
"""


@pytest.fixture(scope="module", params=["4.4.0", pytest.param("3.9.2", marks=pytest.mark.long)])
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("metrics")
    ensure_extra()
    ensure_jars(request.param)
    command = enter_command([sys.executable, "-c", INSIDE, str(directory), request.param])
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return {**json.loads(done.stdout.splitlines()[-1]), "directory": directory}


pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def test_every_node_tells_every_metric_that_is_expected_of_it(seen: Any) -> None:
    for name, told in seen["jmx"].items():
        silent = [metric for metric in seen["expected"][name] if told.get(metric) is None]
        assert silent == [], name
    controller = next(told for name, told in seen["jmx"].items() if name.startswith("controller"))
    assert controller["active_controllers"] == 1
    assert controller["active_brokers"] == 3
    assert sum(told["leaders"] for name, told in seen["jmx"].items() if name.startswith("broker")) >= 2
    assert {told["broker_state"] for name, told in seen["jmx"].items() if name.startswith("broker")} == {3.0}


def test_the_agent_listens_on_the_observers_address_alone(seen: Any) -> None:
    assert not any(seen["elsewhere"].values())


def test_no_cut_reaches_the_observers_link(seen: Any) -> None:
    assert all(seen["cut off"].values())


def test_the_protocol_tells_offsets_quorum_and_transactions(seen: Any) -> None:
    assert seen["quorum"][0] == 3001
    assert seen["transactions"] == 0
    assert [3, 0] in seen["led"].values()


def test_a_scrape_costs_little(seen: Any) -> None:
    assert seen["scrape_cpu_ms"] < 50


def test_a_killed_node_is_absent_and_never_zero(seen: Any) -> None:
    rows, torn = read_rows(seen["directory"] / "rows", METRICS, 1_000_000)
    assert torn == 0
    mine = rows[(rows["node"] == 1) & (rows["metric"] == code_of("leaders"))]
    dead = (mine["time_ns"] > seen["killed_ns"]) & (mine["time_ns"] < seen["started_ns"])
    assert dead.sum() >= 2
    assert mine["absent"][dead].all()
    assert (mine["absent"][mine["time_ns"] < seen["alive_ns"]] == 0).all()
    assert mine["absent"][-1] == 0
    others = rows[(rows["node"] == 2) & (rows["metric"] == code_of("leaders"))]
    assert (others["absent"] == 0).mean() > 0.8


def test_the_agent_is_the_one_that_is_locked(tmp_path: Path) -> None:
    from prozess.clusters.install.kafka_jars import cached_extra

    assert cached_extra() is not None
    assert cached_extra(environment={"PROZESS_CACHE": str(tmp_path)}) is None
