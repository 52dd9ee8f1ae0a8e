"""Answers to look-ups by time: the right ones pass, and each wrong one is found."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.checkers.log.time_lookups import LOG_APPEND_TIME, mistimed
from prozess.harness.interfaces.witnesses import LookupCase
from prozess.harness.schema import NONE, REMOTE_STORE, REPLICAS, ObservationKind
from tests.support.cells.partitions import PARTITION, make

NODE, OTHER = 1, 2


def batch(base, last, first_ms, greatest_ms, *, node=NODE, appended=False, step=NONE):
    return dict.fromkeys(REPLICAS.column_names, 0) | {
        "base_offset": base,
        "last_offset": last,
        "base_timestamp_ms": first_ms,
        "max_timestamp_ms": greatest_ms,
        "node": node,
        "attributes": LOG_APPEND_TIME if appended else 0,
        "step": step,
        "partition": PARTITION,
        "read_ns": 99,
    }


def asked(wanted_ms, found, *, at_ns=50, node=NODE):
    same = {"time_ns": at_ns, "node": node, "partition": PARTITION, "step": NONE}
    kinds = ((ObservationKind.TIME_ASKED, wanted_ms), (ObservationKind.TIME_FOUND, found))
    return [{**same, "kind": int(kind), "value": value} for kind, value in kinds]


def watermark(value, *, at_ns=10, node=NODE):
    kind = int(ObservationKind.LEADER_HIGH_WATERMARK)
    return {"time_ns": at_ns, "node": node, "partition": PARTITION, "kind": kind, "value": value, "step": NONE}


def result_of(batches, *observations, **more):
    rows = [row for group in observations for row in (group if isinstance(group, list) else [group])]
    given = {"compacted": False, "log_start": 0} | more
    return mistimed(make([], [], ends={}, issued={}, replicas=batches, observations=rows, **given))


LOG = [batch(0, 4, 60, 100), batch(5, 9, 80, 90), batch(10, 14, 150, 200)]
"""The greatest timestamps of its batches do not ascend, as those of clients do not that send at the same time."""


def found(*observations, log=LOG, **more):
    result = result_of(log, *observations, **more)
    assert result.count == len(result.witnesses)
    return [(int(w["log_offset"]), int(w["other_offset"]), int(w["case"])) for w in result.witnesses]


@pytest.mark.parametrize(
    ("wanted_ms", "answer"),
    [(0, 0), (60, 0), (61, 1), (100, 4), (101, 10), (150, 10), (151, 12), (200, 14), (201, NONE)],
)
def test_the_first_record_late_enough_is_right(wanted_ms, answer):
    assert found(asked(wanted_ms, answer), watermark(15)) == []


@pytest.mark.parametrize(
    ("wanted_ms", "answer", "case"),
    [
        (101, 5, LookupCase.EARLIER),
        (201, 14, LookupCase.EARLIER),
        (95, 5, LookupCase.PAST),
        (95, 10, LookupCase.PAST),
        (60, 1, LookupCase.PAST),
        (200, NONE, LookupCase.NOTHING),
    ],
)
def test_every_other_one_is_not(wanted_ms, answer, case):
    assert [one for *_, one in found(asked(wanted_ms, answer), watermark(15))] == [case]


def test_what_no_header_says_is_not_judged():
    assert found(asked(61, 3)) == [], "which record of the batch it is"
    assert found(asked(0, 400)) == [], "what is in no log any more"
    assert result_of(LOG, asked(0, 400)).judged == 0


def test_with_the_leaders_time_all_records_of_a_batch_have_its_greatest():
    log = [batch(0, 4, 60, 100, appended=True)]
    assert found(asked(90, 0), log=log) == []
    assert found(asked(90, 3), log=log) == [(3, 0, LookupCase.PAST)]


def test_nothing_may_be_found_before_the_broker_had_answered_a_high_watermark_beyond_it():
    none = asked(200, NONE)
    assert found(none) == []
    assert found(none, watermark(14)) == []
    assert found(none, watermark(15, at_ns=51)) == []
    assert found(none, watermark(15, node=OTHER)) == []
    assert found(none, watermark(15)) == [(NONE, 10, LookupCase.NOTHING)]


def test_the_longest_copy_counts_and_what_was_inspected_before_does_not():
    longer = [*LOG, *(row | {"node": OTHER} for row in LOG), batch(15, 15, 300, 300, node=OTHER)]
    assert found(asked(300, 15), log=longer) == []
    assert found(asked(300, 15), log=[*LOG, batch(15, 15, 300, 300, step=3)]) == []
    assert [case for *_, case in found(asked(300, 10), log=longer)] == [LookupCase.EARLIER]


def test_records_below_the_log_start_were_perhaps_there_when_the_leader_was_asked():
    assert found(asked(60, 7), log_start=7) == []
    assert [case for *_, case in found(asked(60, 10), log_start=7)] == [LookupCase.PAST]


def test_compacted_topics_are_not_judged_and_without_copies_nothing_is_known():
    assert result_of(LOG, asked(101, 5), compacted=True).judged == 0
    assert result_of([], asked(101, 5)).incomplete == "no copy of its log was read"
    assert (result_of([]).judged, result_of([]).incomplete) == (0, None)


@given(
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=6),
    times=st.lists(st.integers(0, 20), min_size=18, max_size=18),
    wanted_ms=st.integers(0, 21),
    answer=st.integers(-1, 17),
)
@settings(max_examples=200, deadline=None)
def test_it_agrees_with_a_search_of_record_by_record(sizes, times, wanted_ms, answer):
    ends = np.cumsum(sizes).tolist()
    records = times[: ends[-1]]
    if answer >= len(records):
        return
    bounds = list(zip([0, *ends[:-1]], ends, strict=True))
    log = [batch(a, b - 1, records[a], max(records[a:b])) for a, b in bounds]
    right = next((n for n, ms in enumerate(records) if ms >= wanted_ms), NONE)
    got = found(asked(wanted_ms, answer), watermark(len(records)), log=log)
    of = {offset: number for number, (a, b) in enumerate(bounds) for offset in range(a, b)}
    undecided = right != NONE and answer != NONE and of[right] == of[answer] and right != bounds[of[right]][0]
    assert bool(got) is (answer != right and not undecided)


def test_what_the_remote_store_has_stands_in_front_of_the_brokers_own_log():
    own = [batch(10, 14, 150, 200), batch(15, 19, 210, 220)]
    remote = [batch(base, base + 4, at, at + 20, node=REMOTE_STORE) for base, at in ((0, 60), (5, 110), (10, 150))]
    right = [asked(ms, offset, at_ns=ms) for ms, offset in ((60, 0), (85, 5), (110, 5), (210, 15))]
    assert result_of(own + remote, *right).judged == 4
    assert found(*right, log=own + remote) == []
    # Without the store nobody knows what is in front of 10, and an answer there is judged by nobody.
    assert found(asked(85, 0), log=own + remote) == [(0, 5, LookupCase.EARLIER)]
    assert result_of(own, asked(85, 0)).judged == 0


def test_of_a_log_that_is_in_the_remote_store_alone_its_batches_count_once():
    remote = [batch(0, 4, 60, 100, node=REMOTE_STORE), batch(5, 9, 110, 120, node=REMOTE_STORE)]
    assert found(asked(60, 5), log=remote) == [(5, 0, LookupCase.PAST)]
