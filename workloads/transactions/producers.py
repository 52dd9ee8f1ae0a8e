"""Transactional producers: librdkafka's and Kafka's own Java producer, their settings, and how their calls are made.

Java's producer runs in this process and answers as confluent_kafka's does. The JVM is started with the first one (JPype),
and its records are polled for: no thread of Java's enters Python. Java's transactional calls return after `max.block.ms`
and may then be made again ("It is safe to retry", KafkaProducer), which is what a retriable error means to whoever calls.
Which exceptions end the producer is in its documentation (beginTransaction, commitTransaction); any other means that the
transaction must be aborted.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import NoReturn, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer

from prozess.harness.config.configuration import ProducerConfiguration
from prozess.harness.errors import BadInput
from prozess.harness.plan.plan import Plan, PlannedClient
from prozess.harness.plan.work import TransactionsWork, work_as
from prozess.harness.schema import Outcome
from prozess.workloads.client import NowNs
from prozess.workloads.record.sends import ABORT, COMMIT, DeliveryReport, TransactionRows
from prozess.workloads.settings import (
    LaunchContext,
    Property,
    RoleOptions,
    Settings,
    left_properties,
    producer_properties,
    reader_properties,
    sentinel_properties,
)

_FLAGS = ("-Xrs", "-Xmx96m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
"""Flags of the JVM. -Xrs: signals are Python's."""
_FATAL = (
    "ProducerFencedException",
    "InvalidProducerEpochException",
    "OutOfOrderSequenceException",
    "UnsupportedVersionException",
    "AuthorizationException",
    "TransactionalIdAuthorizationException",
    "InvalidTxnStateException",
    "IllegalStateException",
)
_TOO_LATE = "TimeoutException"


@dataclass(frozen=True, slots=True)
class JavaDeliveryReport:
    """A delivery report of Kafka's Java producer (`prozess.workloads.record.sends.DeliveryReport`)."""

    copied_value: bytes
    copied_offset: int | None

    def value(self) -> bytes:
        """Returns the record's value."""
        return self.copied_value

    def offset(self) -> int | None:
        """Returns where the record was appended; None = it was not, as far as is known."""
        return self.copied_offset


class JavaClass(Protocol):
    """java.lang.Class, as JPype shows it."""

    def getSimpleName(self) -> object: ...


class JavaThrowable(Protocol):
    """java.lang.Throwable, as JPype shows it."""

    def getClass(self) -> JavaClass: ...
    def getMessage(self) -> object: ...


class JavaRecordMetadata(Protocol):
    """Describes what Kafka's Java producer says of a record that was appended."""

    def offset(self) -> int: ...


class JavaFuture(Protocol):
    """java.util.concurrent.Future of a send, as JPype shows it."""

    def isDone(self) -> bool: ...
    def get(self, *limit: object) -> JavaRecordMetadata: ...


def java_machine(library: str, jars: Sequence[str]) -> ModuleType:
    """Returns JPype, with the JVM running. Only the first caller's jars count."""
    jpype = import_module("jpype")
    if not jpype.isJVMStarted():
        jpype.startJVM(library, *_FLAGS, classpath=list(jars), convertStrings=True, interrupt=False)
    return jpype


class JavaOptions(RoleOptions):
    """Describes what a `JavaProducer` needs: `library` is libjvm, `properties` are as Java spells them."""

    library: str
    jars: tuple[str, ...]
    properties: dict[str, Property]


