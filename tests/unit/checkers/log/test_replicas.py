"""`diverged` on hand-made copies: each bad history with the near miss beside it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.checkers.log.replicas import BEHIND, COMPARED, DIFFERENT, MISSING_THERE, ONLY_THERE, diverged
from prozess.harness.columns import empty_rows
from prozess.harness.interfaces.checking import CopyFacts, PartitionHistory
from prozess.harness.schema import NONE, READS, SENDS, Isolation
from tests.support.cells.partitions import table

NOBODY = np.empty(0, dtype=np.int32)


def batch(base, *, last=None, epoch=0, sequence=NONE, producer=NONE, checksum=7, **more):
    return {
        "base_offset": base,
        "last_offset": base if last is None else last,
        "leader_epoch": epoch,
        "base_sequence": sequence,
        "producer_id": producer,
        "checksum": checksum,
        "records": 1,
        "size": 81,
        **more,
    }


def history(logs, *, sentinel=100, facts=None, assignment=(1, 2, 3), steps=None, compacted=False):
    """`logs`: node → its batches at the end; `steps`: (step, node, batches) of earlier inspections."""
    rows = [(NONE, node, one) for node, batches in logs.items() for one in batches]
    rows += [(step, node, one) for step, node, batches in steps or () for one in batches]
    made = [{"step": step, "node": node, "partition": 4, **one} for step, node, one in rows]
    return PartitionHistory(
        partition=4,
        sends=empty_rows(SENDS),
        reads=empty_rows(READS),
        client_role=NOBODY,
        client_isolation=NOBODY,
        client_issued=NOBODY,
        client_acks=NOBODY,
        audit_end={} if sentinel is None else {Isolation.READ_UNCOMMITTED: sentinel},
        compacted=compacted,
        assignment=assignment,
        copies={node: (facts or {}).get(node, CopyFacts(0, 1000)) for node in logs},
        replicas=table("replicas", made),
    )


SAME = [batch(0, last=2), batch(3), batch(4, epoch=1)]


def found(*arguments, **more):
    result = diverged(history(*arguments, **more))
    assert result.count == len(result.witnesses)
    names = ("case", "log_offset", "reader", "other_client")
    return [tuple(int(w[name]) for name in names) for w in result.witnesses]


def test_copies_that_hold_the_same_batches_agree_whatever_order_they_were_read_in():
    shuffled = [SAME[2], SAME[0], SAME[1]]
    result = diverged(history({1: SAME, 2: SAME, 3: shuffled}))
    assert (result.count, result.judged, result.incomplete) == (0, 9, None)


@pytest.mark.parametrize("column", COMPARED)
def test_one_field_of_one_batch_that_differs_is_found_and_names_the_odd_one_out(column):
    odd = [SAME[0], SAME[1] | {column: 12345}, SAME[2]]
    for node in (1, 2, 3):
        logs = {n: odd if n == node else SAME for n in (1, 2, 3)}
        reference = min(n for n in (1, 2, 3) if n != node)
        assert found(logs) == [(DIFFERENT, 3, node, reference)]


def test_another_leader_epoch_alone_is_a_difference_although_the_checksum_is_the_same():
    # The partition leader epoch is in the header but not under the checksum; followers keep the leader's bytes.
    assert found({1: SAME, 2: [*SAME[:2], batch(4, epoch=2)], 3: SAME}) == [(DIFFERENT, 4, 2, 1)]


def test_a_batch_that_one_copy_lacks_and_one_that_it_alone_has():
    assert found({1: SAME, 2: SAME, 3: SAME[:2]}) == [(MISSING_THERE, 4, 3, 1)]
    assert found({1: SAME, 2: [*SAME, batch(5)], 3: SAME}) == [(ONLY_THERE, 5, 2, 1)]
    assert found({1: SAME, 2: SAME, 3: []}) == [(MISSING_THERE, base, 3, 1) for base in (0, 3, 4)]


def test_the_same_records_in_other_batches_are_a_difference():
    split = [batch(0), batch(1), batch(2), *SAME[1:]]
    cases = [(DIFFERENT, 0, 2, 1), (ONLY_THERE, 1, 2, 1), (ONLY_THERE, 2, 2, 1)]
    assert found({1: SAME, 2: split, 3: SAME}) == cases


def test_what_is_behind_the_sentinel_is_nobodys_promise_and_what_is_before_it_is():
    tail = [*SAME, batch(5, checksum=1)]
    assert found({1: SAME, 2: tail, 3: SAME}, sentinel=4) == []
    assert found({1: SAME, 2: tail, 3: SAME}, sentinel=5) == [(ONLY_THERE, 5, 2, 1)]


def test_without_an_audit_the_least_high_watermark_written_down_bounds_it_and_equality_stays_open():
    odd = [SAME[0], batch(3, checksum=1), SAME[2]]
    low = {node: CopyFacts(0, 1000, watermark) for node, watermark in ((1, 5), (2, 3), (3, 5))}
    assert found({1: SAME, 2: odd, 3: SAME}, sentinel=None, facts=low) == []
    higher = low | {2: CopyFacts(0, 1000, 4)}
    assert found({1: SAME, 2: odd, 3: SAME}, sentinel=None, facts=higher) == [(DIFFERENT, 3, 2, 1)]
    assert found({1: SAME, 2: odd, 3: SAME}, sentinel=None, facts=low | {3: CopyFacts(0, 1000, None)}) == []
    assert diverged(history({1: SAME, 2: SAME, 3: SAME}, sentinel=None, facts=higher)).incomplete


def test_what_retention_took_from_one_copy_is_no_difference():
    rest = SAME[1:]
    late = {1: CopyFacts(0, 1000), 2: CopyFacts(0, 1000), 3: CopyFacts(3, 1000)}
    assert found({1: SAME, 2: SAME, 3: rest}, facts=late) == []
    assert found({1: SAME, 2: SAME, 3: rest}) == [(MISSING_THERE, 0, 3, 1)]


def test_what_was_seen_at_a_step_is_not_what_is_there_in_the_end():
    assert found({1: SAME, 2: SAME, 3: SAME}, steps=[(4, 1, [*SAME, batch(5)])]) == []


def test_a_copy_nobody_read_leaves_it_open_but_hides_no_difference():
    result = diverged(history({1: SAME, 2: SAME}))
    assert (result.count, result.incomplete) == (0, "the copies of partition 4 on brokers 3 were not read")
    assert found({1: SAME, 3: SAME[:1]}) == [(MISSING_THERE, 3, 3, 1), (MISSING_THERE, 4, 3, 1)]
    nothing = diverged(history({}))
    assert (nothing.count, nothing.judged) == (0, 0)
    assert nothing.incomplete is not None


def test_a_single_copy_is_not_judged():
    result = diverged(history({1: SAME}, assignment=(1,)))
    assert (result.count, result.judged, result.incomplete) == (0, 0, None)


def test_copies_of_a_compacted_topic_may_lack_what_was_cleaned_away_and_may_not_contradict_one_another():
    cleaned = [batch(0, last=2, records=1, checksum=99, size=70, attributes=1 << 6), batch(4, epoch=1)]
    assert found({1: SAME, 2: cleaned, 3: SAME[1:]}, compacted=True) == []
    assert diverged(history({1: SAME, 2: cleaned, 3: []}, compacted=True)).judged == 5
    assert found({1: SAME, 2: SAME, 3: [batch(0, last=2, epoch=2)]}, compacted=True) == [(DIFFERENT, 0, 3, 1)]
    assert found({1: SAME, 2: SAME, 3: [batch(0, last=2, attributes=1 << 4)]}, compacted=True) == [(DIFFERENT, 0, 3, 1)]
    assert found({1: SAME, 2: SAME, 3: [batch(1)]}, compacted=True) == [(DIFFERENT, 1, 3, 1)]
    assert found({1: SAME, 2: SAME, 3: [batch(3, last=4)]}, compacted=True) == [
        (DIFFERENT, 3, 3, 1),
        (DIFFERENT, 4, 3, 1),
    ]


def test_a_witness_names_the_sequences_of_both_batches():
    one, other = batch(0, sequence=7, producer=1000), batch(0, sequence=9, producer=1000)
    (witness,) = diverged(history({1: [one], 2: [one], 3: [other]})).witnesses
    assert (witness["sequence"], witness["other_sequence"], witness["partition"]) == (9, 7, 4)
    (missing,) = diverged(history({1: [one], 2: [one], 3: []})).witnesses
    assert (missing["sequence"], missing["other_sequence"]) == (NONE, 7)


LOG = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 1)), unique_by=lambda b: b[0], max_size=8).map(sorted)


@given(
    logs=st.lists(LOG, min_size=2, max_size=3),
    sentinel=st.integers(0, 13),
    starts=st.lists(st.integers(0, 5), min_size=3),
)
def test_it_finds_something_exactly_where_two_copies_differ(logs, sentinel, starts):
    facts = {node: CopyFacts(start, 1000) for node, start in zip((1, 2, 3), starts, strict=False)}
    made = {node: [batch(base, checksum=sum_) for base, sum_ in log] for node, log in enumerate(logs, 1)}
    low = max(facts[node].log_start for node in made)
    cut = [{b for b in log if low <= b[0] <= sentinel} for log in logs]
    odd = {b[0] for one in cut for other in cut for b in one ^ other}
    result = diverged(history(made, sentinel=sentinel, facts=facts, assignment=tuple(made)))
    assert set(result.witnesses["log_offset"].tolist()) == odd
    assert result.judged == sum(len(one) for one in cut)


def test_a_copy_that_ends_early_is_behind_and_that_is_one_finding():
    ends = {node: CopyFacts(0, 5) for node in (1, 2)}
    assert found({1: SAME, 2: SAME, 3: SAME[:1]}, facts=ends | {3: CopyFacts(0, 3)}) == [(BEHIND, 3, 3, 1)]
    assert found({1: SAME, 2: SAME, 3: []}, facts=ends | {3: CopyFacts(0, 0)}) == [(BEHIND, 0, 3, 1)]


def test_a_copy_that_ends_early_and_differs_before_its_end_is_diverged_too():
    ends = {1: CopyFacts(0, 5), 2: CopyFacts(0, 5), 3: CopyFacts(0, 4)}
    odd = [SAME[0], batch(3, checksum=1)]
    assert found({1: SAME, 2: SAME, 3: odd}, facts=ends) == [(DIFFERENT, 3, 3, 1), (BEHIND, 4, 3, 1)]
    hole = [SAME[0]]
    assert found({1: SAME, 2: SAME, 3: hole}, facts=ends) == [(MISSING_THERE, 3, 3, 1), (BEHIND, 4, 3, 1)]
