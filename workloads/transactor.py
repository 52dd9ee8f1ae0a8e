"""A transactional producer: one process, one transactional.id, one instance (init_transactions) after the other.

Every call into librdkafka's transactional interface is answered by its own rules (`workloads.transaction_calls`); where the
instance is dead, a new one takes its place in this process. A commit whose outcome is in doubt is called again, never
aborted; if it stays in doubt, so does the transaction: INFO.

An id may be taken over (`take_over`): its standby initialises, and this one goes on as a zombie until it is fenced; then it
stands by itself.
"""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from harness.rows import RowWriter
from harness.schema import SENDS, TRANSACTIONS, Outcome
from workloads.bulk import PartitionName
from workloads.carrier import encoder
from workloads.client import Client
from workloads.inside_reader import InsideReader
from workloads.java_producer import JavaProducer, Report
from workloads.producer import NS_PER_S, POLL_S
from workloads.transaction_calls import TransactionCalls
from workloads.transaction_rows import ABORT, COMMIT, TransactionalSends, TransactionRows

INITIALISE_AGAIN_NS = 500_000_000
AnyProducer = Producer | JavaProducer
LATE_NS = 1_500_000_000
"""Beyond its timeout, a transaction that is left open is left open this long."""

OWN_RECORDS = 3
"""That a transaction which reads has written before it reads again."""
READ_S = 0.03
"""For each of the two reads inside a transaction."""


class End(Enum):
    """What a transaction is meant to come to."""

    COMMIT = auto()
    ABORT = auto()
    LATE = auto()
    """Left open past its timeout, then committed, if that is still possible."""
    HELD = auto()
    """Half of it, or all, is written; the rest, and the commit, follow when this instance has been superseded."""


@dataclass(frozen=True, slots=True)
class Task:
    """One transaction to be. `answers`: number of the command that asked for it."""

    end: End
    records: Sequence[PartitionName]
    answers: int | None = None


