"""Partitions without a leader within reach: found where another replica could lead, and not where none could. In seconds."""

from dataclasses import replace

import pytest

from prozess.checkers.progress.leaders import leaderless
from prozess.harness.columns import empty_rows
from prozess.harness.guarantees.evidence.envelope import Envelope
from prozess.harness.guarantees.evidence.ground_truth import fault_records
from prozess.harness.guarantees.table.cell_configuration import CellConfiguration
from prozess.harness.guarantees.verdict.evaluation import Judgement, evaluate_witnesses
from prozess.harness.history.participants import NOT_UNDONE_NS, nodes_out
from prozess.harness.interfaces.checking import CellHistory
from prozess.harness.interfaces.witnesses import ProgressCase, make_witnesses
from prozess.harness.plan.bounds import Bounds
from prozess.harness.plan.catalogue import NATURES
from prozess.harness.schema import METADATA, MetadataKind, MetadataSource, Tristate
from tests.support.cells.evidence import DICTIONARIES, fault, ns, state
from tests.support.cells.partitions import PARTITION, history, table
from tests.unit.checkers.log.test_cluster import CELL

CLIENT = 1
BOUND_S = 24
NOBODY = -1


def broker(node, kind, at_s):
    row = {"kind": int(kind), "source": int(MetadataSource.CONTROLLER_LOG), "time_ns": ns(at_s), "node": node}
    return row | {"log_position": round(at_s * 10)}


def registered(*nodes):
    kinds = (MetadataKind.BROKER_REGISTERED, -20), (MetadataKind.BROKER_UNFENCED, -19)
    return [broker(node, kind, at_s) for node in nodes for kind, at_s in kinds]


def led(*rows):
    """Rows (at_s, leader, ISR) of one partition."""
    return [
        state(at_s, PARTITION, leader, epoch, isr) | {"log_position": epoch}
        for epoch, (at_s, leader, isr) in enumerate(rows)
    ]


def found(*rows, out=None, brokers=(), until=100, still=None):
    times = [t / 2 for t in range(2 * until) if still is None or abs(t / 2 - still) > 1]
    tables = {
        "metadata": table("metadata", [*registered(1, 2, 3), *brokers]),
        "heartbeats": table("heartbeats", [{"client": CLIENT, "time_ns": ns(t)} for t in times]),
        "clients": table("clients", [{"client": CLIENT, "planned": CLIENT}]),
    }
    made = CellHistory(
        cell=CELL,
        partitions={PARTITION: replace(history(), metadata=table("metadata", led(*rows)))},
        tables=tables,
        clients=(),
        bounds=Bounds(new_leader_ns=ns(BOUND_S)),
        out={node: tuple((ns(a), ns(b)) for a, b in spans) for node, spans in (out or {}).items()},
    )
    result = leaderless(made)
    assert result.count == len(result.witnesses)
    return [
        (int(w["other_client"]), int(w["reader"]), w["begin_ns"] / 1e9, w["end_ns"] / 1e9, int(w["case"]))
        for w in result.witnesses
    ]


def test_a_dead_leader_that_the_controllers_go_on_to_name_leaves_its_partition_leaderless():
    assert found((-10, 1, (1, 2)), out={1: [(5, 60)]}) == [(1, 2, 5.0, 60.0, ProgressCase.LEADER)]


def test_and_one_that_is_replaced_in_time_does_not():
    assert found((-10, 1, (1, 2)), (5 + BOUND_S - 1, 2, (2,)), out={1: [(5, 60)]}) == []
    assert found((-10, 1, (1, 2)), out={1: [(5, 5 + BOUND_S - 1)]}) == []


def test_a_change_of_the_isr_gives_no_new_time():
    assert len(found((-10, 1, (1, 2, 3)), (20, 1, (1, 2)), out={1: [(5, 60)]})) == 1


def test_a_partition_that_nobody_leads_is_leaderless_if_a_replica_in_sync_is_there():
    assert found((-10, 1, (1, 2)), (5, NOBODY, (2,)), (60, 2, (2,))) == [(1, 2, 5.0, 60.0, ProgressCase.LEADER)]
    assert found((-10, 1, (1, 2)), (5, NOBODY, (2,))) == [(1, 2, 5.0, 99.5, ProgressCase.LEADER)]


