"""The attach backend on a real cluster that knows nothing of it: clients go through proxies, nothing is taken for known."""

import json
import shutil
import subprocess
import sys

import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from prozess.app.run.outside_sandbox import check_capabilities
from prozess.clusters.existing.adoption import adopt_plan
from prozess.clusters.existing.attach import AttachCluster
from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.config.impairments import CLIENTS, Bandwidth, Latency, ResetConnections
from prozess.harness.errors import BadInput, HarnessFailed, UnsupportedFault
from prozess.harness.history.convert import History
from prozess.harness.interfaces import Capability, NodeState
from prozess.harness.machine_record import Made
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import FaultPhase, Tristate
from prozess.harness.verdict import AnomalyOutcome, TrialVerdict, Verdict
from prozess.workloads.librdkafka import close
from tests.contract.test_cluster_contract import (
    test_each_capability_is_either_there_or_lacking_with_a_reason as check_capabilities_of,
)
from tests.support.servers.clusters import READY_S, end_at_once, new_run, plan_of
from tests.support.servers.hosted import HostedCluster

pytestmark = pytest.mark.cluster
CLOCK = SystemClock()
TRIAL = {
    "name": "attached",
    "title": "Somebody else's cluster",
    "backend": "attach",
    "topics": {"partitions": 1, "placement": [[1, 2, 3]]},
    "base": {"topic.replication_factor": 3, "topic.min_insync_replicas": 2},
    "steps": [{"name": "steady", "after": {"condition": "acked", "count": 50}, "timeout_s": 60}],
}
# Seconds that one acknowledged record took, by a client that has been connected before.
CLIENT = """
import sys, time
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "acks": "all", "linger.ms": 0})
took = []
for _ in range(5):
    begun = time.monotonic()
    producer.produce(sys.argv[2], b"x")
    assert producer.flush(30) == 0
    took.append(time.monotonic() - begun)
print(min(took))
"""


@pytest.fixture(scope="module", autouse=True)
def toxiproxy(need):
    need("java")
    need("namespaces")
    need("toxiproxy")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """Somebody else's cluster."""
    cluster = HostedCluster(plan_of(), new_run(tmp_path_factory.mktemp("theirs")), clock=CLOCK, close=close)
    try:
        cluster.setup()
        cluster.wait_ready(timeout_s=READY_S)
        yield cluster
    finally:
        cluster.teardown()


def trial_on(theirs, **more):
    return {**TRIAL, "attach": {"bootstrap_servers": theirs.relay_servers.split(",")}, **more}


@pytest.fixture
def attached(theirs, tmp_path):
    run = new_run(tmp_path / "run")
    plan = adopt_plan(make_plan(parse_trial(trial_on(theirs), source="test"), seed=1), run, clock=CLOCK)
    cluster = AttachCluster(plan, run, clock=CLOCK)
    try:
        cluster.setup()
        cluster.wait_ready(timeout_s=READY_S)
        yield cluster, f"{plan.adopted.prefix}ready"
    finally:
        cluster.teardown()


def topics(theirs):
    client = AdminClient({"bootstrap.servers": theirs.relay_servers})
    return {name for name in client.list_topics(timeout=10).topics if not name.startswith("__")}


def groups(theirs):
    client = AdminClient({"bootstrap.servers": theirs.relay_servers})  # it must live until the answer
    told = client.list_consumer_groups(request_timeout=10).result(11)
    assert not told.errors
    return {group.group_id for group in told.valid}


