"""A topic that was deleted stays deleted: in the controllers' log, and on the brokers' disks in time."""

from dataclasses import replace

import pytest

from prozess.checkers.log.deletions import undeleted
from prozess.harness.interfaces.witnesses import OnDisk, UndeletedCase
from prozess.harness.schema import NONE, MetadataKind, MetadataSource
from tests.support.cells.partitions import PARTITION, history, table

S = 1_000_000_000
OWN, OTHER = 5, 6


def of_log(at_s, kind, position, topic_id=OWN):
    return {
        "time_ns": at_s * S, "kind": int(kind), "source": int(MetadataSource.CONTROLLER_LOG), "partition": PARTITION,
        "topic_id_high": 1, "topic_id_low": topic_id, "log_position": position, "leader": 1,
    }  # fmt: skip


def on_disk(at_s, state, node=1, topic_id=OWN):
    return of_log(at_s, MetadataKind.ON_DISK, NONE, topic_id) | {
        "source": int(MetadataSource.FILES), "node": node, "leader": int(state),
    }  # fmt: skip


MADE, DELETED = of_log(0, MetadataKind.PARTITION, 1), of_log(10, MetadataKind.DELETED, 2)


def found(*rows, delay_s=60):
    made = replace(history(), metadata=table("metadata", rows), delete_delay_ns=delay_s * S)
    result = undeleted(made)
    assert result.count == len(result.witnesses)
    return result.witnesses[["reader", "case"]].tolist(), result.judged


@pytest.mark.parametrize(
    ("at_s", "state", "expected"),
    [
        (24, OnDisk.SERVED, []),
        (26, OnDisk.SERVED, [(1, UndeletedCase.SERVED)]),
        (114, OnDisk.GOING, []),
        (116, OnDisk.GOING, [(1, UndeletedCase.NOT_REMOVED)]),
    ],
)
def test_a_log_of_a_deleted_topic_goes_from_the_disk_in_time(at_s, state, expected):
    assert found(MADE, DELETED, on_disk(at_s, state)) == (expected, 1)


def test_a_log_of_the_topic_that_was_made_again_has_another_id_and_stays():
    again = of_log(12, MetadataKind.PARTITION, 3, OTHER)
    assert found(MADE, DELETED, again, on_disk(200, OnDisk.SERVED, topic_id=OTHER)) == ([], 1)


def test_a_partition_of_the_topic_behind_its_deletion_in_the_controllers_log_is_back():
    assert found(MADE, DELETED, of_log(11, MetadataKind.PARTITION, 3)) == ([(NONE, UndeletedCase.RETURNED)], 1)


def test_where_nothing_was_deleted_nothing_is_judged():
    assert found(MADE, on_disk(500, OnDisk.SERVED)) == ([], 0)
