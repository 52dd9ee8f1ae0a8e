"""Kernels of compaction: small histories that show an anomaly, and their near misses."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.checkers.log.compaction import compacted_away, tombstone_lost
from prozess.checkers.log.losses import lost
from prozess.harness.schema import NONE
from tests.support.cells.partitions import FAIL, INFO, OK, PRODUCER, history
from tests.support.examples import examples

TOMBSTONE = NONE
K, OTHER = {"key": 1}, {"key": 2}
DEAD = {"key": 1, "size": TOMBSTONE}


def sent(*rows: tuple[int, int, dict[str, int]]) -> list[tuple[int, int, int, int, dict[str, int]]]:
    """(outcome, offset, columns) of one producer, in order."""
    return [(PRODUCER, number, outcome, offset, columns) for number, (outcome, offset, columns) in enumerate(rows)]


CLEANED = [(OK, 0, OTHER), (OK, 1, OTHER)]
"""Two records of another key, of which the log keeps the later: proof that the cleaner ran."""
REST = (1, PRODUCER, 1, OTHER)


def test_the_last_value_of_a_key_that_is_gone_was_compacted_away():
    result = compacted_away(history(sent(*CLEANED, (OK, 2, K)), [REST], compacted=True))
    assert (result.count, result.judged, result.incomplete) == (1, 2, None)
    assert (result.witnesses["sequence"][0], result.witnesses["log_offset"][0]) == (2, 2)


def test_an_older_value_of_the_key_does_not_replace_the_last_one():
    sends = sent(*CLEANED, (OK, 2, K), (OK, 3, K))
    result = compacted_away(history(sends, [REST, (2, PRODUCER, 2, K)], compacted=True))
    assert result.count == 1
    assert (result.witnesses["log_offset"][0], result.witnesses["other_offset"][0]) == (3, 2)


def test_a_later_value_of_the_key_may_replace_the_last_acknowledged_one():
    sends = sent(*CLEANED, (OK, 2, K), (INFO, NONE, K))
    assert compacted_away(history(sends, [REST, (3, PRODUCER, 3, K)], compacted=True)).count == 0


@pytest.mark.parametrize("tombstone", [(OK, 3, DEAD), (OK, NONE, DEAD), (INFO, NONE, DEAD)])
def test_a_key_that_was_or_may_have_been_deleted_may_be_gone(tombstone):
    sends = sent(*CLEANED, (OK, 2, K), tombstone)
    assert compacted_away(history(sends, [REST], compacted=True)).count == 0
    assert lost(history(sends, [REST], compacted=True)).count == 0


def test_a_tombstone_that_certainly_failed_excuses_nothing():
    sends = sent(*CLEANED, (OK, 2, K), (FAIL, NONE, DEAD))
    assert compacted_away(history(sends, [REST], compacted=True)).count == 1
    assert lost(history(sends, [REST], compacted=True)).count == 1


def test_a_tombstone_before_the_last_value_excuses_nothing():
    sends = sent(*CLEANED, (OK, 2, DEAD), (OK, 3, K))
    assert compacted_away(history(sends, [REST], compacted=True)).count == 1
    assert lost(history(sends, [REST], compacted=True)).count == 1


def test_a_value_before_a_tombstone_that_is_gone_is_a_lost_tombstone():
    sends = sent(*CLEANED, (OK, 2, K), (OK, 3, DEAD))
    result = tombstone_lost(history(sends, [REST, (2, PRODUCER, 2, K)], compacted=True))
    assert (result.count, result.judged, result.incomplete) == (1, 1, None)
    assert (result.witnesses["log_offset"][0], result.witnesses["other_offset"][0]) == (3, 2)


@pytest.mark.parametrize(
    "log",
    [
        pytest.param([REST], id="both are gone"),
        pytest.param([REST, (2, PRODUCER, 2, K), (3, PRODUCER, 3, K)], id="the tombstone is there"),
        pytest.param([REST, (2, PRODUCER, 2, K), (4, PRODUCER, 4, K)], id="a later value is there"),
    ],
)
def test_a_deleted_key_is_judged_by_what_stands_behind(log):
    sends = sent(*CLEANED, (OK, 2, K), (OK, 3, DEAD), (OK, 4, K))
    assert tombstone_lost(history(sends, log, compacted=True)).count == 0


@pytest.mark.parametrize("kernel", [compacted_away, tombstone_lost])
def test_where_the_cleaner_did_not_run_nothing_is_concluded(kernel):
    sends = sent(*CLEANED, (OK, 2, K), (OK, 3, DEAD))
    log = [(0, PRODUCER, 0, OTHER), REST, (2, PRODUCER, 2, K), (3, PRODUCER, 3, K)]
    assert "compaction did not run: 0 of 2" in (kernel(history(sends, log, compacted=True)).incomplete or "")


@pytest.mark.parametrize("kernel", [compacted_away, tombstone_lost])
def test_without_a_complete_audit_nothing_is_concluded(kernel):
    result = kernel(history(sent(*CLEANED, (OK, 2, K)), [REST], compacted=True, sentinel=None))
    assert result.count == 0
    assert "sentinel" in (result.incomplete or "")


@pytest.mark.parametrize("kernel", [compacted_away, tombstone_lost])
def test_a_topic_that_is_not_compacted_is_not_judged(kernel):
    result = kernel(history(sent(*CLEANED, (OK, 2, K)), [REST]))
    assert (result.count, result.judged, result.incomplete) == (0, 0, None)


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 6), st.floats(0, 1))
def test_an_honest_cleaner_is_never_accused_and_a_dishonest_one_always_is(seed, keys, share):
    """A model: any record with a later one of its key may go, and a tombstone after it too."""
    rng = random.Random(seed)
    rows = [(rng.randrange(keys), rng.random() < share) for _ in range(40)]
    sends = sent(*((OK, at, {"key": key, "size": TOMBSTONE if dead else 100}) for at, (key, dead) in enumerate(rows)))
    last = {key: at for at, (key, _) in enumerate(rows)}
    kept = [at for at, (key, dead) in enumerate(rows) if at == last[key] and not (dead and rng.random() < 0.5)]
    log = [(at, PRODUCER, at, {"key": rows[at][0]}) for at in kept]
    for kernel in (compacted_away, tombstone_lost, lost):
        assert kernel(history(sends, log, compacted=True)).count == 0, kernel
    living = [at for at in kept if not rows[at][1]]
    if living:
        gone = rng.choice(living)
        result = compacted_away(history(sends, [row for row in log if row[0] != gone], compacted=True))
        assert result.witnesses["log_offset"].tolist() == [gone]
    dead = [at for at in kept if rows[at][1] and any(rows[b][0] == rows[at][0] for b in range(at))]
    if dead:
        gone = rng.choice(dead)
        older = next(b for b in range(gone) if rows[b][0] == rows[gone][0])
        log = sorted([row for row in log if row[0] != gone] + [(older, PRODUCER, older, {"key": rows[gone][0]})])
        assert tombstone_lost(history(sends, log, compacted=True)).witnesses["log_offset"].tolist() == [gone]


def test_no_rows_at_all_are_no_finding():
    for kernel in (compacted_away, tombstone_lost):
        result = kernel(history(compacted=True))
        assert (result.count, result.judged) == (0, 0)
        assert isinstance(result.witnesses, np.ndarray)
