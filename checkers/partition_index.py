"""An index of one partition, built once and shared by every kernel: its log, its sends and reads by identity, what
consumers received, and its tombstones."""

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from prozess.checkers.alignment import ALIGNED_ROWS_MIN, Alignment, align, rows_where
from prozess.checkers.batches import StoredBatches
from prozess.checkers.lookup import (
    UNREADABLE,
    Indexed,
    Lookup,
    any_set,
    differs_from_next,
    differs_from_previous,
    distinct,
    identity_keys,
    lazy,
    ordinary_keys,
)
from prozess.checkers.partition_log import Log, LogIdentities
from prozess.harness.columns import of_clients, stretch, taken
from prozess.harness.errors import Contradicted
from prozess.harness.history.participants import nobody_audited
from prozess.harness.interfaces.checking import PartitionHistory
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.schema import MISSING, NONE, Isolation, Outcome, ReadFlag, Role

# Where the tombstones of a partition stand, as their producers learned. They excuse that nothing is left of a key.


_FOREVER = np.iinfo(np.int64).max


class Tombstones:
    """The last tombstone of every key, by the offset that was acknowledged. The offset is _FOREVER if a tombstone of the
    key is, or may be, in the log and nobody learned where. Compaction removes what a tombstone supersedes, and later
    the tombstone itself."""

    def __init__(self, sends: Mapping[str, np.ndarray]) -> None:
        there = (
            (sends["size"] == NONE) & (sends["outcome"] != Outcome.FAIL.value) & (sends["client"] != SENTINEL_CLIENT)
        )
        rows = np.flatnonzero(there & (sends["key"] != NONE))
        key, offset = sends["key"][rows], sends["log_offset"][rows]
        # _FOREVER stands behind every offset, so that a tombstone of which nobody knows where it is excuses all of its key.
        offset = np.where((sends["outcome"][rows] == Outcome.OK.value) & (offset != NONE), offset, _FOREVER)
        order = np.lexsort((offset, key))
        key, offset = key[order], offset[order]
        # Sorted by key, then by offset: the last row of each key has its greatest offset.
        last = differs_from_next(key)
        self._keys, self._offset = Lookup(key[last]), offset[last]

    def behind(self, key: np.ndarray, offset: np.ndarray) -> np.ndarray:
        """Returns bool[k]: does a tombstone of this key stand behind this offset, or may it?"""
        slot = self._keys.find(key)
        found = slot >= 0
        found[found] = self._offset[slot[found]] > offset[found]
        return found


# What consumers received of a partition that nobody audited (an imported history), and what that says about its log.


