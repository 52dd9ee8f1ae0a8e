"""The clients of `prozess watch`: a producer, a reader and an auditor of a topic that the watch has made.

They do what the clients of a trial do: records carry their identity, a send is noted before it is made, and an error proves
only what `prozess.workloads.record.sends` says that it proves. A client that can do nothing more is closed, reported, and
replaced by a new one.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from prozess.harness.clock import NS_PER_S, Clock
from prozess.harness.config.configuration import ProducerConfiguration
from prozess.harness.config.existing_clusters import hidden
from prozess.harness.schema import NONE, Outcome
from prozess.workloads.canary_producer import PolledProducer, Renewals, in_time
from prozess.workloads.librdkafka import LOST_POSITION, logged_in
from prozess.workloads.log.reader import ReadRows, records_and_errors
from prozess.workloads.record.identity import IDENTITY, IDENTITY_OFFSET, encoder
from prozess.workloads.record.outcomes import INSTANCE_IS_DEAD, outcomes_by_code
from prozess.workloads.settings import producer_properties, reader_properties

VALUE_BYTES = 100
DELIVERY_TIMEOUT_MS = 30_000
"""How long a record may wait for its acknowledgement. It bounds what waits in the producer's queue."""
CONSUME_RECORDS_MAX = 500
COMMIT_EVERY_S = 5.0
"""How often the reader commits its offsets, to measure how long that takes."""
AUDIT_LIMIT_S = 5.0
"""How long one audit of a partition may take."""
RECONNECT_MAX_MS = 1_000
"""The longest pause between two tries to connect to a broker that is down. A trial's clients try three times as often, which
a watch of days would pay for; this is still far below the time after which silence is an outage."""
METADATA_MAX_AGE_MS = 10_000
"""How old metadata may be. This long after a partition was added the producer knows it at the latest."""


class CanaryLog(Protocol):
    """Records what the clients do. Partitions are numbers within the topic. All calls come from the thread of `turn`."""

    def invoked(self, partition: int, *, client: int, sequence: int, invoked_ns: int, size: int) -> None:
        """A record is about to be sent."""
        ...

    def completed(
        self,
        partition: int,
        sequence: int,
        *,
        completed_ns: int,
        log_offset: int,
        outcome: Outcome,
        error: str,
        code: int,
    ) -> None:
        """The producer reported how a send ended. `error`: "" if it was acknowledged."""
        ...

    def read(self, partition: int, columns: Mapping[str, np.ndarray]) -> None:
        """The reader was given records of one partition: columns of `reads`."""
        ...

    def audited(self, partition: int, columns: Mapping[str, np.ndarray], *, whole: bool) -> None:
        """The auditor was given these records. `whole`: it was given the last one that it was asked for."""
        ...

    def position_lost(self, partition: int, error: str) -> None:
        """The reader's position is not in the log any more. It reads nothing there until `Canary.seek`."""
        ...

    def client_replaced(self, client: str, reason: str) -> None:
        """The producer or the reader could do nothing more. A new one has replaced it."""
        ...

    def committed(self, took_ns: int, error: str, code: int) -> None:
        """The brokers answered a commit of the reader's offsets. `error`: "" if they took it."""
        ...

    def complained(self, error: str) -> None:
        """A client says what is wrong."""
        ...


class _ReadCount:
    """Counts rows where a client of a trial has a file: the caller has their columns."""

    count = 0

    def extend(self, columns: Mapping[str, np.ndarray]) -> None:
        """Counts the rows of a batch that would be written, and drops them."""
        self.count += len(columns["log_offset"])

    def close(self) -> None:
        """Has nothing to close: no row was written to a file."""


@dataclass(slots=True)
class _Audit:
    """An audit that is under way."""

    end: int
    deadline_ns: int
    taken: list[Mapping[str, np.ndarray]] = field(default_factory=list)


