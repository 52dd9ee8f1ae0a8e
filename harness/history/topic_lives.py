"""Finds out which topic of a name each recorded row is about, where steps of a trial deleted topics and made them again.

Clients know a topic by its name, and write down the id of the first partition that has it. The controllers' log knows the
topics apart (KIP-516), and the audit read the last one. A row gets the id of the partition of its topic:

* A send that was acknowledged was in a log by then: it is of a topic that had been made when it was acknowledged, the last of
  these. One that may have been in the log before that all the same (it was under way when that topic was deleted) stays with
  the later topic, and the judge knows that it is in doubt (`prozess.harness.guarantees.facts.retention`). But one that was
  acknowledged just after the later topic was made, at an offset which that topic's first leader gave to a record again that
  was sent afterwards, is of the topic before: the log of the later one was not as long by then.
* A send that was not acknowledged is of the topic that was there when it was invoked, unless the audit read its record in the
  last one, or somebody received it after that one was made.
* A consumer may have been given a record late, out of its buffer: that is certain, and counts, where the record had been
  acknowledged at that very offset before the next topic was made.
* An assignment, and a span of reading, is of the name: of each topic that has it while it holds. With group.protocol=consumer
  the coordinator assigns ids of topics (KIP-848): a partition that is taken away soon after the next topic was made was of
  the one before, and may have been given to somebody else in the next one by then.
* Everything else goes by its time.

A record that the audit read in the last topic although it had been acknowledged before that topic was made is of an earlier
one: its `sent_partition` says so, and `misplaced` finds it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from prozess.harness.history.client_lives import among
from prozess.harness.plan.plan import Plan
from prozess.harness.recording.topic_lives import lives_of
from prozess.harness.schema import MISSING, NONE, MetadataKind, MetadataSource, Outcome, Table

DEPOSED_NS = 1_000_000_000
"""How long after its deletion a topic may still have taken records: brokers are informed of it by then."""
TAKEN_BACK_NS = 10_000_000_000
"""How long after a topic was made a member may learn that it has lost the one before: by a heartbeat, or the one after."""
FOREVER = np.iinfo(np.int64).max
TIME_OF = {
    "processed": "started_ns", "deliveries": "acquired_ns", "commits": "invoked_ns", "assignments": "started_ns",
    "positions": "time_ns", "observations": "time_ns", "withheld": "begun_ns", "messages": "time_ns", "metrics": "time_ns",
    "metadata": "time_ns", "replicas": "read_ns", "snapshots": "read_ns", "remote_segments": "read_ns",
}  # fmt: skip
"""Table → the time by which its rows belong to a topic. `sends` and `reads` have rules of their own."""
OF_THE_LAST = ("group_states", "share_states")
"""Tables whose rows were made from ids of topics: what they name is there at the end."""
CARRIED = {"assignments": (1, 2, 3, 4), "positions": (1, 2, 3)}
"""Table → the events after which a client has a partition, by its name, or has it no more (`prozess.harness.schema`)."""
ASSIGNED, RESET = 1, 3
"""Values of `positions.event`."""
ENDS = {"assignments": (2, 3, 4), "positions": ()}
_SEQUENCE_BITS = 40

RowsOf = Callable[[str], Iterable[tuple[int, np.ndarray]]]
"""Returns (client, rows as they were recorded) of a table, one after the other."""


@dataclass(frozen=True)
class NamedTopics:
    """The topics that one name stood for, as far as one partition of theirs goes: arrays of one length, in order."""

    dense: np.ndarray
    """int32: the id of the partition of each."""
    created_ns: np.ndarray
    """int64: when each was made; the first was there before everything else."""
    deleted_ns: np.ndarray
    """int64: when each was deleted, FOREVER = the controllers' log says nothing of it."""
    led_until_ns: np.ndarray
    """int64: when the first leader of each was replaced, FOREVER = never. Until then its log only grows."""

    def at(self, time_ns: np.ndarray) -> np.ndarray:
        """Returns intp[n]: which topic had been made last at these times."""
        return np.asarray(np.searchsorted(self.created_ns[1:], time_ns, side="right"))

    def invoked_in(self, time_ns: np.ndarray) -> np.ndarray:
        """Returns intp[n]: the topic that a send can have met which was invoked then. Where none was there, the next."""
        there = self.at(time_ns)
        gone = time_ns > np.minimum(self.deleted_ns[there], FOREVER - DEPOSED_NS) + DEPOSED_NS
        return np.asarray(np.minimum(there + gone, len(self.dense) - 1))


