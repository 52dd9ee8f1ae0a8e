"""A name that stood for several topics: what was in the log of a deleted one is gone with it, and nothing else is excused."""

import struct
from dataclasses import replace

import numpy as np
import pytest

from prozess.checkers.log.leadership import unclean, watermark_regression
from prozess.clusters.files.zookeeper_log import Transaction, TreeReplay, ZooKeeperOperation
from prozess.clusters.protocol import zookeeper
from prozess.harness.config.configuration import GroupConfiguration
from prozess.harness.guarantees.evidence.ground_truth import joined_timelines, timelines
from prozess.harness.guarantees.facts.retention import (
    led_elsewhere_below,
    made_anew_between,
    of_each_life,
    topic_deleted,
)
from prozess.harness.guarantees.facts.truncation import cutoff
from prozess.harness.guarantees.table import TABLE
from prozess.harness.guarantees.table.cell_configuration import CellConfiguration, forgets_topic_ids, knows_names_alone
from prozess.harness.guarantees.verdict.evaluation import Judgement, evaluate_witnesses
from prozess.harness.guarantees.verdict.judge import judge
from prozess.harness.interfaces.checking import PartitionHistory
from prozess.harness.interfaces.witnesses import GroupCase
from prozess.harness.recording.topic_lives import lives_of
from prozess.harness.schema import METADATA, NONE, MetadataKind, ObservationKind
from prozess.harness.verdict import AnomalyOutcome
from tests.support.cells.evidence import UNCLEAN, evidence, fault, findings, ns, of, plan, result, state, witnesses
from tests.support.cells.partitions import history, table
from tests.support.metadata_logs import TOPIC_ID, by_hand, partition, record_value, topic
from tests.unit.harness.guarantees.evidence.test_envelope import NOT_SO, SO, UNKNOWN, envelope, one
from tests.unit.harness.history.test_topic_lives import DELETED_S, FIRST, MADE_S, PRODUCER, SECOND, lives, send

ONE, OTHER = {"topic_id_high": 7, "topic_id_low": -1}, {"topic_id_high": 8, "topic_id_low": 5}
DELETED = state(5, 0, NONE, 3, ()) | ONE | {"kind": MetadataKind.DELETED}
MADE_ANEW = [state(-10, 0, 1, 3, (1, 2, 3)) | ONE, DELETED, state(9, 0, 2, 0, (1, 2, 3)) | OTHER]
"""Deleted at 5 s, there again at 9 s, led by somebody else, in epoch 0 again."""
UNPROVEN = [MADE_ANEW[0], MADE_ANEW[2]]


def sent(begin_s: float, end_s: float | None, **columns: int) -> np.ndarray:
    return witnesses(1, begin_s=begin_s, end_s=end_s, **columns)


@pytest.mark.parametrize(
    ("begin_s", "end_s", "expected"),
    [
        (4, 4.1, SO),
        (4.9, 5.5, SO),
        (4.9, 9.5, UNKNOWN),
        (5.5, 5.6, SO),
        (7, 7.1, UNKNOWN),
        (9.2, 9.3, NOT_SO),
        (4, None, UNKNOWN),
    ],
)
def test_what_was_sent_before_its_topic_was_deleted_is_gone_with_it_and_what_is_sent_to_the_next_is_not_excused(
    begin_s, end_s, expected
):
    assert one(topic_deleted(envelope(MADE_ANEW, acks="all"), sent(begin_s, end_s))) == expected


def test_a_deletion_that_no_log_tells_of_excuses_nothing():
    assert one(topic_deleted(envelope(UNPROVEN, acks="all"), sent(4, 4.1))) == UNKNOWN
    assert one(topic_deleted(envelope(UNPROVEN, acks="all"), sent(9.2, 9.3))) == NOT_SO
    assert one(topic_deleted(envelope([state(-10, 0, 1, 0, (1, 2, 3))], acks="all"), sent(4, 4.1))) == NOT_SO


