"""Kafka's VerifiableConsumer as a member of a group: what is planned and started, and what its words become.

The tool itself needs Java and brokers (trial `groups-java`); here lines as it prints them, and in its place our own program
that speaks as it does.
"""

import json
import os
import signal
import sys
from concurrent.futures import Future
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import BadInput
from harness.plan import Plan
from harness.planning import make_plan
from harness.protocols import NodeState
from harness.rows import read_rows
from harness.schema import MISSING, NONE, TABLES, ObservationKind, Outcome, ReadFlag, Role, role_named
from harness.trial import parse_trial
from tests.unit.log_workload import LIMIT_S, Bench, alive, bench
from tests.unit.test_broken_tools import ANYTHING, NUMBERS, PLACES, QuietClient
from tests.unit.test_verifiable_clients import tools_of
from tests.unit.test_verifiable_launch import machine as machine
from workloads import java_member_properties, verifiable_properties
from workloads.java_member import JavaMember
from workloads.member_rows import ASSIGN, CLOSE, REVOKE
from workloads.properties import LaunchContext, Settings, launch_reader
from workloads.text_producer import text_identity, text_value
from workloads.verifiable_tool import Tool

CLIENT = 5
MS = 1_000_000
ASSIGNED, RESET = 1, 3
PROTOCOLS = ["classic-eager", "classic-cooperative", "consumer"]


def plan_of(*steps: dict[str, Any], version: str = "4.3.1", client: Any = "java", **group: Any) -> Plan:
    document = {
        "name": "test",
        "title": "test",
        "workload": "group",
        "variant": {"kafka_version": version},
        "topics": {"partitions": 2},
        "traffic": {"rate_hz": 100},
        "isolation_levels": ["read_committed"],
        "base": {"topic.replication_factor": 1} | {f"group.{key}": value for key, value in group.items()},
        "axes": {"group.client": client if isinstance(client, list) else [client]},
        "steps": list(steps),
    }
    return make_plan(parse_trial(document, source="test"), seed=1)


# --- what is planned ------------------------------------------------------------------------------------------------


def test_members_of_both_clients_stand_side_by_side_and_each_cell_is_written_as_its_members_read():
    plan = plan_of(client=["librdkafka", "java"])
    members = {c.role: [m.cell for m in plan.clients if m.role == c.role] for c in plan.clients if c.group is not None}
    assert members == {"member": [0, 0], "java-member": [1, 1]}
    assert role_named("java-member") is Role.MEMBER
    written = {c.role: c.partitions for c in plan.clients if c.role in ("producer", "text-producer")}
    assert written == {"producer": plan.cells[0].partitions, "text-producer": plan.cells[1].partitions}
    assert [cell.carriers[0] for cell in plan.cells] == ["value", "header"]


@pytest.mark.usefixtures("machine")
def test_readers_and_the_audit_find_the_identity_of_text_in_its_header():
    plan = plan_of(client=["librdkafka", "java"])
    for role in ("reader", "audit"):
        planned = next(c for c in plan.clients if c.role == role)
        context = LaunchContext(plan=plan, planned=planned, servers="h:1", limit_s=0)
        assert launch_reader(context).options == {"by_header": list(plan.cells[1].partitions)}


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"commit": "sync-before"}, "commits in the ways sync-after and auto, not sync-before"),
        ({"commit": "auto-stored"}, "not auto-stored"),
        ({"processing_ms": 5}, "takes no processing_ms"),
        ({"failure_share": 0.1}, "never fails"),
        ({"subscription": "pattern"}, "not to a pattern"),
        ({"auto_offset_reset": "error"}, "ends where there is no position"),
    ],
)
def test_what_the_tool_cannot_do_is_left_out_with_the_reason(setting, words):
    plan = plan_of(client=["librdkafka", "java"], **setting)
    assert [cell.group.client for cell in plan.cells if cell.group] == ["librdkafka"]
    (left_out,) = plan.excluded
    assert words in left_out.reason


def test_a_java_member_cannot_be_told_to_stall():
    stall = {"name": "stall", "do": {"kind": "client", "do": "stall", "client": "member(*,0)", "seconds": 3}}
    assert plan_of(stall, client="librdkafka").steps
    with pytest.raises(BadInput, match="Java process that polls on its own"):
        plan_of(stall)


