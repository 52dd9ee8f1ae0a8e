"""What faults cost: rates and latencies by phase, windows without an acknowledgement, and who caused them; parts add up."""

import random
from dataclasses import fields
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.harness.clock import NS_PER_S
from prozess.harness.impact.cost import (
    NO_FAULT,
    PHASES,
    UNAVAILABLE_NS,
    WARM_UP,
    FaultTime,
    impact_of,
    join_impacts,
    no_impact,
    summarise,
)
from prozess.harness.report.tables import impact_words
from prozess.harness.schema import MISSING, Outcome
from tests.support.examples import examples

ACKS = np.array([0, -1, 1, 0], dtype=np.int32)
ALL, ONE, ZERO = 1, 2, 3
MS = NS_PER_S // 1000


def sends(*rows):
    """(client, invoked ms, completed ms or None = never)."""
    client, invoked, completed = zip(*rows, strict=True) if rows else ((), (), ())
    done = [MISSING if c is None else c * MS for c in completed]
    return {
        "client": np.array(client, dtype=np.int32),
        "invoked_ns": np.array(invoked, dtype=np.int64) * MS,
        "completed_ns": np.array(done, dtype=np.int64),
        "outcome": np.array([Outcome.INFO if c is None else Outcome.OK for c in completed], dtype=np.int32),
    }


def impact(partition, columns, *more, cuts=(), **named):
    """Of these rows, cut there."""
    bounds = [0, *sorted(cuts), len(columns["client"])]
    parts = [{name: c[a:b] for name, c in columns.items()} for a, b in pairwise(bounds)]
    return impact_of(partition, lambda: parts, *more, **named)


def fault(number, begin_ms, over_ms, nodes=()):
    return FaultTime(number, begin_ms * MS, None if over_ms is None else over_ms * MS, frozenset(nodes))


def every(begin_ms, end_ms, step_ms, took_ms, client=ALL):
    return [(client, at, at + took_ms) for at in range(begin_ms, end_ms, step_ms)]


