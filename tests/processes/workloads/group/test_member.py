"""Real group members against librdkafka's mock cluster: what they are given, process, commit and are assigned is recorded."""

import numpy as np
import pytest
from confluent_kafka import KafkaError

from prozess.harness.clock import NS_PER_S
from prozess.harness.interfaces import CLIENT_NODE, NodeState
from prozess.harness.plan.plan import Plan
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.schema import MISSING, NONE, ObservationKind, Outcome, Role
from prozess.workloads.record.members import ASSIGN, CLOSE, REVOKE
from tests.support.log_workload import CLOCK, LIMIT_S, RESUME, ClientBench, alive, bench, on_client

PROTOCOLS = ["classic-eager", "classic-cooperative", "consumer"]


def group_plan(rate_hz: float = 200, partitions: int = 2, late_topic: int = 0, **group: object) -> Plan:
    document = {
        "name": "test",
        "title": "test",
        "workload": "group",
        "topics": {"partitions": partitions, "late_topic_partitions": late_topic},
        "traffic": {"rate_hz": rate_hz},
        "isolation_levels": [],
        "base": {"topic.replication_factor": 1} | {f"group.{key}": value for key, value in group.items()},
        "axes": {"producer.acks": ["all"]},
    }
    return make_plan(parse_trial(document, source="test"), seed=1)


def members(b: ClientBench) -> list[int]:
    return [client.client for client in b.plan.clients if client.role == "member"]


def processed(b: ClientBench, clients: list[int]) -> np.ndarray:
    return np.concatenate([b.rows("processed", client) for client in clients])


def carry_out(b: ClientBench, count: int = 100) -> None:
    b.workload.command(RESUME)
    b.until(lambda: b.total("ok") >= count, "acknowledgements")
    b.workload.finish_sends(timeout_s=LIMIT_S)
    b.workload.drain(timeout_s=LIMIT_S)
    assert b.workload.fence(timeout_s=LIMIT_S) == {}
    b.workload.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_processes_every_record_and_commits_the_end_of_every_partition(tmp_path, protocol):
    with bench(group_plan(protocol=protocol, commit="sync-after"), tmp_path) as b:
        carry_out(b)
        both = members(b)
        sent = b.rows("sends", b.producer)
        done = processed(b, both)
        assert (done["done_ns"] != MISSING).all()
        assert (done["started_ns"] <= done["done_ns"]).all()
        identity = ["sender", "sequence", "partition"]
        expected = {(b.producer, int(row["sequence"]), int(row["partition"])) for row in sent}
        assert set(map(tuple, done[identity].tolist())) == expected
        (observer,) = [c.client for c in b.plan.clients if c.role == "observer"]
        told = b.rows("observations", observer)
        assert (told["kind"] == ObservationKind.COMMITTED).all()
        ends = {p: int((sent["partition"] == p).sum()) for p in (0, 1)}
        assert dict(zip(told["partition"].tolist(), told["value"].tolist(), strict=True)) == ends
        for client in both:
            commits, (facts,) = b.rows("commits", client), b.rows("clients", client)
            refused = commits["code"][commits["outcome"] != Outcome.OK]
            assert set(refused.tolist()) <= {KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION}
            assert (commits["position"] >= commits["log_offset"]).all()
            assert (commits["completed_ns"] >= commits["invoked_ns"]).all()
            assert (facts["role"], facts["exit_code"], facts["complete"]) == (Role.MEMBER, 0, 1)


@pytest.mark.parametrize("commit", ["auto", "auto-stored", "sync-before", "async-after", "on-revoke"])
def test_every_way_of_committing_ends_at_the_end(tmp_path, commit):
    plan = group_plan(commit=commit, members=1, auto_commit_interval_ms=200)
    with bench(plan, tmp_path) as b:
        carry_out(b)
        (member,) = members(b)
        sent, done, commits = b.rows("sends", b.producer), processed(b, [member]), b.rows("commits", member)
        (observer,) = [c.client for c in b.plan.clients if c.role == "observer"]
        told = b.rows("observations", observer)
        assert len(done) == len(sent)
        assert told["value"].sum() == len(sent)
        assert len(commits)
        accepted = commits[commits["outcome"] == Outcome.OK]
        for partition in (0, 1):
            mine = accepted["log_offset"][accepted["partition"] == partition]
            assert (np.diff(mine) >= 0).all()
        first, of = commits[0], done[done["partition"] == commits[0]["partition"]]
        covered = of[of["log_offset"] < first["log_offset"]]
        if commit == "sync-before":
            assert (covered["started_ns"] >= first["completed_ns"]).any()
        elif commit != "auto":
            assert (covered["done_ns"] <= first["completed_ns"]).all()


def test_a_member_says_when_it_polled_and_was_given_all_that_was_fetched(tmp_path):
    with bench(group_plan(members=1), tmp_path) as b:
        carry_out(b)
        (member,) = members(b)
        rows = b.rows("observations", member)
        polled = rows[rows["kind"] == ObservationKind.POLLED]
        ends = polled["time_ns"] + polled["value"]
        assert len(polled)
        assert (polled["value"] >= 0).all()
        # It waits for the end of the drain: the last stretch is after everything that it was given.
        assert ends[-1] > b.rows("reads", member)["read_ns"].max()
        assert (polled["time_ns"][1:] - ends[:-1] > NS_PER_S).all(), "less is no pause"