def topics_of(rows: Mapping[str, np.ndarray], dense: Sequence[int]) -> NamedTopics | None:
    """Returns the topics of a name by the rows of `metadata` of one partition; None if it stood for one. `dense`: the ids of
    the partitions that were planned for them. NamedTopics beyond the plan have the last id."""
    truth = _in_controllers_log(rows)
    mine = {name: column[truth] for name, column in rows.items()}
    life = lives_of(mine)
    if not len(life) or life[-1] == 0:
        return None
    time_ns = np.maximum.accumulate(mine["time_ns"])
    numbers = np.arange(life[-1] + 1)
    first = np.searchsorted(life, numbers)
    deleted = np.full(len(numbers), FOREVER)
    gone = np.flatnonzero(mine["kind"] == MetadataKind.DELETED)[::-1]
    deleted[life[gone]] = time_ns[gone]  # of several the first stays
    planned = np.array(dense, dtype=np.int32)[np.minimum(numbers, len(dense) - 1)]
    led_until = np.full(len(numbers), FOREVER)
    replaced = np.flatnonzero(mine["leader_epoch"] > mine["leader_epoch"][first[life]])[::-1]
    led_until[life[replaced]] = time_ns[replaced]
    return NamedTopics(planned, time_ns[first], deleted, led_until)


