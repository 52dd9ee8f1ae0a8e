"""The order of a log against time: each bad history with its near miss."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from prozess.checkers.log.real_time import time_travel
from prozess.harness.interfaces.checking import KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import RealTimeCase
from prozess.harness.schema import MISSING, NONE
from tests.support.cells.partitions import (
    AUDIT,
    FAIL,
    INFO,
    OK,
    PARTITION,
    PRODUCER,
    PRODUCER_2,
    PRODUCER_ACKS_0,
    PRODUCER_ACKS_1,
    READER,
    READER_2,
    history,
)


def found(result: KernelResult) -> list[tuple[int, int]]:
    assert result.count == len(result.witnesses)
    assert set(result.witnesses["partition"].tolist()) <= {PARTITION}
    return list(zip(result.witnesses["client"].tolist(), result.witnesses["sequence"].tolist(), strict=True))


def at(begin: int, end: int | None) -> dict[str, int]:
    return {"invoked_ns": begin, "completed_ns": MISSING if end is None else end}


def two(first: tuple[int, int | None], second: tuple[int, int | None], *, client: int = PRODUCER, **more: Any) -> Any:
    """`second`, another producer's, stands before `first`. Their times."""
    sends = [(client, 0, OK, 1, at(*first)), (PRODUCER_2, 0, INFO, 0, at(*second))]
    return history(sends=sends, log=[(0, PRODUCER_2, 0), (1, client, 0)], **more)


def test_what_was_sent_after_an_acknowledgement_may_not_stand_before_it():
    result = time_travel(two((10, 20), (21, None)))
    assert found(result) == [(PRODUCER, 0)]
    (witness,) = result.witnesses
    assert (witness["log_offset"], witness["other_client"], witness["other_offset"]) == (1, PRODUCER_2, 0)
    assert (witness["begin_ns"], witness["end_ns"], witness["other_ns"]) == (10, 20, 21)


@pytest.mark.parametrize(("first", "second"), [((10, 20), (20, None)), ((10, 20), (5, 30)), ((10, None), (30, 40))])
def test_sends_that_overlap_may_stand_in_any_order(first, second):
    assert found(time_travel(two(first, second))) == []


def test_acks_0_tells_nothing_of_when_and_acks_1_does():
    assert found(time_travel(two((10, 20), (30, 40), client=PRODUCER_ACKS_0))) == []
    assert found(time_travel(two((10, 20), (30, 40), client=PRODUCER_ACKS_1))) == [(PRODUCER_ACKS_1, 0)]


def test_clients_on_different_or_unknown_clocks_are_not_ordered():
    made = two((10, 20), (30, 40))
    clocks = np.arange(len(made.client_role), dtype=np.int32)
    assert found(time_travel(replace(made, client_clock=clocks))) == []
    assert found(time_travel(replace(made, client_clock=np.empty(0, dtype=np.int32)))) == []


def test_the_first_copy_counts_and_a_second_behind_is_none():
    sends = [(PRODUCER, 0, OK, 0, at(10, 20)), (PRODUCER_2, 0, OK, 1, at(30, 40))]
    log = [(0, PRODUCER, 0), (1, PRODUCER_2, 0), (2, PRODUCER, 0)]
    assert found(time_travel(history(sends=sends, log=log))) == []
    acknowledged_later = [(PRODUCER, 0, OK, 2, at(10, 20)), (PRODUCER_2, 0, OK, 1, at(30, 40))]
    assert found(time_travel(history(sends=acknowledged_later, log=log))) == []


def test_where_cleaning_may_have_taken_first_copies_only_acknowledged_places_count():
    assert found(time_travel(two((10, 20), (30, 40), compacted=True))) == [(PRODUCER, 0)]
    sends = [(PRODUCER, 0, OK, NONE, at(10, 20)), (PRODUCER_2, 0, INFO, NONE, at(30, 40))]
    log = [(0, PRODUCER_2, 0), (1, PRODUCER, 0)]
    assert found(time_travel(history(sends=sends, log=log))) == [(PRODUCER, 0)]
    assert found(time_travel(history(sends=sends, log=log, compacted=True))) == []


