"""These kernels check single records: is each one what its producer sent, and did its producer learn what became of it?

A broker reports an error to the producer, which has to handle it. The error must reach the producer, and an error that
one record caused must not fail another record."""

from collections.abc import Iterable

import numpy as np

from prozess.checkers.alignment import rows_that
from prozess.checkers.lookup import Lookup, differs_from_previous, distinct
from prozess.checkers.partition_index import ClientIndex, PartitionIndex
from prozess.harness.columns import of_clients
from prozess.harness.config.configuration import PROVOCATIONS, Provocation, ProvocationConfiguration
from prozess.harness.interfaces.checking import CellHistory, KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import WITNESSES_MAX, join_witnesses, make_witnesses, no_witnesses
from prozess.harness.plan.cell_work import ErrorsWork, work_as
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.schema import MISSING, NONE, Outcome, ReadFlag


def phantom(history: PartitionHistory) -> KernelResult:
    """Every record that anyone received was produced by a client of the trial.

    Source: no Kafka promise allows invention; INTRODUCTION of librdkafka, "Message reliability". Counts records per offset,
    however many readers received them. Not phantom: what stands past the recorded rows of a producer that crashed
    (client_issued NONE); unreadable records (`corrupt`). O(n).

    Example: client 3 sent the sequences 0 to 9 and ended in order. A record (3, 12) is a phantom, and so is one of client
    99, which does not exist.
    """
    index = PartitionIndex.of(history)
    # What agrees with the log is judged there, once; and what stands there and was sent is no phantom. Two kinds of rows are
    # left: records of the log of which it is not plain that they were sent, and reads that the log does not confirm.
    rows = np.concatenate([index.log.rows[index.not_sent], index.unmatched_reads])
    rows = rows[index.never_issued(rows)]
    if len(rows):  # now every read of one of them
        rows = np.flatnonzero(Lookup(distinct(index.keys_of_reads(rows))).find(index.read_key) >= 0)
    return _records_seen(index, rows)


UNREADABLE_RECORD, OTHER_KEY = 0, 1
"""Cases of `corrupt`: checksum, size or header are wrong; or the record has another key than it was sent with."""


def corrupt(history: PartitionHistory) -> KernelResult:
    """Every record that anyone received has the key, checksum, size and header with which it was sent.

    Source: check.crcs, https://kafka.apache.org/documentation/#consumerconfigs_check.crcs ("ensures no on-the-wire or on-disk
    corruption to the messages occurred"). Counts offsets, however many readers, and for each of them UNREADABLE_RECORD and
    OTHER_KEY apart (`case`). Keys are compared where both are known (`PartitionIndex.wrong_keys`). O(n).

    Example: a was sent with key 5. One reader got a with key 6 at offset 0: OTHER_KEY. Two readers got bytes with a wrong
    checksum at offset 1: one UNREADABLE_RECORD.
    """
    index = PartitionIndex.of(history)
    flags = index.reads["flags"]
    unreadable = rows_that(flags, lambda some: (some & ReadFlag.CORRUPT.value) != 0)
    changed = index.wrong_keys
    rows = np.concatenate([unreadable, changed]) if len(changed) else unreadable
    result = _records_seen(index, rows)
    if len(changed):
        result.witnesses["case"] = np.where(result.witnesses["client"] == NONE, UNREADABLE_RECORD, OTHER_KEY)
    return result


def misplaced(history: PartitionHistory) -> KernelResult:
    """Every record that anyone received from this partition says that it was sent to this partition.

    Source: https://kafka.apache.org/documentation/#intro_concepts_and_terms (a record is written to one partition). Counts
    records per offset, however many readers, in the partition where they were read. Where it was sent to is in the reads,
    and is the `case` of a witness. O(n).

    Example: a record that names partition 2 as its own was received from partition 1: a finding of partition 1.
    """
    index = PartitionIndex.of(history)
    target = index.reads["sent_partition"]
    rows = rows_that(target, lambda some: (some != index.partition) & (some != NONE))
    return _records_seen(index, rows[index.sent_elsewhere(rows)], case="sent_partition")


