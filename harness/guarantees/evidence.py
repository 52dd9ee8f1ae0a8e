"""Everything the judge may look at besides plan and findings, as plain values; and the facts derived from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from harness.errors import HistoryUnreadable
from harness.guarantees.batches import Batches, batches_by_partition
from harness.guarantees.brokerless import brokerless
from harness.guarantees.envelope import Envelope
from harness.guarantees.faults import NATURES, Columns, FaultNature, FaultRecord, fault_records
from harness.guarantees.timeline import Timeline, no_timeline, timelines
from harness.history_reader import History, metadata_error_ns
from harness.plan import Cell, Plan
from harness.protocols import CLIENT_NODE
from harness.run_directory import RunDirectory, read_json, read_object
from harness.schedule import FaultAction
from harness.schema import NONE, TABLES, ObservationKind
from harness.targets import parse_target

EVIDENCE_TABLES = ("metadata", "faults", "steps", "clients", "heartbeats", "observations")
"""What judging reads; `replicas` beside them where there are any."""
_DELETE_RETENTION_DEFAULT_MS = 86_400_000
"""log.cleaner.delete.retention.ms (Kafka documentation)."""
_PRODUCER_EXPIRY_DEFAULT_MS = 86_400_000
"""producer.id.expiration.ms where a cluster of ours was given none. [Kafka documentation, broker configuration; KIP-854]"""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One run's evidence. Tables are dicts of arrays in the Parquet form of `harness.schema`; times in ns since the trial's
    start."""

    metadata: Columns
    faults: Columns
    steps: Columns
    clients: Columns
    heartbeats: Columns
    observations: Columns
    replicas: Columns | None = None
    """None = no segments were read."""
    metrics: Columns | None = None
    """Of clients' own statistics. None = there are none."""
    dictionaries: Mapping[str, Sequence[str]]
    clock_error_ns: int
    """How far times of `metadata` may be off from the rest."""
    cluster: Mapping[str, Any] = field(default_factory=dict)
    """`Cluster.describe`: features, settings, kafka_version. A key that is not there is unknown, never a default."""
    incomplete: Mapping[str, str] = field(default_factory=dict)
    """What of the history is missing or torn: table (or file) → why."""
    dead_clients: Mapping[str, str] = field(default_factory=dict)
    """Clients that ended although nobody asked them to: name → how."""
    told_of_loss: tuple[str, ...] = ()
    """Producers that ended because a broker told them of a loss, and so it is: what `judge` makes of the findings and of the
    rest of this."""
    not_whole: Sequence[str] = ()
    """What was awaited in vain of the cluster when it was healed, and what was last seen."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """Anomalies whose check failed: name → why."""
    natures: Mapping[str, FaultNature] = field(default_factory=lambda: NATURES)

    @staticmethod
    def from_tables(
        tables: Mapping[str, Columns],
        *,
        dictionaries: Mapping[str, Sequence[str]],
        clock_error_ns: int,
        cluster: Mapping[str, Any],
        **more: Any,  # noqa: ANN401 - the other fields of this class
    ) -> "Evidence":
        """From whatever tables there are; a missing one (other than `replicas`) is empty and said to be incomplete."""
        missing = {name: "it is missing" for name in EVIDENCE_TABLES if name not in tables}
        found: dict[str, Any] = {name: tables.get(name, TABLES[name].empty()) for name in EVIDENCE_TABLES}
        return Evidence(
            **found,
            replicas=tables.get("replicas"),
            metrics=tables.get("metrics"),
            dictionaries=dictionaries,
            clock_error_ns=clock_error_ns,
            cluster=cluster,
            incomplete=missing | dict(more.pop("incomplete", {})),
            **more,
        )

    @staticmethod
    def from_run(run: RunDirectory, plan: Plan, tables: Mapping[str, Columns]) -> "Evidence":
        """The same, with what else the files of a run say. HistoryUnreadable if one of them is torn."""
        assert plan.variant.brokers < 63, "broker masks have 63 bits"
        incomplete = {t: f"{n} rows were torn and left out" for t, n in History.open(run).torn_rows.items()}
        if not run.clock.exists():
            incomplete["clock.json"] = "the trial's clock never started"
        dead = run.path / "dead_clients.json"
        return Evidence.from_tables(
            tables,
            dictionaries=read_json(run.dictionaries) if run.dictionaries.exists() else {},
            clock_error_ns=metadata_error_ns(run),
            cluster=read_object(run.cluster) if run.cluster.exists() else {},
            incomplete=incomplete,
            dead_clients=read_json(dead) if dead.exists() else {},
            not_whole=_not_whole(run),
        )

    @cached_property
    def timelines(self) -> Mapping[int, Timeline]:
        """Dense partition id → ground truth."""
        return timelines(self.metadata)

    @cached_property
    def fault_records(self) -> tuple[FaultRecord, ...]:
        """Every fault as it happened."""
        return fault_records(self.faults, self.dictionaries, self.natures)

    @cached_property
    def brokerless(self) -> Mapping[int, int]:
        """Planned client that forgot every broker for good → since when, in ns."""
        return {} if self.metrics is None else brokerless(self.metrics, self.clients)

    @cached_property
    def batches(self) -> Mapping[int, Batches]:
        """Dense partition id → batches of one copy; only partitions of which a copy was read."""
        return {} if self.replicas is None else batches_by_partition(self.replicas)

    @property
    def kafka_version(self) -> str | None:
        """What the cluster really runs; None = not known."""
        version = self.cluster.get("kafka_version")
        return None if version is None else str(version)

    def feature(self, name: str) -> int:
        """Finalized level of a feature; 0 = off, or not known."""
        return int(self.cluster.get("features", {}).get(name, 0))

    def setting_ms(self, key: str) -> int | None:
        """An effective broker setting in ms; None = not known."""
        value = str(self.cluster.get("settings", {}).get(key, ""))
        return int(value) if value.isdigit() else None

    def envelope(self, plan: Plan, cell: Cell, partition: int) -> Envelope:
        """What happened to one partition of a cell."""
        lag_max_ms = self.setting_ms("replica.lag.time.max.ms")
        audited, _ = self._observed(partition, ObservationKind.AUDIT_COMPLETE)
        return Envelope(
            timeline=self.timelines.get(partition, no_timeline()),
            faults=tuple(
                _as_far_as(fault.of_topic(flushed=self._flushed(cell)), plan, partition) for fault in self.fault_records
            ),
            error_ns=self.clock_error_ns,
            acks=cell.producer.acks,
            unclean_enabled=cell.topic.unclean_leader_election_enable,
            lag_max_ns=None if lag_max_ms is None else lag_max_ms * 1_000_000,
            keepers=frozenset(plan.variant.metadata_keepers),
            producer_expiry_ns=self._producer_expiry_ms(plan) * 1_000_000,
            delete_retention_ns=self._delete_retention_ms(plan, cell) * 1_000_000,
            audited_ns=int(audited[-1]) if len(audited) else None,
            delivery_bound=cell.delivery_bound,
            brokers=plan.variant.brokers,
            brokers_flush=self._brokers_flush,
            measured_by=frozenset(
                CLIENT_NODE + c.client for c in plan.clients if c.role == "reader" and partition in c.partitions
            ),
            epoch_starts=self._epoch_starts(partition),
            high_watermarks=self._observed(partition, ObservationKind.HIGH_WATERMARK),
            leader_answers=self._observed(partition, ObservationKind.LEADER_HIGH_WATERMARK, what="leader_epoch"),
            log_starts=self._observed(partition, ObservationKind.LOG_START),
            batches=lambda: self.batches.get(partition),
        )

    def _flushed(self, cell: Cell) -> bool:
        """Is every record synced inside the append, on leader and followers, before it is acknowledged? By flush.messages
        of the topic, else of the brokers; flush.ms does not count: it is looked at by a scheduler. [LogManager]"""
        planned = cell.topic.kafka_properties().get("flush.messages")
        return self._brokers_flush if planned is None else planned == "1"

    @property
    def _brokers_flush(self) -> bool:
        return str(self.cluster.get("settings", {}).get("log.flush.interval.messages", "")) == "1"

    def _producer_expiry_ms(self, plan: Plan) -> int:
        """As read from the cluster, else as the plan sets it, else Kafka's default: a cluster that was started from the plan
        has no other broker property than those that were written for it."""
        planned = plan.variant.properties.get("producer.id.expiration.ms", "")
        read = self.setting_ms("producer.id.expiration.ms")
        return read if read is not None else int(planned) if planned.isdigit() else _PRODUCER_EXPIRY_DEFAULT_MS

    @staticmethod
    def _delete_retention_ms(plan: Plan, cell: Cell) -> int:
        """As the topic sets it, else the brokers, else Kafka's default."""
        planned = plan.variant.properties.get("log.cleaner.delete.retention.ms", "")
        value = cell.topic.properties.get("delete.retention.ms", planned)
        return int(value) if value.isdigit() else _DELETE_RETENTION_DEFAULT_MS

    def _epoch_starts(self, partition: int) -> Mapping[int, int] | None:
        """First offset of each leader epoch. By the `leader-epoch-checkpoint` of all replicas, where they were read: it also
        knows an epoch that began and has no record yet. Else by the epochs in the batch headers. [KIP-101]"""
        checkpointed = self._checkpointed_starts(partition)
        if checkpointed is not None:
            return checkpointed
        if self.replicas is None:
            return None
        rows = np.flatnonzero((self.replicas["partition"] == partition) & (self.replicas["step"] == NONE))
        if not len(rows):
            return None
        epochs, where = np.unique(self.replicas["leader_epoch"][rows], return_inverse=True)
        starts = np.full(len(epochs), np.iinfo(np.int64).max)
        np.minimum.at(starts, where, self.replicas["base_offset"][rows])
        end = int(self.replicas["last_offset"][rows].max()) + 1
        # An epoch after the last one with records begins at the end of the log.
        return dict(zip(epochs.tolist(), starts.tolist(), strict=True)) | {2**31: end}

    def _checkpointed_starts(self, partition: int) -> Mapping[int, int] | None:
        """The least start of each epoch that any replica wrote down at the end: a leader writes down its log end when its
        epoch begins, a follower the first offset it is given of that epoch, which is there or later. None: none was read.

        An epoch that gave way before it had a record is struck out when the next begins at the same offset
        (LeaderEpochFileCache.assign): it began where the next one did. One later than all of them: at the end of the log.
        """
        seen = self.observations
        mine = (seen["partition"] == partition) & (seen["step"] == NONE)
        starts = np.flatnonzero(mine & (seen["kind"] == ObservationKind.REPLICA_EPOCH_START))
        ends = np.flatnonzero(mine & (seen["kind"] == ObservationKind.REPLICA_LOG_END))
        if not len(starts) or not len(ends):
            return None
        found: dict[int, int] = {2**31: int(seen["value"][ends].max())}
        for epoch, start in zip(seen["leader_epoch"][starts].tolist(), seen["value"][starts].tolist(), strict=True):
            found[epoch] = min(start, found.get(epoch, start))
        return found

    def _observed(self, partition: int, kind: ObservationKind, *, what: str = "value") -> tuple[np.ndarray, np.ndarray]:
        seen = self.observations
        rows = np.flatnonzero((seen["partition"] == partition) & (seen["kind"] == kind))
        rows = rows[np.argsort(seen["time_ns"][rows], kind="stable")]
        return seen["time_ns"][rows], seen[what][rows]


def _not_whole(run: RunDirectory) -> Sequence[str]:
    """Nothing of a run that was not come so far, or that was imported."""
    lacking = read_json(run.recovery) if run.recovery.exists() else []
    if not isinstance(lacking, list):
        raise HistoryUnreadable(f"{run.recovery} holds no JSON list. Make the run again, or put back the file.")
    return [str(what) for what in lacking]


def _as_far_as(fault: FaultRecord, plan: Plan, partition: int) -> FaultRecord:
    """The fault as far as it concerns a partition: an unclean election that was asked for others excuses nothing here."""
    if fault.nature is None or not fault.nature.elects_unclean or not 0 <= fault.step < len(plan.steps):
        return fault
    action = plan.steps[fault.step].do
    named = {parse_target(text).partition for text in action.targets} if isinstance(action, FaultAction) else {None}
    return fault if named & {None, partition} else replace(fault, nature=replace(fault.nature, elects_unclean=False))
