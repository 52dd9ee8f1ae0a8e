"""Everything the judge may look at besides plan and findings, as plain values; and the facts derived from it."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from prozess.harness.clock import NS_PER_S
from prozess.harness.columns import Clustered, empty_rows
from prozess.harness.config.fault_nature import FaultNature
from prozess.harness.errors import HistoryUnreadable
from prozess.harness.guarantees.evidence.envelope import (
    AppendedBatches,
    Envelope,
    StaleAnswer,
    TransactionTimes,
    batches_by_partition,
    offsets_leaders,
    older_epoch_from,
    stale_answers,
)
from prozess.harness.guarantees.evidence.ground_truth import (
    Columns,
    FaultRecord,
    SampledElection,
    Timeline,
    fault_records,
    joined_timelines,
    no_timeline,
    sampled_elections,
    text_of,
    timelines,
)
from prozess.harness.guarantees.logic import FALSE, TRUE, UNKNOWN, Truth
from prozess.harness.history.contradictions import contradictions
from prozess.harness.history.parquet import TableFile
from prozess.harness.history.reader import History, metadata_error_ns
from prozess.harness.interfaces import CLIENT_NODE
from prozess.harness.plan.bounds import request_ms
from prozess.harness.plan.catalogue import NATURES
from prozess.harness.plan.plan import Cell, Plan
from prozess.harness.plan.schedule import MESSAGE_FAULT, FaultAction, parse_target
from prozess.harness.recording.codes import read_texts
from prozess.harness.recording.metrics import code_of
from prozess.harness.run_directory import RunDirectory, read_json, read_object
from prozess.harness.schema import NONE, TABLES, MetadataKind, MetadataSource, ObservationKind, Outcome

EVIDENCE_TABLES = ("metadata", "faults", "steps", "clients", "heartbeats", "observations")
"""What judging reads; `replicas` beside them where there are any."""
REPLICA_COLUMNS = (
    *("partition", "step", "node", "base_offset", "last_offset"),
    *("producer_id", "producer_epoch", "attributes", "base_sequence", "base_timestamp_ms"),
)
"""The columns of `replicas` that show under which epoch a producer wrote, and when a marker was written."""
EPOCH_COLUMNS = ("partition", "step", "leader_epoch", "base_offset", "last_offset")
"""The columns of `replicas` that show where an epoch began."""
PartitionColumns = Callable[[int, Sequence[str]], Columns]
"""(partition, names of columns) → these columns of its rows. A table may have millions of rows, and few partitions are
asked for."""
_DELETE_RETENTION_DEFAULT_MS = 86_400_000
"""log.cleaner.delete.retention.ms (Kafka documentation)."""
_QUORUM_FETCH_DEFAULT_MS = 2_000
"""controller.quorum.fetch.timeout.ms (Kafka documentation)."""
_OFFSETS_RETENTION_DEFAULT_MINUTES = 10_080
"""offsets.retention.minutes (Kafka documentation)."""
_PRODUCER_EXPIRY_DEFAULT_MS = 86_400_000
"""producer.id.expiration.ms where a cluster of ours was given none. [Kafka documentation, broker configuration; KIP-854]"""

_BY_LIBRDKAFKA: Mapping[str, np.int8] = {"reader": TRUE, "member": TRUE, "java-member": FALSE}
"""Role of a client that reads → does it use librdkafka?"""
_LIBRARY_CRASH = re.compile(r"killed by signal 6: .*\brdkafka\w*\.[ch]:\d+: .*Assertion")
"""What assert() prints of librdkafka's own code (compare librdkafka#3331, #4016), as `Evidence.dead_clients` has it."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One run's evidence. Tables are dicts of arrays in the Parquet form of `prozess.harness.schema`; times in ns since
    the trial's start."""

    metadata: Columns
    faults: Columns
    steps: Columns
    clients: Columns
    heartbeats: Columns
    observations: Columns
    replicas: PartitionColumns | None = None
    """Batches in the replicas' segments; None = no segments were read."""
    metrics: Columns | None = None
    """The clients' own statistics; None = there are none."""
    transactions: Columns | None = None
    """None = there are none."""
    commits: Columns | None = None
    """None = there are none."""
    messages: Columns | None = None
    """Messages of Kafka's protocol that steps meant; None = there are none."""
    sends: PartitionColumns | None = None
    """What clients sent; None = nothing."""
    wall_zero_ns: int | None = None
    """Time 0 of the trial by the wall clock of the machine that recorded it; None = not known."""
    dictionaries: Mapping[str, Sequence[str]]
    clock_error_ns: int
    """How far times of `metadata` may be off from the rest."""
    cluster: Mapping[str, Any] = field(default_factory=dict)
    """`Cluster.describe`: features, settings, kafka_version. A key that is not there is unknown, never a default."""
    incomplete: Mapping[str, str] = field(default_factory=dict)
    """What of the history is missing or torn: table (or file) → why."""
    dead_clients: Mapping[str, str] = field(default_factory=dict)
    """Clients that ended although nobody asked them to: name → how."""
    ended_by_loss: tuple[str, ...] = ()
    """Producers that ended because a broker informed them of a loss, and so it is: what `judge` makes of the findings and
    of the rest of this."""
    contradictions: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """Why tables cannot be what happened, as clauses: by cell; NONE: of the whole trial."""
    ended: frozenset[int] = frozenset()
    """The partitions whose topic was deleted before the audit."""
    not_whole: Sequence[str] = ()
    """What the run waited for in vain after it had undone the faults, and what it saw last."""
    limits: Sequence[str] = ()
    """The limits that a stage of the run ran into, and what it awaited."""
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
        incomplete: Mapping[str, str] | None = None,
    ) -> "Evidence":
        """Makes the evidence from the tables that there are; a missing one (other than `replicas`) is empty and listed as
        incomplete."""
        missing = {name: "it is missing" for name in EVIDENCE_TABLES if name not in tables}
        found = {name: tables.get(name, empty_rows(TABLES[name])) for name in EVIDENCE_TABLES}
        return Evidence(
            metadata=found["metadata"],
            faults=found["faults"],
            steps=found["steps"],
            clients=found["clients"],
            heartbeats=found["heartbeats"],
            observations=found["observations"],
            replicas=_columns_of(tables["replicas"]) if "replicas" in tables else None,
            metrics=tables.get("metrics"),
            transactions=tables.get("transactions"),
            commits=tables.get("commits"),
            messages=tables.get("messages"),
            sends=_columns_of(tables["sends"]) if "sends" in tables else None,
            dictionaries=dictionaries,
            clock_error_ns=clock_error_ns,
            cluster=cluster,
            incomplete=missing | dict(incomplete or {}),
        )

    @staticmethod
    def from_run(history: History, plan: Plan, tables: Mapping[str, Columns]) -> "Evidence":
        """Reads the evidence of a run from its tables and its other files. HistoryUnreadable if one of them is torn."""
        assert plan.variant.brokers < 63, "broker masks have 63 bits"
        run = history.run
        incomplete = {t: f"{n} rows were torn and left out" for t, n in history.torn_rows.items()}
        if not run.clock.exists():
            incomplete["clock.json"] = "the trial's clock never started"
        dead = run.path / "dead_clients.json"
        evidence = Evidence.from_tables(
            tables,
            dictionaries=read_texts(run.dictionaries),
            clock_error_ns=metadata_error_ns(run),
            cluster=read_object(run.cluster) if run.cluster.exists() else {},
            incomplete=incomplete,
        )
        return replace(
            evidence,
            replicas=partial(_columns_in, history.files["replicas"]) if history.rows("replicas") else None,
            sends=partial(_columns_in, history.files["sends"]) if history.rows("sends") else None,
            wall_zero_ns=_wall_zero_ns(run),
            dead_clients=read_object(dead) if dead.exists() else {},
            not_whole=_texts(run.recovery),
            limits=_texts(run.limits),
            contradictions=contradictions(history),
            ended=history.ended,
        )

    @cached_property
    def timelines(self) -> Mapping[int, Timeline]:
        """Returns who led each partition and was in sync, by dense partition id, as the controllers' log says."""
        return timelines(self.metadata)

    @cached_property
    def registrations(self) -> Mapping[int, np.ndarray]:
        """Returns when each broker registered with the controllers, as their log says."""
        metadata = self.metadata
        mine = (metadata["source"] == MetadataSource.CONTROLLER_LOG) & (
            metadata["kind"] == MetadataKind.BROKER_REGISTERED
        )
        nodes = np.unique(metadata["node"][mine]).tolist()
        return {node: metadata["time_ns"][mine & (metadata["node"] == node)] for node in nodes}

    @cached_property
    def sampled(self) -> Mapping[int, tuple[SampledElection, ...]]:
        """Dense partition id → what samples of the brokers' metadata prove: weaker evidence, for partitions without ground
        truth."""
        return sampled_elections(self.metadata)

    @cached_property
    def fault_records(self) -> tuple[FaultRecord, ...]:
        """Returns every fault as it really happened."""
        found = fault_records(self.faults, self.dictionaries, self.natures)
        kept = [(f, ns) for f in found if f.kind == MESSAGE_FAULT and (ns := self._kept_ns(f.step)) is not None]
        # What waits by one of them may wait by the next one then, or its answer may.
        together = {
            f.number: sum(ns for g, ns in kept if g.begin_ns <= f.end_ns and f.begin_ns <= g.end_ns) for f, _ in kept
        }
        return tuple(replace(f, kept_ns=together.get(f.number)) for f in found)

    def _kept_ns(self, step: int) -> int | None:
        """Returns for how long a step made the messages of one sender to one server wait at most, without a pause. None: it
        did something else as well, or nothing."""
        table = self.messages
        rows = np.flatnonzero(table["step"] == step) if table is not None else np.empty(0, dtype=np.intp)
        if table is None or not len(rows):
            return None
        did = {code: text_of(self.dictionaries, "did", code) for code in np.unique(table["did"][rows]).tolist()}
        if not set(did.values()) <= {"hold", "delivered"}:
            return None
        held = np.isin(table["did"][rows], [code for code, text in did.items() if text == "hold"])
        columns = [*(table[name][rows] for name in ("opener", "server", "sender", "time_ns")), held]
        # A message has a row for each partition. Example of one link: held at 1 s and 4 s, delivered at 6 s and 9 s, held at
        # 12 s, delivered at 17 s. From 1 s to 9 s something waited, and later for 5 s: 8 s.
        whole = np.unique(np.stack(columns, axis=1), axis=0)
        ends = np.flatnonzero(np.cumsum(np.where(whole[:, 4] == 1, 1, -1)) == 0)
        begins = np.append(0, ends[:-1] + 1)
        return int((whole[ends, 3] - whole[begins, 3]).max()) if len(ends) and ends[-1] == len(whole) - 1 else None

    @cached_property
    def brokerless(self) -> Mapping[int, int]:
        """Returns, for each planned client that forgot every broker for good, since when, in ns."""
        return {} if self.metrics is None else brokerless(self.metrics, self.clients)

    def batches_of(self, partition: int) -> AppendedBatches | None:
        """Returns the batches of one copy of a partition; None = no copy was read."""
        if partition not in self._held_batches:
            rows = (
                empty_rows(TABLES["replicas"]) if self.replicas is None else self.replicas(partition, REPLICA_COLUMNS)
            )
            self._held_batches[partition] = batches_by_partition(rows).get(partition)
        return self._held_batches[partition]

    @cached_property
    def _held_batches(self) -> dict[int, AppendedBatches | None]:
        """Returns the batches of those partitions that were asked for, which are read once; None = no copy was read."""
        return {}

    @cached_property
    def _seen_by_partition(self) -> Clustered:
        return Clustered(self.observations["partition"])

    @cached_property
    def transaction_times(self) -> TransactionTimes | None:
        """Returns when clients began and ended transactions; None = nobody recorded transactions."""
        return None if self.transactions is None else TransactionTimes.of(self.transactions)

    @property
    def crashed_in_librdkafka(self) -> tuple[str, ...]:
        """Clients whose process an assertion of librdkafka itself ended."""
        return tuple(name for name, how in self.dead_clients.items() if _LIBRARY_CRASH.search(how))

    @property
    def kafka_version(self) -> str | None:
        """The Kafka version that the cluster really runs; None = not known."""
        version = self.cluster.get("kafka_version")
        return None if version is None else str(version)

    def feature(self, name: str) -> int:
        """Returns the finalized level of a feature; 0 = off, or not known."""
        return int(self.cluster.get("features", {}).get(name, 0))

    def setting_ms(self, key: str) -> int | None:
        """Returns an effective broker setting in ms; None = not known."""
        value = str(self.cluster.get("settings", {}).get(key, ""))
        return int(value) if value.isdigit() else None

    def _readers(self, plan: Plan) -> "_ReadersOfPlan":
        """Returns who was to read what, found once for all partitions of a plan: there may be thousands of partitions and
        tens of thousands of clients."""
        if not self._held_readers or self._held_readers[0].plan is not plan:
            self._held_readers[:] = [_ReadersOfPlan.of(plan)]
        return self._held_readers[0]

    @cached_property
    def _held_readers(self) -> list["_ReadersOfPlan"]:
        """What `_readers` found last."""
        return []

    def envelope(self, plan: Plan, cell: Cell, partition: int) -> Envelope:
        """Returns what happened to one partition of a cell."""
        lag_max_ms = self.setting_ms("replica.lag.time.max.ms")
        audited, _ = self._observed(partition, ObservationKind.AUDIT_COMPLETE)
        _, remote_to = self._observed(partition, ObservationKind.REMOTE_STORE_READ)
        return Envelope(
            timeline=self._timeline(plan, partition),
            faults=tuple(
                _as_far_as(fault.of_topic(flushed=self.flushed(cell)), plan, partition) for fault in self.fault_records
            ),
            error_ns=self.clock_error_ns,
            registrations=self.registrations,
            acks=cell.producer.acks,
            unclean_enabled=cell.topic.unclean_leader_election_enable,
            lag_max_ns=None if lag_max_ms is None else lag_max_ms * 1_000_000,
            keepers=frozenset(plan.variant.metadata_keepers),
            producer_expiry_ns=self._producer_expiry_ms(plan) * 1_000_000,
            delete_retention_ns=self._delete_retention_ms(plan, cell) * 1_000_000,
            offsets_retention_ns=self._offsets_retention_minutes(plan) * 60 * NS_PER_S,
            audited_ns=int(audited[-1]) if len(audited) else None,
            delivery_bound=cell.delivery_bound,
            broker_ids=frozenset(plan.broker_ids),
            brokers_flush=self._brokers_flush,
            coordinator_steps=_aimed_at_coordinator(plan, cell),
            session_ns=_session_ns(cell),
            unstated=plan.undescribed,
            topics_apart=self._readers(plan).topics_apart,
            topics_may_go=plan.origin == "recorded" and not plan.blind,
            measured_by=self._readers(plan).nodes.get(partition, frozenset()),
            seeks_unrecorded=self._seeks_unrecorded(plan, partition),
            epoch_starts=self._epoch_starts(partition),
            high_watermarks=self._observed(partition, ObservationKind.HIGH_WATERMARK),
            leader_answers=self._observed(partition, ObservationKind.LEADER_HIGH_WATERMARK, what="leader_epoch"),
            log_starts=self._observed(partition, ObservationKind.LOG_START),
            sampled_unclean=() if partition in self.timelines else self.sampled.get(partition, ()),
            remote_to=int(remote_to.max()) if len(remote_to) else None,
            logs_read=self._logs_read,
            truncations=self._stated(partition, ObservationKind.TRUNCATED),
            taken_back=self._stated(partition, ObservationKind.HIGH_WATERMARK_TAKEN_BACK),
            markers_refused_ns=self._observed(NONE, ObservationKind.MARKERS_REFUSED)[0],
            batches=lambda: self.batches_of(partition),
            older_epoch_from=lambda: self._older_epoch_from(partition),
            committed_one_beyond=lambda: self._committed_one_beyond(partition),
            group_commits=lambda: self._group_commits(cell),
            of_librdkafka=partial(self._of_librdkafka, plan),
            sends=self.sends,
            request_ns=request_ms(cell.producer) * 1_000_000,
            transactions=lambda: self.transaction_times,
            stale_answers=lambda: self._stale_answers(plan, cell, partition),
            quorum_fetch_ns=self._quorum_fetch_ms(plan) * 1_000_000,
            coordinators_moved_ns=lambda: self.coordinators_moved_ns,
            wall_zero_ns=self.wall_zero_ns,
        )

    def _timeline(self, plan: Plan, partition: int) -> Timeline:
        """Returns the timeline of a partition, behind those of the topics that had its name before. Its own topic counts as
        one that goes on: what was in its log while it was there is judged, deleted afterwards or not."""
        own = self.timelines.get(partition, no_timeline())
        before = [self.timelines[p] for p in plan.before(partition) if p in self.timelines]
        if not own.known or not (before or partition in self.ended):
            return own
        return joined_timelines([*before, own])

    def _seeks_unrecorded(self, plan: Plan, partition: int) -> frozenset[int]:
        """Returns the programs of yours that read a partition, with those that took their places."""
        planned = self._readers(plan).by_command.get(partition)
        if planned is None:
            return frozenset()
        later = np.isin(self.clients["planned"], sorted(planned))
        return frozenset(planned | set(self.clients["client"][later].tolist()))

    def _of_librdkafka(self, plan: Plan, clients: np.ndarray) -> Truth:
        """Says of each client whether it reads by librdkafka: readers and members of prozess do, members of Java do not, and
        nothing is known of others."""
        roles = {client.client: client.role for client in plan.clients}
        planned = dict(zip(self.clients["client"].tolist(), self.clients["planned"].tolist(), strict=True))
        each, of = np.unique(clients, return_inverse=True)
        known = [_BY_LIBRDKAFKA.get(roles.get(planned.get(one, one), ""), UNKNOWN) for one in each.tolist()]
        return np.array(known, dtype=np.int8)[of.reshape(-1)]

    def _stale_answers(self, plan: Plan, cell: Cell, partition: int) -> Sequence[StaleAnswer]:
        """Returns the stale answers about this partition or, for a copy, about the partition that it is copied from."""
        of = dict(zip(cell.derived, cell.written, strict=True)).get(partition, partition) if cell.derived else partition
        if self.commits is None:
            return ()
        answers = stale_answers(
            plan,
            observations=self.observations,
            commits=self.commits,
            metadata=self.metadata,
            clients=self.clients,
            error_ns=self.clock_error_ns,
        )
        return [answer for answer in answers if answer.partition == of]

    @cached_property
    def coordinators_moved_ns(self) -> Sequence[int]:
        """When a partition of `__consumer_offsets` changed its leader, or lost it, ascending."""
        leaders = offsets_leaders(self.metadata).values()
        return sorted({int(t) for one in leaders for t in one.time_ns[1:][one.leader[1:] != one.leader[:-1]]})

    def _older_epoch_from(self, partition: int) -> int | None:
        starts = self._epoch_starts(partition)
        if self.replicas is None or starts is None or self.batches_of(partition) is None:
            return None
        return older_epoch_from(self.replicas(partition, EPOCH_COLUMNS), partition, starts)

    def flushed(self, cell: Cell) -> bool:
        """Is every record synced inside the append, on leader and followers, before it is acknowledged? Keyed by
        flush.messages of the topic, else of the brokers; flush.ms does not count: it is looked at by a scheduler.
        [LogManager]"""
        planned = cell.topic.kafka_properties().get("flush.messages")
        return self._brokers_flush if planned is None else planned == "1"

    @property
    def _brokers_flush(self) -> bool:
        return str(self.cluster.get("settings", {}).get("log.flush.interval.messages", "")) == "1"

    def _producer_expiry_ms(self, plan: Plan) -> int:
        """producer.id.expiration.ms as read from the cluster, else as the plan sets it, else Kafka's default: a cluster
        that was started from the plan has no other broker property than those that were written for it."""
        planned = plan.variant.properties.get("producer.id.expiration.ms", "")
        read = self.setting_ms("producer.id.expiration.ms")
        return read if read is not None else int(planned) if planned.isdigit() else _PRODUCER_EXPIRY_DEFAULT_MS

    @staticmethod
    def _offsets_retention_minutes(plan: Plan) -> int:
        """offsets.retention.minutes as the plan sets it, else Kafka's default."""
        planned = plan.variant.properties.get("offsets.retention.minutes", "")
        return int(planned) if planned.isdecimal() else _OFFSETS_RETENTION_DEFAULT_MINUTES

    def _quorum_fetch_ms(self, plan: Plan) -> int:
        """controller.quorum.fetch.timeout.ms as read from the cluster, else as the plan sets it, else Kafka's default."""
        planned = plan.variant.properties.get("controller.quorum.fetch.timeout.ms", "")
        read = self.setting_ms("controller.quorum.fetch.timeout.ms")
        return read if read is not None else int(planned) if planned.isdigit() else _QUORUM_FETCH_DEFAULT_MS

    @staticmethod
    def _delete_retention_ms(plan: Plan, cell: Cell) -> int:
        """delete.retention.ms of the topic: as the topic sets it, else the brokers, else Kafka's default."""
        planned = plan.variant.properties.get("log.cleaner.delete.retention.ms", "")
        value = cell.topic.properties.get("delete.retention.ms", planned)
        return int(value) if value.isdigit() else _DELETE_RETENTION_DEFAULT_MS

    def _epoch_starts(self, partition: int) -> Mapping[int, int] | None:
        """First offset of each leader epoch. Taken from the `leader-epoch-checkpoint` of all replicas, where they were
        read: it also knows an epoch that began and has no record yet. Else by the epochs in the batch headers. [KIP-101]"""
        checkpointed = self._checkpointed_starts(partition)
        if checkpointed is not None:
            return checkpointed
        if self.replicas is None:
            return None
        replicas = self.replicas(partition, EPOCH_COLUMNS)
        rows = np.flatnonzero(replicas["step"] == NONE)
        if not len(rows):
            return None
        epoch = replicas["leader_epoch"][rows]
        # Batches of one epoch follow one another, in each copy. Example: epochs 3 3 4 | 3 4 of two copies begin at 0 2 3 4.
        # The least offset of each stretch is reduced to the least of each epoch.
        begins = np.append(0, np.flatnonzero(epoch[1:] != epoch[:-1]) + 1)
        epochs, where = np.unique(epoch[begins], return_inverse=True)
        starts = np.full(len(epochs), np.iinfo(np.int64).max)
        np.minimum.at(starts, where, np.minimum.reduceat(replicas["base_offset"][rows], begins))
        end = int(replicas["last_offset"][rows].max()) + 1
        # An epoch after the last one with records begins at the end of the log.
        return dict(zip(epochs.tolist(), starts.tolist(), strict=True)) | {2**31: end}

    def _checkpointed_starts(self, partition: int) -> Mapping[int, int] | None:
        """Returns the least start of each epoch that any replica wrote down at the end: a leader writes down its log
        end when its epoch begins, a follower the first offset it is given of that epoch, which is there or later. None:
        none was read.

        An epoch that gave way before it had a record is struck out when the next begins at the same offset
        (LeaderEpochFileCache.assign): it began where the next one did. One later than all of them: at the end of the log.
        """
        seen, rows = self.observations, self._seen_by_partition.rows_of(partition)
        if not len(rows):
            return None
        rows = rows[seen["step"][rows] == NONE]
        starts = rows[seen["kind"][rows] == ObservationKind.REPLICA_EPOCH_START.value]
        ends = rows[seen["kind"][rows] == ObservationKind.REPLICA_LOG_END.value]
        if not len(starts) or not len(ends):
            return None
        found: dict[int, int] = {2**31: int(seen["value"][ends].max())}
        for epoch, start in zip(seen["leader_epoch"][starts].tolist(), seen["value"][starts].tolist(), strict=True):
            found[epoch] = min(start, found.get(epoch, start))
        return found

    def _committed_one_beyond(self, partition: int) -> np.ndarray | None:
        if self.commits is None:
            return None
        offset, position = self.commits["log_offset"], self.commits["position"]
        mine = (self.commits["partition"] == partition) & (self.commits["outcome"] != Outcome.FAIL) & (position != NONE)
        return np.unique(position[mine & (offset == position + 1)])

    def _group_commits(self, cell: Cell) -> tuple[np.ndarray, np.ndarray]:
        none = np.empty(0, dtype=np.int64)
        if self.commits is None or cell.group is None or cell.group.configuration.subscription != "topics":
            return none, none
        invoked_ns, completed_ns = self.commits["invoked_ns"], self.commits["completed_ns"]
        rows = np.flatnonzero(
            np.isin(self.commits["partition"], cell.partitions) & (self.commits["outcome"] == Outcome.OK)
        )
        rows = rows[np.argsort(invoked_ns[rows], kind="stable")]
        return invoked_ns[rows], completed_ns[rows]

    @cached_property
    def _logs_read(self) -> frozenset[int]:
        seen = self.observations
        return frozenset(seen["node"][seen["kind"] == ObservationKind.SERVER_LOG].tolist())

    def _stated(self, partition: int, kind: ObservationKind) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        times_ns, offsets = self._observed(partition, kind)
        return self._observed(partition, kind, what="node")[1], times_ns, offsets

    def _observed(self, partition: int, kind: ObservationKind, *, what: str = "value") -> tuple[np.ndarray, np.ndarray]:
        seen, rows = self.observations, self._seen_by_partition.rows_of(partition)
        if not len(rows):
            return seen["time_ns"][:0], seen[what][:0]
        rows = rows[seen["kind"][rows] == kind.value]
        if not len(rows):
            return seen["time_ns"][:0], seen[what][:0]
        rows = rows[np.argsort(seen["time_ns"][rows], kind="stable")]
        return seen["time_ns"][rows], seen[what][rows]