def resurrected(history: PartitionHistory) -> KernelResult:
    """No record whose send certainly failed, outside transactions, is in the log.

    Source: librdkafka INTRODUCTION, "Message persistence status" (not persisted); the short list of certain failures is the
    workload's. Counts records. O(n), and O(f) for f failed sends.

    Example: the broker refused a as too large, which is certain, and the log is [b a]: a is resurrected. A send that only
    timed out may have reached the log, and is not judged.
    """
    index = PartitionIndex.of(history)
    sends, log = index.sends, index.log
    rows = rows_that(sends["outcome"], lambda some: some == Outcome.FAIL.value)
    rows = rows[(sends["transaction"][rows] == NONE) & (sends["client"][rows] != SENTINEL_CLIENT)]
    judged = len(rows)
    if not index.audited:  # what a consumer received stood in the log, whatever else was seen there
        return _given_although_failed(index, rows, judged)
    position = index.identities.find(index.send_key[rows])
    rows, position = rows[position >= 0], position[position >= 0]
    count = len(rows)
    rows, position = rows[:WITNESSES_MAX], position[:WITNESSES_MAX]
    columns = {
        "client": sends["client"][rows],
        "sequence": sends["sequence"][rows],
        "log_offset": log.offset[position],
        **index.sent(rows),
        **(index.seen(index.send_key[rows]) if count else {}),
    }
    witnesses = make_witnesses(len(rows), {"partition": index.partition, **columns})
    return KernelResult(witnesses, count, judged, incomplete=index.incomplete())


def _given_although_failed(index: PartitionIndex, failed: np.ndarray, judged: int) -> KernelResult:
    rows = failed[index.consumed.sends[failed]]
    count, rows = len(rows), rows[:WITNESSES_MAX]
    if not count:
        return KernelResult(no_witnesses(), 0, judged, incomplete=index.incomplete())
    key, sends = index.send_key[rows], index.sends
    columns = {
        "partition": np.full(len(rows), index.partition),
        "client": sends["client"][rows],
        "sequence": sends["sequence"][rows],
        "log_offset": index.reads["log_offset"][index.first_seen(key)],
        **index.sent(rows),
        **index.seen(key),
    }
    return KernelResult(make_witnesses(len(rows), columns), count, judged, incomplete=index.incomplete())


def _records_seen(index: PartitionIndex, rows: np.ndarray, *, case: str | None = None) -> KernelResult:
    """Returns a finding with one witness for each record and offset of these rows of `reads`. It names the first reader:
    a consumer before the audit. `case`: the column of `reads` that says which case it is."""
    reads, judged = index.reads, index.read_count
    if not len(rows):
        return KernelResult(no_witnesses(), 0, judged, incomplete=index.incomplete())
    audit = ~index.read_by_consumer(rows)
    # If several readers got one record, the first consumer is named, and the audit only where no consumer received it.
    # Example: x at offset 5 was given to the audit at 2 s, and to readers at 3 s and 4 s. In order these are 3 s, 4 s, audit:
    # the reader at 3 s is named.
    order = np.lexsort((reads["read_ns"][rows], audit, index.keys_of_reads(rows), reads["log_offset"][rows]))
    rows, audit = rows[order], audit[order]
    new = differs_from_previous(reads["log_offset"][rows]) | differs_from_previous(index.keys_of_reads(rows))
    rows, audit = rows[new], audit[new]
    count = len(rows)
    rows, audit = rows[:WITNESSES_MAX], audit[:WITNESSES_MAX]
    columns = {
        **index.records_read(rows),
        "reader": reads["client"][rows],
        "seen_ns": np.where(audit, MISSING, reads["read_ns"][rows]),
        **index.sent(index.send_rows(index.keys_of_reads(rows))),
        **({"case": reads[case][rows]} if case else {}),
    }
    # A record that nobody sent here began, as far as anybody knows, when it was received.
    if "begin_ns" in columns:
        unsent = columns["outcome"] == NONE
        columns["begin_ns"] = np.where(unsent, reads["read_ns"][rows], columns["begin_ns"])
    else:
        columns["begin_ns"] = reads["read_ns"][rows]
    witnesses = make_witnesses(len(rows), {"partition": index.partition, **columns})
    return KernelResult(witnesses, count, judged, incomplete=index.incomplete())


