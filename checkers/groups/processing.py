"""These kernels check that a consumer group processes every record, also through its retry topic, and that its committed
offsets agree with that."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from prozess.checkers.groups.assignments import (
    AT_ASSIGNMENT,
    CLOSE,
    END_OF_TIME_NS,
    LOST,
    RESET,
    REVOKE,
    SOUGHT,
    MemberEvents,
    Members,
    OwnershipResult,
    group_of,
    one_instance_may_be_two,
    over_partitions,
    span_keys,
    spans_of,
)
from prozess.checkers.groups.owners_and_commits import Commits
from prozess.checkers.log.leadership import made_at_ns
from prozess.checkers.lookup import (
    UNREADABLE,
    Lookup,
    ascends,
    differs_from_next,
    differs_from_previous,
    distinct,
    identity_keys,
)
from prozess.checkers.partition_index import PartitionIndex
from prozess.checkers.partition_log import Log, grouped_by_client
from prozess.harness.columns import rows_of
from prozess.harness.interfaces.checking import CellHistory, KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import GroupCase, make_witnesses, no_witnesses
from prozess.harness.plan.plan import Cell
from prozess.harness.schema import MISSING, NONE, Isolation, ObservationKind, Outcome

# What a group's retry topic says of the records whose processing failed: which were handed on, by whom, and how often.
#
# A record that was handed on is judged there: it counts as done in its own partition as soon as the retry topic has it.
# The partitions of both topics are paired by their number. `reads.origin` says which record a record of the retry topic
# was.


def retry_of(cell: Cell) -> dict[int, int]:
    """Returns the retry partition of each partition (dense ids). Empty if the group has no retry topic."""
    if cell.group is None or not cell.group.configuration.hands_on:
        return {}
    return dict(zip(cell.written, cell.derived, strict=True))


class RetryPartition:
    """The retry partition of one partition: the records whose processing failed and that were handed on to it."""

    def __init__(self, history: CellHistory, source: int, retry: int) -> None:
        self._index = PartitionIndex.of(history.partitions[retry])
        self._processed, self._source, self._retry = history.tables["processed"], source, retry
        key, origin = self._index.read_key, self._index.reads["origin"]
        rows = np.flatnonzero((key >= 0) & (origin >= 0))
        # A record of the retry topic is read by several, audits included: each once, as one of its reads has it.
        rows = rows[np.argsort(key[rows], kind="stable")]
        assert len(rows) == 0 or int(key[rows[0]]) >= 0, "only readable records have an origin"
        rows = rows[differs_from_previous(key[rows])]
        self._keys, self._origin = Lookup(key[rows]), origin[rows]

    def incomplete(self, level: Isolation) -> str | None:
        """Returns why a record may be there although the audit did not show it. None: the audit is complete."""
        return self._index.incomplete(level)

    def has(self, key: np.ndarray, level: Isolation) -> np.ndarray:
        """Returns bool[n]: does the retry partition have each of these records (identity keys), or was the record
        processed from there?"""
        log = self._index.visible if level is Isolation.READ_COMMITTED else self._index.log
        done = self._origin_of(self._done())
        origin = np.concatenate([self._index.reads["origin"][log.rows], done])
        return np.asarray(Lookup(distinct(origin[origin >= 0])).find(key) >= 0)

    def left_behind(self, offset: np.ndarray) -> np.ndarray:
        """Returns bool[n]: after the last attempt at the record of each offset, did the member send something to the
        retry topic of which it is not known that it arrived?"""
        table, sends = self._processed, self._index.sends
        lost = (sends["outcome"] != Outcome.OK.value) & (
            Lookup(distinct(self._index.read_key)).find(self._index.send_key) < 0
        )
        tried = np.flatnonzero((table["partition"] == self._source) & (table["done_ns"] == MISSING))
        tried = tried[np.lexsort((table["started_ns"][tried], table["log_offset"][tried]))]
        # Sorted by offset, then by time: the last attempt at each offset is the one that a lost copy would follow.
        tried = tried[differs_from_next(table["log_offset"][tried])]
        slot = Lookup(table["log_offset"][tried]).find(offset)
        found = np.zeros(len(offset), dtype=bool)
        if not len(tried):
            return found
        rows = tried[slot]  # -1 takes the last one, and `slot >= 0` drops it
        for client in distinct(sends["client"][lost]).tolist():  # members
            sent_ns = sends["invoked_ns"][lost & (sends["client"] == client)].max()
            found |= (slot >= 0) & (table["client"][rows] == client) & (table["started_ns"][rows] <= sent_ns)
        return found

    def repeated(self) -> "Repeated":
        """Returns the records that were processed in more than one way: in their own partition and from the retry topic,
        or from two offsets of the retry topic."""
        table = self._processed
        own = np.flatnonzero((table["partition"] == self._source) & (table["done_ns"] != MISSING))
        handed = self._done()
        # Own steps first, then those from the retry topic: four arrays in step with one another, by which record it was, when
        # it was done, after which attempt, and by which send it was handed on.
        origin = np.concatenate([identity_keys(table["sender"][own], table["sequence"][own]), self._origin_of(handed)])
        attempt, sent = self._attempts(handed)
        rows = np.concatenate([own, handed])
        attempt, sent = np.concatenate([own, attempt]), np.concatenate([np.full(len(own), NONE), sent])
        from_retry = np.arange(len(rows)) >= len(own)
        order = np.lexsort((table["done_ns"][rows], origin))
        order = order[origin[order] >= 0]
        one, other = order[:-1], order[1:]
        # Steps of one record side by side, by when they were done. Two in its own partition repeat an offset: they are found
        # without this. Here at least one of the two came from the retry topic.
        again = np.flatnonzero((origin[one] == origin[other]) & (from_retry[one] | from_retry[other]))
        before, after = order[again], order[again + 1]
        outcome = self._index.sends["outcome"]
        known = sent[before] >= 0
        unconfirmed = np.zeros(len(before), dtype=bool)
        unconfirmed[known] = outcome[sent[before][known]] != Outcome.OK.value
        return Repeated(rows[before], rows[after], attempt[before], attempt[after], unconfirmed)

    def _done(self) -> np.ndarray:
        """Returns the rows of `processed` by which each record of the retry partition was processed first."""
        table = self._processed
        rows = np.flatnonzero((table["partition"] == self._retry) & (table["done_ns"] != MISSING))
        key = identity_keys(table["sender"][rows], table["sequence"][rows])
        order = np.lexsort((table["done_ns"][rows], key))
        return np.asarray(rows[order[differs_from_previous(key[order])]])

    def _origin_of(self, rows: np.ndarray) -> np.ndarray:
        """Returns int64[n]: which record each of these rows of `processed` was originally. NONE: it does not say."""
        key = identity_keys(self._processed["sender"][rows], self._processed["sequence"][rows])
        slot = self._keys.find(key)
        origin = np.full(len(rows), NONE, dtype=np.int64)
        origin[slot >= 0] = self._origin[slot[slot >= 0]]
        return origin

    def _attempts(self, handed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns, for rows of `processed` from the retry partition, the row of the attempt that failed and the row of
        `sends`. NONE: not known. The attempt is the sender's last one before it sent."""
        table, sends = self._processed, self._index.sends
        sent = self._index.send_rows(identity_keys(table["sender"][handed], table["sequence"][handed]))
        tried = np.flatnonzero((table["partition"] == self._source) & (table["done_ns"] == MISSING))
        sent_ns = np.full(len(handed), MISSING, dtype=np.int64)
        sent_ns[sent >= 0] = sends["invoked_ns"][sent[sent >= 0]]
        client = np.concatenate([table["client"][tried], table["sender"][handed]])
        key = np.concatenate([identity_keys(table["sender"][tried], table["sequence"][tried]), self._origin_of(handed)])
        time_ns = np.concatenate([table["started_ns"][tried], sent_ns])
        query = np.arange(len(client)) >= len(tried)
        order = np.lexsort((query, time_ns, key, client))
        # Example: attempts of record 5 by member 1 at 1 s and 4 s, and it sent 5 to the retry topic at 6 s. In order these
        # are attempt, attempt, query; the running maximum of the attempts' indices is 0, 1, 1: the query's attempt is that at
        # 4 s.
        last = np.maximum.accumulate(np.where(query[order], -1, np.arange(len(order))))
        before = order[np.maximum(last, 0)] if len(order) else order
        # What is carried on may be of another member or of another record, which then tried this one never.
        fits = (last >= 0) & (client[before] == client[order]) & (key[before] == key[order]) & ~query[before]
        found = np.full(len(client), NONE, dtype=np.intp)
        found[order[fits]] = before[fits]
        found = found[len(tried) :]
        return np.where(found >= 0, tried[np.maximum(found, 0)] if len(tried) else NONE, NONE), sent