class Canary:
    """Sends records to every partition at a rate, and reads them all. For one thread, which calls `turn` all the time."""

    def __init__(
        self, servers: str, topic: str, partitions: Sequence[int], *, rate_hz: float, log: CanaryLog, clock: Clock
    ) -> None:
        """`partitions`: 0, 1, …, all of the topic's, which is empty. `rate_hz`: records per second of each."""
        self._servers, self._topic, self._log, self._clock = servers, topic, log, clock
        self._every_ns = int(NS_PER_S / rate_hz)
        now_ns = clock.monotonic_ns()
        self._due_ns = {
            number: now_ns + index * self._every_ns // len(partitions) for index, number in enumerate(partitions)
        }
        """When each partition's next record is due."""
        self._outcomes = outcomes_by_code(retries_allowed=True)
        self._client = self._sequence = 0
        self._under_way: dict[int, int] = {}
        """Sequence → partition of each record that was not reported yet."""
        self.sending = True
        """False: it sends nothing more, and takes what is under way."""
        self._rows, self._audit_rows = (self._rows_of(partitions) for _ in range(2))
        self._producers, self._readers = Renewals(began_ns=now_ns), Renewals(began_ns=now_ns)
        self._commit_ns: int | None = None
        self._committed_ns = now_ns
        self._commits = True
        self._audits: dict[int, _Audit] = {}
        self._auditor: Consumer | None = None
        self._producer = self._new_producer()
        self._consumer = self._new_reader()

    @property
    def group(self) -> str:
        """Returns the group to which the reader commits."""
        return self._topic

    def turn(self, timeout_s: float) -> None:
        """Sends what is due, and takes what was acknowledged and what can be read. It takes `timeout_s` at most, if every
        client works."""
        now_ns = self._clock.monotonic_ns()
        if self._producers.due(now_ns):
            self._replace_producer(now_ns)
        if self._readers.due(now_ns):
            self._replace_reader(now_ns)
        for number, due_ns in self._due_ns.items() if self.sending else ():
            if due_ns <= now_ns:
                # What was missed is not made up for: a watch that stood still sends no burst.
                late = due_ns + self._every_ns <= now_ns
                self._due_ns[number] = (now_ns if late else due_ns) + self._every_ns
                self._send(number)
        self._take_reports()
        self._commit(now_ns)
        self._read(timeout_s)
        self._take_reports()
        if self._audits:
            self._follow_audits()

    def add(self, partition: int, *, timeout_s: float) -> None:
        """Sends to one more partition, and reads it from its start on. It takes `timeout_s` at most."""
        spans, positions = self._rows.span, self._rows.next_offset
        partitions = (*self._due_ns, partition)
        self._rows, self._audit_rows = self._rows_of(partitions), self._rows_of(partitions)
        self._rows.span[: len(spans)], self._rows.next_offset[: len(positions)] = spans, positions
        self._due_ns[partition] = self._clock.monotonic_ns()
        self._producer.know(self._topic, timeout_s)
        with suppress(KafkaException):  # a reader that ended is replaced by one that has every partition
            self._consumer.incremental_assign([TopicPartition(self._topic, partition, 0)])

    def seek(self, partition: int, offset: int) -> None:
        """Lets the reader go on at this offset. That is a new span, in which order is judged."""
        self._rows.span[partition] += 1
        self._rows.next_offset[partition] = offset
        tp = TopicPartition(self._topic, partition)
        # seek() is refused (_STATE) once librdkafka has given a partition up; assigning it anew is not.
        with suppress(KafkaException):
            self._consumer.incremental_unassign([tp])
        with suppress(KafkaException):  # a reader that ended is replaced by one that begins here
            self._consumer.incremental_assign([TopicPartition(self._topic, partition, offset)])

    def audit(self, partition: int, start: int, end: int) -> None:
        """Reads a partition once more, from `start` up to `end`, beside the reader. `CanaryLog.audited` gets the records."""
        deadline_ns = self._clock.monotonic_ns() + int(AUDIT_LIMIT_S * NS_PER_S)
        self._audits[partition] = _Audit(end, deadline_ns)
        if start >= end:
            self._end_audit(partition, whole=True)
            return
        try:
            if self._auditor is None:
                self._auditor = Consumer(logged_in(self._reader_properties("auditor")))
            self._auditor.incremental_assign([TopicPartition(self._topic, partition, start)])
        except KafkaException as error:
            self._log.complained(hidden(error.args[0].str()))
            self._give_auditor_up()

    def close(self, *, timeout_s: float) -> None:
        """Ends the clients. What was not acknowledged stays in doubt."""
        consumers = [consumer for consumer in (self._consumer, self._auditor) if consumer is not None]
        in_time([*(consumer.close for consumer in consumers), lambda: self._producer.close(timeout_s)], timeout_s)
        self._take_reports()

    # Sending.

    def _send(self, number: int) -> None:
        sequence = self._sequence
        self._sequence += 1
        self._under_way[sequence] = number
        self._log.invoked(
            number, client=self._client, sequence=sequence, invoked_ns=self._clock.monotonic_ns(), size=VALUE_BYTES
        )
        if self._producers.due_ns is not None:  # silence is an outage, whoever is silent
            refused: KafkaError | None = KafkaError(KafkaError._FATAL)
        else:
            refused = self._producer.produce(self._topic, self._encode(number, sequence), number)
        if refused is not None:  # it never entered the queue
            now_ns = self._clock.monotonic_ns()
            self._complete(number, sequence, now_ns, NONE, Outcome.FAIL, hidden(refused.str()), refused.code())

    def _take_reports(self) -> None:
        reports, complaints = self._producer.taken()
        for complaint in complaints:
            self._heed(complaint)
        for report in reports:
            number, sequence = IDENTITY.unpack_from(report.message.value(), IDENTITY_OFFSET)  # type: ignore[arg-type] # we sent one
            error, offset = report.error, report.message.offset()
            if error is None:
                known = NONE if offset is None or offset < 0 else offset
                self._complete(number, sequence, report.completed_ns, known, Outcome.OK, "", 0)
                continue
            outcome = self._outcomes.get(error.code(), Outcome.INFO)
            self._complete(number, sequence, report.completed_ns, NONE, outcome, hidden(error.str()), error.code())
            self._heed(error)

    def _heed(self, error: KafkaError) -> None:
        """Records what the producer complains of, and that it has ended, if it has."""
        text = hidden(error.str())
        if error.fatal() or error.code() in INSTANCE_IS_DEAD:
            self._producers.ended(f"{error.name()}: {text}", self._clock.monotonic_ns())
        if error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            self._log.complained(text)

    def _complete(
        self, number: int, sequence: int, completed_ns: int, offset: int, outcome: Outcome, error: str, code: int
    ) -> None:
        if self._under_way.pop(sequence, None) is None:
            return
        self._log.completed(
            number, sequence, completed_ns=completed_ns, log_offset=offset, outcome=outcome, error=error, code=code
        )

    def _new_producer(self) -> PolledProducer:
        self._client += 1
        self._encode = encoder(sender=self._client, value_bytes=VALUE_BYTES)
        configuration = ProducerConfiguration(
            acks="all", enable_idempotence=True, linger_ms=0, delivery_timeout_ms=DELIVERY_TIMEOUT_MS
        )
        properties: dict[str, Any] = producer_properties(
            configuration,
            bootstrap_servers=self._servers,
            client_name="prozess-watch-producer",
            partitions=len(self._due_ns),
            unacknowledged_max=1000,
        )
        properties |= {"allow.auto.create.topics": False, "log_level": 0}
        properties |= {
            "reconnect.backoff.max.ms": RECONNECT_MAX_MS,
            "topic.metadata.refresh.interval.ms": METADATA_MAX_AGE_MS,
        }
        return PolledProducer(logged_in(properties), self._clock)

    def _replace_producer(self, now_ns: int) -> None:
        self._producer.close(1)
        self._take_reports()
        for sequence, number in list(self._under_way.items()):  # nobody will report them any more
            code = KafkaError._FATAL
            self._complete(number, sequence, now_ns, NONE, Outcome.INFO, self._producers.reason, code)
        self._producer = self._new_producer()
        # The old one's last words do not concern the new one: only now it is known to be new.
        self._log.client_replaced("producer", self._producers.renewed(now_ns))

    # Reading.

    def _read(self, timeout_s: float) -> None:
        if self._readers.due_ns is not None:
            self._clock.sleep(timeout_s)
            return
        try:
            # consume() waits until it has as many as it is asked for: one wakes it at once, the others are there then.
            messages = self._consumer.consume(1, timeout_s)
            messages += self._consumer.consume(CONSUME_RECORDS_MAX, 0) if messages else []
        except KafkaException as ended:
            self._reader_ended(ended.args[0])
            return
        messages, errors = records_and_errors(messages)
        for message in errors:
            error = message.error()
            assert error is not None
            if error.fatal() or error.code() in INSTANCE_IS_DEAD:  # of a consumer it comes in place of a record
                self._reader_ended(error)
                continue
            self._log.complained(hidden(error.str()))
            if error.code() in LOST_POSITION and message.partition() is not None:
                self._log.position_lost(self._rows.dense(message), hidden(error.str()))
        if messages:
            columns = self._rows.record(messages)
            for number in np.unique(columns["partition"]).tolist():
                mine = columns["partition"] == number
                self._log.read(number, {name: values[mine] for name, values in columns.items()})

    def _reader_ended(self, error: KafkaError) -> None:
        self._log.complained(hidden(error.str()))
        self._readers.ended(f"{error.name()}: {hidden(error.str())}", self._clock.monotonic_ns())

    def _commit(self, now_ns: int) -> None:
        """Commits how far the reader is, unless the last commit is under way or it is too early."""
        if not self._commits or self._commit_ns is not None or now_ns - self._committed_ns < COMMIT_EVERY_S * NS_PER_S:
            return
        self._commit_ns = self._committed_ns = now_ns
        offsets = [TopicPartition(self._topic, n, int(self._rows.next_offset[n])) for n in self._due_ns]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            self._on_commit(error.args[0], offsets)

    def _on_commit(self, error: KafkaError | None, _offsets: list[TopicPartition]) -> None:
        if self._commit_ns is None:
            return
        took_ns, self._commit_ns = self._clock.monotonic_ns() - self._commit_ns, None
        if error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            self._commits = False
        self._log.committed(took_ns, "" if error is None else hidden(error.str()), 0 if error is None else error.code())

    def _new_reader(self) -> Consumer:
        made = Consumer(logged_in({**self._reader_properties("reader"), "on_commit": self._on_commit}))
        made.assign([TopicPartition(self._topic, n, int(self._rows.next_offset[n])) for n in self._due_ns])
        return made

    def _replace_reader(self, now_ns: int) -> None:
        in_time([self._consumer.close], 1)
        self._commit_ns = None
        for number in self._due_ns:
            self._rows.span[number] += 1
        self._consumer = self._new_reader()
        self._log.client_replaced("reader", self._readers.renewed(now_ns))

    def _reader_properties(self, role: str) -> dict[str, Any]:
        properties: dict[str, Any] = reader_properties(
            "read_uncommitted", bootstrap_servers=self._servers, client_name=f"watch-{role}"
        )
        return properties | {
            "client.id": f"prozess-watch-{role}",
            "group.id": self.group,
            "fetch.wait.max.ms": 500,
            "reconnect.backoff.max.ms": RECONNECT_MAX_MS,
            "log_level": 0,
            "error_cb": lambda error: self._log.complained(hidden(error.str())),
        }

    def _rows_of(self, partitions: Sequence[int]) -> ReadRows:
        return ReadRows(
            _ReadCount(), [(number, self._topic, number) for number in partitions], self._clock.monotonic_ns
        )

    # Auditing.

    def _follow_audits(self) -> None:
        assert self._auditor is not None
        try:
            messages, errors = records_and_errors(self._auditor.consume(CONSUME_RECORDS_MAX, 0))
        except KafkaException as error:
            self._log.complained(hidden(error.args[0].str()))
            self._give_auditor_up()
            return
        if any(m.error().fatal() or m.error().code() in INSTANCE_IS_DEAD for m in errors):  # type: ignore[union-attr] # they are errors
            self._give_auditor_up()
            return
        failed = {self._audit_rows.dense(m) for m in errors if m.topic() is not None and m.partition() is not None}
        columns = self._audit_rows.record(messages) if messages else {}
        now_ns = self._clock.monotonic_ns()
        for number, audit in list(self._audits.items()):
            if messages and (mine := columns["partition"] == number).any():
                audit.taken.append({name: values[mine] for name, values in columns.items()})
            last = int(audit.taken[-1]["log_offset"][-1]) if audit.taken else NONE
            if last + 1 >= audit.end or number in failed or now_ns > audit.deadline_ns:
                self._end_audit(number, whole=last + 1 >= audit.end)

    def _end_audit(self, number: int, *, whole: bool) -> None:
        audit = self._audits.pop(number)
        if self._auditor is not None:
            with suppress(KafkaException):
                self._auditor.incremental_unassign([TopicPartition(self._topic, number)])
        names = ("log_offset", "sequence", "flags")
        taken = {
            name: np.concatenate([part[name] for part in audit.taken] or [np.empty(0, dtype=np.int64)])
            for name in names
        }
        self._log.audited(number, taken, whole=whole)

    def _give_auditor_up(self) -> None:
        """Ends every audit that is under way, and the auditor. The next audit has a new one."""
        dead, self._auditor = self._auditor, None
        for number in list(self._audits):
            self._end_audit(number, whole=False)
        if dead is not None:
            in_time([dead.close], 1)