def unreported(history: PartitionHistory) -> KernelResult:
    """The producer of a record that is not in the log was informed of an error.

    Source: https://kafka.apache.org/documentation/#producerconfigs_delivery.timeout.ms ("An upper bound on the time to
    report success or failure after a call to send() returns"). Counts records outside transactions that are not in the
    log, and about which their producer never heard again, although it lived until its delivery timeout was over. With
    acks=0 it also counts records that the producer learned were delivered. (With other acks these are `lost`.) Judged:
    sends that ended in an error, and the sends that are counted. O(n).

    Example: a client sends a, b, c, and lives until all its timeouts are over. It hears that a was delivered and that c
    failed, and nothing of b. The log is [a]: b counts. c is judged, and does not count.
    """
    index = PartitionIndex.of(history)
    sends = index.sends
    silent, failed = _silent(index, history.client_reported_until_ns)
    reported = _reported_unseen(index)
    rows = np.concatenate([silent, reported])
    if reason := index.incomplete():
        return KernelResult(no_witnesses(), count=0, judged=len(rows) + failed, incomplete=reason)
    rows = rows[(sends["transaction"][rows] == NONE) & (index.identities.find(index.send_key[rows]) < 0)]
    if not len(rows):
        return KernelResult(no_witnesses(), 0, judged=failed)
    # What was completed later may stand behind the sentinel. What never was is MISSING, which is before all times.
    if index.sentinel_ns is not None:
        rows = rows[sends["completed_ns"][rows] < index.sentinel_ns]
    # Nobody knows where these stood: acks=0 learns no offset, and a silent send learned nothing.
    maybe = index.may_be_cleaned(
        record_key=sends["key"][rows],
        offset=np.full(len(rows), NONE, dtype=np.int64),
        tombstone=sends["size"][rows] == NONE,
    )
    if index.unreadable_positions:
        maybe[:] = True
    unknown = int(np.count_nonzero(maybe))
    why = f"{unknown} records that are not in the log may have been removed by cleaning, or be the unreadable ones"
    rows = rows[~maybe]
    return KernelResult(_witnesses(index, rows), len(rows), len(rows) + failed, incomplete=why if unknown else None)


def unenforced(history: CellHistory) -> KernelResult:
    """No record that breaks a limit of its topic or its client is in the log.

    Source: https://kafka.apache.org/documentation/#topicconfigs_max.message.bytes and the other limits of
    `PROVOCATIONS`. Counts records. Judged: the bad records that were refused, and those that are counted. A record was
    refused if its producer was informed by the code of the error. With acks=0 a producer learns nothing: then its bad
    records that are not in the log were refused. An error that is a state, and not the fault of a record, counts as
    refused by its code alone. O(n).

    Example: every third record is too large, so of the sequences 0 to 5 the bad ones are 2 and 5. 5 was refused, and the
    log is [0 1 2 3 4]: two are judged, and 2 is found.
    """
    made = _provocation(history)
    found, judged, reason = [], 0, None
    for index, rows in _own_sends(history):
        reason = reason or index.incomplete()
        blamed, bad = np.isin(index.sends["code"][rows], made.codes), _bad(history, index, rows)
        # An error that is a state (not authorised) is no record's fault: there `bad` is false of all, and the code decides.
        refused = blamed & (bad | (not made.of_record))
        inside = index.identities.find(index.send_key[rows]) >= 0
        if made.by_broker:
            acks = of_clients(index.client_acks, index.sends["client"][rows], unknown=NONE)
            handed_over = (acks == 0) & (index.sends["outcome"][rows] == Outcome.OK.value)
            refused |= handed_over & ~inside & (bad | (not made.of_record))
        # What was neither refused nor is in the log timed out, for example: it is not judged.
        accepted = bad & inside
        found.append((index, rows[accepted]))
        judged += int(np.count_nonzero(refused | accepted))
    return _of_cell(found, judged, reason)


def collateral(history: CellHistory) -> KernelResult:
    """A good record is not refused because another record of its batch is bad.

    Source: KIP-467 (https://cwiki.apache.org/confluence/x/ug9jBg): a broker refuses a batch whole and names the records
    to blame; the others "may be retried". Counts good records whose producer learned the bad record's error, or that
    another record of their batch was invalid. Judged: all good records, if errors belong to records and one was
    provoked. O(n).

    Example: 0, 1 and 2 were sent in one batch, and 2 is bad. All three were refused with the same error: 0 and 1 count.
    """
    made = _provocation(history)
    if not made.of_record:
        return KernelResult(no_witnesses(), count=0, judged=0)
    found, judged, provoked = [], 0, 0
    for index, rows in _own_sends(history):
        blamed, bad = np.isin(index.sends["code"][rows], made.codes), _bad(history, index, rows)
        found.append((index, rows[blamed & ~bad]))
        judged += int(np.count_nonzero(~bad))
        provoked += int(np.count_nonzero(blamed & bad))
    return _of_cell(found, judged if provoked else 0, None)