def test_where_the_controllers_log_is_missing_a_test_may_have_deleted_its_topic_and_a_trial_has_not():
    assert one(topic_deleted(envelope([], acks="all"), sent(4, 4.1))) == NOT_SO
    assert one(topic_deleted(envelope([], acks="all", topics_may_go=True), sent(4, 4.1))) == UNKNOWN
    assert one(made_anew_between(envelope([], topics_may_go=True), sent(4, 10))) == UNKNOWN


def test_a_leader_that_was_cut_off_when_its_topic_was_deleted_may_have_taken_more():
    cut = fault(0, "partition", [1], 3, 12)
    assert one(topic_deleted(envelope(MADE_ANEW, cut, acks="all"), sent(10, 10.1))) == UNKNOWN
    assert one(topic_deleted(envelope(MADE_ANEW, cut, acks="all"), sent(13, 13.1))) == NOT_SO


def test_who_leads_a_new_topic_first_was_elected_by_nobody():
    made = envelope(MADE_ANEW, acks="all")
    assert made.timeline.elections == ()
    assert [life.deleted_ns for life in made.timeline.lives] == [ns(5), None]
    assert envelope(UNPROVEN).timeline.elections == ()
    assert one(cutoff(made, sent(4, 4.1))) == NOT_SO


def test_an_unclean_election_of_one_topic_excuses_nothing_in_the_other():
    first = [row | ONE for row in UNCLEAN]
    deleted = state(20, 0, NONE, 1, ()) | ONE | {"kind": MetadataKind.DELETED}
    made = envelope([*first, deleted, state(21, 0, 2, 0, (1, 2, 3)) | OTHER], acks="all")

    def fact(begin_s: float, **columns: int) -> int:
        return one(of_each_life(made, sent(begin_s, begin_s + 0.1, **columns), cutoff))

    assert fact(4) == UNKNOWN, "the logs of the deleted topic can be read no more"
    assert fact(10) == NOT_SO
    assert fact(25) == NOT_SO
    assert fact(25, leader_epoch=0) == NOT_SO, "epochs of the next topic begin at 0 again"


@pytest.mark.parametrize(
    ("begin_s", "end_s", "life", "excused"),
    [
        (4, 4.1, FIRST, {SO}),
        (9.9, 11.9, FIRST, {SO}),
        (11, 11.9, FIRST, {SO, UNKNOWN}),
        (9.9, 12.5, SECOND, {NOT_SO, UNKNOWN}),
        (12.1, 12.2, SECOND, {NOT_SO}),
        (30, 30.1, SECOND, {NOT_SO}),
    ],
)
def test_of_planned_topics_only_what_was_acknowledged_to_the_one_that_ended_may_be_gone(begin_s, end_s, life, excused):
    of_first = [
        state(0, 0, 1, 3, (1, 2, 3)) | ONE,
        state(DELETED_S, 0, NONE, 3, ()) | ONE | {"kind": MetadataKind.DELETED},
    ]
    of_second = [state(MADE_S, 0, 2, 0, (1, 2, 3)) | OTHER]
    rows = lives(sends=[send(0, begin_s, end_s, 5)])("sends", PRODUCER)
    assert rows["partition"].tolist() == [life]
    made = envelope(of_first if life == FIRST else of_second, acks="all", topics_may_go=True)
    assert one(topic_deleted(made, sent(begin_s, end_s))) in excused


@pytest.mark.parametrize(
    ("first_s", "second_s", "expected"), [(4, 10, SO), (9.5, 11, UNKNOWN), (11, 12, NOT_SO), (1, 4, NOT_SO)]
)
def test_positions_of_a_deleted_topic_mean_nothing_in_the_next(first_s, second_s, expected):
    moved = sent(first_s, second_s, outcome=NONE)
    assert one(made_anew_between(envelope(MADE_ANEW), moved)) == expected
    proven = one(made_anew_between(envelope(UNPROVEN), moved))
    assert proven == (UNKNOWN if expected == SO else expected)


