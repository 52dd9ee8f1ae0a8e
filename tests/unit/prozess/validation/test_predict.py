"""What `prozess validate` predicts of settings before anything runs, and how that compares with what was seen."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.harness.errors import BadInput
from prozess.harness.exit_codes import ExitCode
from prozess.harness.verdict import AnomalyOutcome
from prozess.validation.comparison import AnomalySummary, Comparison, ComparisonLine, Observed, observe
from prozess.validation.prediction import CHANGES
from prozess.validation.terminal import observed
from prozess.validation.terminal import predicted as said_of
from tests.support.examples import examples
from tests.support.predictions import SAFE_TOPIC, predicted, weak

# --- prediction


def test_the_safest_producer_is_promised_everything_about_its_log():
    found = predicted({"acks": "all"})
    assert weak(found) == set()
    assert {"lost", "duplicate", "reordered", "dirty-read"} <= {g.anomaly for g in found.promised}
    assert found.smallest_change() == ((), ())


def test_acks_1_is_blamed_for_losses_and_the_change_is_one_setting():
    found = predicted({"acks": "1"})
    assert {"lost", "duplicate"} <= weak(found)
    (lost,) = [w for w in found.weaknesses if w.guarantee.anomaly == "lost"]
    assert found.remedy(lost) == ("producer.acks",)
    assert found.smallest_change()[0] == ("producer.acks",), "idempotence comes back by itself (KIP-679)"


def test_librdkafkas_defaults_permit_duplicates_and_idempotence_alone_rules_them_out():
    found = predicted({}, client="librdkafka")
    assert "duplicate" in weak(found)
    assert "lost" not in weak(found)
    assert found.smallest_change()[0] == ("producer.enable_idempotence",)


def test_unclean_elections_permit_losses_even_with_acks_all():
    found = predicted({"acks": "all"}, topic=SAFE_TOPIC | {"unclean.leader.election.enable": "true"})
    assert "lost" in weak(found)
    assert found.smallest_change()[0] == ("topic.unclean_leader_election_enable",)


def test_librdkafkas_automatic_commit_may_leave_records_unprocessed_and_javas_does_not():
    consumer = {"enable.auto.commit": "true", "auto.offset.reset": "earliest"}
    assert "unprocessed" in weak(predicted(consumer=consumer, client="librdkafka"))
    assert "unprocessed" not in weak(predicted(consumer=consumer, client="java"))


@pytest.mark.parametrize(
    ("client", "more", "checked"),
    [
        ("java", {}, True),
        ("java", {"check.crcs": "false"}, False),
        ("librdkafka", {}, False),
        ("librdkafka", {"check.crcs": "true"}, True),
    ],
)
def test_what_no_checksum_is_compared_with_is_never_promised_to_be_as_it_was_sent(client, more, checked):
    found = predicted(consumer={"auto.offset.reset": "earliest", **more}, client=client)
    assert ("corrupt" in {guarantee.anomaly for guarantee in found.promised}) is checked
    assert ("corrupt/unchecked" not in {weakness.rule.id for weakness in found.weaknesses}) is checked
    (group,) = [cell.group.configuration for cell in found.plan.cells if cell.group is not None]
    assert (group.properties.get("check.crcs") == "false") is not checked, "the trial runs what the file says"


def test_margins_count_brokers_and_disks():
    fault_tolerance = predicted({"acks": "all"}).fault_tolerance
    assert (fault_tolerance.writes, fault_tolerance.disks) == (1, 1)
    fault_tolerance = predicted({"acks": "all"}, topic={"replication.factor": "1"}).fault_tolerance
    assert (fault_tolerance.writes, fault_tolerance.disks) == (0, 0)
    said = " ".join(fault_tolerance.sentences())
    assert "while its only broker is up" in said
    assert "may be lost with a single disk; replication.factor=3, min.insync.replicas=2 prevents this" in said
    assert "lose power at the same time" in " ".join(fault_tolerance.sentences())
    flushed = predicted({"acks": "all"}, topic=SAFE_TOPIC | {"flush.messages": "1"}).fault_tolerance
    assert "survive a loss of power" in " ".join(flushed.sentences())


@settings(max_examples=examples(200), deadline=None)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "acks": st.sampled_from(["0", "1", "all", "-1"]),
            "retries": st.sampled_from(["0", "3", "2147483647"]),
            "max.in.flight.requests.per.connection": st.sampled_from(["1", "5", "10"]),
            "enable.idempotence": st.sampled_from(["true", "false"]),
        },
    ),
    st.sampled_from(["true", "false"]),
    st.sampled_from(["java", "librdkafka"]),
)
def test_every_producer_is_either_refused_or_predicted_and_a_change_never_adds_a_weakness(producer, unclean, client):
    try:
        found = predicted(producer, topic=SAFE_TOPIC | {"unclean.leader.election.enable": unclean}, client=client)
    except BadInput:
        six = producer.get("max.in.flight.requests.per.connection") == "10" and client == "java"  # refused since 4.0
        assert producer.get("enable.idempotence", "true" if six else "") == "true"
        return
    assert not weak(found) & {g.anomaly for g in found.promised}
    changes, left = found.smallest_change()
    assert set(changes) <= set(CHANGES)
    assert {w.guarantee.anomaly for w in left} <= weak(found)
    assert bool(changes) == (len(left) < len(found.weaknesses))


# --- comparison


def compared(outcome, *, judged=True):
    seen = {name: AnomalySummary(AnomalyOutcome.HELD) for name in ("lost", "duplicate")} | {
        "lost": AnomalySummary(outcome, 3)
    }
    found = predicted({"acks": "1"})
    names = found.judged
    whole = {name: seen.get(name, AnomalySummary(AnomalyOutcome.HELD)) for name in names}
    return Comparison(found, (Observed(whole, judged=judged), Observed(whole)))


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (AnomalyOutcome.PERMITTED, ExitCode.HELD),
        (AnomalyOutcome.POSSIBLE, ExitCode.HELD),
        (AnomalyOutcome.VIOLATED, ExitCode.VIOLATED),
        (AnomalyOutcome.UNKNOWN, ExitCode.UNKNOWN),
    ],
)
def test_what_was_seen_decides_and_unknown_never_passes(outcome, code):
    assert compared(outcome).exit_code is code


def test_counts_of_several_runs_are_added():
    assert compared(AnomalyOutcome.PERMITTED).seen("lost").count == 6


def test_a_run_without_a_verdict_is_unknown():
    assert observe(None, {0}).judged is False
    assert compared(AnomalyOutcome.HELD, judged=False).exit_code is ExitCode.UNKNOWN


@pytest.mark.parametrize(
    ("outcome", "count", "said"),
    [
        (AnomalyOutcome.HELD, 0, "✓ forbidden, and not seen"),
        (AnomalyOutcome.HELD, 2, "✓ forbidden, and not seen (2 times while it is not promised)"),
        (AnomalyOutcome.VIOLATED, 1, "✗ forbidden, and seen, 1 time"),
    ],
)
def test_what_was_seen_outside_of_a_promise_is_not_told_as_if_it_were_absent_so_often(outcome, count, said):
    assert observed(ComparisonLine("stalled", (), AnomalySummary(outcome, count))) == said


@pytest.mark.parametrize("outcome", [AnomalyOutcome.VIOLATED, AnomalyOutcome.UNKNOWN, AnomalyOutcome.PERMITTED])
def test_what_the_trials_own_consumer_showed_decides_nothing_where_nobody_gave_one(outcome):
    found = predicted({"acks": "all"}, client="librdkafka")
    whole = dict.fromkeys(found.judged, AnomalySummary(AnomalyOutcome.HELD))
    comparison = Comparison(found, (Observed(whole | {"stalled": AnomalySummary(outcome, 2)}),))
    assert comparison.exit_code is ExitCode.HELD
    (line,) = [line for line in comparison.lines() if line.anomaly == "stalled"]
    assert said_of(line) == "not judged: you gave no consumer"
    assert observed(line).startswith("– with a consumer that is not yours: ")
    given_one = predicted({"acks": "all"}, consumer={"group.id": "g"})
    if outcome is not AnomalyOutcome.PERMITTED:
        whole = dict.fromkeys(given_one.judged, AnomalySummary(AnomalyOutcome.HELD))
        decided = Comparison(given_one, (Observed(whole | {"stalled": AnomalySummary(outcome, 2)}),)).exit_code
        assert decided is not ExitCode.HELD