@dataclass(frozen=True, slots=True)
class Repeated:
    """Pairs of processing steps of one record, by rows of `processed`. All arrays have one length."""

    before: np.ndarray
    after: np.ndarray
    attempt_before: np.ndarray
    """The attempt in the record's own partition after which it was handed on first. NONE: not known."""
    attempt_after: np.ndarray
    unconfirmed: np.ndarray
    """bool: was the sender of the first copy not informed that it arrived?"""


# What Kafka promises consumer groups about their work: each record is processed, and committed offsets agree with that.
# Ownership is judged in `prozess.checkers.groups.owners_and_commits`.
#
# Delivery is judged by what members processed and committed over the whole life of the group, whichever member it was.
# Causes are named by `case` (`prozess.harness.interfaces.witnesses.GroupCase`). The guarantee table says what is
# permitted.


def unprocessed(history: CellHistory) -> KernelResult:
    """Every record between the first position of the group and its greatest committed offset was processed by a member.

    Source: Kafka documentation, design, "Message Delivery Semantics" (at most once, at least once); KafkaConsumer, "Offsets
    and Consumer Position" (the committed position is the next to read). Only records that the members' isolation level
    shows count, by the audit, which must be complete. A step that was begun and never finished has processed nothing, and
    one that names another record than the log has at its offset has not processed that one: MISTAKEN (`other_*`),
    wherever the group has committed. Witness: the record; `reader` is the member that it was last delivered to, at
    `seen_ns`; `case`: CRASHED, RELEASED (what that member then did), RESET (a later reset decided a position beyond it,
    before anything beyond it was committed), OF_ANOTHER_TOPIC (nobody was given it, for the group began beyond it with what
    a member had committed for the topic before), LEFT_BEHIND (sent to the retry topic, which never acknowledged it), else
    NO_CAUSE. What the retry topic has is judged there. Groups that commit nothing are not judged.
    O(n log n).

    Example: the log is [a b c d], the group began at 0, and its greatest commit is 3. Members finished steps of a and c: b
    counts. d stands at 3, which the group has not committed.
    """
    if _commit_mode(history) == "none":
        return KernelResult(no_witnesses(), count=0, judged=0)
    return over_partitions(history, _unprocessed)