def _columns_of(table: Columns) -> PartitionColumns:
    clustered = Clustered(table["partition"])  # sorted now, asked partition by partition later
    return lambda partition, names: {name: table[name][clustered.rows_of(partition)] for name in names}


def _columns_in(file: TableFile, partition: int, names: Sequence[str]) -> Columns:
    return file.read(names, file.row_ranges.get(partition, ()))


@dataclass(frozen=True, slots=True)
class _ReadersOfPlan:
    """Says, for each partition, who was to read it, and whether partitions share names."""

    plan: Plan
    topics_apart: bool
    """A partition has the name of an earlier one."""
    nodes: Mapping[int, frozenset[int]]
    """The nodes of readers."""
    by_command: Mapping[int, frozenset[int]]
    """Programs of yours."""

    @staticmethod
    def of(plan: Plan) -> "_ReadersOfPlan":
        """Finds the readers of a plan."""
        nodes, by_command = defaultdict[int, set[int]](set), defaultdict[int, set[int]](set)
        for client in plan.clients:
            for partition in client.partitions if client.role == "reader" else ():
                nodes[partition].add(CLIENT_NODE + client.client)
            for partition in client.partitions if client.reads_by_command else ():
                by_command[partition].add(client.client)
        nodes_of, commands_of = ({p: frozenset(who) for p, who in of.items()} for of in (nodes, by_command))
        return _ReadersOfPlan(plan, bool(plan.nameless), nodes_of, commands_of)


