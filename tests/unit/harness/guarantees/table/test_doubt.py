"""Doubt in the guarantee table: it never becomes permission, and never hides what is forbidden."""

from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.harness.guarantees.facts.happened import Happened
from prozess.harness.guarantees.facts.registry import could_hold
from prozess.harness.guarantees.possible import satisfiable
from prozess.harness.guarantees.table import TABLE
from prozess.harness.guarantees.table.cell_configuration import CellConfiguration
from prozess.harness.guarantees.verdict.evaluation import Judgement
from prozess.harness.schema import Tristate
from tests.support.abstract_inputs import DIMENSIONS, EVENTS, decide, valid

CONFIGURATION = (
    st.fixed_dictionaries({name: st.sampled_from(values) for name, values in DIMENSIONS.items()})
    .map(lambda values: CellConfiguration(**values))
    .filter(valid)
)
TRUTHS = st.dictionaries(st.sampled_from(EVENTS), st.sampled_from([1, 0, -1]))


@settings(deadline=None)
@given(
    anomaly=st.sampled_from(list(TABLE)),
    configuration=CONFIGURATION,
    known=TRUTHS,
    doubted=st.sampled_from(EVENTS),
)
def test_making_a_fact_unknown_never_turns_forbidden_into_permitted_nor_back(anomaly, configuration, known, doubted):
    events = dict.fromkeys(EVENTS, 0) | known
    before = decide(anomaly, configuration, events)[0]
    after = decide(anomaly, configuration, events | {doubted: -1})[0]
    assert after in (before, Judgement.UNKNOWN)


@settings(deadline=None)
@given(
    anomaly=st.sampled_from(list(TABLE)),
    configuration=CONFIGURATION,
    known=TRUTHS,
    unclean=st.sampled_from(Tristate),
    moved=st.sampled_from(Tristate),
    destroyed=st.sampled_from(Tristate),
)
def test_whatever_is_permitted_of_a_witness_was_satisfiable(anomaly, configuration, known, unclean, moved, destroyed):
    happened = Happened(moved=moved, unclean=unclean, destroyed=destroyed)
    events = dict.fromkeys(EVENTS, 0) | known
    events = {n: v for n, v in events.items() if could_hold(n, configuration, happened) != 0}
    judgement, _ = decide(anomaly, configuration, dict.fromkeys(EVENTS, 0) | events)
    if judgement is Judgement.PERMITTED:
        assert satisfiable(anomaly, configuration, happened)


def test_an_unknown_defect_only_loses_its_name():
    old = CellConfiguration(acks="all", idempotent=True, retries=True, several_in_flight=True, version=(3, 9, 0))
    events = dict.fromkeys(EVENTS, 0)
    judgement, rule = decide("lost", old, events | {"older epoch behind a newer": 1})
    assert judgement is Judgement.FORBIDDEN
    assert TABLE["lost"].rules[rule].defect.startswith("KAFKA-18991")
    unproven = events | {"older epoch behind a newer": -1, "leader changed": 1}
    assert decide("lost", old, unproven) == (Judgement.FORBIDDEN, -1)


def test_a_rule_in_doubt_before_the_first_true_one_makes_the_witness_unknown():
    weak = CellConfiguration(acks="1", idempotent=False, retries=True, several_in_flight=True)
    events = dict.fromkeys(EVENTS, 0)
    assert (
        decide("lost", weak, events | {"still unreplicated": -1, "cutoff of a missing record": 1})[0]
        is Judgement.UNKNOWN
    )
    assert (
        decide("lost", weak, events | {"still unreplicated": 1, "cutoff of a missing record": -1})[0]
        is Judgement.PERMITTED
    )