def _unprocessed(history: CellHistory, partition: PartitionHistory, members: Members) -> OwnershipResult:
    group = group_of(history.cell).configuration
    level = Isolation.READ_COMMITTED if group.isolation_level == "read_committed" else Isolation.READ_UNCOMMITTED
    index = PartitionIndex.of(partition)
    log = index.visible if level is Isolation.READ_COMMITTED else index.log
    commits = Commits(history, partition.partition)
    top = commits.greatest()
    start = group_start(history, partition.partition)
    # Positions of the log between the two offsets: it has no record at a transaction's marker, so offsets do not say how
    # many.
    low, high = np.searchsorted(log.offset, [start, top]) if top > start else (0, 0)
    processed = history.tables["processed"]
    done = _Done.of(processed, partition, log)
    # Owed: positions from the group's begin to its greatest commit. Mistaken steps elsewhere count as well.
    left = ~done.rightly[low:high]  # counts from `low`
    beyond = np.concatenate([done.mistaken[done.mistaken < low], done.mistaken[done.mistaken >= high]])
    slot = np.sort(np.concatenate([low + np.flatnonzero(left), beyond]))
    judged = int(high - low) + len(beyond)
    retry = retry_of(history.cell).get(partition.partition)
    handed = None if retry is None else RetryPartition(history, partition.partition, retry)
    if handed is not None:
        slot = slot[~handed.has(index.read_key[log.rows[slot]], level)]
    offset = log.offset[slot]
    member, seen_ns = _last_delivered(partition, members, offset)
    assert len(slot) == len(offset) == len(member), "an entry for each record that is owed"
    case = _why_not(history, commits, members, offset, member, seen_ns)
    foreign = _of_the_topic_before(history, partition, members, offset, member)
    case[foreign & (case == GroupCase.NO_CAUSE)] = GroupCase.OF_ANOTHER_TOPIC
    if handed is not None:
        case[handed.left_behind(offset)] = GroupCase.LEFT_BEHIND
    instead = done.instead(slot)
    case[instead >= 0] = GroupCase.MISTAKEN
    rows = log.rows[slot]
    witnesses = make_witnesses(
        len(offset),
        {
            "partition": partition.partition,
            "client": partition.reads["sender"][rows],
            "sequence": partition.reads["sequence"][rows],
            "log_offset": offset,
            "reader": member,
            "seen_ns": seen_ns,
            "begin_ns": seen_ns,
            "case": case,
            **_processed_instead(processed, instead),
        },
    )
    reasons = [index.incomplete(level), None if handed is None else handed.incomplete(level)]
    return witnesses, judged, "; ".join(reason for reason in reasons if reason) or None


