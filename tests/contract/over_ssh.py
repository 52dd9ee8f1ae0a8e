"""What only the ssh backend promises. Run by `test_ssh.py` inside `tests.support.servers.ssh`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from prozess.app.run.outside_sandbox import check_capabilities
from prozess.clusters.existing.ssh import SshCluster
from prozess.harness.clock import SystemClock, wait_until
from prozess.harness.config.existing_clusters import SshOptions
from prozess.harness.config.impairments import Bandwidth, FullDisk, Loss
from prozess.harness.errors import BadInput, ClusterFailed, UnsupportedFault
from prozess.harness.interfaces import NodeState
from prozess.harness.plan.plan import read_plan
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import Tristate
from prozess.harness.verdict import TrialVerdict, Verdict
from prozess.nemesis.journal import read_journal
from tests.support.servers.clusters import READY_S, WORLD, end_at_once, new_run, plan_of
from tests.support.servers.impaired_nodes import seen

CLOCK = SystemClock()
assert WORLD is not None, "only inside tests.support.servers.ssh"
SSH = json.loads(Path(WORLD).read_text(encoding="utf-8"))
HEAD = """
name = "over-ssh"
title = "A partition over ssh"
backend = "ssh"

[topics]
partitions = 1
placement = [[1, 2, 3]]

[base]
"topic.replication_factor" = 3
"topic.min_insync_replicas" = 2

[[steps]]
name = "steady"
after = { condition = "acked", count = 20 }

[[steps]]
name = "freeze"
do = { kind = "fault", fault = "pause", targets = ["node:broker-3"] }

[[steps]]
name = "cut"
do = { kind = "fault", fault = "partition", targets = ["node:broker-1"], parameters = { others = ["node:broker-2"] } }

