"""All kernels over partitions against a model of Kafka: valid histories are clean, and what was planted is found, exactly."""

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from prozess.checkers.registry import select
from prozess.harness.checking.kernels import check_partition
from prozess.harness.interfaces.checking import Finding, KernelResult, PartitionHistory
from prozess.harness.schema import MISSING, NONE, Outcome
from tests.support.anomalies import OF_PARTITIONS
from tests.support.examples import ALL, examples
from tests.support.kafka_model import compaction
from tests.support.kafka_model.anomalies import KINDS, Spoiler
from tests.support.kafka_model.definitions import epochs_fall, time_travel, under_acknowledged
from tests.support.kafka_model.partition import epoch_at, facts

KERNELS = select(OF_PARTITIONS).kernels
PLANTED_MIN = 20 if ALL else 7
QUICK = settings(
    max_examples=2 * PLANTED_MIN,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


def findings(history: PartitionHistory) -> list[Finding]:
    """Of every kernel; a kernel that crashed has an `incomplete` of its own kind, which no other may use."""
    found = check_partition(history, KERNELS)
    for finding in found:
        assert "failed" not in (finding.result.incomplete or ""), finding.result.incomplete
        assert len(finding.result.witnesses) == finding.result.count
        assert (finding.result.witnesses["partition"] == history.partition).all()
    return found


def with_squares(history: PartitionHistory, planted: Mapping[str, int]) -> Counter[str]:
    """What was planted, and what that must show of anomalies which any record out of its place brings about."""
    squares = {
        "time-travel": time_travel(history),
        "under-acknowledged": under_acknowledged(history),
        "epoch-regression": epochs_fall(history),
    }
    return +(Counter(planted) + Counter(squares))


def counts(history: PartitionHistory) -> Counter[str]:
    """Anomaly → count, those found. `unreported` is no kind of its own here: with acks=0 nobody hears of what is lost."""
    found = findings(history)
    results = {f.anomaly: f.result for f in found}
    lost, unreported = results["lost"].witnesses, results["unreported"]
    unheard = lost[(history.client_acks[lost["client"]] == 0) & (lost["outcome"] == Outcome.OK)]
    _told_epochs(results)
    told, expected = (set(w[["client", "sequence"]].tolist()) for w in (unreported.witnesses, unheard))
    assert told == expected or (unreported.incomplete is not None and told < expected)
    return Counter({f.anomaly: f.result.count for f in found if f.result.count and f.anomaly != "unreported"})


def _told_epochs(results: Mapping[str, KernelResult]) -> None:
    """A witness has the epoch that its reader was reported at that offset, or none."""
    for anomaly in ("lost", "dirty-read", "offset-conflict"):
        found = results[anomaly].witnesses
        told = found["leader_epoch"] != NONE
        assert ((found["leader_epoch"] == epoch_at(found["log_offset"])) | (found["log_offset"] == NONE))[told].all()
        assert (found["seen_ns"][told] != MISSING).all()


@settings(QUICK, max_examples=examples(150))
@given(facts())
def test_a_valid_history_shows_no_anomaly(made):
    history = made[0].history()
    assert counts(history) == {}
    assert [f.result.incomplete for f in findings(history)] == [None] * len(KERNELS)


@QUICK
@given(facts(duplicates=True))
def test_where_retries_may_double_records_just_those_are_found(made):
    assert counts(made[0].history()) == Counter({"duplicate": made[0].copies} if made[0].copies else {})


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_planted_is_found_exactly(kind):
    planted = 0

    @QUICK
    @given(facts())
    def check(made):
        nonlocal planted
        expected = getattr(Spoiler(*made), kind)()
        assume(expected is not None)
        planted += 1
        assert counts(made[0].history()) == with_squares(made[0].history(), expected)

    check()
    assert planted >= PLANTED_MIN


@settings(QUICK, max_examples=examples(150))
@given(facts(), st.lists(st.sampled_from(KINDS), min_size=2, max_size=6))
def test_several_anomalies_at_once_are_all_found(made, kinds):
    spoiler, expected = Spoiler(*made), Counter()
    for kind in kinds:
        expected.update(getattr(spoiler, kind)() or {})
    assert counts(made[0].history()) == with_squares(made[0].history(), expected)


@QUICK
@given(facts(), st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))
def test_presence_stands_without_an_audit_and_absence_is_not_concluded(made, kinds):
    spoiler = Spoiler(*made)
    for kind in kinds:
        getattr(spoiler, kind)()
    whole = made[0].history()
    without = PartitionHistory(
        **{name: getattr(whole, name) for name in whole.__dataclass_fields__} | {"audit_end": {}}
    )
    before, after = counts(whole), counts(without)
    assert {"lost", "dirty-read", "skipped"}.isdisjoint(after)
    presence = {
        "duplicate",
        "reordered",
        "offset-conflict",
        "phantom",
        "corrupt",
        "misplaced",
        "resurrected",
        "rewound",
    }
    for name in presence:
        assert after[name] >= before[name]
    incomplete = {f.anomaly for f in findings(without) if f.result.incomplete}
    assert {"lost", "dirty-read", "duplicate", "resurrected"} <= incomplete


@QUICK
@given(facts())
def test_every_lost_record_is_named_with_its_send(made):
    expected = Spoiler(*made).lost()
    assume(expected is not None)
    history = made[0].history()
    witness = next(f for f in findings(history) if f.anomaly == "lost").result.witnesses[0]
    send = made[0].sends[int(witness["client"]), int(witness["sequence"])]
    assert witness["outcome"] == Outcome.OK
    assert (witness["begin_ns"], witness["end_ns"]) == (send["invoked_ns"], send["completed_ns"])
    assert witness["log_offset"] == send["log_offset"]


# --- compacted topics -----------------------------------------------------------------------------------------------


@settings(QUICK, max_examples=examples(100))
@given(compaction.compacted)
def test_a_valid_history_of_a_compacted_topic_shows_no_anomaly(made):
    assert counts(made[0].history()) == {}


@pytest.mark.parametrize("kind", compaction.SPOILERS)
def test_what_was_planted_in_a_compacted_topic_is_found_exactly(kind):
    planted = 0

    @QUICK
    @given(compaction.long_compacted)
    def check(made):
        nonlocal planted
        expected = compaction.SPOILERS[kind](*made)
        assume(expected is not None)
        planted += 1
        assert counts(made[0].history()) == +Counter(expected)

    check()
    assert planted >= PLANTED_MIN
