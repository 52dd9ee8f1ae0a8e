"""Kernels over whole cells against models of transactions and groups: valid ones are clean, what was planted is found."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from prozess.checkers.registry import CHECKERS, select
from prozess.harness.checking.kernels import check_cell
from prozess.harness.interfaces.checking import CellHistory
from tests.support.examples import examples
from tests.support.kafka_model import groups, transactions

QUICK = settings(
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
SEEDS = st.integers(0, 2**32)
OF_TRANSACTIONS = (
    *("torn", "lost-transaction", "zombie-write", "aborted-read", "early-read", "hanging", "unanswered"),
    "not-linearizable",
)
AT_READ_UNCOMMITTED = 1


def counts(history: CellHistory, anomalies: tuple[str, ...]) -> Counter[str]:
    """Anomaly → count. Of what readers were given, only what was at read_committed: nothing else was promised."""
    found: Counter[str] = Counter()
    for finding in check_cell(history, select(anomalies).cell):
        assert "failed" not in (finding.result.incomplete or ""), finding.result.incomplete
        witnesses = finding.result.witnesses
        assert len(witnesses) == finding.result.count
        if finding.anomaly in ("aborted-read", "early-read"):
            witnesses = witnesses[witnesses["case"] != AT_READ_UNCOMMITTED]
        found[finding.anomaly] = len(witnesses)
    return +found


@settings(QUICK, max_examples=examples(400))
@given(SEEDS)
def test_valid_transactions_show_no_anomaly(seed):
    assert counts(transactions.drawn_cell(seed).history(), OF_TRANSACTIONS) == {}


def test_every_anomaly_of_transactions_can_be_planted():
    planted = {name.split()[0] for name in transactions.SPOILERS}
    assert planted == {name for name in OF_TRANSACTIONS if CHECKERS[name].applies(["transactions"])}


@pytest.mark.parametrize("kind", transactions.SPOILERS)
def test_what_was_planted_in_transactions_is_found_exactly(kind):
    planted = 0

    @QUICK
    @given(SEEDS)
    def check(seed):
        nonlocal planted
        cell = transactions.drawn_cell(seed)
        expected = transactions.SPOILERS[kind](cell)
        assume(expected is not None)
        planted += 1
        assert counts(cell.history(), OF_TRANSACTIONS) == Counter(expected)

    check()
    assert planted >= 20


# --- groups ---------------------------------------------------------------------------------------------------------

OF_GROUPS = (
    *(
        "unprocessed",
        "reprocessed",
        "commit-regression",
        "commit-ahead",
        "two-owners",
        "orphaned",
        "unstable",
        "starved",
    ),
)


def beyond_excuse(history: CellHistory) -> Counter[str]:
    """Anomaly → count, without those that have a cause which a valid history knows."""
    found: Counter[str] = Counter()
    for finding in check_cell(history, select(OF_GROUPS).cell):
        assert finding.result.incomplete is None, finding.result.incomplete
        excused = groups.EXCUSED.get(finding.anomaly, set())
        found[finding.anomaly] = sum(case not in excused for case in finding.result.witnesses["case"].tolist())
    return +found


@settings(QUICK, max_examples=examples(400))
@given(SEEDS)
def test_a_valid_group_shows_nothing_that_has_no_cause(seed):
    assert beyond_excuse(groups.drawn_group(seed).history()) == {}


@pytest.mark.parametrize("kind", groups.SPOILERS)
def test_what_was_planted_in_a_group_is_found_exactly(kind):
    planted = 0

    @QUICK
    @given(SEEDS)
    def check(seed):
        nonlocal planted
        group = groups.drawn_group(seed)
        expected = groups.SPOILERS[kind](group)
        assume(expected is not None)
        planted += 1
        assert beyond_excuse(group.history()) == Counter(expected)

    check()
    assert planted >= 20