[[steps]]
name = "broken"
after = { condition = "elapsed", seconds = 1 }
timeout_s = 600
"""


def plan_with(**changed):
    plan = plan_of()
    return plan.model_copy(update={"ssh": SshOptions.model_validate({**SSH, **changed})})


def trial_file(directory, *, broken_s=1):
    lines = [HEAD.replace("seconds = 1 ", f"seconds = {broken_s} "), "[ssh]"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in SSH.items() if key != "nodes"]
    for node in SSH["nodes"]:
        lines += ["[[ssh.nodes]]", *(f"{key} = {json.dumps(value)}" for key, value in node.items())]
    path = directory / "over-ssh.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def start_trial(directory, *, broken_s=1):
    words = [
        "run",
        str(trial_file(directory, broken_s=broken_s)),
        "--engine",
        "local",
        "--quiet",
        "--runs",
        str(directory / "runs"),
    ]
    with (directory / "stderr.txt").open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "prozess", *words],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )


def run_of(directory):
    (found,) = (directory / "runs").iterdir()
    return RunDirectory(found)


def rules():
    """Every rule of ours on any machine."""
    found = []
    for node in SSH["nodes"]:
        name = f"{'broker' if 'broker' in node['roles'] else 'controller'}-{node['id']}"
        said = subprocess.run(
            ["nsenter", f"--net=/run/netns/{name}", "/usr/sbin/iptables-save"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        found += [f"{name}: {line}" for line in said.splitlines() if "PROZESS" in line and not line.startswith(":")]
    return found


def topics(cluster):
    return set(cluster._kafka._admin().list_topics(timeout=10).topics) - {"__consumer_offsets"}


def test_a_machine_whose_host_key_is_not_known_is_refused(tmp_path):
    (tmp_path / "known_hosts").touch()
    cluster = SshCluster(plan_with(known_hosts=str(tmp_path / "known_hosts")), new_run(tmp_path / "run"), clock=CLOCK)
    with pytest.raises(BadInput, match=r"host key of .* is not in .*ssh-keyscan"):
        _ = cluster.capabilities
    assert (tmp_path / "known_hosts").read_text() == "", "it must not be learned"


def test_a_machine_with_another_host_key_is_refused(tmp_path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other")], check=True)
    other = " ".join((tmp_path / "other.pub").read_text().split()[:2])
    (tmp_path / "known_hosts").write_text("".join(f"{node['host']} {other}\n" for node in SSH["nodes"]))
    cluster = SshCluster(plan_with(known_hosts=str(tmp_path / "known_hosts")), new_run(tmp_path / "run"), clock=CLOCK)
    with pytest.raises(BadInput, match="has another host key"):
        _ = cluster.capabilities


def test_a_pattern_that_matches_several_processes_is_refused_before_any_of_them_is_hit(tmp_path):
    cluster = SshCluster(plan_with(pid_pattern=r"kafka\.Kafka "), new_run(tmp_path / "run"), clock=CLOCK)
    with pytest.raises(ClusterFailed, match="matches 4 processes"):
        cluster.nodes[-1].kill()
    assert all(
        n.state() is NodeState.RUNNING for n in SshCluster(plan_of(), new_run(tmp_path / "b"), clock=CLOCK).nodes
    )


def test_what_cannot_be_done_there_is_refused_with_the_reason(tmp_path):
    plan = plan_with(sudo="/bin/false")
    cluster = SshCluster(plan, new_run(tmp_path / "run"), clock=CLOCK)
    assert cluster.capabilities == {}
    assert all("ssh.sudo" in cluster.lacks[c] for c in ("kill", "stop", "pause"))
    trial = subprocess.run(
        [sys.executable, "-m", "prozess", "plan", str(trial_file(tmp_path)), "--json"],
        capture_output=True,
        check=True,
    )
    faulty = plan.model_copy(update={"steps": type(plan).model_validate_json(trial.stdout).steps})
    with pytest.raises(UnsupportedFault, match=r"'pause'.*ssh backend cannot do here: .*ssh\.sudo"):
        check_capabilities(faulty, new_run(tmp_path / "again"), isolation="signals")


@pytest.fixture(scope="module")
def reached(tmp_path_factory):
    """The cluster, by its machines; tests leave it whole."""
    return SshCluster(plan_of(), new_run(tmp_path_factory.mktemp("reached")), clock=CLOCK)


@pytest.mark.parametrize(
    "impairment",
    [
        Loss(share=0.3, source="broker-2"),
        Loss(share=0.05, source="controller-3001"),
        Bandwidth(bytes_per_s=50_000, peer="broker-2"),
        Bandwidth(bytes_per_s=2_000_000, peer="controller-3001"),
        FullDisk(),
        FullDisk(left_bytes=1_000_000),
    ],
    ids=lambda impairment: impairment.kind,
)
def test_an_impairment_over_ssh_is_made_seen_and_undone_by_somebody_else(reached, tmp_path, impairment):
    node = next(
        n for n in reached.nodes if n.name == ("controller-3001" if impairment.kind == "full-disk" else "broker-1")
    )
    assert impairment.needs in reached.capabilities, reached.lacks
    seen(node, impairment, Tristate.NO)
    node.impair(impairment)
    node.impair(impairment)
    seen(node, impairment, Tristate.YES)
    other = SshCluster(plan_of(), new_run(tmp_path / "other"), clock=CLOCK)
    another = next(n for n in other.nodes if n.name == node.name)
    another.repair(impairment)
    another.repair(impairment)
    seen(node, impairment, Tristate.NO)
    assert [rule for rule in rules() if "-j PROZESS" not in rule] == []
    node.start()
    reached.wait_ready(timeout_s=READY_S)


@pytest.mark.parametrize("parameters", [{}, {"others": "everybody"}, {"others": ["node:broker-2", "clients"]}])
def test_faults_that_would_hit_ssh_itself_are_refused(reached, parameters):
    assert "administration and ssh" in reached.refusal_of("loss", parameters)
    assert "administration and ssh" in reached.refusal_of("bandwidth", parameters)
    assert reached.refusal_of("partition", parameters) is None
    assert reached.refusal_of("loss", {"others": "all"}) is None


def test_a_data_directory_beside_what_others_write_is_not_filled(tmp_path):
    cluster = SshCluster(plan_with(data_directory="/var"), new_run(tmp_path / "run"), clock=CLOCK)
    assert "one file system with /" in cluster.lacks["fill-disk"]
    cluster = SshCluster(plan_with(data_directory=None), new_run(tmp_path / "none"), clock=CLOCK)
    assert "does not say where" in cluster.lacks["fill-disk"]


def test_a_device_whose_queue_somebody_made_is_left_alone(tmp_path, reached):
    broker = next(n for n in reached.nodes if n.name == "broker-1")
    assert broker.host.run_as_root(["tc", "qdisc", "add", "dev", "data", "root", "handle", "7:", "htb"]).returncode == 0
    try:
        cluster = SshCluster(plan_of(), new_run(tmp_path / "run"), clock=CLOCK)
        assert "somebody made" in cluster.lacks["shape"]
    finally:
        broker.host.run_as_root(["tc", "qdisc", "del", "dev", "data", "root"])


def test_a_trial_over_ssh_is_judged_by_what_was_fetched_and_leaves_the_cluster_as_it_was(tmp_path):
    before = topics(SshCluster(plan_of(), new_run(tmp_path / "before"), clock=CLOCK))
    command = start_trial(tmp_path)
    output, _ = command.communicate(timeout=200)
    run = run_of(tmp_path)
    assert command.returncode == 0, output + (tmp_path / "stderr.txt").read_text() + run.events.read_text()[-3000:]
    verdict = TrialVerdict.model_validate_json(run.verdict.read_text())
    assert verdict.verdict is Verdict.HELD
    assert "ground-truth" in run.events.read_text()
    assert {path.name for path in (run.nodes / "broker-1" / "data").glob("prozess-*")} == {
        f"{read_plan(run).adopted.prefix}cell-000-0"
    }
    assert (run.logs / "broker-2.log").stat().st_size > 0
    assert rules() == []
    assert topics(SshCluster(plan_of(), new_run(tmp_path / "look"), clock=CLOCK)) == before
    assert not run.lasting.exists()


def test_after_a_sigkill_of_everything_heal_undoes_over_ssh_what_the_journal_has_open(tmp_path):
    before = topics(SshCluster(plan_of(), new_run(tmp_path / "before"), clock=CLOCK))
    command = start_trial(tmp_path, broken_s=500)

    def broken():
        assert command.poll() is None, (tmp_path / "stderr.txt").read_text()
        runs = list((tmp_path / "runs").glob("*/events.jsonl"))
        return bool(runs) and '"cut"' in runs[0].read_text()

    wait_until(broken, awaited="the cut", timeout_s=120, clock=CLOCK)
    run = run_of(tmp_path)
    end_at_once(tmp_path)
    command.communicate(timeout=30)
    cluster = SshCluster(plan_of(), new_run(tmp_path / "look"), clock=CLOCK)
    states = {node.name: node.state() for node in cluster.nodes}
    assert states["broker-3"] is NodeState.PAUSED
    assert len([rule for rule in rules() if "DROP" in rule]) == 2
    healed = subprocess.run([sys.executable, "-m", "prozess", "heal", str(run.path)], capture_output=True, text=True)
    assert healed.returncode == 0, healed.stdout + healed.stderr
    assert "undos of the journal were carried out" in healed.stdout
    assert rules() == []
    assert {node.state() for node in cluster.nodes} == {NodeState.RUNNING}
    assert read_journal(run.journal).open == ()
    again = subprocess.run([sys.executable, "-m", "prozess", "heal", str(run.path)], capture_output=True, text=True)
    assert (again.returncode, again.stdout) == (0, f"{run.path.name}: clean\n")
    assert topics(cluster) == before
