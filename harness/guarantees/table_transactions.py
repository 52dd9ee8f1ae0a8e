"""The guarantee table, part transactions: what is promised to those who read at read_committed."""

from dataclasses import replace

from harness.guarantees.rules import Effect, Guarantee, Rule, hard

KINDS = ("transactions",)
"""The workloads that have transactions."""


def _read_uncommitted(anomaly: str, what: str) -> Rule:
    return Rule(
        id=f"{anomaly}/read-uncommitted",
        when=("read_uncommitted",),
        label="isolation.level=read_uncommitted",
        reason=f"isolation.level=read_uncommitted gives out {what}",
        change="isolation.level=read_committed",
        source="Kafka documentation, consumer configuration isolation.level",
    )


def _state_lost(anomaly: str) -> Rule:
    return Rule(
        id=f"{anomaly}/state-lost",
        when=("transaction state lost",),
        label="lost transaction state",
        reason="what the coordinator had decided, or the markers of it, may have been destroyed",
        change="more copies of __transaction_state in sync",
        source="KIP-98: decisions are kept in __transaction_state; transaction.state.log.min.isr",
    )


def _delayed(anomaly: str) -> Rule:
    return Rule(
        id=f"{anomaly}/KAFKA-17754",
        effect=Effect.DEFECT,
        when=("librdkafka", "delayed"),
        label="KAFKA-17754",
        reason="a delayed commit or abort may end the next transaction of the same producer, which has the same epoch",
        source="KAFKA-17754; KIP-890 part 2; librdkafka has no transactions version 2 (librdkafka#5423)",
        defect="KAFKA-17754, fixed by transaction.version=2 with a Java client from 4.0",
    )


_TORN = Guarantee(
    anomaly="torn",
    promise="Of one transaction, readers at read_committed are shown all records or none.",
    found=(
        "1 record is missing of a transaction that is shown in part",
        "{n} records are missing of transactions that are shown in part",
    ),
    did=("tore 1 record out of its transaction", "tore {n} records out of their transactions"),
    absence=True,
    nothing="no transaction was committed",
    source="KIP-98, 'Atomic writes across multiple partitions'",
    rules=(*hard("torn", unclean="cutoff", wiped="wiped"), _state_lost("torn"), _delayed("torn")),
)
_LOST_TRANSACTION = Guarantee(
    anomaly="lost-transaction",
    promise="A transaction whose commit was confirmed is shown.",
    found=(
        "1 record is gone with all of its committed transaction",
        "{n} records are gone with all of their committed transactions",
    ),
    did=("lost a whole transaction of 1 record", "lost whole transactions of {n} records"),
    absence=True,
    nothing="no transaction was committed",
    source="KIP-98: commitTransaction returns once the coordinator has made the decision durable",
    rules=(
        *hard("lost-transaction", unclean="cutoff", wiped="wiped"),
        _state_lost("lost-transaction"),
        _delayed("lost-transaction"),
    ),
)
_ZOMBIE_WRITE = Guarantee(
    anomaly="zombie-write",
    promise="Once a later producer with the same transactional.id is initialised, no earlier one commits.",
    found=("1 record was committed by a fenced producer", "{n} records were committed by fenced producers"),
    did=("let a fenced producer commit 1 record", "let fenced producers commit {n} records"),
    nothing="no commit was invoked",
    source="KIP-98, 'Zombie fencing': init_transactions bumps the epoch, older ones get INVALID_PRODUCER_EPOCH",
    rules=(_state_lost("zombie-write"),),
)
_ABORTED_READ = Guarantee(
    anomaly="aborted-read",
    promise="At read_committed nobody is given a record of an aborted transaction.",
    found=(
        "1 record of an aborted transaction was given out",
        "{n} records of aborted transactions were given out",
    ),
    did=(
        "gave out 1 record of an aborted transaction",
        "gave out {n} records of aborted transactions",
    ),
    nothing="nothing was read",
    source="KIP-98; Kafka documentation, consumer configuration isolation.level",
    rules=(
        _read_uncommitted("aborted-read", "what was aborted, too"),
        *hard("aborted-read", unclean="unclean ever", wiped="wiped"),
        _state_lost("aborted-read"),
        _delayed("aborted-read"),
    ),
)
_EARLY_READ = Guarantee(
    anomaly="early-read",
    promise="At read_committed nobody is given a record before its commit was asked for.",
    found=(
        "1 record was given out before its transaction's commit was asked for",
        "{n} records were given out before their transactions' commit was asked for",
    ),
    did=("gave out 1 record too early", "gave out {n} records too early"),
    nothing="nothing was read",
    source="KIP-98: read_committed consumers read up to the last stable offset",
    rules=(
        _read_uncommitted("early-read", "what is not committed yet"),
        *hard("early-read", unclean="unclean ever", wiped="wiped"),
        _state_lost("early-read"),
        _delayed("early-read"),
    ),
)

TRANSACTIONS = tuple(
    replace(guarantee, workloads=KINDS)
    for guarantee in (_TORN, _LOST_TRANSACTION, _ZOMBIE_WRITE, _ABORTED_READ, _EARLY_READ)
)
"""In the order of reports."""
