"""A transactor is a transactional producer: one process and one transactional.id. A fencer ends what it left open."""

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto, unique
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from prozess.harness.clock import NS_PER_S
from prozess.harness.recording.rows import RowWriter
from prozess.harness.schema import NONE, POSITIONS, READS, SENDS, TRANSACTIONS, Outcome
from prozess.workloads import messages
from prozess.workloads.client import Client
from prozess.workloads.librdkafka import LOST_POSITION, logged_in
from prozess.workloads.log.producer import POLL_S
from prozess.workloads.log.reader import CONSUME_RECORDS_MAX, ReadRows
from prozess.workloads.record.identity import encoder
from prozess.workloads.record.members import ASSIGNED
from prozess.workloads.record.sends import ABORT, COMMIT, DeliveryReport, PartitionName
from prozess.workloads.record.transactions import TransactionalSends, TransactionRows
from prozess.workloads.settings import options_of
from prozess.workloads.transactions.calls import SLICE_S, TransactionCalls
from prozess.workloads.transactions.java_producer import AnyProducer, JavaProducer
from prozess.workloads.transactions.launch import FencerOptions, TransactorOptions

# Every call into librdkafka's transactional interface is answered by its own rules
# (see below); where the instance is dead, a new one takes its place in this process.
# A commit whose outcome is in doubt is called again, never aborted; if it stays in doubt, so does the transaction:
# INFO.
#
# An id may be taken over (`take_over`): its standby initialises, and this one goes on as a zombie until it is fenced;
# then it stands by itself.


INITIALISE_AGAIN_NS = 500_000_000
LATE_NS = 1_500_000_000
"""How long beyond its timeout a transaction is left open that is to be too late."""

OWN_RECORDS = 3
"""How many records a transaction that reads has written before it reads again."""
READ_S = 0.03
"""How long each of the two reads inside a transaction takes."""


@unique
class IntendedEnd(Enum):
    """Describes what a transaction is meant to come to."""

    COMMIT = auto()
    ABORT = auto()
    LATE = auto()
    """Left open past its timeout, then committed, if that is still possible."""
    HELD = auto()
    """Half of it, or all, is written; the rest, and the commit, follow when this instance has been superseded."""


@dataclass(frozen=True, slots=True)
class TransactionTask:
    """One transaction to be made. `answers`: the number of the command that asked for it."""

    end: IntendedEnd
    records: Sequence[PartitionName]
    answers: int | None = None


