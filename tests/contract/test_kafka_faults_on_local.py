"""Faults of Kafka itself on real brokers and three controllers: each takes effect, is undone to the letter, and twice."""

import json
import subprocess
import sys

import pytest

from prozess.harness.run_directory import RunDirectory
from prozess.nemesis.journal import read_journal
from tests.support.servers.clusters import enter_with_jars

# Inside the sandbox: one line of JSON per strike, heal and look.
INSIDE = """
import json, sys
from pathlib import Path
from prozess.clusters.protocol.admin import Admin
from prozess.nemesis.crash_recovery import hold_alive
from prozess.nemesis.nemesis import Nemesis
from prozess.clusters.registry import backend_named
from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.errors import ClusterFailed
from prozess.harness.plan.planning import make_plan
from prozess.harness.interfaces import TopicSpec
from prozess.harness.recording.rows import Recorder
from prozess.harness.run_directory import RunDirectory
from prozess.harness.plan.schedule import FaultAction, Step
from prozess.harness.plan.trial_files import parse_trial

clock, run = SystemClock(), RunDirectory(Path(sys.argv[1]))
run.create()
plan = make_plan(parse_trial({
    "name": "contract", "title": "", "topics": {"partitions": 2, "placement": [[1, 2], [2, 1]]},
    "base": {"topic.replication_factor": 2},
    "variant": {"controllers": 3, "properties": {"broker.session.timeout.ms": 4000}},
}, source="the test"), seed=1)
run.plan.write_text(plan.model_dump_json())
cluster = backend_named("local").make(plan, run, clock=clock)
steps = json.loads(sys.argv[2])

def own(resource):
    try:
        return dict(admin.own_configs(resource))
    except ClusterFailed as error:
        return str(error)

def moving():  # a broker that has just been started may answer nobody for a while
    try:
        return (len(admin.reassignments()),)
    except ClusterFailed:
        return None

def look():
    views = [view for view in admin.views(["cell-000"]).values() if view]
    newest = {key: max((v[key] for v in views if key in v), key=lambda p: p.leader_epoch) for view in views for key in view}
    return {"views": [[list(s.replicas), s.leader, sorted(s.isr)] for _, s in sorted(newest.items())],
            "topic": own("topic:cell-000"), "broker": own("broker:3"),
            "moving": wait_until(moving, awaited="what is moved", timeout_s=60, clock=clock)[0],
            "active": admin.active_controller()}

with hold_alive(run), Recorder(run) as recorder:
    try:
        cluster.setup()
        cluster.wait_ready(timeout_s=120)
        admin = Admin(cluster)
        properties = {"min.insync.replicas": "1", "retention.ms": "900000", "unclean.leader.election.enable": "false"}
        admin.create_topics([TopicSpec("cell-000", ((1, 2), (2, 1)), properties)], timeout_s=60)
        nemesis = Nemesis(run, cluster, admin, recorder, clock)
        for number, (name, what) in enumerate(steps):
            begun_ns, stated = clock.monotonic_ns(), {"name": name}
            try:
                if what is None:
                    effects = nemesis.heal(name)
                elif "leader" in what:
                    wait_until(lambda: look()["views"][0][1] == what["leader"], awaited=name, timeout_s=60, clock=clock)
                    if "living" in what:  # the controllers elect nobody who is not back yet
                        living = frozenset(what["living"])
                        wait_until(lambda: admin.living_brokers(3) == living, awaited=f"{living} alone to live",
                                   timeout_s=60, clock=clock)
                    effects = ()
                else:
                    struck = nemesis.strike(number, Step(name=name, do=FaultAction(kind="fault", **what)))
                    effects = struck.effects
                    stated["targets"] = sorted(struck.nodes)
                stated["effects"] = sorted({e.effect.name for e in effects})
            except ClusterFailed as error:
                stated["error"] = str(error)
            stated["took_s"] = (clock.monotonic_ns() - begun_ns) / 1e9
            stated["unhealed"] = sorted(nemesis.unhealed())
            print(json.dumps(stated | look()), flush=True)
        admin.close()
    finally:
        cluster.teardown()
"""


def fault(fault, *targets, **parameters):
    return {"fault": fault, "targets": targets, "parameters": parameters}


def reassign(how, *targets, **more):
    return fault("reassign", *(targets or ["partition(*)"]), how=how, **more)