def windows(found):
    return [
        (w["begin_ns"] // MS, None if w["end_ns"] == MISSING else w["end_ns"] // MS, int(w["fault"])) for w in found
    ]


def test_rates_and_latencies_are_of_the_phase_in_which_records_were_sent():
    rows = [*every(0, 10_000, 100, 4), *every(10_000, 12_000, 100, 500), *every(12_000, 22_000, 50, 8)]
    one = fault(7, 10_000, 12_000)
    shown = summarise(impact(3, sends(*rows), ACKS, [one]), [one], {7: "kill 1"})
    before, during, after = shown.faults[0].phases
    assert [p.phase for p in (before, during, after)] == list(PHASES)
    assert (before.acks, before.per_s) == ("all", pytest.approx(10, rel=0.02))
    assert after.per_s == pytest.approx(20, rel=0.05)
    for phase, expected in ((before, 4), (during, 500), (after, 8)):
        assert phase.p50_ms == pytest.approx(expected, rel=0.021)
        assert phase.p99_ms == pytest.approx(expected, rel=0.021)


def test_a_window_reaches_from_the_first_send_that_waits_to_the_next_acknowledgement_and_names_its_fault():
    rows = [*every(0, 5_000, 100, 4), (ALL, 5_000, 8_000), *every(8_050, 9_000, 100, 4)]
    struck = [fault(1, 100, 200), fault(2, 4_990, 7_000)]
    found = impact(3, sends(*rows), ACKS, struck)
    assert windows(found.windows) == [(5_000, 8_000, 2)]
    assert windows(impact(3, sends(*rows), ACKS, []).windows) == [(5_000, 8_000, NO_FAULT)]


def test_of_two_faults_the_one_that_touched_the_partitions_brokers_is_the_cause():
    rows = [(ALL, 0, 4), (ALL, 1_000, 9_000)]
    struck = [fault(1, 900, 9_000, nodes={5}), fault(2, 950, 3_000, nodes={1, 2})]
    assert windows(impact(3, sends(*rows), ACKS, struck, assignment=(2, 3)).windows) == [(1_000, 9_000, 2)]
    assert windows(impact(3, sends(*rows), ACKS, struck, assignment=(4,)).windows) == [(1_000, 9_000, 1)]


def test_what_lasts_until_the_first_acknowledgement_of_all_is_warm_up_and_not_unexplained():
    rows = [*every(0, 4_000, 100, 5_000), *every(9_000, 9_500, 10, 2), (ALL, 9_600, None), (ALL, 12_000, 12_003)]
    found = impact(3, sends(*rows), ACKS, [])
    assert windows(found.windows)[0] == (0, 5_000, WARM_UP)
    shown = summarise(found, [], {})
    assert (shown.windows_warm_up, shown.windows_unexplained) == (1, shown.windows_counted)
    assert "1 more, while clients warmed up, are not counted" in impact_words(shown)
    assert all(window.begin_s > 4 for window in shown.windows)


def test_what_no_fault_explains_and_began_before_the_schedule_is_warm_up():
    rows = [(ALL, 0, 2), (ALL, 1_000, 4_000), (ALL, 6_000, 9_000)]
    found = impact(3, sends(*rows), ACKS, [])
    told = [summarise(found, [], {}, schedule_ns=at and at * MS) for at in (None, 500, 5_000, 7_000)]
    assert [(t.windows_warm_up, t.windows_unexplained) for t in told] == [(0, 2), (0, 2), (1, 1), (2, 0)]


def test_a_fault_explains_what_lasts_until_the_first_acknowledgement_and_without_one_it_is_open():
    rows = every(0, 4_000, 100, 5_000)
    struck = [fault(2, 1_000, 3_000)]
    assert windows(impact(3, sends(*rows), ACKS, struck).windows) == [(0, 5_000, 2)]
    never = [(ALL, at, None) for at in range(0, 4_000, 100)]
    assert windows(impact(3, sends(*never), ACKS, []).windows) == [(0, None, NO_FAULT)]


def test_who_sends_nothing_misses_nothing_and_who_is_never_answered_has_an_open_window():
    pause = [(ALL, 0, 4), (ALL, 60_000, 60_004)]
    assert windows(impact(3, sends(*pause), ACKS, []).windows) == []
    silent = [(ALL, 0, 4), (ALL, 1_000, None), (ALL, 5_000, None)]
    found = impact(3, sends(*silent), ACKS, [])
    assert windows(found.windows) == [(1_000, None, NO_FAULT)]
    shown = summarise(found, [], {})
    assert (shown.windows_counted, shown.windows_open, shown.windows_unexplained) == (1, 1, 1)
    assert shown.windows[0].end_s is None
    assert windows(impact(3, sends(*[*silent[:2], (ALL, 1_500, None)]), ACKS, []).windows) == []


def test_time_to_the_first_success_counts_from_what_was_sent_since():
    rows = [(ALL, 0, 6_000), (ALL, 4_000, 6_500), (ALL, 7_100, 7_300)]
    one = fault(1, 3_000, 7_000)
    shown = summarise(impact(3, sends(*rows), ACKS, [one]), [one], {}).faults[0]
    assert shown.after_fault.slowest_ms == 3_500
    assert shown.after_heal.slowest_ms == 300
    late = fault(1, 8_000, None)
    shown = summarise(impact(3, sends(*rows), ACKS, [late]), [late], {}).faults[0]
    assert (shown.after_fault.partitions, shown.after_fault.never, shown.after_heal.partitions) == (1, 1, 0)
    assert [p.phase for p in shown.phases] == ["before"]


def test_who_does_not_wait_for_an_answer_is_not_looked_at():
    found = impact(
        3, sends(*every(0, 100, 10, 0, client=ZERO), (99, 0, 5_000), (-5, 0, 5_000)), ACKS, [fault(1, 0, 50)]
    )
    assert not found.acknowledged.any()
    assert not found.latencies.any()
    assert len(found.windows) == len(found.recoveries) == 0


def test_levels_of_acks_are_apart():
    found = impact(3, sends(*every(0, 1_000, 10, 4), *every(0, 1_000, 20, 2, client=ONE)), ACKS, [fault(1, 500, 600)])
    assert {(p.acks, p.phase): p.acknowledged for p in summarise(found, [fault(1, 500, 600)], {}).faults[0].phases} == {
        ("1", "before"): 25,
        ("1", "during"): 5,
        ("1", "after"): 20,
        ("all", "before"): 50,
        ("all", "during"): 10,
        ("all", "after"): 40,
    }


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 2**32))
def test_windows_and_counts_are_those_of_their_definitions(seed):
    rng = random.Random(seed)
    rows, at = [], 0
    for _ in range(rng.randrange(40)):
        at += rng.choice((10, 50, 400, 1_500))
        rows.append((rng.choice((ALL, ONE)), at, rng.choice((None, at + 5, at + 5, at + rng.randrange(1, 4_000)))))
    struck = [fault(n, begin, rng.choice((None, begin + 900))) for n, begin in enumerate(rng.sample(range(5_000), 2))]
    columns = sends(*rng.sample(rows, len(rows)))
    found = impact(3, columns, ACKS, struck)
    cut = impact(3, columns, ACKS, struck, cuts=[rng.randrange(len(rows) + 1) for _ in range(rng.randrange(5))])
    assert all((getattr(cut, f.name) == getattr(found, f.name)).all() for f in fields(found)), "wherever it is cut"
    assert windows(found.windows) == [(*w, found.windows["fault"][n]) for n, w in enumerate(defined_windows(rows))]
    for place, one in enumerate(struck):
        for number, name in enumerate(PHASES):
            span = one.phase(name)
            inside = [r for r in rows if r[2] is not None and span and span[0] <= r[2] * MS < span[1]]
            assert found.acknowledged[place, number].sum() == len(inside)
    parts = [impact(p, sends(*rows), ACKS, struck) for p in (4, 3)]
    whole, again = join_impacts(parts, struck), join_impacts(parts[::-1], struck)
    assert summarise(whole, struck, {}) == summarise(again, struck, {})
    assert (whole.latencies == 2 * found.latencies).all()
    assert summarise(join_impacts([], struck), struck, {}) == summarise(no_impact(struck), struck, {})


