"""Makes what coordinators write down: of each transactional.id and each consumer group, in a partition of its own."""

from collections.abc import Iterator, Mapping

import numpy as np

from prozess.exchange.synthetic.cells import COMMIT, GeneratedCell, owner_of
from prozess.exchange.synthetic.log import STEP_NS
from prozess.harness.interfaces.witnesses import make_witnesses
from prozess.harness.schema import NONE, GroupRecord, ShareRecord, ShareState, TransactionState

_INITIALISED_NS = -1_000_000
_EPOCH, _GROUP_EPOCH = 0, 1


def transaction_states(cell: GeneratedCell) -> Iterator[Mapping[str, np.ndarray]]:
    """Rows of `transaction_states`: each id is initialised, and each transaction of a producer is open, decided and
    complete."""
    producers = cell.partitions[0].producers.tolist()
    ids = np.array([*producers, cell.zombie, cell.planter])
    yield _states(
        ids, np.zeros(len(ids)), np.full(len(ids), _INITIALISED_NS), np.full(len(ids), TransactionState.EMPTY)
    )
    for rows in cell.transactions():
        client, number = np.asarray(rows["client"]), rows.get("transaction", NONE)
        mine = np.isin(client, producers) & (number != NONE)
        if not mine.any():
            continue
        commit = np.asarray(rows["ended_by"])[mine] == COMMIT
        decided = np.where(commit, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
        complete = np.where(commit, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
        state = np.stack([np.full(len(commit), TransactionState.ONGOING), decided, complete], axis=1)
        times = [np.asarray(rows[name])[mine] for name in ("begun_ns", "end_invoked_ns", "completed_ns")]
        offsets = 1 + 3 * np.asarray(number)[mine][:, None] + np.arange(3)
        yield _states(np.repeat(client[mine], 3), offsets.ravel(), np.stack(times, axis=1).ravel(), state.ravel())
    yield _planted_states(cell)


def illegal_transaction_states(cell: GeneratedCell) -> np.ndarray:
    """Returns the witnesses of `illegal-transaction-state`: a transaction is open, and complete without a decision."""
    rows = _planted_states(cell)
    bad = slice(2, None, 2)
    return make_witnesses(
        len(rows["log_offset"][bad]),
        {
            "partition": cell.partitions[0].partition,
            "client": cell.waiter,
            "sequence": _EPOCH,
            "log_offset": rows["log_offset"][bad],
            "reader": cell.waiter,
            "begin_ns": rows["time_ns"][bad],
        },
    )


def _planted_states(cell: GeneratedCell) -> dict[str, np.ndarray]:
    """The rows of the waiter: it is initialised, then open and complete in turn, as often as is planted."""
    count = cell.planted.get("illegal-transaction-state", 0)
    state = np.tile([TransactionState.ONGOING, TransactionState.COMPLETE_COMMIT], count)
    offset = np.arange(1 + len(state))
    time_ns = _INITIALISED_NS + offset * STEP_NS
    return _states(np.full(len(offset), cell.waiter), offset, time_ns, np.append(TransactionState.EMPTY, state))


def _states(client: np.ndarray, offset: np.ndarray, time_ns: np.ndarray, state: np.ndarray) -> dict[str, np.ndarray]:
    is_open = np.isin(
        state, (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
    )
    return {
        "client": np.full(len(client), NONE),
        "time_ns": time_ns,
        "log_offset": offset,
        "producer_id": client,
        "number": client,
        "leader_epoch": np.zeros(len(client)),
        "transactional_id": client,
        "state": state,
        "producer_epoch": np.full(len(client), _EPOCH),
        "partitions": is_open.astype(np.int64),
        "client_version": np.zeros(len(client)),
    }


def group_states(cell: GeneratedCell) -> Mapping[str, np.ndarray]:
    """Rows of `group_states`: the group has epochs, and each partition has an owner. Where that was planted, an epoch of the
    group falls."""
    owned = [(owner_of(cell, partition), partition.partition) for partition in cell.partitions]
    falls = np.tile([_GROUP_EPOCH + 1, _GROUP_EPOCH], cell.planted.get("illegal-group-state", 0)).tolist()
    rows = [(GroupRecord.GROUP_EPOCH, _GROUP_EPOCH, NONE, NONE), (GroupRecord.TARGET_EPOCH, _GROUP_EPOCH, NONE, NONE)]
    for member in sorted({owner for owner, _ in owned}):
        rows.append((GroupRecord.MEMBER, _GROUP_EPOCH, member, NONE))
        rows += [(GroupRecord.OWNED, _GROUP_EPOCH, member, partition) for owner, partition in owned if owner == member]
    rows += [(GroupRecord.GROUP_EPOCH, epoch, NONE, NONE) for epoch in falls]
    kind, epoch, member, partition = np.array(rows, dtype=np.int64).T
    # A member's partitions are in its record.
    offset = np.cumsum(kind != GroupRecord.OWNED) - 1
    return {
        "client": np.full(len(rows), NONE),
        "time_ns": _INITIALISED_NS + offset * STEP_NS,
        "log_offset": offset,
        "number": np.full(len(rows), cell.cell),
        "leader_epoch": np.zeros(len(rows)),
        "group": np.full(len(rows), cell.cell),
        "member": member,
        "kind": kind,
        "epoch": epoch,
        "partition": partition,
    }


def illegal_group_states(cell: GeneratedCell) -> np.ndarray:
    """Returns the witnesses of `illegal-group-state`: the epoch of a group that is below the one before."""
    rows, planted = group_states(cell), cell.planted.get("illegal-group-state", 0)
    bad = slice(len(rows["epoch"]) - 2 * planted + 1, None, 2)
    columns: dict[str, np.ndarray | int] = {name: rows[name][bad] for name in ("log_offset",)}
    columns |= {"partition": cell.partitions[0].partition, "sequence": _GROUP_EPOCH, "begin_ns": rows["time_ns"][bad]}
    return make_witnesses(planted, columns)


def share_states(cell: GeneratedCell) -> Iterator[Mapping[str, np.ndarray]]:
    """Rows of `share_states`: each record was accepted. Where that was planted, one of the first partition is available
    again."""
    for partition in cell.partitions:
        taken = np.arange(_taken_back(cell) if partition is cell.partitions[0] else 0)
        # A snapshot, the range of all records, and then an update for each record that is taken back.
        kind = [ShareRecord.SNAPSHOT, ShareRecord.RANGE, *[ShareRecord.UPDATE, ShareRecord.RANGE] * len(taken)]
        is_range = np.array(kind) == ShareRecord.RANGE
        offset = np.cumsum(~is_range) - 1
        state = [ShareState.ACKNOWLEDGED, *[ShareState.AVAILABLE] * len(taken)]
        ranges = {
            "first_offset": [0, *taken],
            "last_offset": [partition.length - 1, *taken],
            "state": state,
            "delivery_count": [1] * len(state),
        }
        columns = {name: np.full(len(kind), NONE) for name in ranges}
        for name, values in ranges.items():
            columns[name][is_range] = values
        columns["first_offset"][0] = 0
        yield {
            **columns,
            "client": np.full(len(kind), NONE),
            "time_ns": _INITIALISED_NS + offset * STEP_NS,
            "log_offset": offset,
            "number": np.full(len(kind), partition.partition),
            "leader_epoch": np.zeros(len(kind)),
            "group": np.full(len(kind), cell.cell),
            "partition": np.full(len(kind), partition.partition),
            "kind": np.array(kind, dtype=np.int64),
            "state_epoch": np.append(1, np.full(len(kind) - 1, NONE)),
            "partition_epoch": np.zeros(len(kind)),
        }


def _taken_back(cell: GeneratedCell) -> int:
    return cell.planted.get("illegal-share-state", 0)


def illegal_share_states(cell: GeneratedCell) -> np.ndarray:
    """Returns the witnesses of `illegal-share-state`: an accepted record that is available again."""
    offset = np.arange(_taken_back(cell))
    columns: dict[str, np.ndarray | int] = {
        "partition": cell.partitions[0].partition,
        "log_offset": offset,
        "sequence": 1,
    }
    return make_witnesses(len(offset), columns | {"begin_ns": _INITIALISED_NS + (1 + offset) * STEP_NS})
