"""Administration and ground truth on real brokers of both supported lines: what they say is what happened."""

import json
import re
import subprocess
import sys

import pytest

from prozess.clusters.install.kafka_jars import ensure_jars
from prozess.clusters.machine.sandbox import enter_command
from tests.support.servers.forgotten_transaction import PRODUCER_ID

# Inside the sandbox: one JSON object with everything that was seen.
INSIDE = """
import json, subprocess, sys
from pathlib import Path
from prozess.clusters.files.metadata_log import decode_ground_truth
from prozess.clusters.install.kafka_jars import ensure_jars
from prozess.clusters.install.tools import find_java
from prozess.clusters.protocol.admin import Admin
from prozess.clusters.registry import backend_named
from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.errors import BadInput, ClusterFailed, NotReady
from prozess.harness.plan.planning import make_plan
from prozess.harness.interfaces import TopicSpec
from prozess.harness.run_directory import RunDirectory
from prozess.harness.plan.trial_files import parse_trial
from tests.support.servers.forgotten_transaction import write_forgotten

clock, run, version = SystemClock(), RunDirectory(Path(sys.argv[1])), sys.argv[2]
run.create()
plan = make_plan(parse_trial({
    "name": "contract", "title": "", "topics": {"partitions": 2}, "base": {"topic.replication_factor": 3},
    "variant": {"kafka_version": version, "properties": {
        "broker.session.timeout.ms": 4000, "transaction.partition.verification.enable": "false"}},
}, source="the test"), seed=1)
cluster = backend_named("local").make(plan, run, clock=clock)
seen = {}

def refusal(call):
    try:
        call()
    except (BadInput, ClusterFailed, NotReady) as error:
        return [type(error).__name__, str(error)]

def described(views):
    return {node: view and {f"{t}-{n}": [s.leader, sorted(s.isr)] for (t, n), s in view.items()}
            for node, view in views.items()}

try:
    cluster.setup()
    cluster.wait_ready(timeout_s=120)
    admin = Admin(cluster)
    admin.create_topics([TopicSpec("alpha", ((1, 2, 3), (2, 3, 1)), {"min.insync.replicas": "2"})], timeout_s=60)
    seen["views"] = described(admin.views(["alpha", "absent"]))
    seen["active"], seen["features"] = admin.active_controller(), dict(admin.features())
    seen["living"] = sorted(admin.living_brokers(2))
    seen["offsets"] = {f"{t}-{n}": [[o.node, o.log_start, o.high_watermark, o.last_stable_offset] for o in found]
                       for (t, n), found in admin.log_starts_and_ends(["alpha"]).items()}
    configurations = admin.describe_configs(brokers=[1], topics=["alpha"])
    seen["topic"] = configurations["topic:alpha"]["min.insync.replicas"]
    seen["broker"] = configurations["broker:1"]["broker.session.timeout.ms"]
    admin.await_coordinators(["one", "other"], timeout_s=60)
    offsets = admin.views(["__consumer_offsets"])
    seen["coordinators"] = [sorted({len(view) for view in offsets.values()}), min(len(s.isr) for s in offsets[1].values())]
    seen["again"] = refusal(lambda: admin.create_topics([TopicSpec("alpha", ((1,),))], timeout_s=20))
    seen["bad"] = refusal(lambda: admin.create_topics([TopicSpec("b", ((1,),), {"retention.ms": "soon"})], timeout_s=20))
    admin.create_topics([TopicSpec("beta", ((1, 2),))], timeout_s=60)
    admin.add_partitions({"beta": (1, ((2, 3), (3, 1)))}, timeout_s=60)
    seen["grown"] = described({1: admin.view(1, ["beta"])})[1]
    from confluent_kafka import Producer
    servers = ",".join(f"{host}:{port}" for host, port in cluster.observer_servers.values())
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    for _ in range(5):
        producer.produce("beta", b"x", partition=2)
    assert producer.flush(30) == 0
    kept = admin.delete_records([("beta", 1), ("beta", 2)], keep=2, timeout_s=30)
    seen["deleted"] = {f"{t}-{n}": start for (t, n), start in kept.items()}
    seen["no such"] = refusal(lambda: admin.delete_records([("gamma", 0)], keep=2, timeout_s=30))
    seen["fewer"] = refusal(lambda: admin.add_partitions({"beta": (0, ((1, 2),))}, timeout_s=30))
    known = Producer({"bootstrap.servers": servers, "transactional.id": "known"})
    known.init_transactions(60)
    known.begin_transaction()
    known.produce("alpha", b"x", partition=0)
    assert known.flush(30) == 0
    both = [("alpha", 0), ("alpha", 1)]
    seen["forgotten from"] = write_forgotten(cluster.observer_servers, 2, "alpha", 1)
    opened = admin.open_transactions(both)
    seen["open"] = [[len(opened[key]), opened[key][0].producer_id, opened[key][0].start_offset] for key in both]
    seen["coordinated"] = [[t.transactional_id, t.producer_id, t.state] for t in admin.coordinated_transactions()]
    seen["aborted"] = admin.abort_transaction(both[1], opened[both[1]][0])
    after = admin.open_transactions(both)
    seen["open after"] = [len(after[key]) for key in both]
    (seen["end"],) = [[o.high_watermark, o.last_stable_offset] for o in admin.log_starts_and_ends(["alpha"])["alpha", 1]]
    known.commit_transaction(30)
    killed = next(n for n in cluster.nodes if n.node_id == 1)
    killed.kill()
    seen["dead replica"] = refusal(lambda: admin.create_topics([TopicSpec("c", ((1, 2),))], timeout_s=1))
    wait_until(lambda: admin.view(2, ["alpha"])["alpha", 0].leader == 2, awaited="a new leader", timeout_s=60, clock=clock)
    wait_until(lambda: admin.living_brokers(3) == {2, 3}, awaited="the news", timeout_s=60, clock=clock)
    seen["after"] = described(admin.views(["alpha"]))
    elr = admin.elr(["alpha"])
    seen["elr"] = elr and [list(elr["alpha", 0].elr), list(elr["alpha", 0].last_known_elr)]
    admin.close()
finally:
    cluster.teardown()
directories = [node.data_directory for node in cluster.nodes if "controller" in node.roles]
columns = decode_ground_truth(
    directories, partition_ids={("alpha", 0): 0, ("alpha", 1): 1}, wall_minus_monotonic_ns=0).metadata
seen["rows"] = {name: values.tolist() for name, values in columns.items()}
tool = "kafka.tools.DumpLogSegments" if version < "4.3" else "org.apache.kafka.tools.DumpLogSegments"
jars = ":".join(str(jar) for jar in ensure_jars(version))
log = next(directories[0].glob("__cluster_metadata-0/*.log"))
java = str(find_java().executable)
seen["dump"] = subprocess.run(
    [java, "-Xmx96m", "-cp", jars, tool, "--files", str(log), "--cluster-metadata-decoder"],
    capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
print(json.dumps(seen))
"""