def _in_controllers_log(rows: np.ndarray | Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns intp[n]: which rows of `metadata` are of partitions, and their ends, in the controllers' log, in its order."""
    truth = np.flatnonzero(
        (rows["source"] == MetadataSource.CONTROLLER_LOG)
        & np.isin(rows["kind"], (MetadataKind.PARTITION, MetadataKind.DELETED))
    )
    return np.asarray(truth[np.argsort(rows["log_position"][truth], kind="stable")])


def keys_of(client: np.ndarray | int, sequence: np.ndarray) -> np.ndarray:
    """Returns int64[n]: client and sequence as one number, which identifies a record."""
    return np.asarray((np.asarray(client, dtype=np.int64) << _SEQUENCE_BITS) | sequence)


class TopicLives:
    """Says of each recorded row which partition of the plan it is about."""

    def __init__(self, plan: Plan, rows_of: RowsOf, *, error_ns: int) -> None:
        """`error_ns`: how far times of the controllers' log may be off from all others."""
        self._rows_of, self._error_ns = rows_of, error_ns
        ids = {
            cell.cell
            for cell in plan.cells
            if cell.group is not None and cell.group.configuration.protocol == "consumer"
        }
        self._by_id = frozenset(client.client for client in plan.clients if client.cell in ids)
        """Members whose coordinator assigns ids of topics."""
        groups = {cell.cell: cell.group.configuration for cell in plan.cells if cell.group is not None}
        self._earliest = frozenset(
            client.client
            for client in plan.clients
            if client.cell in groups and groups[client.cell].auto_offset_reset == "earliest"
        )
        """Members that a reset leads to the beginning."""
        self._audits = frozenset(client.client for client in plan.clients if client.role == "audit")
        named: dict[tuple[str, int], list[int]] = {}
        for planned in plan.partitions:
            named.setdefault((planned.topic_name, planned.number), []).append(planned.partition)
        several = {dense[0]: dense for dense in named.values() if len(dense) > 1}
        metadata = self._columns("metadata", several)
        self.topics: dict[int, NamedTopics] = {}
        for partition, dense in several.items():
            mine = metadata["partition"] == partition
            found = topics_of({name: column[mine] for name, column in metadata.items()}, dense)
            if found is not None:
                self.topics[partition] = found

    def rekeyed(self, table: Table, client: int, rows: np.ndarray) -> np.ndarray:
        """Returns the same rows, as a client recorded them, with the ids of the partitions of their topics."""
        if not self.topics or "partition" not in (rows.dtype.names or ()):
            return rows
        if table.name in CARRIED:
            rows = self._carried(table.name, client, rows, by_id=client in self._by_id)
        changed = rows.copy()
        for partition, topics in self.topics.items():
            chosen = np.flatnonzero(rows["partition"] == partition)
            if len(chosen):
                self._rekey(table.name, client, rows[chosen], chosen, changed, topics)
        return changed

    def _rekey(
        self, table: str, client: int, mine: np.ndarray, chosen: np.ndarray, changed: np.ndarray, topics: NamedTopics
    ) -> None:
        partition = int(mine["partition"][0])
        if table == "sends":
            life = self._life_of_sends(partition, keys_of(client, mine["sequence"]), mine)
        elif table == "reads":
            life, sent = self._life_of_reads(partition, mine, by_audit=client in self._audits)
            own = mine["sent_partition"] == partition
            changed["sent_partition"][chosen[own]] = topics.dense[sent[own]]
        elif table == "metadata":
            life = _life_of_metadata(mine, topics)
        elif table in OF_THE_LAST:
            life = np.full(len(mine), len(topics.dense) - 1)
        else:
            life = topics.at(mine[TIME_OF[table]])
        changed["partition"][chosen] = topics.dense[life]

    def _carried(self, table: str, client: int, rows: np.ndarray, *, by_id: bool) -> np.ndarray:
        """Returns the rows of a client in order, and behind each event that still held when a topic was made a row of that
        moment: assignments and spans are of the name, so of each topic that has it while they hold. The position in the new
        topic is its beginning: where that is certain, a reset counts as an assignment there. Loops run over topics, and a
        client has a few events in each."""
        time = TIME_OF[table]
        added, at = [], []
        for partition, topics in self.topics.items():
            mine = np.flatnonzero((rows["partition"] == partition) & np.isin(rows["event"], CARRIED[table]))
            for created_ns in topics.created_ns[1:].tolist():
                before = mine[rows[time][mine] < created_ns]
                if not len(before) or rows["event"][before[-1]] in ENDS[table]:
                    continue
                after = mine[len(before) : len(before) + 1]
                if (
                    by_id
                    and len(after)
                    and rows["event"][after[0]] in ENDS[table]
                    and rows[time][after[0]] < created_ns + TAKEN_BACK_NS
                ):
                    continue
                row = rows[before[-1] : before[-1] + 1].copy()
                for column in ("started_ns", "done_ns", "time_ns"):
                    if column in (rows.dtype.names or ()):
                        row[column] = created_ns
                if table == "positions":
                    row["log_offset"] = 0
                    if row["event"] == RESET and self._must_begin_anew(client, partition, created_ns):
                        row["event"] = ASSIGNED
                added.append(row)
                at.append(int(np.searchsorted(rows[time], created_ns)))
        if not added:
            return rows
        order = np.argsort(at, kind="stable")
        return np.insert(rows, np.array(at)[order], np.concatenate(added)[order])

    def _must_begin_anew(self, client: int, partition: int, created_ns: int) -> bool:
        """Says whether a member was further in the topic before than the last one ever was long: its position is beyond the
        end of that one, and a reset leads it to the beginning. [Kafka documentation, auto.offset.reset]"""
        ends = self._last_log[partition][0]
        if client not in self._earliest or created_ns != self.topics[partition].created_ns[-1] or not len(ends):
            return False
        rows = next((rows for one, rows in self._rows_of("reads") if one == client), None)
        if rows is None:
            return False
        before = rows["log_offset"][(rows["partition"] == partition) & (rows["read_ns"] < created_ns)]
        return bool(len(before)) and int(before[-1]) > int(ends[-1])

    # Sends and reads.

    def _life_of_sends(self, partition: int, key: np.ndarray, sends: np.ndarray) -> np.ndarray:
        topics = self.topics[partition]
        acknowledged = (sends["outcome"] == Outcome.OK) & (sends["completed_ns"] != MISSING)
        life = np.where(
            acknowledged,
            self._sent[partition].growth.topic_of(sends),
            topics.invoked_in(sends["invoked_ns"]),
        )
        # Example: topics from 0 s and from 10 s. Acknowledged at 9 s: the first, whatever the audit read. Not acknowledged,
        # invoked at 9 s: the first, unless the audit read it in the second.
        later = among(key, self._last_log[partition][1]) | among(key, self._received_late[partition])
        return np.where(~acknowledged & later, len(topics.dense) - 1, life)

    def _life_of_reads(self, partition: int, reads: np.ndarray, *, by_audit: bool) -> tuple[np.ndarray, np.ndarray]:
        """Returns, for each read, which topic it was read from, and to which its record was sent."""
        topics, sent = self.topics[partition], self._sent[partition]
        life = topics.at(reads["read_ns"] + self._error_ns)
        key = keys_of(reads["sender"], reads["sequence"])
        row = _find(sent.key, key)
        certain, offset = np.full(len(row), NONE, dtype=np.int64), np.full(len(row), NONE, dtype=np.int64)
        certain[row >= 0], offset[row >= 0] = sent.certain[row[row >= 0]], sent.log_offset[row[row >= 0]]
        early = (certain != NONE) & (certain < life)
        if not by_audit:
            late = early & (offset == reads["log_offset"]) & ~self._in_last_log(partition, reads["log_offset"], key)
            life = np.where(late, certain, life)
        return life, np.where(early, certain, life)

    def _in_last_log(self, partition: int, offset: np.ndarray, key: np.ndarray) -> np.ndarray:
        offsets, keys = self._last_log[partition][0], self._last_log[partition][2]
        found = _find(offsets, offset)
        return np.asarray((found >= 0) & (keys[found] == key)) if len(offsets) else np.zeros(len(offset), dtype=bool)

    @cached_property
    def _last_log(self) -> Mapping[int, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """What the audit read of each partition, which is of the last topic: offsets, ascending; all records, as
        ascending keys; and the record at each offset."""
        parts: dict[int, list[np.ndarray]] = {partition: [] for partition in self.topics}
        for client, rows in self._rows_of("reads"):
            if client in self._audits:
                for partition in parts:
                    parts[partition].append(rows[rows["partition"] == partition])
        found = {}
        for partition, pieces in parts.items():
            offset = np.concatenate([_NO_KEYS, *(rows["log_offset"] for rows in pieces)])
            key = np.concatenate([_NO_KEYS, *(keys_of(rows["sender"], rows["sequence"]) for rows in pieces)])
            offsets, first = np.unique(offset, return_index=True)
            found[partition] = (offsets, np.unique(key), key[first])
        return found

    @cached_property
    def _received_late(self) -> Mapping[int, np.ndarray]:
        """Returns the records, as ascending keys, that consumers were given after the last topic had been made."""
        parts: dict[int, list[np.ndarray]] = {partition: [] for partition in self.topics}
        for client, rows in self._rows_of("reads"):
            if client in self._audits:
                continue
            for partition, topics in self.topics.items():
                late = (rows["partition"] == partition) & (rows["read_ns"] > topics.created_ns[-1] + self._error_ns)
                parts[partition].append(keys_of(rows["sender"][late], rows["sequence"][late]))
        return {p: np.unique(np.concatenate(pieces or [_NO_KEYS])) for p, pieces in parts.items()}

    @cached_property
    def _sent(self) -> "Mapping[int, _SentRecords]":
        parts: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {partition: [] for partition in self.topics}
        for client, rows in self._rows_of("sends"):
            for partition in parts:
                mine = rows[rows["partition"] == partition]
                parts[partition].append((keys_of(client, mine["sequence"]), mine))
        return {partition: self._sent_to(self.topics[partition], pieces) for partition, pieces in parts.items()}

    def _sent_to(self, topics: NamedTopics, pieces: Sequence[tuple[np.ndarray, np.ndarray]]) -> "_SentRecords":
        if not pieces:
            return _SentRecords(_NO_KEYS, _NO_KEYS, _NO_KEYS, _Growth(topics, self._error_ns, ()))
        key, rows = np.concatenate([keys for keys, _ in pieces]), np.concatenate([rows for _, rows in pieces])
        order = np.argsort(key, kind="stable")
        key, rows = key[order], rows[order]
        acknowledged = (rows["outcome"] == Outcome.OK) & (rows["completed_ns"] != MISSING)
        growth = _Growth.of(topics, rows[acknowledged], self._error_ns)
        return _SentRecords(key, np.where(acknowledged, growth.topic_of(rows), NONE), rows["log_offset"], growth)

    def _columns(self, table: str, partitions: Mapping[int, object]) -> dict[str, np.ndarray]:
        wanted = np.array(list(partitions), dtype=np.int32)
        parts = [rows[np.isin(rows["partition"], wanted)] for _, rows in self._rows_of(table)]
        ids = ("topic_id_high", "topic_id_low", "leader_epoch")
        names = ("time_ns", "log_position", "partition", "kind", "source", *ids)
        return {name: np.concatenate([_NO_KEYS, *(rows[name] for rows in parts)]) for name in names}


@dataclass(frozen=True, slots=True)
class _Growth:
    """How the logs of topics of one name grew under their first leaders."""

    topics: NamedTopics
    error_ns: int
    by_topic: Sequence[tuple[np.ndarray, np.ndarray]]
    """For each topic: times of sends, ascending, and the least offset that it gave to one of these or of those after it."""

    @staticmethod
    def of(topics: NamedTopics, sends: np.ndarray, error_ns: int) -> "_Growth":
        """`sends`: all that were acknowledged."""
        life, found = topics.at(sends["completed_ns"] + error_ns), []
        for number, until_ns in enumerate(topics.led_until_ns.tolist()):  # a few topics
            mine = sends[(life == number) & (sends["log_offset"] >= 0) & (sends["completed_ns"] < until_ns - error_ns)]
            mine = mine[np.argsort(mine["invoked_ns"], kind="stable")]
            found.append((mine["invoked_ns"].copy(), np.minimum.accumulate(mine["log_offset"][::-1])[::-1]))
        return _Growth(topics, error_ns, found)

    def topic_of(self, sends: np.ndarray) -> np.ndarray:
        """Returns intp[n]: of which topic each of these sends is, if it was acknowledged.

        Example: topics from 0 s and from 10 s. A send is acknowledged at 10.003 s with offset 367, and one that begins at
        10.2 s with offset 12. The log of the second topic had no 367 at 10.003 s: the first send is of the first topic."""
        completed_ns, life = sends["completed_ns"], self.topics.at(sends["completed_ns"] + self.error_ns)
        soon = (life > 0) & (completed_ns < self.topics.created_ns[life] + DEPOSED_NS) & (sends["log_offset"] >= 0)
        for number, (invoked_ns, least) in enumerate(self.by_topic):
            mine = np.flatnonzero(soon & (life == number))
            after = np.searchsorted(invoked_ns, completed_ns[mine], side="right")
            mine, after = mine[after < len(least)], after[after < len(least)]
            life[mine[least[after] <= sends["log_offset"][mine]]] -= 1
        return life


@dataclass(frozen=True, slots=True)
class _SentRecords:
    """The sends to a partition, ascending by `key`. `certain`: the latest topic that each can be of, by its
    acknowledgement; NONE = it was not acknowledged."""

    key: np.ndarray
    certain: np.ndarray
    log_offset: np.ndarray
    growth: _Growth


_NO_KEYS = np.empty(0, dtype=np.int64)


def _life_of_metadata(rows: np.ndarray, topics: NamedTopics) -> np.ndarray:
    """Rows of the controllers' log go by their topic id and their place; samples by their time."""
    life = topics.at(rows["time_ns"])
    truth = _in_controllers_log(rows)
    life[truth] = lives_of({name: rows[name][truth] for name in ("kind", "topic_id_high", "topic_id_low")})
    for row in np.flatnonzero(rows["kind"] == MetadataKind.ON_DISK).tolist():  # as many as there are directories
        own = truth[
            (rows["topic_id_high"][truth] == rows["topic_id_high"][row])
            & (rows["topic_id_low"][truth] == rows["topic_id_low"][row])
        ]
        if len(own):
            life[row] = life[own[0]]
    return life


def _find(ascending: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Returns intp[n]: where each value stands, -1 where it does not."""
    if not len(ascending):
        return np.full(len(values), -1, dtype=np.intp)
    index = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    return np.where(ascending[index] == values, index, -1)
