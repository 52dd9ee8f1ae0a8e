"""What the guarantee table makes of late and missing records: forbidden, excused by a fault, or unknown."""

import pytest

from prozess.harness.guarantees.evidence.envelope import Envelope
from prozess.harness.guarantees.evidence.ground_truth import fault_records
from prozess.harness.guarantees.table.cell_configuration import CellConfiguration
from prozess.harness.guarantees.verdict.evaluation import Judgement, evaluate_witnesses
from prozess.harness.interfaces import CLIENT_NODE
from prozess.harness.interfaces.witnesses import LateCase, make_witnesses
from prozess.harness.plan.catalogue import NATURES
from prozess.harness.schema import Tristate
from tests.support.cells.delivery import BOUND
from tests.support.cells.evidence import DICTIONARIES, fault, ns
from tests.support.cells.partitions import READER, table

EXCEPTED = CellConfiguration(
    acks="all", idempotent=True, retries=True, several_in_flight=True, version=(4, 3, 1), faults_excepted=True
)
ALWAYS = CellConfiguration(acks="all", idempotent=True, retries=True, several_in_flight=True, version=(4, 3, 1))
READER_NODE = CLIENT_NODE + READER


def judged(*faults, configuration=EXCEPTED, case=LateCase.LATE):
    """A record sent at 100 s, due at 102 s; faults excuse for 5 s more."""
    rows = [row for made in faults for row in made]
    envelope = Envelope(
        acks="all",
        unclean_enabled=False,
        faults=fault_records(table("faults", rows), DICTIONARIES, NATURES) if rows else (),
        delivery_bound=BOUND,
        measured_by=frozenset({READER_NODE}),
    )
    witness = make_witnesses(1, {"begin_ns": ns(100), "other_ns": ns(102), "case": case, "partition": 0})
    return Judgement(int(evaluate_witnesses("late", configuration, envelope, witness).judgement[0]))


def test_without_a_fault_late_is_forbidden():
    assert judged() is Judgement.FORBIDDEN
    assert judged(case=LateCase.MISSING) is Judgement.FORBIDDEN


@pytest.mark.parametrize(
    ("begin_s", "end_s", "expected"),
    [
        (101.9, 110, Judgement.PERMITTED),
        (102.1, 110, Judgement.FORBIDDEN),
        (90, 95.1, Judgement.PERMITTED),
        (90, 94.9, Judgement.FORBIDDEN),
        (90, None, Judgement.PERMITTED),
    ],
    ids=["before the deadline", "after the deadline", "within the recovery", "after the recovery", "never undone"],
)
def test_a_fault_excuses_from_its_deadline_back_to_the_recovery(begin_s, end_s, expected):
    assert judged(fault(0, "pause", [1], begin_s, end_s)) is expected


def test_where_the_trial_excepts_nothing_a_fault_excuses_nothing():
    assert judged(fault(0, "pause", [1], 90, 110), configuration=ALWAYS) is Judgement.FORBIDDEN


def test_a_fault_that_was_not_proven_leaves_it_unknown_and_one_without_effect_excuses_nothing():
    assert judged(fault(0, "pause", [1], 90, 110, effect=None)) is Judgement.UNKNOWN
    assert judged(fault(0, "pause", [1], 90, 110, effect=Tristate.NO)) is Judgement.FORBIDDEN


@pytest.mark.parametrize("case", [LateCase.STOOD_STILL, LateCase.UNAUDITED])
def test_what_was_not_measured_is_unknown_unless_a_fault_excuses_it_anyway(case):
    assert judged(case=case) is Judgement.UNKNOWN
    assert judged(case=case, configuration=ALWAYS) is Judgement.UNKNOWN
    assert judged(fault(0, "pause", [1], 90, 110), case=case) is Judgement.PERMITTED


def test_a_fault_of_the_readers_alone_excuses_nothing_but_spoils_the_measurement():
    assert judged(fault(0, "pause", [READER_NODE], 90, 110), case=LateCase.STOOD_STILL) is Judgement.UNKNOWN
    assert judged(fault(0, "pause", [READER_NODE], 90, 110)) is Judgement.FORBIDDEN
    assert judged(fault(0, "pause", [READER_NODE, 1], 90, 110)) is Judgement.PERMITTED
