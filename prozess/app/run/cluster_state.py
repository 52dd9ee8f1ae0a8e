"""Records the state of the cluster after a trial: who led, who was in sync, and what each replica's files hold."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prozess.clusters.files.log_directories import log_directories
from prozess.clusters.files.metadata_log import decode_ground_truth
from prozess.clusters.files.remote_segments import RemoteLog, read_remote_logs
from prozess.clusters.files.segments import Replica, log_end, read_replicas
from prozess.clusters.files.zookeeper_log import columns_of_id
from prozess.clusters.machine.tiered import store_beside
from prozess.harness.clock import Clock
from prozess.harness.interfaces import Cluster, Targets
from prozess.harness.plan.plan import Plan
from prozess.harness.recording.codes import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, recorded_as
from prozess.harness.recording.rows import Recorder
from prozess.harness.schema import NONE, REMOTE_STORE, MetadataKind, MetadataSource, ObservationKind

INTERNAL_PARTITIONS_MAX = 1000
"""The leaders of at most so many partitions of each internal topic are recorded; Kafka's default is 50 partitions."""
_INTERNAL_PARTITIONS = {
    (topic, number): recorded_as(number + index * INTERNAL_PARTITIONS_MAX)
    for index, topic in enumerate((OFFSETS_TOPIC, TRANSACTIONS_TOPIC))
    for number in range(INTERNAL_PARTITIONS_MAX)
}
"""Each (topic, number) → a number of its own, which `_kinds` takes back to the number within its topic."""


def keep_ground_truth(plan: Plan, cluster: Cluster, recorder: Recorder, wall_minus_monotonic_ns: int) -> int:
    """Decodes the controllers' logs, or ZooKeeper's, into the history and returns the number of rows of `metadata`. Only what
    a majority of them holds is committed, so the directory of a node that is missing is asked for, too. HarnessFailed if
    they cannot be read."""
    mode = plan.variant.metadata_mode
    keeper = "zookeeper" if mode == "zookeeper" else "controller"
    truth = decode_ground_truth(
        [node.data_directory for node in cluster.nodes if keeper in node.roles],
        partition_ids={**plan.recorded, **_INTERNAL_PARTITIONS},
        wall_minus_monotonic_ns=wall_minus_monotonic_ns,
        metadata_mode=mode,
        migrated=[n.data_directory for n in cluster.nodes if mode == "zookeeper" and "controller" in n.roles],
    )
    recorder.extend("metadata", {name: np.asarray(column) for name, column in _kinds(truth.metadata).items()})
    if truth.states is not None:
        recorder.extend("cluster_states", truth.states)
    return len(truth.metadata["time_ns"])


def _kinds(rows: dict[str, Any]) -> dict[str, Any]:
    """Marks rows about partitions of internal topics, to distinguish them from the trial's own partitions, and from one
    another."""
    kind, partition = rows["kind"], rows["partition"]
    internal = (kind == MetadataKind.PARTITION) & (partition < NONE)
    of_transactions = internal & (partition <= recorded_as(INTERNAL_PARTITIONS_MAX))
    marked = np.where(internal, MetadataKind.OFFSETS_PARTITION, kind)
    return rows | {
        "kind": np.where(of_transactions, MetadataKind.TRANSACTIONS_PARTITION, marked).astype(kind.dtype),
        "partition": np.where(of_transactions, partition + INTERNAL_PARTITIONS_MAX, partition).astype(partition.dtype),
    }