# --- reads ----------------------------------------------------------------------------------------------------------


def read(reader: int, offset: int, sender: int, sequence: int, read_ns: int) -> tuple[Any, ...]:
    return reader, offset, sender, sequence, {"read_ns": read_ns, "leader_epoch": 7}


def read_at(
    read_ns: int, *, sent: tuple[int, int | None] = (10, None), before: int = 50, **more: Any
) -> PartitionHistory:
    """The record at 1, sent at these times, is read then; the one in front of it is sent `before` that time."""
    sends = [(PRODUCER, 0, INFO, NONE, at(*sent)), (PRODUCER_2, 0, OK, 0, at(before, 500))]
    log = [(0, PRODUCER_2, 0), (1, PRODUCER, 0)]
    return history(sends=sends, log=log, reads=[read(READER, 1, PRODUCER, 0, read_ns)], **more)


def test_what_is_sent_after_a_read_may_not_stand_before_what_was_read():
    result = time_travel(read_at(49))
    assert found(result) == [(PRODUCER, 0)]
    (witness,) = result.witnesses
    assert witness["case"] == RealTimeCase.READ
    assert (witness["log_offset"], witness["reader"], witness["seen_ns"], witness["leader_epoch"]) == (1, READER, 49, 7)
    assert (witness["other_client"], witness["other_offset"], witness["other_ns"]) == (PRODUCER_2, 0, 50)
    assert found(time_travel(read_at(50))) == []


def test_what_is_read_before_it_is_sent_is_found_wherever_it_stands():
    result = time_travel(read_at(59, sent=(60, 70)))
    assert [(w["client"], w["case"], w["other_ns"], w["other_offset"]) for w in result.witnesses] == [
        (PRODUCER, RealTimeCase.READ_UNSENT, MISSING, NONE)
    ]
    assert found(time_travel(read_at(60, sent=(60, 70)))) == []
    elsewhere = history(sends=[(PRODUCER, 0, FAIL, NONE, at(60, 70))], log=[], reads=[read(READER, 5, PRODUCER, 0, 59)])
    assert found(time_travel(elsewhere)) == [(PRODUCER, 0)], "it is in no log, and was read all the same"


def test_a_record_is_counted_once_and_its_first_reader_named():
    sends = [(PRODUCER, 0, OK, 1, at(10, 20)), (PRODUCER_2, 0, OK, 0, at(50, 60))]
    log = [(0, PRODUCER_2, 0), (1, PRODUCER, 0)]
    given = [read(READER, 1, PRODUCER, 0, 40), read(READER, 1, PRODUCER, 0, 41), read(READER_2, 1, PRODUCER, 0, 39)]
    (witness,) = time_travel(history(sends=sends, log=log, reads=given)).witnesses
    assert witness["case"] == RealTimeCase.ACKNOWLEDGED
    assert (witness["seen_ns"], witness["reader"]) == (39, READER_2)
    sends[0] = (PRODUCER, 0, OK, 1, at(45, 48))
    (witness,) = time_travel(history(sends=sends, log=log, reads=given)).witnesses
    assert (witness["case"], witness["seen_ns"]) == (RealTimeCase.READ_UNSENT, 39)


def test_a_read_of_what_the_log_does_not_have_there_orders_nothing():
    """It may have been cut off, and what was sent later stand where it was: that is a dirty read."""
    sends = [(PRODUCER, 0, INFO, NONE, at(10, None)), (PRODUCER_2, 0, OK, 0, at(50, 60))]
    given = [read(READER, 1, PRODUCER, 0, 40)]
    gone = history(sends=sends, log=[(0, PRODUCER_2, 0)], reads=given)
    assert found(time_travel(gone)) == []
    copied = history(sends=sends, log=[(0, PRODUCER_2, 0), (2, PRODUCER, 0)], reads=given)
    assert found(time_travel(copied)) == [], "it was written again, behind"


