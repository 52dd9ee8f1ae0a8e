"""Kernels of what brokers answer and of what the controllers' log says: each bad history with its near miss."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from prozess.checkers.log.epochs import epoch_regression
from prozess.checkers.log.leadership import (
    LATER_EPOCH,
    SAME_EPOCH,
    two_controllers,
    unclean,
    under_acknowledged,
    watermark_regression,
)
from prozess.harness.interfaces.checking import CellHistory, KernelResult, PartitionHistory
from prozess.harness.recording.metrics import MICRO, code_of
from prozess.harness.schema import NONE, MetadataKind, MetadataSource
from tests.support.cells.partitions import (
    CELL,
    METADATA_ERROR_NS,
    OK,
    PARTITION,
    PRODUCER,
    PRODUCER_ACKS_1,
    history,
    mask,
    sample_row,
    state_row,
    table,
    watermark_row,
)

S = 1_000_000_000


def found(result: KernelResult) -> list[tuple[int, int]]:
    assert result.count == len(result.witnesses)
    assert set(result.witnesses["partition"].tolist()) <= {PARTITION}
    return list(zip(result.witnesses["client"].tolist(), result.witnesses["sequence"].tolist(), strict=True))


# --- answers --------------------------------------------------------------------------------------------------------


def answered(*rows: Mapping[str, int]) -> PartitionHistory:
    return replace(history(), observations=table("observations", rows))


def test_a_high_watermark_that_falls_in_one_epoch_is_a_regression():
    rows = [watermark_row(t, node=1, epoch=3, value=v) for t, v in ((10, 5), (20, 8), (30, 7), (40, 9))]
    result = watermark_regression(answered(*rows))
    (witness,) = result.witnesses
    assert (result.count, result.judged, witness["case"]) == (1, 4, SAME_EPOCH)
    assert (witness["log_offset"], witness["other_offset"], witness["begin_ns"], witness["end_ns"]) == (7, 8, 20, 30)


def test_a_new_leader_must_have_reached_what_the_one_before_had_told():
    old = watermark_row(10, node=1, epoch=3, value=8)
    asked = watermark_row(20, node=2, epoch=4, value=8)
    fell = watermark_regression(answered(old, asked, watermark_row(30, node=2, epoch=4, value=7)))
    assert fell.count == 1
    late = watermark_row(30, node=2, epoch=4, value=7)
    found_late = watermark_regression(answered(watermark_row(5, node=2, epoch=2, value=1), old, late))
    assert found_late.count == 0, "it may have been asked before the other had answered"
    certain = watermark_regression(answered(old, watermark_row(11, node=2, epoch=2, value=1), late))
    assert certain.witnesses["case"].tolist() == [LATER_EPOCH]


def test_what_a_deposed_leader_still_answers_is_judged_only_against_its_own():
    new, old = watermark_row(10, node=2, epoch=4, value=9), watermark_row(20, node=1, epoch=3, value=5)
    assert watermark_regression(answered(new, old, watermark_row(30, node=1, epoch=3, value=5))).count == 0
    assert watermark_regression(answered(new, old, watermark_row(30, node=1, epoch=3, value=4))).count == 1


def test_a_broker_that_tells_an_older_epoch_than_before_regresses_and_another_one_may():
    rows = [sample_row(10, node=1, epoch=4), sample_row(20, node=2, epoch=3), sample_row(30, node=1, epoch=5)]
    assert epoch_regression(replace(history(), metadata=table("metadata", rows))).count == 0
    rows.append(sample_row(40, node=1, epoch=4))
    result = epoch_regression(replace(history(), metadata=table("metadata", rows)))
    (witness,) = result.witnesses
    assert (witness["reader"], witness["sequence"], witness["other_sequence"]) == (1, 4, 5)


# --- the controllers' log -------------------------------------------------------------------------------------------


def at(begin: int, end: int) -> dict[str, int]:
    return {"invoked_ns": begin, "completed_ns": end}


def in_sync(*rows: Mapping[str, int], sends: Sequence[Any] = ()) -> PartitionHistory:
    log = [(row[3], row[0], row[1]) for row in sends]
    return replace(history(sends=sends, log=log), metadata=table("metadata", rows))


SHRUNK = (
    state_row(-S, leader=1, epoch=0, isr=(1, 2, 3)),
    state_row(10 * S, leader=1, epoch=0, isr=(1,)),
    state_row(20 * S, leader=1, epoch=0, isr=(1, 2)),
)


@pytest.mark.parametrize(
    ("client", "begin_ns", "end_ns", "expected"),
    [
        (PRODUCER, 12 * S, 13 * S, 1),
        (PRODUCER, 11 * S + METADATA_ERROR_NS, 19 * S - METADATA_ERROR_NS - 1, 1),
        (PRODUCER, 11 * S + METADATA_ERROR_NS - 1, 12 * S, 0),
        (PRODUCER, 12 * S, 19 * S - METADATA_ERROR_NS, 0),
        (PRODUCER, 5 * S, 15 * S, 0),
        (PRODUCER_ACKS_1, 12 * S, 13 * S, 0),
    ],
)
def test_acks_all_is_not_acknowledged_while_too_few_are_in_sync(client, begin_ns, end_ns, expected):
    made = in_sync(*SHRUNK, sends=[(client, 0, OK, 0, at(begin_ns, end_ns))])
    result = under_acknowledged(made)
    assert (result.count, result.incomplete) == (expected, None)
    if expected:
        assert (result.witnesses["other_ns"].tolist(), result.witnesses["other_offset"].tolist()) == ([10 * S], [1])


def test_a_period_of_several_sets_that_are_all_too_small_is_one():
    rows = [*SHRUNK[:2], state_row(12 * S, leader=2, epoch=1, isr=(2,)), SHRUNK[2]]
    made = in_sync(*rows, sends=[(PRODUCER, 0, OK, 0, at(int(11.5 * S), int(12.5 * S)))])
    assert under_acknowledged(made).witnesses["other_ns"].tolist() == [10 * S]


def test_min_insync_replicas_above_the_number_of_replicas_counts_as_that_number():
    one = [row | {"replicas": 1 << 1, "isr": 1 << 1} for row in SHRUNK]
    made = in_sync(*one, sends=[(PRODUCER, 0, OK, 0, at(12 * S, 13 * S))])
    assert under_acknowledged(made).count == 0


def test_without_the_controllers_log_nothing_is_concluded():
    made = in_sync(sample_row(10, node=1, epoch=3), sends=[(PRODUCER, 0, OK, 0, at(12 * S, 13 * S))])
    for kernel in (under_acknowledged, unclean):
        assert "the controllers' log says nothing" in (kernel(made).incomplete or "")
    assert under_acknowledged(replace(made, min_insync_replicas=None)).incomplete


def test_a_leader_from_outside_isr_and_elr_is_unclean_and_an_eligible_one_is_not():
    before = state_row(0, leader=1, epoch=0, isr=(1,), elr=(2,))
    gone = state_row(5, leader=NONE, epoch=1, isr=(1,), elr=(2,))
    for elected, expected in ((2, 0), (3, 1), (1, 0)):
        after = state_row(10, leader=elected, epoch=2, isr=(elected,))
        result = unclean(in_sync(before, gone, after))
        assert (result.count, result.witnesses["reader"].tolist()) == (expected, [elected] * expected)
        assert result.witnesses["other_client"].tolist() == [1] * expected


def test_the_last_known_leader_that_comes_back_is_no_unclean_one():
    before = state_row(0, leader=NONE, epoch=1, isr=(), last_known=(2,))
    assert unclean(in_sync(before, state_row(10, leader=2, epoch=2, isr=(2,)))).count == 0
    assert unclean(in_sync(before, state_row(10, leader=1, epoch=2, isr=(1,)))).count == 1


def test_it_is_none_either_where_the_only_eligible_one_returns_from_a_crash():
    """As Kafka 4.3.1 does it: broker 2, eligible, registers again after a SIGKILL, and broker 1 leads, which led last."""
    before = state_row(0, leader=NONE, epoch=1, isr=(), elr=(2,), last_known=(1,))
    assert unclean(in_sync(before, state_row(10, leader=1, epoch=2, isr=(1,)))).count == 0
    assert unclean(in_sync(before, state_row(10, leader=3, epoch=2, isr=(3,)))).count == 1


def test_the_end_of_a_reassignment_puts_a_copy_in_sync_and_into_the_lead_at_once():
    """As Kafka 4.3.1 does it: copies on 1, 2, 3 and, on the way, 4; then on 2, 3 and 4, which leads."""
    moving = state_row(0, leader=1, epoch=2, isr=(1, 2, 3)) | {"replicas": mask((1, 2, 3, 4))}
    ended = state_row(5, leader=4, epoch=3, isr=(2, 3, 4)) | {"replicas": mask((2, 3, 4))}
    assert unclean(in_sync(moving, ended)).count == 0
    not_in_sync = ended | {"isr": mask((2, 3))}
    assert unclean(in_sync(moving, not_in_sync)).count == 1
    nothing_taken_away = ended | {"isr": mask((4,)), "replicas": mask((1, 2, 3, 4))}
    assert unclean(in_sync(moving, nothing_taken_away)).count == 1, "as an unclean election does it"


# --- two controllers ------------------------------------------------------------------------------------------------


def elected(position: int, node: int, epoch: int) -> dict[str, int]:
    row = {"kind": int(MetadataKind.CONTROLLER), "source": int(MetadataSource.CONTROLLER_LOG), "time_ns": position}
    return row | {"log_position": position, "node": node, "leader_epoch": epoch}


def said(time_ns: int, node: int, leader: int, epoch: int) -> list[dict[str, int]]:
    both = {"quorum_leader": leader, "quorum_epoch": epoch}
    return [
        {"time_ns": time_ns, "node": node, "metric": code_of(m), "value_micro": v * MICRO, "absent": 0}
        for m, v in both.items()
    ]


def quorum(log: Sequence[Mapping[str, int]], metrics: Sequence[Mapping[str, int]] = ()) -> list[tuple[int, int, int]]:
    tables = {"metadata": table("metadata", log), "metrics": table("metrics", metrics)}
    made = CellHistory(cell=CELL, partitions={PARTITION: history()}, tables=tables, clients=())
    result = two_controllers(made)
    assert result.count == len(result.witnesses)
    return [(int(w["reader"]), int(w["sequence"]), int(w["other_client"])) for w in result.witnesses]


def test_two_nodes_that_claim_one_epoch_are_two_controllers():
    assert quorum([elected(0, 3001, 1)], [*said(10, 3001, 3001, 1), *said(10, 3002, 3002, 1)]) == [(3002, 1, 3001)]


def test_a_deposed_controller_that_believes_in_its_older_epoch_is_normal_and_so_is_who_names_another():
    log = [elected(0, 3001, 1), elected(50, 3002, 2)]
    later = [*said(60, 3001, 3001, 1), *said(60, 3002, 3002, 2), *said(61, 3003, 3002, 1)]
    assert quorum(log, later) == []


def test_a_record_of_a_lower_epoch_behind_one_of_a_higher_is_a_second_controller():
    assert quorum([elected(0, 3001, 2), elected(50, 3002, 1)]) == [(3002, 1, 3001)]