def test_a_topic_made_again_under_a_producer_loses_what_was_deleted_and_no_more():
    made = plan({"producer.acks": ["all"]})
    old, new = witnesses(620), witnesses(3, begin_s=9.5, end_s=9.6)
    found = {("lost", 0): result(np.concatenate([old, new])), ("offset-conflict", 0): result(conflicts(620))}
    verdict = judge(made, findings(made, found), evidence(made, metadata=MADE_ANEW))
    lost, conflict = of(verdict, 0), of(verdict, 0, "offset-conflict")
    assert (lost.outcome, lost.permitted, lost.forbidden) == (AnomalyOutcome.VIOLATED, 620, 3)
    assert (conflict.outcome, conflict.permitted) == (AnomalyOutcome.PERMITTED, 620)
    assert {w.rule for w in conflict.witnesses} == {"offset-conflict/topic-deleted"}
    assert conflict.reason.startswith("620 offsets showed two different records: the topic was deleted")
    unproven = judge(made, findings(made, found), evidence(made, metadata=UNPROVEN))
    assert (of(unproven, 0).permitted, of(unproven, 0).unknown) == (0, 620)


def conflicts(count: int) -> np.ndarray:
    """Acknowledged before the deletion, against what the audit found at the same offset."""
    return witnesses(count, case=1, other_s=20)


# --- what is reported ---------------------------------------------------------------------------------------------------


def controllers_log(*rows: dict[str, int]) -> dict[str, np.ndarray]:
    """In the order given."""
    return table("metadata", [row | {"log_position": place, "partition": 7} for place, row in enumerate(rows)])


def of_log(*rows: dict[str, int]) -> PartitionHistory:
    return replace(history(), metadata=controllers_log(*rows))


def test_the_kernel_counts_no_election_across_two_topics_and_still_those_within_one():
    assert unclean(of_log(*MADE_ANEW)).count == 0
    assert unclean(of_log(*UNPROVEN)).count == 0
    unclean_later = (state(12, 0, 2, 0, (2,)) | OTHER, state(13, 0, 1, 1, (1,)) | OTHER)
    assert unclean(of_log(*MADE_ANEW, *unclean_later)).count == 1


def answer(at_s: float, value: int, node: int = 1, epoch: int = 0) -> dict[str, int]:
    kind = ObservationKind.LEADER_HIGH_WATERMARK
    return {"time_ns": ns(at_s), "value": value, "node": node, "leader_epoch": epoch, "kind": kind, "partition": 7}


@pytest.mark.parametrize(("later", "count"), [((5, 20), 0), ((20, 5), 1)])
def test_a_watermark_begins_anew_with_the_topic_and_may_not_fall_within_it(later, count):
    answers = [answer(1, 600), answer(2, 620), answer(9.5, 620), answer(11, later[0]), answer(12, later[1])]
    made = of_log(*MADE_ANEW)
    seen = table("observations", answers)
    assert watermark_regression(replace(made, observations=seen)).count == count


def test_rows_without_an_id_go_on_with_the_topic_that_they_follow():
    rows = [
        state(0, 0, 1, 0, (1,)),
        state(1, 0, 1, 0, (1,)) | ONE,
        state(2, 0, 1, 0, (1,)),
        state(3, 0, 1, 0, (1,)) | ONE,
    ]
    assert lives_of(table("metadata", rows)).tolist() == [0, 0, 0, 0]
    rows.append(state(4, 0, 1, 0, (1,)) | OTHER)
    assert lives_of(table("metadata", rows)).tolist() == [0, 0, 0, 0, 1]
    assert lives_of(table("metadata", [])).tolist() == []


