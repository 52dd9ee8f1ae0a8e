"""unanswered: administrators' calls that get no answer within their bound, and calls that nearly do not. Times in seconds."""

import numpy as np
import pytest

from prozess.checkers.progress.admin_calls import unanswered
from prozess.harness.clock import NS_PER_S
from prozess.harness.guarantees.evidence.envelope import Envelope
from prozess.harness.guarantees.evidence.ground_truth import fault_records, timelines
from prozess.harness.guarantees.table.cell_configuration import CellConfiguration
from prozess.harness.guarantees.verdict.evaluation import Judgement, evaluate_witnesses
from prozess.harness.interfaces.checking import CellHistory
from prozess.harness.interfaces.witnesses import ProgressCase
from prozess.harness.plan.bounds import Bounds
from prozess.harness.plan.catalogue import NATURES
from prozess.harness.recording.rows import Recorder
from prozess.harness.schema import NONE, RECORDER_CLIENT, ObservationKind
from tests.support.cells.evidence import DICTIONARIES, fault, ns, state
from tests.support.cells.partitions import PARTITION, history, table
from tests.support.small_runs import START_NS, make_small
from tests.unit.checkers.log.test_cluster import CELL

BOUND_S = Bounds().admin_call_ns // NS_PER_S
ANSWERED, WAITED = ObservationKind.ADMIN_ANSWERED, ObservationKind.ADMIN_WAITED
EVER_S = 1_000


def cell(*calls, still=()):
    """`calls`: (kind, node, from when, for how long); heartbeats every half a second, but not between the two of `still`."""
    rows = [
        {"time_ns": ns(at_s), "value": ns(lasted_s), "kind": int(kind), "node": node}
        for kind, node, at_s, lasted_s in calls
    ]
    beats = [time for time in np.arange(0, EVER_S, 0.5).tolist() if not still or not still[0] < time < still[1]]
    tables = {
        "calls": table("observations", rows),
        "own_heartbeats": table("heartbeats", [{"client": RECORDER_CLIENT, "time_ns": ns(time)} for time in beats]),
    }
    return CellHistory(cell=CELL, partitions={PARTITION: history()}, tables=tables, clients=())


def found(*calls, still=()):
    result = unanswered(cell(*calls, still=still))
    assert result.count == len(result.witnesses)
    names = ("reader", "case")
    shown = [(*(int(w[n]) for n in names), w["begin_ns"] / 1e9, w["end_ns"] / 1e9) for w in result.witnesses]
    return shown, result.judged


@pytest.mark.parametrize("kind", [ANSWERED, WAITED])
@pytest.mark.parametrize(("node", "case"), [(1, ProgressCase.BROKER_CALL), (NONE, ProgressCase.CONTROLLER_CALL)])
def test_a_call_that_takes_the_bound_or_is_never_answered_is_found(kind, node, case):
    assert found((kind, node, 10, BOUND_S)) == ([(node, case, 10.0, 10.0 + BOUND_S)], 1)


def test_a_call_that_was_answered_in_time_is_judged_and_one_that_was_under_way_says_nothing():
    assert found((ANSWERED, 1, 10, BOUND_S - 0.001)) == ([], 1)
    assert found((WAITED, 1, 10, BOUND_S - 0.001)) == ([], 0)
    assert found() == ([], 0)


def test_a_history_without_such_rows_has_nothing_to_judge():
    made = CellHistory(cell=CELL, partitions={PARTITION: history()}, tables={}, clients=())
    assert (unanswered(made).count, unanswered(made).judged) == (0, 0)


def test_a_process_that_stood_still_is_no_evidence_but_what_it_waited_while_awake_is():
    half_s = BOUND_S // 2
    slept, _ = found((WAITED, 1, 10, BOUND_S), still=(10 + half_s, 13 + half_s))
    assert slept == [(1, ProgressCase.STOOD_STILL, 10.0, 10.0 + BOUND_S)]
    awake, _ = found((WAITED, 1, 10, 2 * BOUND_S), still=(20, 23))
    assert awake == [(1, ProgressCase.BROKER_CALL, 23.0, 10.0 + 2 * BOUND_S)]


def test_a_process_without_heartbeats_is_no_evidence():
    made = cell((WAITED, 1, 10, BOUND_S))
    tables = {"calls": made.tables["calls"]}
    result = unanswered(CellHistory(cell=CELL, partitions=made.partitions, tables=tables, clients=()))
    assert result.witnesses["case"].tolist() == [ProgressCase.STOOD_STILL]


NEW = CellConfiguration(acks="all", idempotent=True, retries=True, several_in_flight=True, version=(4, 3, 1))
LED = [state(-20, PARTITION, 1, 0, [1, 2, 3])]


@pytest.mark.parametrize(
    ("node", "metadata", "faults", "expected"),
    [
        (1, LED, (), Judgement.FORBIDDEN),
        (NONE, LED, (), Judgement.FORBIDDEN),
        (4, LED, (), Judgement.NOT_APPLICABLE),
        (1, LED, fault(0, "pause", [2], 20, 60), Judgement.NOT_APPLICABLE),
        (NONE, LED, fault(0, "pause", [2], 20, 60), Judgement.NOT_APPLICABLE),
        (1, LED, fault(0, "pause", [2], 0, 40), Judgement.FORBIDDEN),
        (1, [*LED, state(45, PARTITION, 2, 1, [2, 3])], (), Judgement.NOT_APPLICABLE),
        (1, [], (), Judgement.UNKNOWN),
    ],
)
def test_a_wait_is_forbidden_if_the_cluster_was_in_peace_for_the_bound(node, metadata, faults, expected):
    """The call waits from 0 s to 100 s; broker 4 is in sync in no partition of the cell."""
    envelope = Envelope(
        acks="all",
        unclean_enabled=False,
        **({"timeline": timelines(table("metadata", metadata))[PARTITION]} if metadata else {}),
        faults=fault_records(table("faults", faults), DICTIONARIES, NATURES) if faults else (),
    )
    witnesses = unanswered(cell((WAITED, node, 0, 100))).witnesses
    evaluated = evaluate_witnesses("unanswered", NEW, envelope, witnesses)
    assert [Judgement(int(one)) for one in evaluated.judgement] == [expected]


def test_heartbeats_of_the_process_that_asks_are_those_that_it_records(tmp_path):
    made = make_small(tmp_path)
    recorder = Recorder(made.run)
    recorder.write("heartbeats", time_ns=START_NS + 7)
    recorder.close()
    made.write("heartbeats", 1, [{"time_ns": START_NS + 9}])
    assert made.history().cell_history(0).tables["own_heartbeats"]["time_ns"].tolist() == [7]
