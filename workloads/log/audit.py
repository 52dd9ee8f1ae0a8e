"""The client processes of the audit: they write sentinels, and read every partition from its log start through its
sentinel.

End of partition is not the end: right after a failover a full read came back empty and was whole later. Therefore a
sentinel is written to each partition with acks=all, and only a read that was given that very record has seen the
partition. Every name resolution goes over the observer's listeners, which no fault touches.
"""

from collections.abc import Collection, Mapping

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from prozess.harness.clock import NS_PER_S
from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.recording.rows import RowWriter
from prozess.harness.schema import MISSING, NONE, OBSERVATIONS, SENDS, Isolation, ObservationKind
from prozess.workloads import messages
from prozess.workloads.client import Client
from prozess.workloads.librdkafka import logged_in
from prozess.workloads.log.producer import POLL_S
from prozess.workloads.log.reader import Offsets, PartitionConsumer
from prozess.workloads.record.identity import IDENTITY, IDENTITY_OFFSET, SENTINEL_KEY, encoder, key_id
from prozess.workloads.record.members import in_order
from prozess.workloads.record.sends import complete_refused, completer

RETRY_NS = 200_000_000


def unexplained_resets(lost_at: Mapping[int, int], starts: Mapping[int, int]) -> Collection[int]:
    """Returns the partitions that were not read from their log start in one go: a position was out of range, and the log
    does not begin behind it now. Where it does, retention took what was still to be read, and the audit went on from the
    log start of that moment.

    Example: positions 40 and 90 were lost, and the logs begin at 70 and at 0. The second one was cut at its end.
    """
    return [dense for dense, position in lost_at.items() if starts.get(dense, 0) <= position]


class SentinelWriter:
    """Writes one acknowledged record to each partition (role `sentinel`), on `write`, and reports at which offsets.
    Recorded in `sends` like any other. A send that fails, or whose offset is not reported, is followed by another until
    the limit."""

    def __init__(self, client: Client) -> None:
        spec = client.spec
        assert spec.client == SENTINEL_CLIENT, spec
        self._client, self._spec = client, spec
        self._sends = RowWriter(client.rows, SENDS, spec.client)
        self._encode = encoder(sender=spec.client, value_bytes=spec.value_bytes)
        self._complete = completer(self._sends, spec.properties, client.now_ns, lambda partition, error: None)
        self._producer = Producer(
            logged_in({**spec.properties, "on_delivery": self._reported, "error_cb": client.on_error})
        )
        self._names = {dense: (topic, number) for dense, topic, number in spec.partitions}
        self._written: dict[int, int] = {}
        self._problems: dict[int, str] = dict.fromkeys(self._names, "no delivery report came")
        self._again_ns: dict[int, int] = {}
        self._stopped = False

    def run(self) -> None:
        """Waits for `write`, writes, says `sentinels`, and waits for `stop`."""
        while not self._stopped:
            self._client.heartbeat(self._client.now_ns())
            for order in self._client.control.until(timeout_s=POLL_S):
                if isinstance(order.command, messages.WriteCommand):
                    self._write(order.command.timeout_s)
                self._stopped = self._stopped or isinstance(order.command, messages.StopCommand)
                self._client.control.send(messages.DoneEvent(number=order.number))

    def issued(self) -> int:
        """Returns how many sentinels were tried."""
        return self._sends.count

    def close(self) -> None:
        """Writes the rows to their end."""
        self._sends.close()

    def _write(self, timeout_s: float) -> None:
        until_ns = self._client.now_ns() + int(timeout_s * NS_PER_S)
        self._again_ns = dict.fromkeys(self._names, 0)
        while len(self._written) < len(self._names) and (now_ns := self._client.now_ns()) < until_ns:
            self._client.check()
            self._client.heartbeat(now_ns)
            for dense in [d for d, again_ns in self._again_ns.items() if again_ns <= now_ns]:
                del self._again_ns[dense]
                self._send(dense)
            self._client.serve(self._producer.poll, POLL_S)
        missing = {dense: problem for dense, problem in self._problems.items() if dense not in self._written}
        self._client.control.send(messages.SentinelsEvent(written=self._written, missing=missing))

    def _send(self, dense: int) -> None:
        topic, number = self._names[dense]
        sequence, size = self._sends.count, self._spec.value_bytes
        now_ns = self._client.now_ns()
        self._sends.append(now_ns, MISSING, NONE, sequence, NONE, key_id(SENTINEL_KEY), dense, 0, 0, size)
        try:
            self._producer.produce(topic, self._encode(dense, sequence), SENTINEL_KEY, number)
        except (BufferError, KafkaException) as error:
            code = KafkaError._QUEUE_FULL if isinstance(error, BufferError) else error.args[0].code()
            complete_refused(self._sends, sequence, code=code, completed_ns=self._client.now_ns())
            self._try_again(dense, str(error))

    def _reported(self, error: KafkaError | None, message: Message) -> None:
        self._complete(error, message)
        dense, _ = IDENTITY.unpack_from(message.value() or b"", IDENTITY_OFFSET)
        offset = message.offset()
        if error is None and offset is not None and offset >= 0:
            self._written[dense] = offset
        else:
            self._try_again(dense, f"{error.name()}: {error.str()}" if error else "acknowledged without an offset")

    def _try_again(self, dense: int, problem: str) -> None:
        self._problems[dense] = f"the sentinel was not acknowledged: {problem}"
        self._again_ns[dense] = self._client.now_ns() + RETRY_NS