def _wall_zero_ns(run: RunDirectory) -> int | None:
    """Time 0 of the trial by the wall clock; None if the trial's clock never started or was never compared with it
    (imports)."""
    clock = read_object(run.clock) if run.clock.exists() else {}
    needed = ("wall_minus_monotonic_ns", "start_monotonic_ns")
    return sum(int(clock[name]) for name in needed) if all(name in clock for name in needed) else None


def _texts(path: Path) -> Sequence[str]:
    """Returns what a file of the run lists; nothing for an imported run, or for one that ended before it came so far."""
    texts = read_json(path) if path.exists() else []
    if not isinstance(texts, list):
        raise HistoryUnreadable(f"{path} holds no JSON list. Make the run again, or put back the file.")
    return [str(what) for what in texts]


def _aimed_at_coordinator(plan: Plan, cell: Cell) -> frozenset[int]:
    """Steps whose fault struck whoever coordinated the cell's group then, as brokers answered."""
    return frozenset(
        number
        for number, step in enumerate(plan.steps)
        if isinstance(step.do, FaultAction) and f"group-coordinator({cell.cell})" in step.do.targets
    )


def _session_ns(cell: Cell) -> int:
    """Returns how long a coordinator must not hear of a member of the cell's group before it evicts it; 0 without a group."""
    if (group := cell.group) is None:
        return 0
    session_ms = max(0, group.session.timeout_ms - group.session.heartbeat_ms)
    return min(session_ms, group.configuration.max_poll_interval_ms) * 1_000_000