class JavaProducer:
    """Kafka's own Java producer, with those of confluent_kafka's methods that are used here. A timeout given to them
    is the producer's own `max.block.ms`."""

    def __init__(self, java: JavaOptions, *, on_delivery: Callable[[KafkaError | None, DeliveryReport], None]) -> None:
        self._jpype = java_machine(java.library, java.jars)
        self._record = self._jpype.JClass("org.apache.kafka.clients.producer.ProducerRecord")
        self._integer = self._jpype.JClass("java.lang.Integer")
        self._on_delivery = on_delivery
        self._pending: deque[tuple[JavaFuture, bytes]] = deque()
        properties = self._jpype.JClass("java.util.Properties")()
        for key, value in java.properties.items():
            properties.setProperty(key, str(value))
        serializer = self._jpype.JClass("org.apache.kafka.common.serialization.ByteArraySerializer")
        self._producer = self._jpype.JClass("org.apache.kafka.clients.producer.KafkaProducer")(
            properties, serializer(), serializer()
        )

    def produce(self, topic: str, value: bytes, key: None, partition: int) -> None:
        """Sends a record. KafkaException if it is refused; one that does not get into the queue in time is reported as
        failed."""
        assert key is None
        record = self._record(topic, self._integer(partition), None, self._jpype.JArray(self._jpype.JByte)(value))
        self._call(lambda: self._pending.append((self._producer.send(record), value)))

    def poll(self, timeout_s: float) -> int:
        """Reports what is done, the oldest first. It waits for the first for up to `timeout_s`."""
        reported = self._report()
        if not reported and timeout_s > 0:
            if self._pending:
                self._wait(self._pending[0][0], timeout_s)
            else:
                threading.Event().wait(timeout_s)
            reported = self._report()
        return reported

    def begin_transaction(self) -> None:
        """Begins a transaction. KafkaException if the producer is in no state for it."""
        self._call(self._producer.beginTransaction)

    def init_transactions(self, _timeout_s: float) -> None:
        """Initialises the transactional.id. KafkaException, which is retriable if the call is only late."""
        self._call(self._producer.initTransactions)

    def commit_transaction(self, _timeout_s: float) -> None:
        """Commits the transaction. KafkaException as of `init_transactions`."""
        self._call(self._producer.commitTransaction)
        self._report()

    def abort_transaction(self, _timeout_s: float) -> None:
        """Aborts the transaction. KafkaException as of `init_transactions`."""
        self._call(self._producer.abortTransaction)
        self._report()

    def purge(self, *, blocking: bool) -> None:
        """Ends the producer, whatever is under way."""
        assert not blocking
        self._pending.clear()
        self._producer.close(self._jpype.JClass("java.time.Duration").ZERO)

    def _report(self) -> int:
        reported = 0
        while self._pending and self._pending[0][0].isDone():
            future, value = self._pending.popleft()
            error, offset = None, None
            try:
                offset = int(future.get().offset())
            except self._jpype.JException as failure:
                error = _error_of(failure.getCause() or failure)
            self._on_delivery(error, JavaDeliveryReport(value, offset))
            reported += 1
        return reported

    def _wait(self, future: JavaFuture, timeout_s: float) -> None:
        unit = self._jpype.JClass("java.util.concurrent.TimeUnit").MILLISECONDS
        try:
            future.get(int(timeout_s * 1000), unit)
        except self._jpype.JException:
            return  # not yet, or failed: `_report` says which

    def _call(self, call: Callable[[], object]) -> None:
        try:
            call()
        except self._jpype.JException as error:
            _give_up(error)


def _give_up(error: JavaThrowable) -> NoReturn:
    raise KafkaException(_error_of(error)) from None


def _error_of(error: JavaThrowable) -> KafkaError:
    """Returns the error of librdkafka that means the same to whoever asks."""
    name = str(error.getClass().getSimpleName())
    text = f"{name}: {error.getMessage()}"
    if name == _TOO_LATE:
        return KafkaError(KafkaError._TIMED_OUT, text, retriable=True)
    if name in _FATAL:
        return KafkaError(KafkaError._FATAL, text, fatal=True)
    return KafkaError(KafkaError._FAIL, text, txn_requires_abort=True)


AnyProducer = Producer | JavaProducer


# Calls into librdkafka's transactional interface, answered by its own rules (INTRODUCTION, "Transactional producer";
# rd_kafka_error_is_retriable, _txn_requires_abort, _is_fatal): retriable: the same call again; requires abort: abort;
# fatal, and anything else: the instance is dead.
#
# Calls are cut into slices, so that commands are obeyed and heartbeats written meanwhile: a call that timed out goes
# on when it is made again.


SLICE_S = 0.6
"""The longest uninterrupted call: a gap in the heartbeats beyond 1 s would mean starvation. Much shorter ones are
dangerous: a commit that is made again, and cannot even begin within its slice, forgets that it was one, and
librdkafka ends the process by an assertion when the coordinator answers (rd_kafka_txn_endtxn_complete; seen of
2.16.0 with slices of 0.25 s on a machine that had no time; rdkafka.h advises against any limit for commit and
abort)."""
CALL_LIMIT_NS = 60_000_000_000
"""The limit for init, commit and abort: longer than any outage that a trial makes. Then the instance is given up, in
doubt."""

Call = Callable[[float], object]


