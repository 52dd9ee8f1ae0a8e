"""`uncopied` and `remote-left` on hand-made tiers: each that is found has its near miss."""

import pytest

from prozess.checkers.log.tier_progress import TAKEN_DOWN_NS, TRANSACTIONAL, remote_left, uncopied
from prozess.harness.columns import empty_rows
from prozess.harness.interfaces.checking import CopyFacts, PartitionHistory
from prozess.harness.interfaces.witnesses import LeftCase
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.schema import (
    MISSING,
    NONE,
    READS,
    Isolation,
    MetadataKind,
    MetadataSource,
    ObservationKind,
    Outcome,
    RemoteState,
)
from tests.support.cells.partitions import PARTITION, table

COPYING, COPIED, DELETING, DELETED = RemoteState
WITHIN_NS, ALIVE_NS = 100, 1_000
OWN, OTHER = 7, 8
"""Upper halves of ids of topics."""


def segment(first, last, *, state=COPIED, there=True, topic=OWN, current=1, step=NONE, read_ns=ALIVE_NS + 50):
    return {
        "first_offset": first,
        "last_offset": last,
        "state": int(state),
        "stored_size": 10 if there else NONE,
        "topic_id_high": topic,
        "topic_id_low": 1,
        "current": current,
        "step": step,
        "read_ns": read_ns,
    }


def batch(base, last, size, *, node=1, attributes=0):
    more = {"size": size, "node": node, "attributes": attributes, "step": NONE, "read_ns": ALIVE_NS + 50}
    return {"base_offset": base, "last_offset": last, **more}


def sent(offset, completed_ns, *, client=3, outcome=Outcome.OK):
    return {"client": client, "log_offset": offset, "completed_ns": completed_ns, "outcome": int(outcome)}


SENTINEL = sent(99, ALIVE_NS, client=SENTINEL_CLIENT)


def log_start(offset, at_ns):
    return {"kind": int(ObservationKind.LEADER_LOG_START), "time_ns": at_ns, "value": offset}


def of_controllers(kind, at_ns, topic):
    more = {"source": int(MetadataSource.CONTROLLER_LOG), "log_position": at_ns, "topic_id_low": 1}
    return {"kind": int(kind), "time_ns": at_ns, "topic_id_high": topic, **more}


def history(segments=(), batches=(), sends=(SENTINEL,), observations=(), metadata=(), **more):
    nobody = table("clients", [])["client"]
    given = {"tiered": True, "remote_read": True, "segment_bytes": 1000, "log_start": 0} | more
    return PartitionHistory(
        partition=PARTITION,
        sends=table("sends", list(sends)),
        reads=empty_rows(READS),
        client_role=nobody,
        client_isolation=nobody,
        client_issued=nobody,
        client_acks=nobody,
        audit_end={Isolation.READ_UNCOMMITTED: 99},
        assignment=(1, 2),
        copies={1: CopyFacts(0, 100), 2: CopyFacts(0, 50)},
        replicas=table("replicas", list(batches)),
        remote=table("remote_segments", list(segments)),
        observations=table("observations", list(observations)),
        metadata=table("metadata", list(metadata)),
        tier_within_ns=WITHIN_NS,
        **given,
    )


# --- uncopied -----------------------------------------------------------------------------------------------------------

LOG = [batch(0, 9, 900), batch(10, 14, 600), batch(15, 19, 600), batch(20, 24, 100)]


def behind(segments, batches=LOG, sends=None, **more):
    sends = (sent(17, 500), SENTINEL) if sends is None else sends
    result = uncopied(history(segments, batches, sends, **more))
    assert result.count == len(result.witnesses)
    return [tuple(int(w[n]) for n in ("log_offset", "other_offset", "reader", "begin_ns")) for w in result.witnesses]


def test_a_segment_that_was_full_for_long_and_was_not_copied_is_found():
    assert behind([segment(0, 9)]) == [(10, 14, 1, 500)]
    assert behind([]) == [(0, 9, 1, 500)], "since 10 to 14 were appended with 15 to 19 at the latest"
    assert behind([segment(0, 9), segment(10, 14, state=COPYING)]) == [(10, 14, 1, 500)]


