"""The guarantee table, parts transactions and copies: what is promised to those who read at read_committed, and of
topics that copiers derive."""

from dataclasses import replace

from prozess.harness.guarantees.table.known_defects import DEFECTS
from prozess.harness.guarantees.table.rules import Guarantee, Rule, RuleEffect, hard, several_topics, topic_deleted

KINDS = ("transactions",)
"""The workloads that have transactions."""


def _read_uncommitted(anomaly: str, what: str) -> Rule:
    return Rule(
        id=f"{anomaly}/read-uncommitted",
        when=("read_uncommitted",),
        label="isolation.level=read_uncommitted",
        reason=f"isolation.level=read_uncommitted also returns {what}",
        change="isolation.level=read_committed",
        source="Kafka documentation, consumer configuration isolation.level",
    )


def _inside_uncommitted(anomaly: str, what: str) -> Rule:
    return Rule(
        id=f"{anomaly}/read-uncommitted",
        when=("read_uncommitted inside",),
        label="isolation.level=read_uncommitted",
        reason=f"the transactions themselves read at read_uncommitted, which also returns {what}",
        change="isolation.level=read_committed",
        source="Kafka documentation, consumer configuration isolation.level",
    )


def state_lost(anomaly: str, *, lost: str = "transaction state lost") -> Rule:
    """Returns the rule for a transaction coordinator that lost its state."""
    return Rule(
        id=f"{anomaly}/state-lost",
        when=(lost,),
        label="lost transaction state",
        reason="the transaction coordinator's decision or its markers may have been lost",
        change="more in-sync replicas of __transaction_state",
        source="KIP-98: decisions are kept in __transaction_state; transaction.state.log.min.isr",
    )


def delayed(anomaly: str, *, ended: str = "ended by a late request") -> Rule:
    """Returns the rule for KAFKA-17754, a defect of transactions before version 2. `ended`: the fact that proves it."""
    return Rule(
        id=f"{anomaly}/KAFKA-17754",
        effect=RuleEffect.DEFECT,
        when=("transactions before version 2", ended),
        perhaps=("transactions before version 2", "delayed", "an earlier end took long"),
        label="KAFKA-17754",
        reason="a delayed commit or abort may end the next transaction of the same producer, which has the same epoch",
        source="KAFKA-17754; KIP-890 part 2; librdkafka has no transactions version 2 (librdkafka#5423)",
        defect=DEFECTS["KAFKA-17754"].description,
    )


def late(anomaly: str) -> Rule:
    """Returns the rule for KAFKA-14402, where a late record became part of the next transaction."""
    return Rule(
        id=f"{anomaly}/KAFKA-14402",
        effect=RuleEffect.DEFECT,
        when=("brokers to 3.5", "behind its own end"),
        perhaps=("brokers to 3.5", "delayed", "its send took long"),
        label="KAFKA-14402",
        reason="a delayed write came after its transaction had been aborted, and became part of the next one of its producer",
        source="KAFKA-14402; KIP-890 part 1; ProducerAppendInfo.appendDataBatch: records of a newer epoch go on in the "
        "transaction that is open",
        defect=DEFECTS["KAFKA-14402"].description,
    )


def _excused(anomaly: str) -> tuple[Rule, ...]:
    """The rules for destroyed records, markers and decisions, and for the defect of delayed ends of transactions."""
    return (*hard(anomaly, unclean="unclean before it was read", wiped="wiped"), state_lost(anomaly), delayed(anomaly))


