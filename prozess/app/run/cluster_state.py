"""Records the state of the cluster during a trial and after it: who led, who was in sync, and what each replica's files
hold."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import UUID

import numpy as np

from prozess.clusters.files.group_log import GroupLog, read_group_log
from prozess.clusters.files.log_directories import log_directories
from prozess.clusters.files.metadata_log import LOG_DIRECTORY, decode_cluster_states, decode_ground_truth
from prozess.clusters.files.remote_segments import RemoteLog, read_remote_logs
from prozess.clusters.files.segments import Replica, log_end, read_replicas
from prozess.clusters.files.share_log import ShareLog, read_share_log
from prozess.clusters.files.transaction_log import TransactionLog, read_transaction_log
from prozess.clusters.files.zookeeper_log import columns_of_id
from prozess.clusters.machine.tiered import store_beside
from prozess.clusters.protocol.admin import Admin
from prozess.clusters.protocol.requests import DescribedPartition
from prozess.clusters.registry import backend_named
from prozess.harness.clock import NS_PER_S, Clock
from prozess.harness.interfaces import BrokerView, Cluster, PartitionView, Targets
from prozess.harness.interfaces.witnesses import OnDisk
from prozess.harness.plan.plan import Plan
from prozess.harness.recording.codes import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, broker_mask, recorded_as
from prozess.harness.recording.rows import Recorder
from prozess.harness.schema import NONE, REMOTE_STORE, MetadataKind, MetadataSource, ObservationKind


def decode(plan: Plan, cluster: Cluster, wall_minus_monotonic_ns: int) -> dict[str, np.ndarray]:
    """Returns the rows of `metadata` from the controllers' logs, or ZooKeeper's. Only what a majority of them holds is
    committed, so the directory of a node that is missing is asked for, too."""
    mode = plan.variant.metadata_mode
    keeper = "zookeeper" if mode == "zookeeper" else "controller"
    decoded = decode_ground_truth(
        [node.data_directory for node in cluster.nodes if keeper in node.roles],
        partition_ids={**plan.recorded, **_INTERNAL_PARTITIONS},
        wall_minus_monotonic_ns=wall_minus_monotonic_ns,
        metadata_mode=mode,
        migrated=[n.data_directory for n in cluster.nodes if mode == "zookeeper" and "controller" in n.roles],
    )
    return {name: np.asarray(column) for name, column in _kinds(decoded).items()}


INTERNAL_PARTITIONS_MAX = 1000
"""The leaders of at most so many partitions of each internal topic are recorded; Kafka's default is 50 partitions."""
_INTERNAL_PARTITIONS = {
    (topic, number): recorded_as(number + index * INTERNAL_PARTITIONS_MAX)
    for index, topic in enumerate((OFFSETS_TOPIC, TRANSACTIONS_TOPIC))
    for number in range(INTERNAL_PARTITIONS_MAX)
}
"""Each (topic, number) → a number of its own, which `_kinds` takes back to the number within its topic."""


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


def keep_ground_truth(plan: Plan, cluster: Cluster, recorder: Recorder, wall_minus_monotonic_ns: int) -> int:
    """Decodes the controllers' log into the history and returns the number of rows. HarnessFailed if it cannot be read."""
    rows = decode(plan, cluster, wall_minus_monotonic_ns)
    recorder.extend("metadata", rows)
    kept = [node.data_directory for node in cluster.nodes if "controller" in node.roles]
    if any((directory / LOG_DIRECTORY).is_dir() for directory in kept):  # ZooKeeper has no such records
        states = decode_cluster_states(kept, wall_minus_monotonic_ns=wall_minus_monotonic_ns)
        recorder.extend("cluster_states", states)
    return len(rows["time_ns"])