class Consumed:
    """The records that some consumers received, and how far they read."""

    def __init__(self, index: "PartitionIndex", rows: np.ndarray) -> None:
        """`rows` are the rows of `reads` of these consumers."""
        self.sends = index.marked(index.send_of_read[rows])
        """bool[sends]: did one of them receive this record?"""
        # Not the index, which keeps this: the two would stay until somebody looks for cycles.
        self._reads, self._rows, self._readers_begin = index.reads, rows, index.readers_begin
        self.furthest = int(index.reads["log_offset"][rows].max(initial=NONE))
        """The greatest offset of a record that one of them received. NONE: they received nothing."""

    def beyond(self, offset: np.ndarray) -> np.ndarray:
        """Returns bool[n]: did nobody read past this offset, or does nobody know the offset?"""
        if self._readers_begin == "anywhere":
            return self.not_within(offset)
        return np.asarray((offset == NONE) | (offset > self.furthest))

    def not_within(self, offset: np.ndarray) -> np.ndarray:
        """Returns bool[n]: is this offset one that no consumer must have come by, or one that nobody knows? A consumer that
        may have begun anywhere came by what stands between two records of one reach: of 3 and 5 by 4, not by 2."""
        if self._readers_begin == "start":
            return np.asarray((offset == NONE) | (offset > self.furthest))
        first, furthest = self._reach
        slot = np.searchsorted(first, offset) - 1  # the last that begins below it
        # `furthest` is the greatest of all reaches up to that one: if it is beyond the offset, one of them came by.
        passed = slot >= 0
        passed[passed] = furthest[slot[passed]] > offset[passed]
        return np.asarray((offset == NONE) | ~passed)

    @cached_property
    def _reach(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the first offset of each reach, ascending, and the greatest of all reaches up to it. A reach is a span of
        reading, together with those in which its client went on; NONE = it began at the beginning."""
        reads, rows = self._reads, self._rows
        if not len(rows):
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        offset, flags = reads["log_offset"][rows], reads["flags"][rows]
        # A reach ends where a span ends, unless the client goes on where it was.
        # Example: a client reads 3 5, is closed, and begins anew at 8: two reaches, 3–5 and 8–8. If its second span goes on
        # where the first one ended, they are one, 3–8, and 6 was come by, too.
        other_span = differs_from_previous(reads["span"][rows]) & ((flags & ReadFlag.GOES_ON.value) == 0)
        starts = np.flatnonzero(other_span | differs_from_previous(reads["client"][rows]))
        # NONE (-1) is below every offset: whoever began at the beginning came by all that stands before his first record.
        least = np.where((flags & ReadFlag.FROM_START.value) != 0, NONE, offset)
        # `reduceat` reduces each reach to a number: from its start to before the next start.
        first, last = np.minimum.reduceat(least, starts), np.maximum.reduceat(offset, starts)
        order = np.argsort(first, kind="stable")
        # With the greatest end so far, the last reach that begins below an offset answers for all before it.
        # Example: reaches 0–9, 2–4, 6–7. Ends so far 9 9 9: of offset 8 the last that begins below is 6–7, and 9 > 8.
        return first[order], np.maximum.accumulate(last[order])


def read_in_the_end(index: "PartitionIndex", history: PartitionHistory) -> bool:
    """Returns whether consumers, after the last send to the partition was over, received every record once more that was
    acknowledged or that one of them had received before. Then nothing is gone, even if nobody audited. All clients must
    use one clock. `index` is that of the history. O(n log n)."""
    sends, reads = index.sends, index.reads
    consumer = index.consumer_rows
    # One clock for all, or "after the last send" means nothing.
    clients = np.concatenate([index.senders, index.consumers])
    clocks = of_clients(history.client_clock, clients, unknown=NONE)
    if len(clocks) and (clocks[0] == NONE or (clocks != clocks[0]).any()):
        return False
    # A send that was never completed may have been appended at any time after: it counts by when it was invoked, as that is
    # all that is known, and it is not owed unless somebody received it.
    over_ns = max(
        int(
            np.where(sends["completed_ns"] == MISSING, sends["invoked_ns"], sends["completed_ns"]).max(initial=MISSING)
        ),
        int(sends["invoked_ns"].max(initial=MISSING)),
    )
    if history.left_out_ns is not None:
        over_ns = max(over_ns, history.left_out_ns[0])
        if history.left_out_ns[1] <= over_ns:
            return False
    last = consumer[reads["read_ns"][consumer] > over_ns]
    # Owed: what was acknowledged, or received before. All of it must be among the reads after the last send.
    owed = index.consumed.sends | (sends["outcome"] == Outcome.OK.value)
    if (owed & ~index.marked(index.send_of_read[last])).any():
        return False
    # Records of which no send was recorded are owed as well. Their identities alone say whether they came again.
    unsent = consumer[index.send_of_read[consumer] < 0]
    unsent = unsent[index.read_key[unsent] != UNREADABLE]
    if not len(unsent):
        return True
    again = Lookup(distinct(index.read_key[unsent[reads["read_ns"][unsent] > over_ns]]))
    return bool((again.find(index.read_key[unsent]) >= 0).all())


# What is known of all clients, for all partitions at once: there may be tens of thousands of clients, and each of thousands
# of partitions asks.


class ClientIndex(Indexed):
    """Describes what follows from the roles of clients."""

    def __init__(self, role: np.ndarray) -> None:
        """`role` is `client_role` of `PartitionHistory`."""
        self._producer = role == Role.PRODUCER.value
        self._numbers = self._producer | (role == Role.MEMBER.value)
        self._made: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def limit(self, issued: np.ndarray) -> np.ndarray:
        """Returns the sequence below which each client sent records. `issued` is `client_issued` of `PartitionHistory`."""
        made = self._made.get("limit")
        if made is None or made[0] is not issued:
            # A producer that crashed may have sent any sequence; who is no producer sent none: below 0 there is no sequence.
            found = np.where(self._numbers, np.where(issued == NONE, _FOREVER, issued), 0)
            made = self._made["limit"] = issued, found
        return made[1]

    def without_reply(self, acks: np.ndarray) -> np.ndarray:
        """Returns the producers that asked for no reply. `acks` is `client_acks` of `PartitionHistory`."""
        made = self._made.get("without reply")
        if made is None or made[0] is not acks:
            made = self._made["without reply"] = acks, np.flatnonzero((acks == 0) & self._producer)
        return made[1]


# The index itself. What makes it linear: offsets are dense, so "which record does the log hold where this observer saw
# one?" is an array access. What agrees with the log needs no further look. Sorting is left for the few records that do
# not agree.
#
# Example: the log is [a b c] at the offsets 0, 1, 2. `sends` has a, b, c acknowledged at 0, 1, 2: `send_position` is
# 0, 1, 2, the keys there are equal, and all are confirmed. A reader received a, x, c: `read_position` is 0, 1, 2, and at 1
# the keys differ. Only that row is in `unmatched_reads`, and only x is searched for by its identity.


def _among(rows: np.ndarray, few: np.ndarray) -> np.ndarray:
    """Returns bool[n]: is this one of a few rows, which ascend?"""
    assert len(few), "there is one to compare with"
    # The first that is not less: the row itself, or another one. Behind the last the last one is compared, and differs.
    slot = np.minimum(np.searchsorted(few, rows), len(few) - 1)
    return np.asarray(few[slot] == rows)


def _starts(values: np.ndarray) -> np.ndarray:
    """Returns the indices at which there is another value than at the index before, the first included."""
    if len(values) < ALIGNED_ROWS_MIN:
        return differs_from_previous(values).nonzero()[0]
    return np.append(
        0, 1 + rows_where(len(values) - 1, lambda rows: values[rows.start + 1 : rows.stop + 1] != values[rows])
    )


_UNREADABLE_FLAGS = int(ReadFlag.CORRUPT | ReadFlag.ANONYMOUS)


class PartitionIndex(Indexed):
    """Describes what several kernels need to know of one partition. Each part is computed once, when it is first asked
    for."""

    def __init__(self, history: PartitionHistory) -> None:
        # Not the history itself: the cache must not keep it alive.
        self.partition = history.partition
        self.sends, self.reads = history.sends, history.reads
        self.client_role, self.client_isolation = history.client_role, history.client_isolation
        self.client_acks, self.client_issued = history.client_acks, history.client_issued
        self.client_reported_until_ns = history.client_reported_until_ns
        self.audit_end, self.audited = history.audit_end, history.audited
        self.readers_begin = history.readers_begin
        self.compacted, self.log_start = history.compacted, history.log_start
        self.stored = StoredBatches(history.replicas, history.copies, history.assignment)

    # The senders of records.

    @lazy
    def _stretches(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns, for each stretch of `reads` by one client, its first row (and the number of all rows at the end), and
        the client."""
        client = self.reads["client"]
        starts = _starts(client)
        return np.append(starts, len(client)), client[starts]

    @lazy
    def reader_runs(self) -> list[tuple[int, int, int]]:
        """Returns (first row, row after the last, client) for each stretch of `reads` by one client."""
        bounds, client = (array.tolist() for array in self._stretches)
        return list(zip(bounds[:-1], bounds[1:], client, strict=True))

    @property
    def readers(self) -> np.ndarray:
        """Returns the clients that read, several times if they took turns."""
        return self._stretches[1]

    @property
    def consumers(self) -> np.ndarray:
        """Returns the clients that read and are not the audit, several times if they took turns."""
        return np.asarray(self.readers[~self._by_audit])

    @lazy
    def _by_audit(self) -> np.ndarray:
        """Returns bool[stretches]: did the audit read this stretch?"""
        return np.asarray(of_clients(self.client_role, self.readers, unknown=NONE) == Role.AUDIT.value)

    def _in_stretches(self, chosen: np.ndarray) -> np.ndarray:
        """Returns bool[reads]: is this in one of the chosen stretches?"""
        # Example: stretches begin at 0 and 3, and there are 5 rows. [True False] is repeated 3 and 2 times: T T T F F.
        return np.repeat(chosen, np.diff(self._stretches[0]))

    def audit_rows(self, isolation: Isolation) -> np.ndarray:
        """Returns the rows of `reads` by the audit at this isolation level, in the order of reading."""
        level = of_clients(self.client_isolation, self.readers, unknown=NONE)
        chosen = np.flatnonzero(self._by_audit & (level == isolation.value))
        # Rows are ordered by client, so an audit that was not restarted is one stretch: no mask as long as `reads`.
        if len(chosen) == 1:
            first, last = self._stretches[0][chosen[0] : chosen[0] + 2].tolist()
            return np.arange(first, last)
        return np.flatnonzero(self._in_stretches(self._by_audit & (level == isolation.value)))

    def read_by_consumer(self, rows: np.ndarray) -> np.ndarray:
        """Returns bool[k]: did a consumer read these rows of `reads`, and not the audit?"""
        # The stretch that begins last before a row, or with it, has the row. The first one begins with 0, so there is one.
        return np.asarray(~self._by_audit[np.searchsorted(self._stretches[0], rows, side="right") - 1])

    @lazy
    def by_consumer(self) -> np.ndarray:
        """Returns bool[reads]: did a consumer read this, and not the audit?"""
        return self._in_stretches(~self._by_audit)

    @lazy
    def consumer_rows(self) -> np.ndarray:
        """Returns the rows of `reads` that a consumer read, and not the audit."""
        return np.flatnonzero(self.by_consumer)

    @lazy
    def sentinel_reads(self) -> np.ndarray:
        """Returns the rows of `reads` that show a sentinel."""
        sender = self.reads["sender"]
        return rows_where(len(sender), lambda rows: sender[rows] == SENTINEL_CLIENT)

    @lazy
    def read_count(self) -> int:
        """Returns how many records were read by anyone, without the sentinels."""
        if not self.audited:
            return self.consumer_read_count
        return len(self.reads["sender"]) - len(self.sentinel_reads)

    @lazy
    def consumer_read_count(self) -> int:
        """Returns how many records were read by consumers, without the sentinels."""
        bounds = self._stretches[0]
        # Counted by stretches, of which there are few, and then less the sentinels, of which there are fewer.
        given = int((bounds[1:] - bounds[:-1])[~self._by_audit].sum())
        return given - int(np.count_nonzero(self.read_by_consumer(self.sentinel_reads)))

    @lazy
    def consumed(self) -> Consumed:
        """Returns what consumers received, whatever their isolation level."""
        return Consumed(self, self.consumer_rows)

    @lazy
    def consumed_committed(self) -> Consumed:
        """Returns what consumers at read_committed received."""
        level = of_clients(self.client_isolation, self.readers, unknown=Isolation.NOT_A_READER)
        others = (level != Isolation.READ_COMMITTED.value) & ~self._by_audit
        if not others.any():
            return self.consumed
        return Consumed(self, np.flatnonzero(self._in_stretches(~self._by_audit & ~others)))

    @lazy
    def shown_committed(self) -> np.ndarray:
        """Returns bool[sends]: did anybody at read_committed receive this record, the audit included?"""
        level = of_clients(self.client_isolation, self.readers, unknown=Isolation.NOT_A_READER)
        return self.marked(self.send_of_read[self._in_stretches(level == Isolation.READ_COMMITTED.value)])

    # Which record.

    @lazy
    def send_key(self) -> np.ndarray:
        """Returns int64[sends]: the identity of each record that was sent. It strictly ascends, because rows are in the
        order (client, sequence)."""
        key = identity_keys(self.sends["client"], self.sends["sequence"])
        if (key < 0).any():
            raise Contradicted("there is a send of no client, or without a sequence")
        if not (key[1:] > key[:-1]).all():
            raise Contradicted("a client sent two records with one sequence")
        return key

    @lazy
    def _sender_starts(self) -> np.ndarray:
        """Returns the first row of `sends` of each client."""
        return _starts(self.sends["client"])

    @lazy
    def senders(self) -> np.ndarray:
        """Returns the clients that sent, ascending."""
        return np.asarray(self.sends["client"][self._sender_starts])

    def sent_with(self, *, acks: int) -> np.ndarray:
        """Returns bool[sends]: was each record sent with this acks? A client that is not of the trial counts as one with
        0."""
        # Asked once for each sender, and repeated for all of its rows, which stand together.
        chosen = of_clients(self.client_acks, self.senders, unknown=0) == acks
        if chosen.all() or not chosen.any():
            return np.full(len(self.sends["client"]), chosen.any())
        return np.repeat(chosen, np.diff(self._sender_starts, append=len(self.sends["client"])))

    @lazy
    def _send_rows(self) -> Lookup:
        return Lookup(self.send_key)

    def send_rows(self, key: np.ndarray) -> np.ndarray:
        """Returns intp[k]: the row of `sends` of each record, -1 where this partition has none."""
        return self._send_rows.find(key)

    @lazy
    def sentinel_sends(self) -> int:
        """Returns how many of the first rows of `sends` are of the sentinels' client: it comes before all others."""
        starts = self._sender_starts
        if not len(starts) or self.sends["client"][0] != SENTINEL_CLIENT:
            return 0
        return int(starts[1]) if len(starts) > 1 else len(self.sends["client"])

    @lazy
    def acknowledged(self) -> np.ndarray:
        """Returns bool[sends]: was this record acknowledged? No sentinel is one."""
        found: np.ndarray = self.sends["outcome"] == Outcome.OK.value
        found[: self.sentinel_sends] = False
        return found

    @lazy
    def send_at(self) -> np.ndarray:
        """Returns intp[log + 1]: for each position of L(p) the row of `sends` of its record, if that was acknowledged there;
        else -1, as the last entry is."""
        found, rows = np.full(len(self.log.rows) + 1, -1, dtype=np.intp), self.confirmed_sends
        # The inverse of `send_position`: row → position becomes position → row. Position -1 reads the last entry, which is
        # -1.
        found[taken(self.send_position, rows)] = rows
        return found

    @lazy
    def send_in_log(self) -> np.ndarray:
        """Returns intp[log + 1]: for each position of L(p) the row of `sends` of its record, wherever that was acknowledged;
        -1 where this partition has none, as the last entry is."""
        # Where another record was acknowledged, or none was, the identity that the log shows is searched for. UNREADABLE is
        # below every identity of `sends`, and finds none.
        found = self.send_at
        if len(other := np.flatnonzero(found[:-1] < 0)):
            found = found.copy()
            found[other] = self.send_rows(self.log.key[other])
        return found

    @lazy
    def not_sent(self) -> np.ndarray:
        """Returns the positions of L(p) of which it is not plain that a producer sent their record: this partition has no
        row of `sends`, or a sequence of a producer is beyond its last one."""
        # A client's rows ascend by sequence: its last row has the greatest one. If that is below the client's limit, all are,
        # and a record is plainly sent if it has a row. If not, nothing is plain, and each record is asked.
        last = np.append(self._sender_starts[1:], len(self.sends["client"]))[: len(self.senders)] - 1
        limit = of_clients(ClientIndex.of(self.client_role).limit(self.client_issued), self.senders, unknown=0)
        if (self.sends["sequence"][last] >= limit)[self.senders != SENTINEL_CLIENT].any():
            return np.arange(len(self.log.rows))
        return np.flatnonzero(self.send_in_log[:-1] < 0)

    @lazy
    def send_of_read(self) -> np.ndarray:
        """Returns intp[reads]: the row of `sends` that sent the record, -1 where this partition has none. Nearly all records
        stand where they were acknowledged. Only the others are searched for."""
        other = self.unconfirmed_reads
        found: np.ndarray
        if self.alignment is None:
            found = self.send_in_log[self.read_position]  # position -1 reads the last entry, which is -1
        else:
            # Rows that are in no stretch stay unset here: they are among `other`, which the line at the end fills.
            found = np.empty(len(self.reads["sender"]), dtype=np.intp)
            for one in self.alignment.stretches:
                found[one.rows] = self.send_in_log[one.positions]
        # First as if L(p) confirmed every read, by position alone; then the few that it does not are mended.
        found[other] = self.send_rows(self.keys_of_reads(other))
        return found

    def marked(self, rows: np.ndarray) -> np.ndarray:
        """Returns bool[sends]: is this one of these rows of `sends`? -1 stands for none."""
        # One entry more than there are sends: row -1 marks that one, and it is cut off.
        marked = np.zeros(len(self.send_key) + 1, dtype=bool)
        marked[rows] = True
        return marked[:-1]

    @lazy
    def read_key(self) -> np.ndarray:
        """Returns int64[reads]: the identity of each record that was read. UNREADABLE where the record was corrupt, or
        is a copy without an identity of its own."""
        flags = self.reads["flags"]
        unreadable = (flags & _UNREADABLE_FLAGS) != 0 if self._some_flags else None
        return identity_keys(self.reads["sender"], self.reads["sequence"], unreadable)

    @lazy
    def _some_flags(self) -> bool:
        return any_set(self.reads["flags"])

    def keys_of_reads(self, rows: np.ndarray | slice) -> np.ndarray:
        """Returns `read_key` of some rows of `reads`, without that of all others."""
        # If all keys are there already, these are taken from them. If there is a strange identity, its number depends on all
        # others (`identity_keys`), and they are made.
        if "read_key" not in self.__dict__ and len(self.reads["sender"]) >= ALIGNED_ROWS_MIN:
            key = ordinary_keys(self.reads["sender"][rows], self.reads["sequence"][rows])
            if key is not None:
                if self._some_flags:
                    key[(self.reads["flags"][rows] & _UNREADABLE_FLAGS) != 0] = UNREADABLE
                return key
        return np.asarray(self.read_key[rows])

    # The log.

    def _log_at(self, isolation: Isolation) -> Log:
        rows, end = self.audit_rows(isolation), self.audit_end.get(isolation)
        return Log(self.reads, rows, self.keys_of_reads, end=end, sentinels=self.sentinel_reads)

    @lazy
    def log(self) -> Log:
        """L(p): the log as the audit read it at read_uncommitted."""
        return self._log_at(Isolation.READ_UNCOMMITTED)

    @lazy
    def visible(self) -> Log:
        """V(p): the log as the audit read it at read_committed."""
        return self._log_at(Isolation.READ_COMMITTED)

    @lazy
    def identities(self) -> LogIdentities:
        """Returns the records of L(p) by identity."""
        rows = self.confirmed_sends
        if len(rows) == len(self.log.key):  # all stand where they were acknowledged: `sends` has them in order
            position, client = taken(self.send_position, rows), taken(self.sends["client"], rows)
            # `sends` is ordered by client: where positions go back, another client must begin, or the log is not in order.
            descents = np.flatnonzero(position[1:] < position[:-1])
            if (client[descents] != client[descents + 1]).all():
                return LogIdentities(position, taken(self.send_key, rows))
        return LogIdentities.of(self.log, self.reads["sender"][self.log.rows])

    def incomplete(self, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> str | None:
        """Returns why nothing can be concluded from what the audit did not show. None: the audit is complete."""
        if not self.audited:
            return nobody_audited(self.partition)
        if isolation not in self.audit_end:
            return f"the audit of partition {self.partition} at {isolation.name.lower()} did not reach its sentinel"
        if isolation is Isolation.READ_UNCOMMITTED and len(offset := self.passed_over):
            return (
                f"the audit of partition {self.partition} at read_uncommitted passed over {len(offset)} records that are "
                f"there, the first at offset {offset[0]}"
            )
        return None

    @lazy
    def passed_over(self) -> np.ndarray:
        """Returns the offsets, ascending, below the sentinel at which the audit at read_uncommitted was given nothing,
        although a record stands there: the audit at read_committed was given one; or somebody names one, and every replica
        has it.

        Both audits read a healed cluster through the same sentinel, so nothing was truncated between them.
        """
        end = self.audit_end.get(Isolation.READ_UNCOMMITTED)
        if end is None or not self.audited:
            return np.empty(0, dtype=np.int64)
        # Only reads of offsets that L(p) lacks matter, and all of them are among those that L(p) does not confirm.
        rows = self.unconfirmed_reads
        rows = rows[(self.reads["sender"][rows] != SENTINEL_CLIENT) & (self.positions_of_reads(rows) < 0)]
        rows = rows[self._below(self.reads["log_offset"][rows], end)]
        by_consumer = self.read_by_consumer(rows)
        shown = rows[~by_consumer]
        found = self.reads["log_offset"][shown]
        if self.compacted:  # it may have been cleaned away before the other audit came there
            send = self.send_rows(self.keys_of_reads(shown))
            tombstone = send < 0
            tombstone[~tombstone] = self.sends["size"][send[~tombstone]] == NONE
            key = self.reads["key"][shown]
            return distinct(found[~self.may_be_cleaned(record_key=key, offset=found, tombstone=tombstone)])
        named = self.reads["log_offset"][rows[by_consumer]]
        if not self.stored.whole:  # nothing shows what all replicas have, and nobody's sends need be read
            return distinct(found)
        first = self.sentinel_sends
        # Only where a send is not confirmed can one have been acknowledged at an offset that L(p) lacks.
        if len(self.confirmed_sends) + first < len(self.send_confirmed):
            acknowledged = first + np.flatnonzero(self.send_position[first:] < 0)
            acknowledged = acknowledged[self.sends["outcome"][acknowledged] == Outcome.OK.value]
            acknowledged = acknowledged[self._below(self.sends["log_offset"][acknowledged], end)]
            named = np.concatenate([named, self.sends["log_offset"][acknowledged]])
        return distinct(np.concatenate([found, named[self.stored.everywhere(named)]]))

    def _below(self, offset: np.ndarray, end: int) -> np.ndarray:
        return np.asarray((offset >= max(0, self.log_start)) & (offset < end))

    @lazy
    def unshown(self) -> np.ndarray:
        """Returns the positions of L(p), ascending, at whose offsets V(p) has no record, below the end of V(p). There are
        none if the audit at read_committed is not complete."""
        log, visible = self.log, self.visible
        if visible.end is None or (
            len(log.offset) == len(visible.offset) and np.array_equal(log.offset, visible.offset)
        ):
            return np.empty(0, dtype=np.intp)
        below = log.offset[: int(np.searchsorted(log.offset, visible.end))]
        return np.flatnonzero(visible.positions.find(below) < 0)

    @lazy
    def sentinel_ns(self) -> int | None:
        """Returns when the sentinel at the end of L(p) was sent. What happened before that happened to the log that the
        audit read."""
        rows = np.arange(self.sentinel_sends)
        assert (self.sends["client"][rows] == SENTINEL_CLIENT).all(), "the sentinels come first"
        # The one that was acknowledged where the audit ended. If none is known to be it, the earliest of all: what happened
        # before that happened before whichever it was.
        end = self.audit_end.get(Isolation.READ_UNCOMMITTED)
        at_end = rows[:0] if end is None else rows[self.sends["log_offset"][rows] == end]
        rows = at_end if len(at_end) else rows
        return int(self.sends["invoked_ns"][rows].min()) if len(rows) else None

    @lazy
    def read_position(self) -> np.ndarray:
        """Returns intp[reads]: the position in L(p) of the offset that was read, -1 where L(p) has no record."""
        return self.log.positions.find(self.reads["log_offset"])

    def positions_of_reads(self, rows: np.ndarray) -> np.ndarray:
        """Returns `read_position` of some rows of `reads`, without that of all others."""
        return self.log.positions.find(self.reads["log_offset"][rows])

    @lazy
    def alignment(self) -> Alignment | None:
        """Returns which stretches of `reads` are stretches of L(p), by their offsets. None: there are few reads, or stretches
        are short, and each read is looked up by itself."""
        if len(self.reads["sender"]) < ALIGNED_ROWS_MIN:
            return None
        return align(self.reads["log_offset"], self.reader_runs, self.log.offset, self.log.positions.find)

    @lazy
    def unconfirmed_reads(self) -> np.ndarray:
        """Returns the rows of `reads`, ascending, that L(p) does not confirm: it has another record there, or none."""
        if self.alignment is None:
            return np.flatnonzero(~self.agrees(self.read_position, self.read_key))
        found = [self.alignment.elsewhere]
        own = stretch(self.log.rows)
        if self._some_flags:
            columns = [(self.read_key, self.log.key)]
        else:  # without flags all can be read, and two columns of `reads` say the same as keys that need not be made
            columns = [(self.reads[name], self.reads[name][own]) for name in ("sender", "sequence")]
        for one in self.alignment.stretches:
            if isinstance(own, slice) and one.first - one.position == own.start:
                continue  # it is how the audit read L(p): compared with itself
            # Within a stretch the offsets agree already; what is compared is who stands there.
            found.append(one.first + rows_where(one.last - one.first, one.unlike(columns)))
        return np.sort(np.concatenate(found))

    @lazy
    def unmatched_reads(self) -> np.ndarray:
        """The rows of `reads` that L(p) does not confirm, because it has another record at that offset, or none.
        Sentinels and unreadable records are left out."""
        rows = self.unconfirmed_reads
        rows = rows[self.reads["sender"][rows] != SENTINEL_CLIENT]
        return np.asarray(rows[self.keys_of_reads(rows) != UNREADABLE])

    @lazy
    def send_position(self) -> np.ndarray:
        """Returns intp[sends]: the position in L(p) of the acknowledged offset, -1 where it is not known or L(p) has no
        record."""
        return self.log.positions.find(self.sends["log_offset"])

    @lazy
    def send_confirmed(self) -> np.ndarray:
        """Returns bool[sends]: does L(p) have this record at the offset that was acknowledged?"""
        return self.agrees(self.send_position, self.send_key)

    @lazy
    def confirmed_sends(self) -> np.ndarray:
        """Returns the rows of `sends` of which `send_confirmed` is true, ascending."""
        first = self.sentinel_sends  # no log has a sentinel, and mostly it has all others
        if self.send_confirmed[first:].all():
            return np.arange(first, len(self.send_confirmed))
        return np.flatnonzero(self.send_confirmed)

    def agrees(self, position: np.ndarray, key: np.ndarray) -> np.ndarray:
        """Returns bool[k]: does L(p) have these records at these positions? -1 stands for nowhere."""
        if not len(self.log.key):
            return np.zeros(len(key), dtype=bool)
        assert len(position) == len(key), f"{len(position)} positions, {len(key)} keys"
        agrees: np.ndarray = self.log.key[position] == key  # -1 takes the last one; the next line mends it
        agrees &= position >= 0
        return agrees

    def concerns_log(self, rows: np.ndarray) -> np.ndarray:
        """Returns bool[k]: must L(p) show what these rows of `reads` show? It must up to the sentinel. Behind the
        sentinel it must show what was read before the sentinel was sent: the sentinel's lower offset proves that the log
        was truncated. Later records may stand behind the sentinel."""
        end = self.log.end
        assert end is not None, "ask only when the audit is complete"
        concerned: np.ndarray = self.reads["log_offset"][rows] <= end
        if self.sentinel_ns is not None:
            concerned |= self.reads["read_ns"][rows] < self.sentinel_ns
        return concerned

    @lazy
    def beyond(self) -> Lookup:
        """Records that the audit read behind the sentinel. They are not in L(p), and they are not gone either."""
        key = self.keys_of_reads(self.log.behind)
        return Lookup(distinct(key[key != UNREADABLE]))

    @lazy
    def unreadable_positions(self) -> bool:
        """Returns whether L(p) holds records whose identity could not be read."""
        return bool((self.log.key == UNREADABLE).any())

    # What a record says of itself.

    def never_issued(self, rows: np.ndarray) -> np.ndarray:
        """Returns bool[k]: do these rows of `reads` show a record that no producer sent? Its client is unknown, or its
        sequence is beyond the client's last. A producer that crashed may have sent any sequence past its last row: such
        a record is *unrecorded*, and no phantom."""
        sender, sequence = self.reads["sender"][rows], self.reads["sequence"][rows]
        limit = ClientIndex.of(self.client_role).limit(self.client_issued)
        readable = self.keys_of_reads(rows) != UNREADABLE
        phantom: np.ndarray = (sequence < 0) | (sequence >= of_clients(limit, sender, unknown=0))
        phantom &= readable & (sender != SENTINEL_CLIENT)
        return phantom

    def sent_elsewhere(self, rows: np.ndarray) -> np.ndarray:
        """Returns bool[k]: do these rows of `reads` show a record that says it was sent to another partition?"""
        target = self.reads["sent_partition"][rows]
        other: np.ndarray = (target != self.partition) & (target != NONE)
        other &= (self.keys_of_reads(rows) != UNREADABLE) & (self.reads["sender"][rows] != SENTINEL_CLIENT)
        return other

    @lazy
    def wrong_keys(self) -> np.ndarray:
        """Returns the rows of `reads`, ascending, that show a record with another key than its producer sent.

        A key that is NONE is no key, or is not known: programs of others do not always report theirs. It is certainly none
        where the audit read it, and where a client of ours sent it that was informed of all its sends. Without an audit,
        no key is compared.
        """
        sent, read = self.sends["key"], self.reads["key"]
        if not self.audited or not len(sent) or not len(read):
            return np.empty(0, dtype=np.intp)
        if sent.strides == read.strides == (0,) and sent[0] == read[0]:
            return np.empty(0, dtype=np.intp)  # columns that have one value
        other = self.send_of_read
        rows = rows_where(len(read), lambda some: (other[some] >= 0) & (sent[other[some]] != read[some]))
        rows = rows[self.reads["sender"][rows] != SENTINEL_CLIENT]
        if not len(rows):
            return np.asarray(rows)
        key, was = read[rows], sent[other[rows]]
        informed = of_clients(self.client_reported_until_ns, self.reads["sender"][rows], unknown=MISSING) != MISSING
        known = (key != NONE) | ~self.read_by_consumer(rows)
        known &= (was != NONE) | informed
        return np.asarray(rows[known])

    def may_be_cleaned(self, *, record_key: np.ndarray, offset: np.ndarray, tombstone: np.ndarray) -> np.ndarray:
        """Returns bool[k]: may retention or compaction have removed these records? If an offset is not known (NONE), it
        may be any.

        Compaction keeps the last record of each key, and drops tombstones after delete.retention.ms, so that of a deleted
        key nothing is left (https://kafka.apache.org/documentation/#compaction). Records without key are not compacted.
        """
        # Offset NONE is below any log start that moved; a log that still starts at 0 has lost nothing to retention.
        cleaned: np.ndarray = (offset < self.log_start) & (self.log_start > 0)
        if self.compacted and len(offset):
            # Example: the log is [k1 k2 k1], and a record with key k1 was acknowledged at 0. The last k1 stands at 2, behind
            # it: it may have been compacted. One with k2 at 1 has none behind it, and may not.
            # Rows ascend by offset, and the sort is stable: the last of a key's rows has its greatest offset.
            ids = self.reads["key"][self.log.rows]
            order = np.argsort(ids, kind="stable")
            last = order[differs_from_next(ids[order])]
            slot = Lookup(ids[last]).find(record_key)
            later = slot >= 0
            # The mask on both sides: only where the key is in the log is its last offset compared.
            later[later] = self.log.offset[last[slot[later]]] > offset[later]
            cleaned |= (record_key != NONE) & (later | tombstone | self.tombstones.behind(record_key, offset))
        return cleaned

    @lazy
    def tombstones(self) -> Tombstones:
        """Returns the tombstones that producers sent. The log does not have all of them, because tombstones expire."""
        return Tombstones(self.sends)

    @lazy
    def uneven_steps(self) -> tuple[np.ndarray, np.ndarray]:
        """Pairs of rows of `reads`, one read and the next of the same client and span, whose offsets are not n and n+1.
        Sentinels are left out. There are hardly any such pairs, and only they can have skipped a record or gone back."""
        client, span = self.reads["client"], self.reads["span"]
        before = self._steps()
        before = before[(client[before + 1] == client[before]) & (span[before + 1] == span[before])]
        sentinel = self.sentinel_reads  # few
        if not len(sentinel):
            return before, before + 1
        # Example: rows a b S S c, S a sentinel. The steps b→S, S→S and S→c go, and b→c takes their place.
        before = before[~(_among(before, sentinel) | _among(before + 1, sentinel))]
        apart = np.flatnonzero(np.diff(sentinel) != 1)
        # Around each stretch of sentinels: the record before its first row, and the record behind its last one.
        # Example: sentinels in the rows 2 3 7. `apart` is 1 (from 3 to 7), so last is 1 6, and following 4 8.
        last = np.append(sentinel[0], sentinel[apart + 1]) - 1
        following = np.append(sentinel[apart], sentinel[-1]) + 1
        inside = (last >= 0) & (following < len(client))
        last, following = last[inside], following[inside]
        same = (client[last] == client[following]) & (span[last] == span[following])
        after = np.concatenate([before + 1, following[same]])
        before = np.concatenate([before, last[same]])
        order = np.argsort(after, kind="stable")
        return before[order], after[order]

    def _steps(self) -> np.ndarray:
        """Returns the rows of `reads`, ascending, after which comes one whose offset is not the next."""
        offset = self.reads["log_offset"]
        if self.alignment is None:
            return np.flatnonzero(np.diff(offset) != 1)
        # Within a stretch reads go on evenly where the log does: uneven are its holes, and the ends of stretches. What is in
        # no stretch is looked at row by row in the end, and so are the ends: some of these go on evenly all the same.
        holes = self.log.holes
        found = [self.alignment.elsewhere]
        for one in self.alignment.stretches:
            # Holes are positions of the log, and become rows of `reads`: both count from the stretch's begin.
            # A hole behind the stretch's last record is none of its own.
            low, high = np.searchsorted(holes, [one.position, one.position + one.last - one.first - 1])
            found.append(holes[low:high] - one.position + one.first)
            found.append(np.array([one.last - 1]))
        rows = np.sort(np.concatenate(found))
        rows = rows[rows + 1 < len(offset)]
        return np.asarray(rows[offset[rows + 1] - offset[rows] != 1])

    @lazy
    def steps_back(self) -> np.ndarray:
        """Returns bool[pairs of uneven_steps]: does the second read have no higher offset than the first?"""
        before, after = self.uneven_steps
        return np.asarray(self.reads["log_offset"][after] <= self.reads["log_offset"][before])

    def record_at(self, position: np.ndarray) -> dict[str, np.ndarray]:
        """Returns columns `other_*` of witnesses: the record of L(p) at each position. They are unset where the position
        is -1."""
        if not len(self.log.rows):
            return {}
        # Position -1 reads the record at 0, which `where` then replaces.
        there, slot = position >= 0, np.maximum(position, 0)
        row = self.log.rows[slot]
        columns = {"other_client": self.reads["sender"][row], "other_sequence": self.reads["sequence"][row]}
        columns |= {"other_offset": self.log.offset[slot], "other_ns": self.reads["read_ns"][row]}
        unset = {"other_ns": MISSING}
        return {name: np.where(there, values, unset.get(name, NONE)) for name, values in columns.items()}

    # Evidence for witnesses.

    def first_seen(self, key: np.ndarray, among: np.ndarray | None = None) -> np.ndarray:
        """Returns intp[k]: the row of `reads` by which a consumer (not the audit) first received each record, -1 if none
        did.

        `among`: the only rows that can matter, if the caller knows. O(rows · log k).
        """
        rows = np.flatnonzero(self.by_consumer) if among is None else among[self.read_by_consumer(among)]
        # Each record is looked for once, however often `key` names it; the last lines give all of its witnesses the answer.
        wanted = distinct(key)
        slot = Lookup(wanted).find(self.keys_of_reads(rows))
        rows, slot = rows[slot >= 0], slot[slot >= 0]
        order = np.lexsort((self.reads["read_ns"][rows], slot))
        rows, slot = rows[order], slot[order]
        # Rows are sorted by record and time: the first row of each record is when it was first received.
        new = differs_from_previous(slot)
        first = np.full(len(wanted), -1, dtype=np.intp)
        assert len(rows) == len(slot), "a record for each row"
        first[slot[new]] = rows[new]
        first[wanted == UNREADABLE] = -1  # two records that cannot be read are not one
        found: np.ndarray = first[np.searchsorted(wanted, key)]
        return found

    def seen(self, key: np.ndarray, among: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Returns columns `seen_ns` and `reader` of witnesses: when a consumer first received each record, and which
        one."""
        return self._facts_of_read(self.first_seen(key, among))

    def seen_at(self, key: np.ndarray, among: np.ndarray, offset: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the columns of `seen`, and `leader_epoch`: the epoch of the batch in which the record was read, at
        that very offset where one is known."""
        row = self.first_seen(key, among)
        # Where it was given at another offset than it is asked for, that epoch is of another batch.
        there = row >= 0
        there[there] = (offset[there] == NONE) | (self.reads["log_offset"][row[there]] == offset[there])
        epoch = np.full(len(key), NONE, dtype=np.int32)
        epoch[there] = self.reads["leader_epoch"][row[there]]
        return {**self._facts_of_read(row), "leader_epoch": epoch}

    def _facts_of_read(self, row: np.ndarray) -> dict[str, np.ndarray]:
        if not len(self.reads["read_ns"]):
            return {"seen_ns": np.full(len(row), MISSING), "reader": np.full(len(row), NONE)}
        return {
            "seen_ns": np.where(row >= 0, self.reads["read_ns"][row], MISSING),
            "reader": np.where(row >= 0, self.reads["client"][row], NONE),
        }

    def records_read(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Returns columns `client`, `sequence` and `log_offset` of witnesses: the records that these rows of `reads`
        show."""
        reads = self.reads
        return {
            "client": reads["sender"][rows],
            "sequence": reads["sequence"][rows],
            "log_offset": reads["log_offset"][rows],
        }

    def records_sent(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Returns columns `client`, `sequence` and `log_offset` of witnesses: the records of these rows of `sends`."""
        sends = self.sends
        return {
            "client": sends["client"][rows],
            "sequence": sends["sequence"][rows],
            "log_offset": sends["log_offset"][rows],
        }

    def sent(self, row: np.ndarray) -> dict[str, np.ndarray]:
        """Returns columns `begin_ns`, `end_ns` and `outcome` of witnesses for these rows of `sends`. They are unset
        where the row is -1."""
        if not len(self.sends["client"]):
            return {}
        columns = (
            ("begin_ns", "invoked_ns", MISSING),
            ("end_ns", "completed_ns", MISSING),
            ("outcome", "outcome", NONE),
        )
        return {name: np.where(row >= 0, self.sends[column][row], unset) for name, column, unset in columns}
