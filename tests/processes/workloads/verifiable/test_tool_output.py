"""What the words of Kafka's VerifiableConsumer become: lines as it prints them, and the rows of a member."""

import json
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.schema import MISSING, NONE, ObservationKind, Outcome, ReadFlag
from prozess.workloads import messages
from prozess.workloads.log.producer import text_identity, text_value
from prozess.workloads.record.members import ASSIGN, CLOSE, REVOKE
from prozess.workloads.verifiable.clients import Tool
from tests.processes.workloads.verifiable.members import MS, Ear, Heard
from tests.processes.workloads.verifiable.members import ear as ear
from tests.processes.workloads.verifiable.test_broken_tools import ANYTHING, NUMBERS, PLACES

ASSIGNED, RESET = 1, 3
"""`positions.event`."""


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
    ear.work._obey(messages.Order(number=1, command=messages.StopCommand()))
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
    ear.work._obey(messages.Order(number=1, command=messages.DrainCommand(quiet_s=20)))
    ear.turn(1000)
    (said,) = [said for said in ear.told if isinstance(said, messages.DrainingEvent)]
    assert said == messages.DrainingEvent(at={0: (5, True), 1: (NONE, True)}, processed=5)
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


# ----------------------------------------------------------------------------------------------------------------------
# What is taken from a tool's words: the identity in a text, and the moment on the clock of the trial.


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
