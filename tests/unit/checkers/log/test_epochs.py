"""Leader epochs never fall along a log: each bad history with its near miss."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from prozess.checkers.log.epochs import epoch_regression
from prozess.harness.interfaces.checking import PartitionHistory
from prozess.harness.interfaces.witnesses import EpochCase
from prozess.harness.schema import NONE
from tests.support.cells.partitions import AUDIT, PARTITION, PRODUCER, READER, READER_2, history, sample_row, table


def batch(base: int, epoch: int, *, node: int = 1, step: int = NONE, last: int | None = None) -> dict[str, int]:
    return {
        "node": node,
        "step": step,
        "base_offset": base,
        "last_offset": base if last is None else last,
        "leader_epoch": epoch,
        "read_ns": 9,
    }


def logs(*rows: dict[str, int]) -> PartitionHistory:
    return replace(history(), replicas=table("replicas", rows))


def read(*told: tuple[int, int, int, int]) -> PartitionHistory:
    """(reader, span, offset, leader epoch) of reads, in their order."""
    rows = [(reader, offset, PRODUCER, offset, {"span": s, "leader_epoch": epoch}) for reader, s, offset, epoch in told]
    return history(reads=rows)


def fallen(made: PartitionHistory) -> list[tuple[int, ...]]:
    result = epoch_regression(made)
    assert result.count == len(result.witnesses)
    names = ["case", "reader", "log_offset", "sequence", "other_offset", "other_sequence"]
    assert set(result.witnesses["partition"].tolist()) <= {PARTITION}
    return [tuple(row) for row in result.witnesses[names].tolist()]


def test_an_older_epoch_behind_a_newer_in_a_replica_is_found_and_ascending_ones_are_not():
    rows = [batch(0, 0), batch(1, 3, last=4), batch(5, 3), batch(6, 1), batch(7, 2)]
    assert fallen(logs(*rows)) == [(EpochCase.IN_LOG, 1, 6, 1, 5, 3)]
    assert epoch_regression(logs(*rows)).judged == len(rows)
    assert fallen(logs(batch(0, 0), batch(1, 1), batch(5, 3))) == []


def test_replicas_and_moments_are_not_compared_with_one_another():
    assert fallen(logs(batch(0, 5), batch(1, 5), batch(2, 3, node=2))) == []
    assert fallen(logs(batch(0, 5, step=2), batch(1, 3))) == []
    mixed = [batch(0, 5), batch(0, 4, node=2), batch(1, 5), batch(1, 3, node=2)]
    assert fallen(logs(*mixed)) == [(EpochCase.IN_LOG, 2, 1, 3, 0, 4)]


def test_batches_without_an_epoch_say_nothing_and_those_that_overlap_are_of_two_states_of_a_log():
    assert fallen(logs(batch(0, 3), batch(1, NONE), batch(2, 3))) == []
    assert fallen(logs(batch(0, 3), batch(1, NONE), batch(2, 1))) == [(EpochCase.IN_LOG, 1, 2, 1, 0, 3)]
    assert fallen(logs(batch(0, 3, last=9), batch(5, 1))) == []


def test_epochs_0_3_1_along_what_a_consumer_or_the_audit_gets_are_a_fall():
    told = [(0, 0, 0), (0, 1, 3), (0, 2, 1)]
    assert fallen(read(*((READER, *row) for row in told))) == [(EpochCase.READ, READER, 2, 1, 1, 3)]
    log = [(offset, PRODUCER, offset, {"leader_epoch": epoch}) for _, offset, epoch in told]
    assert fallen(history(log=log))[0] == (EpochCase.AUDITED, AUDIT, 2, 1, 1, 3)
    assert fallen(replace(history(log=log), audited=False)) == [], "nobody audited, so nobody got them"


@pytest.mark.parametrize(
    "told",
    [
        pytest.param([(READER, 0, 0, 3), (READER, 1, 1, 1)], id="it had sought in between"),
        pytest.param([(READER, 0, 5, 3), (READER, 0, 4, 1)], id="it went back"),
        pytest.param([(READER, 0, 0, 3), (READER_2, 0, 1, 1)], id="two readers"),
        pytest.param([(READER, 0, 0, 3), (READER, 0, 1, NONE), (READER, 0, 2, 3)], id="it was not reported"),
    ],
)
def test_near_misses_of_reads(told: Sequence[tuple[int, int, int, int]]):
    assert fallen(read(*told)) == []


def test_what_was_not_told_in_between_hides_nothing():
    told = [(READER, 0, 0, 3), (READER, 0, 1, NONE), (READER, 0, 2, NONE), (READER, 0, 3, 1)]
    made = read(*told)
    assert fallen(made) == [(EpochCase.READ, READER, 3, 1, 0, 3)]
    assert epoch_regression(made).judged == 2


def test_a_column_of_one_value_costs_nothing_and_counts_all_the_same():
    made = read((READER, 0, 0, 3), (READER, 0, 1, 3))
    length = len(made.reads["client"])
    for value, judged in ((3, length), (NONE, 0)):
        column = np.broadcast_to(np.array([value], dtype=np.int32), length)
        result = epoch_regression(replace(made, reads={**made.reads, "leader_epoch": column}))
        assert (result.count, result.judged) == (0, judged)


def test_answers_come_first():
    rows = [sample_row(10, node=1, epoch=4), sample_row(20, node=1, epoch=3)]
    made = replace(logs(batch(0, 3), batch(1, 1)), metadata=table("metadata", rows))
    assert [case for case, *_ in fallen(made)] == [EpochCase.ANSWERED, EpochCase.IN_LOG]
