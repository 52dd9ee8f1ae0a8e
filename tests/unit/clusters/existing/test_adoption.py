"""Healing a cluster that outlives the run, by a process that knows only the run's directory."""

import pytest

from prozess.app import wiring
from prozess.app.wiring import heal_run
from prozess.clusters.existing.adoption import Marker
from prozess.clusters.protocol.admin import Admin
from prozess.harness import machine_record
from prozess.harness.clock import SystemClock
from prozess.harness.errors import ClusterFailed
from prozess.harness.interfaces import NodeState, Undo
from prozess.harness.plan.plan import parse_plan
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.run_directory import RunDirectory
from prozess.nemesis.journal import Journal, read_journal
from tests.support.fake_cluster.cluster import FakeCluster

CLOCK = SystemClock()


@pytest.fixture
def run(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.create()
    machine_record.begin(run)
    plan = make_plan(
        parse_trial({"name": "t", "title": "", "base": {"topic.replication_factor": 1}}, source="test"), seed=1
    )
    for path in machine_record.kept(run.plan):
        path.write_text(plan.model_dump_json(), encoding="utf-8")
    return run


@pytest.fixture
def cluster(run, monkeypatch):
    """One that is there, whoever reaches for it: broker-1 stands still, and nobody but the journal knows."""
    plan = make_plan(
        parse_trial({"name": "t", "title": "", "base": {"topic.replication_factor": 1}}, source="test"), seed=1
    )
    there = FakeCluster(plan, run, clock=CLOCK)
    there.setup()
    marker = Marker(run)
    marker.set({"broker-1": "running"})
    marker.set({"broker-1": "stopped"})
    assert marker.found == {"broker-1": "running"}, "what was found first counts"
    monkeypatch.setattr(there, "teardown", marker.clear)
    monkeypatch.setattr(wiring, "reach_again", lambda plan, run, *, clock: (there, Admin(there)))
    undo = Undo(action="resume", node="broker-1")
    Journal(run.journal).plan([undo], number=0, step_number=0, step="freeze", fault="pause", targets=["broker-1"])
    broker_of(there).pause()
    return there


def broker_of(cluster):
    return next(node for node in cluster.nodes if node.name == "broker-1")


def test_what_the_journal_has_open_is_undone_there_and_the_cluster_left_as_it_was(run, cluster):
    report = heal_run(run, clock=CLOCK)
    assert report.clean, report
    assert broker_of(cluster).state() is NodeState.RUNNING
    assert read_journal(run.journal).open == ()
    assert any("1 undos of the journal were carried out" in line for line in report.done)
    assert str(heal_run(run, clock=CLOCK)) == "clean"


def test_what_could_not_be_done_is_told_and_done_the_next_time(run, cluster, monkeypatch):
    marker = Marker(run)

    def refuse():
        raise ClusterFailed("a topic could not be deleted")

    monkeypatch.setattr(cluster, "teardown", refuse)
    report = heal_run(run, clock=CLOCK)
    assert not report.clean
    assert "LEFT: could not leave the cluster as it was: a topic could not be deleted" in str(report)
    assert broker_of(cluster).state() is NodeState.RUNNING, "the other half is done all the same"
    monkeypatch.setattr(cluster, "teardown", marker.clear)
    assert heal_run(run, clock=CLOCK).clean
    assert marker.found is None


def test_an_undo_that_fails_stays_open_and_is_not_taken_for_settled(run, cluster, monkeypatch):
    def refuse():
        raise ClusterFailed("it does not answer")

    monkeypatch.setattr(broker_of(cluster), "resume", refuse, raising=False)
    report = heal_run(run, clock=CLOCK)
    assert not report.clean
    assert len(read_journal(run.journal).open) == 1
    assert run.lasting.exists(), "a cluster that was not healed is not left alone"


def test_a_run_that_never_touched_such_a_cluster_reaches_for_none(run, cluster):
    Marker(run).clear()
    report = heal_run(run, clock=CLOCK)
    assert report.clean
    assert broker_of(cluster).state() is NodeState.PAUSED


def test_what_was_wrong_with_clients_ended_with_them(run, cluster):
    undo = Undo.of("repair", "producer-t", None, kind="clock", offset_ms=60_000, drift_ppm=0)
    names = {client.name for client in parse_plan(run.plan.read_text(encoding="utf-8"), source="plan").clients}
    assert undo.node in names
    Journal(run.journal).plan([undo], number=1, step_number=1, step="off", fault="client-clock", targets=[undo.node])
    report = heal_run(run, clock=CLOCK)
    assert report.clean, report
    assert read_journal(run.journal).open == ()
    assert any("1 undos of the journal were carried out" in line for line in report.done)
