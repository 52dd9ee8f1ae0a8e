"""What the kernels share: the log as the audit read it, and one index per partition, built once and used by all of them.

The idea that makes it linear: offsets are dense, so "which record does the log hold where this observer saw one?" is an
array access. Whatever agrees with the log needs no further look; sorting is left for the few that do not.
"""

import numpy as np

from checkers.given import Given
from checkers.indexed import Indexed
from checkers.log_arrays import Identities, Log
from checkers.lookup import UNREADABLE, Lookup, differs_from_previous, distinct, identity_keys, lazy
from checkers.tombstones import Tombstones
from harness.plan import SENTINEL_CLIENT
from harness.protocols import PartitionHistory
from harness.schema import MISSING, NONE, Isolation, ReadFlag, Role

_FOREVER = np.iinfo(np.int64).max


class PartitionIndex(Indexed):
    """What several kernels need of one partition, each computed once, when first asked for."""

    def __init__(self, history: PartitionHistory) -> None:
        # Not the history itself: the cache must not keep it alive.
        self.partition = history.partition
        self.sends, self.reads = history.sends, history.reads
        self.client_role, self.client_isolation = history.client_role, history.client_isolation
        self.client_acks, self.client_issued = history.client_acks, history.client_issued
        self.audit_end, self.audited = history.audit_end, history.audited
        self.compacted, self.log_start = history.compacted, history.log_start

    # --- who -------------------------------------------------------------------------------------------------------

    def fact(self, table: np.ndarray, client: np.ndarray, *, unknown: int) -> np.ndarray:
        """`table[client]`, and `unknown` for whoever is no client of the trial."""
        if not len(table):
            return np.full(len(client), unknown, dtype=np.int64)
        known = (client >= 0) & (client < len(table))
        looked_up: np.ndarray = np.where(known, table[np.where(known, client, 0)], unknown)
        return looked_up

    @lazy
    def reader_runs(self) -> list[tuple[int, int, int]]:
        """(first row, row after the last, client) of each stretch of `reads` by one client."""
        client = self.reads["client"]
        starts = np.flatnonzero(differs_from_previous(client)).tolist()
        stops = [*starts[1:], len(client)] if starts else []
        return [(a, b, int(client[a])) for a, b in zip(starts, stops, strict=True)]

    def has(self, client: int, table: np.ndarray, value: int) -> bool:
        """Is `table[client]` this value? False for whoever is no client of the trial."""
        return 0 <= client < len(table) and int(table[client]) == value

    def audit_rows(self, isolation: Isolation) -> np.ndarray:
        """intp: rows of `reads` by the audit at this level, in the order of reading."""
        parts = [
            np.arange(a, b)
            for a, b, client in self.reader_runs
            if self.has(client, self.client_role, Role.AUDIT) and self.has(client, self.client_isolation, isolation)
        ]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.intp)

    @lazy
    def by_consumer(self) -> np.ndarray:
        """bool[reads]: given to a consumer, not to the audit."""
        consumer = np.ones(len(self.reads["client"]), dtype=bool)
        for a, b, client in self.reader_runs:
            consumer[a:b] = not self.has(client, self.client_role, Role.AUDIT)
        return consumer

    @lazy
    def records_read(self) -> int:
        """How many records were given to anyone, sentinels left out."""
        given = self.reads["sender"] != SENTINEL_CLIENT
        return int(np.count_nonzero(given if self.audited else given & self.by_consumer))

    @lazy
    def given(self) -> Given:
        """What consumers were given, whatever their isolation level."""
        return Given(self.read_key[self.by_consumer], self.reads["log_offset"][self.by_consumer])

    @lazy
    def given_committed(self) -> Given:
        """What read_committed consumers were given."""
        level = self.fact(self.client_isolation, self.reads["client"], unknown=Isolation.NOT_A_READER)
        rows = self.by_consumer & (level == Isolation.READ_COMMITTED)
        return Given(self.read_key[rows], self.reads["log_offset"][rows])

    # --- which record ----------------------------------------------------------------------------------------------

    @lazy
    def send_key(self) -> np.ndarray:
        """int64[sends]: identity; strictly ascending, because rows come in the order (client, sequence)."""
        key = identity_keys(self.sends["client"], self.sends["sequence"])
        assert not len(key) or key[0] >= 0, "a send of no client"
        assert (key[1:] > key[:-1]).all(), "sends are not in the order (client, sequence)"
        return key

    @lazy
    def _send_places(self) -> Lookup:
        return Lookup(self.send_key)

    def send_rows(self, key: np.ndarray) -> np.ndarray:
        """intp[k]: the row of `sends` of each record, -1 where none is recorded in this partition."""
        return self._send_places.find(key)

    @lazy
    def _acknowledged_at(self) -> np.ndarray:
        """intp[log + 1]: a row of `sends` that was acknowledged at each position of L(p), -1 = none; the last is -1."""
        found = np.full(len(self.log.rows) + 1, -1, dtype=np.intp)
        found[self.send_position] = np.arange(len(self.send_position))
        found[-1] = -1
        return found

    def sends_of_reads(self, rows: np.ndarray) -> np.ndarray:
        """intp[k]: the row of `sends` of the record that each of these rows of `reads` shows, -1 where none is recorded in
        this partition. Nearly all stand where they were acknowledged; the others are looked for."""
        if not len(self.send_key):
            return np.full(len(rows), -1, dtype=np.intp)
        key = self.read_key[rows]
        found: np.ndarray = self._acknowledged_at[self.log.positions.find(self.reads["log_offset"][rows])]
        other = np.flatnonzero((self.send_key[found] != key) | (found < 0))
        found[other] = self.send_rows(key[other])
        return found

    @lazy
    def read_key(self) -> np.ndarray:
        """int64[reads]: identity, UNREADABLE where the record was corrupt, or is a copy without an identity of its own."""
        flags = self.reads["flags"]
        unreadable = (flags & (ReadFlag.CORRUPT | ReadFlag.ANONYMOUS)) != 0 if flags.any() else None
        return identity_keys(self.reads["sender"], self.reads["sequence"], unreadable)

    # --- the log ---------------------------------------------------------------------------------------------------

    @lazy
    def log(self) -> Log:
        """L(p)."""
        return Log(self, Isolation.READ_UNCOMMITTED)

    @lazy
    def visible(self) -> Log:
        """V(p)."""
        return Log(self, Isolation.READ_COMMITTED)

    @lazy
    def identities(self) -> Identities:
        """The records of L(p)."""
        return Identities(self.log, self.reads["sender"][self.log.rows])

    def incomplete(self, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> str | None:
        """Why nothing can be concluded from what the audit does not show; None = it is complete."""
        if not self.audited:
            return f"nobody audited partition {self.partition}: an imported history"
        if isolation in self.audit_end:
            return None
        return f"the audit of partition {self.partition} at {isolation.name.lower()} did not reach its sentinel"

    @lazy
    def sentinel_ns(self) -> int | None:
        """When the sentinel that ends L(p) was sent: what happened before, happened to the log that the audit read."""
        rows = np.flatnonzero(self.sends["client"] == SENTINEL_CLIENT)
        at_end = rows[self.sends["log_offset"][rows] == self.audit_end.get(Isolation.READ_UNCOMMITTED, NONE)]
        rows = at_end if len(at_end) else rows
        return int(self.sends["invoked_ns"][rows].min()) if len(rows) else None

    @lazy
    def read_position(self) -> np.ndarray:
        """intp[reads]: position in L(p) of the offset read, -1 where L(p) has no record."""
        return self.log.positions.find(self.reads["log_offset"])

    @lazy
    def unmatched_reads(self) -> np.ndarray:
        """Rows of `reads` that L(p) does not confirm: another record at that offset, or none. Without sentinels and
        unreadable ones."""
        rows: np.ndarray = np.flatnonzero(~self.agrees(self.read_position, self.read_key))
        rows = rows[(self.reads["sender"][rows] != SENTINEL_CLIENT) & (self.read_key[rows] != UNREADABLE)]
        return rows

    @lazy
    def send_position(self) -> np.ndarray:
        """intp[sends]: position in L(p) of the acknowledged offset, -1 where unknown or without record."""
        return self.log.positions.find(self.sends["log_offset"])

    @lazy
    def send_confirmed(self) -> np.ndarray:
        """bool[sends]: L(p) has this record at the offset that was acknowledged."""
        return self.agrees(self.send_position, self.send_key)

    def agrees(self, position: np.ndarray, key: np.ndarray) -> np.ndarray:
        """bool[k]: does L(p) have these records at these positions (-1 = nowhere)?"""
        if not len(self.log.key):
            return np.zeros(len(key), dtype=bool)
        agrees: np.ndarray = self.log.key[position] == key  # -1 takes the last one; the next line mends it
        agrees &= position >= 0
        return agrees

    def concerns_log(self, rows: np.ndarray) -> np.ndarray:
        """bool[k]: must L(p) show what these rows of `reads` show? Up to the sentinel, and beyond it what was read before
        the sentinel was sent: the sentinel's lower offset proves that the log was cut. Later ones may stand behind it."""
        end = self.log.end
        assert end is not None, "ask only when the audit is complete"
        concerned: np.ndarray = self.reads["log_offset"][rows] <= end
        if self.sentinel_ns is not None:
            concerned |= self.reads["read_ns"][rows] < self.sentinel_ns
        return concerned

    @lazy
    def beyond(self) -> Lookup:
        """Identities that the audit was given behind the sentinel: not in L(p), but not gone either."""
        rows = self.audit_rows(Isolation.READ_UNCOMMITTED)
        end = self.log.end
        rows = rows[:0] if end is None else rows[self.reads["log_offset"][rows] > end]
        key = self.read_key[rows]
        return Lookup(distinct(key[key != UNREADABLE]))

    @lazy
    def unreadable_positions(self) -> bool:
        """Does L(p) hold records whose identity could not be read?"""
        return bool((self.log.key == UNREADABLE).any())

    # --- what a record says of itself --------------------------------------------------------------------------------

    def never_issued(self, rows: np.ndarray) -> np.ndarray:
        """bool[k]: rows of `reads` with a record that no producer issued: unknown client, or a sequence beyond its last.
        Past the rows of a producer that crashed it may have issued any: those are *unrecorded*, not phantoms."""
        sender, sequence = self.reads["sender"][rows], self.reads["sequence"][rows]
        limit = np.where(self.client_issued == NONE, _FOREVER, self.client_issued)
        limit = np.where((self.client_role == Role.PRODUCER) | (self.client_role == Role.MEMBER), limit, 0)
        readable = self.read_key[rows] != UNREADABLE
        phantom: np.ndarray = (sequence < 0) | (sequence >= self.fact(limit, sender, unknown=0))
        phantom &= readable & (sender != SENTINEL_CLIENT)
        return phantom

    def sent_elsewhere(self, rows: np.ndarray) -> np.ndarray:
        """bool[k]: rows of `reads` with a record that says it was sent to another partition."""
        said = self.reads["sent_partition"][rows]
        other: np.ndarray = (said != self.partition) & (said != NONE)
        other &= (self.read_key[rows] != UNREADABLE) & (self.reads["sender"][rows] != SENTINEL_CLIENT)
        return other

    def may_be_cleaned(self, *, record_key: np.ndarray, offset: np.ndarray, tombstone: np.ndarray) -> np.ndarray:
        """bool[k]: may retention or compaction have removed these records? An unknown offset (NONE) may be any.

        Compaction keeps the last record of each key, and drops tombstones after delete.retention.ms, so that of a deleted
        key nothing is left (https://kafka.apache.org/documentation/#compaction). Records without key are not compacted.
        """
        # Offset NONE is below any log start that moved; a log that still starts at 0 has lost nothing to retention.
        cleaned: np.ndarray = (offset < self.log_start) & (self.log_start > 0)
        if self.compacted and len(offset):
            ids = self.reads["key"][self.log.rows]
            order = np.argsort(ids, kind="stable")
            last = order[np.append(ids[order][1:] != ids[order][:-1], True)] if len(order) else order
            place = Lookup(ids[last]).find(record_key)
            later = place >= 0
            later[later] = self.log.offset[last[place[later]]] > offset[later]
            cleaned |= (record_key != NONE) & (later | tombstone | self.tombstones.behind(record_key, offset))
        return cleaned

    @lazy
    def tombstones(self) -> Tombstones:
        """Of the producers, not only of the log: expired ones are not there any more."""
        return Tombstones(self.sends)

    @lazy
    def uneven_steps(self) -> tuple[np.ndarray, np.ndarray]:
        """Pairs of rows of `reads`, (one, the next) of the same client and span with sentinels left out, whose offsets are
        not n, n+1: nearly none, and the only ones that can have skipped or gone back."""
        client, span, offset = self.reads["client"], self.reads["span"], self.reads["log_offset"]
        uneven = np.flatnonzero(np.diff(offset) != 1)
        sentinel = self.reads["sender"] == SENTINEL_CLIENT
        before, after = uneven, uneven + 1
        if sentinel.any():
            whole = ~(sentinel[before] | sentinel[after])
            edges = np.flatnonzero(np.diff(np.concatenate([[False], sentinel, [False]]).view(np.int8)))
            last, following = edges[0::2] - 1, edges[1::2]  # around each stretch of sentinels
            inside = (last >= 0) & (following < len(client))
            before = np.concatenate([before[whole], last[inside]])
            after = np.concatenate([after[whole], following[inside]])
            order = np.argsort(after, kind="stable")
            before, after = before[order], after[order]
        same = (client[before] == client[after]) & (span[before] == span[after])
        return before[same], after[same]

    def record_at(self, position: np.ndarray) -> dict[str, np.ndarray]:
        """Columns `other_*` of witnesses: the record of L(p) at each position; unset where it is -1."""
        if not len(self.log.rows):
            return {}
        there, place = position >= 0, np.maximum(position, 0)
        row = self.log.rows[place]
        columns = {"other_client": self.reads["sender"][row], "other_sequence": self.reads["sequence"][row]}
        columns |= {"other_offset": self.log.offset[place], "other_ns": self.reads["read_ns"][row]}
        unset = {"other_ns": MISSING}
        return {name: np.where(there, values, unset.get(name, NONE)) for name, values in columns.items()}

    # --- evidence for witnesses ------------------------------------------------------------------------------------

    def first_seen(self, key: np.ndarray, among: np.ndarray | None = None) -> np.ndarray:
        """intp[k]: the row of `reads` by which a consumer (not the audit) was first given each record, -1 = never.

        `among`: the only rows that can matter, if the caller knows. O(rows · log k).
        """
        rows = np.flatnonzero(self.by_consumer) if among is None else among[self.by_consumer[among]]
        wanted = distinct(key)
        place = Lookup(wanted).find(self.read_key[rows])
        rows, place = rows[place >= 0], place[place >= 0]
        order = np.lexsort((self.reads["read_ns"][rows], place))
        rows, place = rows[order], place[order]
        new = differs_from_previous(place)
        first = np.full(len(wanted), -1, dtype=np.intp)
        first[place[new]] = rows[new]
        first[wanted == UNREADABLE] = -1
        found: np.ndarray = first[np.searchsorted(wanted, key)]
        return found

    def seen(self, key: np.ndarray, among: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Columns `seen_ns` and `reader` of witnesses: when and by whom each record was first seen, `first_seen`."""
        return self._reads_told(self.first_seen(key, among))

    def seen_at(self, key: np.ndarray, among: np.ndarray, offset: np.ndarray) -> dict[str, np.ndarray]:
        """The same, and `leader_epoch`: of the batch in which it was seen, at that very offset where one is known."""
        row = self.first_seen(key, among)
        there = row >= 0
        there[there] = (offset[there] == NONE) | (self.reads["log_offset"][row[there]] == offset[there])
        epoch = np.full(len(key), NONE, dtype=np.int32)
        epoch[there] = self.reads["leader_epoch"][row[there]]
        return {**self._reads_told(row), "leader_epoch": epoch}

    def _reads_told(self, row: np.ndarray) -> dict[str, np.ndarray]:
        if not len(self.reads["read_ns"]):
            return {"seen_ns": np.full(len(row), MISSING), "reader": np.full(len(row), NONE)}
        return {
            "seen_ns": np.where(row >= 0, self.reads["read_ns"][row], MISSING),
            "reader": np.where(row >= 0, self.reads["client"][row], NONE),
        }

    def sent(self, row: np.ndarray) -> dict[str, np.ndarray]:
        """Columns `begin_ns`, `end_ns` and `outcome` of witnesses: of these rows of `sends`; unset where the row is -1."""
        if not len(self.sends["client"]):
            return {}
        columns = (
            ("begin_ns", "invoked_ns", MISSING),
            ("end_ns", "completed_ns", MISSING),
            ("outcome", "outcome", NONE),
        )
        return {name: np.where(row >= 0, self.sends[column][row], unset) for name, column, unset in columns}
