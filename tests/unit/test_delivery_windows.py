"""Late and missing records by window of 1 s: counts, and latencies in bins."""

import math
from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from checkers.awake import Stillness
from checkers.delivery import late
from harness.schema import MISSING, NONE
from harness.windows import WINDOW, LateCase, bin_latencies, make_windows, merge_windows, percentiles
from tests.unit.delivery_cells import cell, lives, read, sent, windows
from tests.unit.guarantees_evidence import ns
from tests.unit.histories import FAIL, INFO, OK, PRODUCER, PRODUCER_2, READER


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


@settings(max_examples=60, deadline=None)
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
