"""A KIP-848 consumer whose group is gone dies of it, and its application goes on with another one; of nothing else."""

import numpy as np
import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.schema import MISSING, NONE, Outcome
from prozess.workloads.group.member import GIVE_UP_NS, LIVED_NS, PAUSE_NS, Successors, is_group_lost
from prozess.workloads.record.members import ASSIGN, LOST
from tests.processes.workloads.exactly_once.test_copier import plan_of
from tests.processes.workloads.group.test_member import carry_out, group_plan, members, processed
from tests.support.log_workload import LIMIT_S, RESUME, ClientBench, bench
from tests.support.mock_kafka import CONSUMER_GROUP_HEARTBEAT_API, MockKafka

_MISSING = "Broker: The group id does not exist"
GONE = f"Fatal error: {_MISSING}: ConsumerGroupHeartbeat fatal error: {_MISSING}"
SAID = "the group is gone"


def often(kafka: MockKafka) -> None:
    """The mock has the group still, and in it a member that is not heard of any more, for a session."""
    kafka.group_heartbeats(every_ms=100, session_ms=2_000)


def group_is_gone(b: ClientBench, times: int = 1) -> None:
    b.kafka.refuse(CONSUMER_GROUP_HEARTBEAT_API, [KafkaError.GROUP_ID_NOT_FOUND] * times)


def log_of(b: ClientBench, client: int) -> str:
    (name,) = [name for name, number in b.clients.items() if number == client]
    return (b.run.logs / f"client-{name}.log").read_text(encoding="utf-8")


def events(b: ClientBench, client: int) -> list[tuple[int, int]]:
    """(event, partition), but for callbacks about nothing."""
    rows = b.rows("assignments", client)
    return [(int(row["event"]), int(row["partition"])) for row in rows if row["partition"] != NONE]


# --- how it is reported -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "text", "lost"),
    [
        (KafkaError._FATAL, GONE, True),
        (KafkaError._FATAL, "Commit failed: Local: Fatal error", False),
        (
            KafkaError._FATAL,
            "Fatal error: Broker: Static consumer fenced by other consumer with same group.instance.id: x",
            False,
        ),
        (KafkaError._FATAL, f"Fatal error: Broker: Invalid request: {GONE}", False),
        (KafkaError.GROUP_ID_NOT_FOUND, "Commit failed: Broker: The group id does not exist", False),
    ],
)
def test_only_a_fatal_error_whose_code_is_that_of_a_missing_group_says_that_it_is_gone(code, text, lost):
    assert is_group_lost(KafkaError(code, text)) == lost


# --- how often ----------------------------------------------------------------------------------------------------------


@given(lives_ns=st.lists(st.integers(0, 2 * LIVED_NS), max_size=200))
def test_consumers_are_made_no_faster_than_one_a_second_and_no_longer_than_a_minute_of_deaths(lives_ns):
    """A model with every time written down: who died, and when the row of early deaths had begun."""
    successors, made_ns, begun_ns = Successors(0), [0], None
    for life_ns in lives_ns:
        died_ns = made_ns[-1] + life_ns
        if begun_ns is None or life_ns >= LIVED_NS:
            begun_ns = died_ns
        due_ns = successors.due_ns(died_ns)
        assert (due_ns is None) == (died_ns - begun_ns >= GIVE_UP_NS)
        if due_ns is None:
            return
        assert due_ns == max(died_ns, made_ns[-1] + PAUSE_NS)
        successors.made(due_ns)
        made_ns.append(due_ns)
    assert successors.count == len(lives_ns)


