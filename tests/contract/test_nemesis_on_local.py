"""The nemesis on real brokers: what it says it did is what was observed, and healing leaves a whole cluster."""

import json
import subprocess
import sys

import pytest

from prozess.harness.run_directory import RunDirectory
from prozess.nemesis.journal import read_journal
from tests.support.servers.clusters import enter_with_jars

# Inside the sandbox: one line of JSON per strike and heal.
INSIDE = """
import json, sys
from pathlib import Path
from prozess.clusters.protocol.admin import Admin
from prozess.nemesis.crash_recovery import hold_alive
from prozess.nemesis.nemesis import Nemesis
from prozess.clusters.registry import backend_named
from prozess.harness.clock import SystemClock
from prozess.harness.errors import ClusterFailed
from prozess.harness.plan.planning import make_plan
from prozess.harness.interfaces import FaultContext, TopicSpec
from prozess.harness.recording.rows import Recorder
from prozess.harness.run_directory import RunDirectory
from prozess.harness.plan.schedule import FaultAction, Step
from prozess.harness.schema import Tristate
from prozess.harness.plan.trial_files import parse_trial
from prozess.nemesis.journal import read_journal
from prozess.nemesis.registry import UNDO_ACTIONS

class Asking(Admin):
    asked = set()  # whose view was asked for, in the step that is under way

    def view(self, node_id, topics, **more):
        self.asked.add(node_id)
        return super().view(node_id, topics, **more)


clock, run = SystemClock(), RunDirectory(Path(sys.argv[1]))
run.create()
plan = make_plan(parse_trial({
    "name": "contract", "title": "", "topics": {"partitions": 1, "placement": [[1, 2, 3]]},
    "base": {"topic.replication_factor": 3},
}, source="the test"), seed=1)
run.plan.write_text(plan.model_dump_json())
cluster = backend_named("local").make(plan, run, clock=clock)
steps = json.loads(sys.argv[2])
with hold_alive(run), Recorder(run) as recorder:
    try:
        cluster.setup()
        cluster.wait_ready(timeout_s=120)
        admin = Asking(cluster)
        admin.create_topics([TopicSpec("cell-000", ((1, 2, 3),))], timeout_s=60)
        nemesis = Nemesis(run, cluster, admin, recorder, clock)
        for number, (name, what) in enumerate(steps):
            admin.asked = set()
            stated = {"name": name}
            if name == "whole":
                cluster.wait_ready(timeout_s=120)
                continue
            if name == "still":
                context = FaultContext(cluster, admin, clock)
                undos = [e.undo for e in read_journal(run.journal).open]
                actions = [UNDO_ACTIONS[u.action]() for u in undos]
                stated["undone"] = [a.undone(u, context)[0].name for a, u in zip(actions, undos, strict=True)]
                print(json.dumps(stated), flush=True)
                continue
            try:
                if what is None:
                    effects = nemesis.heal(name if name != "everything" else None)
                else:
                    struck = nemesis.strike(number, Step(name=name, do=FaultAction(kind="fault", **what)))
                    effects, stated["nodes"] = struck.effects, struck.nodes
                stated["effects"] = sorted({e.effect.name for e in effects})
                stated["not_seen"] = [e.detail for e in effects if e.effect is not Tristate.YES]
                stated["edges"] = sorted([e.node, e.peer or ""] for e in effects)
            except ClusterFailed as error:
                stated["error"] = str(error)
            stated["unhealed"] = sorted(nemesis.unhealed())
            stated["asked"] = sorted(f"broker-{node_id}" for node_id in admin.asked)
            print(json.dumps(stated), flush=True)
        cluster.wait_ready(timeout_s=120)
        print(json.dumps({"name": "ready again"}), flush=True)
    finally:
        cluster.teardown()
"""


def fault(fault, *targets, **parameters):
    return {"fault": fault, "targets": targets, "parameters": parameters}


