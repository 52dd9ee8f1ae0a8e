"""Known defects beside the promises that they break, by client and version; and promises for the parts that were given."""

import json
from datetime import date

import pytest

from prozess.harness.guarantees.table import TABLE
from prozess.harness.guarantees.table.known_defects import DEFECTS
from prozess.harness.guarantees.table.rules import RuleEffect
from prozess.validation.assumptions import Risk, Risks
from prozess.validation.prediction import NEEDS
from tests.support.predictions import predicted

IDEMPOTENT = {"enable.idempotence": "true"}
TRANSACTIONAL = {"transactional.id": "orders"}
GROUP = {"auto.offset.reset": "earliest", "isolation.level": "read_committed"}


def defects(producer=None, **more):
    return {one.defect.id: set(one.anomalies) for one in predicted(producer, **more).defects}


def test_every_defect_of_the_table_is_known_with_its_versions_and_sources():
    rules = [rule for guarantee in TABLE.values() for rule in guarantee.rules if rule.effect is RuleEffect.DEFECT]
    assert {rule.label for rule in rules} == set(DEFECTS)
    assert all(rule.defect == DEFECTS[rule.label].description and rule.perhaps for rule in rules)
    assert all(bool(defect.newest) != bool(defect.fixed) and defect.source for defect in DEFECTS.values())


def test_each_client_has_its_own_defect_of_idempotence_and_a_transactional_id_avoids_both():
    assert defects(IDEMPOTENT, client="librdkafka") == {
        "KAFKA-15591": {"lost"},
        "librdkafka#4953": {"duplicate", "reordered"},
    }
    assert defects(IDEMPOTENT, client="java") == {"KAFKA-14034": {"duplicate", "reordered"}}
    assert defects(TRANSACTIONAL, client="java", consumer=GROUP) == {}
    assert "librdkafka#4953" not in defects(TRANSACTIONAL, client="librdkafka", consumer=GROUP)


@pytest.mark.parametrize(
    ("settings", "version", "open_"),
    [({}, "4.3.1", True), ({"max.in.flight.requests.per.connection": "1"}, "4.3.1", False), ({}, "4.5.0", False)],
)
def test_with_librdkafka_several_requests_in_flight_may_lose_the_first_batch_of_a_new_partition(
    settings, version, open_
):
    found = defects(IDEMPOTENT | settings, client="librdkafka", version=version)
    assert (found.get("KAFKA-15591") == {"lost"}) is open_


@pytest.mark.parametrize(
    ("version", "open_"),
    [
        ("2.8.0", True),
        ("3.7.2", True),
        ("3.9.1", True),
        ("3.9.2", False),
        ("4.0.1", True),
        ("4.1.1", True),
        ("4.2.0", False),
    ],
)
def test_java_producers_before_3_9_2_may_write_a_batch_into_another_partition(version, open_):
    for settings in ({}, {"acks": "1"}, IDEMPOTENT):
        assert (defects(settings, version=version).get("KAFKA-19012") == {"misplaced"}) is open_
        assert "KAFKA-19012" not in defects(settings, version=version, client="librdkafka")


def test_what_is_not_promised_has_no_defect_beside_it():
    assert defects({}, client="librdkafka") == {}, "not idempotent: duplicates are weak, not promised"
    assert defects({"acks": "1"}) == {}


@pytest.mark.parametrize(
    ("version", "open_"),
    [
        ("3.9.0", True),
        ("3.9.1", False),
        ("3.9.2", False),
        ("4.0.0", True),
        ("4.0.1", False),
        ("4.1.0", False),
        ("3.8.1", True),
    ],
)
def test_a_defect_that_is_fixed_in_the_brokers_version_is_not_told(version, open_):
    found = defects({"acks": "all"}, version=version)
    possible = {"lost", "diverged", "time-travel", "epoch-regression"}
    assert found.get("KAFKA-18991", set()) == (possible if open_ else set())


def test_brokers_before_3_6_may_leave_transactions_hanging_and_before_3_4_1_show_uncommitted_tails():
    assert "stalled" in defects({"acks": "all"}, consumer=GROUP, version="3.5.2")["KAFKA-14402"]
    assert "KAFKA-14402" not in defects({"acks": "all"}, consumer=GROUP, version="3.6.0")
    assert defects({"acks": "all"}, version="3.4.0")["KAFKA-14704"] == {"dirty-read"}
    assert "KAFKA-14704" not in defects({"acks": "all"}, version="3.4.1")


