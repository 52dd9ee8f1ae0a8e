"""stalled, of readers that an application drives: while they are asked, they are given what there is. In seconds."""

from dataclasses import replace

import pytest

from prozess.checkers.reading.applications import PartitionHeld, stretches_of
from prozess.checkers.reading.positions import stalled
from prozess.harness.interfaces.checking import CellHistory
from prozess.harness.interfaces.witnesses import StallCase
from prozess.harness.plan.bounds import Bounds
from prozess.harness.plan.plan import PlannedClient
from prozess.harness.schema import MISSING, NONE, ObservationKind, Role
from tests.support.cells.delivery import LOG, sent
from tests.support.cells.evidence import ns
from tests.support.cells.partitions import OTHER_PARTITION, PARTITION, PRODUCER, READER, history, table

BOUND_S, END_S = 70, 200
ASSIGNED, SOUGHT, PAUSED, RESUMED = 1, 2, 4, 5
REVOKE = 2


def cell(
    reads,
    *,
    positions=((0, ASSIGNED, NONE),),
    asked=((0, END_S),),
    taken=(),
    role="recorded-member",
    flags=0,
    sends=(1, 2, 3),
):
    """`reads`: (offset, at); `positions`: (at, event, offset[, partition]); `taken`: when the partition was revoked."""
    received = [(READER, n, PRODUCER, n, {"read_ns": ns(at), "flags": flags}) for n, at in reads]
    made = history(sent(*sends), [(n, PRODUCER, n) for n in range(len(sends))], received)
    beats = [{"client": READER, "time_ns": ns(t / 2)} for t in range(2 * END_S)]
    rows = [
        {
            "client": READER,
            "time_ns": ns(at),
            "event": event,
            "log_offset": offset,
            "partition": more[0] if more else PARTITION,
        }
        for at, event, offset, *more in positions
    ]
    tables = {
        "clients": table(
            "clients", [{"client": READER, "planned": READER, "role": int(Role.MEMBER), "ended_ns": MISSING}]
        ),
        "heartbeats": table("heartbeats", beats),
        "positions": table("positions", rows),
        "assignments": table(
            "assignments",
            [{"client": READER, "started_ns": ns(at), "partition": PARTITION, "event": REVOKE} for at in taken]
            + [{"client": READER, "started_ns": ns(-1), "partition": NONE, "event": 1}] * (role == "recorded-member"),
        ),
        "leader_offsets": table("metrics", []),
        "transactions": table("transactions", []),
        "asked": table(
            "observations",
            [
                {"client": READER, "time_ns": ns(a), "value": ns(b) - ns(a), "kind": int(ObservationKind.ASKED)}
                for a, b in asked
            ],
        ),
    }
    reader = PlannedClient(
        client=READER, role=role, name="r", partitions=(PARTITION,), cell=0, isolation_level="read_uncommitted"
    )
    return CellHistory(
        cell=LOG,
        partitions={PARTITION: made},
        tables=tables,
        clients=(reader,),
        bounds=Bounds(reading_ns=ns(BOUND_S)),
    )


def found(*reads, **more):
    result = stalled(cell(reads, **more))
    return [(int(w["log_offset"]), w["begin_ns"] / 1e9, w["end_ns"] / 1e9, int(w["case"])) for w in result.witnesses]


READ = StallCase.READER


def test_a_reader_that_polls_and_is_given_nothing_more_is_found():
    assert found((0, 5)) == [(1, 5, 199.5, READ)]
    assert found((0, 5), asked=[(0, 100)]) == [(1, 5, 100, READ)]
    assert found((0, 5), role="recorded-reader") == [(1, 5, 199.5, READ)]
    assert found(positions=[(0, ASSIGNED, NONE), (10, SOUGHT, 1)]) == [(1, 10, 199.5, READ)]
    assert found((0, 5), positions=[(0, ASSIGNED, NONE), (20, PAUSED, 1), (50, RESUMED, 1)]) == [(1, 50, 199.5, READ)]


@pytest.mark.parametrize(
    ("reads", "more"),
    [
        pytest.param([(0, 5), (1, 6), (2, 7)], {}, id="it was given everything"),
        pytest.param([(0, 5)], {"asked": [(0, 60), (80, 149)]}, id="nobody asked it for as long as the bound"),
        pytest.param([(0, 5)], {"asked": []}, id="nothing shows that anybody asked it"),
        pytest.param([], {}, id="nobody knows from where on it reads"),
        pytest.param([(0, 5)], {"taken": [60]}, id="the partition was taken from it"),
        pytest.param([(0, 5)], {"positions": [(0, ASSIGNED, NONE), (60, PAUSED, 1)]}, id="it was paused"),
        pytest.param([(0, 5)], {"positions": [(0, ASSIGNED, NONE), (60, SOUGHT, 3)]}, id="it sought the end"),
        pytest.param(
            [(0, 5)],
            {"role": "recorded-reader", "positions": [(0, ASSIGNED, NONE), (60, ASSIGNED, NONE, OTHER_PARTITION)]},
            id="it assigned itself another partition",
        ),
    ],
)
def test_a_reader_that_is_not_asked_or_has_nothing_to_read_is_not_found(reads, more):
    assert found(*reads, **more) == []


def test_a_member_keeps_what_it_has_when_it_is_given_more():
    more = [(0, ASSIGNED, NONE), (60, ASSIGNED, NONE, OTHER_PARTITION)]
    assert found((0, 5), positions=more) == [(1, 5, 199.5, READ)]


def test_judged_is_each_reader_of_which_somebody_asked_for_records():
    assert stalled(cell([(0, 5)])).judged == 1
    assert stalled(cell([(0, 5)], asked=[])).judged == 0


def test_transactions_of_others_may_hold_back_what_is_committed():
    one = cell([(0, 5)], flags=2)
    committed = replace(one, clients=[one.clients[0].model_copy(update={"isolation_level": "read_committed"})])
    assert stalled(committed).count == 0


def test_the_times_in_which_a_reader_has_a_partition_end_with_the_next_event():
    one = cell([], positions=[(0, ASSIGNED, NONE), (10, SOUGHT, 7)], taken=[30])
    assert stretches_of(one, READER, PARTITION) == [
        PartitionHeld(ns(0), ns(10), NONE),
        PartitionHeld(ns(10), ns(30), 7),
    ]
