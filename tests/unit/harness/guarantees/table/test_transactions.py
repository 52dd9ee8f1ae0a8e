"""What the guarantee table makes of witnesses of transactions."""

from dataclasses import replace

import numpy as np
import pytest

from prozess.checkers.transactions.isolation import AT_READ_COMMITTED, AT_READ_UNCOMMITTED
from prozess.harness.clock import NS_PER_S
from prozess.harness.config.fault_nature import FaultNature
from prozess.harness.guarantees.evidence.envelope import Envelope, TransactionTimes
from prozess.harness.guarantees.evidence.ground_truth import FaultRecord
from prozess.harness.guarantees.facts.stale_leaders import BEFORE_NS
from prozess.harness.guarantees.facts.witnessed import READ_UNCOMMITTED_CASE
from prozess.harness.guarantees.table import TABLE
from prozess.harness.guarantees.table.cell_configuration import CellConfiguration, configuration_of
from prozess.harness.guarantees.verdict.evaluation import Judgement, evaluate_witnesses
from prozess.harness.interfaces.witnesses import EarlyCase, make_witnesses
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.schema import MISSING, Outcome, Tristate

VERSION_2 = CellConfiguration(acks="all", idempotent=True, retries=True, several_in_flight=True, version=(4, 3, 1))
VERSION_1 = replace(VERSION_2, transactions_before_v2=True)
BEGIN, END = 100 * NS_PER_S, 101 * NS_PER_S
ANOMALIES = ("torn", "lost-transaction", "zombie-write", "aborted-read", "early-read")


def fault(begin_s: float, end_s: float, **nature: bool) -> FaultRecord:
    return FaultRecord(
        number=0,
        kind="test",
        step=0,
        nodes=(2,),
        hit=(2,),
        seen=(2,),
        begin_ns=int(begin_s * NS_PER_S),
        proven_ns=int(begin_s * NS_PER_S),
        undone_ns=int(end_s * NS_PER_S),
        end_ns=int(end_s * NS_PER_S),
        effective=Tristate.YES,
        nature=FaultNature(**nature),
    )


def evaluated(anomaly, *faults, case=AT_READ_COMMITTED, configuration=VERSION_1, ended_ns=BEGIN - 6 * NS_PER_S):
    """`ended_ns`: when an earlier end was answered, for which the client had asked 8 s before this transaction."""
    late = TransactionTimes(*(np.array([value]) for value in (0, BEGIN - 9 * NS_PER_S, BEGIN - 8 * NS_PER_S, ended_ns)))
    envelope = Envelope(acks="all", unclean_enabled=False, faults=faults, transactions=lambda: late)
    columns = {"client": 0, "begin_ns": BEGIN, "end_ns": END, "outcome": int(Outcome.OK), "case": case, "log_offset": 5}
    return evaluate_witnesses(anomaly, configuration, envelope, make_witnesses(1, columns))


def judged(anomaly, *faults, **more):
    """(judgement, id of the deciding rule or None)"""
    found = evaluated(anomaly, *faults, **more)
    rule = int(found.rule[0])
    return Judgement(int(found.judgement[0])), TABLE[anomaly].rules[rule].id if rule >= 0 else None


def possible(anomaly, *faults, **more):
    """Id of the rule of a known defect that is possible, or None."""
    bits = int(evaluated(anomaly, *faults, **more).possible[0])
    found = [rule.id for index, rule in enumerate(TABLE[anomaly].rules) if bits >> index & 1]
    assert len(found) <= 1, found
    return found[0] if found else None


@pytest.mark.parametrize("anomaly", ANOMALIES)
def test_without_a_fault_and_under_a_kill_everything_is_forbidden(anomaly):
    assert judged(anomaly) == (Judgement.FORBIDDEN, None)
    assert judged(anomaly, fault(99, 102, stops=True)) == (Judgement.FORBIDDEN, None)


@pytest.mark.parametrize("anomaly", ["aborted-read", "early-read"])
def test_who_reads_uncommitted_is_given_what_is_not_committed(anomaly):
    assert READ_UNCOMMITTED_CASE == AT_READ_UNCOMMITTED
    assert judged(anomaly, case=AT_READ_UNCOMMITTED) == (Judgement.PERMITTED, f"{anomaly}/read-uncommitted")


@pytest.mark.parametrize("anomaly", [a for a in ANOMALIES if a != "zombie-write"])
@pytest.mark.parametrize("nature", ["freezes", "cuts"])
def test_a_delay_alone_names_no_flaw_of_version_one_and_is_told_as_possible(anomaly, nature):
    before_s = BEFORE_NS / NS_PER_S
    unnamed = (Judgement.FORBIDDEN, None)
    within, before = fault(100.5, 102, **{nature: True}), fault(80, 100 - before_s + 1, **{nature: True})
    for near in (within, before):
        assert judged(anomaly, near) == unnamed
        assert possible(anomaly, near) == f"{anomaly}/KAFKA-17754"
    for after in (fault(80, 100 - before_s - 1, **{nature: True}), fault(101.5, 103, **{nature: True})):
        assert judged(anomaly, after) == unnamed
        assert possible(anomaly, after) is None
    assert possible(anomaly, within, configuration=VERSION_2) is None
    assert possible(anomaly, within, ended_ns=BEGIN - 8 * NS_PER_S + 1) is None, "nothing was asked for again"
    assert possible(anomaly, within, ended_ns=MISSING) == f"{anomaly}/KAFKA-17754"


@pytest.mark.parametrize("anomaly", ANOMALIES)
def test_where_the_coordinators_state_may_be_destroyed_nothing_is_certain(anomaly):
    assert judged(anomaly, fault(90, 95, destroys=True))[0] is Judgement.UNKNOWN


def test_every_anomaly_of_transactions_is_judged_in_their_cells_only():
    assert all(TABLE[a].applies(["transactions"]) and not TABLE[a].applies(["log"]) for a in ANOMALIES)
    assert np.all([TABLE["lost"].applies(["transactions"]), TABLE["duplicate"].applies(["transactions"])])


@pytest.mark.parametrize(
    ("client", "version", "level", "before"),
    [
        ("librdkafka", "default", 2, True),
        ("librdkafka", "2.8.0", 2, True),
        ("java", "default", 1, True),
        ("java", "default", 2, False),
        ("java", "4.0.0", 2, False),
        ("java", "3.9.2", 2, True),
    ],
)
def test_transactions_are_of_version_2_if_both_the_brokers_and_the_client_have_it(client, version, level, before):
    base = {"producer.client": client, "producer.client_version": version}
    document = {"name": "t", "title": "t", "workload": "transactions", "axes": {key: [base[key]] for key in base}}
    (cell,) = make_plan(parse_trial(document, source="test"), seed=1).cells
    assert configuration_of(cell, "4.4.0", transaction_version=level).transactions_before_v2 is before


@pytest.mark.parametrize(
    ("case", "judgement"),
    [
        (EarlyCase.READ_COMMITTED, Judgement.FORBIDDEN),
        (EarlyCase.BEHIND_OPEN, Judgement.FORBIDDEN),
        (EarlyCase.BEHIND_ABORTED, Judgement.UNKNOWN),
    ],
)
def test_a_coordinator_whose_clock_was_moved_may_have_aborted_earlier(case, judgement):
    assert judged("early-read", case=case)[0] is Judgement.FORBIDDEN
    assert judged("early-read", fault(90, 95, shifts_clock=True), case=case)[0] is judgement
