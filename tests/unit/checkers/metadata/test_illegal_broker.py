"""Tests of the rules for brokers in the controllers' log: each by a log that breaks it, and one that nearly does."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.checkers.metadata.illegal import illegal_transition
from prozess.harness.interfaces.checking import CellHistory
from prozess.harness.interfaces.witnesses import TransitionCase as Case
from prozess.harness.schema import NONE
from prozess.harness.schema import ClusterRecord as Record
from tests.support.cells.partitions import CELL, PARTITION, history, table

Row = dict[str, int]
Log = Sequence[Sequence[Row]]


def broken(*records: Sequence[Row]) -> list[tuple[Case, int]]:
    """The rules that records break, each with the offset. Record n is at offset n."""
    rows = [row | {"log_offset": n, "time_ns": n} for n, record in enumerate(records) for row in record]
    cell = CELL.model_copy(update={"partitions": (PARTITION,)})
    tables = {"cluster_states": table("cluster_states", rows), "metadata": table("metadata", [])}
    result = illegal_transition(CellHistory(cell=cell, partitions={PARTITION: history()}, tables=tables, clients=()))
    assert result.count == len(result.witnesses)
    assert result.judged == 1 + len([record for record in records if record]), "one is of the partition"
    return sorted((Case(int(w["case"])), int(w["log_offset"])) for w in result.witnesses)


def registered(
    node: int, epoch: int, process: int, *directories: int, fenced: int = 1, shutting_down: int = 0
) -> list[Row]:
    row = of(Record.REGISTERED, node, epoch, fenced=fenced) | {"id_high": 7, "id_low": process}
    return [row | {"shutting_down": shutting_down}, *directories_of(node, epoch, directories)]


def changed(node: int, epoch: int, *directories: int, fenced: int = NONE, shutting_down: int = 0) -> list[Row]:
    row = of(Record.CHANGED, node, epoch, fenced=fenced) | {"shutting_down": shutting_down}
    return [row, *directories_of(node, epoch, directories)]


def unregistered(node: int, epoch: int) -> list[Row]:
    return [of(Record.UNREGISTERED, node, epoch, fenced=1)]


def of(kind: Record, node: int, epoch: int, *, fenced: int = NONE) -> Row:
    return {"kind": int(kind), "node": node, "broker_epoch": epoch, "fenced": fenced, "shutting_down": 0}


def directories_of(node: int, epoch: int, directories: Sequence[int]) -> list[Row]:
    return [of(Record.DIRECTORY, node, epoch) | {"id_high": 9, "id_low": one} for one in directories]


SNAPSHOT = [{"kind": int(Record.SNAPSHOT), "node": NONE}]
NOTHING: list[Row] = []
"""A record about something else."""


def test_a_broker_that_starts_runs_shuts_down_and_comes_back_breaks_no_rule():
    begun = [registered(1, 0, 5, 31, 32), changed(1, 0, fenced=0), changed(1, 0, 32)]
    ended = [changed(1, 0, shutting_down=1), changed(1, 0, fenced=1), changed(1, 0, fenced=1)]
    assert broken(*begun, *ended, registered(1, 6, 6, 31, 32), changed(1, 6, fenced=0), unregistered(1, 6)) == []


@pytest.mark.parametrize(
    ("rule", "log", "breaks", "keeps"),
    [
        (Case.BROKER_EPOCH_NOT_NEW, [NOTHING, registered(1, 1, 5)], registered(2, 1, 6), registered(2, 2, 6)),
        (Case.BROKER_EPOCH_NOT_NEW, [registered(1, 0, 5)], registered(1, 2, 6), registered(1, 1, 6)),
        (Case.BROKER_EPOCH_NOT_NEW, [registered(1, 0, 5), NOTHING], registered(1, 3, 6), registered(1, 1, 6)),
        (Case.EPOCH_OF_ANOTHER, [registered(1, 0, 5)], registered(1, 0, 6), registered(1, 0, 5)),
        (Case.EPOCH_OF_ANOTHER, [registered(1, 0, 5)], registered(1, 0, 5, fenced=0), registered(1, 1, 5, fenced=0)),
        (
            Case.EPOCH_OF_ANOTHER,
            [registered(1, 0, 5), changed(1, 0, fenced=0), changed(1, 0, shutting_down=1)],
            registered(1, 0, 5, fenced=0),
            registered(1, 0, 5, fenced=0, shutting_down=1),
        ),
        (Case.REGISTERED_UNFENCED, [registered(1, 0, 5)], registered(1, 1, 6, fenced=0), registered(1, 1, 6)),
        (Case.REGISTERED_UNFENCED, [], registered(1, 0, 6, shutting_down=1), registered(1, 0, 6)),
        (Case.BROKER_NOT_REGISTERED, [registered(1, 0, 5)], changed(2, 0, fenced=0), changed(1, 0, fenced=0)),
        (
            Case.BROKER_NOT_REGISTERED,
            [registered(1, 0, 5), unregistered(1, 0)],
            unregistered(1, 0),
            registered(1, 2, 5),
        ),
        (
            Case.BROKER_EPOCH_STALE,
            [registered(1, 0, 5), registered(1, 1, 6)],
            changed(1, 0, fenced=0),
            changed(1, 1, fenced=0),
        ),
        (
            Case.SHUTDOWN_OF_FENCED,
            [registered(1, 0, 5), changed(1, 0, fenced=0), changed(1, 0, fenced=1)],
            changed(1, 0, shutting_down=1),
            changed(1, 0, fenced=1),
        ),
        (Case.DIRECTORY_OF_TWO, [registered(1, 0, 5, 31)], registered(2, 1, 6, 30, 31), registered(2, 1, 6, 30)),
        (
            Case.DIRECTORY_OF_TWO,
            [registered(1, 0, 5, 31, 32), changed(1, 0, 31)],
            registered(2, 2, 6, 31),
            registered(2, 2, 6, 32),
        ),
        (
            Case.DIRECTORY_CAME_BACK,
            [registered(1, 0, 5, 31, 32), changed(1, 0, 31)],
            changed(1, 0, 31, 32),
            registered(1, 2, 6, 31, 32),
        ),
    ],
)
def test_a_rule_forbids_a_record_and_not_the_one_beside_it(rule, log, breaks, keeps):
    assert broken(*log, breaks) == [(rule, len(log))]
    assert broken(*log, keeps) == []


def test_a_directory_is_free_where_its_broker_is_unregistered_or_has_registered_without_it():
    assert broken(registered(1, 0, 5, 31), unregistered(1, 0), registered(2, 2, 6, 31)) == []
    assert broken(registered(1, 0, 5, 31), registered(1, 1, 6), registered(2, 2, 7, 31)) == []


def test_what_a_snapshot_holds_is_old_and_known_from_there_on():
    held = [*SNAPSHOT, *registered(1, 3, 5, 31, fenced=0), *registered(2, 4, 6, 32, shutting_down=1)]
    log = [*[NOTHING] * 9, held, changed(1, 3, fenced=1)]
    cell = CELL.model_copy(update={"partitions": (PARTITION,)})

    def found(*records):
        rows = [row | {"log_offset": n, "time_ns": n} for n, record in enumerate(records) for row in record]
        tables = {"cluster_states": table("cluster_states", rows), "metadata": table("metadata", [])}
        whole = CellHistory(cell=cell, partitions={PARTITION: history()}, tables=tables, clients=())
        return [Case(int(w["case"])) for w in illegal_transition(whole).witnesses]

    assert found(*log) == []
    assert found(*log, changed(2, 3, fenced=0)) == [Case.BROKER_EPOCH_STALE]
    assert found(*log, registered(3, 11, 7, 32)) == [Case.DIRECTORY_OF_TWO]


def test_only_the_first_partition_of_a_cell_shows_what_is_wrong_with_brokers():
    tables = {"cluster_states": table("cluster_states", unregistered(1, 0)), "metadata": table("metadata", [])}
    for partitions, count in (((PARTITION + 1, PARTITION), 1), ((PARTITION - 1, PARTITION), 0)):
        cell = CELL.model_copy(update={"partitions": partitions})
        alone = replace(history(), audited=False)  # the cell is not whole: SQL is not asked
        whole = CellHistory(cell=cell, partitions={PARTITION: alone}, tables=tables, clients=())
        assert illegal_transition(whole).count == count


@pytest.mark.parametrize(
    ("at", "change"),
    [(0, {"fenced": NONE}), (1, {"kind": 99}), (1, {"log_offset": 1}), (1, {"node": 2}), (1, {"broker_epoch": 1})],
)
def test_rows_that_are_no_record_make_it_incomplete(at, change):
    cell = CELL.model_copy(update={"partitions": (PARTITION,)})
    rows = [row | {"log_offset": 0} for row in registered(1, 0, 5, 31)]

    def incomplete():
        tables = {"cluster_states": table("cluster_states", rows), "metadata": table("metadata", [])}
        whole = CellHistory(cell=cell, partitions={PARTITION: history()}, tables=tables, clients=())
        return illegal_transition(whole).incomplete

    assert incomplete() is None
    rows[at] = rows[at] | change
    assert incomplete() == "rows about brokers are missing, or say what no record does"


# --- a second model, which goes through the log record by record


def naive(log: Log) -> list[tuple[Case, int]]:
    """State × record → state, and the rules that the record breaks."""
    found: list[tuple[Case, int]] = []
    known: dict[int, Row] = {}
    has: dict[int, list[int]] = {}
    last = NONE
    for at, record in enumerate(log):
        if not record:
            continue
        own, node = record[0], record[0]["node"]
        directories = [row["id_low"] for row in record[1:]]
        before = known.get(node)
        if own["kind"] == Record.REGISTERED:
            cases = on_registration(before, own, last, at)
            known[node], has[node] = dict(own), []
        else:
            cases = on_change(before, own)
        if own["kind"] == Record.UNREGISTERED:
            known.pop(node, None)
            has.pop(node, None)
        if own["kind"] == Record.CHANGED and set(directories) - set(has.get(node, [])):
            cases.append(Case.DIRECTORY_CAME_BACK)
        if directories:
            if any(set(directories) & set(others) for other, others in has.items() if other != node):
                cases.append(Case.DIRECTORY_OF_TWO)
            has[node] = directories
        found += [(case, at) for case in cases]
        last = at
    return sorted(found)


def on_change(before: Row | None, own: Row) -> list[Case]:
    if before is None:
        return [Case.BROKER_NOT_REGISTERED]
    found = [Case.BROKER_EPOCH_STALE] if own["broker_epoch"] != before["broker_epoch"] else []
    if own["kind"] == Record.CHANGED and own["shutting_down"] and before["fenced"] == 1:
        found.append(Case.SHUTDOWN_OF_FENCED)
    before["fenced"] = before["fenced"] if own["fenced"] == NONE else own["fenced"]
    before["shutting_down"] |= own["shutting_down"]
    return found


def on_registration(before: Row | None, own: Row, last: int, at: int) -> list[Case]:
    epoch, state = own["broker_epoch"], (own["fenced"], own["shutting_down"])
    same = before is not None and before["id_low"] == own["id_low"]
    found = []
    if before is not None and before["broker_epoch"] == epoch:
        if not same or (before["fenced"], before["shutting_down"]) != state:
            found.append(Case.EPOCH_OF_ANOTHER)
    elif not last < epoch <= at:
        found.append(Case.BROKER_EPOCH_NOT_NEW)
    return [*found, Case.REGISTERED_UNFENCED] if not same and state != (1, 0) else found


nodes, epochs, bits = st.integers(1, 3), st.integers(0, 8), st.integers(0, 1)
some = st.lists(st.integers(31, 33), max_size=2, unique=True)
records = st.one_of(
    st.just(NOTHING),
    st.builds(
        lambda node, epoch, process, held, fenced, shut: registered(
            node, epoch, process, *held, fenced=fenced, shutting_down=shut
        ),
        *(nodes, epochs, st.integers(5, 6), some, bits, bits),
    ),
    st.builds(
        lambda node, epoch, held, fenced, shut: changed(node, epoch, *held, fenced=fenced, shutting_down=shut),
        *(nodes, epochs, some, st.integers(-1, 1), bits),
    ),
    st.builds(unregistered, nodes, epochs),
)


@given(st.lists(records, max_size=12))
def test_the_rules_agree_with_a_model_that_goes_record_by_record(log):
    assert broken(*log) == naive(log)