@dataclass(frozen=True, slots=True)
class _Done:
    """Says which records of a log finished steps of a group's members processed.

    A step names its offset and its record. Example: the log has a, b, c at 0, 1, 2, and steps say 0: a, 1: x, 1: b, 2: y.
    Then a and b were processed, and c was not: y was processed in its place.
    """

    rightly: np.ndarray
    """bool[log]: did a step process this record, or may it have, because one of the two does not say which record it is?"""
    mistaken: np.ndarray
    """The positions, ascending, at which steps processed another record, and none this one."""
    rows: np.ndarray
    """For each of these the row of `processed` of such a step."""

    @staticmethod
    def of(processed: Mapping[str, np.ndarray], partition: PartitionHistory, log: Log) -> "_Done":
        """Compares the finished steps of one partition with its log. O(n log n) for n steps."""
        rows = _done_rows(processed, partition.partition)
        position = log.positions.find(processed["log_offset"][rows])
        rows, position = rows[position >= 0], position[position >= 0]
        # `other`: the step and the log name different records. It counts only where both name one.
        other = np.zeros(len(rows), dtype=bool)
        known = log.key[position] != UNREADABLE
        shown = log.rows[position]
        for name in ("sender", "sequence"):
            named = processed[name][rows]
            other |= named != partition.reads[name][shown]
            known &= named != NONE
        other &= known
        rightly = np.zeros(len(log.offset), dtype=bool)
        # A step that names what stands there, or leaves open what it names, may have processed it. Only where no such step is
        # do the others count as mistaken, each position once.
        rightly[position[~other]] = True
        wrong = np.flatnonzero(other)
        assert len(other) == len(position), "each step has a position"
        wrong = wrong[~rightly[position[wrong]]]
        wrong = wrong[np.argsort(position[wrong], kind="stable")]
        wrong = wrong[differs_from_previous(position[wrong])]
        return _Done(rightly, position[wrong], rows[wrong])

    def instead(self, slot: np.ndarray) -> np.ndarray:
        """Returns, for each of these positions, the row of `processed` of a step that processed another record there. -1:
        there is none."""
        found = Lookup(self.mistaken).find(slot)
        return np.where(found >= 0, self.rows[found] if len(self.rows) else -1, -1)


def _processed_instead(processed: Mapping[str, np.ndarray], row: np.ndarray) -> dict[str, np.ndarray]:
    """Returns columns `other_*` of witnesses: what was processed by these rows of `processed`. -1 stands for none."""
    if not (row >= 0).any():
        return {}
    columns = {
        "other_client": "sender",
        "other_sequence": "sequence",
        "other_offset": "log_offset",
        "other_ns": "done_ns",
    }
    unset = {"other_ns": MISSING}
    return {name: np.where(row >= 0, processed[of][row], unset.get(name, NONE)) for name, of in columns.items()}


def _why_not(
    history: CellHistory,
    commits: Commits,
    members: Members,
    offset: np.ndarray,
    member: np.ndarray,
    seen_ns: np.ndarray,
) -> np.ndarray:
    """Returns the GroupCase of each offset that was last delivered to this member at this time. If several cases fit, it
    is the last one."""
    released = MemberEvents(history.tables["assignments"], commits.partition, (REVOKE, LOST, CLOSE))
    case = np.full(len(offset), GroupCase.NO_CAUSE, dtype=np.int32)
    case[members.crashed(member)] = GroupCase.CRASHED
    case[(member >= 0) & (released.next_after(member, seen_ns) != END_OF_TIME_NS)] = GroupCase.RELEASED
    case[_jumped_over(history, commits, offset, member, seen_ns)] = GroupCase.RESET
    return case