@pytest.mark.parametrize(
    ("client", "version", "client_version", "open_"),
    [
        ("java", "4.3.1", None, False),
        ("java", "4.3.1", "3.9.0", True),
        ("java", "3.9.2", "4.0.0", True),
        ("java", "4.0.0", "4.0.0", False),
        ("librdkafka", "4.3.1", None, True),
    ],
)
def test_late_ends_of_transactions_are_told_unless_client_and_brokers_have_version_2(
    client, version, client_version, open_
):
    found = predicted(TRANSACTIONAL, consumer=GROUP, client=client, version=version, client_version=client_version)
    assert ("KAFKA-17754" in {one.defect.id for one in found.defects}) == open_
    assert any("transaction.version=2" in told for told in found.assumed) != open_


def test_of_a_client_that_is_newer_than_what_was_looked_at_it_is_not_known_whether_the_defect_is_open():
    _, one = predicted(IDEMPOTENT, client="librdkafka", client_version="2.17.0").defects
    assert one.status == "open in 2.16.0; prozess does not know whether 2.17.0 has it"
    _, one = predicted(IDEMPOTENT, client="librdkafka", client_version="2.3.0").defects
    assert one.status == "open in 2.16.0"


@pytest.mark.parametrize(
    ("accepted", "fails"),
    [
        ([], True),
        (["librdkafka#4953"], False),
        (["duplicate"], True),
        (["duplicate", "reordered"], False),
        (["KAFKA-14034"], True),
    ],
)
def test_an_open_defect_fails_strict_unless_it_or_every_anomaly_of_it_is_accepted(accepted, fails):
    risks = Risks([Risk(rule, "known", date(2027, 1, 31), "risks.toml") for rule in accepted])
    one_in_flight = {"max.in.flight.requests.per.connection": "1"}  # which leaves one defect
    found = predicted(IDEMPOTENT | one_in_flight, client="librdkafka", risks=risks, today=date(2027, 1, 31))
    assert bool(found.failures) == fails
    assert bool(found.remarks) == ("KAFKA-14034" in accepted), "an entry for another client is stale"


def test_an_anomaly_of_several_rules_fails_strict_until_each_of_them_is_accepted():
    def failures(*accepted):
        risks = Risks([Risk(rule, "known", date(2027, 1, 31), "risks.toml") for rule in accepted])
        return predicted({"acks": "1"}, risks=risks, today=date(2027, 1, 1)).failures

    rules = ("reordered/given-up", "reordered/not-idempotent")
    rest = ("lost", "duplicate", "time-travel")
    assert failures(*rest, rules[0]) == rules[1:]
    assert failures(*rest, *rules) == failures(*rest, "reordered") == ()


# --- the parts that were given


def test_of_every_anomaly_it_is_known_whose_settings_decide_it():
    assert set(NEEDS) == set(TABLE)


def test_a_consumer_alone_is_promised_nothing_of_a_producer_and_a_producer_nothing_of_a_consumer():
    consumer = predicted(consumer=GROUP)
    assert {"lost", "duplicate", "reordered", "phantom", "time-travel"} <= set(consumer.not_judged["producer"])
    assert "lost" not in {g.anomaly for g in consumer.promised} | {w.guarantee.anomaly for w in consumer.weaknesses}
    assert "unprocessed" in {g.anomaly for g in consumer.promised}
    producer = predicted({"acks": "all"})
    assert {"unprocessed", "reprocessed", "skipped", "stalled"} <= set(producer.not_judged["consumer"])
    assert not {"skipped", "stalled"} & {g.anomaly for g in producer.promised}
    both = predicted({"acks": "all"}, consumer=GROUP)
    assert both.not_judged == {}
    assert {"lost", "skipped"} <= {g.anomaly for g in both.promised}


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_what_a_consumer_sees_of_transactions_goes_by_its_own_isolation_level(level):
    found = predicted(TRANSACTIONAL, consumer=GROUP | {"isolation.level": level})
    promised = {"aborted-read", "early-read"} & {g.anomaly for g in found.promised}
    assert bool(promised) == (level == "read_committed")


def test_everything_that_is_told_can_be_written_as_json(capsys):
    from prozess.validation.comparison import Comparison
    from prozess.validation.terminal import to_json

    to_json(
        Comparison(
            predicted(
                IDEMPOTENT,
                consumer=GROUP | {"enable.auto.commit": "false", "check.crcs": "true"},
                client="librdkafka",
                broker={},
            ),
            (),
        )
    )
    told = json.loads(capsys.readouterr().out)
    assert [one["id"] for one in told["defects"]] == ["KAFKA-15591", "librdkafka#4953"]
    assert told["defects"][1]["avoided"] == "a transactional.id"
    assert [one["rule"] for one in told["availability"]] == ["internal-offsets/min-insync-1"]
    assert told["failures"] == ["internal-offsets/min-insync-1", "KAFKA-15591", "librdkafka#4953"]
