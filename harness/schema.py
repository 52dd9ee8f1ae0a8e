"""Every table and column of a history, once: kind, unit, meaning. Integers only; names live in dictionaries on the side.

A table has two forms. While a trial runs, fixed-width little-endian rows in shared memory-mapped files, each row ended by
its own index + 1 (`mark`), so that a torn row is recognised (`harness.rows`). Afterwards, Parquet with a `client` column in
front; partitioned tables are clustered, one row group per Kafka partition (`harness.history`).

Times are CLOCK_MONOTONIC nanoseconds: raw in rows, since the trial's start in Parquet (negative = warm-up).
"""

from enum import IntEnum

from harness.client_tables import (
    ASSIGNMENTS,
    COMMITS,
    OBSERVATIONS,
    POSITIONS,
    PROCESSED,
    READS,
    SENDS,
    TRANSACTIONS,
    WITHHELD,
)
from harness.columns import Column, Kind, Table
from harness.trial_tables import (
    CELLS,
    CLIENTS,
    FAULTS,
    HEARTBEATS,
    METADATA,
    METRICS,
    PARTITIONS,
    REPLICAS,
    SNAPSHOTS,
    STEPS,
)

__all__ = [
    "ASSIGNMENTS",
    "CELLS",
    "CLIENTS",
    "COMMITS",
    "FAULTS",
    "FORMAT_VERSION",
    "HEARTBEATS",
    "METADATA",
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
    "REPLICAS",
    "SENDING",
    "SENDS",
    "SNAPSHOTS",
    "STEPS",
    "TABLES",
    "TRANSACTIONS",
    "WITHHELD",
    "Column",
    "FaultPhase",
    "Isolation",
    "Kind",
    "MetadataKind",
    "MetadataSource",
    "ObservationKind",
    "Outcome",
    "ReadFlag",
    "Role",
    "StepOutcome",
    "Table",
    "Tristate",
    "role_named",
]

FORMAT_VERSION = 3
MISSING = -(2**63)
"""A time that never came."""
NONE = -1
"""An offset, key, code or id that is not there."""
ORIGIN_SEQUENCE_BITS = 40
"""Bits of a sequence in `reads.origin`."""


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
    APPLICATION = 7
    """Runs a process of the user's, or a tool, that records nothing itself."""


SENDING = frozenset(
    {"producer", "keyed-producer", "errors-producer", "text-producer", "transactor", "verifiable-producer"}
)
"""Roles of clients (`harness.catalogue.ROLES`) that obey pause, resume, send and finish, and whose rows in `sends` are the
trial's progress."""
_LIKE_PRODUCERS = SENDING | {"copier"}
"""Roles whose rows are those of a producer."""

_LIKE_READERS = frozenset({"verifiable-consumer", "verifiable-share-consumer"})
"""One at a time in its group, or in a group that shares each partition: their rows are a reader's."""


RECORDED_ROLES = {"recorded-producer": Role.PRODUCER, "recorded-member": Role.MEMBER, "recorded-reader": Role.READER}
"""Clients of a test's own: nobody here starts or ends them, and when they poll, end or die is their own business."""


def role_named(role: str) -> Role:
    """What a client with this role of the catalogue was for."""
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


class Isolation(IntEnum):
    """isolation.level of a reader."""

    NOT_A_READER = -1
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class ReadFlag(IntEnum):
    """Bits of `reads.flags`."""

    CORRUPT = 1
    """Checksum, size or magic do not match; sender, sequence and sent_partition are NONE."""
    ANONYMOUS = 2
    """A copy by somebody who is no client of ours: it has no identity of its own, so they are NONE too."""


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
    LEADER_HIGH_WATERMARK = 11
    """As `node` answered (ListOffsets, latest) as the leader of `leader_epoch`: written when it changes, and now and then.
    One node is asked one question at a time."""
    REPLICA_SNAPSHOT = 12
    """The copy on `node` has a producer snapshot of this offset; what it says of producers is in `snapshots`."""
    REPLICA_SNAPSHOT_DAMAGED = 13
    """The copy on `node` has a producer snapshot of this offset, which cannot be read: cut off, or damaged."""
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
    MISSED = 5
    """It may miss (`Step.may_miss`), and what it was aimed at was not there: left out."""


TABLES: dict[str, Table] = {
    t.name: t
    for t in (
        SENDS, READS, PROCESSED, TRANSACTIONS, COMMITS, ASSIGNMENTS, POSITIONS, OBSERVATIONS, WITHHELD, FAULTS,
        STEPS, METADATA, REPLICAS, SNAPSHOTS, METRICS, HEARTBEATS, CLIENTS, PARTITIONS, CELLS,
    )
}  # fmt: skip
