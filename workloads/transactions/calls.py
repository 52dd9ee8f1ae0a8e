"""Transactional calls of a producer: each is made again while it may be, and its rows say what came of it."""

from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException

from prozess.harness.schema import Outcome
from prozess.workloads.client import NowNs
from prozess.workloads.record.sends import ABORT, COMMIT
from prozess.workloads.record.transactions import TransactionRows
from prozess.workloads.transactions.java_producer import AnyProducer

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