def test_the_controllers_log_tells_the_deletion_and_the_id_of_the_topic_made_anew(tmp_path):
    again = bytes(reversed(TOPIC_ID))
    removed = record_value(9, 0, TOPIC_ID + b"\0")
    values = (topic("beta", TOPIC_ID), partition(TOPIC_ID, leader=1), removed, topic("beta", again))
    told = by_hand(tmp_path, *values, partition(again, leader=3))
    assert told["kind"].tolist() == [MetadataKind.PARTITION, MetadataKind.DELETED, MetadataKind.PARTITION]
    assert told["leader"].tolist() == [1, NONE, 3]
    first, second = struct.unpack(">qq", TOPIC_ID), struct.unpack(">qq", again)
    assert list(zip(told["topic_id_high"].tolist(), told["topic_id_low"].tolist(), strict=True)) == [
        first,
        first,
        second,
    ]


def test_zookeeper_tells_it_too_with_ids_and_without():
    for ids in (('"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ",', '"topic_id":"AAAAAAAAAAAAAAAAAAAAAg",'), ("", "")):
        replay = TreeReplay({("a", 0): 0}, wall_minus_monotonic_ns=0)
        number = 0
        for topic_id in ids:
            for change in life_in_zookeeper(topic_id):
                number += 1
                replay.transaction(Transaction(number, number, 0, int(change[0]), change[1], 0))
        rows = np.array(replay.rows, dtype=np.int64)
        told = {column.name: rows[:, i] for i, column in enumerate(METADATA.columns)}
        assert told["kind"].tolist() == [MetadataKind.PARTITION, MetadataKind.DELETED] * 2
        assert lives_of(told).tolist() == [0, 0, 1, 1]
        assert len(np.unique(told["topic_id_low"])) == 2


def life_in_zookeeper(topic_id: str) -> list[tuple[ZooKeeperOperation, bytes]]:
    """A topic made, led and deleted."""
    acl = zookeeper.vector(zookeeper.integer(31) + zookeeper.text("world") + zookeeper.text("anyone"))
    path, state_path = "/brokers/topics/a", "/brokers/topics/a/partitions/0/state"
    content = {
        path: f'{{{topic_id}"partitions":{{"0":[1,2]}}}}',
        state_path: '{"leader":1,"leader_epoch":0,"isr":[1,2]}',
    }
    made = [
        (
            ZooKeeperOperation.CREATE,
            zookeeper.text(p) + zookeeper.buffer(data.encode()) + acl + zookeeper.boolean(False) + zookeeper.integer(1),
        )
        for p, data in content.items()
    ]
    return [*made, *((ZooKeeperOperation.DELETE, zookeeper.text(p)) for p in reversed(content))]


@pytest.mark.parametrize(
    ("leader", "epoch", "begin_s", "expected"),
    [(2, 0, 10, SO), (1, 0, 10, NOT_SO), (2, 3, 10, NOT_SO), (2, 0, 8, SO), (NONE, 0, 10, NOT_SO)],
)
def test_a_client_that_compares_leader_epochs_does_not_find_another_leader_below_those_it_knows(
    leader, epoch, begin_s, expected
):
    again = state(9, 0, leader, epoch, (1, 2, 3)) | OTHER
    assert one(led_elsewhere_below(envelope([*MADE_ANEW[:2], again]), sent(begin_s, 70))) == expected


def test_a_topic_with_one_life_leads_nobody_astray():
    assert one(led_elsewhere_below(envelope(MADE_ANEW[:1]), sent(4, 70))) == NOT_SO


@pytest.mark.parametrize(
    ("again", "forgets", "label"),
    [
        (MADE_ANEW[2], True, "KAFKA-13488"),
        (MADE_ANEW[2], False, None),
        (state(9, 0, 1, 0, (1, 2, 3)) | OTHER, True, None),
    ],
)
def test_a_partition_without_an_owner_is_ascribed_to_clients_that_forget_ids_of_topics(again, forgets, label):
    members = CellConfiguration(
        acks="all", idempotent=True, retries=True, several_in_flight=True, forgets_topic_ids=forgets
    )
    made = envelope([*MADE_ANEW[:2], again], acks="all")
    found = evaluate_witnesses("orphaned", members, made, sent(20, 70, client=NONE, case=GroupCase.NO_CAUSE))
    assert found.judgement.tolist() == [Judgement.FORBIDDEN]
    rule = int(found.rule[0])
    assert (TABLE["orphaned"].rules[rule].label if rule >= 0 else None) == label