# --- how it is started ----------------------------------------------------------------------------------------------


def launched(plan: Plan, instance: int = 0) -> Settings:
    planned = [c for c in plan.clients if c.role == "java-member"][instance]
    context = LaunchContext(plan=plan, planned=planned, servers="h:1", limit_s=0)
    return java_member_properties.launch_java_member(context)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_it_is_told_its_protocol_where_the_tool_takes_it_from(protocol):
    made = launched(plan_of(protocol=protocol, session_timeout_ms=7000, batch=30))
    words = made.options["command"]
    told = dict(pairwise(words))
    assert "org.apache.kafka.tools.VerifiableConsumer" in words
    assert "--verbose" in words
    assert "--enable-autocommit" not in words
    assert told["--topic"] == "cell-000"
    (file,) = (text for name, text in made.options["files"].items() if name.startswith("consumer-"))
    assert "max.poll.records=30\n" in file
    if protocol == "consumer":
        assert told["--group-protocol"] == "consumer"
        assert not {"--session-timeout", "--assignment-strategy"} & set(words)
        assert "heartbeat.interval.ms" not in file, "it is the brokers' to set"
    else:
        assert told["--session-timeout"] == "7000"
        assert told["--assignment-strategy"].endswith("RangeAssignor" if protocol == "classic-eager" else "Assignor")
        assert "heartbeat.interval.ms=1750\n" in file


@pytest.mark.usefixtures("machine")
def test_static_members_keep_the_id_of_their_place_and_automatic_commits_their_interval():
    made = launched(plan_of(static_membership=True, commit="auto", auto_commit_interval_ms=700), instance=1)
    told = dict(pairwise(made.options["command"]))
    assert told["--group-instance-id"] == "prozess-cell-000-1"
    assert "--enable-autocommit" in made.options["command"]
    assert made.options["auto"]
    assert any("auto.commit.interval.ms=700\n" in text for text in made.options["files"].values())


# --- what its words become ------------------------------------------------------------------------------------------


class Heard:
    """A tool that says when each event was made."""

    def moment(self, event: dict[str, Any]) -> tuple[int, int]:
        return event["timestamp"] * MS, (event["timestamp"] + 1) * MS


class Admin:
    """What looks offsets up, with answers that come when the test says so."""

    def __init__(self) -> None:
        self.committed: list[Future[Any]] = []
        self.log_starts: list[Future[Any]] = []

    def list_consumer_group_offsets(self, asked: list[Any], **_: Any) -> dict[str, "Future[Any]"]:
        self.committed.append(Future())
        return {asked[0].group_id: self.committed[-1]}

    def list_offsets(self, asked: dict[Any, Any], **_: Any) -> dict[Any, "Future[Any]"]:
        self.log_starts.append(Future())
        return dict.fromkeys(asked, self.log_starts[-1])

    def answer(self, *offsets: int) -> None:
        """The newest question: what is committed of partition 0, 1, …; -1001 = nothing."""
        told = [TopicPartition("cell", number, offset) for number, offset in enumerate(offsets)]
        self.committed[-1].set_result(SimpleNamespace(topic_partitions=told))


class Ear:
    """A member whose tool never runs: it is fed by hand."""

    def __init__(self, path: Path, *, auto: bool = False, latest: bool = False) -> None:
        self.now_ms, self.path, self.admin = 0, path, Admin()
        self.client = QuietClient(path)
        self.client.now_ns = lambda: self.now_ms * MS  # type: ignore[method-assign]
        self.client.spec.options.update({"auto": auto, "eager": True, "latest": latest, "group_id": "g"})
        self.told: list[dict[str, Any]] = []
        self.client.control = SimpleNamespace(tell=lambda event, **said: self.told.append(said | {"event": event}))
        admin = self.admin
        fed = {"_begin": lambda self: None, "make_admin": staticmethod(lambda _: admin)}
        self.work = type("Fed", (JavaMember,), fed)(self.client)

    def hear(self, name: str, at_ms: int, **facts: Any) -> None:
        self.now_ms = max(self.now_ms, at_ms + 1)
        self.work._take(Heard(), {"timestamp": at_ms, "name": name} | facts)

    def assigned(self, at_ms: int, *numbers: int, name: str = "partitions_assigned") -> None:
        self.hear(name, at_ms, partitions=[{"topic": "cell", "partition": n} for n in numbers])

    def record(self, at_ms: int, offset: int, number: int = 0, value: object = None) -> None:
        told = text_value(9, offset, 1, size=60).decode() if value is None else value
        self.hear("record_data", at_ms, key="account-1", value=told, topic="cell", partition=number, offset=offset)

    def poll(self, at_ms: int, first: int, last: int) -> None:
        for offset in range(first, last + 1):
            self.record(at_ms, offset)
        part = {"topic": "cell", "partition": 0, "count": last - first + 1, "minOffset": first, "maxOffset": last}
        self.hear("records_consumed", at_ms, count=last - first + 1, partitions=[part])

    def committed(self, at_ms: int, offset: int, *, success: bool = True) -> None:
        place = {"topic": "cell", "partition": 0, "offset": offset}
        self.hear("offsets_committed", at_ms, offsets=[place], success=success)

    def turn(self, at_ms: int) -> None:
        self.now_ms = at_ms
        self.work._between()

    def rows(self, name: str) -> np.ndarray:
        return read_rows(self.path, TABLES[name], CLIENT)[0]


