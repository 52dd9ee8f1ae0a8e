"""hanging: a call that does not return within its bound, and calls that nearly do not."""

from dataclasses import replace

import numpy as np
import pytest

from prozess.checkers.progress.awake import BEAT_GAP_NS, longest_awake
from prozess.checkers.progress.transactions import hanging
from prozess.harness.clock import NS_PER_S
from prozess.harness.interfaces.witnesses import ProgressCase
from prozess.harness.plan.bounds import Bounds
from prozess.harness.plan.plan import PlannedClient
from prozess.harness.schema import MISSING, NONE, OBSERVATIONS, ObservationKind, Outcome, Role
from tests.support.cells.transactions import ABORT, COMMIT, cell_of, columns_of, ended

BOUND_NS = Bounds().transaction_call_ns
EMPTY = {"sends": []}


def end(begin_ns, returned_ns, *, client=0, number=0, by=COMMIT, outcome=Outcome.OK):
    begun_ns = begin_ns - 1 if begin_ns != MISSING else 0
    return ended(client, number, outcome, by=by, begun_ns=begun_ns, end_invoked_ns=begin_ns, completed_ns=returned_ns)


def init(begin_ns, returned_ns=MISSING, *, client=0):
    outcome = Outcome.INFO if returned_ns == MISSING else Outcome.OK
    return ended(client, NONE, outcome, by=NONE, begun_ns=begin_ns, end_invoked_ns=MISSING, completed_ns=returned_ns)


def beating(client, until_ns, *, still=()):
    """Heartbeats every half a second, but not between the two times of `still`."""
    times = range(0, until_ns + 1, NS_PER_S // 2)
    return [{"client": client, "time_ns": time} for time in times if not still or not still[0] < time < still[1]]


def found(rows, *, lived_ns=10 * BOUND_NS, still=(), ended_ns=MISSING):
    clients = [{"client": 0, "ended_ns": ended_ns}]
    return hanging(cell_of(EMPTY, EMPTY, rows, clients=clients, heartbeats=beating(0, lived_ns, still=still)))


@pytest.mark.parametrize(
    ("row", "case"),
    [
        (end(NS_PER_S, NS_PER_S + BOUND_NS), ProgressCase.COMMIT),
        (end(NS_PER_S, NS_PER_S + BOUND_NS, by=ABORT, outcome=Outcome.INFO), ProgressCase.ABORT),
        (init(NS_PER_S, NS_PER_S + BOUND_NS), ProgressCase.INITIALISATION),
        (init(NS_PER_S), ProgressCase.INITIALISATION),
        (end(NS_PER_S, MISSING, outcome=Outcome.INFO), ProgressCase.COMMIT),
    ],
)
def test_a_call_that_takes_the_bound_or_never_returns_is_found(row, case):
    result = found([row])
    assert (result.count, result.judged) == (1, 1)
    witness = result.witnesses[0]
    assert witness["case"] == case
    assert witness["begin_ns"] == NS_PER_S
    assert witness["other_ns"] == NS_PER_S + BOUND_NS <= witness["end_ns"]


@pytest.mark.parametrize(
    ("rows", "judged"),
    [
        pytest.param([end(0, BOUND_NS - 1)], 1, id="returned a nanosecond before its bound"),
        pytest.param([end(0, BOUND_NS - 1, outcome=Outcome.FAIL)], 1, id="failed for good in time"),
        pytest.param([init(0), init(NS_PER_S, 2 * NS_PER_S)], 1, id="given up, and made again by a new instance"),
        pytest.param([end(MISSING, MISSING)], 0, id="an open transaction that nobody asked to end"),
    ],
)
def test_calls_that_end_in_time_are_not_found(rows, judged):
    result = found(rows)
    assert (result.count, result.judged) == (0, judged)


def test_a_call_that_was_under_way_when_its_client_ended_says_nothing():
    """Its client was killed a nanosecond before the bound."""
    result = found([init(NS_PER_S)], ended_ns=NS_PER_S + BOUND_NS - 1, lived_ns=NS_PER_S + BOUND_NS - 1)
    assert (result.count, result.judged) == (0, 0)


def test_a_client_without_heartbeats_says_nothing_as_in_imports():
    clients = [{"client": 0, "ended_ns": 3 * BOUND_NS}]
    result = hanging(cell_of(EMPTY, EMPTY, [init(0), end(0, BOUND_NS, number=1)], clients=clients))
    assert (result.count, result.judged) == (0, 0)


def test_a_fencer_serves_many_cells_and_each_has_its_own_calls():
    rows = [init(0, client=3) | {"transactional_id": owner} for owner in (0, 9)]
    rows[1]["begun_ns"] = 2 * BOUND_NS
    clients = [{"client": 0, "ended_ns": MISSING}, {"client": 3, "ended_ns": MISSING, "role": Role.SENTINEL}]
    result = hanging(cell_of(EMPTY, EMPTY, rows, clients=clients, heartbeats=beating(3, 4 * BOUND_NS)))
    assert result.witnesses["begin_ns"].tolist() == [0]
    assert result.witnesses["end_ns"].tolist() == [2 * BOUND_NS], "it went on to the call of another cell"


def test_a_client_that_stood_still_is_told_apart():
    """Of the call, less than the bound is left before and after its process stood still."""
    row, half_ns = init(0, 2 * BOUND_NS - NS_PER_S), BOUND_NS - NS_PER_S
    assert found([row], still=(half_ns, half_ns + 2 * NS_PER_S)).witnesses["case"].tolist() == [
        ProgressCase.STOOD_STILL
    ]
    awake = found([init(0, 2 * BOUND_NS)], still=(BOUND_NS, BOUND_NS + 2 * NS_PER_S)).witnesses[0]
    assert (awake["case"], awake["begin_ns"], awake["end_ns"]) == (ProgressCase.INITIALISATION, 0, BOUND_NS)


@pytest.mark.parametrize(
    ("called_s", "count"),
    [(((0, 60),), 1), (((0, 40), (42, 80)), 0), ((), 0)],
    ids=["for its bound", "given up, and made again later", "nothing shows it"],
)
def test_an_application_waits_for_as_long_as_it_is_within_the_call(called_s, count):
    """The bound is 50 s."""
    assert BOUND_NS == 50 * NS_PER_S
    made = cell_of(
        EMPTY, EMPTY, [init(0)], clients=[{"client": 0, "ended_ns": MISSING}], heartbeats=beating(0, 2 * BOUND_NS)
    )
    rows = [
        {"time_ns": a * NS_PER_S, "value": (b - a) * NS_PER_S, "kind": int(ObservationKind.CALLED)} for a, b in called_s
    ]
    application = PlannedClient(client=0, role="recorded-producer", name="p", partitions=made.cell.partitions)
    tables = {**made.tables, "asked": columns_of(OBSERVATIONS, rows)}
    result = hanging(replace(made, tables=tables, clients=[application]))
    assert (result.count, result.judged) == (count, count)


def test_the_longest_time_awake_is_between_heartbeats_that_stopped():
    beats = np.array([0, 1, 2, 9, 10]) * NS_PER_S
    assert longest_awake(beats, 0, 10 * NS_PER_S) == (0, 2 * NS_PER_S)
    assert longest_awake(beats[:0], 0, BEAT_GAP_NS) == (0, BEAT_GAP_NS)
    assert longest_awake(beats[:0], 0, BEAT_GAP_NS + 1) in ((0, 0), (BEAT_GAP_NS + 1, BEAT_GAP_NS + 1))