class AuditReader:
    """Reads every partition for the audit (role `audit`). On `read` it reads each partition from its log start through
    the sentinel at the offset given, and says `audited`. Offsets it looked up, and how far it got, are rows of
    `observations`."""

    def __init__(self, client: Client) -> None:
        self._client, self._spec = client, client.spec
        self._observations = RowWriter(client.rows, OBSERVATIONS, client.spec.client)
        self._isolation = Isolation(client.launch.isolation)
        self._offsets = Offsets(client)
        self._reading: PartitionConsumer | None = None
        self._stopped = False

    def run(self) -> None:
        """Waits for `read`, reads, says `audited`, and waits for `stop`."""
        while not self._stopped:
            self._client.heartbeat(self._client.now_ns())
            for order in self._client.control.until(timeout_s=POLL_S):
                if isinstance(order.command, messages.ReadCommand):
                    self._audit(order.command.through, order.command.timeout_s)
                self._stopped = self._stopped or isinstance(order.command, messages.StopCommand)
                self._client.control.send(messages.DoneEvent(number=order.number))

    def issued(self) -> int:
        """Returns how many records were read."""
        return self._reading.rows.writer.count if self._reading else 0

    def close(self) -> None:
        """Writes the rows to their end."""
        self._observations.close()
        if self._reading is not None:
            self._reading.close()

    def _audit(self, through: Mapping[int, int], timeout_s: float) -> None:
        until_ns = self._client.now_ns() + int(timeout_s * NS_PER_S)
        starts = self._observe(ObservationKind.LOG_START)
        self._reading = PartitionConsumer(self._client, start_offsets=starts)
        incomplete = {dense: "its log start could not be looked up" for dense in through if dense not in starts}
        complete, more = self._read(self._reading, {d: s for d, s in through.items() if d in starts}, until_ns)
        self._observe(ObservationKind.HIGH_WATERMARK)
        # Retention may have moved it while we read; checkers take the greatest.
        starts = self._observe(ObservationKind.LOG_START)
        for dense in unexplained_resets(self._reading.lost_at, starts):
            if complete.pop(dense, None) is not None:
                more[dense] = "the position was out of range while it was read"
        for dense, offset in complete.items():
            self._observed(ObservationKind.AUDIT_COMPLETE, dense, offset, NONE)
        self._client.control.send(messages.AuditedEvent(complete=complete, incomplete=incomplete | more))

    def _read(
        self, reading: PartitionConsumer, through: Mapping[int, int], until_ns: int
    ) -> tuple[dict[int, int], dict[int, str]]:
        """Returns which partitions were read through their sentinels, and why the others were not."""
        open_ = np.zeros(len(reading.rows.next_offset), dtype=bool)
        target = np.full(len(open_), np.iinfo(np.int64).max, dtype=np.int64)
        for dense, offset in through.items():
            open_[dense], target[dense] = True, offset
        complete: dict[int, int] = {}
        while open_.any() and (now_ns := self._client.now_ns()) < until_ns:
            self._client.heartbeat(now_ns)
            columns = reading.consume()
            if columns is None:
                continue
            partitions = columns["partition"]
            is_sentinel = (columns["log_offset"] == target[partitions]) & (columns["sender"] == SENTINEL_CLIENT)
            for dense in partitions[is_sentinel & open_[partitions]].tolist():
                complete[dense] = through[dense]
                open_[dense] = False
            open_ &= reading.rows.next_offset <= target
        return complete, {d: self._why(reading, d, s) for d, s in through.items() if d not in complete}

    def _why(self, reading: PartitionConsumer, dense: int, sentinel: int) -> str:
        position = int(reading.rows.next_offset[dense])
        if position > sentinel:
            return f"the record at offset {sentinel} is not the sentinel that was acknowledged there"
        return f"read to offset {position}, not through the sentinel at {sentinel}, within the limit"

    def _observe(self, kind: ObservationKind) -> dict[int, int]:
        """Looks an offset up for all partitions at once, and records the answers. A partition without an answer is
        left out."""
        found = self._offsets.earliest() if kind is ObservationKind.LOG_START else self._offsets.latest()
        for dense, answer in found.items():
            self._observed(kind, dense, answer.offset, answer.leader_epoch)
        return {dense: answer.offset for dense, answer in found.items()}

    def _observed(self, kind: ObservationKind, dense: int, value: int, leader_epoch: int) -> None:
        values: dict[str, int] = {
            "time_ns": self._client.now_ns(),
            "value": value,
            "partition": dense,
            "kind": kind,
            "node": NONE,
            "leader_epoch": leader_epoch,
            "isolation": self._isolation,
        }
        self._observations.append(*in_order(OBSERVATIONS, values))