def test_what_may_still_be_in_the_active_segment_or_has_just_become_full_is_none():
    assert behind([segment(0, 9), segment(10, 14)]) == []
    assert behind([segment(0, 9)], segment_bytes=1200) == []
    assert behind([segment(0, 9)], segment_bytes=1199) == [(10, 14, 1, 500)]
    assert behind([segment(0, 9)], sends=(sent(17, ALIVE_NS - WITHIN_NS), SENTINEL)) == [(10, 14, 1, 900)]
    assert behind([segment(0, 9)], sends=(sent(17, ALIVE_NS - WITHIN_NS + 1), SENTINEL)) == []


def test_nothing_is_asked_for_that_retention_took_that_is_in_a_transaction_or_that_is_never_copied():
    assert behind([segment(0, 9)], log_start=15) == []
    assert behind([], [batch(10, 14, 600, attributes=TRANSACTIONAL), batch(15, 19, 600)]) == []
    assert behind([segment(0, 9)], segment_bytes=None) == []
    assert behind([segment(0, 9)], tiered=False) == []
    assert behind([segment(0, 9)], sends=(sent(17, 500),)) == [], "nobody knows how long brokers ran"
    assert behind([segment(0, 9, current=0)]) == [(0, 9, 1, 500)], "another topic's"


def test_the_log_that_reaches_furthest_counts_and_a_store_that_was_not_read_proves_nothing():
    assert behind([segment(0, 9)], [*LOG, batch(10, 90, 5000, node=2)]) == [(10, 14, 1, 500)]
    assert uncopied(history([segment(0, 9)], LOG)).judged == 1
    assert "was not read" in (uncopied(history(remote_read=False)).incomplete or "")


# --- remote-left --------------------------------------------------------------------------------------------------------


def left(segments, observations=(), metadata=(), **more):
    result = remote_left(history(segments, observations=observations, metadata=metadata, **more))
    assert result.count == len(result.witnesses)
    found = [(int(w["log_offset"]), int(w["begin_ns"]), LeftCase(w["case"]).name) for w in result.witnesses]
    return found, result.judged


def test_an_object_that_the_log_start_has_passed_is_found_whatever_its_state():
    for state in (COPIED, DELETING, DELETED):
        assert left([segment(0, 9, state=state)], [log_start(20, 500)]) == ([(0, 500, "BELOW_START")], 1)
    assert left([segment(0, 9, there=False)], [log_start(20, 500)]) == ([], 1)


def test_an_object_with_a_record_above_the_log_start_stays_and_one_has_time_to_go():
    assert left([segment(15, 24)], [log_start(20, 500)]) == ([], 0)
    assert left([segment(15, 19)], [log_start(20, 500)])[1] == 1
    assert left([segment(0, 9)], [log_start(0, 100), log_start(10, ALIVE_NS - WITHIN_NS + 1)]) == ([], 0)
    assert left([segment(0, 9, step=3)], [log_start(20, 500)]) == ([], 0)


@pytest.mark.parametrize(("later_ns", "count"), [(0, 1), (1, 0)])
def test_all_objects_of_a_topic_that_was_deleted_go(later_ns, count):
    read_ns = 500 + WITHIN_NS + TAKEN_DOWN_NS
    rows = [segment(0, 9, current=0, read_ns=read_ns), segment(10, 19, current=0, there=False, read_ns=read_ns)]
    deleted = of_controllers(MetadataKind.DELETED, 500 + later_ns, OWN)
    found = [(0, 500, "TOPIC_DELETED")]
    assert left(rows, metadata=[deleted], sends=()) == (found[:count], 2 * count)


def test_of_a_topic_that_was_made_again_the_one_before_it_was_deleted_by_then():
    read_ns = 800 + WITHIN_NS + TAKEN_DOWN_NS
    rows = [segment(0, 9, current=0, topic=OTHER, read_ns=read_ns), segment(0, 9, read_ns=read_ns)]
    made = of_controllers(MetadataKind.PARTITION, 800, OWN)
    assert left(rows, metadata=[made]) == ([(0, 800, "TOPIC_DELETED")], 1)
    assert left(rows) == ([], 0), "nobody knows when"


def test_without_tiered_storage_there_is_nothing_and_a_store_that_was_not_read_proves_nothing():
    assert left([segment(0, 9)], [log_start(20, 500)], tiered=False) == ([], 0)
    assert "was not read" in (remote_left(history(remote_read=False)).incomplete or "")
    assert MISSING not in [begin for _, begin, _ in left([segment(0, 9)], [log_start(20, 500)])[0]]