def _silent(index: PartitionIndex, reported_until_ns: np.ndarray) -> tuple[np.ndarray, int]:
    """Returns the rows of `sends` that were never completed, although their client lived long enough to be reported; and how
    many sends of such clients failed with an error."""
    sends = index.sends
    open_rows = rows_that(sends["completed_ns"], lambda some: some == MISSING)
    due_ns = of_clients(reported_until_ns, sends["client"][open_rows], unknown=MISSING)
    # `due_ns`: of what was invoked before, the client must have heard, because it lived on past its timeouts.
    silent = open_rows[(sends["invoked_ns"][open_rows] < due_ns) & (sends["client"][open_rows] != SENTINEL_CLIENT)]
    # Sends of a client that ended early prove nothing, whether they failed or not.
    failed = rows_that(sends["code"], lambda some: some != 0)
    failed = failed[sends["client"][failed] != SENTINEL_CLIENT]
    lived = of_clients(reported_until_ns, sends["client"][failed], unknown=MISSING) != MISSING
    return silent, int(np.count_nonzero(lived))


def _reported_unseen(index: PartitionIndex) -> np.ndarray:
    """Returns the rows of `sends` that acks=0 reported as delivered. Rows are ordered by sender, so a partition without
    such senders costs nothing."""
    sends = index.sends
    without_reply = ClientIndex.of(index.client_role).without_reply(index.client_acks)
    if not len(without_reply):
        return without_reply
    without_reply = without_reply.astype(sends["client"].dtype)  # or the whole column is converted
    # `sends` is ordered by client: each client is one range of rows.
    begin = np.searchsorted(sends["client"], without_reply, side="left").tolist()
    end = np.searchsorted(sends["client"], without_reply, side="right").tolist()
    parts = [np.arange(a, b) for a, b in zip(begin, end, strict=True) if b > a]
    rows = np.concatenate(parts) if parts else np.empty(0, dtype=np.intp)
    reported: np.ndarray = rows[sends["outcome"][rows] == Outcome.OK.value]
    return reported


def _provoked(history: CellHistory) -> ProvocationConfiguration:
    return work_as(ErrorsWork, history.cell.work).configuration


def _provocation(history: CellHistory) -> Provocation:
    return PROVOCATIONS[_provoked(history).error]


def _own_sends(history: CellHistory) -> Iterable[tuple[PartitionIndex, np.ndarray]]:
    """Yields the index of each partition, and its rows of `sends` without the sentinel's."""
    for partition in history.partitions.values():
        index = PartitionIndex.of(partition)
        yield index, np.flatnonzero(index.sends["client"] != SENTINEL_CLIENT)


def is_bad(sequence: np.ndarray, *, every: int) -> np.ndarray:
    """Returns which sequences of a client that provokes errors by bad records are bad, as bool[n]: every `every`-th,
    the last of each."""
    return np.asarray(sequence % every == every - 1)


def _bad(history: CellHistory, index: PartitionIndex, rows: np.ndarray) -> np.ndarray:
    """Returns bool[rows]: is the record itself to blame for its error?"""
    if not _provocation(history).of_record:
        return np.zeros(len(rows), dtype=bool)
    return is_bad(index.sends["sequence"][rows], every=_provoked(history).every)


def _of_cell(found: list[tuple[PartitionIndex, np.ndarray]], judged: int, incomplete: str | None) -> KernelResult:
    witnesses = [_witnesses(index, rows) for index, rows in found if len(rows)]
    together = join_witnesses(witnesses)[:WITNESSES_MAX]
    return KernelResult(together, sum(len(rows) for _, rows in found), judged, incomplete=incomplete)


def _witnesses(index: PartitionIndex, rows: np.ndarray) -> np.ndarray:
    """Returns one witness for each row of `sends`, of the first WITNESSES_MAX."""
    rows = rows[:WITNESSES_MAX]
    if not len(rows):
        return no_witnesses()
    columns = index.records_sent(rows) | index.sent(rows)
    return make_witnesses(len(rows), {"partition": index.partition, **columns})
