"""Every table and column of a history, once: kind, unit, meaning. Integers only; names live in dictionaries on the side.

A table has two forms. While a trial runs, fixed-width little-endian rows in shared memory-mapped files, each row ended by
its own index + 1 (`mark`), so that a torn row is recognised (`harness.rows`). Afterwards, Parquet with a `client` column in
front; partitioned tables are clustered, one row group per Kafka partition (`harness.history`).

Times are CLOCK_MONOTONIC nanoseconds: raw in rows, since the trial's start in Parquet (negative = warm-up).
"""

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Literal

import numpy as np

FORMAT_VERSION = 1
MISSING = -(2**63)
"""A time that never came."""
NONE = -1
"""An offset, key, code or id that is not there."""

Kind = Literal["i8", "i4"]


class Outcome(IntEnum):
    """Where a send stands. OK took effect, FAIL certainly did not, INFO may have done either; if in doubt, INFO."""

    INFO = 0
    OK = 1
    FAIL = 2


class Role(IntEnum):
    """What a client was for."""

    PRODUCER = 1
    READER = 2
    AUDIT = 3
    SENTINEL = 4
    MEMBER = 5
    OBSERVER = 6
    """Looks things up over the observer's link."""


_LIKE_PRODUCERS = frozenset({"keyed-producer", "transactor", "verifiable-producer"})
"""Roles of clients (`harness.catalogue.ROLES`) whose rows are those of a producer."""


def role_named(role: str) -> Role:
    """What a client with this role of the catalogue was for."""
    if role == "fencer":  # prepares the audit, as the sentinel's writer does
        return Role.SENTINEL
    if role == "verifiable-consumer":  # one at a time in its group: its rows are a reader's
        return Role.READER
    return Role.PRODUCER if role in _LIKE_PRODUCERS else Role[role.upper()]


class Isolation(IntEnum):
    """isolation.level of a reader."""

    NOT_A_READER = -1
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class ReadFlag(IntEnum):
    """Bits of `reads.flags`."""

    CORRUPT = 1
    """Checksum, size or magic do not match; sender, sequence and sent_partition are NONE."""


class ObservationKind(IntEnum):
    """What `observations.value` is."""

    LOG_START = 1
    HIGH_WATERMARK = 2
    LAST_STABLE_OFFSET = 3
    COMMITTED = 4
    AUDIT_COMPLETE = 5
    """value = offset of the sentinel through which the audit client named in `client` read this partition."""
    FIRST_POSITION = 6
    REPLICA_LOG_START = 7
    """Of the copy on `node`, from its own files: `log-start-offset-checkpoint`, else the base of its first segment."""
    REPLICA_LOG_END = 8
    """Of the copy on `node`: behind the last whole batch in its segments."""
    REPLICA_HIGH_WATERMARK = 9
    """`replication-offset-checkpoint` of `node`, written every 5 s: the high watermark was at least there."""
    REPLICA_EPOCH_START = 10
    """Leader epoch `leader_epoch` begins at this offset, by the `leader-epoch-checkpoint` of `node` (KIP-101)."""
    DRAIN_BEGUN = 20
    """After healing, the member `client` was told to finish; value = how long it waits for what does not come, in ms."""


class MetadataKind(IntEnum):
    """What a row of `metadata` states."""

    PARTITION = 1
    """leader, epoch, ISR, ELR of `partition` from this moment on."""
    BROKER_REGISTERED = 2
    BROKER_FENCED = 3
    BROKER_UNFENCED = 4
    CONTROLLER = 5
    """`node` became the active controller in epoch `leader_epoch`."""


class MetadataSource(IntEnum):
    """Who says so. Only CONTROLLER_LOG is ground truth; samples are for display."""

    CONTROLLER_LOG = 1
    SAMPLE = 2


class FaultPhase(IntEnum):
    """Rows of `faults`, in the order they happen."""

    JOURNALED = 1
    APPLIED = 2
    VERIFIED = 3
    """`effect` says whether it was observed to work."""
    UNDONE = 4
    UNDO_VERIFIED = 5
    FAILED = 6