def _jumped_over(
    history: CellHistory, commits: Commits, offset: np.ndarray, member: np.ndarray, seen_ns: np.ndarray
) -> np.ndarray:
    """Returns bool[n]: did a member's reset decide on a position beyond each offset, after the last delivery of that offset
    (if there was one) and before a commit beyond it? Then a member that received it owes nothing. The loop runs over
    resets, which are few."""
    positions, rows = history.tables["positions"], rows_of(history.tables["positions"], commits.partition)
    rows = rows[(positions["event"][rows] == RESET) & (Members.of(history).row(positions["client"][rows]) >= 0)]
    moments = positions["time_ns"][rows]
    over = np.zeros(len(offset), dtype=bool)
    for at, moment, reached in zip(
        positions["log_offset"][rows], moments, commits.greatest_before(moments), strict=True
    ):
        # A reset to `at` passed over what stands before it. If a member had been given that, the reset must have come later,
        # and nothing beyond it been committed by then.
        over |= (offset < at) & ((member < 0) | ((seen_ns <= moment) & (offset >= reached)))
    return over


def _of_the_topic_before(
    history: CellHistory, partition: PartitionHistory, members: Members, offset: np.ndarray, member: np.ndarray
) -> np.ndarray:
    """Returns bool[n]: was nobody given the record of each offset, because the group went on beyond it in a topic that was
    made again, from what a member was committing when the topic was made, or later? A topic begins empty, and what was
    committed then is an offset of the topic before. Commits that Java's library makes by itself are not recorded, and none is
    asked for.

    Example: the topic is made at 13 s, and a commit of 401 that was under way then ends at 13.3 s. A member is given 0 to 5
    of the new topic, learns what is committed, and is given 401 next: 6 to 400 are of the topic before.
    """
    commits, reads = history.tables["commits"], partition.reads
    made_ns = made_at_ns(partition.metadata)
    if not history.cell.life or made_ns is None:
        return np.zeros(len(offset), dtype=bool)
    late = (commits["completed_ns"] >= made_ns) | (commits["completed_ns"] == MISSING)
    late &= members.row(commits["client"]) >= 0
    given = np.unique(reads["log_offset"][members.row(reads["client"]) >= 0])
    # In the example the next offset that anybody was given behind 6 is 401, which is what was committed.
    following = np.searchsorted(given, offset, side="right")
    found = np.zeros(len(offset), dtype=bool)
    there = following < len(given)
    found[there] = np.isin(given[following[there]], commits["log_offset"][late])
    found[~there] = offset[~there] < _committed_for_another(history, partition.partition, members, made_ns, late)
    group = group_of(history.cell).configuration
    unrecorded = group.client == "java" and group.commit == "auto"
    return (member < 0) & (found | unrecorded)


def _committed_for_another(
    history: CellHistory, partition: int, members: Members, made_ns: int, late: np.ndarray
) -> int:
    """Returns the first offset from which members were to go on in a topic that was made then, or else the first that an
    observer saw, if a member was committing just that one for the topic before; -1 if not. Nobody was given anything.
    `late`: the commits of members that ended when the topic was there."""
    positions, commits, seen = (history.tables[name] for name in ("positions", "commits", "observations"))
    asked = (positions["partition"] == partition) & (members.row(positions["client"]) >= 0)
    asked &= (positions["event"] == AT_ASSIGNMENT) & (positions["log_offset"] > 0)
    looked = (seen["partition"] == partition) & (seen["kind"] == ObservationKind.COMMITTED.value) & (seen["value"] > 0)
    by_members = bool(asked.any())
    time_ns, offset = (
        (positions["time_ns"][asked], positions["log_offset"][asked])
        if by_members
        else (seen["time_ns"][looked], seen["value"][looked])
    )
    if not len(time_ns):
        return -1
    first = np.lexsort((offset, time_ns))[0]
    before_ns = int(time_ns[first]) if by_members else made_ns
    mine = late & (commits["invoked_ns"] < before_ns)
    return int(offset[first]) if bool((mine & (commits["log_offset"] == offset[first])).any()) else -1


def group_start(history: CellHistory, partition: int) -> int:
    """Returns the first position that a member resolved. With auto.offset.reset=latest the group owes nothing earlier,
    except of a partition that was added to its subscription later (KIP-1327). A member that learns that there is no
    position (error) begins at the start. FOREVER: no position was resolved."""
    positions, group = history.tables["positions"], group_of(history.cell).configuration
    rows = rows_of(positions, partition)
    rows = rows[Members.of(history).row(positions["client"][rows]) >= 0]  # plain readers have positions, too
    event = positions["event"][rows]
    resolved = np.isin(event, (AT_ASSIGNMENT, RESET)) & (positions["log_offset"][rows] >= 0)
    refused = (event == SOUGHT) & (group.auto_offset_reset == "error")
    rows = rows[resolved | refused]
    if not len(rows):
        return int(END_OF_TIME_NS)
    if partition in history.cell.late_partitions:
        return 0
    first = rows[np.argmin(positions["time_ns"][rows])]
    event = positions["event"][first]
    from_the_start = event == SOUGHT or (event == RESET and group.auto_offset_reset != "latest")
    return 0 if from_the_start else int(positions["log_offset"][first])


