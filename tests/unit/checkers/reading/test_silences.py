"""stalled, of readers of which rows say when they were asked: they are given what there is meanwhile. In seconds."""

from dataclasses import replace

import pytest

from prozess.checkers.chunked.reading import join_runs, may_have_waited, runs_of
from prozess.checkers.reading.positions import stalled
from prozess.checkers.reading.silences import PartitionHeld, asked_readers, stretches_of
from prozess.harness.interfaces.checking import CellHistory
from prozess.harness.interfaces.witnesses import StallCase
from prozess.harness.plan.bounds import Bounds
from prozess.harness.plan.plan import PlannedClient
from prozess.harness.schema import MISSING, NONE, ObservationKind, Role
from tests.support.cells.delivery import LOG, sent
from tests.support.cells.evidence import ns
from tests.support.cells.partitions import OTHER_PARTITION, PARTITION, PRODUCER, READER, history, table
from tests.support.kafka_model.groups import CELL as GROUP

BOUND_S, MEMBER_BOUND_S, END_S = 70, 20, 200
ASSIGNED, SOUGHT, RESET, PAUSED, RESUMED = 1, 2, 3, 4, 5
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
    planned=LOG,
    kind=ObservationKind.ASKED,
    commits=(),
    log_start=0,
):
    """`reads`: (offset, at); `positions`: (at, event, offset[, partition]); `taken`: when the partition was revoked."""
    received = [(READER, n, PRODUCER, n, {"read_ns": ns(at), "flags": flags}) for n, at in reads]
    made = history(sent(*sends), [(n, PRODUCER, n) for n in range(log_start, len(sends))], received)
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
        "observations": table("observations", []),
        "commits": table("commits", [{"client": READER, "partition": PARTITION, "log_offset": n} for n in commits]),
        "asked": table(
            "observations",
            [{"client": READER, "time_ns": ns(a), "value": ns(b) - ns(a), "kind": int(kind)} for a, b in asked],
        ),
    }
    reader = PlannedClient(
        client=READER, role=role, name="r", partitions=(PARTITION,), cell=0, isolation_level="read_uncommitted"
    )
    return CellHistory(
        cell=planned,
        partitions={PARTITION: made},
        tables=tables,
        clients=(reader,),
        bounds=Bounds(reading_ns=ns(BOUND_S), member_reading_ns=ns(MEMBER_BOUND_S)),
    )


def found(*reads, **more):
    made = cell(reads, **more)
    result = stalled(made)
    partition = made.partitions[PARTITION]
    # A large partition is only looked at whole where somebody may have waited.
    assert not result.count or may_have_waited(made, partition, join_runs(runs_of(partition.reads)))
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
    (reader,) = asked_readers(one)
    assert stretches_of(one, reader, PARTITION) == [
        PartitionHeld(ns(0), ns(10), NONE),
        PartitionHeld(ns(10), ns(30), 7),
    ]


# Members of groups that prozess drives.


LATEST = GROUP.model_copy(
    update={
        "work": GROUP.work.model_copy(
            update={"configuration": GROUP.work.configuration.model_copy(update={"auto_offset_reset": "latest"})}
        )
    }
)


def of_member(*reads, role="member", planned=GROUP, kind=ObservationKind.POLLED, **more):
    return found(*reads, role=role, planned=planned, kind=kind, **more)


@pytest.mark.parametrize("role", ["member", "java-member"])
def test_a_member_that_polls_and_is_given_nothing_of_what_it_owns_is_found(role):
    assert of_member((0, 5), role=role) == [(1, 5, 199.5, READ)]
    assert of_member((0, 5), role=role, asked=[(0, 30)], taken=[60]) == [(1, 5, 30, READ)]


def test_a_member_begins_at_what_was_committed():
    assert of_member(positions=[(10, ASSIGNED, 2)]) == [(2, 10, 199.5, READ)]
    assert of_member(positions=[(10, ASSIGNED, 3)]) == []


def test_a_group_that_was_never_given_anything_begins_at_the_log_start():
    assert of_member(positions=[(10, ASSIGNED, NONE)]) == [(0, 10, 199.5, READ)]


def test_a_reset_that_the_member_reports_with_the_next_record_changes_nothing():
    assert of_member((0, 5), positions=[(0, ASSIGNED, NONE), (5.1, RESET, 0)]) == [(1, 5, 199.5, READ)]


@pytest.mark.parametrize(
    ("reads", "more"),
    [
        pytest.param([(0, 5), (1, 6), (2, 7)], {}, id="it was given everything"),
        pytest.param([(0, 5)], {"asked": [(0, 20), (30, 49)]}, id="it did not poll for as long as the bound"),
        pytest.param([(0, 5)], {"asked": []}, id="nothing shows that it polled"),
        pytest.param([(0, 5)], {"kind": ObservationKind.ASKED}, id="rows of another kind show nothing"),
        pytest.param([(0, 5)], {"taken": [20]}, id="the partition was taken from it"),
        pytest.param([(0, 5)], {"positions": [(0, ASSIGNED, NONE), (20, PAUSED, 1)]}, id="it was paused"),
        pytest.param([], {"commits": [1]}, id="somebody may have committed, and nobody knows where it begins"),
        pytest.param([], {"planned": LATEST}, id="it begins at the end"),
        pytest.param(
            [],
            {"positions": [(0, ASSIGNED, 0)], "planned": LATEST, "log_start": 1},
            id="it may have been reset to the end, because what it wanted was deleted",
        ),
        pytest.param(
            [],
            {"planned": GROUP.model_copy(update={"life": 1})},
            id="the group may have a position in the topic before",
        ),
    ],
)
def test_a_member_that_does_not_wait_is_not_found(reads, more):
    assert of_member(*reads, **more) == []


def test_a_member_that_is_reset_to_the_log_start_waits_for_its_first_record():
    assert of_member(positions=[(1, ASSIGNED, 0)], log_start=1) == [(1, 1, 199.5, READ)]