class Tristate(IntEnum):
    """Yes, no, or not known."""

    UNKNOWN = -1
    NO = 0
    YES = 1


class StepOutcome(IntEnum):
    """How a step of the schedule ended."""

    DONE = 1
    TIMED_OUT = 2
    FAILED = 3
    SKIPPED = 4


@dataclass(frozen=True, slots=True)
class Column:
    """One column: name, numpy kind, unit (or what ids it holds), meaning."""

    name: str
    kind: Kind
    unit: str
    meaning: str


@dataclass(frozen=True)
class Table:
    """A table of the history. `partitioned`: clustered by Kafka partition in Parquet."""

    name: str
    meaning: str
    columns: tuple[Column, ...]
    partitioned: bool = False

    @cached_property
    def row_dtype(self) -> np.dtype[np.void]:
        """The row as written while the trial runs: the columns in order, padding to 8 bytes, then `mark` (index + 1)."""
        padding = [("pad", "<i4")] if self._padded else []
        return np.dtype([*((c.name, "<" + c.kind) for c in self.columns), *padding, ("mark", "<i8")])

    @property
    def _padded(self) -> bool:
        return sum(c.kind == "i4" for c in self.columns) % 2 == 1

    @cached_property
    def row_format(self) -> str:
        """The same, for `struct`: one value per column, then the mark."""
        return "<" + "".join({"i8": "q", "i4": "i"}[c.kind] for c in self.columns) + "4x" * self._padded + "q"

    @cached_property
    def column_names(self) -> tuple[str, ...]:
        """Of the Parquet form: `client` first."""
        return ("client", *(c.name for c in self.columns))

    def empty(self) -> dict[str, np.ndarray]:
        """Arrays of length 0 in the Parquet form."""
        kinds = {"client": "i4"} | {c.name: c.kind for c in self.columns}
        return {name: np.empty(0, dtype=kind) for name, kind in kinds.items()}


def _t(name: str, meaning: str, *columns: tuple[str, Kind, str, str], partitioned: bool = False) -> Table:
    # 8-byte columns first keeps every value aligned in the mapped file.
    ordered = sorted((Column(*c) for c in columns), key=lambda c: c.kind != "i8")
    return Table(name, meaning, tuple(ordered), partitioned)


