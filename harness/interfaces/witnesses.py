"""Witnesses are the records and observations that show an anomaly. A kernel returns each with its `case`, and the
guarantees judge them one by one."""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum, unique

import numpy as np

from prozess.harness.clock import NS_PER_S
from prozess.harness.result_tables import WINDOWS, WITNESSES
from prozess.harness.schema import MISSING, NONE

WITNESSES_MAX = 100_000
"""How many witnesses a kernel returns for one anomaly and partition. Beyond it the count stays exact, but the rest
cannot be judged: the verdict is then unknown, unless it is violated."""
WITNESSES_SHOWN = 32

WITNESS = WITNESSES.entry
"""One witness: the columns of the table `witnesses` but the finding to which it belongs."""
_UNSET = {
    "begin_ns": MISSING,
    "end_ns": MISSING,
    "other_ns": MISSING,
    "seen_ns": MISSING,
    "case": 0,
    **dict.fromkeys(
        ("sequence", "log_offset", "other_sequence", "other_offset", "partition", "client", "other_client"),
        NONE,
    ),
    "reader": NONE,
    "outcome": NONE,
    "leader_epoch": NONE,
}


_NO_WITNESSES = np.empty(0, dtype=WITNESS)


def no_witnesses() -> np.ndarray:
    """Returns an empty array of WITNESS."""
    return _NO_WITNESSES


def join_witnesses(parts: Iterable[np.ndarray]) -> np.ndarray:
    """Returns these arrays of WITNESS one after the other. There may be none."""
    some = [part for part in parts if len(part)]
    if len(some) < 2:  # as nearly always
        return some[0] if some else no_witnesses()
    # NumPy asks for each part, field by field, what type they all have in common, unless it is reported.
    return np.concatenate(some, dtype=WITNESS)


def make_witnesses(length: int, columns: Mapping[str, np.ndarray | int]) -> np.ndarray:
    """Returns `length` witnesses with these columns, each an array of that length or one value for all. Other columns
    are unset."""
    assert columns.keys() <= _UNSET.keys(), columns.keys() - _UNSET.keys()
    if not length:
        return no_witnesses()
    made = np.empty(length, dtype=WITNESS)
    for name, unset in _UNSET.items():
        made[name] = columns.get(name, unset)
    return made


# Whether a delivery bound was kept, window by window. The kernel counts, the judge excuses, and reports show it.
#
# Everything is exact except the percentiles of latencies. Latencies are counted in bins, so that partitions, or pieces
# of one, can be counted where they are and joined afterwards. A bin is 1/128 of a power of two wide, and a percentile
# is the upper end of its bin: never too small, and less than 0.8 % too large.


WINDOW = WINDOWS.entry
"""One window: the columns of the table `windows` but the finding to which it belongs."""
BINNED = np.dtype([("number", "<i8"), ("bin", "<i8"), ("count", "<i8")])
"""Latencies of delivered records: how many records of the window `number` fall into a bin. Rows ascend by window and
bin, and counts are above 0."""
_BIN_BITS = 7
"""The bin of a latency is its float64 without all but the first bits of the fraction. This is how many bits of the
fraction stay."""
_SHIFT = 52 - _BIN_BITS
_DENSE = 1 << 16
_BINNED_AT_ONCE = 1 << 15
"""What is computed of so many latencies stays in the processor's cache."""
_SUMMED = tuple(name for name in (WINDOW.names or ()) if name != "number" and not name.endswith("_ns"))
_SHARES = {"p50_ns": 0.5, "p99_ns": 0.99}


@unique
class LateCase(IntEnum):
    """Says why a record counts as `late`, as the `case` of the witness."""

    LATE = 0
    """The record was delivered after its deadline."""
    MISSING = 1
    """The record was never delivered, though the consumer that was to get it lived past the deadline."""
    STOOD_STILL = 2
    """The producer or the consumer was paused or dead for so long that this alone may explain it."""
    UNAUDITED = 3
    """The record was never delivered, and the audit of its partition did not finish."""


_NO_WINDOWS, _NO_LATENCIES = np.empty(0, dtype=WINDOW), np.empty(0, dtype=BINNED)