class Inspector:
    """Reads the brokers' data directories into the history: at a step of the schedule, and at the end. `emit` writes an
    event.

    At the end means after the cluster was taken down. Nothing appends any more, and a SIGKILL takes nothing away that
    was written, because the page cache is the kernel's. A whole ISR acknowledged the audit's sentinels before, so up to
    them every copy must be there, and the same.
    """

    def __init__(
        self, plan: Plan, cluster: Targets, recorder: Recorder, clock: Clock, emit: Callable[..., None]
    ) -> None:
        self._plan, self._cluster, self._recorder, self._clock, self._emit = plan, cluster, recorder, clock, emit

    def inspect(self, partitions: Sequence[int], *, step: int = NONE) -> None:
        """Writes every copy of these partitions as rows of `replicas`, `snapshots` and `observations`. `step`: the
        number of the step; NONE at the end.

        A copy that cannot be read is left out, and an event says why.
        """
        problems: list[str] = []
        read_ns, count = self._clock.monotonic_ns(), 0
        ends: dict[str, list[int]] = {}
        for replica in read_replicas(
            self._directories(), [self._named(p) for p in partitions], on_problem=problems.append
        ):
            count += self._write_rows("replicas", replica.batches, read_ns, replica.partition, replica.node, step)
            self._write_facts(replica, read_ns, step)
            self._write_snapshots(replica, read_ns, step)
            ends.setdefault(f"broker-{replica.node}", []).append(replica.log_end)
        count += self._inspect_store(partitions, read_ns, step, problems)
        took_s = round((self._clock.monotonic_ns() - read_ns) / 1e9, 3)
        # A few partitions, as in a scenario's steps, are reported one by one.
        facts: dict[str, Any] = {"log_ends": ends} if step != NONE else {}
        self._emit("inspected", step=step, batches=count, took_s=took_s, problems=problems, **facts)

    def keep_directories(self) -> None:
        """Writes which logs of the trial's topics each broker has on its disk, by the ids of their topics, as rows of
        `metadata`: also those of topics that were deleted."""
        read_ns, ids = self._clock.monotonic_ns(), self._plan.recorded
        topics = {topic for topic, _ in ids}
        for node, directory in self._directories().items():
            for log in log_directories(directory, topics):
                if (partition := ids.get((log.topic, log.number))) is not None:
                    self._recorder.write(
                        "metadata",
                        time_ns=read_ns,
                        kind=int(MetadataKind.ON_DISK),
                        source=int(MetadataSource.FILES),
                        partition=partition,
                        node=node,
                        leader=int(log.state),
                        **columns_of_id(log.topic_id),
                    )

    def _inspect_store(self, partitions: Sequence[int], read_ns: int, step: int, problems: list[str]) -> int:
        """Writes what the remote store has of these partitions, if there is one. Returns the number of batches."""
        if not self._plan.variant.tiered_storage:
            return 0
        directories, count = self._directories(), 0
        store = store_beside(next(iter(directories.values())))
        named = [self._named(p) for p in partitions]
        mine: list[str] = []
        copied_to = dict.fromkeys(partitions, 0)
        for log in read_remote_logs(store, directories, named, on_problem=mine.append):
            self._write_segments(log, read_ns, step)
            count += self._write_rows("replicas", log.batches, read_ns, log.partition, REMOTE_STORE, step)
            copied_to[log.partition] = log.copied_to
        for partition, value in copied_to.items() if not mine else ():
            kind = int(ObservationKind.REMOTE_STORE_READ)
            self._recorder.write(
                "observations", time_ns=read_ns, value=value, partition=partition, kind=kind, step=step
            )
        problems += mine
        return count

    def _write_segments(self, log: RemoteLog, read_ns: int, step: int) -> None:
        for one in log.segments:
            high, low = columns_of_id(one.segment).values()
            names = ("first_offset", "last_offset", "whole_to", "size", "stored_size", "copied_ms", "changed_ms")
            self._recorder.write(
                "remote_segments",
                read_ns=read_ns,
                segment_high=high,
                segment_low=low,
                partition=log.partition,
                step=step,
                current=int(one.topic_id == log.topic_id),
                **columns_of_id(one.topic_id),
                **{name: getattr(one, name) for name in (*names, "node", "state", "damaged")},
            )

    def log_ends(self, partitions: Sequence[int]) -> Mapping[tuple[int, int], int]:
        """Returns (node id, dense id) → the offset behind the last batch of that copy, now."""
        found = {}
        for node, directory in self._directories().items():
            for partition in partitions:
                _, topic, number = self._named(partition)
                end = log_end(directory, topic, number)
                if end is not None:
                    found[node, partition] = end
        return found

    def _directories(self) -> dict[int, Path]:
        return {node.node_id: node.data_directory for node in self._cluster.nodes if "broker" in node.roles}

    def _named(self, partition: int) -> tuple[int, str, int]:
        planned = self._plan.partitions[partition]
        return planned.partition, planned.topic_name, planned.number

    def _write_rows(
        self,
        table: str,
        rows: Mapping[str, np.ndarray],
        read_ns: int,
        partition: int,
        node: int,
        step: int,
        **more: int,
    ) -> int:
        """Writes rows of one copy of a partition, and returns how many."""
        length = len(next(iter(rows.values()), ()))
        if length:
            same = {"read_ns": read_ns, "partition": partition, "node": node, "step": step, **more}
            columns = {name: np.full(length, value, dtype=np.int64) for name, value in same.items()}
            self._recorder.extend(table, {**rows, **columns})
        return length

    def _write_facts(self, replica: Replica, read_ns: int, step: int) -> None:
        def note(kind: ObservationKind, value: int, leader_epoch: int = NONE) -> None:
            self._recorder.write(
                "observations",
                time_ns=read_ns,
                value=value,
                partition=replica.partition,
                kind=int(kind),
                node=replica.node,
                leader_epoch=leader_epoch,
                step=step,
            )

        note(ObservationKind.REPLICA_LOG_START, replica.log_start)
        note(ObservationKind.REPLICA_LOG_END, replica.log_end)
        if replica.high_watermark is not None:
            note(ObservationKind.REPLICA_HIGH_WATERMARK, replica.high_watermark)
        for epoch, start in replica.epoch_starts.items():
            note(ObservationKind.REPLICA_EPOCH_START, start, epoch)
        for snapshot in replica.snapshots:
            damaged = bool(snapshot.damage)
            kind = ObservationKind.REPLICA_SNAPSHOT_DAMAGED if damaged else ObservationKind.REPLICA_SNAPSHOT
            note(kind, snapshot.offset)

    def _write_snapshots(self, replica: Replica, read_ns: int, step: int) -> None:
        for snapshot in replica.snapshots:
            entries = snapshot.entries
            found = {name: entries[name].astype(np.int64) for name in entries.dtype.fields or ()}
            of = (replica.partition, replica.node, step)
            self._write_rows("snapshots", found, read_ns, *of, snapshot_offset=snapshot.offset)