def test_while_full_batches_come_records_may_wait_and_the_member_says_nothing_of_its_polls(tmp_path):
    with bench(group_plan(members=1, batch=1, processing_ms=40, rate_hz=400), tmp_path) as b:
        b.workload.command(RESUME)
        (member,) = members(b)
        b.until(lambda: len(b.rows("processed", member)) >= 60, "60 records, of which each is a full batch")
        reads = b.rows("reads", member)["read_ns"]
        rows = b.rows("observations", member)
        polled = rows[rows["kind"] == ObservationKind.POLLED]
        assert (polled["time_ns"] + polled["value"] <= reads[20]).all(), "polls before the records came"
        b.workload.close()


def test_a_group_that_never_commits_has_no_committed_offset(tmp_path):
    with bench(group_plan(commit="none", members=1), tmp_path) as b:
        carry_out(b)
        (member,) = members(b)
        (observer,) = [c.client for c in b.plan.clients if c.role == "observer"]
        assert len(processed(b, [member])) == len(b.rows("sends", b.producer))
        assert len(b.rows("commits", member)) == 0
        assert (b.rows("observations", observer)["value"] == NONE).all()


def test_callbacks_are_recorded_and_a_close_is_the_end_of_ownership(tmp_path):
    with bench(group_plan(protocol="classic-eager", members=1), tmp_path) as b:
        carry_out(b)
        (member,) = members(b)
        rows = b.rows("assignments", member)
        assert (rows["done_ns"] >= rows["started_ns"]).all()
        owned = [(row["event"], row["partition"]) for row in rows if row["partition"] != NONE]
        assert owned[:2] == [(ASSIGN, 0), (ASSIGN, 1)]
        assert {event for event, _ in owned[2:]} <= {CLOSE, REVOKE}
        assert (CLOSE, 0) in owned
        positions = b.rows("positions", member)
        assert (positions["log_offset"][positions["event"] == 1] == NONE).all()
        resolved = positions[positions["event"] == 3]
        assert resolved["log_offset"].tolist() == [0, 0]


def test_a_killed_member_leaves_what_it_had_begun_unfinished_and_a_new_client_takes_its_place(tmp_path):
    plan = group_plan(members=1, processing_ms=5, session_timeout_ms=6000)
    with bench(plan, tmp_path) as b:
        (member,) = members(b)
        (place,) = [node for node in b.workload.nodes() if node.client_role == "member"]
        assert (place.node_id, place.cell, place.instance) == (CLIENT_NODE + member, 0, 0)
        b.workload.command(RESUME)
        b.until(lambda: len(b.rows("processed", member)) >= 20, "processing")
        pid = b.pid(member)
        place.kill()
        assert not alive(pid)
        assert place.state() is NodeState.STOPPED
        assert b.workload.dead_clients() == {}
        first = b.rows("processed", member)
        assert (first["done_ns"] == MISSING).sum() <= 2
        place.start()
        assert place.state() is NodeState.RUNNING
        new = 1 + max(client.client for client in plan.clients)
        (facts,) = b.rows("clients", new)
        assert (facts["planned"], facts["role"]) == (member, Role.MEMBER)
        assert b.rows("clients", member)["exit_code"][0] == -9
        b.until(lambda: len(b.rows("processed", new)) > 0, "the new member to process")


def test_a_paused_member_stands_still_until_it_is_resumed(tmp_path):
    with bench(group_plan(members=1), tmp_path) as b:
        (member,) = members(b)
        (place,) = [node for node in b.workload.nodes() if node.client_role == "member"]
        place.pause()
        assert place.state() is NodeState.PAUSED
        beats = len(b.rows("heartbeats", member))
        CLOCK.sleep(0.3)
        assert len(b.rows("heartbeats", member)) == beats
        place.resume()
        b.until(lambda: len(b.rows("heartbeats", member)) > beats, "heartbeats")


def test_a_member_that_is_stopped_and_started_is_a_new_client(tmp_path):
    with bench(group_plan(members=2), tmp_path) as b:
        b.workload.command(on_client("stop", "member(0,1)"))
        second = members(b)[1]
        assert b.rows("clients", second)["complete"][0] == 1
        b.workload.command(on_client("start", "member(0,1)"))
        assert b.rows("clients", 1 + max(c.client for c in b.plan.clients))["planned"][0] == second
        assert b.workload.dead_clients() == {}


def test_a_restarted_producer_goes_on_with_sequences_of_its_own(tmp_path):
    with bench(group_plan(members=1), tmp_path) as b:
        b.workload.command(RESUME)
        b.until(lambda: b.total("ok") >= 20, "acknowledgements")
        (place,) = [node for node in b.workload.nodes() if node.client_role == "producer"]
        place.kill()
        place.start()
        new = 1 + max(client.client for client in b.plan.clients)
        b.until(lambda: len(b.rows("sends", new)) >= 20, "sends of the new producer")
        assert b.rows("sends", new)["sequence"][0] == 0