def fastest_s(cluster, topic):
    """In the clients' network: there is no other way to the brokers from there."""
    command = [*cluster.client_prefix, sys.executable, "-c", CLIENT, cluster.bootstrap_servers, topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


def test_nothing_can_be_done_to_nodes_and_the_reason_is_said(attached):
    attached, _ = attached
    check_capabilities_of(attached)
    facts = json.loads(json.dumps(attached.describe()))
    assert facts["settings"]["broker.session.timeout.ms"] == "4000", "as a broker reports it: the trial states nothing"
    assert facts["features"]["metadata.version"] > 0
    assert (facts["kafka_version"], facts["metadata_mode"]) == ("4.4", "kraft"), (
        "not what a trial has where nobody asks"
    )
    between = {Capability.DELAY, Capability.SHAPE, Capability.RESET, Capability.CUT_CLIENTS, Capability.MESSAGES}
    assert set(attached.capabilities) == between
    node = attached.nodes[0]
    assert (node.name, node.state(), node.os_pid) == ("broker-1", NodeState.RUNNING, None)
    assert node.receives_from(attached.nodes[1]) is Tristate.UNKNOWN
    for deed in (node.kill, node.pause, lambda: node.block(attached.nodes[1])):
        with pytest.raises(HarnessFailed, match="cannot be touched"):
            deed()
    with pytest.raises(HarnessFailed, match="only the link to the trial's own clients"):
        node.impair(Latency(peer="broker-2", latency_ms=10))


def test_the_links_of_the_clients_are_slow_narrow_or_reset_and_whole_again(attached):
    attached, topic = attached
    leaders = attached.nodes
    assert fastest_s(attached, topic) < 0.4
    slow, narrow = Latency(peer=CLIENTS, latency_ms=400), Bandwidth(peer=CLIENTS, bytes_per_s=2000)
    towards = Bandwidth(peer=CLIENTS, bytes_per_s=2000, way="to-node")
    for impairment in (slow, narrow, towards):
        for node in leaders:
            assert node.impaired(impairment)[0] is Tristate.NO
            node.impair(impairment)
            node.impair(impairment)  # safe to repeat
            assert node.impaired(impairment)[0] is Tristate.YES
        if impairment is slow:
            assert fastest_s(attached, topic) > 0.75, "400 ms each way"
        for node in leaders:
            node.repair(impairment)
            node.repair(impairment)
            assert node.impaired(impairment)[0] is Tristate.NO
    assert fastest_s(attached, topic) < 0.4
    assert "dropped" in leaders[0].harm(ResetConnections(peer=CLIENTS))
    assert fastest_s(attached, topic) < 0.4


def test_a_fault_of_nodes_is_refused_when_it_is_planned(theirs, tmp_path):
    step = {"name": "kill", "do": {"kind": "fault", "fault": "kill", "targets": ["leader(0)"]}}
    plan = make_plan(parse_trial(trial_on(theirs, steps=[step]), source="test"), seed=1)
    with pytest.raises(UnsupportedFault, match=r"'kill'.*attach backend cannot do here: no node can be touched"):
        check_capabilities(plan, new_run(tmp_path / "run"), isolation="signals")


def test_a_link_between_nodes_is_refused_when_it_is_planned(theirs, tmp_path):
    fault = {"kind": "fault", "fault": "latency", "targets": ["leader(0)"], "parameters": {"latency_ms": 100}}
    plan = make_plan(parse_trial(trial_on(theirs, steps=[{"name": "late", "do": fault}]), source="test"), seed=1)
    with pytest.raises(
        UnsupportedFault, match=r"'late': 'latency' on the attach backend: only the links of the trial's own"
    ):
        check_capabilities(plan, new_run(tmp_path / "run"), isolation="signals")


def start(theirs, directory, **more):
    document = trial_on(theirs, **more)
    path = directory / "attached.toml"
    lines = [f"{k} = {json.dumps(v)}" for k, v in document.items() if isinstance(v, str)]
    for name in ("topics", "base", "attach", "variant"):
        if name in document:
            lines += [f"[{name}]", *(f"{json.dumps(k)} = {json.dumps(v)}" for k, v in document[name].items())]
    for step in document["steps"]:
        lines += ["[[steps]]", f'name = "{step["name"]}"', f"timeout_s = {step.get('timeout_s', 30)}"]
        lines += [f"do = {step['do']}"] if "do" in step else []
        lines += ["after = { " + ", ".join(f"{k} = {json.dumps(v)}" for k, v in step["after"].items()) + " }"]
    path.write_text("\n".join(lines), encoding="utf-8")
    words = ["run", str(path), "--engine", "local", "--quiet", "--runs", str(directory / "runs")]
    return subprocess.Popen(
        [sys.executable, "-m", "prozess", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_of(directory):
    (found,) = (directory / "runs").iterdir()
    return RunDirectory(found)


LATE = '{ kind = "fault", fault = "latency", targets = ["leader(0)"], parameters = { latency_ms = 300, others = "clients" } }'
CUT = '{ kind = "fault", fault = "partition", targets = ["leader(0)"], parameters = { others = "clients" } }'
LOST = (
    '{ kind = "fault", fault = "message", targets = ["leader(0)"], parameters = '
    '{ match = { api = "Produce", direction = "answer", partition = 0, nth = 1 }, action = { do = "lose" } } }'
)
BROKEN = [
    {"name": "steady", "after": {"condition": "acked", "count": 50}, "timeout_s": 60},
    {"name": "late", "do": LATE, "after": {"condition": "elapsed", "seconds": 1}},
    {"name": "in time", "do": '{ kind = "heal" }', "after": {"condition": "elapsed", "seconds": 2}},
    {"name": "cut", "do": CUT, "after": {"condition": "elapsed", "seconds": 1}},
    {"name": "whole", "do": '{ kind = "heal" }', "after": {"condition": "elapsed", "seconds": 2}},
    {"name": "an answer is lost", "do": LOST, "after": {"condition": "elapsed", "seconds": 1}},
    {"name": "sent again", "after": {"condition": "acked", "count": 20}},
]


def test_a_clean_trial_is_held_but_for_what_cannot_be_known_and_leaves_no_topic(theirs, tmp_path):
    before, groups_before = topics(theirs), groups(theirs)
    assert "prozess-ready" in before
    command = start(theirs, tmp_path, steps=BROKEN)
    output, errors = command.communicate(timeout=200)
    assert command.returncode == 0, output + errors
    run = run_of(tmp_path)
    verdict = TrialVerdict.model_validate_json(run.verdict.read_text())
    assert verdict.verdict is Verdict.HELD
    assert set(verdict.not_judged) == {
        "under-acknowledged", "unclean", "diverged", "snapshot-conflict", "out-of-sequence", "leaderless",
        "illegal-transition",
    }  # fmt: skip
    assert "7 guarantees were not judged: diverged, snapshot-conflict, out-of-sequence" in output
    outcomes = {name: judged.outcome for cell in verdict.cells for name, judged in cell.anomalies.items()}
    assert outcomes["diverged"] is AnomalyOutcome.NOT_JUDGED, "no copy was read"
    assert outcomes["unclean"] is AnomalyOutcome.NOT_JUDGED, "nobody knows who was elected"
    verified = (faults := History.open(run).table("faults"))["phase"] == FaultPhase.VERIFIED
    assert set(faults["effect"][verified]) == {Tristate.YES}
    assert len(set(faults["fault"][verified])) == 3
    assert topics(theirs) == before, "prozess-ready too, which is theirs and not the run's"
    assert not run.lasting.exists()
    assert not Made(run).topics
    assert groups(theirs) == groups_before


def test_records_that_are_lost_there_never_pass(theirs, tmp_path):
    steps = [{"name": "steady", "after": {"condition": "acked", "count": 400}, "timeout_s": 90}]
    command = start(theirs, tmp_path, steps=steps)
    admin = AdminClient({"bootstrap.servers": theirs.relay_servers})

    def begun():
        assert command.poll() is None
        return any('"schedule"' in path.read_text() for path in (tmp_path / "runs").glob("*/events.jsonl"))

    wait_until(begun, awaited="the schedule", timeout_s=120, clock=CLOCK)
    begins = f"prozess-{run_of(tmp_path).path.name}-"
    (topic,) = (name for name in topics(theirs) if name.startswith(begins) and "cell" in name)
    admin.delete_topics([topic])[topic].result(30)  # somebody else, and nobody says so
    wait_until(lambda: topic not in topics(theirs), awaited="the topic's end", timeout_s=30, clock=CLOCK)
    again = NewTopic(topic, num_partitions=1, replication_factor=3, config={"min.insync.replicas": "2"})
    admin.create_topics([again])[topic].result(30)
    output, errors = command.communicate(timeout=300)
    assert command.returncode == 2, output + errors
    assert "lost " in output.partition(" found; not judged because nobody stated")[0], output


@pytest.mark.long
def test_after_a_sigkill_of_everything_heal_deletes_the_topics(theirs, tmp_path):
    forever = [{"name": "wait", "after": {"condition": "elapsed", "seconds": 300}, "timeout_s": 400}]
    before, topics_before = groups(theirs), topics(theirs)
    command = start(theirs, tmp_path, steps=forever, workload="group")

    def at_work():
        assert command.poll() is None
        return any('"schedule"' in path.read_text() for path in (tmp_path / "runs").glob("*/events.jsonl"))

    wait_until(at_work, awaited="the schedule", timeout_s=120, clock=CLOCK)
    run = run_of(tmp_path)
    assert {name for name in topics(theirs) if name.startswith(f"prozess-{run.path.name}-")}
    assert any(name.startswith(f"prozess-{run.path.name}-") for name in groups(theirs) - before)
    end_at_once(tmp_path)
    command.communicate(timeout=30)
    stranger = tmp_path / "copy"
    shutil.copytree(run.path, stranger)
    looked = subprocess.run([sys.executable, "-m", "prozess", "heal", str(stranger)], capture_output=True, text=True)
    assert looked.returncode == 255, "a copy is a stranger's: what it says is named"
    assert "--trust would delete the topic 'prozess-" in looked.stdout, looked.stdout
    assert {name for name in topics(theirs) if name.startswith(f"prozess-{run.path.name}-")}, "and nothing was touched"
    for said in ("done: the cluster is left as it was found", "clean\n"):
        healed = subprocess.run(
            [sys.executable, "-m", "prozess", "heal", str(run.path)], capture_output=True, text=True
        )
        assert healed.returncode == 0, healed.stdout + healed.stderr
        assert said in healed.stdout
    assert topics(theirs) == topics_before >= {"prozess-ready"}, "which are theirs"
    assert groups(theirs) == before
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(run.path) in " ".join(p.info["cmdline"] or ())]


def test_another_number_of_brokers_than_the_trials_is_refused(theirs, tmp_path):
    command = start(
        theirs, tmp_path, variant={"brokers": 2}, base={"topic.replication_factor": 1}, topics={"partitions": 1}
    )
    _, errors = command.communicate(timeout=60)
    assert command.returncode == BadInput.exit_code
    assert "the cluster has 3 brokers (1, 2, 3)" in errors