SENDS = _t(
    "sends",
    "One row per produce(): written before the call, completed in place by the delivery report.",
    ("invoked_ns", "i8", "ns", "before produce() was called"),
    ("completed_ns", "i8", "ns", "when the delivery report ran (an upper bound); MISSING: never"),
    ("log_offset", "i8", "offset", "from the report; NONE: not told (acks=0, duplicate sequence, error)"),
    ("sequence", "i8", "count", "identity of the record within its client: 0, 1, 2, … over all partitions"),
    ("transaction", "i8", "id", "number of the client's transaction, NONE outside"),
    ("key", "i8", "id", "key of the record, NONE = null key"),
    ("partition", "i4", "partition id", "dense id, see `partitions`"),
    ("outcome", "i4", "Outcome", "INFO until completed"),
    ("code", "i4", "KafkaError code", "0 = no error"),
    ("size", "i4", "bytes", "of the value; NONE = tombstone"),
    partitioned=True,
)
READS = _t(
    "reads",
    "One row per record given to a reader or to the audit, in the order given.",
    ("read_ns", "i8", "ns", "when the poll returned"),
    ("log_offset", "i8", "offset", "of the record"),
    ("sequence", "i8", "count", "of the record within its sender; NONE if unreadable"),
    ("key", "i8", "id", "key of the record, NONE = null key"),
    ("sender", "i4", "client id", "who produced it, from the record itself; NONE if unreadable"),
    ("partition", "i4", "partition id", "where it was read"),
    ("sent_partition", "i4", "partition id", "where the record says it was sent; NONE if unreadable"),
    ("span", "i4", "count", "number of this client's assignment or seek span: order is judged within one"),
    ("flags", "i4", "ReadFlag bits", ""),
    ("leader_epoch", "i4", "epoch", "as the client was told; NONE if not"),
    partitioned=True,
)
PROCESSED = _t(
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
TRANSACTIONS = _t(
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
COMMITS = _t(
    "commits",
    "One row per partition of an offset commit.",
    ("invoked_ns", "i8", "ns", ""),
    ("completed_ns", "i8", "ns", "MISSING: never"),
    ("log_offset", "i8", "offset", "the next to read"),
    ("position", "i8", "offset", "the member's own position then"),
    ("partition", "i4", "partition id", ""),
    ("group", "i4", "group id", ""),
    ("outcome", "i4", "Outcome", ""),
    ("code", "i4", "KafkaError code", ""),
    ("mode", "i4", "1 sync 2 async 3 auto 4 transaction", ""),
)
ASSIGNMENTS = _t(
    "assignments",
    "One row per partition of an assignment callback; partition NONE = an empty callback.",
    ("started_ns", "i8", "ns", "callback began"),
    ("done_ns", "i8", "ns", "callback returned"),
    ("partition", "i4", "partition id", ""),
    ("group", "i4", "group id", ""),
    ("event", "i4", "1 assign 2 revoke 3 lost 4 close", ""),
    ("incremental", "i4", "0/1", ""),
)
POSITIONS = _t(
    "positions",
    "Seeks, resets, pauses, and the position on assignment.",
    ("time_ns", "i8", "ns", ""),
    ("log_offset", "i8", "offset", "the new position"),
    ("partition", "i4", "partition id", ""),
    ("event", "i4", "1 assigned 2 seek 3 reset 4 pause 5 resume", ""),
    ("span", "i4", "count", "the span that begins here"),
)
OBSERVATIONS = _t(
    "observations",
    "Offsets that somebody looked up, and who answered.",
    ("time_ns", "i8", "ns", ""),
    ("value", "i8", "offset", "what `kind` says"),
    ("partition", "i4", "partition id", ""),
    ("kind", "i4", "ObservationKind", ""),
    ("node", "i4", "node id", "who answered; NONE: not told"),
    ("leader_epoch", "i4", "epoch", "NONE: not told"),
    ("isolation", "i4", "Isolation", ""),
    ("step", "i4", "step number", "of the REPLICA_ kinds: of the `inspect` that read it; NONE = at the end"),
)
WITHHELD = _t(
    "withheld",
    "Sends a producer did not attempt because the partition's cap of unacknowledged records was reached.",
    ("begun_ns", "i8", "ns", ""),
    ("ended_ns", "i8", "ns", "MISSING: still held back at the end"),
    ("count", "i8", "records", ""),
    ("partition", "i4", "partition id", ""),
)
FAULTS = _t(
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
STEPS = _t(
    "steps",
    "Steps of the schedule as they really happened.",
    ("awaited_ns", "i8", "ns", "when its condition began to be awaited"),
    ("fired_ns", "i8", "ns", "when the condition held; MISSING: it timed out"),
    ("done_ns", "i8", "ns", "MISSING"),
    ("step", "i4", "step number", ""),
    ("outcome", "i4", "StepOutcome", ""),
    ("detail", "i4", "dictionary `detail`", "NONE"),
)
METADATA = _t(
    "metadata",
    "Who led and who was in sync, over time. Masks have bit n set for broker n.",
    ("time_ns", "i8", "ns", "of the controller's record; see `clock.json` for the error of the mapping"),
    ("isr", "i8", "broker mask", ""),
    ("elr", "i8", "broker mask", "eligible leader replicas, KIP-966"),
    ("last_known_elr", "i8", "broker mask", ""),
    ("replicas", "i8", "broker mask", ""),
    ("log_position", "i8", "offset", "in the metadata log; NONE for samples"),
    ("kind", "i4", "MetadataKind", ""),
    ("source", "i4", "MetadataSource", ""),
    ("partition", "i4", "partition id", "NONE for brokers and controllers"),
    ("node", "i4", "node id", "the broker or controller spoken of; for samples who answered"),
    ("leader", "i4", "node id", "NONE = no leader"),
    ("leader_epoch", "i4", "epoch", ""),
    ("recovering", "i4", "0/1", "KIP-704 leader recovery state"),
)
REPLICAS = _t(
    "replicas",
    "Record batches found in each replica's own log segments: headers, in the order of the log.",
    ("read_ns", "i8", "ns", "when the segments were read"),
    ("base_offset", "i8", "offset", ""),
    ("last_offset", "i8", "offset", ""),
    ("producer_id", "i8", "id", ""),
    ("checksum", "i8", "crc32c", "as stored; it covers everything from the attributes on, not the leader epoch"),
    ("base_timestamp_ms", "i8", "ms", ""),
    ("max_timestamp_ms", "i8", "ms", ""),
    ("partition", "i4", "partition id", ""),
    ("node", "i4", "node id", "whose copy it is"),
    ("step", "i4", "step number", "of the `inspect` that read it; NONE = at the end, after the audit"),
    ("leader_epoch", "i4", "epoch", "of the leader that appended it"),
    ("producer_epoch", "i4", "epoch", ""),
    ("base_sequence", "i4", "count", ""),
    ("records", "i4", "count", ""),
    ("size", "i4", "bytes", "of the whole batch"),
    ("attributes", "i4", "bits", "of the batch header: 0-2 compression, 3 timestamp type, 4 transactional, 5 control"),
    partitioned=True,
)
METRICS = _t(
    "metrics",
    "Samples of metrics; a missing answer is a row with `absent` = 1.",
    ("time_ns", "i8", "ns", ""),
    ("value_micro", "i8", "1e-6 of the metric's unit", ""),
    ("metric", "i4", "dictionary `metric`", ""),
    ("node", "i4", "node id", ""),
    ("partition", "i4", "partition id", ""),
    ("absent", "i4", "0/1", ""),
)
HEARTBEATS = _t(
    "heartbeats",
    "Every 100 ms from every process: a gap is starvation.",
    ("time_ns", "i8", "ns", ""),
)
CLIENTS = _t(
    "clients",
    "One row per client incarnation.",
    ("started_ns", "i8", "ns", ""),
    ("ended_ns", "i8", "ns", "MISSING: it never said so"),
    ("issued", "i8", "records", "sequences 0 … issued-1 were issued (producers), records read (readers)"),
    ("role", "i4", "Role", ""),
    ("isolation", "i4", "Isolation", ""),
    ("exit_code", "i4", "status", "0 clean; negative = signal; NONE = unknown"),
    ("os_pid", "i4", "pid", ""),
    ("planned", "i4", "client id", "of the plan: its own, or that of the client whose place it took; NONE = none"),
    ("clock", "i4", "host id", "clients on the same clock may be ordered"),
    ("complete", "i4", "0/1", "1: the client closed its files itself"),
)
PARTITIONS = _t(
    "partitions",
    "One row per Kafka partition under trial.",
    ("replicas", "i8", "broker mask", ""),
    ("partition", "i4", "partition id", "dense, 0 …"),
    ("topic", "i4", "dictionary `topic`", ""),
    ("number", "i4", "partition number", "within its topic"),
    ("cell", "i4", "cell number", ""),
    ("preferred_leader", "i4", "node id", ""),
)
CELLS = _t(
    "cells",
    "One row per cell; its configuration is in `plan.json`.",
    ("cell", "i4", "cell number", ""),
    ("name", "i4", "dictionary `cell`", ""),
)

TABLES: dict[str, Table] = {
    t.name: t
    for t in (
        SENDS, READS, PROCESSED, TRANSACTIONS, COMMITS, ASSIGNMENTS, POSITIONS, OBSERVATIONS, WITHHELD, FAULTS,
        STEPS, METADATA, REPLICAS, METRICS, HEARTBEATS, CLIENTS, PARTITIONS, CELLS,
    )
}  # fmt: skip