@dataclass(frozen=True, slots=True)
class TransactionOutcome:
    """Says how a transaction ended. `dead`: why the instance is of no more use; None = it goes on."""

    outcome: Outcome
    code: int
    dead: str | None = None


class TransactionCalls:
    """Makes transactional calls for one client. `breathe`: obey, beat, serve callbacks; `given_up`: is there no more
    time to wait?"""

    def __init__(self, *, now_ns: NowNs, breathe: Callable[[], object], given_up: Callable[[], bool]) -> None:
        self._now_ns, self._breathe, self._given_up = now_ns, breathe, given_up

    def make(self, call: Call) -> KafkaError | None:
        """Makes the same call again for as long as librdkafka says so. Returns the error that ends it; None = done."""
        until_ns = self._now_ns() + CALL_LIMIT_NS
        while True:
            try:
                call(SLICE_S)
                return None
            except KafkaException as error:
                cause: KafkaError = error.args[0]
            if not cause.retriable() or self._given_up() or self._now_ns() >= until_ns:
                return cause
            self._breathe()

    def end(
        self, producer: AnyProducer, rows: TransactionRows, *, wanted: int, problem: KafkaError | None
    ) -> TransactionOutcome:
        """Commits, unless an abort is wanted or there is a problem; then aborts. Returns what is known of the
        transaction then.

        FAIL only if no commit was ever invoked and the abort was confirmed. After a commit even a confirmed abort proves
        nothing: it may have been of the epoch bump that librdkafka makes in its place (KIP-360).
        """
        code = problem.code() if problem else 0
        committing = wanted == COMMIT and problem is None
        if committing:
            rows.ending(COMMIT)
            error = self.make(producer.commit_transaction)
            if error is None:
                return TransactionOutcome(Outcome.OK, 0)
            code = error.code()
            if not error.txn_requires_abort():
                return TransactionOutcome(Outcome.INFO, code, f"commit_transaction: {error.name()} {error.str()}")
        rows.ending(ABORT)
        error = self.make(producer.abort_transaction)
        if error is None:
            return TransactionOutcome(Outcome.INFO if committing else Outcome.FAIL, code)
        return TransactionOutcome(Outcome.INFO, error.code(), f"abort_transaction: {error.name()} {error.str()}")


# How transactional clients are launched.

FENCING_TRANSACTION_MS = 60_000
JAVA_REQUEST_MS = 10_000
"""As long as librdkafka's clients wait in a trial (socket.timeout.ms)."""


def launch_transactor(context: LaunchContext) -> Settings:
    """Makes the settings of a client with the role `transactor`: one transactional.id."""
    planned = context.planned
    assert planned.producer is not None, planned
    assert planned.transactional_id is not None, planned
    if planned.producer.client == "java":
        return Settings({}, _options(context, _java(context)))
    transaction = work_as(TransactionsWork, planned.work).configuration
    properties = producer_properties(
        within_lifetime(planned.producer, transaction.transaction_timeout_ms),
        bootstrap_servers=context.servers,
        client_name=planned.name,
        partitions=len(planned.partitions),
        unacknowledged_max=planned.traffic.unacknowledged_max,
    )
    properties = within_transaction(properties, planned.transactional_id, timeout_ms=transaction.transaction_timeout_ms)
    return Settings(properties | dict(transaction.properties), _options(context, None))


class TransactorOptions(RoleOptions):
    """Describes what a transactor does. `hold_whole`: of a transaction that is held all is written before, else half."""

    transactional_id: int
    standby: bool
    records: int
    dwell_ms: float
    abort_share: float
    timeout_share: float
    transaction_timeout_ms: int
    rate_hz: float
    reads: dict[str, Property] | None
    """The properties of the consumer inside the transactions; None: they do not read."""
    hold_whole: bool
    seed: str
    java: JavaOptions | None
    """None: its producer is librdkafka's."""


def _options(context: LaunchContext, java: JavaOptions | None) -> TransactorOptions:
    planned, transaction = context.planned, work_as(TransactionsWork, context.planned.work).configuration
    assert planned.transactional_id is not None, planned
    return TransactorOptions(
        transactional_id=owner_of(context.plan, planned.transactional_id),
        standby=planned.on_standby,
        records=transaction.records,
        dwell_ms=transaction.dwell_ms,
        abort_share=transaction.abort_share,
        timeout_share=transaction.timeout_share,
        transaction_timeout_ms=transaction.transaction_timeout_ms,
        rate_hz=transaction.rate_hz,
        reads=_reading_properties(context),
        hold_whole=planned.number % 2 == 0,
        seed=f"{context.plan.seed}-{planned.name}",
        java=java,
    )


