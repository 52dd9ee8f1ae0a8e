"""Late and missing records: found, and not the near miss. Times in seconds; the bound is 2 s."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.checkers.reading.lateness import Stillness, late
from prozess.harness.config.configuration import GroupConfiguration, Variant
from prozess.harness.interfaces.witnesses import (
    WINDOW,
    LateCase,
    bin_latencies,
    make_windows,
    merge_windows,
    percentiles,
)
from prozess.harness.plan.cell_work import work_with
from prozess.harness.schema import MISSING, NONE
from tests.support.cells.delivery import END_S, LOG, TRANSACTIONAL, cell, found, lives, read, sent, windows
from tests.support.cells.evidence import ns
from tests.support.cells.partitions import (
    CORRUPT,
    FAIL,
    INFO,
    OK,
    PARTITION,
    PRODUCER,
    PRODUCER_2,
    READER,
    READER_2,
    READER_COMMITTED,
)
from tests.support.examples import examples

# --- late, and missing --------------------------------------------------------------------------------------------------


def test_a_record_that_is_given_after_the_bound_is_late_and_one_just_in_time_is_not():
    assert found(cell(sent(1, 2), read((0, 3.0), (1, 4.001)))) == [(1, LateCase.LATE)]


def test_a_witness_names_the_record_its_reader_and_its_deadline():
    [witness] = late(cell(sent(1), read((0, 4)))).witnesses
    assert (witness["client"], witness["reader"], witness["log_offset"]) == (PRODUCER, READER, 0)
    assert [witness[n] / 1e9 for n in ("begin_ns", "end_ns", "seen_ns", "other_ns")] == [1.0, 1.01, 4.0, 3.0]


def test_an_acknowledged_record_that_nobody_is_given_is_missing():
    assert found(cell(sent(1, 2), read((1, 2.1)))) == [(0, LateCase.MISSING)]


def test_what_was_not_acknowledged_is_owed_to_nobody():
    history = cell(sent((1, INFO), (1.5, FAIL), 2), read((2, 2.1)))
    assert (found(history), late(history).judged) == ([], 1)


def test_what_is_given_without_an_acknowledgement_is_told_apart():
    [window] = late(cell(sent((1, INFO)), read((0, 1.1)))).windows
    assert (window["acknowledged"], window["delivered"], window["unacknowledged"]) == (0, 0, 1)


def test_what_was_sent_before_the_clock_started_is_not_judged():
    history = cell(sent(-3, 1), read((0, 30), (1, 1.1)))
    assert (found(history), sorted(windows(history))) == ([], [1])


def test_a_copy_that_comes_later_does_not_make_a_record_late():
    assert found(cell(sent(1), read((0, 1.1), (0, 50)))) == []


def test_a_record_that_could_not_be_read_was_not_delivered():
    spoiled = [(READER, 0, NONE, NONE, CORRUPT | {"read_ns": ns(1.1)})]
    assert found(cell(sent(1), spoiled)) == [(0, LateCase.MISSING)]


def test_retention_may_have_taken_what_nobody_was_given():
    assert found(cell(sent(1, 2), read((1, 2.1)), log_start=1)) == []
    assert found(cell(sent(1, 2), read((1, 5)), log_start=1)) == [(1, LateCase.LATE)]


# --- several readers ----------------------------------------------------------------------------------------------------


BOTH = {READER: "reader", READER_2: "reader"}
ALL_THREE = [lives(PRODUCER), lives(READER), lives(READER_2)]


def test_every_reader_must_be_given_a_record_and_the_last_one_counts():
    reads = [*read((0, 1.1), (1, 2.2)), *read((0, 1.2), (1, 9), reader=READER_2)]
    history = cell(sent(1, 2), reads, lived=ALL_THREE, roles=BOTH)
    assert found(history) == [(1, LateCase.LATE)]
    result = late(history)
    assert int(result.witnesses["reader"][0]) == READER_2
    assert [round(t / 1e9, 3) for t in result.windows["max_ns"].tolist()] == [0.2, 7.0]
    assert found(cell(sent(1), read((0, 1.1)), lived=ALL_THREE, roles=BOTH)) == [(0, LateCase.MISSING)]


def test_a_reader_that_really_missed_it_counts_whatever_befell_the_other():
    lived = [lives(PRODUCER), lives(READER), lives(READER_2, end_s=1.5, killed=True)]
    assert found(cell(sent(1), [], lived=lived, roles=BOTH)) == [(0, LateCase.MISSING)]
    assert found(cell(sent(1), read((0, 1.1)), lived=lived, roles=BOTH)) == [(0, LateCase.STOOD_STILL)]


def test_who_was_late_is_named_although_one_that_slept_was_given_it_later():
    beats = [t for t in np.arange(-5, END_S, 0.1) if not 10.5 < t < 14]
    lived = [lives(PRODUCER), lives(READER, beats=beats), lives(READER_2)]
    history = cell(sent(10), [*read((0, 15)), *read((0, 13), reader=READER_2)], lived=lived, roles=BOTH)
    assert found(history) == [(0, LateCase.LATE)]
    result = late(history)
    assert int(result.witnesses["reader"][0]) == READER_2
    assert [int(result.witnesses["seen_ns"][0]), int(result.windows["max_ns"][0])] == [ns(15), ns(5)]


def test_of_transactions_only_readers_at_read_committed_count():
    lived = [lives(PRODUCER), lives(READER), lives(READER_COMMITTED)]
    roles = {READER: "reader", READER_COMMITTED: "reader"}
    reads = [*read((0, 1.1)), *read((0, 9), reader=READER_COMMITTED)]
    assert found(cell(sent(1), reads, lived=lived, kind=TRANSACTIONAL, roles=roles)) == [(0, LateCase.LATE)]
    reads = [*read((0, 9)), *read((0, 1.1), reader=READER_COMMITTED)]
    assert found(cell(sent(1), reads, lived=lived, kind=TRANSACTIONAL, roles=roles)) == []


# --- readers and producers that do not measure ------------------------------------------------------------------------


def test_a_late_record_is_not_measured_if_its_reader_slept_that_long():
    def slept(from_s, until_s):
        beats = [t for t in np.arange(-5, END_S, 0.1) if not from_s < t < until_s]
        return [lives(PRODUCER), lives(READER, beats=beats)]

    assert found(cell(sent(10), read((0, 13)), lived=slept(10.5, 12.0))) == [(0, LateCase.STOOD_STILL)]
    assert found(cell(sent(10), read((0, 13)), lived=slept(10.5, 11.2))) == [(0, LateCase.LATE)]
    assert found(cell(sent(10), read((0, 13)), lived=slept(20, 30))) == [(0, LateCase.LATE)]


def test_so_it_is_if_its_producer_slept_between_writing_it_down_and_sending_it():
    beats = [t for t in np.arange(-5, END_S, 0.1) if not 10 < t < 12]
    history = cell(sent(10), read((0, 13)), lived=[lives(PRODUCER, beats=beats), lives(READER)])
    assert found(history) == [(0, LateCase.STOOD_STILL)]


def test_what_was_sent_while_a_reader_was_dead_is_measured_by_its_successor_alone():
    lived = [lives(PRODUCER), lives(READER, end_s=20, killed=True), lives(READER_2, 30, planned=READER)]
    reads = [*read((0, 10.1)), *read((1, 31), (2, 31), (3, 35), reader=READER_2)]
    history = cell(sent(10, 25, 29.5, 31), reads, lived=lived)
    assert found(history) == [(1, LateCase.STOOD_STILL), (3, LateCase.LATE)]


@pytest.mark.parametrize(
    ("end_s", "killed", "expected"),
    [
        (11.9, False, []),
        (12.1, False, [(0, LateCase.MISSING)]),
        (11.9, True, [(0, LateCase.STOOD_STILL)]),
        (9.0, False, [(0, LateCase.STOOD_STILL)]),
    ],
    ids=["it ended in order before the bound", "after the bound", "it was killed", "it had ended before"],
)
def test_what_is_missing_at_the_end_depends_on_how_its_reader_ended(end_s, killed, expected):
    history = cell(sent(10), [], lived=[lives(PRODUCER), lives(READER, end_s=end_s, killed=killed)])
    assert found(history) == expected
    assert late(history).judged == (0 if end_s == 11.9 and not killed else 1)


def test_a_reader_that_never_lived_measured_nothing():
    assert found(cell(sent(10), [], lived=[lives(PRODUCER)])) == [(0, LateCase.STOOD_STILL)]


def test_without_readers_nothing_is_judged():
    result = late(cell(sent(10), [], roles={}))
    assert (result.count, result.judged, len(result.windows)) == (0, 0, 0)


def test_where_the_audit_did_not_end_what_is_late_stands_and_what_is_missing_is_not_told():
    history = cell(sent(1, 2), read((1, 9)), sentinel=None)
    assert found(history) == [(0, LateCase.UNAUDITED), (1, LateCase.LATE)]
    assert "did not reach its sentinel" in str(late(history).incomplete)


def test_times_of_different_clocks_are_not_compared_in_silence():
    history = cell(sent(1), read((0, 1.1)))
    assert late(history).incomplete is None
    history.partitions[PARTITION].client_clock[READER] = 2
    assert "different clocks" in str(late(history).incomplete)


# --- groups -----------------------------------------------------------------------------------------------------------


def group_of(sends, reads, *, reset="earliest", start=0, event=1):
    group = GroupConfiguration(auto_offset_reset=reset)
    kind = LOG.model_copy(update={"workload": "group", "work": work_with(group, Variant())})
    lived = [lives(PRODUCER), lives(READER, end_s=20, killed=True), lives(READER_2)]
    position = {"client": READER, "time_ns": 0, "event": event, "partition": PARTITION, "log_offset": start}
    roles = {READER: "member", READER_2: "member"}
    return cell(sends, reads, kind=kind, lived=lived, roles=roles, positions=[position])


def test_of_a_group_any_member_will_do_and_one_that_dies_is_no_excuse():
    sends = sent(10, 11, 30)
    reads = [*read((0, 10.1)), *read((1, 40), (2, 40), reader=READER_2)]
    assert found(group_of(sends, reads)) == [(1, LateCase.LATE), (2, LateCase.LATE)]
    assert found(group_of(sends, [*read((0, 10.1), (1, 11.1)), *read((2, 30.1), reader=READER_2)])) == []


def test_a_group_owes_nothing_that_stands_before_its_first_position():
    reads = read((2, 30.1), reader=READER_2)
    assert found(group_of(sent(10, 11, 30), reads, reset="latest", start=2)) == []
    assert len(found(group_of(sent(10, 11, 30), reads))) == 2


# ----------------------------------------------------------------------------------------------------------------------
# Late and missing records by window of 1 s: counts, and latencies in bins.


def test_windows_count_by_when_records_were_sent():
    sends = sent(1.0, 1.2, (1.4, INFO), 1.999, 4.0)
    reads = read((0, 1.1), (1, 5), (4, 4.5))
    assert windows(cell(sends, reads)) == {1: (4, 3, 2, 1, 1), 4: (1, 1, 1, 0, 0)}


def test_latencies_are_the_least_that_so_many_do_not_exceed():
    times = [10 + n / 200 for n in range(100)]
    reads = read(*((n, times[n] + (n + 1) / 100) for n in range(100)))
    [window] = late(cell(sent(*times), reads)).windows
    assert [round(window[name] / 1e9, 2) for name in ("p50_ns", "p99_ns", "max_ns")] == [0.5, 0.99, 1.0]


@given(
    st.lists(
        st.lists(st.tuples(st.integers(-3, 4), st.one_of(st.integers(-5, 300), st.integers(0, 2**60))), max_size=40),
        min_size=1,
        max_size=4,
    )
)
def test_percentiles_of_parts_put_together_are_at_most_a_hundredth_too_large_and_never_too_small(parts):
    whole = merge_windows(*zip(*map(counted, parts), strict=True))[0]
    drawn = [pair for part in parts for pair in part]
    assert whole["number"].tolist() == sorted({number for number, _ in drawn})
    for window in whole:
        latencies = sorted(latency for number, latency in drawn if number == window["number"])
        assert (window["delivered"], window["max_ns"]) == (len(latencies), latencies[-1])
        for name, share in (("p50_ns", 0.5), ("p99_ns", 0.99)):
            exact = latencies[max(1, math.ceil(len(latencies) * share)) - 1]
            assert exact <= window[name] <= max(exact + abs(exact) / 100, exact if exact >= 0 else 0)


def counted(part):
    """(windows, latencies) of (window, latency) pairs, all delivered."""
    number, latency_ns = np.array(part, dtype=np.int64).reshape(-1, 2).T
    numbers, place = np.unique(number, return_inverse=True)
    max_ns = np.array([latency_ns[place == n].max() for n in range(len(numbers))], dtype=np.int64)
    binned = bin_latencies(numbers, place, latency_ns)
    counts = {name: np.bincount(place, minlength=len(numbers)) for name in WINDOW.names[1:-3]}
    columns = {"number": numbers, **counts, "max_ns": max_ns} | percentiles(numbers, binned, max_ns)
    return make_windows(columns), binned


def test_a_window_in_which_nothing_was_delivered_has_no_latency():
    [window] = late(cell(sent(1), [])).windows
    assert window["p50_ns"] == window["max_ns"] == MISSING


def test_a_strange_time_costs_no_memory():
    assert sorted(windows(cell(sent(1, 4_000_000_000), read((0, 1.1))))) == [1, 4_000_000_000]


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(0, 20), st.sampled_from((OK, OK, OK, INFO, FAIL)), st.none() | st.floats(0, 6), st.booleans()
        ),
        max_size=25,
    )
)
def test_it_agrees_with_counting_record_by_record(records):
    """Two producers; whoever is given something is awake all the time and ends long after."""
    sends, reads, expected, per_window = [], [], Counter(), Counter()
    numbers = Counter()
    for offset, (at, outcome, delay, second) in enumerate(records):
        client = PRODUCER_2 if second else PRODUCER
        number, invoked_ns = numbers[client], ns(at)
        numbers[client] += 1
        read_ns = None if delay is None else invoked_ns + ns(delay)
        when = {"invoked_ns": invoked_ns, "completed_ns": invoked_ns + 5}
        sends.append((client, number, outcome, offset if outcome == OK else NONE, when))
        if read_ns is not None:
            reads.append((READER, offset, client, number, {"read_ns": read_ns}))
        if outcome == OK:
            per_window[invoked_ns // ns(1)] += 1
            if read_ns is None:
                expected[client, number] = LateCase.MISSING
            elif read_ns - invoked_ns > ns(2):
                expected[client, number] = LateCase.LATE
    made = cell(sends, reads, lived=[lives(PRODUCER), lives(PRODUCER_2), lives(READER)])
    result = late(made)
    assert {(int(w["client"]), int(w["sequence"])): int(w["case"]) for w in result.witnesses} == dict(expected)
    counted = {int(w["number"]): int(w["acknowledged"]) for w in result.windows if w["acknowledged"]}
    assert (counted, result.judged) == (dict(per_window), sum(per_window.values()))


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=8), st.integers(0, 70), st.integers(0, 30))
def test_stillness_counts_every_moment_once(stretches, begin, length):
    begins = np.array([a for a, _ in stretches], dtype=np.int64)
    still = Stillness(begins, begins + np.array([n for _, n in stretches], dtype=np.int64))
    moments = {t for a, n in stretches for t in range(a, a + n)} & set(range(begin, begin + length))
    assert still.within(np.array([begin]), np.array([begin + length])).tolist() == [len(moments)]