STEPS = [
    ("one way", fault("partition", "leader(0)", others="followers", direction="to-targets")),
    ("both ways", fault("partition", "leader(0)", others="controllers")),
    ("one way", None),
    ("both ways", None),
    ("freeze", fault("pause", "followers(0)")),
    ("kill", fault("kill", "leader(0)")),
    ("kill nobody", fault("kill", "leader(0)")),
    ("freeze", None),
    ("kill", None),
    ("freeze one", fault("pause", "node:broker-2")),
    ("kill the frozen one", fault("kill", "node:broker-2")),
    ("kill the controller", fault("kill", "active-controller")),
    ("everything", None),
    ("whole", None),
    ("no clients", fault("partition", "leader(0)", others="clients")),
    ("no clients", None),
    ("deaf to clients", fault("partition", "leader(0)", others="clients", direction="to-targets")),
    ("deaf to clients", None),
    ("halves", fault("partition", "brokers", shape="halves")),
    ("halves", None),
    ("bridge", fault("partition", "brokers", "controllers", shape="bridge")),
    ("bridge", None),
    ("ring", fault("partition", "brokers", "controllers", shape="ring")),
    ("ring", None),
    ("alone", fault("partition", "node:broker-1", shape="isolate")),
    ("alone", None),
    ("whole", None),
    ("lossy", fault("loss", "leader(0)", share=0.3, others="followers")),
    ("slow", fault("bandwidth", "followers(0)", bytes_per_s=50000)),
    ("kill under loss", fault("kill", "leader(0)")),
    ("kill under loss", None),
    ("still", None),
    ("lossy still", fault("loss", "node:broker-1", share=0.2)),
    ("everything", None),
    ("whole", None),
    ("late", fault("latency", "leader(0)", latency_ms=150, jitter_ms=50, others=["clients", "followers(0)"])),
    ("kill under latency", fault("kill", "leader(0)")),
    ("kill under latency", None),
    ("whole", None),
    ("still", None),
    ("late still", fault("latency", "node:broker-1", latency_ms=20, others="controllers")),
    ("everything", None),
    ("reset", fault("reset", "leader(0)", times=2, every_s=0.2)),
    ("vanish", fault("half-open", "followers(0)")),
    ("everything", None),
]


@pytest.mark.cluster
def test_faults_on_real_brokers_take_effect_are_observed_and_are_healed_in_any_order(tmp_path, need):
    need("java")
    need("namespaces")
    need("toxiproxy")
    need("iptables")
    run = RunDirectory(tmp_path / "run")
    command = enter_with_jars([sys.executable, "-c", INSIDE, str(run.path), json.dumps(STEPS)])
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=400, check=True)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert [s["name"] for s in said] == [name for name, _ in STEPS if name != "whole"] + ["ready again"]
    one_way, both_ways, _, _, freeze, kill, nobody, _, _, _, frozen, controller, everything, *cuts, _ = said
    (leader,) = one_way["nodes"]
    followers = {"broker-1", "broker-2", "broker-3"} - {leader}
    assert one_way["edges"] == sorted([leader, follower] for follower in followers)
    assert both_ways["edges"] == sorted([[leader, "controller-3001"], ["controller-3001", leader]])
    assert set(freeze["nodes"]) == followers
    assert kill["nodes"] == [leader]
    assert kill["asked"] == [leader], "paused brokers must not keep a fault waiting"
    assert "no broker runs now" in nobody["error"]
    assert controller["nodes"] == ["controller-3001"]
    assert [s for s in said if s.get("effects", ["YES"]) != ["YES"]] == []
    assert [s["unhealed"] for s in said[10:13]] == [[2], [2, 3001], []]
    assert frozen["nodes"] == ["broker-2"]
    assert len(everything["edges"]) == 3, "two faults of broker-2, one of the controller"
    assert [s["error"] for s in cuts if "error" in s] == []
    edges = {s["name"]: s["edges"] for s in cuts if "nodes" in s}
    assert edges["no clients"][0][1] == "clients"
    assert {name: len(of) for name, of in edges.items()} == {
        "no clients": 2, "deaf to clients": 1, "halves": 4, "bridge": 4, "ring": 4, "alone": 6,
        "lossy": 2, "slow": 2, "kill under loss": 1, "lossy still": 1, "late": 5, "kill under latency": 1,
        "late still": 2, "reset": 1, "vanish": 2,
    }  # fmt: skip
    assert [s["undone"] for s in cuts if s["name"] == "still"] == [["NO"] * 4, ["NO"] * 5]
    assert read_journal(run.journal).open == ()