def test_whoever_dies_at_once_for_ever_has_sixty_successors_and_no_more():
    successors, now_ns = Successors(0), 0
    while (due_ns := successors.due_ns(now_ns)) is not None:
        now_ns = due_ns
        successors.made(now_ns)
    assert (successors.count, now_ns) == (GIVE_UP_NS // PAUSE_NS, GIVE_UP_NS)


# --- with real members --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", ["sync-after", "auto"])
def test_a_member_whose_group_is_gone_loses_its_partitions_and_joins_again_in_the_same_process(tmp_path, commit):
    plan = group_plan(protocol="consumer", members=1, commit=commit, auto_commit_interval_ms=100)
    with bench(plan, tmp_path, before=often) as b:
        (member,) = members(b)
        b.workload.command(RESUME)
        b.until(lambda: len(b.rows("processed", member)) > 0, "processing")
        group_is_gone(b)
        b.until(lambda: (LOST, 0) in events(b, member), "the partitions to be lost")
        b.until(lambda: events(b, member)[-1][0] == ASSIGN, "an assignment of the next consumer")
        carry_out(b, count=b.total("ok") + 50)
        assert b.workload.dead_clients() == {}
        done, sent = processed(b, [member]), b.rows("sends", b.producer)
        assert (done["done_ns"] != MISSING).all()
        assert {tuple(row) for row in done[["partition", "sequence"]].tolist()} == {
            tuple(row) for row in sent[["partition", "sequence"]].tolist()
        }
        told = events(b, member)
        for partition in (0, 1):
            mine = [event for event, of in told if of == partition]
            assert mine[:3] == [ASSIGN, LOST, ASSIGN]
        commits = b.rows("commits", member)
        assert len(commits) > 0
        assert (commits["completed_ns"] >= commits["invoked_ns"]).all()
        assert log_of(b, member).count(SAID) == 1
        assert b.rows("clients", member)["exit_code"][0] == 0


def test_a_commit_that_is_refused_before_the_reason_is_told_does_not_hide_it(tmp_path):
    plan = group_plan(protocol="consumer", members=1, commit="sync-after", batch=1, processing_ms=1000, partitions=1)
    with bench(plan, tmp_path, before=often) as b:
        (member,) = members(b)
        b.workload.command(RESUME)
        b.until(lambda: len(b.rows("processed", member)) > 0, "a record that takes long")
        group_is_gone(b)
        b.until(lambda: (LOST, 0) in events(b, member), "the partition to be lost")
        lost_ns = b.rows("assignments", member)["started_ns"].max()
        b.until(lambda: (b.rows("processed", member)["started_ns"] > lost_ns).any(), "the next consumer at work")
        said = log_of(b, member)
        assert said.index("_FATAL Commit failed: Local: Fatal error") < said.index(f"_FATAL {GONE}") < said.index(SAID)
        commits, done = b.rows("commits", member), b.rows("processed", member)
        assert (commits["outcome"] != Outcome.OK).any()
        after = done["started_ns"] > lost_ns
        assert done["log_offset"][after][0] == done["log_offset"][~after][-1]


def test_a_member_that_the_brokers_refuse_for_another_reason_dies_of_it(tmp_path):
    plan = group_plan(protocol="consumer", members=1, static_membership=True)
    with bench(plan, tmp_path, before=often) as b:
        (member,) = members(b)
        b.until(lambda: events(b, member), "an assignment")
        b.kafka.refuse(CONSUMER_GROUP_HEARTBEAT_API, [KafkaError.UNRELEASED_INSTANCE_ID])
        (name,) = [name for name, number in b.clients.items() if number == member]
        assert "_FATAL" in b.until_dead(name)
        assert SAID not in log_of(b, member)
        assert LOST not in {event for event, _ in events(b, member)}


def test_a_copier_whose_group_is_gone_goes_back_to_what_is_committed_and_copies_on(tmp_path):
    plan = plan_of(
        "exactly-once", **{"copier.delivery": "at-least-once", "copier.members": 1, "copier.protocol": "consumer"}
    )
    with bench(plan, tmp_path, before=often) as b:
        (copier,) = [c.client for c in plan.clients if c.role == "copier"]
        b.workload.command(RESUME)
        b.until(lambda: len(b.rows("sends", copier)) > 20, "copies")
        group_is_gone(b)
        b.until(lambda: (LOST, 0) in events(b, copier), "the partitions to be lost")
        lost_ns = b.rows("assignments", copier)["started_ns"].max()
        b.until(lambda: (b.rows("sends", copier)["invoked_ns"] > lost_ns).any(), "copies of the next consumer")
        b.workload.finish_sends(timeout_s=LIMIT_S)
        b.workload.drain(timeout_s=LIMIT_S)
        assert b.workload.fence(timeout_s=LIMIT_S) == {}
        assert b.workload.dead_clients() == {}
        sent = sum(len(b.rows("sends", c.client)) for c in plan.clients if c.role == "producer")
        done = b.rows("processed", copier)
        done = done[done["done_ns"] != MISSING]
        assert len(np.unique(done[["partition", "log_offset"]])) == sent
        assert log_of(b, copier).count(SAID) == 1
