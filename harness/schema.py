"""Defines every table and column of a history: its kind, its unit and its meaning. Tables hold integers only; names are
in dictionaries beside them."""

from dataclasses import dataclass
from enum import IntEnum, unique
from functools import cached_property
from typing import Literal

OFFSET_MAX = 2**48
"""No log has so many records: a million a second take nine years. Kafka numbers them in 64 bits, and a greater number is
somebody's mistake."""
RECORDER_CLIENT = 1_000_000
"""The client id of the run stage's own rows, beyond every planned client. Ids from here up are no clients of the trial."""

# What a column and a table of a history are, and the two forms of a row.


Kind = Literal["i8", "i4"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, its numpy kind, its unit (or what its ids stand for), and its meaning."""

    name: str
    kind: Kind
    unit: str
    meaning: str


@dataclass(frozen=True)
class Table:
    """A table of the history. The rows of a `partitioned` table are clustered by Kafka partition in Parquet."""

    name: str
    meaning: str
    columns: tuple[Column, ...]
    partitioned: bool = False

    @property
    def padded(self) -> bool:
        """Whether 4 bytes follow the columns of a written row, so that the next row begins at a multiple of 8."""
        return sum(c.kind == "i4" for c in self.columns) % 2 == 1

    @cached_property
    def row_format(self) -> str:
        """Returns the format of the same row for `struct`: one value for each column, then the mark."""
        return "<" + "".join({"i8": "q", "i4": "i"}[c.kind] for c in self.columns) + "4x" * self.padded + "q"

    @property
    def stored_columns(self) -> tuple[Column, ...]:
        """Returns the columns of the Parquet form: `client` first."""
        return (Column("client", "i4", "client id", "who wrote the row; NONE: it is from the plan"), *self.columns)

    @cached_property
    def column_names(self) -> tuple[str, ...]:
        """The names of the columns in the Parquet form."""
        return tuple(c.name for c in self.stored_columns)


def table(name: str, meaning: str, *columns: tuple[str, Kind, str, str], partitioned: bool = False) -> Table:
    """Returns a table with these columns: (name, kind, unit, meaning)."""
    # 8-byte columns first keeps every value aligned in the mapped file.
    ordered = sorted((Column(*c) for c in columns), key=lambda c: c.kind != "i8")
    return Table(name, meaning, tuple(ordered), partitioned)


# The tables that clients write: what they sent, read, processed, committed and looked up.


SENDS = table(
    "sends",
    "One row per produce(): written before the call, completed in place by the delivery report.",
    ("invoked_ns", "i8", "ns", "before produce() was called"),
    ("completed_ns", "i8", "ns", "when the delivery report ran (an upper bound); MISSING: never"),
    ("log_offset", "i8", "offset", "from the report; NONE: not reported (acks=0, duplicate sequence, error)"),
    ("sequence", "i8", "count", "identity of the record within its client: 0, 1, 2, … over all partitions"),
    ("transaction", "i8", "id", "number of the client's transaction, NONE outside"),
    ("key", "i8", "id", "key of the record, NONE = null key"),
    ("partition", "i4", "partition id", "dense id, see `partitions`"),
    ("outcome", "i4", "Outcome", "INFO until completed"),
    ("code", "i4", "KafkaError code", "0 = no error"),
    ("size", "i4", "bytes", "of the value; NONE = tombstone"),
    partitioned=True,
)
READS = table(
    "reads",
    "One row per record given to a reader or to the audit, in the order given.",
    ("read_ns", "i8", "ns", "when the poll returned"),
    ("log_offset", "i8", "offset", "of the record"),
    ("sequence", "i8", "count", "of the record within its sender; NONE if unreadable"),
    ("key", "i8", "id", "key of the record, NONE = null key"),
    (
        "origin",
        "i8",
        "id",
        "of a copy: client << ORIGIN_SEQUENCE_BITS | sequence of what it was copied from; where only contents can say, in "
        "both topics: a digest of key and value; NONE: no copy, or it does not say",
    ),
    (
        "sender",
        "i4",
        "client id",
        "who produced it, from the record itself; NONE if unreadable, or a copy without its own",
    ),
    ("partition", "i4", "partition id", "where it was read"),
    (
        "sent_partition",
        "i4",
        "partition id",
        "where the record says it was sent; a verifiable client's, which does not say: where it was acknowledged, in "
        "Parquet; else NONE",
    ),
    ("span", "i4", "count", "number of this client's assignment or seek span: order is judged within one"),
    ("flags", "i4", "ReadFlag bits", ""),
    ("leader_epoch", "i4", "epoch", "as the client was reported; NONE if not"),
    partitioned=True,
)
PROCESSED = table(
    "processed",
    "One row per processing step of a group member, written before its commit.",
    ("started_ns", "i8", "ns", ""),
    ("done_ns", "i8", "ns", "MISSING: never finished"),
    ("log_offset", "i8", "offset", ""),
    ("sequence", "i8", "count", ""),
    ("sender", "i4", "client id", ""),
    ("partition", "i4", "partition id", ""),
    ("group", "i4", "group id", ""),
    ("span", "i4", "count", ""),
    partitioned=True,
)
DELIVERIES = table(
    "deliveries",
    "One row per delivery of a record to a member of a share group: written when the poll returned, completed in place.",
    (
        "absent_ns",
        "i8",
        "ns",
        "the client's buffer was empty then: the member's latest poll began that gave all that had come",
    ),
    ("acquired_ns", "i8", "ns", "when the poll returned that gave the record: its lock is older"),
    ("acknowledged_ns", "i8", "ns", "before the acknowledgement was handed to the client; MISSING: never"),
    ("answered_ns", "i8", "ns", "when its answer was there (an upper bound); MISSING: never"),
    ("renewed_ns", "i8", "ns", "before the latest renewal of its lock that was answered was sent; MISSING: none was"),
    ("log_offset", "i8", "offset", "of the record"),
    ("sequence", "i8", "count", "of the record within its sender; NONE if unreadable"),
    ("sender", "i4", "client id", "who produced it, from the record itself; NONE if unreadable"),
    ("partition", "i4", "partition id", ""),
    ("group", "i4", "group id", "the cell of the share group"),
    ("delivery_count", "i4", "count", "as the broker gave it with the record; NONE: it gave none"),
    ("acknowledgement", "i4", "1 accept 2 release 3 reject; NONE: none", "what the member decided in the end"),
    ("outcome", "i4", "Outcome", "of the acknowledgement: INFO until it is answered, and after a refusal"),
    ("code", "i4", "error code", "of a refusal; 0 = none"),
    partitioned=True,
)
TRANSACTIONS = table(
    "transactions",
    "One row per transaction of a client, and one per instance (one init_transactions) of a transactional.id.",
    ("transaction", "i8", "id", "number within the client; NONE = the row of an instance"),
    ("begun_ns", "i8", "ns", "begin_transaction; of an instance: before init_transactions was first called"),
    ("end_invoked_ns", "i8", "ns", "commit or abort invoked; MISSING: never"),
    ("completed_ns", "i8", "ns", "MISSING: never"),
    ("initialised_ns", "i8", "ns", "when this instance's init_transactions returned"),
    ("transactional_id", "i4", "client id", "of the first planned client that has this transactional.id"),
    ("ended_by", "i4", "1 commit, 2 abort", "invoked first (an abort may follow a commit); NONE: neither was invoked"),
    ("outcome", "i4", "Outcome", "of the end"),
    ("code", "i4", "KafkaError code", ""),
)
COMMITS = table(
    "commits",
    "One row per partition of an offset commit.",
    ("invoked_ns", "i8", "ns", ""),
    ("completed_ns", "i8", "ns", "MISSING: never"),
    ("log_offset", "i8", "offset", "the next to read"),
    ("position", "i8", "offset", "the member's own position then; NONE: not known"),
    ("partition", "i4", "partition id", ""),
    ("group", "i4", "group id", ""),
    ("outcome", "i4", "Outcome", ""),
    ("code", "i4", "KafkaError code", ""),
    ("mode", "i4", "1 sync 2 async 3 auto 4 transaction; NONE: not known", ""),
)
ASSIGNMENTS = table(
    "assignments",
    "One row per partition of an assignment callback; partition NONE = an empty callback.",
    ("started_ns", "i8", "ns", "callback began"),
    ("done_ns", "i8", "ns", "callback returned"),
    ("partition", "i4", "partition id", ""),
    ("group", "i4", "group id", ""),
    ("event", "i4", "1 assign 2 revoke 3 lost 4 close", ""),
    ("incremental", "i4", "0/1", ""),
)
POSITIONS = table(
    "positions",
    "Seeks, resets, pauses, and the position on assignment.",
    ("time_ns", "i8", "ns", ""),
    ("log_offset", "i8", "offset", "the new position"),
    ("partition", "i4", "partition id", ""),
    ("event", "i4", "1 assigned 2 seek 3 reset 4 pause 5 resume", ""),
    ("span", "i4", "count", "the span that begins here"),
)
OBSERVATIONS = table(
    "observations",
    "Offsets that a client or the observer looked up, and who answered; and when an application asked its clients.",
    ("time_ns", "i8", "ns", ""),
    ("value", "i8", "offset", "what `kind` says"),
    ("partition", "i4", "partition id", ""),
    ("kind", "i4", "ObservationKind", ""),
    ("node", "i4", "node id", "who answered; NONE: not reported"),
    ("leader_epoch", "i4", "epoch", "NONE: not reported"),
    ("isolation", "i4", "Isolation", ""),
    ("step", "i4", "step number", "of the REPLICA_ kinds: of the `inspect` that read it; NONE = at the end"),
)
WITHHELD = table(
    "withheld",
    "Sends a producer did not attempt because the partition's cap of unacknowledged records was reached.",
    ("begun_ns", "i8", "ns", ""),
    ("ended_ns", "i8", "ns", "MISSING: still held back at the end"),
    ("count", "i8", "records", ""),
    ("partition", "i4", "partition id", ""),
)


# The tables of the trial itself: faults, steps, metadata, metrics, and who took part.


FAULTS = table(
    "faults",
    "What the nemesis did, phase by phase.",
    ("time_ns", "i8", "ns", ""),
    ("fault", "i4", "count", "number of this fault within the trial"),
    ("kind", "i4", "dictionary `fault`", ""),
    ("step", "i4", "step number", ""),
    ("phase", "i4", "FaultPhase", ""),
    ("node", "i4", "node id", "what was hit"),
    ("peer", "i4", "node id", "the other end of a cut; NONE"),
    ("effect", "i4", "Tristate", "with VERIFIED and UNDO_VERIFIED: was it observed?"),
    ("detail", "i4", "dictionary `detail`", "NONE"),
)
MESSAGES = table(
    "messages",
    "Messages of Kafka's protocol that a step meant: one row for each partition that such a message was meant for.",
    ("time_ns", "i8", "ns", "when something was done to it"),
    ("producer_id", "i8", "id", "of the request, or of the batch; NONE if it does not say"),
    ("step", "i4", "step number", "of the fault or the condition that meant it"),
    ("opener", "i4", "node id", "who opened the connection; ALL_CLIENTS_NODE for clients"),
    ("server", "i4", "node id", "who took it"),
    ("sender", "i4", "client id", "of the plan, if the client id in the header is its name; NONE"),
    ("api", "i4", "API key", "of the request, or of the request that was answered"),
    ("version", "i4", "API version", ""),
    ("answer", "i4", "0/1", "1: the answer, 0: the request"),
    ("error", "i4", "error code", "of the answer, at the top or of the partition; NONE if it has none"),
    ("partition", "i4", "partition id", "NONE if it names none of the plan"),
    ("producer_epoch", "i4", "epoch", "NONE if it does not say"),
    ("first_sequence", "i4", "count", "of the batch; NONE"),
    ("did", "i4", "dictionary `did`", "what was done to it, as the proxy's journal says"),
)
STEPS = table(
    "steps",
    "Steps of the schedule as they really happened.",
    ("awaited_ns", "i8", "ns", "when its condition began to be awaited"),
    ("fired_ns", "i8", "ns", "when the condition held; MISSING: it timed out"),
    ("done_ns", "i8", "ns", "MISSING"),
    ("step", "i4", "step number", ""),
    ("outcome", "i4", "StepOutcome", ""),
    ("detail", "i4", "dictionary `detail`", "NONE"),
)
METADATA = table(
    "metadata",
    "Who led and who was in sync, over time. Masks have bit n set for broker n.",
    ("time_ns", "i8", "ns", "of the controller's record; see `clock.json` for the error of the mapping"),
    ("isr", "i8", "broker mask", ""),
    ("elr", "i8", "broker mask", "eligible leader replicas, KIP-966"),
    ("last_known_elr", "i8", "broker mask", ""),
    ("replicas", "i8", "broker mask", ""),
    ("log_position", "i8", "offset", "in the metadata log; NONE for samples"),
    ("topic_id_high", "i8", "id", "upper half of the id of the partition's topic (KIP-516); NONE: not reported"),
    ("topic_id_low", "i8", "id", "lower half; of a topic that ZooKeeper knows without an id, the zxid that made it"),
    ("kind", "i4", "MetadataKind", ""),
    ("source", "i4", "MetadataSource", ""),
    (
        "partition",
        "i4",
        "partition id",
        "NONE for brokers and controllers; of internal topics (see `kind`): -2 - its number",
    ),
    ("node", "i4", "node id", "the broker or controller spoken of; for samples who answered"),
    ("leader", "i4", "node id", "NONE = no leader"),
    ("leader_epoch", "i4", "epoch", ""),
    ("recovering", "i4", "0/1", "KIP-704 leader recovery state"),
)
REPLICAS = table(
    "replicas",
    "Record batches found in each replica's own log segments: headers, in the order of the log; and in the remote store.",
    ("read_ns", "i8", "ns", "when the segments were read"),
    ("base_offset", "i8", "offset", ""),
    ("last_offset", "i8", "offset", ""),
    ("producer_id", "i8", "id", ""),
    ("checksum", "i8", "crc32c", "as stored; it covers everything from the attributes on, not the leader epoch"),
    ("base_timestamp_ms", "i8", "ms", ""),
    ("max_timestamp_ms", "i8", "ms", ""),
    ("partition", "i4", "partition id", ""),
    ("node", "i4", "node id", "whose copy it is; -2: that of the remote store"),
    ("step", "i4", "step number", "of the `inspect` that read it; NONE = at the end, after the audit"),
    ("leader_epoch", "i4", "epoch", "of the leader that appended it"),
    ("producer_epoch", "i4", "epoch", ""),
    ("base_sequence", "i4", "count", ""),
    ("records", "i4", "count", ""),
    ("size", "i4", "bytes", "of the whole batch"),
    ("attributes", "i4", "bits", "of the batch header: 0-2 compression, 3 timestamp type, 4 transactional, 5 control"),
    partitioned=True,
)
REMOTE_SEGMENTS = table(
    "remote_segments",
    "Segments of tiered storage, as the brokers' metadata topic and the remote store itself have them: a row each.",
    ("read_ns", "i8", "ns", "when the store was read"),
    ("segment_high", "i8", "id", "upper half of the segment's id"),
    ("segment_low", "i8", "id", "lower half"),
    ("topic_id_high", "i8", "id", "upper half of the id of the segment's topic (KIP-516)"),
    ("topic_id_low", "i8", "id", "lower half"),
    ("first_offset", "i8", "offset", ""),
    ("last_offset", "i8", "offset", "by the metadata topic; NONE if it knows no such segment"),
    (
        "whole_to",
        "i8",
        "offset",
        "up to here its batches are there, each with the checksum of its bytes; NONE: no object",
    ),
    ("size", "i8", "bytes", "by the metadata topic; NONE"),
    ("stored_size", "i8", "bytes", "of the object; NONE if it is not there"),
    ("copied_ms", "i8", "ms", "when its copy began, by the wall clock of the broker; NONE"),
    ("changed_ms", "i8", "ms", "when its state was last written, by that clock; NONE"),
    ("partition", "i4", "partition id", ""),
    ("node", "i4", "node id", "the broker that wrote its state; NONE"),
    ("step", "i4", "step number", "of the `inspect` that read it; NONE = at the end, after the audit"),
    ("state", "i4", "RemoteState", "NONE if the metadata topic knows no such segment"),
    (
        "current",
        "i4",
        "0/1",
        "1: of the topic that has the name now, by the brokers' own files; 0: of one that was deleted",
    ),
    ("damaged", "i4", "count", "batches of the object whose bytes have another checksum"),
)
SNAPSHOTS = table(
    "snapshots",
    "Entries of the producer snapshots beside each replica's segments: one row per snapshot and producer.",
    ("read_ns", "i8", "ns", "when the snapshots were read"),
    ("snapshot_offset", "i8", "offset", "the snapshot describes the batches below it"),
    ("producer_id", "i8", "id", ""),
    ("last_offset", "i8", "offset", "of its last batch of records under this epoch; NONE"),
    ("timestamp_ms", "i8", "ms", "of its last batch or marker"),
    ("transaction_offset", "i8", "offset", "where its open transaction begins; NONE"),
    ("partition", "i4", "partition id", ""),
    ("node", "i4", "node id", "whose copy it is"),
    ("step", "i4", "step number", "of the `inspect` that read it; NONE = at the end, after the audit"),
    ("producer_epoch", "i4", "epoch", ""),
    ("last_sequence", "i4", "count", "of that batch; NONE"),
    ("offset_delta", "i4", "records", "last offset minus first offset of that batch"),
    ("coordinator_epoch", "i4", "epoch", "of the coordinator that wrote its last marker; NONE"),
)
CLUSTER_STATES = table(
    "cluster_states",
    "What the controllers' log states of brokers, features and settings of topics: rows of one record share its offset.",
    ("time_ns", "i8", "ns", "of the controller's record"),
    ("log_offset", "i8", "offset", "in the controllers' log"),
    ("broker_epoch", "i8", "epoch", "that the record names; NONE: it names no broker"),
    (
        "id_high",
        "i8",
        "id",
        "upper half: the incarnation of a registration, a directory, the topic of a setting; NONE: none",
    ),
    ("id_low", "i8", "id", "lower half"),
    ("kind", "i4", "ClusterRecord", ""),
    ("node", "i4", "node id", "of the broker; NONE: of none"),
    ("fenced", "i4", "0/1", "from here on; NONE: as before"),
    ("shutting_down", "i4", "0/1", "1: it shuts down from here on (KIP-841); of a change 0: as before"),
    (
        "feature",
        "i4",
        "id",
        "METADATA_VERSION, ELR_VERSION; others in the order in which the log names them; NONE: of none",
    ),
    ("lowest", "i4", "level", "that the broker supports; NONE"),
    ("level", "i4", "level", "of the feature; the highest that the broker supports; NONE"),
)
TRANSACTION_STATES = table(
    "transaction_states",
    "The records of the transaction log, `__transaction_state`: of each partition those of the copy that would lead.",
    ("time_ns", "i8", "ns", "of the record, by the coordinator's clock"),
    ("log_offset", "i8", "offset", "in its partition"),
    ("producer_id", "i8", "id", "NONE: the transactional.id was forgotten"),
    ("number", "i4", "partition number", "of `__transaction_state`"),
    ("leader_epoch", "i4", "epoch", "of the leader that appended it, which is the coordinator"),
    ("transactional_id", "i4", "client id", "of the first planned client that has it; NONE: none of the plan"),
    ("state", "i4", "TransactionState", ""),
    ("producer_epoch", "i4", "epoch", ""),
    ("partitions", "i4", "count", "partitions in the transaction"),
    ("client_version", "i4", "count", "transaction.version as the client has it; 0: below 2, or not reported"),
)
GROUP_STATES = table(
    "group_states",
    "What `__consumer_offsets` states of groups of the consumer protocol (KIP-848) and of the classic protocols: of each "
    "partition the copy that would lead.",
    ("time_ns", "i8", "ns", "of the record, by the coordinator's clock"),
    ("log_offset", "i8", "offset", "in its partition"),
    ("number", "i4", "partition number", "of `__consumer_offsets`"),
    ("leader_epoch", "i4", "epoch", "of the leader that appended it, which is the coordinator"),
    ("group", "i4", "cell number", "of the cell whose members have the group.id; NONE: of no cell"),
    (
        "member",
        "i4",
        "id",
        "members in the order in which the log names them; of CLASSIC the leader; NONE: of the group, or nobody leads",
    ),
    ("kind", "i4", "GroupRecord", ""),
    (
        "epoch",
        "i4",
        "group epoch",
        "of the group, its target assignment, or the member; of a classic group its generation; -2: a static member is "
        "away; NONE: gone",
    ),
    (
        "partition",
        "i4",
        "partition id",
        "NONE: of a member or group, or a partition of a topic that is not there at the end",
    ),
    (
        "name",
        "i4",
        "id",
        "names in the order in which the log has them: of CLASSIC the protocol type, of CLASSIC_PROTOCOL the protocol, of "
        "CLASSIC_MEMBER the group.instance.id; NONE: none",
    ),
)
SHARE_STATES = table(
    "share_states",
    "What `__share_group_state` states of share groups (KIP-932): of each partition the copy that would lead.",
    ("time_ns", "i8", "ns", "of the record, by the coordinator's clock"),
    ("log_offset", "i8", "offset", "in its partition"),
    ("first_offset", "i8", "offset", "of a range; of a snapshot or update the start offset, NONE: as before"),
    ("last_offset", "i8", "offset", "of a range; NONE"),
    ("number", "i4", "partition number", "of `__share_group_state`"),
    ("leader_epoch", "i4", "epoch", "of the leader that appended it, which is the coordinator"),
    ("group", "i4", "cell number", "of the cell whose members have the group.id; NONE: of no cell"),
    (
        "partition",
        "i4",
        "id",
        "partition id; below NONE: each partition of a topic that is not there at the end; NONE: none",
    ),
    ("kind", "i4", "ShareRecord", ""),
    ("state_epoch", "i4", "epoch", "of a snapshot; NONE"),
    ("partition_epoch", "i4", "epoch", "of the partition's leader that wrote it; NONE: gone"),
    ("state", "i4", "ShareState", "of a range; NONE"),
    ("delivery_count", "i4", "count", "of a range; NONE"),
)
ADMIN_OPERATIONS = table(
    "admin_operations",
    "What administrators of the trial set and found, beside its clients: one row per topic, setting and call.",
    ("invoked_ns", "i8", "ns", "before the call was made"),
    ("completed_ns", "i8", "ns", "when its answer was there (an upper bound); MISSING: never"),
    (
        "value",
        "i8",
        "id",
        "set or found: of a setting its value; of a topic the upper 63 bits of its id; 0: there is none; NONE: not known",
    ),
    ("topic", "i4", "id", "number of the administrators' topic"),
    ("setting", "i4", "AdminSetting", "of which of its settings"),
    ("operation", "i4", "AdminOperation", ""),
    ("node", "i4", "node id", "whose copy of the metadata was asked; NONE: the active controller decided"),
    ("outcome", "i4", "Outcome", "INFO: it may have taken effect or not, then or later"),
)
METRICS = table(
    "metrics",
    "Samples of metrics; a missing answer is a row with `absent` = 1.",
    ("time_ns", "i8", "ns", ""),
    ("value_micro", "i8", "1e-6 of the metric's unit", ""),
    ("metric", "i4", "dictionary `metric`", ""),
    ("node", "i4", "node id", ""),
    ("partition", "i4", "partition id", ""),
    ("absent", "i4", "0/1", ""),
)
HEARTBEATS = table(
    "heartbeats",
    "Every 100 ms from every process: a gap is starvation.",
    ("time_ns", "i8", "ns", ""),
)
CLIENTS = table(
    "clients",
    "One row per client incarnation.",
    ("started_ns", "i8", "ns", ""),
    ("ended_ns", "i8", "ns", "MISSING: it never stated so"),
    (
        "issued",
        "i8",
        "records",
        "sequences 0 … issued-1 were issued (producers, members with a retry topic), records read (readers)",
    ),
    ("role", "i4", "Role", ""),
    ("isolation", "i4", "Isolation", ""),
    ("exit_code", "i4", "status", "0 clean; negative = signal; NONE = unknown"),
    ("os_pid", "i4", "pid", ""),
    ("planned", "i4", "client id", "of the plan: its own, or that of the client whose place it took; NONE = none"),
    ("clock", "i4", "host id", "clients on the same clock may be ordered"),
    ("complete", "i4", "0/1", "1: the client closed its files itself"),
)
PARTITIONS = table(
    "partitions",
    "One row per Kafka partition under trial.",
    ("replicas", "i8", "broker mask", ""),
    ("partition", "i4", "partition id", "dense, 0 …"),
    ("topic", "i4", "dictionary `topic`", ""),
    ("number", "i4", "partition number", "within its topic"),
    ("cell", "i4", "cell number", ""),
    ("preferred_leader", "i4", "node id", ""),
)
CELLS = table(
    "cells",
    "One row per cell; its configuration is in `plan.json`.",
    ("cell", "i4", "cell number", ""),
    ("name", "i4", "dictionary `cell`", ""),
)


# A table has two forms. While a trial runs, it has fixed-width little-endian rows in shared memory-mapped files. Each
# row ends with its own index + 1 (`mark`), so that a torn row is recognised (`prozess.harness.recording.rows`).
# Afterwards it is Parquet with `client` as the first column. Partitioned tables are clustered, with one row group for
# each Kafka partition (`prozess.harness.history.convert`), or for several small ones (`prozess.harness.history.row_groups`).
#
# Times are CLOCK_MONOTONIC nanoseconds in rows, and nanoseconds since the trial's start in Parquet (negative =
# warm-up).


__all__ = [
    "ADMIN_OPERATIONS",
    "ASSIGNMENTS",
    "CELLS",
    "CLIENTS",
    "CLUSTER_STATES",
    "COMMITS",
    "DELIVERIES",
    "ELR_VERSION",
    "FAULTS",
    "FORMAT_VERSION",
    "GROUP_STATES",
    "HEARTBEATS",
    "MESSAGES",
    "METADATA",
    "METADATA_VERSION",
    "METRICS",
    "MISSING",
    "NONE",
    "OBSERVATIONS",
    "ORIGIN_SEQUENCE_BITS",
    "PARTITIONS",
    "POSITIONS",
    "PROCESSED",
    "READS",
    "RECORDED_ROLES",
    "REMOTE_SEGMENTS",
    "REMOTE_STORE",
    "REPLICAS",
    "SENDING",
    "SENDS",
    "SHARE_STATES",
    "SNAPSHOTS",
    "STEPS",
    "TABLES",
    "TRANSACTIONS",
    "TRANSACTION_STATES",
    "WITHHELD",
    "AdminOperation",
    "AdminSetting",
    "ClusterRecord",
    "Column",
    "FaultPhase",
    "GroupRecord",
    "Isolation",
    "Kind",
    "MetadataKind",
    "MetadataSource",
    "ObservationKind",
    "Outcome",
    "ReadFlag",
    "RemoteState",
    "Role",
    "ShareRecord",
    "ShareState",
    "StepOutcome",
    "Table",
    "TransactionState",
    "Tristate",
    "role_named",
]

FORMAT_VERSION = 5
METADATA_VERSION = 0
"""The number of the feature metadata.version in `cluster_states`."""
ELR_VERSION = 1
"""The number of the feature eligible.leader.replicas.version in `cluster_states`."""
MISSING = -(2**63)
"""Stands for a time that never came."""
NONE = -1
"""Stands for an offset, key, code or id that is not there."""
REMOTE_STORE = -2
"""Stands in the place of a node id for the remote store of tiered storage: in `replicas`, and in witnesses."""
ORIGIN_SEQUENCE_BITS = 40
"""How many bits of `reads.origin` are the sequence."""


# Kernels compare arrays with the `.value` of a member: NumPy takes ten times as long to learn what number a member is,
# which counts where there are thousands of small partitions.


@unique
class Outcome(IntEnum):
    """Says how a send ended. OK took effect, FAIL certainly did not, and INFO may have done either. If in doubt, it is
    INFO."""

    INFO = 0
    OK = 1
    FAIL = 2


@unique
class Role(IntEnum):
    """Describes what a client was for."""

    PRODUCER = 1
    READER = 2
    AUDIT = 3
    SENTINEL = 4
    MEMBER = 5
    OBSERVER = 6
    """Looks things up over the observer's link."""
    APPLICATION = 7
    """Runs a process of the user's, or a tool, that records nothing itself."""


SENDING = frozenset(
    {"producer", "keyed-producer", "errors-producer", "text-producer", "transactor", "verifiable-producer"}
)
"""The roles of clients (`prozess.workloads.roles.ROLES`) that obey pause, resume, send and finish. Their rows in
`sends` are the progress of the trial."""
_LIKE_PRODUCERS = SENDING | {"copier"}
"""The roles whose rows are those of a producer."""

SHARING = frozenset({"share-member", "verifiable-share-consumer"})
"""The roles of members of share groups. The broker gives them records and no partitions, so they have neither assignments nor
spans (KIP-932)."""
_LIKE_READERS = SHARING | {"verifiable-consumer"}
"""The roles whose rows are those of a reader. Each is alone in its group, or in a group that shares each partition."""


RECORDED_ROLES = {
    "recorded-producer": Role.PRODUCER,
    "recorded-command": Role.PRODUCER,
    "recorded-member": Role.MEMBER,
    "recorded-reader": Role.READER,
}
"""The roles of a test's own clients. prozess neither starts nor ends them, and does not know when they poll, end or die."""


def role_named(role: str) -> Role:
    """Returns what a client with this role of the plan was for."""
    if role in RECORDED_ROLES:
        return RECORDED_ROLES[role]
    if role == "fencer":  # prepares the audit, as the sentinel's writer does
        return Role.SENTINEL
    if role == "java-copier":
        return Role.APPLICATION
    if role == "java-member":
        return Role.MEMBER
    if role in _LIKE_READERS:
        return Role.READER
    return Role.PRODUCER if role in _LIKE_PRODUCERS else Role[role.upper()]


@unique
class Isolation(IntEnum):
    """The isolation.level of a reader."""

    NOT_A_READER = -1
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1
    UNREPORTED = 2
    """A program of yours, of which nobody knows at which level it reads."""


@unique
class ReadFlag(IntEnum):
    """What is odd about a record that was read, as bits of `reads.flags`; 0 of nearly all."""

    CORRUPT = 1
    """Checksum, size or magic do not match. Sender, sequence and sent_partition are NONE."""
    ANONYMOUS = 2
    """A copy by a client that is not ours. It has no identity of its own, so sender, sequence and sent_partition are
    NONE."""
    FROM_START = 4
    """For an import, at the first read of a span: the span began at the beginning of the partition."""
    GOES_ON = 8
    """For an import, at the first read of a span: the client went on where its span before ended, or further back."""


@unique
class ObservationKind(IntEnum):
    """Says what `observations.value` means in a row."""

    LOG_START = 1
    HIGH_WATERMARK = 2
    LAST_STABLE_OFFSET = 3
    COMMITTED = 4
    AUDIT_COMPLETE = 5
    """The offset of the sentinel through which the audit client in `client` read this partition."""
    FIRST_POSITION = 6
    REPLICA_LOG_START = 7
    """The log start of the copy on `node`, from its own files: `log-start-offset-checkpoint`, or else the base of its
    first segment."""
    REPLICA_LOG_END = 8
    """The log end of the copy on `node`: the offset behind the last whole batch in its segments."""
    REPLICA_HIGH_WATERMARK = 9
    """The high watermark in `replication-offset-checkpoint` of `node`, which is written every 5 s. The real one was at
    least there."""
    REPLICA_EPOCH_START = 10
    """The offset at which leader epoch `leader_epoch` begins, by the `leader-epoch-checkpoint` of `node` (KIP-101)."""
    LEADER_HIGH_WATERMARK = 11
    """The high watermark that `node` answered (ListOffsets, latest) as the leader of `leader_epoch`. It is written when
    it changes, and now and then. One node is asked one question at a time."""
    REPLICA_SNAPSHOT = 12
    """The copy on `node` has a producer snapshot of this offset. What it says about producers is in `snapshots`."""
    REPLICA_SNAPSHOT_DAMAGED = 13
    """The copy on `node` has a producer snapshot of this offset that cannot be read, because it is cut off or damaged."""
    SERVER_LOG = 14
    """The log that the server process on `node` wrote was read to its end. The value is its length in bytes. The three
    kinds below are of it, with times of the server's own clock."""
    TRUNCATED = 15
    """`node` says in its log that it cut its copy of the partition off at this offset."""
    MARKERS_REFUSED = 16
    """`node` says in its log so many times within a second that it refused WriteTxnMarkers, because it does not know the
    version."""
    HIGH_WATERMARK_TAKEN_BACK = 17
    """`node` says in its log that its high watermark of the partition had been at this offset, and is a lower one now."""
    DRAIN_BEGUN = 20
    """After healing, the member `client` was asked to finish. The value says how long it waits for what does not come, in
    ms."""
    ASKED = 21
    """An application asked its recorded client for what had happened (poll, flush), from `time_ns` on for `value` ns
    without a pause of more than a second. NONE: until the client ended."""
    CALLED = 22
    """The same of init_transactions, commit_transaction and abort_transaction: it was within such a call, or made it
    again."""
    POLLED = 19
    """A member of a group asked for records, and was given all that its consumer had fetched, from `time_ns` on for `value`
    ns, at least once in each second. NONE: until the member ended."""
    ADMIN_ANSWERED = 23
    """An administrator's call, made at `time_ns`, to `node`, or, NONE, to the active controller through any broker. It was
    made again for as long as nobody answered, and `value` ns later an answer came, or a definite error. For calls that took
    less than a second only the first one is written."""
    ADMIN_WAITED = 24
    """The same of a call that nobody had answered when the last attempt was given up, `value` ns later."""
    LEADER_LOG_START = 25
    """The log start that `node` answered (ListOffsets, earliest) as the leader of `leader_epoch`. It is written when it
    changes, and now and then."""
    SHARE_START = 26
    """The start offset of the share group, as its coordinator answered a member that had asked since its answer before
    (KIP-932). NONE: it has none yet."""
    SHARE_LAG = 27
    """With the same answer: how many records the share group has still to finish (KIP-1226). NONE: it was not reported."""
    DEAD_LETTER = 29
    """A member read in the dead-letter queue of its share group that the record at this offset of the partition stands there
    (KIP-1191)."""
    DEAD_LETTERS_READ = 30
    """It read the queue to its end, `value` records of all partitions, once the group was asked to finish."""
    REMOTE_STORE_READ = 28
    """The remote store and the topic in which brokers keep what they believe of it were read to their ends, for this
    partition. The value is the offset behind the last segment whose copy was finished; 0 if none was."""
    TIME_ASKED = 40
    """`node` was asked, at `time_ns`, for the first record of the partition since a time: `value`, in ms since 1970."""
    TIME_FOUND = 41
    """What it answered: the offset of that record, with the same `time_ns`. NONE: there is none."""


@unique
class Acknowledgement(IntEnum):
    """Says what the member of a share group decided of a delivery (`deliveries.acknowledgement`). [KIP-932]"""

    ACCEPT = 1
    RELEASE = 2
    REJECT = 3


@unique
class RemoteState(IntEnum):
    """The state of a remote segment, with Kafka's own numbers [RemoteLogSegmentState, KIP-405]."""

    COPYING = 0
    COPIED = 1
    """Its copy is finished: from here on brokers may read it, and delete their own."""
    DELETING = 2
    DELETED = 3


@unique
class AdminOperation(IntEnum):
    """Says what a row of `admin_operations` is of the register of its topic and setting."""

    SET = 1
    FOUND = 2


NO_TOPIC = 0
"""The value in `admin_operations` of a name that no topic has. It may be found many times between two topics."""


@unique
class AdminSetting(IntEnum):
    """Says what of a topic a row of `admin_operations` is about."""

    TOPIC = 0
    """Which topic has the name, if any."""
    RETENTION = 1
    """Its retention.ms."""


@unique
class MetadataKind(IntEnum):
    """Says what a row of `metadata` states."""

    PARTITION = 1
    """Leader, epoch, ISR and ELR of `partition` from this moment on."""
    BROKER_REGISTERED = 2
    BROKER_FENCED = 3
    BROKER_UNFENCED = 4
    CONTROLLER = 5
    """`node` became the active controller in epoch `leader_epoch`."""
    DELETED = 6
    """The topic of `partition` with this id was deleted: its log ends. A topic of the same name is another one."""
    OFFSETS_PARTITION = 7
    """Leader, epoch, ISR and ELR of a partition of `__consumer_offsets`. `partition` is what
    `prozess.harness.recording.codes.recorded_as` returns for it. Its leader coordinates the groups that are kept there."""
    TRANSACTIONS_PARTITION = 8
    """The same of a partition of `__transaction_state`. Its leader coordinates the transactional.ids that are kept there."""
    ON_DISK = 9
    """At the end `node` has a directory of `partition` of the topic with this id. `leader`: what it means to do with it
    (`prozess.harness.interfaces.witnesses.OnDisk`)."""


@unique
class ClusterRecord(IntEnum):
    """Says what a row of `cluster_states` states."""

    SNAPSHOT = 1
    """The log begins behind this offset: other rows of it state what held there."""
    REGISTERED = 2
    CHANGED = 3
    """A registration was changed: fenced, unfenced, shutting down, or left with the directories of the same offset."""
    UNREGISTERED = 4
    DIRECTORY = 5
    """A log directory that the broker has, by the record of the same offset (KIP-858)."""
    SUPPORTED = 6
    """The broker supports these levels of a feature (KIP-584)."""
    FEATURE = 7
    """The feature has this level from here on."""
    CONFIGURED = 8
    """A setting of the topic with this id; without one, no topic had its name."""


@unique
class TransactionState(IntEnum):
    """The states of a transactional.id in the transaction log, with the numbers that they have there (KIP-98)."""

    FORGOTTEN = NONE
    """A record without a value: the transactional.id was not used for long, and its coordinator let it go."""
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    """Decided: the transaction will be committed. Its markers are being written."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5


@unique
class GroupRecord(IntEnum):
    """Says what a row of `group_states` states."""

    GROUP_EPOCH = 1
    """The group has this epoch: its members, or what they subscribe to, changed."""
    GROUP_GONE = 2
    TARGET_EPOCH = 3
    """There is a target assignment of this epoch."""
    MEMBER = 4
    """The member is in this epoch, and owns what the rows of the same offset say."""
    OWNED = 5
    RELEASING = 6
    """The member was asked to give the partition up, and has not yet."""
    MEMBER_GONE = 7
    CLASSIC = 8
    """The group of a classic protocol has this generation, and the members that the rows of the same offset say."""
    CLASSIC_PROTOCOL = 9
    """This protocol was chosen, such as `range`: all members know it."""
    CLASSIC_MEMBER = 10
    CLASSIC_GONE = 11


@unique
class ShareRecord(IntEnum):
    """Says what a row of `share_states` states."""

    SNAPSHOT = 1
    """All that is known of the partition follows, in rows of the same offset."""
    UPDATE = 2
    RANGE = 3
    """These offsets have this state and delivery count."""
    GONE = 4


@unique
class ShareState(IntEnum):
    """The states of a record in a share group, with the numbers that they have in its log (KIP-932, KIP-1191)."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """It is on its way to the dead-letter queue."""
    ARCHIVED = 4


@unique
class MetadataSource(IntEnum):
    """Says who reported a row of `metadata`. Only CONTROLLER_LOG is ground truth. SAMPLE is for display. DESCRIBED is
    weaker evidence, used where the controllers' log cannot be read
    (`prozess.harness.guarantees.evidence.ground_truth`)."""

    CONTROLLER_LOG = 1
    SAMPLE = 2
    DESCRIBED = 3
    """A broker answered DescribeTopicPartitions or DescribeQuorum. A partition always has one topic id here."""
    FILES = 4
    """A broker's own files."""


@unique
class FaultPhase(IntEnum):
    """The phases of a fault in `faults`, in the order in which they happen."""

    JOURNALED = 1
    APPLIED = 2
    VERIFIED = 3
    """`effect` says whether it was observed to work."""
    UNDONE = 4
    UNDO_VERIFIED = 5
    FAILED = 6


@unique
class Tristate(IntEnum):
    """The answer to a question about the cluster: yes, no, or not known."""

    UNKNOWN = -1
    NO = 0
    YES = 1


@unique
class StepOutcome(IntEnum):
    """Says how a step of the schedule ended."""

    DONE = 1
    TIMED_OUT = 2
    FAILED = 3
    SKIPPED = 4
    MISSED = 5
    """The step may miss (`Step.may_miss`). Its condition did not hold in time, or its target was not there, so it was left
    out."""


TABLES: dict[str, Table] = {
    t.name: t
    for t in (
        SENDS, READS, PROCESSED, DELIVERIES, TRANSACTIONS, COMMITS, ASSIGNMENTS, POSITIONS, OBSERVATIONS, WITHHELD,
        FAULTS, MESSAGES, STEPS, METADATA, REPLICAS, REMOTE_SEGMENTS, SNAPSHOTS, CLUSTER_STATES,
        TRANSACTION_STATES, GROUP_STATES, SHARE_STATES, ADMIN_OPERATIONS, METRICS, HEARTBEATS, CLIENTS, PARTITIONS, CELLS,
    )
}  # fmt: skip