class Transactor:
    """The role `transactor`. Starts paused; commands: resume, pause, send, finish, stop; hold, go_on, take_over.

    Options: transactional_id (number), standby, records, dwell_ms, abort_share, timeout_share, transaction_timeout_ms,
    rate_hz, seed, hold_whole (of a transaction that is held all is written before, else half), reads (properties of the
    consumer inside the transactions, or None), java (what a `JavaProducer` needs, or None: it is librdkafka's).
    """

    def __init__(self, client: Client) -> None:
        spec = client.spec
        self._client, self._spec, self._now_ns, self._options = client, spec, client.now_ns, spec.options
        sends = RowWriter(client.rows, SENDS, spec.client)
        self._sends = TransactionalSends(sends, client.now_ns, value_bytes=spec.value_bytes)
        rows = RowWriter(client.rows, TRANSACTIONS, spec.client)
        self._rows = TransactionRows(rows, client.now_ns, transactional_id=spec.options["transactional_id"])
        self._encode = encoder(sender=spec.client, value_bytes=spec.value_bytes)
        self._random = random.Random(spec.options["seed"])
        reads = spec.options["reads"]
        self._inside = None if reads is None else InsideReader(client, reads)
        self._in_flight = 0
        self._problem: KafkaError | None = None
        """Why the open transaction cannot be committed."""
        self._dead: str | None = None
        """Why the instance is of no more use."""
        self._fresh: AnyProducer | None = self._make()
        self._producer: AnyProducer | None = None
        self._idle, self._superseded, self._held = bool(spec.options["standby"]), False, False
        self._resumed, self._stopped = False, False
        self._finish_by_ns: int | None = None
        self._due_ns = self._again_ns = 0
        self._turn = 0
        self._tasks: deque[Task] = deque()
        self._take_over: int | None = None
        self._calls = TransactionCalls(
            now_ns=client.now_ns, breathe=lambda: self._breathe(POLL_S), given_up=self._given_up
        )

    def run(self) -> None:
        """Until `stop`, or until `finish` and the end of the transaction that is open, or its limit."""
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
        """Rows of `sends`: each is one sequence."""
        return self._sends.count

    def close(self) -> None:
        """Flush `sends` and `transactions`."""
        self._sends.close()
        self._rows.close()
        if self._inside is not None:
            self._inside.close()

    # --- commands ---------------------------------------------------------------------------------------------------

    def _breathe(self, wait_s: float) -> None:
        """Obey, beat, serve librdkafka's callbacks for up to `wait_s`."""
        waiting = self._producer is None
        for command in self._client.control.until(timeout_s=wait_s if waiting else 0):
            self._obey(command)
        self._client.heartbeat(self._now_ns())
        if self._fresh is not None:  # its statistics pile up unless it is polled
            self._client.serve(self._fresh.poll, 0)
        if self._producer is not None:
            self._client.serve(self._producer.poll, wait_s)

    def _obey(self, command: dict[str, Any]) -> None:
        number = command["number"]
        match command["do"]:
            case "resume":
                self._resumed, self._due_ns = True, self._now_ns()
            case "pause":
                self._resumed = False
            case "send" | "hold" if not self._idle:
                self._tasks.append(self._asked(command))
                return
            case "send" | "hold":
                pass  # who stands by has nothing to send
            case "go_on":
                self._superseded, self._held = True, False
            case "take_over":
                self._idle, self._superseded, self._take_over = False, False, number
                return
            case "finish":
                self._resumed, self._held = False, False
                self._tasks.clear()
                self._finish_by_ns = self._now_ns() + int(command["timeout_s"] * NS_PER_S)
            case "stop":
                self._stopped = True
            case unknown:
                raise AssertionError(unknown)
        self._client.control.tell("done", number=number)

    def _asked(self, command: dict[str, Any]) -> Task:
        """Answered once everything of it has been issued."""
        if command["do"] == "hold":
            return Task(End.HELD, self._round(), command["number"])
        chosen = set(command["partitions"])
        round_ = [partition for partition in self._spec.partitions if partition[0] in chosen]
        return Task(End.COMMIT, round_ * command["count"], command["number"])

    def _given_up(self) -> bool:
        """Is there no more time to wait for anything?"""
        return self._stopped or (self._finish_by_ns is not None and self._now_ns() >= self._finish_by_ns)

    # --- instances --------------------------------------------------------------------------------------------------

    def _make(self) -> AnyProducer:
        if java := self._options["java"]:
            return JavaProducer(java, on_delivery=self._reported)
        callbacks = {"on_delivery": self._reported, "error_cb": self._client.on_error}
        return Producer({**self._spec.properties, **callbacks, **self._client.statistics.callbacks})

    def _initialise(self) -> None:
        """A new instance, which fences all before it."""
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
            self._client.control.tell("done", number=self._take_over)
            self._take_over = None

    def _replace_dead(self) -> None:
        if self._dead is None and self._client.fatal is None:
            return
        self._client.log(f"the instance died: {self._dead or self._client.fatal}")
        self._breathe(0)  # one that was frozen may have been told meanwhile that it is superseded
        assert self._producer is not None
        self._producer.purge(blocking=False)  # else its end would wait for deliveries
        self._producer = None
        if self._superseded:  # fenced, as it must be: the id is another's now
            self._idle, self._superseded = True, False
            while self._tasks:
                if (number := self._tasks.popleft().answers) is not None:
                    self._client.control.tell("done", number=number)

    # --- transactions -----------------------------------------------------------------------------------------------

    def _next(self) -> Task | None:
        if self._tasks:
            return self._tasks.popleft()
        now_ns = self._now_ns()
        if not self._resumed or now_ns < self._due_ns:
            return None
        self._due_ns = max(self._due_ns + int(NS_PER_S / self._options["rate_hz"]), now_ns)
        draw, late = self._random.random(), self._options["timeout_share"]
        end = End.LATE if draw < late else End.ABORT if draw < late + self._options["abort_share"] else End.COMMIT
        return Task(end, self._round())

    def _round(self) -> list[PartitionName]:
        """As many records as a transaction has, over the partitions in turn."""
        partitions, first = self._spec.partitions, self._turn
        self._turn += self._options["records"]
        return [partitions[turn % len(partitions)] for turn in range(first, self._turn)]

    def _transact(self, task: Task) -> None:
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
        if task.end is End.HELD:
            # A zombie is found out when it writes; one that has nothing more to write, when it commits.
            before = len(rest) if self._options["hold_whole"] else len(rest) // 2
            self._issue(transaction, rest[:before])
            self._await_reports()
            self._hold(task)
            rest = rest[before:]
        if self._options["dwell_ms"]:
            self._issue(transaction, rest[: len(rest) // 2])
            self._dwell()
            rest = rest[len(rest) // 2 :]
        self._issue(transaction, rest)
        if task.answers is not None and task.end is not End.HELD:
            self._client.control.tell("done", number=task.answers)
        self._await_reports()
        self._dwell()
        if task.end is End.LATE:
            self._outlive_timeout()
        outcome, code = self._end(wanted=ABORT if task.end is End.ABORT else COMMIT)
        completed_ns = self._rows.ended(outcome, code)
        self._sends.complete(first, outcome=outcome, code=code, completed_ns=completed_ns)

    def _issue(self, transaction: int, records: Sequence[PartitionName]) -> None:
        """One record for each, recorded before it is attempted."""
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
        """Every record of the transaction is appended, or something went wrong."""
        while self._in_flight and not self._problem and not self._client.fatal and not self._given_up():
            self._breathe(POLL_S)

    def _reported(self, error: KafkaError | None, message: Message | Report) -> None:
        self._in_flight -= 1
        self._sends.reported(error, message)
        if error is not None:
            self._problem = self._problem or error

    def _hold(self, task: Task) -> None:
        """With an open transaction, until it is told to go on: somebody takes the id over meanwhile."""
        self._held = True
        assert task.answers is not None
        self._client.control.tell("done", number=task.answers)
        while self._held and not self._stopped:
            self._breathe(POLL_S)

    def _dwell(self) -> None:
        """As an application does that works between its sends."""
        until_ns = self._now_ns() + self._options["dwell_ms"] * 1_000_000
        while self._now_ns() < until_ns and not self._problem and self._finish_by_ns is None and not self._stopped:
            self._breathe(POLL_S)

    def _outlive_timeout(self) -> None:
        lasting_ns = self._options["transaction_timeout_ms"] * 1_000_000 + LATE_NS
        until_ns = self._rows.current.begun_ns + lasting_ns
        while self._now_ns() < until_ns and self._finish_by_ns is None and not self._stopped:
            self._breathe(POLL_S)

    def _end(self, *, wanted: int) -> tuple[Outcome, int]:
        """Commit or abort: what is known of the transaction then, and the code of the error if there was one."""
        assert self._producer is not None
        if self._client.fatal is not None or (self._in_flight and not self._problem):  # dead, or out of time
            self._dead = self._dead or self._client.fatal or "given up with records in flight"
            return Outcome.INFO, KafkaError._FATAL if self._client.fatal else KafkaError._TIMED_OUT
        ended = self._calls.end(self._producer, self._rows, wanted=wanted, problem=self._problem)
        self._dead = ended.dead or self._dead
        return ended.outcome, ended.code