def _last_delivered(partition: PartitionHistory, members: Members, offset: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (member, time) of the last delivery of each offset (ascending). (-1, MISSING): it was delivered to nobody."""
    reads = partition.reads
    member, seen_ns = np.full(len(offset), -1, dtype=np.int64), np.full(len(offset), MISSING, dtype=np.int64)
    if len(offset):
        rows = np.flatnonzero(members.row(reads["client"]) >= 0)
        slot = Lookup(offset).find(reads["log_offset"][rows])
        rows, slot = rows[slot >= 0], slot[slot >= 0]
        order = np.argsort(reads["read_ns"][rows], kind="stable")
        member[slot[order]] = reads["client"][rows[order]]  # of several numpy keeps the last
        seen_ns[slot[order]] = reads["read_ns"][rows[order]]
    return member, seen_ns


def reprocessed(history: CellHistory) -> KernelResult:
    """No record is processed more than once.

    Source: Kafka documentation, design, "Message Delivery Semantics": at least once repeats what was processed and not
    committed. Counts repetitions: each finished step after the first of one record, and each further copy of a record in
    the log that was processed too. Steps of one offset that name different records repeat nothing: after an unclean
    election a log gives its offsets away again. Example: at offset 7 a was processed, then b, then a: one repetition.
    Witness: the record; `reader` processed it again (`begin_ns` to `end_ns`), `other_client` had finished it before, at
    `other_ns`. `case`: SOUGHT, COVERED (a commit beyond it was acknowledged before the second member was assigned the
    partition: nothing excuses that), RELEASED, CRASHED, EVICTED, DUPLICATE; else NO_CAUSE. O(n log n).
    """
    return over_partitions(history, _reprocessed)


def _reprocessed(history: CellHistory, partition: PartitionHistory, members: Members) -> OwnershipResult:
    table, number = history.tables["processed"], partition.partition
    rows = steps_in_order(table, number)
    before, after, case = _steps_again(history, number, members, rows)
    # Three kinds of repetitions, one after the other: the same offset again, another copy in the log, and by the retry topic.
    one, other = _copies(table, first_steps(table, rows))
    before, after = np.concatenate([before, one]), np.concatenate([after, other])
    case = np.concatenate([case, np.full(len(one), GroupCase.DUPLICATE, dtype=np.int32)])
    for source, retry in retry_of(history.cell).items():
        if retry == number:
            found = RetryPartition(history, source, retry).repeated()
            why = _why_handed_on_again(history, source, members, found)
            before, after = np.concatenate([before, found.before]), np.concatenate([after, found.after])
            case = np.concatenate([case, why])
    return _again(table, number, before, after, case), len(rows), None


def _again(
    table: Mapping[str, np.ndarray], partition: int, before: np.ndarray, after: np.ndarray, case: np.ndarray
) -> np.ndarray:
    """Returns the witnesses of these pairs of rows of `processed`."""
    return make_witnesses(
        len(after),
        {
            "partition": partition,
            "client": table["sender"][after],
            "sequence": table["sequence"][after],
            "log_offset": table["log_offset"][after],
            "reader": table["client"][after],
            "begin_ns": table["started_ns"][after],
            "end_ns": table["done_ns"][after],
            "other_client": table["client"][before],
            "other_offset": table["log_offset"][before],
            "other_ns": table["done_ns"][before],
            "case": case,
        },
    )


def _steps_again(
    history: CellHistory, partition: int, members: Members, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns pairs of rows of `processed`, one finished step and the next of the same record at one offset, and why it was
    repeated. `rows` are what `steps_in_order` returns."""
    again = np.flatnonzero(~_first_of_each(history.tables["processed"], rows))
    before, after = rows[again - 1], rows[again]
    return before, after, _why_again(history, partition, members, before, after)


def repeated_steps(history: CellHistory, partition: int, rows: np.ndarray) -> np.ndarray:
    """Returns the witnesses of `reprocessed` of steps that repeat one of the same offset, in a partition that is nobody's
    retry partition. `rows` are what `steps_in_order` returns: all steps of some offsets, at least."""
    pairs = _steps_again(history, partition, Members.of(history), rows)
    return _again(history.tables["processed"], partition, *pairs)


def repeated_copies(table: Mapping[str, np.ndarray], partition: int) -> np.ndarray:
    """Returns the witnesses of `reprocessed` of further copies of a record in the log. `table` has rows of `processed`, at
    most one for each record of an offset, ascending by offset: all that are of records with several copies, at least."""
    before, after = _copies(table, np.arange(len(table["log_offset"])))
    case = np.full(len(before), GroupCase.DUPLICATE, dtype=np.int32)
    return _again(table, partition, before, after, case)


def _copies(table: Mapping[str, np.ndarray], single: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns rows of `processed` of one copy of a record in the log, and rows of its next copy. `single` has one row
    for each record of an offset. A step that does not say which record it processed is of no copy."""
    single = single[(table["sender"][single] != NONE) & (table["sequence"][single] != NONE)]
    sender = table["sender"][single]
    key = identity_keys(sender, table["sequence"][single])
    order = grouped_by_client(sender)
    if not ascends(key[order]):
        order = np.argsort(key, kind="stable")
    key = key[order]
    # Equal keys side by side are copies of one record: each with the copy in front of it.
    # Example: keys in order are 3 5 5 5 8. `copy` is 2 and 3: the second 5 after the first one, and the third after the
    # second.
    copy = np.flatnonzero(key[1:] == key[:-1]) + 1
    return single[order[copy - 1]], single[order[copy]]


def _done_rows(processed: Mapping[str, np.ndarray], partition: int) -> np.ndarray:
    """Returns the rows of `processed` that are finished steps of one partition."""
    return np.flatnonzero((processed["partition"] == partition) & (processed["done_ns"] != MISSING))


def steps_in_order(processed: Mapping[str, np.ndarray], partition: int) -> np.ndarray:
    """Returns the rows of `processed` that are finished steps of one partition: by offset, then by record where every step of
    the offset names one, then by when they were done."""
    return _in_order(processed, _done_rows(processed, partition))


def _in_order(processed: Mapping[str, np.ndarray], rows: np.ndarray) -> np.ndarray:
    """Returns these rows of `processed` in the order that `steps_in_order` names. Nearly all are in the order of offsets
    already, or in a few stretches that are (timsort is linear then), and few offsets come twice."""
    offset = processed["log_offset"][rows]
    if not ascends(offset):
        order = np.argsort(offset, kind="stable")
        rows, offset = rows[order], offset[order]
    # Both rows of an offset that comes twice are marked: the second differs from none before it, and marks the one before it.
    # Example: offsets 3 5 5 8: F F T F, then F T T F. Only those two rows are sorted anew, among themselves.
    repeated = ~differs_from_previous(offset)
    repeated[:-1] |= repeated[1:]
    again = np.flatnonzero(repeated)
    rows = rows.copy()
    several = rows[again]
    record = _record_named(processed, several)
    rows[again] = several[np.lexsort((processed["done_ns"][several], record, offset[again]))]
    return rows


def _record_named(processed: Mapping[str, np.ndarray], rows: np.ndarray) -> np.ndarray:
    """Returns int64[n]: the record that each of these rows names (identity key), NONE where some row of its offset names
    none, so that nothing distinguishes them. `rows` ascend by offset."""
    sender, sequence = processed["sender"][rows], processed["sequence"][rows]
    starts = np.flatnonzero(differs_from_previous(processed["log_offset"][rows]))
    if not len(starts):
        return np.empty(0, dtype=np.int64)
    # The least of a group of truths is whether all are true: does every step of the offset name its record?
    named = np.minimum.reduceat((sender != NONE) & (sequence != NONE), starts)
    length = np.diff(np.append(starts, len(rows)))
    return np.where(np.repeat(named, length), identity_keys(sender, sequence), NONE)


def _first_of_each(processed: Mapping[str, np.ndarray], rows: np.ndarray) -> np.ndarray:
    """Returns bool[n]: is the row the first of its record, of its offset? `rows` are what `steps_in_order` returns."""
    first = differs_from_previous(processed["log_offset"][rows])
    repeated = ~first
    repeated[:-1] |= repeated[1:]
    again = np.flatnonzero(repeated)
    record = _record_named(processed, rows[again])
    # Within one offset another record is another first, too: steps of 7 that name a a b have the firsts T F T.
    first[again] |= differs_from_previous(record)
    return first


def first_steps(processed: Mapping[str, np.ndarray], rows: np.ndarray) -> np.ndarray:
    """Returns the first of these rows of each record of each offset. `rows` are what `steps_in_order` returns."""
    return np.asarray(rows[_first_of_each(processed, rows)])


def _why_again(
    history: CellHistory, partition: int, members: Members, before: np.ndarray, after: np.ndarray
) -> np.ndarray:
    """Returns the GroupCase of each pair of rows of `processed`: the first that fits, in the order that `reprocessed`
    names."""
    table, assignments = history.tables["processed"], history.tables["assignments"]
    one, other = table["client"][before].astype(np.int64), table["client"][after].astype(np.int64)
    done_ns, offset = table["done_ns"][before], table["log_offset"][after]
    done_ns = np.where(done_ns == MISSING, table["started_ns"][before], done_ns)  # an attempt that was handed on
    keys, began_ns, sought = spans_of(history.tables["positions"], partition)
    key_before, key = span_keys(one, table["span"][before]), span_keys(other, table["span"][after])
    slot = Lookup(keys).find(key)
    known = slot >= 0
    assert len(before) == len(after) == len(key), "pairs of steps"
    span_ns = np.where(known, began_ns[slot], MISSING) if len(keys) else np.full(len(after), MISSING)
    released = MemberEvents(assignments, partition, (REVOKE, LOST, CLOSE)).next_after(one, done_ns)
    lost = MemberEvents(assignments, partition, (LOST,))
    learned_late = (lost.next_after(one, done_ns) != END_OF_TIME_NS) | (
        lost.next_after(other, done_ns) != END_OF_TIME_NS
    )
    if not _records_lost_partitions(
        history
    ):  # it gave the partition up after somebody else had begun: it had lost it before
        learned_late |= (released != END_OF_TIME_NS) & (released > table["started_ns"][after])
    if one_instance_may_be_two(history):  # whoever is fenced ends without a word of what it had
        learned_late |= _same_member(one, other, members)
    covered = Commits(history, partition).covered(offset, span_ns)
    # The later of these lines wins: the order in the docstring of `reprocessed`, from its end.
    case = np.full(len(after), GroupCase.NO_CAUSE, dtype=np.int32)
    case[(one != other) & learned_late] = GroupCase.EVICTED
    case[(one != other) & members.crashed(one)] = GroupCase.CRASHED
    case[released <= table["started_ns"][after]] = GroupCase.RELEASED
    case[covered & (key != key_before)] = GroupCase.COVERED
    case[key == key_before] = GroupCase.NO_CAUSE
    if len(keys):
        case[known & sought[slot]] = GroupCase.SOUGHT
    return case


def _same_member(one: np.ndarray, other: np.ndarray, members: Members) -> np.ndarray:
    """Returns bool[n]: do the two members have the same index in the group, and so one group.instance.id?"""
    clients, numbers = np.unique(np.concatenate([one, other]), return_inverse=True)
    # A client that is no member gets a number that no planned client has, and that is its own.
    slots = np.array([members.twins.get(client, ~client) for client in clients.tolist()], dtype=np.int64)
    return np.asarray(slots[numbers[: len(one)]] == slots[numbers[len(one) :]])


def _records_lost_partitions(history: CellHistory) -> bool:
    """Returns whether members record if a partition was lost or revoked. VerifiableConsumer does not: it leaves
    onPartitionsLost at its default, which is onPartitionsRevoked. [ConsumerRebalanceListener]"""
    return group_of(history.cell).configuration.client != "java"


def _why_handed_on_again(history: CellHistory, source: int, members: Members, found: Repeated) -> np.ndarray:
    """Returns the GroupCase of each pair: why the record was tried in its own partition again. SENT_AGAIN: it was not,
    but its sender was not informed that the first copy had arrived."""
    case = np.full(len(found.before), GroupCase.NO_CAUSE, dtype=np.int32)
    known = np.flatnonzero((found.attempt_before >= 0) & (found.attempt_after >= 0))
    before, after = found.attempt_before[known], found.attempt_after[known]
    case[known] = _why_again(history, source, members, before, after)
    case[known[(before == after) & found.unconfirmed[known]]] = GroupCase.SENT_AGAIN
    return case


def _commit_mode(history: CellHistory) -> str:
    return group_of(history.cell).configuration.commit
