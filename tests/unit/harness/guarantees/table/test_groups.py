"""What the guarantee table makes of witnesses of groups."""

import pytest

from prozess.harness.clock import NS_PER_S
from prozess.harness.config.fault_nature import FaultNature
from prozess.harness.guarantees.evidence.envelope import Envelope
from prozess.harness.guarantees.evidence.ground_truth import FaultRecord
from prozess.harness.guarantees.facts.stale_leaders import BEFORE_NS
from prozess.harness.guarantees.table.cell_configuration import CellConfiguration, configuration_of
from prozess.harness.guarantees.verdict.evaluation import Judgement, evaluate_witnesses
from prozess.harness.interfaces.witnesses import GroupCase, make_witnesses
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.schema import Tristate

LIBRDKAFKA = CellConfiguration(acks="all", idempotent=True, retries=True, several_in_flight=True, version=(4, 3, 1))
BROKER, CLIENT = 2, 10_009
BEGIN_S = 100


def fault(
    begin_s: float, end_s: float, *, node: int = BROKER, kept_s: float | None = None, **nature: bool
) -> FaultRecord:
    return FaultRecord(
        kept_ns=None if kept_s is None else int(kept_s * NS_PER_S),
        number=0, kind="test", step=0, nodes=(node,), hit=(node,), seen=(node,), begin_ns=int(begin_s * NS_PER_S),
        proven_ns=int(begin_s * NS_PER_S), undone_ns=int(end_s * NS_PER_S), end_ns=int(end_s * NS_PER_S),
        effective=Tristate.YES, nature=FaultNature(**nature),
    )  # fmt: skip


def two_owners(
    *faults: FaultRecord,
    case: GroupCase = GroupCase.NO_CAUSE,
    first_s: float = 0,
    flush: bool = False,
    coordinator: bool = True,
    session_s: float = 0,
) -> Judgement:
    """Of a second owner that began at BEGIN_S, the first at `first_s`; one broker. `flush`: it acknowledges from disk."""
    envelope = Envelope(
        acks="all",
        unclean_enabled=False,
        faults=faults,
        broker_ids=frozenset({1}),
        brokers_flush=flush,
        coordinator_steps=frozenset({0} if coordinator else ()),
        session_ns=int(session_s * NS_PER_S),
    )
    columns = {"begin_ns": BEGIN_S * NS_PER_S, "end_ns": (BEGIN_S + 1) * NS_PER_S, "case": int(case)}
    columns["other_ns"] = int(first_s * NS_PER_S)
    found = evaluate_witnesses("two-owners", LIBRDKAFKA, envelope, make_witnesses(1, columns))
    return Judgement(int(found.judgement[0]))


def test_a_member_of_a_coordinator_that_was_out_may_believe_to_own_what_another_has():
    assert two_owners() is Judgement.FORBIDDEN
    for nature in ("stops", "freezes", "cuts"):
        assert two_owners(fault(90, 101, **{nature: True})) is Judgement.PERMITTED
    before_s = BEFORE_NS / NS_PER_S
    assert two_owners(fault(80, BEGIN_S - before_s + 1, cuts=True)) is Judgement.PERMITTED
    assert two_owners(fault(80, BEGIN_S - before_s - 1, cuts=True)) is Judgement.FORBIDDEN
    assert two_owners(fault(100.5, 102, cuts=True)) is Judgement.FORBIDDEN
    assert two_owners(fault(90, 101, cuts=True), coordinator=False) is Judgement.UNKNOWN, "who coordinated is not known"


def test_a_coordinator_that_was_out_for_less_than_a_session_evicted_nobody():
    assert two_owners(fault(90, 101, cuts=True), session_s=10) is Judgement.PERMITTED
    assert two_owners(fault(90, 101, cuts=True), session_s=10.1) is Judgement.FORBIDDEN, (
        "the second began 10 s after it"
    )
    assert two_owners(fault(90, 92, cuts=True), session_s=10) is Judgement.PERMITTED, "members were late to come back"
    assert two_owners(fault(80, 92, cuts=True), fault(97, 101, cuts=True), session_s=15) is Judgement.PERMITTED


def test_messages_that_wait_for_less_than_a_session_evict_nobody_however_long_the_fault_lasts():
    assert two_owners(fault(60, 101, kept_s=5, cuts=True), session_s=17) is Judgement.FORBIDDEN
    assert two_owners(fault(60, 101, kept_s=17, cuts=True), session_s=17) is Judgement.PERMITTED
    assert two_owners(fault(60, 101, kept_s=16.9, cuts=True), session_s=17) is Judgement.FORBIDDEN
    assert two_owners(fault(60, 101, kept_s=5, cuts=True), coordinator=False, session_s=17) is Judgement.FORBIDDEN
    assert two_owners(fault(60, 101, kept_s=17, cuts=True), coordinator=False, session_s=17) is Judgement.UNKNOWN


def test_a_group_that_every_broker_has_lost_may_be_made_anew_before_all_of_its_members_know():
    dark = fault(70, 75, node=1, stops=True, loses_unflushed=True)
    assert two_owners(dark, first_s=60) is Judgement.PERMITTED
    just_now = fault(90, 95, node=1, stops=True, loses_unflushed=True)
    assert two_owners(just_now) is Judgement.PERMITTED
    assert two_owners(just_now, flush=True) is Judgement.PERMITTED  # its coordinator was out all the same
    assert two_owners(dark, first_s=80) is Judgement.FORBIDDEN
    assert two_owners(dark, flush=True) is Judgement.FORBIDDEN
    assert two_owners(dark, case=GroupCase.BOTH_COMMITTED) is Judgement.FORBIDDEN
    elsewhere = fault(70, 75, stops=True, loses_unflushed=True)
    assert two_owners(elsewhere) is Judgement.UNKNOWN


def test_nothing_excuses_two_owners_whose_commits_are_both_accepted():
    assert two_owners(fault(90, 101, cuts=True), case=GroupCase.BOTH_COMMITTED) is Judgement.FORBIDDEN


def test_a_frozen_client_is_no_reason_for_two_owners_of_what_it_was_not_evicted_from():
    assert two_owners(fault(90, 101, node=CLIENT, freezes=True)) is Judgement.FORBIDDEN


@pytest.mark.parametrize(
    ("version", "commit", "ends", "beyond", "named"),
    [
        ("2.3.0", "auto", True, 1, True),
        ("2.13.1", "auto", True, 1, True),
        ("2.1.1", "auto", True, 1, False),
        ("2.13.2", "auto", True, 1, False),
        ("default", "auto", True, 1, False),
        ("2.3.0", "auto", True, 2, False),
        ("2.3.0", "auto", False, 1, False),
        ("2.3.0", "sync-after", True, 1, False),
    ],
)
def test_a_commit_behind_the_end_of_a_partition_is_forbidden_and_named_where_the_version_has_that_defect(
    version, commit, ends, beyond, named
):
    axes = {"group.client_version": [version], "group.commit": [commit]}
    axes |= {"group.properties.enable.partition.eof": [True]} if ends else {}
    document = {"name": "t", "title": "t", "workload": "group", "axes": axes}
    (cell,) = make_plan(parse_trial(document, source="test"), seed=1).cells
    witness = make_witnesses(1, {"log_offset": 100 + beyond, "other_offset": 100})
    envelope = Envelope(acks="all", unclean_enabled=False)
    found = evaluate_witnesses("commit-ahead", configuration_of(cell, "4.4.0"), envelope, witness)
    assert Judgement(int(found.judgement[0])) is Judgement.FORBIDDEN
    assert (int(found.rule[0]) >= 0) is named
