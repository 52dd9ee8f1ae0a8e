"""What follows what in tables: phases of faults, the controllers' log, epochs that leaders were given, spans of reading."""

import numpy as np
import pytest

from prozess.harness.history.orders import (
    KnownEpochs,
    behind_in_log,
    doubtful_faults,
    span_begins,
)
from prozess.harness.schema import FAULTS, NONE, FaultPhase, MetadataKind, MetadataSource, Tristate

JOURNALED, APPLIED, VERIFIED, UNDONE, HEALED = (
    FaultPhase.JOURNALED,
    FaultPhase.APPLIED,
    FaultPhase.VERIFIED,
    FaultPhase.UNDONE,
    FaultPhase.UNDO_VERIFIED,
)
LIFE = [(1, JOURNALED), (2, APPLIED), (3, VERIFIED), (7, UNDONE), (8, HEALED)]


def faults(*phases, **columns):
    """One fault of node 1 with these (time, phase), and what else is different in its last row."""
    rows = []
    for time_ns, phase in phases:
        seen = Tristate.YES if phase in (VERIFIED, HEALED) else Tristate.UNKNOWN
        rows.append({"time_ns": time_ns, "phase": phase, "node": 1, "peer": NONE, "effect": seen})
    rows[-1].update(columns)
    return {name: np.array([row.get(name, 0) for row in rows]) for name in FAULTS.column_names}


def wrong(rows):
    return {name for name, found in doubtful_faults(rows).items() if found.any()}


def test_the_phases_of_a_fault_follow_one_another():
    assert wrong(faults(*LIFE)) == set()
    assert wrong(faults((1, JOURNALED), (2, FaultPhase.FAILED))) == set()
    assert wrong(faults((2, APPLIED), (3, VERIFIED))) == set(), "a clients' fault needs no journal"


@pytest.mark.parametrize(
    ("moved", "by"), [(0, 10), (1, -10), (1, 10), (2, -10), (3, -10), (3, 10), (4, -10)], ids=lambda value: str(value)
)
def test_a_phase_at_another_time_is_noticed(moved, by):
    phases = [(time_ns + by * (number == moved), phase) for number, (time_ns, phase) in enumerate(LIFE)]
    assert wrong(faults(*phases)) == {"order"}


@pytest.mark.parametrize(
    ("columns", "name"),
    [
        ({"kind": 4}, "kind"),
        ({"step": 4}, "kind"),
        ({"node": 2}, "node"),
        ({"peer": 2}, "node"),
    ],
)
def test_a_fault_has_one_kind_one_step_and_the_nodes_that_it_struck(columns, name):
    assert wrong(faults(*LIFE, **columns)) == {name}


def test_an_effect_belongs_to_the_phases_that_look_for_it():
    assert wrong(faults(*LIFE[:4], effect=Tristate.YES)) == {"effect"}
    assert wrong(faults(*LIFE, effect=Tristate.NO)) == set()


def metadata(*rows, source=MetadataSource.CONTROLLER_LOG):
    """Rows (partition, position, epoch)."""
    partition, position, epoch = np.array(rows, dtype=np.int64).T
    kind = np.full(len(rows), MetadataKind.PARTITION)
    source = np.full(len(rows), source)
    return {"partition": partition, "log_position": position, "leader_epoch": epoch, "kind": kind, "source": source}


def test_positions_in_the_controllers_log_never_fall_for_one_partition():
    assert not behind_in_log(metadata((0, 5, 0), (1, 4, 0), (0, 9, 1), (0, 9, 1))).any()
    assert behind_in_log(metadata((0, 5, 0), (1, 4, 0), (0, 4, 1))).tolist() == [False, False, True]
    assert not behind_in_log(metadata((0, 5, 0), (0, 4, 1), source=MetadataSource.SAMPLE)).any()


def test_an_epoch_that_no_leader_was_given_is_noticed_where_the_leaders_are_known():
    known = KnownEpochs(metadata((0, 1, 0), (0, 2, 1), (1, 3, 7)))
    rows = {"partition": np.array([0, 0, 0, 0, 1, 1, 2]), "leader_epoch": np.array([0, 1, NONE, 7, 7, 0, 5])}
    assert known.unknown(rows).tolist() == [False, False, False, True, False, True, False]
    sampled = KnownEpochs(metadata((0, 1, 0), source=MetadataSource.DESCRIBED))
    assert not sampled.unknown(rows).any()
    assert known.unknown({name: values[:0] for name, values in rows.items()}).tolist() == []


def test_a_span_begins_where_it_was_assigned_or_sought_and_nowhere_where_that_is_not_known():
    rows = [(1, 0, 0, 5, 1), (1, 0, 0, 9, 4), (1, 0, 1, 7, 2), (1, 0, 2, NONE, 1)]
    names = ("client", "partition", "span", "log_offset", "event")
    positions = dict(zip(names, np.array(rows).T, strict=True))
    assert span_begins(positions) == {(1, 0, 0): 5, (1, 0, 1): 7}


@pytest.mark.parametrize("to", [2, 9], ids=["the log was cut", "to the end"])
def test_a_span_that_was_reset_begins_at_the_lesser_of_both_offsets(to):
    names = ("client", "partition", "span", "log_offset", "event")
    positions = dict(zip(names, np.array([(1, 0, 0, 5, 1), (1, 0, 0, to, 3)]).T, strict=True))
    assert span_begins(positions) == {(1, 0, 0): min(5, to)}