@pytest.fixture
def ear(tmp_path):
    return Ear(tmp_path)


def test_a_record_that_was_printed_is_read_and_processed_and_the_commit_is_there_before_its_answer(ear):
    ear.assigned(10, 0)
    ear.poll(20, 0, 2)
    (row,) = ear.rows("commits")
    assert (row["log_offset"], row["position"], row["outcome"], row["completed_ns"]) == (3, 3, Outcome.INFO, MISSING)
    assert row["invoked_ns"] == 20 * MS
    ear.committed(30, 3)
    (row,) = ear.rows("commits")
    assert (row["outcome"], row["invoked_ns"], row["completed_ns"]) == (Outcome.OK, 20 * MS, 31 * MS)
    reads, processed = ear.rows("reads"), ear.rows("processed")
    assert reads["sequence"].tolist() == processed["sequence"].tolist() == [0, 1, 2]
    assert set(reads["sender"].tolist()) == {9}
    assert (reads["flags"] == 0).all()
    assert (reads["sent_partition"] == NONE).all()
    assert (processed["done_ns"] == 20 * MS).all()
    assert ear.work._not_understood is None


def test_a_refused_commit_is_in_doubt_and_one_without_an_answer_too(ear):
    ear.assigned(10, 0)
    ear.poll(20, 0, 0)
    ear.committed(30, 1, success=False)
    ear.poll(40, 1, 1)
    rows = ear.rows("commits")
    assert (rows["outcome"] == Outcome.INFO).all()
    assert rows["completed_ns"].tolist() == [31 * MS, MISSING]


def test_a_member_that_commits_by_itself_has_no_commits_of_its_own(tmp_path):
    ear = Ear(tmp_path, auto=True)
    ear.assigned(10, 0)
    ear.poll(20, 0, 4)
    assert len(ear.rows("commits")) == 0
    assert len(ear.rows("processed")) == 5


def test_ownership_begins_late_and_ends_early(ear):
    ear.assigned(10, 0, 1)
    ear.assigned(50, 1, name="partitions_revoked")
    ear.work._obey({"do": "stop", "number": 1})
    rows = ear.rows("assignments")
    assert rows["event"].tolist() == [ASSIGN, ASSIGN, REVOKE, CLOSE]
    assert rows["partition"].tolist() == [0, 1, 1, 0]
    assert rows["done_ns"].tolist()[:2] == [11 * MS, 11 * MS]
    assert rows["started_ns"].tolist()[2:] == [50 * MS, 51 * MS]


def test_an_empty_assignment_is_a_row_of_no_partition(ear):
    ear.assigned(10, name="partitions_revoked")
    ear.assigned(11)
    assert ear.rows("assignments")["partition"].tolist() == [NONE, NONE]


def test_without_a_committed_offset_the_first_record_tells_where_the_reset_led(ear):
    ear.assigned(10, 0)
    ear.admin.answer(-1001)
    ear.turn(15)
    ear.poll(20, 7, 8)
    rows = ear.rows("positions")
    assert rows["event"].tolist() == [ASSIGNED, RESET]
    assert rows["log_offset"].tolist() == [NONE, 7]
    (seen,) = ear.rows("observations")
    assert (seen["kind"], seen["value"], seen["time_ns"]) == (ObservationKind.COMMITTED, NONE, 11 * MS)


