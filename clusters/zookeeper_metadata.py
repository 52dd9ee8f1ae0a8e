"""Ground truth with ZooKeeper: its transaction logs decoded into who led and who was in sync, over time.

Kafka's controller writes each decision there before it tells a broker: leader and ISR of a partition, the brokers that are
alive (an ephemeral node each, gone when the session ends), who is the controller and in which epoch. Paths and JSON:
https://github.com/apache/kafka/blob/3.9.2/core/src/main/scala/kafka/zk/ZkData.scala. The rows are those of
`clusters.metadata_log`; there are no eligible leader replicas (KIP-966 is KRaft's).
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clusters.truth_rows import COLUMNS, truth_row
from clusters.wire import Malformed
from clusters.zookeeper_log import committed_transactions
from clusters.zookeeper_transactions import Change, Operation, Transaction, changes_of, closed_paths
from harness.broker_masks import broker_mask
from harness.errors import HistoryUnreadable
from harness.schema import METADATA, NONE, MetadataKind

NS_PER_MS = 1_000_000
CONTROLLER, CONTROLLER_EPOCH = "/controller", "/controller_epoch"
_STATE = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")
_TOPIC = re.compile(r"/brokers/topics/([^/]+)")
_BROKER = re.compile(r"/brokers/ids/(\d+)")


def decode_zookeeper_logs(
    directories: Sequence[Path], *, partition_ids: Mapping[tuple[str, int], int], wall_minus_monotonic_ns: int
) -> dict[str, np.ndarray]:
    """As `clusters.metadata_log.decode_metadata_log`, from the data directory of *each* ZooKeeper server. `log_position` is
    the zxid. HistoryUnreadable as of `clusters.zookeeper_log.committed_transactions`, and for what is not Kafka's JSON."""
    replay = TreeReplay(partition_ids, wall_minus_monotonic_ns=wall_minus_monotonic_ns)
    try:
        for transaction in committed_transactions(directories):
            replay.transaction(transaction)
    except Malformed as error:
        raise HistoryUnreadable(f"A ZooKeeper log in {directories[0].parent} {error}.") from error
    try:
        rows = np.array(replay.rows, dtype=np.int64).reshape(-1, len(COLUMNS))
    except OverflowError as error:
        raise HistoryUnreadable(
            f"A ZooKeeper log in {directories[0].parent} holds a number of more than 64 bits."
        ) from error
    return {column.name: rows[:, i].astype(column.kind) for i, column in enumerate(METADATA.columns)}


@dataclass(frozen=True, slots=True)
class _State:
    """A partition's state node. `isr`: a mask with bit n set for broker n."""

    leader: int
    leader_epoch: int
    isr: int
    recovering: int = 0


class TreeReplay:
    """Replays transactions one by one; `rows` has one value per METADATA column."""

    def __init__(self, partition_ids: Mapping[tuple[str, int], int], *, wall_minus_monotonic_ns: int) -> None:
        self.rows: list[tuple[int, ...]] = []
        self._ids, self._wall_minus_monotonic_ns = partition_ids, wall_minus_monotonic_ns
        self._owners: dict[str, int] = {}
        """Ephemeral node → its session."""
        self._states: dict[tuple[str, int], _State] = {}
        self._replicas: dict[tuple[str, int], int] = {}
        self._controller, self._epoch, self._told_epoch = NONE, NONE, NONE
        self._now = {"time_ns": 0, "log_position": NONE}
        self._kinds: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], Change], None]], ...] = (
            (_STATE, self._partition),
            (_TOPIC, self._topic),
            (_BROKER, self._broker),
        )

    def transaction(self, transaction: Transaction) -> None:
        """The next committed transaction. `Malformed` if it is not what Kafka and ZooKeeper write."""
        time_ns = transaction.time_ms * NS_PER_MS - self._wall_minus_monotonic_ns
        self._now = {"time_ns": time_ns, "log_position": transaction.zxid}
        if transaction.operation == Operation.CLOSE_SESSION:
            own = [path for path, session in self._owners.items() if session == transaction.session]
            for path in dict.fromkeys((*own, *closed_paths(transaction.body))):
                self._change(Change(Operation.DELETE, path), transaction)
        else:
            for change in changes_of(transaction.operation, transaction.body):
                try:
                    self._change(change, transaction)
                except (KeyError, TypeError, ValueError, AttributeError) as error:
                    raise Malformed(f"has {change.data[:80]!r} at {change.path}, which is not Kafka's") from error
        # One multi makes somebody the controller and counts the epoch. [registerControllerAndIncrementControllerEpoch]
        if self._controller != NONE and self._epoch != self._told_epoch:
            self._told_epoch = self._epoch
            self._row(MetadataKind.CONTROLLER, node=self._controller, leader_epoch=self._epoch)

    def _change(self, change: Change, transaction: Transaction) -> None:
        gone = change.operation is Operation.DELETE
        if change.ephemeral:
            self._owners[change.path] = transaction.session
        elif gone:
            self._owners.pop(change.path, None)
        if change.path == CONTROLLER:
            self._controller = NONE if gone else int(json.loads(change.data)["brokerid"])
        elif change.path == CONTROLLER_EPOCH and not gone:
            self._epoch = int(change.data)
        else:
            for pattern, apply in self._kinds:
                if match := pattern.fullmatch(change.path):
                    apply(match, change)

    def _partition(self, match: re.Match[str], change: Change) -> None:
        key = (match[1], int(match[2]))
        if change.operation is Operation.DELETE:
            old = self._states.pop(key, None)
            self._replicas.pop(key, None)
            self._partition_row(key, _State(NONE, old.leader_epoch if old else NONE, isr=0))
            return
        told = json.loads(change.data)
        state = self._states[key] = _State(
            leader=int(told["leader"]),
            leader_epoch=int(told["leader_epoch"]),
            isr=broker_mask(told["isr"]),
            recovering=int(told.get("leader_recovery_state", 0)),
        )
        self._partition_row(key, state)

    def _topic(self, match: re.Match[str], change: Change) -> None:
        if change.operation is Operation.DELETE:
            return
        for number, replicas in json.loads(change.data)["partitions"].items():
            key, mask = (match[1], int(number)), broker_mask(replicas)
            before, self._replicas[key] = self._replicas.get(key), mask
            if before != mask and key in self._states:
                self._partition_row(key, self._states[key])

    def _broker(self, match: re.Match[str], change: Change) -> None:
        node = int(match[1])
        if change.operation is Operation.CREATE:
            self._row(MetadataKind.BROKER_REGISTERED, node=node)
            self._row(MetadataKind.BROKER_UNFENCED, node=node)
        elif change.operation is Operation.DELETE:
            self._row(MetadataKind.BROKER_FENCED, node=node)

    def _partition_row(self, key: tuple[str, int], state: _State) -> None:
        dense = self._ids.get(key)
        if dense is not None:
            self._row(
                MetadataKind.PARTITION,
                partition=dense,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=state.isr,
                replicas=self._replicas.get(key, 0),
                recovering=state.recovering,
            )

    def _row(self, kind: MetadataKind, **columns: int) -> None:
        self.rows.append(truth_row(**columns, **self._now, kind=int(kind)))
