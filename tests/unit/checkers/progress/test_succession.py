"""Active controllers that were replaced: those that go on are found, and not those that give way. Times in seconds."""

import pytest

from prozess.checkers.progress.succession import stale_controller
from prozess.harness.guarantees.evidence.envelope import Envelope
from prozess.harness.guarantees.evidence.ground_truth import fault_records
from prozess.harness.guarantees.table.cell_configuration import CellConfiguration
from prozess.harness.guarantees.verdict.evaluation import Judgement, evaluate_witnesses
from prozess.harness.interfaces.checking import CellHistory
from prozess.harness.interfaces.witnesses import make_witnesses
from prozess.harness.plan.catalogue import NATURES
from prozess.harness.recording.metrics import MICRO, code_of
from prozess.harness.schema import MetadataKind, MetadataSource
from tests.support.cells.evidence import DICTIONARIES, fault, ns
from tests.support.cells.partitions import PARTITION, history, table
from tests.unit.checkers.log.test_cluster import CELL

OLD, NEW, THIRD = 3001, 3002, 3003
LOG = [(OLD, 4, 0.0), (NEW, 5, 10.0)]
"""Who became the active controller, in which epoch, and when."""


def said(node, leader, epoch, *times):
    told = {"quorum_leader": leader, "quorum_epoch": epoch}
    return [
        {"time_ns": ns(t), "node": node, "metric": code_of(m), "value_micro": v * MICRO, "absent": 0}
        for t in times
        for m, v in told.items()
    ]


def went_on(until_s):
    return said(OLD, OLD, 4, *range(1, until_s + 1))


def found(*answers, log=LOG):
    rows = [
        {
            "kind": int(MetadataKind.CONTROLLER),
            "source": int(MetadataSource.CONTROLLER_LOG),
            "time_ns": ns(at_s),
            "log_position": number,
            "node": node,
            "leader_epoch": epoch,
        }
        for number, (node, epoch, at_s) in enumerate(log)
    ]
    metrics = table("metrics", [row for made in answers for row in made])
    tables = {"metadata": table("metadata", rows), "metrics": metrics}
    result = stale_controller(CellHistory(cell=CELL, partitions={PARTITION: history()}, tables=tables, clients=()))
    assert result.count == len(result.witnesses)
    names = ("reader", "sequence", "other_client", "other_sequence")
    return [(*(int(w[n]) for n in names), w["begin_ns"] / 1e9, w["end_ns"] / 1e9) for w in result.witnesses]


def test_a_controller_that_goes_on_after_another_one_replaced_it_is_stale():
    assert found(went_on(20)) == [(OLD, 4, NEW, 5, 10.0, 20.0)]


def test_and_one_that_gives_way_in_time_is_not():
    assert found(went_on(15)) == []
    assert found(went_on(12), said(OLD, NEW, 5, *range(13, 30))) == []


def test_who_stood_still_and_answers_again_as_what_it_was_is_given_the_time_anew():
    assert found(said(OLD, OLD, 4, 8, 9, 30, 31, 32)) == []
    assert found(said(OLD, OLD, 4, 8, 9, 11, 12, 13, 30, 31)) == []


def test_a_controller_that_is_elected_again_in_a_later_epoch_is_none_of_the_old():
    again = [*LOG, (OLD, 6, 12.0)]
    assert found(said(OLD, OLD, 4, 9, 10, 11), said(OLD, OLD, 6, *range(12, 40)), log=again) == []


def test_a_new_controller_is_known_by_its_own_answers_too():
    others = said(NEW, NEW, 5, *range(11, 30))
    assert found(went_on(20), others, log=LOG[:1]) == [(OLD, 4, NEW, 5, 11.0, 20.0)]
    assert found(went_on(20), said(THIRD, OLD, 4, *range(11, 30)), log=LOG[:1]) == []


def judged(*, end_s, version=(4, 3, 1), fetch_s=2.0, cut=True):
    rows = fault(0, "partition", [OLD], 8, 40) if cut else []
    envelope = Envelope(
        acks="all",
        unclean_enabled=False,
        faults=fault_records(table("faults", rows), DICTIONARIES, NATURES) if rows else (),
        quorum_fetch_ns=ns(fetch_s),
    )
    configuration = CellConfiguration(
        acks="all", idempotent=True, retries=True, several_in_flight=True, version=version
    )
    one = make_witnesses(
        1, {"reader": OLD, "other_ns": ns(10), "begin_ns": ns(10), "end_ns": ns(end_s), "partition": 0}
    )
    evaluation = evaluate_witnesses("stale-controller", configuration, envelope, one)
    return Judgement(int(evaluation.judgement[0])), int(evaluation.rule[0])


@pytest.mark.parametrize(("fetch_s", "end_s"), [(2.0, 15.1), (10.0, 27.1)])
def test_longer_than_the_fetch_timeout_allows_is_forbidden(fetch_s, end_s):
    assert judged(end_s=end_s, fetch_s=fetch_s)[0] is Judgement.FORBIDDEN
    assert judged(end_s=end_s - 0.2, fetch_s=fetch_s)[0] is Judgement.NOT_APPLICABLE


def test_on_brokers_that_never_ask_themselves_the_known_defect_is_named():
    assert judged(end_s=30, version=(3, 6, 2)) == (Judgement.FORBIDDEN, 1)
    assert judged(end_s=30, version=(3, 7, 0)) == (Judgement.FORBIDDEN, -1)
    assert judged(end_s=30, version=(3, 6, 2), cut=False) == (Judgement.FORBIDDEN, -1)