def test_a_span_begins_at_what_was_committed_even_if_that_is_told_late(ear):
    ear.assigned(10, 0)
    ear.poll(20, 7, 8)
    ear.admin.answer(7)
    ear.turn(50)
    rows = ear.rows("positions")
    assert (rows["event"].tolist(), rows["log_offset"].tolist()) == ([ASSIGNED], [7])
    assert rows["time_ns"].tolist() == [10 * MS]


@pytest.mark.parametrize(("latest", "told"), [(False, [(ASSIGNED, 7)]), (True, [(ASSIGNED, NONE), (RESET, 7)])])
@pytest.mark.parametrize("answered", [True, False])
def test_in_doubt_the_first_record_is_what_is_known(tmp_path, latest, told, answered):
    """An answer that may be its own commit, or none for as long as the span lasts."""
    ear = Ear(tmp_path, latest=latest)
    ear.assigned(10, 0)
    ear.poll(20, 7, 8)
    if answered:
        ear.admin.answer(9)
        ear.turn(50)
    else:
        ear.assigned(60, 0, name="partitions_revoked")
    rows = ear.rows("positions")
    assert rows[["event", "log_offset"]].tolist() == told


@pytest.mark.parametrize(("latest", "events"), [(False, [ASSIGNED]), (True, [ASSIGNED, RESET])])
def test_a_jump_whose_reason_is_not_told_may_be_a_reset_to_the_end(tmp_path, latest, events):
    ear = Ear(tmp_path, latest=latest)
    ear.assigned(10, 0)
    ear.admin.answer(7)
    ear.turn(15)
    ear.poll(20, 9, 9)
    ear.admin.log_starts[0].set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
    ear.turn(30)
    assert ear.rows("positions")["event"].tolist() == events


def test_one_from_before_the_first_record_is_where_it_should_have_begun(ear):
    ear.assigned(10, 0)
    ear.admin.answer(9)
    ear.turn(15)
    ear.poll(20, 7, 8)
    assert ear.rows("positions")["log_offset"].tolist() == [9], "it was given again what was committed past"


def test_a_look_up_that_failed_is_tried_again_and_an_old_answer_is_of_an_old_span(ear):
    ear.assigned(10, 0)
    ear.admin.committed[0].set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
    ear.turn(15)
    ear.turn(16)
    assert len(ear.admin.committed) == 1, "not in a busy loop"
    ear.turn(400)
    assert len(ear.admin.committed) == 2
    ear.assigned(500, 0, name="partitions_revoked")
    ear.assigned(510, 0)
    ear.admin.answer(3)
    ear.turn(520)
    ear.poll(530, 3, 3)
    assert ear.rows("positions")["log_offset"].tolist() == [NONE, NONE]
    ear.turn(900)
    ear.admin.answer(3)
    ear.turn(910)
    assert ear.rows("positions")["log_offset"].tolist() == [NONE, 3]


@pytest.mark.parametrize(("log_start", "events"), [(10, [ASSIGNED, RESET]), (9, [ASSIGNED])])
def test_a_jump_is_a_reset_only_over_a_position_that_the_log_start_has_passed(ear, log_start, events):
    ear.assigned(10, 0)
    ear.admin.answer(7)
    ear.turn(15)
    ear.poll(20, 7, 8)
    ear.poll(30, 12, 12)
    (asked,) = ear.admin.log_starts
    asked.set_result(SimpleNamespace(offset=log_start))
    ear.turn(40)
    assert ear.rows("positions")["event"].tolist() == events