def defined_windows(rows):
    """Of every acknowledgement (and of the beginning): the first send after it, and the next acknowledgement."""
    acknowledged = sorted(r[2] for r in rows if r[2] is not None)
    found = []
    for last, following in zip([-(10**9), *acknowledged], [*acknowledged, None], strict=True):
        tried = [r[1] for r in rows if r[1] > last]
        until = following if following is not None else max((r[1] for r in rows), default=0)
        if tried and min(tried) < until and until - min(tried) >= UNAVAILABLE_NS // MS:
            found.append((min(tried), following))
    return found


def test_of_clients_that_do_not_tell_when_they_sent_only_what_was_acknowledged_is_counted():
    one = fault(7, 10_000, 12_000)
    timed, guessed = every(0, 22_000, 100, 5, client=ALL), every(0, 22_000, 100, 9_000, client=ALL + 10)
    acks = np.append(ACKS, [ACKS[ALL]] * (ALL + 11 - len(ACKS)))
    both = summarise(impact(3, sends(*timed, *guessed), acks, [one], untimed=[ALL + 10]), [one], {}).faults[0]
    alone = summarise(impact(3, sends(*timed), acks, [one]), [one], {}).faults[0]
    assert both.phases[0].acknowledged > alone.phases[0].acknowledged
    assert both.phases[0].p99_ms == alone.phases[0].p99_ms
    assert (both.longest_s, both.after_fault) == (alone.longest_s, alone.after_fault)
    only = summarise(impact(3, sends(*guessed), acks, [one], untimed=[ALL + 10]), [one], {}).faults[0]
    assert only.phases[0].p50_ms is None
    assert only.windows == 0


def test_what_was_sent_during_a_fault_and_never_acknowledged_is_counted():
    rows = [*every(0, 900, 100, 4), (ALL, 1_100, None), (ALL, 1_200, 1_300), (ALL, 1_400, None), (ZERO, 1_500, None)]
    rows += [(ALL, 2_500, None)]
    found = summarise(impact(3, sends(*rows), ACKS, [fault(1, 1_000, 2_000)]), [fault(1, 1_000, 2_000)], {})
    assert found.faults[0].unanswered == 2
