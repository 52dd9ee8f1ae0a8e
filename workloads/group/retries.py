"""Records whose processing failed at first.

Either their partition is paused, and they are tried again later, before what is behind them: a partition's records are
processed in order, each once, however often one fails. Or a retry topic takes them, so that what is behind them need not
wait. There a record keeps the number of its partition, and its value carries where it came from
(`prozess.workloads.record.identity`). The application commits past a failed record once the retry topic has
acknowledged it; or, where its author forgot that `produce()` only queues, at once.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from prozess.harness.clock import NS_PER_S
from prozess.harness.recording.rows import RowWriter
from prozess.harness.schema import NONE, SENDS
from prozess.workloads.client import Client
from prozess.workloads.librdkafka import logged_in
from prozess.workloads.log.producer import POLL_S
from prozess.workloads.record.identity import HEADER, IDENTITY, IDENTITY_OFFSET, copy_encoder, pack_header
from prozess.workloads.record.sends import completer
from prozess.workloads.record.transactions import TransactionalSends
from prozess.workloads.settings import Property, RoleOptions

Columns = Mapping[str, np.ndarray]
"""Columns of `reads`, with one entry per record."""
_SPREAD, _HASHES = np.uint64(2654435761), 1 << 32
"""Knuth's multiplicative hash: which records fail is spread evenly, and the same for whoever is given them."""


@dataclass(slots=True)
class HeldRecords:
    """Records of one partition that wait to be tried again. `due_ns`: when."""

    columns: Columns
    due_ns: int


class Retries:
    """Holds back records whose processing failed. `share` of the records fail when this member processes them for the
    first time; they are tried again `after_ms` later."""

    def __init__(self, *, share: float, after_ms: float) -> None:
        self._share, self._after_ns = share, int(after_ms * 1e6)
        self._failed: set[tuple[int, int]] = set()
        """The (partition, offset) of records that have failed."""
        self.held: dict[int, HeldRecords] = {}
        """The records that wait, by partition."""

    def take(self, columns: Columns, now_ns: int) -> tuple[Columns, Columns, list[int]]:
        """Divides these records: those to be processed now, those that fail (one per partition at most), and the
        partitions that have to wait from now on. A failed one is held back with all behind it."""
        partition = columns["partition"]
        if not self._share and not self.held:
            return columns, chosen_records(columns, np.zeros(len(partition), dtype=bool)), []
        fails, waits = self._fails(columns), np.zeros(len(partition), dtype=bool)
        failed, paused = np.zeros(len(partition), dtype=bool), []
        for dense in np.unique(partition).tolist():
            rows = np.flatnonzero(partition == dense)
            if dense in self.held:  # it was under way when the partition was paused
                waits[rows] = True
                self.held[dense].columns = joined_records(self.held[dense].columns, chosen_records(columns, rows))
                continue
            bad = rows[fails[rows]]
            if len(bad):
                behind = rows[rows >= bad[0]]
                waits[behind] = True
                failed[bad[0]] = True
                self._failed.add((dense, int(columns["log_offset"][bad[0]])))
                self.held[dense] = HeldRecords(chosen_records(columns, behind), now_ns + self._after_ns)
                paused.append(dense)
        return chosen_records(columns, ~waits), chosen_records(columns, failed), paused

    def hold(self, columns: Columns, now_ns: int) -> list[int]:
        """Holds all of these records back. Returns the partitions that have to wait from now on."""
        paused = []
        for dense in np.unique(columns["partition"]).tolist():
            late = chosen_records(columns, columns["partition"] == dense)
            if dense in self.held:
                self.held[dense].columns = joined_records(self.held[dense].columns, late)
            else:
                self.held[dense] = HeldRecords(late, now_ns + self._after_ns)
                paused.append(dense)
        return paused

    def due(self, now_ns: int) -> dict[int, Columns]:
        """Returns what is to be tried again now, by partition, and holds it no longer."""
        ready = [dense for dense, held in self.held.items() if held.due_ns <= now_ns]
        return {dense: self.held.pop(dense).columns for dense in ready}

    def forget(self, partitions: Iterable[int]) -> None:
        """Forgets partitions that were taken away: their next owner is given their records again."""
        for dense in partitions:
            self.held.pop(dense, None)

    def _fails(self, columns: Columns) -> np.ndarray:
        fails = fails_at_first(columns, self._share)
        for row in np.flatnonzero(fails).tolist():  # as many as fail
            if (int(columns["partition"][row]), int(columns["log_offset"][row])) in self._failed:
                fails[row] = False
        return fails


def fails_at_first(columns: Columns, share: float) -> np.ndarray:
    """Reports for each record whether its processing fails the first time (bool[n]). It is the same for every member."""
    identity = columns["sequence"].astype(np.uint64) + (columns["sender"].astype(np.uint64) << np.uint64(20))
    return np.asarray((identity * _SPREAD) % np.uint64(_HASHES) < np.uint64(int(share * _HASHES)))


def chosen_records(columns: Columns, rows: np.ndarray) -> Columns:
    """Returns some of the records, by a mask or by indexes."""
    return {name: values[rows] for name, values in columns.items()}