def keep_coordinators_logs(
    plan: Plan, cluster: Cluster, recorder: Recorder, wall_minus_monotonic_ns: int, emit: Callable[..., None]
) -> None:
    """Writes what coordinators wrote down of transactional.ids, consumer groups and share groups as rows of
    `transaction_states`, `group_states` and `share_states`. An event reports what could not be read. Brokers must
    have ended."""
    problems: list[str] = []
    directories = {node.node_id: node.data_directory for node in cluster.nodes if "broker" in node.roles}
    cells, served = _cells_of_groups(plan), _served(plan, directories)
    made = {
        "transaction_states": _transaction_states(plan, read_transaction_log(directories, on_problem=problems.append)),
        "group_states": _group_states(cells, served, read_group_log(directories, on_problem=problems.append)),
        "share_states": _share_states(cells, served, read_share_log(directories, on_problem=problems.append)),
    }
    rows = dict.fromkeys(made, 0)
    for table, parts in made.items():
        for part in parts:
            columns = dict(part)
            columns["time_ns"] = columns.pop("timestamp_ms") * (NS_PER_S // 1000) - wall_minus_monotonic_ns
            recorder.extend(table, columns)
            rows[table] += len(columns["time_ns"])
    if any(rows.values()) or problems:
        emit("coordinators-logs", rows=rows, problems=problems)


def _transaction_states(plan: Plan, logs: Iterable[TransactionLog]) -> Iterator[dict[str, np.ndarray]]:
    clients: dict[str, int] = {}
    for client in plan.clients:
        if client.transactional_id is not None:
            clients.setdefault(client.transactional_id, client.client)
    for log in logs:
        own = np.array([clients.get(name, NONE) for name in log.ids], dtype=np.int64)
        yield {**log.columns, "transactional_id": own, "number": np.full(len(own), log.number)}


def _group_states(
    cells: Mapping[str, int], served: Mapping[tuple[UUID, int], int], logs: Iterable[GroupLog]
) -> Iterator[dict[str, np.ndarray]]:
    members: dict[str, int] = {"": NONE}
    gone: dict[tuple[UUID, int], int] = {}
    for log in logs:
        numbers = {
            "group": [cells.get(group, NONE) for group in log.groups],
            "member": [members.setdefault(member, len(members) - 1) for member in log.members],
            "partition": [NONE if one is None else _numbered(one, served, gone) for one in log.partitions],
        }
        own = {name: np.array(values, dtype=np.int64) for name, values in numbers.items()}
        yield {**log.columns, **own, "number": np.full(len(log.groups), log.number)}


def _numbered(one: tuple[UUID, int], served: Mapping[tuple[UUID, int], int], gone: dict[tuple[UUID, int], int]) -> int:
    """Returns the id of a partition; below NONE a number of its own, if its topic is not there at the end."""
    return served[one] if one in served else gone.setdefault(one, NONE - 1 - len(gone))


def _share_states(
    cells: Mapping[str, int], served: Mapping[tuple[UUID, int], int], logs: Iterable[ShareLog]
) -> Iterator[dict[str, np.ndarray]]:
    for log in logs:
        own = {
            "group": np.array([cells.get(group, NONE) for group in log.groups], dtype=np.int64),
            "partition": np.array([served.get(one, NONE) for one in log.partitions], dtype=np.int64),
        }
        yield {**log.columns, **own, "number": np.full(len(log.groups), log.number)}


def _cells_of_groups(plan: Plan) -> dict[str, int]:
    """Returns group.id → its cell: of a topic that is made again that of the last one, which is there at the end."""
    last = {cell.topic_name: cell.cell for cell in sorted(plan.cells, key=lambda cell: cell.life)}
    return {
        client.group_id: last[plan.cells[client.cell].topic_name]
        for client in plan.clients
        if client.group_id and client.cell is not None
    }


def _served(plan: Plan, directories: Mapping[int, Path]) -> dict[tuple[UUID, int], int]:
    """Returns (topic id, number) → partition id, of topics that are there at the end."""
    return {
        (log.topic_id, log.number): plan.recorded[log.topic, log.number]
        for directory in directories.values()
        for log in log_directories(directory, {topic for topic, _ in plan.recorded})
        if log.state is OnDisk.SERVED and (log.topic, log.number) in plan.recorded
    }


def measure_wall_offset(clock: Clock, *, tries: int = 50) -> tuple[int, int]:
    """Measures CLOCK_REALTIME − CLOCK_MONOTONIC. Returns (the difference, half the width of the tightest measurement),
    in nanoseconds."""
    best = (0, 2**62)
    for _ in range(tries):
        before, wall, after = clock.monotonic_ns(), clock.wall_ns(), clock.monotonic_ns()
        if after - before < 2 * best[1]:
            best = (wall - (before + after) // 2, (after - before + 1) // 2)
    return best


JOIN_TIMEOUT_S = 10.0


class Beside:
    """A context that runs threads beside a stage. It sets `stopping` when it closes, and waits for the threads to end."""

    def __init__(self, *, join_timeout_s: float = JOIN_TIMEOUT_S) -> None:
        """`join_timeout_s`: how long each thread may take to end."""
        self.stopping, self._join_timeout_s = threading.Event(), join_timeout_s
        self._threads: list[threading.Thread] = []

    def run_beside(self, work: Callable[[], None], name: str) -> None:
        """Does `work` in a thread of its own as soon as the context is opened."""
        self._threads.append(threading.Thread(target=work, name=name, daemon=True))

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopping.set()
        self.closing()
        for thread in self._threads:
            thread.join(timeout=self._join_timeout_s)
        self.closed()

    def closing(self) -> None:
        """Is called before the threads have ended, to keep their unfinished work."""

    def closed(self) -> None:
        """Is called once the threads have ended, to close their resources."""


HEARTBEAT_S = 0.1
SAMPLE_S = 0.2
"""How long the sampler waits between two looks at one broker. It waits longer if an answer took long."""
RESTS, REST_MAX_S = 9, 1.0
"""After a look, the sampler waits so many times as long as the look took, but no longer than this."""
ANSWER_TIMEOUT_S = 1.0
"""How long a broker may take to answer. Each broker has a thread, so a dead one delays no other."""


class Sampler(Beside):
    """A context in which one thread writes heartbeats, and one for each broker asks it who leads and who is in sync.

    These samples are for display only (`MetadataSource.SAMPLE`), because a broker may be a zombie. The ground truth is
    the controllers' log.
    """

    def __init__(self, plan: Plan, cluster: Cluster, recorder: Recorder, clock: Clock) -> None:
        super().__init__()
        self._plan, self._recorder, self._clock = plan, recorder, clock
        self._admin = Admin(cluster)
        self._topics = sorted({p.topic_name for p in plan.partitions})
        self._ids = plan.recorded
        self._last: dict[tuple[int, int], PartitionView] = {}
        self.run_beside(self._beat, "heartbeat")
        for broker in cluster.observer_servers:
            self.run_beside(partial(self._sample, broker), f"sampler-{broker}")

    def _beat(self) -> None:
        while not self.stopping.wait(HEARTBEAT_S):
            self._recorder.write("heartbeats", time_ns=self._clock.monotonic_ns())

    def _sample(self, broker: int) -> None:
        rest_s = SAMPLE_S
        while not self.stopping.wait(rest_s):
            asked_ns = self._clock.monotonic_ns()
            view = self._admin.view(broker, self._topics, timeout_s=ANSWER_TIMEOUT_S)
            if view is not None:
                self._note(broker, view)
            took_s = (self._clock.monotonic_ns() - asked_ns) / NS_PER_S
            rest_s = max(SAMPLE_S, min(RESTS * took_s, REST_MAX_S))

    def _note(self, node: int, view: BrokerView) -> None:
        """Writes the partitions that changed in this broker's view."""
        now_ns = self._clock.monotonic_ns()
        for key, seen in view.items():
            partition = self._ids.get(key)
            if partition is None or self._last.get((node, partition)) == seen:
                continue
            self._last[node, partition] = seen
            self._recorder.write(
                "metadata",
                time_ns=now_ns,
                isr=broker_mask(seen.isr),
                elr=0,
                last_known_elr=0,
                replicas=broker_mask(seen.replicas),
                kind=int(MetadataKind.PARTITION),
                source=int(MetadataSource.SAMPLE),
                partition=partition,
                node=node,
                leader=seen.leader,
                leader_epoch=seen.leader_epoch,
                recovering=NONE,
            )


DESCRIBED_SAMPLE_S = 0.3
"""The time between two looks at one broker. A partition that nobody may lead has no leader for at least a session
timeout, so none is missed."""
QUORUM_S = 1.0
DESCRIBED_TIMEOUT_S = 2.0


class MetadataSamples(Beside):
    """A context in which brokers are asked for their copy of the metadata, where the controllers' log cannot be read.

    One thread per broker asks about partitions, and one asks about the quorum. The rows have the source DESCRIBED: they
    show what was there when somebody looked, and never that something was not there.
    """

    def __init__(self, plan: Plan, cluster: Cluster, recorder: Recorder, clock: Clock) -> None:
        super().__init__()
        if cluster.controller_servers or not backend_named(plan.backend).protocol_only:
            return
        self._recorder, self._clock = recorder, clock
        self._admin = Admin(cluster)
        self._topics = sorted({p.topic_name for p in plan.partitions})
        self._ids = plan.recorded
        self._topic_ids: dict[str, UUID] = {}
        self._last: dict[tuple[int, int], DescribedPartition] = {}
        self._controller: tuple[int, int] | None = None
        for broker in cluster.observer_servers:
            self.run_beside(partial(self._sample, broker), f"metadata-samples-{broker}")
        self.run_beside(self._sample_quorum, "quorum-samples")

    def _sample(self, broker: int) -> None:
        while not self.stopping.wait(DESCRIBED_SAMPLE_S):
            described = self._admin.described(broker, self._topics, timeout_s=DESCRIBED_TIMEOUT_S)
            now_ns = self._clock.monotonic_ns()
            for (topic, number), seen in (described or {}).items():
                partition = self._ids.get((topic, number))
                # A topic that was deleted and created again has new epochs: it is another topic of the same name.
                if partition is None or self._topic_ids.setdefault(topic, seen.topic_id) != seen.topic_id:
                    continue
                if self._last.get((broker, partition)) != seen:
                    self._last[broker, partition] = seen
                    self._write(now_ns, broker, partition, seen)

    def _write(self, now_ns: int, broker: int, partition: int, seen: DescribedPartition) -> None:
        self._recorder.write(
            "metadata",
            time_ns=now_ns,
            isr=broker_mask(seen.isr),
            elr=broker_mask(seen.eligible.elr),
            last_known_elr=broker_mask(seen.eligible.last_known_elr),
            replicas=broker_mask(seen.replicas),
            kind=int(MetadataKind.PARTITION),
            source=int(MetadataSource.DESCRIBED),
            partition=partition,
            node=broker,
            leader=seen.leader,
            leader_epoch=seen.leader_epoch,
            recovering=NONE,
        )

    def _sample_quorum(self) -> None:
        while not self.stopping.wait(QUORUM_S):
            leader = self._admin.quorum_leader(timeout_s=DESCRIBED_TIMEOUT_S)
            if leader is None or leader == self._controller:
                continue
            self._controller = leader
            self._recorder.write(
                "metadata",
                time_ns=self._clock.monotonic_ns(),
                isr=0,
                elr=0,
                last_known_elr=0,
                replicas=0,
                kind=int(MetadataKind.CONTROLLER),
                source=int(MetadataSource.DESCRIBED),
                partition=NONE,
                node=leader[0],
                leader=NONE,
                leader_epoch=leader[1],
                recovering=NONE,
            )


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