def mask(brokers) -> int:
    return sum(1 << broker for broker in brokers)


@pytest.mark.cluster
@pytest.mark.parametrize("version", ["4.3.1", pytest.param("3.9.2", marks=pytest.mark.long)])
def test_what_brokers_and_controllers_say_is_what_happened(tmp_path, version):
    ensure_jars(version)  # inside there is no network to fetch them over
    command = enter_command([sys.executable, "-c", INSIDE, str(tmp_path / "run"), version])
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=400, check=True)
    seen = json.loads(done.stdout.splitlines()[-1])
    (partitions,), isr = seen["coordinators"]  # of __consumer_offsets, which nobody had used before
    assert (partitions >= 1, isr >= 1) == (True, True)

    assert seen["views"] == {b: {"alpha-0": [1, [1, 2, 3]], "alpha-1": [2, [1, 2, 3]]} for b in "123"}
    assert seen["active"] == 3001
    assert seen["living"] == [1, 2, 3]
    assert seen["offsets"] == {"alpha-0": [[1, 0, 0, 0]], "alpha-1": [[2, 0, 0, 0]]}
    assert (seen["topic"], seen["broker"]) == ("2", "4000")
    assert seen["again"][0] == "ClusterFailed"
    assert "TOPIC_ALREADY_EXISTS" in seen["again"][1]
    assert seen["bad"][0] == "BadInput"
    assert "retention.ms" in seen["bad"][1]
    assert seen["grown"] == {"beta-0": [1, [1, 2]], "beta-1": [2, [2, 3]], "beta-2": [3, [1, 3]]}
    assert seen["deleted"] == {"beta-1": 0, "beta-2": 3}
    assert "gamma-0" in seen["no such"][1]
    assert seen["fewer"][0] in ("BadInput", "ClusterFailed")
    ((name, producer_id, state),) = seen["coordinated"]
    assert (name, state) == ("known", "Ongoing")
    assert seen["open"] == [[1, producer_id, 0], [1, PRODUCER_ID, seen["forgotten from"]]]
    assert (seen["aborted"], seen["open after"]) == ("", [1, 0]), "of the two, the one that nobody coordinates"
    assert seen["end"] == [2, 2], "the record and its marker, and nothing holds them back"
    # The limit ends the request itself, or the wait for its replicas: refused either way.
    assert seen["dead replica"][0] in ("NotReady", "ClusterFailed")
    assert seen["after"]["1"] is None
    assert seen["after"]["2"] == seen["after"]["3"] == {"alpha-0": [2, [2, 3]], "alpha-1": [2, [2, 3]]}
    if version == "4.3.1":
        assert seen["features"]["eligible.leader.replicas.version"] == 1
    assert seen["elr"] == [[], []], "two of three are in sync, as many as min.insync.replicas"
    assert_ground_truth(seen["rows"], seen["dump"])


def assert_ground_truth(rows, dump) -> None:
    """Every row of a partition against the record that Kafka's own decoder prints for its offset."""
    at = {position: i for i, position in enumerate(rows["log_position"]) if rows["partition"][i] >= 0}
    compared, topic = set(), None
    for line in dump:
        if (match := re.match(r"\| offset: (\d+) CreateTime: (\d+) .*?payload: (\{.*\})$", line)) is None:
            continue
        record, offset = json.loads(match[3]), int(match[1])
        data = record["data"]
        if record["type"] == "TOPIC_RECORD" and data["name"] == "alpha":
            topic = data["topicId"]
        if record["type"] in ("PARTITION_RECORD", "PARTITION_CHANGE_RECORD") and data["topicId"] == topic:
            row = at[offset]
            compared.add(offset)
            assert rows["time_ns"][row] == int(match[2]) * 1_000_000
            assert rows["partition"][row] == data["partitionId"]
            assert rows["isr"][row] == mask(data["isr"])
            if "leader" in data:
                assert rows["leader"][row] == data["leader"]
    assert compared == set(at)
    assert len(compared) >= 4
    last = {partition: i for i, partition in enumerate(rows["partition"]) if partition >= 0}
    assert [(rows["leader"][last[p]], rows["leader_epoch"][last[p]], rows["isr"][last[p]]) for p in (0, 1)] == [
        (2, 1, mask([2, 3])),
        (2, 0, mask([2, 3])),
    ]