def joined_records(first: Columns, second: Columns) -> Columns:
    """Returns both sets of records, in order."""
    return {name: np.concatenate([values, second[name]]) for name, values in first.items()}


def next_offsets(columns: Columns) -> dict[int, int]:
    """Returns for each partition the offset behind its last record here."""
    partitions, last = np.unique(columns["partition"][::-1], return_index=True)
    offsets = columns["log_offset"][::-1][last] + 1
    return dict(zip(partitions.tolist(), offsets.tolist(), strict=True))


STOP_NS = 10 * NS_PER_S
"""How long a member that was asked to stop goes on waiting for its sends to the retry topic."""


class RetryOptions(RoleOptions):
    """Says how a member sends to the retry topic."""

    producer: dict[str, Property]
    """The properties of its producer."""
    outputs: tuple[tuple[int, int, str, int], ...]
    """(dense id of a partition, and of its retry partition; topic; number)."""
    awaited: bool


class RetryTopic:
    """Sends records whose processing failed to the retry topic. Every send is a row of `sends`, written before it is
    tried."""

    def __init__(
        self, client: Client, options: RetryOptions, *, between: Callable[[], None], stopped: Callable[[], bool]
    ) -> None:
        """`between` is called while waiting; `stopped`: was the member asked to stop?"""
        self._client, self._between, self._stopped = client, between, stopped
        self._awaited = options.awaited
        outputs = options.outputs
        self._retry_of = {source: dense for source, dense, _, _ in outputs}
        self._names = {dense: (topic, number) for _, dense, topic, number in outputs}
        self._value_bytes = client.spec.value_bytes
        self._encode = copy_encoder(sender=client.spec.client, value_bytes=self._value_bytes)
        writer = RowWriter(client.rows, SENDS, client.spec.client)
        self._sends = TransactionalSends(writer, client.now_ns, value_bytes=self._value_bytes)
        self._complete = completer(writer, options.producer, client.now_ns, lambda partition, error: None)
        self._in_flight = 0
        self._again: list[tuple[int, bytes]] = []
        """The (retry partition, header of the failed record) of sends that have to be tried again."""
        callbacks = {"on_delivery": self._reported, "error_cb": client.on_error}
        self._producer = Producer(logged_in({**options.producer, **callbacks}))

    @property
    def issued(self) -> int:
        """Returns how many sends were tried."""
        return self._sends.count

    @property
    def under_way(self) -> bool:
        """Returns whether anything was sent and not reported yet."""
        return bool(self._in_flight or self._again)

    def holds(self, partition: np.ndarray) -> np.ndarray:
        """Reports for each record whether it is in a partition of the retry topic (bool[n])."""
        return np.isin(partition, list(self._names))

    def hand_on(self, columns: Mapping[str, np.ndarray]) -> bool:
        """Sends these records (columns of `reads`) to the retry topic, and waits until all are acknowledged if the
        application does. Returns whether it may commit past them."""
        wanted = ("sender", "sent_partition", "sequence", "partition")
        for sender, sent, sequence, source in zip(*(columns[name].tolist() for name in wanted), strict=True):
            self._send(self._retry_of[source], pack_header(sender, sent, sequence, self._value_bytes))
        return not self._awaited or self.settle()

    def settle(self) -> bool:
        """Waits until everything is acknowledged, and sends again what failed. False if the member was asked to stop
        and is out of time."""
        until_ns = None
        while self.under_way:
            if until_ns is None and self._stopped():
                until_ns = self._client.now_ns() + STOP_NS
            if until_ns is not None and self._client.now_ns() >= until_ns:
                self._client.log(f"{self._in_flight + len(self._again)} records did not reach the retry topic in time")
                return False
            self._between()
            self._client.check()
            self.serve(POLL_S)
        return True

    def serve(self, wait_s: float) -> None:
        """Takes delivery reports, and tries again what was refused."""
        try:
            self._producer.poll(wait_s)
        except KafkaException as error:  # the binding raises a fatal error in place of calling back
            self._client.on_error(error.args[0])
        again, self._again = self._again, []
        for dense, header in again:
            self._send(dense, header)

    def close(self) -> None:
        """Writes the rows to their end."""
        self._sends.close()

    def _send(self, dense: int, header: bytes) -> None:
        topic, number = self._names[dense]
        sequence = self._sends.issue(transaction=NONE, partition=dense)
        try:
            self._producer.produce(topic, self._encode(dense, sequence, header), None, number)
            self._in_flight += 1
        except BufferError:
            self._sends.refused(sequence, KafkaError._QUEUE_FULL)
            self._again.append((dense, header))
        except KafkaException as error:
            self._client.on_error(error.args[0])
            self._sends.refused(sequence, error.args[0].code())
            self._again.append((dense, header))

    def _reported(self, error: KafkaError | None, message: Message) -> None:
        self._complete(error, message)
        self._in_flight -= 1
        if error is None:
            return
        self._client.log(f"the retry topic was not reached: {error.name()} {error.str()}")
        if self._awaited:
            value = message.value() or b""
            dense, _ = IDENTITY.unpack_from(value, IDENTITY_OFFSET)
            self._again.append((dense, value[HEADER.itemsize : 2 * HEADER.itemsize]))
