"""Makes what the controllers' log states of brokers, features and settings, and what is planted there: each rule broken in
turn, for the whole cluster."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np

from prozess.exchange.synthetic.cells import BEFORE_NS, NODES, Columns, GeneratedCell, log_positions
from prozess.exchange.synthetic.plants import PLANTS
from prozess.harness.interfaces.witnesses import make_witnesses
from prozess.harness.schema import ELR_VERSION, METADATA_VERSION, NONE, ClusterRecord

_LEVEL, _HIGHEST = 22, 25
"""The levels of metadata.version that brokers support, and it has in turn. 23 brought eligible leader replicas."""
_X, _Y = 98, 99
"""Brokers of which planted records are: they have no partitions."""
_FEATURE = ELR_VERSION + 1
_NO_TOPIC = (NONE, NONE)
_PLANTED_FROM = 1_000
"""The offset of the first planted record."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of `cluster_states`."""

    kind: ClusterRecord
    node: int = NONE
    broker_epoch: int = NONE
    id: tuple[int, int] = _NO_TOPIC
    fenced: int = NONE
    shutting_down: int = 0
    feature: int = NONE
    lowest: int = NONE
    level: int = NONE


_COLUMNS = (
    "kind",
    "node",
    "broker_epoch",
    "id_high",
    "id_low",
    "fenced",
    "shutting_down",
    "feature",
    "lowest",
    "level",
)
_Record = list[_Row]


def cluster_states(planted: int) -> Columns:
    """Rows of `cluster_states`: each broker registers as a fenced one, with a directory and the levels of features that it
    supports, and takes part. Then a topic is configured, and a feature has a level. Behind that is what belongs to the
    cluster among so many plants of `illegal-transition`; and in the end features are raised."""
    records: list[tuple[int, _Record]] = []
    for number, node in enumerate(NODES):
        at = 2 * number
        registered = [_registered(node, at), _Row(ClusterRecord.DIRECTORY, node, at, (2, node))]
        for feature, lowest, highest in ((METADATA_VERSION, _LEVEL, _HIGHEST), (ELR_VERSION, 1, 1)):
            registered.append(_Row(ClusterRecord.SUPPORTED, node, at, feature=feature, lowest=lowest, level=highest))
        records += [(at, registered), (at + 1, [_Row(ClusterRecord.CHANGED, node, at, fenced=0)])]
    at = 2 * len(NODES)
    records += [(at, [_Row(ClusterRecord.CONFIGURED, id=(3, 1))]), (at + 1, [_feature(METADATA_VERSION, _LEVEL)])]
    rest, _ = _planted(planted)
    raised = [[_feature(METADATA_VERSION, _HIGHEST)], [_feature(ELR_VERSION, 1)]]
    records += [*rest, *enumerate(raised, start=rest[-1][0] + 1 if rest else at + 2)]
    rows = [(at, row) for at, record in records for row in record]
    offset = np.array([at for at, _ in rows], dtype=np.int64)
    values = [(row.kind, row.node, row.broker_epoch, *row.id, *astuple(row)[4:]) for _, row in rows]
    time_ns = BEFORE_NS + offset
    return {
        "client": np.full(len(rows), NONE),
        "time_ns": time_ns,
        "log_offset": log_positions(time_ns),
        **dict(zip(_COLUMNS, np.array(values, dtype=np.int64).T, strict=True)),
    }


def illegal_in_cluster(cell: GeneratedCell, planted: int) -> np.ndarray:
    """Returns the witnesses of `illegal-transition` that are the cluster's, which each cell shows."""
    _, wrong = _planted(planted)
    offset, node, sequence = np.array(wrong, dtype=np.int64).reshape(-1, 3).T
    columns = {"log_offset": offset, "begin_ns": BEFORE_NS + offset, "reader": node, "sequence": sequence}
    return make_witnesses(len(offset), columns | {"partition": cell.partitions[0].partition})


def _planted(planted: int) -> tuple[list[tuple[int, _Record]], list[tuple[int, int, int]]]:
    """Returns records with their offsets; and of each that breaks a rule the offset, the broker, and its epoch or level."""
    records, wrong, at = list[tuple[int, _Record]](), list[tuple[int, int, int]](), _PLANTED_FROM
    plant = PLANTS["illegal-transition"]
    for number in range(planted - plant.in_cells(planted)):
        before, bad, after = _plants(at)[number % plant.of_cluster]
        row = bad[0]
        wrong.append((at + len(before), row.node, row.level if row.node == NONE else row.broker_epoch))
        made = [*before, bad, *after]
        records += enumerate(made, start=at)
        at += len(made)
    return records, wrong


def _plants(at: int) -> Sequence[tuple[list[_Record], _Record, list[_Record]]]:
    """Returns for each rule about all but partitions, in the order of TransitionCase: records from the offset `at` on, one
    that breaks the rule and no other, and records that mend it."""
    x, left = [_registered(_X, at)], [_left(_X, at)]
    own = _Row(ClusterRecord.DIRECTORY, _X, at, (2, at))
    newer = _Row(ClusterRecord.SUPPORTED, _X, at, feature=METADATA_VERSION, lowest=_LEVEL + 1, level=_LEVEL + 1)
    other = _Row(ClusterRecord.DIRECTORY, _X, at, (3, at))
    changed = _Row(ClusterRecord.CHANGED, _X, at)
    return (
        ([x], [_registered(_X, at - 1)], [[_left(_X, at - 1)]]),
        ([x], [_registered(_X, at, incarnation=at + 1)], [left]),
        ([], [_registered(_X, at, fenced=0)], [left]),
        ([], [changed], []),
        ([x], [_Row(ClusterRecord.CHANGED, _X, at - 1, fenced=0)], [left]),
        ([x], [_Row(ClusterRecord.CHANGED, _X, at, shutting_down=1)], [left]),
        (
            [[*x, own]],
            [_registered(_Y, at + 1), _Row(ClusterRecord.DIRECTORY, _Y, at + 1, (2, at))],
            [left, [_left(_Y, at + 1)]],
        ),
        ([[*x, own]], [changed, own, other], [left]),
        ([], [*x, newer], [left]),
        ([], [_feature(_FEATURE, 1)], [[_feature(_FEATURE, 0)]]),
        ([[_feature(METADATA_VERSION, _HIGHEST)]], [_feature(METADATA_VERSION, _LEVEL)], []),
        ([], [_Row(ClusterRecord.CONFIGURED)], []),
        ([], [_feature(ELR_VERSION, 1)], [[_feature(ELR_VERSION, 0)]]),
    )


def _registered(node: int, epoch: int, *, incarnation: int = NONE, fenced: int = 1) -> _Row:
    return _Row(ClusterRecord.REGISTERED, node, epoch, (1, epoch if incarnation == NONE else incarnation), fenced)


def _left(node: int, epoch: int) -> _Row:
    return _Row(ClusterRecord.UNREGISTERED, node, epoch)


def _feature(feature: int, level: int) -> _Row:
    return _Row(ClusterRecord.FEATURE, feature=feature, level=level)