@pytest.mark.parametrize(
    "change",
    [
        {"out": {1: [(5, 60)], 2: [(0, 70)]}},
        {"out": {1: [(5, 60)], 2: [(20, 40)]}},
        {"out": {1: [(5, 60)]}, "brokers": [broker(2, MetadataKind.BROKER_FENCED, 3)]},
    ],
    ids=["out of reach, too", "within reach for too short", "fenced"],
)
def test_nobody_leads_in_place_of_a_leader_while_no_other_replica_in_sync_could(change):
    assert found((-10, 1, (1, 2)), **change) == []
    assert len(found((-10, 1, (1, 2, 3)), **change)) == 1, "the third one could"


def test_the_time_counts_from_when_another_replica_was_there():
    back = [broker(2, MetadataKind.BROKER_FENCED, 3), broker(2, MetadataKind.BROKER_UNFENCED, 20)]
    assert found((-10, 1, (1, 2)), out={1: [(5, 60)]}, brokers=back) == [(1, 2, 20.0, 60.0, ProgressCase.LEADER)]


def test_a_replica_out_of_sync_need_not_lead():
    assert found((-10, 1, (1,)), out={1: [(5, 60)]}) == []


def test_a_machine_that_stood_still_is_told_from_one_that_did_not():
    assert [case for *_, case in found((-10, 1, (1, 2)), out={1: [(5, 60)]}, still=30)] == [ProgressCase.STOOD_STILL]


def test_without_the_controllers_log_nothing_is_concluded():
    made = CellHistory(
        cell=CELL,
        partitions={PARTITION: replace(history(), metadata=empty_rows(METADATA))},
        tables={name: table(name, []) for name in ("metadata", "heartbeats")},
        clients=(),
    )
    assert "the controllers' log says nothing" in (leaderless(made).incomplete or "")


def test_nodes_are_out_from_when_a_fault_was_seen_to_work_until_it_is_undone():
    rows = [*fault(0, "kill", [2], 5, 30), *fault(1, "pause", [2], 20, 40), *fault(2, "kill", [3], 50, None)]
    rows += [*fault(3, "partition", [1], 5, 30), *fault(4, "kill", [1], 5, 30, effect=Tristate.UNKNOWN)]
    out = nodes_out(table("faults", rows), DICTIONARIES)
    assert list(out) == [2, 3]
    [(begin_ns, end_ns)] = out[2]
    assert ns(5) <= begin_ns < ns(20)
    assert ns(35) < end_ns <= ns(40)
    assert [end for _, end in out[3]] == [NOT_UNDONE_NS]


NEW = CellConfiguration(acks="all", idempotent=True, retries=True, several_in_flight=True, version=(4, 3, 1))


def judged(*faults, case=ProgressCase.LEADER):
    rows = [row for made in faults for row in made]
    envelope = Envelope(
        acks="all",
        unclean_enabled=False,
        keepers=frozenset({3001, 3002, 3003}),
        faults=fault_records(table("faults", rows), DICTIONARIES, NATURES) if rows else (),
    )
    one = make_witnesses(1, {"partition": PARTITION, "begin_ns": ns(10), "end_ns": ns(60), "case": case})
    return Judgement(int(evaluate_witnesses("leaderless", NEW, envelope, one).judgement[0]))


def test_only_a_quorum_without_a_majority_permits_it():
    leader = fault(0, "kill", [1], 9, 60)
    assert judged(leader) is Judgement.FORBIDDEN
    assert judged(leader, fault(1, "kill", [3001], 9, 60)) is Judgement.FORBIDDEN
    assert (
        judged(leader, fault(1, "kill", [3001], 9, 60), fault(2, "pause", [3002], 20, 30)) is Judgement.NOT_APPLICABLE
    )
    assert judged(leader, fault(1, "kill", [3001, 3002], 70, 90)) is Judgement.FORBIDDEN
    unproven = fault(1, "kill", [3001, 3002], 9, 60, effect=Tristate.UNKNOWN)
    assert judged(leader, unproven) is Judgement.UNKNOWN


def test_on_a_machine_that_stood_still_it_is_unknown():
    assert judged(case=ProgressCase.STOOD_STILL) is Judgement.UNKNOWN