def _java(context: LaunchContext) -> JavaOptions:
    """Returns what a `JavaProducer` is made of. It is of the version of the variant, unless the trial names another."""
    planned, transaction = context.planned, work_as(TransactionsWork, context.planned.work).configuration
    assert planned.producer is not None, planned
    if find_spec("jpype") is None:
        raise BadInput('producer.client = "java" needs JPype in transactions. Install it: pip install "prozess[java]".')
    runtime = context.toolbox.java()
    jars = context.toolbox.jars(context.plan.java_version(planned))
    timeout_ms = transaction.transaction_timeout_ms
    properties: dict[str, Property] = {
        "bootstrap.servers": context.servers,
        "client.id": planned.name,
        "transactional.id": str(planned.transactional_id),
        "transaction.timeout.ms": timeout_ms,
        "delivery.timeout.ms": min(planned.producer.delivery_timeout_ms, timeout_ms),
        "request.timeout.ms": min(JAVA_REQUEST_MS, timeout_ms // 2),
        "max.block.ms": int(SLICE_S * 1000),
        "linger.ms": int(planned.producer.linger_ms),
    }
    if planned.producer.defaults == "library":
        left = {*left_properties(planned.producer), "request.timeout.ms"}
        properties = {key: value for key, value in properties.items() if key not in left}
    properties |= planned.producer.properties
    library = Path(runtime.executable).resolve().parents[1] / "lib" / "server" / "libjvm.so"
    return JavaOptions(library=str(library), jars=tuple(str(jar) for jar in jars), properties=properties)


def _reading_properties(context: LaunchContext) -> dict[str, Property] | None:
    """Returns the properties of the consumer inside the transactions; None = they do not read."""
    planned = context.planned
    if planned.isolation_level is None:
        return None
    name = f"{planned.name}-inside"
    return reader_properties(planned.isolation_level, bootstrap_servers=context.servers, client_name=name)


def within_lifetime(producer: ProducerConfiguration, timeout_ms: int) -> ProducerConfiguration:
    """Returns a producer's configuration with records that do not outlive a transaction."""
    if "delivery_timeout_ms" in producer.left_to_client:
        return producer
    return producer.model_copy(update={"delivery_timeout_ms": min(producer.delivery_timeout_ms, timeout_ms)})


def within_transaction(
    properties: dict[str, Property], transactional_id: str, *, timeout_ms: int
) -> dict[str, Property]:
    """Makes a producer's properties transactional. librdkafka refuses deliveries and requests that may outlive the
    transaction (CONFIGURATION, transaction.timeout.ms); those that nobody set it lowers itself."""
    lasting = {key: min(int(properties[key]), timeout_ms) for key in _WITHIN if key in properties}
    return properties | {"transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms} | lasting


_WITHIN = ("delivery.timeout.ms", "socket.timeout.ms")
"""Properties that must not exceed the timeout of a transaction."""


class FencerOptions(RoleOptions):
    """The transactional.ids that are fenced, each as (number, text)."""

    transactional_ids: tuple[tuple[int, str], ...]


def launch_fencer(context: LaunchContext) -> Settings:
    """Makes the settings of a client with the role `fencer`: every transactional.id that others use on its partitions."""
    mine = set(context.planned.partitions)
    ids = [c.transactional_id for c in context.plan.clients if c.transactional_id and mine.intersection(c.partitions)]
    properties = sentinel_properties(
        bootstrap_servers=context.servers, client_name=context.planned.name, timeout_s=FENCING_TRANSACTION_MS / 1000
    )
    own: dict[str, Property] = {"enable.idempotence": True, "transaction.timeout.ms": FENCING_TRANSACTION_MS}
    return Settings(
        properties | own,
        FencerOptions(
            transactional_ids=tuple((owner_of(context.plan, text), text) for text in dict.fromkeys(ids)),
        ),
    )


def owner_of(plan: Plan, transactional_id: str) -> int:
    """Returns the first planned client with this transactional.id: its number stands for the id in `transactions`."""

    def has_it(client: PlannedClient) -> bool:
        return client.transactional_id == transactional_id

    return next(client.client for client in plan.clients if has_it(client))