def test_of_a_record_that_stands_twice_the_first_copy_counts_before_others_and_each_read_where_it_was():
    sends = [(PRODUCER, 0, OK, 0, at(10, 20)), (PRODUCER_2, 0, OK, 1, at(50, 60))]
    log = [(0, PRODUCER, 0), (1, PRODUCER_2, 0), (2, PRODUCER, 0)]
    assert found(time_travel(history(sends=sends, log=log, reads=[read(READER, 0, PRODUCER, 0, 40)]))) == []
    (witness,) = time_travel(history(sends=sends, log=log, reads=[read(READER, 2, PRODUCER, 0, 40)])).witnesses
    assert (witness["case"], witness["log_offset"], witness["other_ns"]) == (RealTimeCase.READ, 2, 50)


def test_readers_on_another_clock_or_an_unknown_one_are_not_ordered_after_senders():
    made = read_at(49)
    clocks = np.zeros(len(made.client_role), dtype=np.int32)
    clocks[READER] = 1
    assert found(time_travel(replace(made, client_clock=clocks))) == []
    clocks[READER] = NONE
    assert found(time_travel(replace(made, client_clock=clocks))) == []
    clocks[:] = NONE
    clocks[[READER, PRODUCER_2]] = 3
    assert found(time_travel(replace(made, client_clock=clocks))) == [(PRODUCER, 0)], "these two have one clock"


def test_the_audit_reads_too_and_what_it_is_told_to_have_read_without_one_is_no_read():
    sends = [(PRODUCER, 0, OK, 0, at(10**15, 10**15 + 5))]
    made = history(sends=sends, log=[(0, PRODUCER, 0)])
    (witness,) = time_travel(made).witnesses
    assert (witness["case"], witness["reader"]) == (RealTimeCase.READ_UNSENT, AUDIT)
    assert found(time_travel(replace(made, audited=False))) == []


@pytest.mark.parametrize(("client", "expected"), [(PRODUCER_2, [(PRODUCER, 0)]), (PRODUCER_ACKS_1, [])])
def test_without_an_audit_only_what_all_replicas_acknowledged_or_somebody_read_certainly_stands(client, expected):
    sends = [(PRODUCER, 0, INFO, NONE, at(10, None)), (client, 0, OK, 0, at(50, 60))]
    log, given = [(0, client, 0), (1, PRODUCER, 0)], [read(READER, 1, PRODUCER, 0, 40)]
    made = replace(history(sends=sends, log=log, reads=given), audited=False, audit_end={})
    assert found(time_travel(made)) == expected
    seen = [*given, read(READER_2, 0, client, 0, 70)]
    made = replace(history(sends=sends, log=log, reads=seen), audited=False, audit_end={})
    assert found(time_travel(made)) == [(PRODUCER, 0)]


def test_acks_say_nothing_of_reads():
    sends = [(PRODUCER_ACKS_0, 0, OK, NONE, at(10, 20)), (PRODUCER_ACKS_0, 1, OK, NONE, at(50, 60))]
    log = [(0, PRODUCER_ACKS_0, 1), (1, PRODUCER_ACKS_0, 0)]
    result = time_travel(history(sends=sends, log=log, reads=[read(READER, 1, PRODUCER_ACKS_0, 0, 40)]))
    assert found(result) == [(PRODUCER_ACKS_0, 0)]


@pytest.mark.parametrize("length", [10, 10_000])
def test_reads_in_stretches_are_judged_as_single_ones(length):
    """Long stretches of reads are compared as slices of the log."""
    times = [at(100 * n, 100 * n + 5) for n in range(length)]
    times[3] = at(100 * length, 100 * length + 5)
    sends = [(PRODUCER, n, OK, n, times[n]) for n in range(length)]
    log = [(n, PRODUCER, n) for n in range(length)]
    given = [read(READER, n, PRODUCER, n, 100 * n + 7) for n in range(length)]
    result = time_travel(history(sends=sends, log=log, reads=given, sentinel=length))
    cases = result.witnesses["case"].tolist()
    assert result.witnesses["log_offset"].tolist() == list(range(3, length))
    assert cases == [RealTimeCase.READ_UNSENT] + [RealTimeCase.ACKNOWLEDGED] * (length - 4)
    assert result.judged == length + length + 2 * length, "acknowledgements, a reader, and two audits"
