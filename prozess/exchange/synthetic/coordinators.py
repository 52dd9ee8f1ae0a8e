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
    """Rows of `group_states`: a classic group was upgraded, has epochs, and each partition has an owner. Behind these is what
    was planted, each rule broken in turn."""
    records, _ = _group_records(cell)
    rows = [row for record in records for row in record]
    kind, epoch, member, partition, name = np.array(rows, dtype=np.int64).T
    offset = np.repeat(np.arange(len(records)), list(map(len, records)))
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
        "name": name,
    }


def illegal_group_states(cell: GeneratedCell) -> np.ndarray:
    """Returns the witnesses of `illegal-group-state`: the last record of each plant."""
    records, offset = _group_records(cell)
    wrong = np.array([records[at][0] for at in offset], dtype=np.int64).reshape(-1, 5)
    columns: dict[str, np.ndarray | int] = {"sequence": wrong[:, 1], "reader": wrong[:, 2], "log_offset": offset}
    columns |= {"partition": cell.partitions[0].partition, "begin_ns": _INITIALISED_NS + offset * STEP_NS}
    return make_witnesses(len(offset), columns)


_Record = list[tuple[int, int, int, int, int]]
"""Its rows: kind, epoch, member, partition, name."""
_A, _B = 1_000_000, 1_000_001
"""Members of planted records."""
_TYPE, _PROTOCOL, _INSTANCE, _OTHER = range(4)


def _group_records(cell: GeneratedCell) -> tuple[list[_Record], np.ndarray]:
    """Returns the records of a group, and the offsets of those that break a rule: int64[planted]."""
    owned = [(owner_of(cell, partition), partition.partition) for partition in cell.partitions]
    owners = sorted({owner for owner, _ in owned})
    records = [_classic(0, protocol_type=NONE), _classic(1, *owners), _gone(GroupRecord.CLASSIC_GONE)]
    records += [_stated(GroupRecord.GROUP_EPOCH, _GROUP_EPOCH), _stated(GroupRecord.TARGET_EPOCH, _GROUP_EPOCH)]
    records += [_member(owner, _GROUP_EPOCH, *(p for whose, p in owned if whose == owner)) for owner in owners]
    plants, offset = _group_plants(cell.partitions[0].partition), []
    for number in range(cell.planted.get("illegal-group-state", 0)):
        # What was planted in front of it states nothing any more.
        records += map(_gone, (GroupRecord.GROUP_GONE, GroupRecord.CLASSIC_GONE))
        records += [_gone(GroupRecord.MEMBER_GONE, _A), *plants[number % len(plants)]]
        offset.append(len(records) - 1)
    return records, np.array(offset, dtype=np.int64)


def _group_plants(partition: int) -> list[list[_Record]]:
    """Returns for each rule, in the order of GroupStateCase, records of which the last one breaks it, and nothing else."""
    epoch, target, joined = GroupRecord.GROUP_EPOCH, GroupRecord.TARGET_EPOCH, _classic(1, _A)
    return [
        [_stated(epoch, 2), _stated(epoch, 1)],
        [_stated(epoch, 2), _stated(target, 2), _stated(target, 1)],
        [_stated(epoch, 2), _stated(target, 2), _member(_A, 2), _member(_A, 1)],
        [_stated(epoch, 1), _stated(target, 2)],
        [_stated(epoch, 2), _stated(target, 1), _member(_A, 2)],
        [_stated(epoch, 1), _stated(target, 1), _member(_A, 1, partition)],
        [_stated(epoch, 1), joined],
        [_stated(epoch, 2), _gone(GroupRecord.GROUP_GONE), joined],
        [_classic(2, _A), joined],
        [joined, _classic(1, _B)],
        [joined, _classic(2, _A, protocol_type=_OTHER)],
        [_classic(1, _A, leader=_B)],
        [_classic(1, _A)[:1] + _classic(1, _A)[2:]],
        [_classic(1, leader=_A)],
        [_classic(1, _A, _B, instance=_INSTANCE)],
    ]


def _stated(kind: GroupRecord, epoch: int) -> _Record:
    return [(kind, epoch, NONE, NONE, NONE)]


def _gone(kind: GroupRecord, member: int = NONE) -> _Record:
    return [(kind, NONE, member, NONE, NONE)]


def _member(member: int, epoch: int, *partitions: int) -> _Record:
    return [
        (GroupRecord.MEMBER, epoch, member, NONE, NONE),
        *((GroupRecord.OWNED, epoch, member, one, NONE) for one in partitions),
    ]


def _classic(
    generation: int, *members: int, leader: int | None = None, protocol_type: int = _TYPE, instance: int = NONE
) -> _Record:
    """A record of a classic group: its first member leads if none is named. All have one group.instance.id, if any."""
    leads = (members[0] if members else NONE) if leader is None else leader
    protocol = [(GroupRecord.CLASSIC_PROTOCOL, generation, NONE, NONE, _PROTOCOL)] if members else []
    return [
        (GroupRecord.CLASSIC, generation, leads, NONE, protocol_type),
        *protocol,
        *((GroupRecord.CLASSIC_MEMBER, generation, one, NONE, instance) for one in members),
    ]


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
