"""What could have been permitted, before any witness: by the configuration alone, or once this or that had happened."""

from dataclasses import replace

import pytest

from prozess.harness.guarantees.facts.happened import Happened, could_happen
from prozess.harness.guarantees.facts.registry import FACTS
from prozess.harness.guarantees.possible import satisfiable, satisfiable_rules
from prozess.harness.guarantees.table import TABLE
from prozess.harness.guarantees.table.cell_configuration import CellConfiguration
from prozess.harness.plan.catalogue import NATURES
from prozess.harness.schema import Tristate
from tests.support.abstract_inputs import FAILOVER, NOTHING, STRONGEST


def rules(anomaly: str, configuration: CellConfiguration, happened: Happened) -> list[str]:
    return [rule.id for rule in satisfiable_rules(anomaly, configuration, happened)]


def test_acks_0_may_always_lose():
    acks_0 = CellConfiguration(acks="0", idempotent=False, retries=False, several_in_flight=False)
    assert rules("lost", acks_0, NOTHING) == ["lost/acks-0"]


def test_acks_1_may_lose_only_if_a_leader_moved_or_died():
    acks_1 = CellConfiguration(acks="1", idempotent=False, retries=False, several_in_flight=False)
    assert rules("lost", acks_1, NOTHING) == []
    assert rules("lost", acks_1, FAILOVER) == ["lost/acks-1"]


WHOEVER_SENDS = {
    "two-holders": ["two-holders/leader-changed", "two-holders/session-ended"],
    "given-up": ["given-up/limit", "given-up/unseen-delivery"],
    "dead-letter-missing": ["dead-letter-missing/out-of-reach"],
    "dead-letter-extra": ["dead-letter-extra/unseen-delivery"],
}
"""Promises of share groups that no setting of a producer makes firmer: locks and counts are the leader's (KIP-932)."""


@pytest.mark.parametrize("anomaly", [a for a in TABLE if a != "write-cycle"])  # which nobody promises
def test_acks_all_idempotent_promises_everything_under_a_clean_failover(anomaly):
    assert rules(anomaly, STRONGEST, FAILOVER) == WHOEVER_SENDS.get(anomaly, [])


def test_a_producer_without_idempotence_may_always_duplicate_and_reorder_if_it_retries():
    weak = CellConfiguration(acks="all", idempotent=False, retries=True, several_in_flight=True)
    assert satisfiable("duplicate", weak, NOTHING)
    assert satisfiable("reordered", weak, NOTHING)
    once = CellConfiguration(acks="all", idempotent=False, retries=False, several_in_flight=True)
    assert not satisfiable("duplicate", once, NOTHING)
    assert satisfiable("duplicate", once, FAILOVER), "librdkafka resends after a change of leader, unasked"
    java = CellConfiguration(acks="all", idempotent=False, retries=False, several_in_flight=True, librdkafka=False)
    assert not satisfiable("duplicate", java, FAILOVER)
    single = CellConfiguration(acks="all", idempotent=False, retries=True, several_in_flight=False)
    retried = ["reordered/given-up", "reordered/librdkafka-resends", "reordered/librdkafka-retries"]
    assert rules("reordered", single, NOTHING) == rules("reordered", single, FAILOVER) == retried
    assert rules("reordered", replace(single, retries=False), NOTHING) == retried[:2]
    java = CellConfiguration(acks="all", idempotent=False, retries=True, several_in_flight=False, librdkafka=False)
    assert rules("reordered", java, FAILOVER) == ["reordered/given-up"]


def test_of_a_program_of_whose_library_nothing_is_known_nothing_is_promised_that_only_that_would_tell():
    once = CellConfiguration(
        acks="all", idempotent=False, retries=False, several_in_flight=True, librdkafka=False, other_library=True
    )
    fact = FACTS["librdkafka"].of_configuration
    assert fact is not None
    assert fact(once) is Tristate.UNKNOWN
    assert satisfiable("duplicate", once, FAILOVER), "it may do as librdkafka does"
    strong = replace(STRONGEST, librdkafka=False, other_library=True)
    assert not satisfiable("lost", strong, FAILOVER)


@pytest.mark.parametrize(
    ("kinds", "unclean_enabled", "expected"),
    [
        ([], True, []),
        (["kill"], False, []),
        (["pause", "kill"], True, ["lost/unclean"]),
        (["mystery"], False, ["lost/wiped", "lost/unclean"]),
        (["power-loss"], False, ["lost/wiped"]),
        (["disk-full", "disk-hang"], False, []),
    ],
)
def test_what_faults_could_bring_about_is_predicted_from_their_kinds(kinds, unclean_enabled, expected):
    happened = could_happen({kind: NATURES.get(kind) for kind in kinds}, unclean_enabled=unclean_enabled)
    assert rules("lost", STRONGEST, happened) == expected


def test_power_loss_could_lose_nothing_where_every_record_is_flushed():
    happened = could_happen({"power-loss": NATURES["power-loss"]}, unclean_enabled=False, flushed=True)
    assert rules("lost", STRONGEST, happened) == []