@pytest.mark.parametrize(
    ("client", "version", "brokers", "expected"),
    [
        ("java", "2.8.1", (4, 4, 0), True), ("java", "2.8.2", (4, 4, 0), False), ("java", "3.0.0", (4, 4, 0), True),
        ("java", "3.0.1", (4, 4, 0), False), ("java", "3.1.0", (4, 4, 0), False), ("java", None, (3, 0, 0), True),
        ("java", None, None, False), ("librdkafka", None, (3, 0, 0), False),
    ],
)  # fmt: skip
def test_which_clients_forget_ids_of_topics_goes_by_their_version(client, version, brokers, expected):
    assert forgets_topic_ids(GroupConfiguration(client=client, client_version=version), brokers) is expected


@pytest.mark.parametrize("anomaly", ["stalled", "orphaned"])
@pytest.mark.parametrize(
    ("again", "by_name", "label"),
    [
        (MADE_ANEW[2], True, "KAFKA-12257"),
        (MADE_ANEW[2], False, None),
        (state(9, 0, 1, 0, (1, 2, 3)) | OTHER, True, None),
        (state(9, 0, 2, 3, (1, 2, 3)) | OTHER, True, None),
    ],
    ids=["another leader below", "a client that knows ids", "the same leader", "an epoch that is not lower"],
)
def test_a_member_that_knows_topics_by_name_alone_is_ascribed_what_it_does_not_read(anomaly, again, by_name, label):
    members = CellConfiguration(
        acks="all", idempotent=True, retries=True, several_in_flight=True, knows_names_alone=by_name
    )
    made = envelope([*MADE_ANEW[:2], again], acks="all")
    found = evaluate_witnesses(anomaly, members, made, sent(20, 70, client=NONE, case=GroupCase.NO_CAUSE))
    assert found.judgement.tolist() == [Judgement.FORBIDDEN]
    rule = int(found.rule[0])
    assert (TABLE[anomaly].rules[rule].label if rule >= 0 else None) == label


@pytest.mark.parametrize(
    ("client", "version", "brokers", "expected"),
    [
        ("java", "2.0.1", (4, 4, 0), False), ("java", "2.1.0", (4, 4, 0), True), ("java", "2.8.0", (4, 4, 0), True),
        ("java", "2.8.1", (4, 4, 0), False), ("java", "3.0.0", (4, 4, 0), False), ("java", None, (2, 8, 0), True),
        ("java", None, None, False), ("librdkafka", None, (2, 8, 0), False),
    ],
)  # fmt: skip
def test_which_clients_know_topics_by_name_alone_goes_by_their_version(client, version, brokers, expected):
    group = GroupConfiguration(client=client, client_version=version)
    assert knows_names_alone(group, brokers) is expected
    assert not (knows_names_alone(group, brokers) and forgets_topic_ids(group, brokers)), "one ticket for each version"


def test_a_loss_that_consumers_saw_while_the_topic_was_there_is_not_excused_by_its_deletion_afterwards():
    first, second = (timelines(table("metadata", rows))[0] for rows in (MADE_ANEW[:2], MADE_ANEW[2:]))
    (ended,) = joined_timelines([first]).lives
    assert (ended.ended, ended.deleted_ns) == (False, None)
    both = joined_timelines([first, second])
    assert [(life.ended, life.created_ns, life.topic_id) for life in both.lives] == [
        (True, first.lives[0].created_ns, (7, -1)),
        (False, ns(9), (8, 5)),
    ]
    assert both.elections == (), "nobody is elected across topics"
    assert both.leader_at(np.array([ns(4), ns(10)])).tolist() == [1, 2]
