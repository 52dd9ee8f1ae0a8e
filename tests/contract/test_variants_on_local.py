"""Kinds of clusters that only some versions have: ZooKeeper, and the middle of an upgrade. On real Kafka."""

import json
import subprocess
import sys

import pytest

from prozess.clusters.install.kafka_jars import ensure_jars
from prozess.clusters.machine.sandbox import enter_command

pytestmark = pytest.mark.cluster

# Inside the sandbox: one JSON object with everything that was seen.
INSIDE = """
import json, sys
from pathlib import Path
from prozess.clusters.files.metadata_log import decode_ground_truth
from prozess.clusters.protocol.admin import Admin
from prozess.clusters.registry import backend_named
from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.plan.planning import make_plan
from prozess.harness.interfaces import NodeState, TopicSpec
from prozess.harness.run_directory import RunDirectory
from prozess.harness.plan.trial_files import parse_trial

clock, run = SystemClock(), RunDirectory(Path(sys.argv[1]))
run.create()
plan = make_plan(parse_trial({
    "name": "contract", "title": "", "topics": {"partitions": 2}, "base": {"topic.replication_factor": 3},
    "variant": json.loads(sys.argv[2]),
}, source="the test"), seed=1)
cluster = backend_named("local").make(plan, run, clock=clock)
nodes = {node.node_id: node for node in cluster.nodes}
seen = {}

def until(probe, awaited):
    return wait_until(probe, awaited=awaited, timeout_s=90, clock=clock)

def in_sync(node, count):
    view = admin.view(node, ["alpha"]) or {}
    return len(view) == 2 and all(len(partition.isr) == count and partition.leader >= 0 for partition in view.values())

try:
    cluster.setup()
    cluster.wait_ready(timeout_s=120)
    admin = Admin(cluster)
    admin.create_topics([TopicSpec("alpha", ((1, 2, 3), (2, 3, 1)))], timeout_s=60)
    exec(sys.argv[3])
    admin.close()
finally:
    cluster.teardown()
print(json.dumps(seen))
"""


def seen_inside(tmp_path, variant, what) -> dict:
    for version in {variant.get("kafka_version", "4.4.0"), *variant.get("versions", {}).values()}:
        ensure_jars(version)  # inside there is no network to fetch them over
    command = enter_command([sys.executable, "-c", INSIDE, str(tmp_path / "run"), json.dumps(variant), what])
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=500, check=True)
    return json.loads(done.stdout.splitlines()[-1])


ZOOKEEPER = """
seen["racks"] = [admin.describe_configs(brokers=[b])[f"broker:{b}"]["broker.rack"] for b in (1, 2, 3)]
first = admin.active_controller()
seen["elr"], seen["features"] = admin.elr(["alpha"]), dict(admin.features())
nodes[first].kill()
second = until(lambda: (found := admin.active_controller()) != first and found, "another controller")
nodes[first].start()  # within its session or after it: it comes back by itself
until(lambda: in_sync(first, 3), "the killed broker in every ISR")
leader = admin.zookeeper_leader()
nodes[leader].kill()
seen["led"] = until(lambda: (found := admin.zookeeper_leader()) != leader and found, "another leader of ZooKeeper") != leader
seen["kept"] = until(admin.active_controller, "a controller") == second
nodes[leader].start()
until(lambda: len(admin.zookeeper_serving()) == 3, "every ZooKeeper server to serve")
restarted = nodes[second]
restarted.kill()
restarted.start()
seen["again"] = until(lambda: in_sync(second, 3), "the broker that was restarted at once")
for node_id in cluster.zookeeper_servers:
    nodes[node_id].pause()
seen["no quorum"] = [admin.active_controller(timeout_s=1), admin.zookeeper_leader(timeout_s=1)]
for node_id in cluster.zookeeper_servers:
    nodes[node_id].resume()
third = until(admin.active_controller, "a controller after the pause")
until(lambda: all(in_sync(b, 3) for b in (1, 2, 3)), "a whole cluster")
cluster.teardown()
columns = decode_ground_truth(
    [node.data_directory for node in cluster.nodes if "zookeeper" in node.roles],
    partition_ids={("alpha", 0): 0, ("alpha", 1): 1}, wall_minus_monotonic_ns=0, metadata_mode="zookeeper").metadata
seen["rows"] = {name: values.tolist() for name, values in columns.items()}
seen["controllers"] = [first, second, third]
"""


def test_with_zookeeper_controllers_move_brokers_return_and_its_logs_tell_it_all(tmp_path, need):
    need("java")
    need("namespaces")
    variant = {
        "metadata_mode": "zookeeper",
        "kafka_version": "3.9.2",
        "zookeepers": 3,
        "racks": ["east", "west"],
        "properties": {"zookeeper.session.timeout.ms": 4000, "replica.lag.time.max.ms": 5000},
    }
    seen = seen_inside(tmp_path, variant, ZOOKEEPER)
    assert seen["racks"] == ["east", "west", "east"]
    assert (seen["elr"] or {}, seen["features"]) == ({}, {}), "both are KRaft's"
    assert (seen["led"], seen["kept"], seen["again"]) == (True, True, True)
    assert seen["no quorum"] == [None, None]
    rows = list(zip(*(seen["rows"][name] for name in ("kind", "node", "leader_epoch")), strict=True))
    controllers = [(node, epoch) for kind, node, epoch in rows if kind == 5]
    assert [epoch for _, epoch in controllers] == list(range(1, len(controllers) + 1))
    first, second, third = seen["controllers"]
    assert [node for node, _ in controllers][:2] == [first, second]
    assert controllers[-1][0] == third
    fenced = [node for kind, node, _ in rows if kind == 3]
    assert {first, second} <= set(fenced)
    last = {partition: i for i, partition in enumerate(seen["rows"]["partition"]) if partition >= 0}
    assert [seen["rows"]["isr"][last[p]] for p in (0, 1)] == [0b1110, 0b1110]


MIXED = """
seen["features"] = dict(admin.features())
seen["facts"] = {key: cluster.describe()[key] for key in ("kafka_version", "kafka_versions")}
seen["logged"] = {name: (run.logs / f"{name}.log").read_text().partition("Kafka version: ")[2].split()[0]
                  for name in ("broker-1", "broker-2", "controller-3001")}
nodes[2].kill()
until(lambda: in_sync(1, 2), "the others to lead")
nodes[2].start()
until(lambda: all(in_sync(b, 3) for b in (1, 2, 3)), "a whole cluster")
seen["whole"] = True
"""


@pytest.mark.long
def test_a_cluster_in_the_middle_of_an_upgrade_works_at_the_oldest_metadata_version(tmp_path, need):
    need("java")
    need("namespaces")
    variant = {"versions": {"broker-1": "3.9.2"}, "properties": {"broker.session.timeout.ms": 4000}}
    seen = seen_inside(tmp_path, variant, MIXED)
    assert seen["logged"] == {"broker-1": "3.9.2", "broker-2": "4.4.0", "controller-3001": "4.4.0"}
    assert seen["features"]["metadata.version"] == 21, "3.9-IV0"
    assert seen["facts"]["kafka_version"] == "3.9.2", "what guarantees are judged by"
    assert seen["facts"]["kafka_versions"]["broker-2"] == "4.4.0"
    assert seen["whole"]