TOPIC = {"min.insync.replicas": "1", "retention.ms": "900000", "unclean.leader.election.enable": "false"}
THROTTLED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
STEPS = [
    ("elect, not needed", fault("elect-preferred", "partition(*)")),
    ("stop", fault("stop", "node:broker-1")),
    ("stop", None),
    ("wait", fault("rolling-restart", "node:broker-3")),  # returns once every ISR is whole
    ("elect", fault("elect-preferred", "partition(0)")),
    ("rotate", reassign("rotate")),
    ("rotate", None),
    ("rotate", None),
    ("move", reassign("move-leader", "partition(0)", throttle_bytes_per_s=1_000_000)),
    ("kill while it is moved", fault("kill", "node:broker-3")),
    ("kill while it is moved", None),
    ("move", None),
    ("grow", reassign("grow")),
    ("grow", None),
    ("shrink", reassign("shrink-leader")),
    ("shrink", None),
    ("topic", fault("configure", "partition(1)", properties={"min.insync.replicas": 2, "segment.ms": 60000})),
    ("topic", None),
    ("less", fault("configure", "partition(1)", properties={"min.insync.replicas": 0})),
    ("broker", fault("configure", "node:broker-3", properties={"log.cleaner.backoff.ms": 200})),
    ("broker", None),
    ("controller", fault("move-controller", "active-controller")),
    ("controller", None),
    ("resigns", fault("move-controller", "active-controller", how="stop")),
    ("resigns", None),
    ("has a leader", fault("elect-unclean", "partition(0)")),
    ("kill 1", fault("kill", "node:broker-1")),
    ("2 leads", {"leader": 2}),
    ("kill 2", fault("kill", "node:broker-2")),
    ("kill 1", None),
    ("nobody leads", {"leader": -1, "living": [1, 3]}),
    ("ask for anybody", fault("elect-unclean", "partition(0)")),
    ("kill 2", None),
]


@pytest.mark.cluster
def test_faults_of_kafka_itself_take_effect_and_are_undone_to_the_letter(tmp_path, need):
    need("java")
    need("namespaces")
    run = RunDirectory(tmp_path / "run")
    command = enter_with_jars([sys.executable, "-c", INSIDE, str(run.path), json.dumps(STEPS)])
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=500, check=True)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert [s["name"] for s in said] == [name for name, _ in STEPS]
    struck = {name: s for s, (name, what) in zip(said, STEPS, strict=True) if what is not None}
    healed = {name: s for s, (name, what) in zip(said, STEPS, strict=True) if what is None}
    refused = {"elect, not needed": "no target needs", "less": "less than the 1", "has a leader": "is led by"}
    errors = {name: s["error"] for name, s in struck.items() if "error" in s}
    assert set(errors) == set(refused), errors
    assert all(text in struck[name]["error"] for name, text in refused.items())
    assert all(s["effects"] in (["YES"], []) for s in said if "effects" in s)
    assert_elections_and_reassignments(struck, healed)
    assert struck["topic"]["topic"] == TOPIC | {"min.insync.replicas": "2", "segment.ms": "60000"}
    assert (struck["broker"]["broker"], healed["broker"]["broker"]) == ({"log.cleaner.backoff.ms": "200"}, {})
    # Who was active, the fault says: on a machine that stood still, controllers elect another one by themselves.
    for name in ("controller", "resigns"):
        assert struck[name]["active"] is not None
        assert struck[name]["targets"] != [f"controller-{struck[name]['active']}"]
    assert struck["ask for anybody"]["views"][0][:2] == [[1, 2], 1], "broker 2 alone was in sync, and is dead"
    assert said[-1]["unhealed"] == []
    assert read_journal(run.journal).open == ()


def assert_elections_and_reassignments(struck, healed):
    def replicas(s):
        return [view[0] for view in s["views"]]

    assert (struck["wait"]["views"][0][1], struck["elect"]["views"][0][1]) == (2, 1), "the preferred one leads again"
    assert replicas(struck["rotate"]) == [[2, 1], [1, 2]]
    assert replicas(struck["move"])[0] == [3, 2]
    assert struck["move"]["topic"] == TOPIC | dict.fromkeys(THROTTLED, "*")
    assert set(struck["move"]["broker"].values()) == {"1000000"}
    assert replicas(struck["grow"]) == [[1, 2, 3], [2, 1, 3]]
    assert [len(copies) for copies in replicas(struck["shrink"])] == [1, 1]
    for name in ("rotate", "move", "grow", "shrink", "topic", "broker"):
        assert replicas(healed[name]) == [[1, 2], [2, 1]], name
        assert (healed[name]["topic"], healed[name]["broker"], healed[name]["moving"]) == (TOPIC, {}, 0), name