def no_windows() -> np.ndarray:
    """Returns an empty array of WINDOW."""
    return _NO_WINDOWS


def no_latencies() -> np.ndarray:
    """Returns an empty array of BINNED."""
    return _NO_LATENCIES


def bin_latencies(numbers: np.ndarray, index: np.ndarray, latency_ns: np.ndarray) -> np.ndarray:
    """Counts the latencies of deliveries in bins, and returns BINNED.

    `numbers` holds the windows, ascending; `index` says in which of them each record was sent. A latency below 0, which
    comes from clocks that differ, counts as 0. O(n), or O(n log n) for few deliveries in many windows.
    """
    if not len(latency_ns):
        return no_latencies()
    assert len(index) == len(latency_ns), "a window for each latency"
    least, most = (int(_bins(end.reshape(1))[0]) for end in (latency_ns.min(), latency_ns.max()))
    width = most - least + 1
    # A cell of a table with a row for each window, and a column for each bin from the least to the most: row · width +
    # column.
    cell = np.multiply(index, width, dtype=np.int64)
    for first in range(0, len(cell), _BINNED_AT_ONCE):
        some = slice(first, first + _BINNED_AT_ONCE)
        cell[some] += _bins(latency_ns[some])
    cell -= least
    if len(numbers) * width <= 4 * len(cell) + _DENSE:
        counts = np.bincount(cell)
        cell = np.flatnonzero(counts)
        counts = counts[cell]
    else:
        cell, counts = np.unique(cell, return_counts=True)
    made = np.empty(len(cell), dtype=BINNED)
    assert int(counts.sum()) == len(latency_ns), "each latency is in one bin"
    made["number"], made["bin"], made["count"] = numbers[cell // width], least + cell % width, counts
    return made


def _bins(latency_ns: np.ndarray) -> np.ndarray:
    bins: np.ndarray = np.maximum(latency_ns, 0).astype(np.float64).view(np.int64)
    bins >>= _SHIFT
    return bins


def merge_windows(windows: Sequence[np.ndarray], latencies: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Joins the counts of several parts, and returns (WINDOW, BINNED)."""
    windows, latencies = [part for part in windows if len(part)], [part for part in latencies if len(part)]
    if not windows and not latencies:
        return no_windows(), no_latencies()
    every = np.concatenate([no_windows(), *windows], dtype=WINDOW)
    binned = _added(np.concatenate([no_latencies(), *latencies], dtype=BINNED))
    numbers, index = np.unique(every["number"], return_inverse=True)
    columns: dict[str, np.ndarray] = {"number": numbers}
    for name in _SUMMED:
        columns[name] = np.zeros(len(numbers), dtype=np.int64)
        np.add.at(columns[name], index, every[name])
    columns["max_ns"] = np.full(len(numbers), MISSING)  # less than every latency
    np.maximum.at(columns["max_ns"], index, every["max_ns"])
    return make_windows(columns | percentiles(numbers, binned, columns["max_ns"])), binned


def percentiles(numbers: np.ndarray, binned: np.ndarray, max_ns: np.ndarray) -> dict[str, np.ndarray]:
    """Computes the percentiles of each window from binned latencies: column of WINDOW → its values.

    A percentile is the upper end of the first bin up to which so many of the latencies lie, but never more than the
    greatest latency. MISSING means that there are none. `numbers` and `max_ns` belong to the windows, which ascend.
    """
    assert len(numbers) == len(max_ns), "a greatest latency for each window"
    first, last = (np.searchsorted(binned["number"], numbers, side=side) for side in ("left", "right"))
    until = np.concatenate([[0], np.cumsum(binned["count"])])
    total = until[last] - until[first]
    there = total > 0
    found = {}
    for name, share in _SHARES.items():
        rank = np.maximum(np.ceil(total * share).astype(np.int64), 1)
        # Example: bins with 3, 5 and 2 latencies, so until is 0 3 8 10. The median has the rank 5, and is in the second bin,
        # the first up to whose end there are 5.
        bins = binned["bin"][np.searchsorted(until[1:], (until[first] + rank)[there])]
        found[name] = np.full(len(numbers), MISSING)
        upper_ns = np.ceil(((bins + 1) << _SHIFT).view(np.float64)).astype(np.int64) - 1
        found[name][there] = np.minimum(upper_ns, max_ns[there])
    return found


def _added(binned: np.ndarray) -> np.ndarray:
    """Adds up the counts of bins that occur several times. The result ascends."""
    order = np.lexsort((binned["bin"], binned["number"]))
    number, bins = binned["number"][order], binned["bin"][order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (number[1:] != number[:-1]) | (bins[1:] != bins[:-1])
    starts = np.flatnonzero(new)
    made = np.empty(len(starts), dtype=BINNED)
    made["number"], made["bin"] = number[starts], bins[starts]
    made["count"] = np.add.reduceat(binned["count"][order], starts) if len(starts) else 0
    return made


def make_windows(columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """Makes windows from all their columns, which are arrays of one length."""
    assert set(columns) == set(WINDOW.names or ()), set(columns) ^ set(WINDOW.names or ())
    made = np.empty(len(columns["number"]), dtype=WINDOW)
    for name, values in columns.items():
        made[name] = values
    return made


# Cases of `time-travel`. The kernel finds them, and rules judge them.


@unique
class RealTimeCase(IntEnum):
    """Says what is wrong with a record's time, as the `case` of witnesses of `time-travel`. No case is 1, which facts about
    lost records take for an offset that another record has taken."""

    ACKNOWLEDGED = 0
    """It was acknowledged before a record was sent that stands in front of it."""
    READ = 2
    """It was read before a record was sent that stands in front of it."""
    READ_UNSENT = 3
    """It was read before it was sent."""


# Cases of `early-read`. The kernel finds them, and rules judge them.


@unique
class EarlyCase(IntEnum):
    """Says what was read too early, as the `case` of witnesses of `early-read`."""

    READ_COMMITTED = 0
    """A record of a transaction whose commit had not been asked for, by a consumer at read_committed."""
    READ_UNCOMMITTED = 1
    """The same by a consumer at read_uncommitted."""
    BEHIND_OPEN = 2
    """A record, by a consumer at read_committed, behind one of a transaction that was open, and was committed later."""
    BEHIND_ABORTED = 3
    """The same behind one of a transaction that was aborted later."""


# Cases of `epoch-regression`. The kernel finds them, and rules judge them.


@unique
class EpochCase(IntEnum):
    """Says where a leader epoch fell, as the `case` of witnesses of `epoch-regression`. No case is 1, which facts about lost
    records take for an offset that another record has taken."""

    ANSWERED = 0
    """A broker answered with a lower epoch than before."""
    IN_LOG = 2
    """The segments of a replica have a batch of a lower epoch behind one of a higher."""
    AUDITED = 3
    """The audit got a record of a lower epoch behind one of a higher."""
    READ = 4
    """A consumer got a record of a lower epoch behind one of a higher."""


@unique
class TransitionCase(IntEnum):
    """Says which rule a change in the controllers' log breaks, as the `case` of witnesses of `illegal-transition`. The rule's
    words are in `prozess.checkers.metadata`. No case is 1."""

    EPOCH_IS_NOT_NEXT = 2
    """The leader epoch fell, or grew by more than one."""
    LEADER_WITHOUT_EPOCH = 3
    """Another broker leads in the same leader epoch."""
    LEADER_NOT_IN_SYNC = 4
    """The leader is not in the ISR."""
    IN_SYNC_WITHOUT_REPLICA = 5
    """A broker without a replica is in the ISR, or eligible."""
    CHANGED_AFTER_ITS_END = 6
    """A deleted topic was changed."""
    FENCED_BROKER_LEADS = 7
    """A broker was fenced, and went on to lead."""
    UNCLEAN_AND_UNRECORDED = 8
    """A leader was elected that was neither in sync nor eligible, and the record does not say that it recovers."""
    RECOVERS_AMONG_OTHERS = 9
    """A leader recovers, and others are in sync."""
    RECOVERED_BY_ANOTHER = 10
    """A leader recovered, and in the same change another one leads."""
    FENCED_BROKER_JOINS = 11
    """A fenced broker came into the ISR."""
    FENCED_BROKER_ELECTED = 12
    """A fenced broker was elected."""
    ELIGIBLE_AND_IN_SYNC = 13
    """A replica is in the ISR, and eligible as well."""
    ELIGIBLE_FROM_NOWHERE = 14
    """A replica became eligible that was neither in sync nor eligible before."""
    BROKER_EPOCH_NOT_NEW = 15
    """A broker was registered with an epoch that is none of its own, and no offset behind all records about brokers."""
    EPOCH_OF_ANOTHER = 16
    """A broker was registered with the epoch that it has, as another process, or with another state."""
    REGISTERED_UNFENCED = 17
    """The registration of a new process is not fenced, or shuts down."""
    BROKER_NOT_REGISTERED = 18
    """A broker was changed that is not registered."""
    BROKER_EPOCH_STALE = 19
    """A broker was changed by another epoch than it is registered with."""
    SHUTDOWN_OF_FENCED = 20
    """A controlled shutdown of a fenced broker began."""
    DIRECTORY_OF_TWO = 21
    """A log directory is of two brokers."""
    DIRECTORY_CAME_BACK = 22
    """A broker has a log directory more than before, and did not register."""
    BROKER_BEYOND_LEVEL = 23
    """A broker was registered that does not support the level of a feature."""
    LEVEL_BEYOND_BROKER = 24
    """A feature got a level that a registered broker does not support."""
    METADATA_VERSION_LOWERED = 25
    """metadata.version fell below a version from which on there are other records."""
    SETTING_OF_NO_TOPIC = 26
    """A topic was configured that is not there."""
    FEATURE_BEYOND_METADATA = 27
    """A feature got a level that needs a newer metadata.version."""


@unique
class TransactionCase(IntEnum):
    """Says which rule a record of the transaction log breaks, as the `case` of witnesses of `illegal-transaction-state`. The
    rule's words are in `prozess.checkers.metadata`. No case is 1."""

    TAKEN_BACK = 2
    """A commit or an abort was decided, and something else than its completion came next."""
    UNDECIDED = 3
    """A commit or an abort was completed that was not decided."""
    DECIDED_NOTHING = 4
    """A commit or an abort was decided, and no transaction was open."""
    DROPPED = 5
    """A transaction was open, and the next record knows of none."""
    NEVER_INITIALISED = 6
    """A transaction began of a transactional.id that nobody initialised."""
    EPOCH_FELL = 7
    """The producer epoch fell."""
    EPOCH_IN_TRANSACTION = 8
    """The producer epoch changed where neither an initialisation nor an abort raises it."""
    PRODUCER_CHANGED = 9
    """The producer id changed without an initialisation."""
    PARTITIONS_CHANGED = 10
    """An open transaction lost a partition, or others were decided than it had."""
    PARTITIONS_LEFT = 11
    """No transaction is open, and it has partitions."""
    EPOCH_NOT_RAISED = 12
    """A transaction was decided, and the epoch stayed, although its client has transaction.version 2."""


@unique
class GroupStateCase(IntEnum):
    """Says which rule a record about a consumer group breaks, as the `case` of witnesses of `illegal-group-state`. The rule's
    words are in `prozess.checkers.metadata.kip_848` and `kip_345`. No case is 1."""

    GROUP_EPOCH_FELL = 2
    """The group epoch is below the one before."""
    TARGET_EPOCH_FELL = 3
    """The epoch of the target assignment is below the one before."""
    MEMBER_EPOCH_FELL = 4
    """A member's epoch is below the one before, although it stayed in the group."""
    TARGET_BEYOND_GROUP = 5
    """A target assignment has an epoch that its group does not have yet."""
    MEMBER_BEYOND_TARGET = 6
    """A member is in an epoch of which there is no target assignment yet."""
    OWNED_TWICE = 7
    """A member was assigned a partition that another member has not given up."""
    TWO_PROTOCOLS = 8
    """The group is one of the classic protocols and of the consumer protocol at once."""
    GENERATION_LOST = 9
    """A consumer group goes on as a classic one, and its generation is below the epoch that it had."""
    GENERATION_FELL = 10
    """The generation of a classic group is below the one before."""
    GENERATION_REUSED = 11
    """A generation has other members than before, another leader or another protocol."""
    TYPE_CHANGED = 12
    """A group with members has another protocol type, and was not empty in between."""
    LEADER_NOT_MEMBER = 13
    """A group has members, and is led by none of them."""
    NOTHING_CHOSEN = 14
    """A group has members, and no protocol, no protocol type or no generation."""
    LEFT_BEHIND = 15
    """A group has no members, and a leader or a protocol."""
    MEMBER_TWICE = 16
    """A member or a group.instance.id is in the group twice."""


@unique
class ShareStateCase(IntEnum):
    """Says which rule of KIP-932 a record of a share coordinator breaks, as the `case` of witnesses of `illegal-share-state`.
    No case is 1."""

    FINAL_TAKEN_BACK = 2
    """A record was acknowledged or archived, and has another state then."""
    COUNT_FELL = 3
    """The delivery count of a record is below the one before."""
    START_FELL = 4
    """The start offset is below the one before, in the same state epoch."""
    STATE_EPOCH_FELL = 5
    LEADER_EPOCH_FELL = 6
    """A leader wrote that had been replaced."""


GIVEN_UP_NS = 1_000_000_000
"""An append to the transaction log that failed stays there, and its coordinator goes on from what it had decided before. It
fails when the transaction's own timeout is over, or when too few replicas are in sync any more; then nothing can be appended
until they are again, which takes longer than this. [TransactionStateManager.appendTransactionToLog;
Partition.checkEnoughReplicasReachOffset]"""


# Cases of `mistimed`. The kernel finds them, and no rule distinguishes them.


@unique
class LookupCase(IntEnum):
    """Says what is wrong with the answer to a look-up by time, as the `case` of witnesses of `mistimed`."""

    EARLIER = 0
    """The record of the answer is before the time asked for."""
    PAST = 2
    """A record in front of the answer is late enough."""
    NOTHING = 3
    """Nothing was found, although a record was late enough."""


# Cases of `not-exactly-once`. The kernel finds them, and rules judge them.


@unique
class CopyCase(IntEnum):
    """Says what is wrong with the copy of one record, as the `case` of witnesses of `not-exactly-once`."""

    MISSING = 1
    """A source record below the group's final committed offset has no copy."""
    REPEATED = 2
    """There are more copies than source records."""
    STRANGE = 3
    """A record in the derived topic is a copy of no source record."""


# Cases of the anomalies of consumer groups. Kernels find them, and rules judge them.


@unique
class GroupCase(IntEnum):
    """Says what explains an anomaly of a consumer group, as the `case` of its witness. One number means the same in
    every anomaly of groups."""

    NO_CAUSE = 0
    CRASHED = 1
    """The member that had the record died before it gave the partition up."""
    RELEASED = 2
    """The member gave the partition up, or it was taken away, in between."""
    SOUGHT = 3
    """The application sent the member to that position."""
    DUPLICATE = 4
    """The log holds the record more than once."""
    EVICTED = 5
    """The member had lost the partition but did not know it yet."""
    COVERED = 6
    """A commit that covers the record was acknowledged before the member that processed it again was assigned the
    partition."""
    RESET = 7
    """auto.offset.reset decided the position, because there was no committed offset or it was out of range."""
    OBSERVED = 8
    """`commit-regression`: the committed offset was seen by looking it up, and not in a commit."""
    WITHIN_SESSION = 9
    """`orphaned`: the last owner died or was frozen, and its session was not over yet."""
    BOTH_COMMITTED = 10
    """`two-owners`: both members had commits accepted while both owned the partition, or one of them after it had lost
    it to the other."""
    SAME_INSTANCE = 11
    """`two-owners`: both members have the same group.instance.id, in the classic protocol."""
    LEFT_BEHIND = 12
    """`unprocessed`: the record was sent to the retry topic, and was never acknowledged or seen there."""
    SENT_AGAIN = 13
    """`reprocessed`: the record was sent to the retry topic again, because the first send was never acknowledged."""
    REASSIGNED = 14
    """`unstable`: a member was assigned the partition although no member had come or gone for long enough."""
    UNOWNED = 15
    """`unstable`: nobody owned the partition although no member had come or gone for long enough."""
    MISTAKEN = 16
    """`unprocessed`: a member processed another record than the log has at that offset (`other_*`)."""
    IDLE = 17
    """`starved`: the member had no partition, and had learned so by a callback."""
    UNASSIGNED = 18
    """`starved`: the member had no partition, and no callback of it is known."""
    GAVE_UP = 19
    """`orphaned`: the last owner lives and had lost the partition, less than a session before. It may have come back under a
    new id, while the coordinator still waits for the old one."""
    WAITED_FOR = 21
    """`orphaned`: the last owner lives, and the group may have waited for a member that had gone without a word, and whose
    session was not over yet."""
    OF_ANOTHER_TOPIC = 20
    """`unprocessed`: the first position that the group had in this topic, which was made again, is an offset that a member
    was committing for the topic before, and that commit ended after this topic was made. `commit-regression`: the greater
    commit was one for the topic before."""


# Cases of the anomalies of share groups. Kernels find them, and rules judge them.


SHARE_WAY_NS = 1 * NS_PER_S
"""How long a record that a broker has given to a member of a share group may take until the member's client has it. Faults
of links and processes may lengthen it, and rules say so."""


@unique
class ShareCase(IntEnum):
    """Says what explains an anomaly of a share group, as the `case` of its witness."""

    NO_CAUSE = 0
    BEFORE_START = 2
    """`undelivered`: the group was first seen with a start offset beyond the record."""
    NOT_RAISED = 3
    """`miscounted`: the count was not greater than that of the delivery before."""
    RELEASE_FORGOTTEN = 4
    """`miscounted`: the same, although the delivery before had been released, and that was answered."""
    BEYOND_LIMIT = 5
    """`miscounted`: the count is greater than the limit."""
    AT_LIMIT = 6
    """`given-up`, `dead-letter-missing`: the record was delivered as often as the limit allows."""
    ONE_SHORT = 7
    """`given-up`, `dead-letter-extra`: the last delivery that a member saw was the last but one that the limit allows."""


# Cases of `snapshot-conflict`. The kernel finds them, and rules judge them.


@unique
class SnapshotCase(IntEnum):
    """Says how a producer snapshot contradicts the batches, as the `case` of witnesses of `snapshot-conflict`. The
    first that applies counts."""

    UNKNOWN_THERE = 1
    """There are batches of the producer below the snapshot, but the snapshot does not know the producer."""
    UNKNOWN_HERE = 2
    """The snapshot knows a producer that has no batch below it."""
    EPOCH = 3
    """The snapshot and the batches have different producer epochs."""
    LAST_BATCH = 4
    """The last batch has another last sequence, offset, or number of records."""
    TRANSACTION = 5
    """The open transaction has another first offset, or only one of them has an open transaction."""
    TIMESTAMP = 6
    """The last batch has another timestamp."""


# Cases of promises of progress. Kernels find them, and rules judge them.


@unique
class ProgressCase(IntEnum):
    """Says what was waited for in vain, as the `case` of witnesses of `hanging`, `leaderless`, `stuck`
    and `unanswered`."""

    STOOD_STILL = 1
    """Any client that waited stood still for so long that it may not have noticed."""
    INITIALISATION = 2
    """init_transactions did not return."""
    COMMIT = 3
    """A commit did not return."""
    ABORT = 4
    """An abort did not return."""
    LEADER = 5
    """A partition did not get another leader."""
    ACKNOWLEDGEMENT = 6
    """No record of a producer was acknowledged."""
    BROKER_CALL = 7
    """A broker did not answer an administrator's call."""
    CONTROLLER_CALL = 8
    """No broker answered one that the active controller answers."""


# Cases of `not-linearizable`. The kernel finds them, and rules judge them.


ADMIN_LAG_NS = 10 * NS_PER_S
"""How far a server's copy of the metadata may be behind what administrators were answered. KIP-631 gives no bound: a copy is
fetched every moment, and a broker that sends no heartbeats is fenced after broker.session.timeout.ms, 9 s by default."""


@unique
class AdminCase(IntEnum):
    """Says how an answer to an administrator contradicts the others, as the `case` of witnesses of `not-linearizable`."""

    STALE = 1
    """Another value had been there meanwhile."""
    AGAIN = 2
    """The same, but the call that set the value was not answered before: it may have been carried out twice."""
    EARLY = 3
    """The value was found before the call was made that set it."""
    UNSET = 4
    """Nobody ever set the value."""


# Cases of `remote-gap` and `remote-conflict`. The kernels find them, and rules judge them.


@unique
class GapCase(IntEnum):
    """Says why nothing of some offsets can be read, as the `case` of witnesses of `remote-gap`. The first that applies
    counts."""

    GONE = 1
    """Brokers believe that a segment with them was copied, and there is no object."""
    DAMAGED = 2
    """The object of that segment is cut off, or has batches with another checksum than their bytes."""
    UNFINISHED = 3
    """The copy of the only segment with them never came to its end."""
    NEVER_COPIED = 4
    """Nobody knows of a segment with them."""
    TAKEN = 5
    """Brokers deleted the segment with them, or began to, and the log start had not passed it when the audit asked. It comes
    before all others."""


@unique
class RemoteCase(IntEnum):
    """Says what is wrong with a batch, as the `case` of witnesses of `remote-conflict`."""

    TWIN = 1
    """Another batch of the same copy, or of the remote store and that broker's log together, has some of its offsets."""
    EPOCH_FELL = 2
    """Its leader epoch is lower than that of the batch before it, which is in the other of the two."""


@unique
class LeftCase(IntEnum):
    """Says why an object should be gone from the remote store, as the `case` of witnesses of `remote-left`."""

    BELOW_START = 1
    """The log start had passed all of it."""
    TOPIC_DELETED = 2
    """Its topic was deleted."""


# Cases of `out-of-sequence`. The kernel finds them, and no rule distinguishes them.


@unique
class SequenceCase(IntEnum):
    """Says how a batch does not follow the one before it of its producer, as the `case` of witnesses of `out-of-sequence`."""

    GAP = 1
    """Sequence numbers are left out."""
    REPEATED = 2
    """Its first sequence number was there before, under the same producer epoch."""
    NOT_FROM_ZERO = 3
    """It is the first batch under a newer producer epoch, and its sequence numbers do not begin at 0."""
    OLD_EPOCH = 4
    """Its producer epoch is older than that of a batch or a marker before it."""


# Cases of `stalled`, and the time after which a client counts as stalled. Clients are given this time, too.


STALLED_NS = 20 * NS_PER_S
"""How long a reader may be given no records before it counts as stalled. It is twice the time that a client waits for
an answer here (socket.timeout.ms), so that one lost answer explains it."""
SCAN_NS = 10 * NS_PER_S
"""How often a coordinator looks for transactions beyond their timeout, by default.
[transaction.abort.timed.out.transaction.cleanup.interval.ms]"""


@unique
class OnDisk(IntEnum):
    """Says what a broker means to do with the directory of a log."""

    SERVED = 0
    """It has the name of a log that is served."""
    GOING = 1
    """It was renamed, and is to be removed."""


@unique
class UndeletedCase(IntEnum):
    """Says where a topic that was deleted shows, as the `case` of witnesses of `undeleted`."""

    SERVED = 0
    """A broker's disk has a log of it as if it were served."""
    NOT_REMOVED = 1
    """A broker's disk still has what was to be removed."""
    RETURNED = 2
    """The controllers' log has a partition of it after its deletion."""


@unique
class KeyCase(IntEnum):
    """Says why one key may be in two partitions, as the `case` of witnesses of `split-key`."""

    ONE_PRODUCER = 0
    """One producer sent both records, and no new number of partitions explains it."""
    TWO_PRODUCERS = 1
    """Two producers sent them."""
    ADDED = 2
    """Partitions had been added, and the producer learned of it between them, or one of the two had not heard of it yet."""
    PERHAPS_ADDED = 3
    """Partitions were added, and nobody knows when: the controllers' log is not there."""


@unique
class StallCase(IntEnum):
    """Says what stalled, as the `case` of witnesses of `stalled`."""

    READER = 0
    """A reader was given no records although it lived and sent heartbeats all the time."""
    STARVED = 1
    """The reader's own heartbeat stopped in between, so it may not have asked."""
    STABLE_OFFSET = 2
    """The last stable offset did not move, whoever reads."""
