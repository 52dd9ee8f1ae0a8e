"""`out-of-sequence` on hand-made batches: each bad log with the near miss beside it."""

import pytest

from prozess.checkers.batches import CONTROL, TRANSACTIONAL
from prozess.checkers.log.sequences import out_of_sequence
from prozess.harness.columns import empty_rows
from prozess.harness.interfaces.checking import CopyFacts, PartitionHistory
from prozess.harness.interfaces.witnesses import SequenceCase
from prozess.harness.schema import NONE, READS, Isolation
from tests.support.cells.partitions import PARTITION, table

MARKER = TRANSACTIONAL | CONTROL
LAST = 2**31 - 1


def batch(base, sequence, records=5, *, epoch=0, producer=7, attributes=0):
    return {
        "base_offset": base,
        "last_offset": base + records - 1,
        "producer_id": producer,
        "producer_epoch": epoch,
        "base_sequence": sequence,
        "attributes": attributes,
        "read_ns": 900,
    }


def marker(base, *, epoch=0, producer=7):
    return batch(base, NONE, 1, epoch=epoch, producer=producer, attributes=MARKER)


def history(*batches, copies=None, compacted=False, assignment=(1, 2)):
    """These batches in the copies of brokers 1 and 2. `copies`: node → (log start, batches), where they differ."""
    every = copies or dict.fromkeys((1, 2), (0, batches))
    rows = [{"node": node, "step": NONE, **one} for node, (_, held) in every.items() for one in held]
    nobody = table("clients", [])["client"]
    return PartitionHistory(
        partition=PARTITION,
        sends=table("sends", [{"client": 1, "sequence": 0, "invoked_ns": 3}]),
        reads=empty_rows(READS),
        client_role=nobody,
        client_isolation=nobody,
        client_issued=nobody,
        client_acks=nobody,
        audit_end={Isolation.READ_UNCOMMITTED: 100},
        compacted=compacted,
        assignment=assignment,
        copies={node: CopyFacts(log_start, 200) for node, (log_start, _) in every.items()},
        replicas=table("replicas", rows),
    )


def found(*batches, **more):
    result = out_of_sequence(history(*batches, **more))
    assert result.count == len(result.witnesses)
    return [(SequenceCase(w["case"]).name, int(w["log_offset"])) for w in result.witnesses]


def test_a_gap_that_every_replica_has_is_found_once():
    result = out_of_sequence(history(batch(0, 0), batch(5, 5), batch(10, 12)))
    assert (result.count, result.judged, result.incomplete) == (1, 4, None)
    [witness] = result.witnesses
    assert (witness["case"], witness["log_offset"], witness["other_offset"]) == (SequenceCase.GAP, 10, 9)
    assert (witness["sequence"], witness["other_sequence"], witness["reader"]) == (12, 10, 1)
    assert (witness["begin_ns"], witness["end_ns"]) == (3, 900)


@pytest.mark.parametrize(
    "batches",
    [
        (batch(0, 0), batch(5, 5), batch(10, 10)),
        (batch(0, 7), batch(5, 12)),  # the first one of a producer that the broker did not know (KAFKA-15591)
        (batch(0, 0), batch(5, 0, producer=8), batch(10, 5)),  # of two producers
        (batch(0, 0), batch(5, 0, epoch=1), batch(10, 5, epoch=1)),  # a newer epoch begins at 0
        (batch(0, LAST - 4), batch(5, 0)),  # the greatest number continues at 0
        (batch(0, LAST - 2), batch(5, 2)),
        (batch(0, 0), marker(5), batch(6, 5)),  # transactions of one epoch go on
        (batch(0, 0), marker(5, epoch=1), batch(6, 0, epoch=1)),  # a coordinator that aborts renews the epoch
        (batch(0, NONE, producer=NONE), batch(5, NONE, producer=NONE)),  # nobody numbers them
        (marker(0), batch(1, 9)),
    ],
)
def test_batches_in_sequence_are_right(batches):
    assert found(*batches) == []


@pytest.mark.parametrize(
    ("batches", "wrong"),
    [
        ((batch(0, 0), batch(5, 6)), ("GAP", 5)),
        ((batch(0, 0), batch(5, 5), batch(10, 5), batch(15, 10)), ("REPEATED", 10)),
        ((batch(0, 0), batch(5, 4)), ("REPEATED", 5)),
        ((batch(0, LAST - 4), batch(5, 1)), ("GAP", 5)),
        ((batch(0, 0), batch(5, 0, producer=8), batch(10, 6)), ("GAP", 10)),
        ((batch(0, 0), batch(5, 5, epoch=1)), ("NOT_FROM_ZERO", 5)),
        ((batch(0, 0), marker(5, epoch=1), batch(6, 5, epoch=1)), ("NOT_FROM_ZERO", 6)),
        ((batch(0, 0), marker(5), batch(6, 6)), ("GAP", 6)),
        ((batch(0, 0), batch(5, 0, epoch=1), batch(10, 5)), ("OLD_EPOCH", 10)),
        ((marker(0, epoch=3), batch(1, 0, epoch=2)), ("OLD_EPOCH", 1)),
    ],
)
def test_each_way_to_be_out_of_sequence(batches, wrong):
    assert found(*batches)[:1] == [wrong]


def test_only_where_both_sides_of_a_gap_are_in_the_log_it_is_one():
    held = (batch(0, 0), batch(5, 6))
    assert found(copies={1: (5, held), 2: (6, held)}) == []
    assert found(copies={1: (5, held), 2: (4, held)}) == [("GAP", 5)], "a batch of which the end is there is there"
    assert found(copies={1: (0, held[1:]), 2: (0, held)}) == [("GAP", 5)]


def test_a_compacted_log_is_not_judged_and_one_that_nobody_read_is_not_whole():
    gap = (batch(0, 0), batch(5, 6))
    result = out_of_sequence(history(*gap, compacted=True))
    assert (result.count, result.judged) == (0, 0)
    unread = out_of_sequence(history(*gap, assignment=(1, 2, 3)))
    assert (unread.count, unread.incomplete) == (1, f"the copies of partition {PARTITION} on brokers 3 were not read")
    assert out_of_sequence(history(copies={1: (0, ())}, assignment=(1,))).judged == 0