def test_draining_is_told_by_what_it_owns_and_how_far_it_is(ear):
    ear.assigned(10, 0, 1)
    ear.poll(20, 0, 4)
    ear.work._obey({"do": "drain", "number": 1, "quiet_s": 20})
    ear.turn(1000)
    (said,) = [said for said in ear.told if said["event"] == "draining"]
    assert (said["at"], said["processed"]) == ([[0, 5, 1], [1, NONE, 1]], 5)
    begun = ear.rows("observations")["kind"] == ObservationKind.DRAIN_BEGUN
    assert begun.sum() == 2


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("record_data", {"topic": "elsewhere", "partition": 0, "offset": 1, "value": "x"}),
        ("record_data", {"topic": "cell", "partition": 0, "value": "x"}),
        ("records_consumed", {"count": 1, "partitions": [{"topic": "cell", "partition": 0, "maxOffset": 4}]}),
        ("records_consumed", {"count": 1}),
        ("offsets_committed", {"success": True, "offsets": [{"topic": "elsewhere", "partition": 0, "offset": 1}]}),
        ("partitions_assigned", {"partitions": [{"topic": "elsewhere", "partition": 0}]}),
        ("partitions_revoked", {}),
    ],
)
def test_what_does_not_fit_what_it_was_printed_before_is_remembered(ear, name, facts):
    ear.hear(name, 10, **facts)
    assert "not understood" in (ear.work._not_understood or "")


def test_a_value_that_is_none_of_ours_is_corrupt_and_a_sentinel_is_not(ear):
    ear.assigned(10, 0)
    ear.record(20, 0, value="no identity")
    ear.hear("record_data", 21, key="sentinel", value="\ufffd", topic="cell", partition=0, offset=1)
    rows = ear.rows("reads")
    assert rows["flags"].tolist() == [ReadFlag.CORRUPT, 0]
    assert rows["sender"].tolist() == [NONE, 0]


EVENTS = st.fixed_dictionaries(
    {
        "name": st.sampled_from(
            ["record_data", "records_consumed", "offsets_committed", "partitions_assigned", "partitions_revoked"]
        ),
        "timestamp": st.integers(0, 10**6),
    },
    optional={
        "key": ANYTHING,
        "value": ANYTHING,
        "topic": st.one_of(ANYTHING, st.just("cell")),
        "partition": NUMBERS,
        "offset": NUMBERS,
        "success": ANYTHING,
        "partitions": st.one_of(ANYTHING, st.lists(PLACES, max_size=3)),
        "offsets": st.one_of(ANYTHING, st.lists(PLACES, max_size=3)),
    },
)


def test_no_event_whatever_it_says_breaks_it(tmp_path_factory):
    ear = Ear(tmp_path_factory.mktemp("rows"))

    @given(EVENTS)
    def check(event):
        ear.work._take(Heard(), event)

    check()
    ear.work.close()


# --- values and moments ---------------------------------------------------------------------------------------------


@given(
    st.integers(0, 2**31 - 1), st.integers(0, 2**62 - 1), st.integers(0, 99), st.integers(0, 300), st.integers(0, 10**6)
)
def test_a_text_has_its_identity_and_no_other_text_has_one(client, order, account, size, spoil):
    text = text_value(client, order, account, size=size).decode()
    assert text_identity(text) == (client, order)
    at = spoil % len(text)
    spoilt = text[:at] + text[at + 1 :]
    assert text_identity(spoilt) == (NONE, NONE) or spoilt in {
        text_value(*text_identity(spoilt), account, size=len(spoilt)).decode() for account in range(100)
    }


@given(st.one_of(ANYTHING, st.dictionaries(st.sampled_from(["client", "order", "account"]), ANYTHING).map(json.dumps)))
def test_anything_else_has_none(value):
    assert text_identity(value) == (NONE, NONE)


@given(stamp=st.one_of(st.integers(), ANYTHING), read=st.integers(0, 10**6), since=st.integers(0, 10**6))
def test_a_moment_is_within_what_is_certain_whatever_the_tool_says(stamp, read, since):
    tool = Tool.__new__(Tool)
    tool.since_ns, tool.read_ns, tool._ahead_ns = min(since, read), max(since, read), 5 * MS
    low, high = tool.moment({"timestamp": stamp})
    assert tool.since_ns <= low <= high <= tool.read_ns


def test_a_moment_is_a_millisecond_of_the_wall_clock_on_the_clock_of_the_trial():
    tool = Tool.__new__(Tool)
    tool.since_ns, tool.read_ns, tool._ahead_ns = 0, 10**12, 5000 * MS
    assert tool.moment({"timestamp": 5007}) == (7 * MS, 8 * MS)


# --- processes, on a mock cluster -----------------------------------------------------------------------------------


@pytest.fixture
def speaks_as_java(monkeypatch):
    """In place of Java our own verifiable consumer, which takes the same options."""
    ours = [sys.executable, "-P", "-m", "workloads.verifiable_consumer"]
    monkeypatch.setattr(verifiable_properties, "java_command", lambda *_, **__: (ours, {}))
    monkeypatch.setattr(verifiable_properties.catalogue, "service", lambda name: lambda *_: ())