class Transactor:
    """A transactional producer (role `transactor`). It starts paused; commands: resume, pause, send, finish, stop;
    hold, go_on, take_over.
    """

    def __init__(self, client: Client) -> None:
        spec = client.spec
        self._client, self._spec, self._now_ns = client, spec, client.now_ns
        self._options = options_of(spec, TransactorOptions)
        sends = RowWriter(client.rows, SENDS, spec.client)
        self._sends = TransactionalSends(sends, client.now_ns, value_bytes=spec.value_bytes)
        rows = RowWriter(client.rows, TRANSACTIONS, spec.client)
        self._rows = TransactionRows(rows, client.now_ns, transactional_id=self._options.transactional_id)
        self._encode = encoder(sender=spec.client, value_bytes=spec.value_bytes)
        self._random = random.Random(self._options.seed)
        reads = self._options.reads
        self._inside = None if reads is None else InsideReader(client, reads)
        self._in_flight = 0
        self._problem: KafkaError | None = None
        """Why the open transaction cannot be committed."""
        self._dead: str | None = None
        """Why the instance can no longer be used."""
        self._fresh: AnyProducer | None = self._make()
        self._producer: AnyProducer | None = None
        self._idle, self._superseded, self._held = self._options.standby, False, False
        self._resumed, self._stopped = False, False
        self._finish_by_ns: int | None = None
        self._due_ns = self._again_ns = 0
        self._turn = 0
        self._tasks: deque[TransactionTask] = deque()
        self._take_over: int | None = None
        self._calls = TransactionCalls(
            now_ns=client.now_ns, breathe=lambda: self._breathe(POLL_S), given_up=self._given_up
        )

    def run(self) -> None:
        """Works until `stop`, or until `finish` and the end of the transaction that is open, or its limit."""
        while not self._stopped and self._finish_by_ns is None:
            if self._idle or self._now_ns() < self._again_ns:
                self._breathe(POLL_S)
            elif self._producer is None:
                self._initialise()
            elif task := self._next():
                self._transact(task)
                self._replace_dead()
            else:
                self._breathe(POLL_S)

    def issued(self) -> int:
        """Returns how many rows of `sends` there are: each is one sequence."""
        return self._sends.count

    def close(self) -> None:
        """Writes `sends` and `transactions` to their end."""
        self._sends.close()
        self._rows.close()
        if self._inside is not None:
            self._inside.close()

    # Commands.

    def _breathe(self, wait_s: float) -> None:
        """Obeys commands, beats, and serves librdkafka's callbacks for up to `wait_s`."""
        waiting = self._producer is None
        for order in self._client.control.until(timeout_s=wait_s if waiting else 0):
            self._obey(order)
        self._client.heartbeat(self._now_ns())
        if self._fresh is not None:  # its statistics pile up unless it is polled
            self._client.serve(self._fresh.poll, 0)
        if self._producer is not None:
            self._client.serve(self._producer.poll, wait_s)

    def _obey(self, order: messages.Order) -> None:
        number = order.number
        match order.command:
            case messages.ResumeCommand():
                self._resumed, self._due_ns = True, self._now_ns()
            case messages.PauseCommand():
                self._resumed = False
            case messages.SendCommand() | messages.HoldCommand() as command if not self._idle:
                self._tasks.append(self._asked(command, number))
                return
            case messages.SendCommand() | messages.HoldCommand():
                pass  # who stands by has nothing to send
            case messages.GoOnCommand():
                self._superseded, self._held = True, False
            case messages.TakeOverCommand():
                self._idle, self._superseded, self._take_over = False, False, number
                return
            case messages.FinishCommand(timeout_s=timeout_s):
                self._resumed, self._held = False, False
                self._tasks.clear()
                self._finish_by_ns = self._now_ns() + int(timeout_s * NS_PER_S)
            case messages.StopCommand():
                self._stopped = True
            case unknown:
                raise AssertionError(unknown)
        self._client.control.send(messages.DoneEvent(number=number))

    def _asked(self, command: messages.SendCommand | messages.HoldCommand, number: int) -> TransactionTask:
        """Makes the task of a command. The command is answered once all of its records have been issued."""
        if isinstance(command, messages.HoldCommand):
            return TransactionTask(IntendedEnd.HELD, self._round(), number)
        chosen = set(command.partitions)
        round_ = [partition for partition in self._spec.partitions if partition[0] in chosen]
        return TransactionTask(IntendedEnd.COMMIT, round_ * command.count, number)

    def _given_up(self) -> bool:
        """Says whether there is no more time to wait for anything."""
        return self._stopped or (self._finish_by_ns is not None and self._now_ns() >= self._finish_by_ns)

    # Instances.

    def _make(self) -> AnyProducer:
        if java := self._options.java:
            return JavaProducer(java, on_delivery=self._reported)
        callbacks = {"on_delivery": self._reported, "error_cb": self._client.on_error}
        return Producer(logged_in({**self._spec.properties, **callbacks, **self._client.statistics.callbacks}))

    def _initialise(self) -> None:
        """Initialises a new instance, which fences all before it."""
        self._client.fatal = self._dead = None
        producer, self._fresh = self._fresh or self._make(), None
        self._rows.initialising()
        error = self._calls.make(producer.init_transactions)
        if error is not None:
            self._client.log(f"init_transactions: {error.name()} {error.str()}")
            self._again_ns = self._now_ns() + INITIALISE_AGAIN_NS
            return
        self._rows.initialised()
        self._producer, self._in_flight = producer, 0
        if self._take_over is not None:
            self._client.control.send(messages.DoneEvent(number=self._take_over))
            self._take_over = None

    def _replace_dead(self) -> None:
        if self._dead is None and self._client.fatal is None:
            return
        self._client.log(f"the instance died: {self._dead or self._client.fatal}")
        self._breathe(0)  # one that was frozen may have learned meanwhile that it is superseded
        assert self._producer is not None
        self._producer.purge(blocking=False)  # else its end would wait for deliveries
        self._producer = None
        if self._superseded:  # fenced, as it must be: the id is another's now
            self._idle, self._superseded = True, False
            while self._tasks:
                if (number := self._tasks.popleft().answers) is not None:
                    self._client.control.send(messages.DoneEvent(number=number))

    # Transactions.

    def _next(self) -> TransactionTask | None:
        if self._tasks:
            return self._tasks.popleft()
        now_ns = self._now_ns()
        if not self._resumed or now_ns < self._due_ns:
            return None
        self._due_ns = max(self._due_ns + int(NS_PER_S / self._options.rate_hz), now_ns)
        draw, late = self._random.random(), self._options.timeout_share
        end = (
            IntendedEnd.LATE
            if draw < late
            else IntendedEnd.ABORT
            if draw < late + self._options.abort_share
            else IntendedEnd.COMMIT
        )
        return TransactionTask(end, self._round())

    def _round(self) -> list[PartitionName]:
        """Returns the partitions of a transaction's records: all partitions in turn."""
        partitions, first = self._spec.partitions, self._turn
        self._turn += self._options.records
        return [partitions[turn % len(partitions)] for turn in range(first, self._turn)]

    def _transact(self, task: TransactionTask) -> None:
        assert self._producer is not None
        self._problem = None
        transaction, first = self._rows.begin(), self._sends.count
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            self._problem = error.args[0]
            self._dead = error.args[0].str()
            self._rows.ended(Outcome.FAIL, error.args[0].code())
            return
        rest = task.records
        if self._inside is not None:
            # What others have committed, then some records of its own, then: is one of them there?
            self._inside.read(READ_S, self._breathe)
            own, rest = rest[:OWN_RECORDS], rest[OWN_RECORDS:]
            self._issue(transaction, own)
            self._await_reports()
            self._inside.read(READ_S, self._breathe)
        if task.end is IntendedEnd.HELD:
            # A zombie is found out when it writes; one that has nothing more to write, when it commits.
            before = len(rest) if self._options.hold_whole else len(rest) // 2
            self._issue(transaction, rest[:before])
            self._await_reports()
            self._hold(task)
            rest = rest[before:]
        if self._options.dwell_ms:
            self._issue(transaction, rest[: len(rest) // 2])
            self._dwell()
            rest = rest[len(rest) // 2 :]
        self._issue(transaction, rest)
        if task.answers is not None and task.end is not IntendedEnd.HELD:
            self._client.control.send(messages.DoneEvent(number=task.answers))
        self._await_reports()
        self._dwell()
        if task.end is IntendedEnd.LATE:
            self._outlive_timeout()
        outcome, code = self._end(wanted=ABORT if task.end is IntendedEnd.ABORT else COMMIT)
        completed_ns = self._rows.ended(outcome, code)
        self._sends.complete(first, outcome=outcome, code=code, completed_ns=completed_ns)

    def _issue(self, transaction: int, records: Sequence[PartitionName]) -> None:
        """Sends one record to each of these partitions; its row is written before."""
        assert self._producer is not None
        for dense, topic, number in records:
            if self._problem is not None or self._client.fatal is not None:
                return
            sequence = self._sends.issue(transaction=transaction, partition=dense)
            try:
                self._producer.produce(topic, self._encode(dense, sequence), None, number)
                self._in_flight += 1
            except BufferError:
                self._sends.refused(sequence, KafkaError._QUEUE_FULL)
                self._breathe(POLL_S)
            except KafkaException as error:
                self._sends.refused(sequence, error.args[0].code())
                self._problem = error.args[0]

    def _await_reports(self) -> None:
        """Waits until every record of the transaction is appended, or something went wrong."""
        while self._in_flight and not self._problem and not self._client.fatal and not self._given_up():
            self._breathe(POLL_S)

    def _reported(self, error: KafkaError | None, message: DeliveryReport) -> None:
        self._in_flight -= 1
        self._sends.reported(error, message)
        if error is not None:
            self._problem = self._problem or error

    def _hold(self, task: TransactionTask) -> None:
        """Waits with an open transaction until it is asked to go on: meanwhile another process takes the id over."""
        self._held = True
        assert task.answers is not None
        self._client.control.send(messages.DoneEvent(number=task.answers))
        while self._held and not self._stopped:
            self._breathe(POLL_S)

    def _dwell(self) -> None:
        """Waits, as an application does that works between its sends."""
        until_ns = self._now_ns() + self._options.dwell_ms * 1_000_000
        while self._now_ns() < until_ns and not self._problem and self._finish_by_ns is None and not self._stopped:
            self._breathe(POLL_S)

    def _outlive_timeout(self) -> None:
        lasting_ns = self._options.transaction_timeout_ms * 1_000_000 + LATE_NS
        until_ns = self._rows.current.begun_ns + lasting_ns
        while self._now_ns() < until_ns and self._finish_by_ns is None and not self._stopped:
            self._breathe(POLL_S)

    def _end(self, *, wanted: int) -> tuple[Outcome, int]:
        """Commits or aborts. Returns what is known of the transaction then, and the code of the error if there was
        one."""
        assert self._producer is not None
        if self._client.fatal is not None or (self._in_flight and not self._problem):  # dead, or out of time
            self._dead = self._dead or self._client.fatal or "given up with records in flight"
            return Outcome.INFO, KafkaError._FATAL if self._client.fatal else KafkaError._TIMED_OUT
        ended = self._calls.end(self._producer, self._rows, wanted=wanted, problem=self._problem)
        self._dead = ended.dead or self._dead
        return ended.outcome, ended.code


# A consumer inside the transactions of a producer: reads what is new while a transaction is open, and never else.
#
# What it is given becomes rows of `reads` under the producer's client id, at the consumer's isolation level; the
# transaction it belongs to is the one that is open then. Its own troubles are no reason for the producer to end: a
# consumer that lost its position is made anew, at the end of the log, as a new span.


INSIDE_SLICE_S = 0.01


class InsideReader:
    """Reads every partition of its client, from the end of the log on, inside the client's transactions."""

    def __init__(self, client: Client, properties: Mapping[str, Any]) -> None:
        self._client, self._properties = client, properties
        writer = RowWriter(client.rows, READS, client.spec.client)
        self._rows = ReadRows(writer, client.spec.partitions, client.now_ns)
        self._positions = RowWriter(client.rows, POSITIONS, client.spec.client)
        self._spans = -1
        self._lost: str | None = None
        self._consumer = self._assigned()

    def read(self, lasting_s: float, breathe: Callable[[float], None]) -> None:
        """Records what is given within that time; `breathe` keeps the client alive meanwhile."""
        if self._lost is not None:
            self._client.log(f"the consumer inside transactions is made anew: {self._lost}")
            self._consumer.close()
            self._consumer, self._lost = self._assigned(), None
        until_ns = self._client.now_ns() + int(lasting_s * 1e9)
        while self._client.now_ns() < until_ns:
            breathe(0)
            try:
                messages = self._consumer.consume(CONSUME_RECORDS_MAX, INSIDE_SLICE_S)
            except KafkaException as error:
                self._lost = str(error.args[0].str())
                return
            for problem in (e for message in messages if (e := message.error()) is not None):
                self._note(problem)
            if records := [message for message in messages if message.error() is None]:
                self._rows.record(records)

    def close(self) -> None:
        """Writes the rows to their end."""
        self._consumer.close()
        self._rows.writer.close()
        self._positions.close()

    def _assigned(self) -> Consumer:
        consumer = Consumer(logged_in({**self._properties, "error_cb": self._note}))
        self._spans += 1
        for dense, _, _ in self._client.spec.partitions:
            self._rows.span[dense] = self._spans
            self._positions.append(self._client.now_ns(), NONE, dense, ASSIGNED, self._spans)
        consumer.assign(
            [TopicPartition(topic, number, OFFSET_END) for _, topic, number in self._client.spec.partitions]
        )
        return consumer

    def _note(self, error: KafkaError) -> None:
        """Takes an error: only a lost position or a dead instance needs something done; the rest librdkafka retries."""
        if error.fatal() or error.code() in LOST_POSITION:
            self._lost = f"{error.name()} {error.str()}"


# The role `fencer`: before the audit, every transactional.id is initialised once more. What was open is aborted, what
# was prepared is completed (KIP-98, InitProducerId), and who still had it can write no more.


class Fencer:
    """Ends every open transaction (role `fencer`). On `fence` it initialises each id and says `fenced` with those it
    could not, and why."""

    def __init__(self, client: Client) -> None:
        self._client, self._ids = client, options_of(client.spec, FencerOptions).transactional_ids
        self._writer = RowWriter(client.rows, TRANSACTIONS, client.spec.client)
        self._stopped = False

    def run(self) -> None:
        """Obeys commands until `stop`."""
        while not self._stopped:
            self._breathe(POLL_S)

    def issued(self) -> int:
        """Returns 0: a fencer sends nothing."""
        return 0

    def close(self) -> None:
        """Writes `transactions` to its end."""
        self._writer.close()

    def _breathe(self, wait_s: float) -> None:
        self._client.heartbeat(self._client.now_ns())
        for order in self._client.control.until(timeout_s=wait_s):
            self._obey(order)

    def _obey(self, order: messages.Order) -> None:
        match order.command:
            case messages.FenceCommand(timeout_s=timeout_s):
                self._fence_all(timeout_s)
            case messages.StopCommand():
                self._stopped = True
            case unknown:
                raise AssertionError(unknown)
        self._client.control.send(messages.DoneEvent(number=order.number))

    def _fence_all(self, timeout_s: float) -> None:
        """Fences one id after the other: each takes milliseconds unless its coordinator is gone."""
        until_ns = self._client.now_ns() + int(timeout_s * NS_PER_S)
        problems: dict[str, str] = {}
        for number, text in self._ids:
            rows = TransactionRows(self._writer, self._client.now_ns, transactional_id=number)
            problem = self._fence(text, rows, until_ns)
            if problem is not None:
                problems[text] = problem
        self._client.control.send(messages.FencedEvent(problems=problems))

    def _fence(self, text: str, rows: TransactionRows, until_ns: int) -> str | None:
        producer = Producer(
            logged_in({**self._client.spec.properties, "transactional.id": text, "error_cb": self._client.on_error})
        )
        rows.initialising()
        while True:
            try:
                producer.init_transactions(SLICE_S)
            except KafkaException as error:
                cause: KafkaError = error.args[0]
                if not cause.retriable() or self._client.now_ns() >= until_ns or self._stopped:
                    return f"{cause.name()}: {cause.str()}"
                self._breathe(0)
                continue
            rows.initialised()
            return None