def _as_far_as(fault: FaultRecord, plan: Plan, partition: int) -> FaultRecord:
    """Returns the fault as far as it concerns a partition: an unclean election that was asked for others, or a file or a
    remote object of another that was damaged, excuses nothing here."""
    if fault.nature is None or not 0 <= fault.step < len(plan.steps):
        return fault
    action = plan.steps[fault.step].do
    if isinstance(action, FaultAction) and fault.kind == "corrupt-file":
        own = action.parameters.get("file") == "checkpoint" or action.parameters.get("partition", 0) == partition
        return fault if own else replace(fault, nature=replace(fault.nature, destroys=False))
    if not isinstance(action, FaultAction) or not (fault.nature.elects_unclean or fault.kind == "harm-object"):
        return fault
    named = {target.partition for target in map(parse_target, action.targets) if target.role == "partition"}
    elsewhere = replace(fault.nature, elects_unclean=False, harms_store=False)
    return fault if named & {None, partition} else replace(fault, nature=elsewhere)


# Clients that forgot every broker, by their own statistics.


KNOWN_BROKERS = "client_known_brokers"
FORGOTTEN_NS = 10 * NS_PER_S
"""With librdkafka 2.16.0 who comes back does so within 2 s (`docs/decisions.md`)."""
DEFECT = (
    "a known defect of librdkafka, librdkafka#5301, open: a metadata response that names no broker makes it forget all "
    "brokers"
)
"""A client that knows none has nobody to ask for others, whether they are well or not, and stands still for good. Brokers
that are merely down stay known. [librdkafka rdkafka_metadata.c, rd_kafka_metadata_decommission_unavailable_brokers]"""


def brokerless(metrics: Columns, clients: Columns) -> Mapping[int, int]:
    """Returns, for each planned client, since when, in ns, one in its place knew no broker, although it had known some:
    in every sample to its last one, for FORGOTTEN_NS at least. `metrics`: rows of `metrics`."""
    planned = dict(zip(clients["client"].tolist(), clients["planned"].tolist(), strict=True))
    mine = (metrics["metric"] == code_of(KNOWN_BROKERS)) & (metrics["absent"] == 0)
    found: dict[int, int] = {}
    for client in np.unique(metrics["client"][mine]).tolist():
        rows = np.flatnonzero(mine & (metrics["client"] == client))
        rows = rows[np.argsort(metrics["time_ns"][rows], kind="stable")]
        times, knew = metrics["time_ns"][rows], np.flatnonzero(metrics["value_micro"][rows] > 0)
        if not len(knew) or knew[-1] + 1 == len(rows):
            continue
        # The sample behind the last one in which it knew a broker.
        since_ns = int(times[knew[-1] + 1])
        if int(times[-1]) - since_ns >= FORGOTTEN_NS:
            found[planned.get(client, client)] = since_ns
    return found