def small(**group: Any) -> Plan:
    plan = plan_of(**group)
    return plan.model_copy(update={"metrics": False})


def members(b: Bench) -> list[int]:
    return [client.client for client in b.plan.clients if client.role == "java-member"]


@pytest.mark.usefixtures("speaks_as_java")
@pytest.mark.parametrize("commit", ["sync-after", "auto"])
def test_a_group_processes_every_record_is_followed_to_the_end_and_leaves(tmp_path, commit):
    plan = small(commit=commit, auto_commit_interval_ms=200)
    with bench(plan, tmp_path) as b:
        b.workload.command("resume_sends")
        b.until(lambda: b.total("ok") >= 50, "acknowledgements")
        b.workload.finish_sends(timeout_s=LIMIT_S)
        b.workload.drain(timeout_s=LIMIT_S)
        assert b.workload.fence(timeout_s=LIMIT_S) == {}
        assert b.workload.dead_clients() == {}
        (producer,) = [c.client for c in plan.clients if c.role == "text-producer"]
        sent, both = b.rows("sends", producer), members(b)
        done = np.concatenate([b.rows("processed", client) for client in both])
        expected = {(producer, int(row["sequence"]), int(row["partition"])) for row in sent}
        assert set(map(tuple, done[["sender", "sequence", "partition"]].tolist())) == expected
        (reader,) = [c.client for c in plan.clients if c.role == "reader"]
        b.until(lambda: len(b.rows("reads", reader)) >= len(sent), "the reader")
        assert set(b.rows("reads", reader)["sent_partition"].tolist()) == {0, 1}, "identity by the header"
        (observer,) = [c.client for c in plan.clients if c.role == "observer"]
        told = b.rows("observations", observer)
        ends = {p: int((sent["partition"] == p).sum()) for p in (0, 1)}
        assert dict(zip(told["partition"].tolist(), told["value"].tolist(), strict=True)) == ends
        for client in both:
            rows, (facts,) = b.rows("assignments", client), b.rows("clients", client)
            assert CLOSE in rows["event"]
            assert (rows["done_ns"] >= rows["started_ns"]).all()
            assert (facts["role"], facts["exit_code"], facts["complete"]) == (Role.MEMBER, 0, 1)


@pytest.mark.usefixtures("speaks_as_java")
def test_pause_stops_the_tool_too_and_a_kill_records_what_it_had_said(tmp_path):
    with bench(small(members=1), tmp_path) as b:
        (client,) = members(b)
        (node,) = [n for n in b.workload.nodes() if n.client_role == "java-member"]
        b.until(node.at_work, "an assignment")
        b.workload.command("resume_sends")
        b.until(lambda: len(b.rows("processed", client)) > 10, "records")
        pid = b.pid(client)
        (tool,) = tools_of(pid)
        node.pause()
        assert node.state() is NodeState.PAUSED
        assert all(_state(p) == "T" for p in (pid, tool))
        node.kill()  # as it stands: what is in the pipe is heard all the same
        b.until(lambda: not alive(tool), "the tool to be gone")
        assert not alive(pid)
        assert b.workload.dead_clients() == {}
        (facts,) = b.rows("clients", client)
        assert (facts["complete"], facts["exit_code"]) == (1, 3)
        offset = b.rows("processed", client)["log_offset"]
        committed = b.rows("commits", client)
        assert committed["log_offset"].max() <= offset.max() + 1
        node.start()
        assert node.client is not None
        assert node.client != client
        b.until(node.at_work, "its successor to be assigned")


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]


@pytest.mark.usefixtures("speaks_as_java")
def test_a_tool_that_ends_by_itself_is_a_dead_member(tmp_path):
    with bench(small(members=1), tmp_path) as b:
        (client,) = members(b)
        name = next(c.name for c in b.plan.clients if c.client == client)
        (node,) = [n for n in b.workload.nodes() if n.client_role == "java-member"]
        b.until(node.at_work, "an assignment")
        (tool,) = tools_of(b.pid(client))
        os.kill(tool, signal.SIGTERM)
        assert "the tool ended by itself" in b.until_dead(name)
