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


def _inside_uncommitted(anomaly: str, what: str) -> Rule:
    return Rule(
        id=f"{anomaly}/read-uncommitted",
        when=("read_uncommitted inside",),
        label="isolation.level=read_uncommitted",
        reason=f"the transactions themselves read at read_uncommitted, which gives out {what}",
        change="isolation.level=read_committed",
        source="Kafka documentation, consumer configuration isolation.level",
    )


def state_lost(anomaly: str, *, lost: str = "transaction state lost") -> Rule:
    """The coordinator forgot."""
    return Rule(
        id=f"{anomaly}/state-lost",
        when=(lost,),
        label="lost transaction state",
        reason="what the coordinator had decided, or the markers of it, may have been destroyed",
        change="more copies of __transaction_state in sync",
        source="KIP-98: decisions are kept in __transaction_state; transaction.state.log.min.isr",
    )


def delayed(anomaly: str) -> Rule:
    """KAFKA-17754, of transactions before version 2."""
    return Rule(
        id=f"{anomaly}/KAFKA-17754",
        effect=Effect.DEFECT,
        when=("transactions before version 2", "delayed"),
        label="KAFKA-17754",
        reason="a delayed commit or abort may end the next transaction of the same producer, which has the same epoch",
        source="KAFKA-17754; KIP-890 part 2; librdkafka has no transactions version 2 (librdkafka#5423)",
        defect="KAFKA-17754, fixed by transaction.version=2 with a Java client from 4.0",
    )


def _excused(anomaly: str) -> tuple[Rule, ...]:
    """Where data, markers or decisions were destroyed, and the defect of delayed ends."""
    return (*hard(anomaly, unclean="unclean ever", wiped="wiped"), state_lost(anomaly), delayed(anomaly))


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
    rules=(
        *hard("torn", unclean="cutoff", wiped="wiped"),
        state_lost("torn", lost="transaction decision lost"),
        delayed("torn"),
    ),
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
        state_lost("lost-transaction", lost="transaction decision lost"),
        delayed("lost-transaction"),
    ),
)
_ZOMBIE_WRITE = Guarantee(
    anomaly="zombie-write",
    promise="Once a later producer with the same transactional.id is initialised, no earlier one commits.",
    found=("1 record was committed by a fenced producer", "{n} records were committed by fenced producers"),
    did=("let a fenced producer commit 1 record", "let fenced producers commit {n} records"),
    nothing="no commit was invoked",
    source="KIP-98, 'Zombie fencing': init_transactions bumps the epoch, older ones get INVALID_PRODUCER_EPOCH",
    rules=(state_lost("zombie-write"),),
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
        *_excused("aborted-read"),
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
        *_excused("early-read"),
    ),
)
_OWN_READ = Guarantee(
    anomaly="own-read",
    promise="A transaction that reads at read_committed is not given its own records, which are not committed yet.",
    found=(
        "1 record was given to the transaction that had just written it",
        "{n} records were given to the transactions that had just written them",
    ),
    did=("gave a transaction 1 record of its own", "gave transactions {n} records of their own"),
    nothing="no transaction read",
    nothing_is_unknown=False,
    source="KIP-98: read_committed consumers read up to the last stable offset",
    rules=(
        _inside_uncommitted("own-read", "what the transaction itself has written"),
        *_excused("own-read"),
    ),
)
_INFORMATION_CYCLE = Guarantee(
    anomaly="information-cycle",
    promise="Committed transactions that read at read_committed do not depend on one another in a circle.",
    found=(
        "1 set of committed transactions read from one another in a circle",
        "{n} sets of committed transactions read from one another in circles",
    ),
    did=("let 1 set of transactions read in a circle", "let {n} sets of transactions read in circles"),
    nothing="no transaction read what another had written",
    nothing_is_unknown=False,
    source="KIP-98; Adya's G1c over wr edges; https://jepsen.io/analyses/redpanda-21.10.1",
    rules=(
        _inside_uncommitted("information-cycle", "what others have not committed yet"),
        *_excused("information-cycle"),
    ),
)
_WRITE_CYCLE = Guarantee(
    anomaly="write-cycle",
    promise="Transactions stand in one order, by what they wrote.",
    found=(
        "1 set of transactions is interleaved in circles",
        "{n} sets of transactions are interleaved in circles",
    ),
    did=("interleaved 1 set of transactions", "interleaved {n} sets of transactions"),
    nothing="no transaction was committed",
    nothing_is_unknown=False,
    source="Nobody promises it: KIP-98 has atomic writes, and no isolation of writes",
    rules=(
        Rule(
            id="write-cycle/not-isolated",
            when=("order of writes",),
            label="concurrent transactions",
            reason="Kafka does not isolate writes: a partition keeps them in the order of arrival",
            change="one transactional.id per partition",
            source="https://jepsen.io/analyses/redpanda-21.10.1, 'G0'",
        ),
    ),
)

TRANSACTIONS = tuple(
    replace(guarantee, workloads=KINDS)
    for guarantee in (
        _TORN,
        _LOST_TRANSACTION,
        _ZOMBIE_WRITE,
        _ABORTED_READ,
        _EARLY_READ,
        _OWN_READ,
        _INFORMATION_CYCLE,
        _WRITE_CYCLE,
    )
)
"""In the order of reports."""