_TORN = Guarantee(
    anomaly="torn",
    meaning="Readers at read_committed see some records of a transaction and not the others.",
    promise="Readers at read_committed see all records of a transaction or none.",
    found=(
        "1 record is missing from a transaction whose other records can be read",
        "{n} records are missing from transactions whose other records can be read",
    ),
    absence=True,
    nothing="no transaction was committed",
    source="KIP-98, 'Atomic writes across multiple partitions'",
    rules=(
        topic_deleted("torn"),
        *hard("torn", unclean="cutoff", wiped="wiped"),
        state_lost("torn", lost="transaction decision lost"),
        delayed("torn"),
    ),
)
_LOST_TRANSACTION = Guarantee(
    anomaly="lost-transaction",
    meaning="A transaction was committed, and none of its records can be read at read_committed.",
    promise="Once the commit of a transaction is confirmed, its records can be read.",
    found=(
        "1 record is gone together with its whole committed transaction",
        "{n} records are gone together with their whole committed transactions",
    ),
    absence=True,
    nothing="no transaction was committed",
    source="KIP-98: commitTransaction returns once the coordinator has made the decision durable",
    rules=(
        topic_deleted("lost-transaction"),
        *hard("lost-transaction", unclean="cutoff", wiped="wiped"),
        state_lost("lost-transaction", lost="transaction decision lost"),
        delayed("lost-transaction"),
    ),
)
_ZOMBIE_WRITE = Guarantee(
    anomaly="zombie-write",
    meaning="A producer committed after a later producer with the same transactional.id had fenced it.",
    promise="Once a later producer with the same transactional.id is initialised, no earlier one commits.",
    found=("1 record was committed by a fenced producer", "{n} records were committed by fenced producers"),
    nothing="no producer asked for a commit",
    source="KIP-98, 'Zombie fencing': init_transactions bumps the epoch, older ones get INVALID_PRODUCER_EPOCH",
    rules=(state_lost("zombie-write"),),
)
_ABORTED_READ = Guarantee(
    anomaly="aborted-read",
    meaning="A consumer read a record of a transaction that was aborted.",
    adya="G1a",
    promise="A consumer at read_committed never reads a record of an aborted transaction.",
    found=(
        "1 record of an aborted transaction was read",
        "{n} records of aborted transactions were read",
    ),
    nothing="nothing was read",
    source="KIP-98; Kafka documentation, consumer configuration isolation.level",
    rules=(
        _read_uncommitted("aborted-read", "records of aborted transactions"),
        *_excused("aborted-read"),
        late("aborted-read"),
    ),
)
_EARLY_READ = Guarantee(
    anomaly="early-read",
    meaning="A consumer read a record before the commit of its transaction was asked for, or past an open transaction.",
    promise="A consumer at read_committed never reads a record before the commit of its transaction was asked for, nor one "
    "behind a transaction that is open.",
    found=(
        "1 record was read before the commit of its transaction was asked for, or past an open transaction",
        "{n} records were read before the commits of their transactions were asked for, or past open transactions",
    ),
    nothing="nothing was read",
    source="KIP-98: read_committed consumers read up to the last stable offset, the first offset of any open transaction",
    rules=(
        _read_uncommitted("early-read", "records that are not committed yet"),
        *hard("early-read", unclean="unclean before it was read", wiped="wiped"),
        state_lost("early-read"),
        Rule(
            id="early-read/clock-moved",
            effect=RuleEffect.NOT_APPLICABLE,
            when=("a clock may have ended it",),
            label="a moved clock",
            reason="a coordinator whose wall clock was moved may have aborted the transaction before its timeout",
            source="TransactionStateManager.timedOutTransactions: by the coordinator's wall clock; KIP-98, "
            "transaction.timeout.ms",
        ),
        delayed("early-read", ended="an open one was ended by a late request"),
    ),
)
_OWN_READ = Guarantee(
    anomaly="own-read",
    meaning="A transaction read its own records before it was committed.",
    promise="A transaction that reads at read_committed does not read its own records, which are not committed yet.",
    found=(
        "1 record was read by the transaction that had just written it",
        "{n} records were read by the transactions that had just written them",
    ),
    nothing="no transaction read",
    nothing_is_unknown=False,
    source="KIP-98: read_committed consumers read up to the last stable offset",
    rules=(
        _inside_uncommitted("own-read", "records that the transaction itself has written"),
        *_excused("own-read"),
    ),
)
_INFORMATION_CYCLE = Guarantee(
    anomaly="information-cycle",
    meaning="Committed transactions read each other's records in a circle, so no order of them explains the reads.",
    adya="G1c",
    promise="Committed transactions that read at read_committed do not depend on one another in a circle.",
    found=(
        "1 set of committed transactions read from one another in a circle",
        "{n} sets of committed transactions read from one another in circles",
    ),
    nothing="no transaction read what another had written",
    nothing_is_unknown=False,
    source="KIP-98; Adya's G1c over wr edges; https://jepsen.io/analyses/redpanda-21.10.1",
    rules=(
        _inside_uncommitted("information-cycle", "records that other transactions have not committed yet"),
        *_excused("information-cycle"),
    ),
)
_WRITE_CYCLE = Guarantee(
    anomaly="write-cycle",
    meaning="Transactions interleaved their writes: no order of them agrees with the order of their writes.",
    adya="G0; G1c where a read is part of the circle",
    promise="All transactions can be put into one order that agrees with the order of their writes.",
    found=(
        "1 group of transactions interleaved its writes (write cycle, Adya's G0), which Kafka does not prevent",
        "{n} groups of transactions interleaved their writes (write cycles, Adya's G0), which Kafka does not prevent",
    ),
    nothing="no transaction was committed",
    nothing_is_unknown=False,
    source="Nobody promises it: KIP-98 has atomic writes, and no isolation of writes",
    rules=(
        Rule(
            id="write-cycle/not-isolated",
            when=("order of writes",),
            label="concurrent transactions",
            reason="Kafka does not isolate the writes of transactions; a partition keeps records in the order of arrival",
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
"""These guarantees, in the order in which reports list them."""


# Copies: what is promised of a topic that a copier derives from another.
#
# Left out because nothing can bring them about yet: copiers that do not go back after an abort (KAFKA-17582), or that
# commit without the metadata of their group (KIP-447).


COPY_KINDS = ("exactly-once", "application")
"""The workloads that have copiers."""
_DELIVERY = "Kafka documentation, design, 'Message Delivery Semantics'"

_NOT_EXACTLY_ONCE = Guarantee(
    anomaly="not-exactly-once",
    meaning="A record was consumed and committed, and its copy is missing from the output topic or is there more than once.",
    promise="Every record below the committed offset of the group that copies it is in the output topic exactly once.",
    found=("1 record was not copied exactly once", "{n} records were not copied exactly once"),
    undone="would have copied them exactly once",
    nothing="the copiers committed no offset",
    source=f"KIP-98; KIP-447; {_DELIVERY}",
    workloads=COPY_KINDS,
    rules=(
        several_topics("not-exactly-once"),
        Rule(
            id="not-exactly-once/at-most-once",
            when=("copies at most once", "no copy"),
            label="committing before producing",
            reason="a copier committed the offsets of records before it had copied them, and ended in between (at most once)",
            change="committing the offsets inside the transaction of the copies",
            found=("1 record was never copied", "{n} records were never copied"),
            source=_DELIVERY,
        ),
        Rule(
            id="not-exactly-once/at-least-once",
            when=("copies at least once", "a copy too many"),
            label="committing after producing",
            reason="a copier had copied records and ended before their offsets were committed (at least once)",
            change="committing the offsets inside the transaction of the copies",
            found=("1 record was copied again", "{n} times a record was copied again"),
            source=_DELIVERY,
        ),
        Rule(
            id="not-exactly-once/offsets-outside",
            when=("offsets outside the transaction", "a copy too many"),
            label="offsets outside the transaction",
            reason="a transaction of copies was committed, and its copier ended before a commit of their offsets "
            "was accepted: a transactional.id gives atomicity and fencing, but does not know what was copied "
            "before",
            change="committing the offsets inside the transaction of the copies",
            found=("1 record was copied again", "{n} times a record was copied again"),
            source="KIP-98, 'Transactional Guarantees'; KIP-447",
        ),
        Rule(
            id="not-exactly-once/unclean",
            when=("a partition of the cell was elected unclean",),
            label="unclean elections",
            reason="an unclean election took records away from the source, the copies or the offsets",
            change="unclean.leader.election.enable=false",
            source="Kafka documentation, design, 'Unclean leader election: what if they all die?'",
        ),
        state_lost("not-exactly-once"),
        Rule(
            id="not-exactly-once/deposed-coordinator",
            effect=RuleEffect.EXPLAINED,
            when=("a copy too many", "reported by a deposed coordinator"),
            label="an answer from a former coordinator",
            reason="before that, the copier was given an older offset than the group had committed, by a broker "
            "that, as the controllers' log says, no longer coordinated the group",
            source="CoordinatorRuntime, CoordinatorContext.append: a fetch of offsets writes nothing, with require_stable "
            "too, so it waits for no replica; KAFKA-17267 speaks of a zombie coordinator that has writes of its own; no "
            "ticket of this is known",
        ),
        delayed("not-exactly-once"),
    ),
)
COPIES = (_NOT_EXACTLY_ONCE,)
"""These guarantees, in the order in which reports list them."""
