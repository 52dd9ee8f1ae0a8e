"""The facts that rules are made of: by name, from a cell's configuration or from the envelope of a partition.

A fact of the envelope is asked in two ways: of witnesses (is it so?), and of what happened at all (could it be so?): the
second tells "permitted, not seen" from "held", and predicts before anything ran.
"""

from collections.abc import Mapping

import numpy as np

from harness.guarantees.configured import Configuration
from harness.guarantees.cutoffs import (
    cutoff,
    cutoff_after_read,
    cutoff_of_either,
    cutoff_of_the_gone,
    elected_unclean,
    sent_later,
    unclean_before,
    unclean_between,
    wiped,
    wiped_after_read,
    wiped_before,
    wiped_of_either,
)
from harness.guarantees.delays import fault_at_work, unmeasured
from harness.guarantees.deposed import leader_hampered
from harness.guarantees.envelope import Envelope
from harness.guarantees.fact import Fact, possibly, version_fact, yes_if
from harness.guarantees.group_facts import GROUP_FACTS
from harness.guarantees.happened import Happened
from harness.guarantees.logic import FALSE, TRUE, Truth, constant, doubted, either, truth
from harness.guarantees.reasons import (
    bumped,
    coordinator_state_lost,
    decision_lost,
    delayed,
    leader_changed,
    leader_may_have_refused,
    out_of_sync_at_the_end,
    owner_since_before_the_loss,
)
from harness.guarantees.retention import (
    forgot,
    log_start_passed,
    may_have_expired,
    read_beyond_retention,
    replica_away,
)
from harness.guarantees.settled import unsettled
from harness.guarantees.tails import committed, tail
from harness.schema import Outcome, Tristate
from harness.stalls import STALLED_NS, StallCase

READ_UNCOMMITTED_CASE = 1
"""`case` of witnesses of `aborted-read` and `early-read`: a read_uncommitted consumer."""
REORDERED_OR_COPY_CASE = 1
"""`case` of witnesses of `reordered`: or a second copy, whose first was cleaned away."""
BY_WRITES_CASES = (2, 3)
"""`case` of witnesses of `write-cycle`: with what was read, and by writes alone."""


FACTS: Mapping[str, Fact] = {
    **GROUP_FACTS,
    "acks=0": Fact("the producer waits for no reply", lambda c: yes_if(c.acks == "0")),
    "acks=1": Fact("the producer waits for the leader alone", lambda c: yes_if(c.acks == "1")),
    "idempotent": Fact("enable.idempotence is in effect", lambda c: yes_if(c.idempotent)),
    "retries": Fact("the producer sends again what failed", lambda c: yes_if(c.retries)),
    "several in flight": Fact("max.in.flight.requests.per.connection > 1", lambda c: yes_if(c.several_in_flight)),
    "several per batch": Fact("the producer sends several records in a batch", lambda c: yes_if(c.several_per_batch)),
    "refused by brokers": Fact("brokers refuse what is wrong with its records", lambda c: yes_if(c.refused_by_brokers)),
    "librdkafka": Fact("the producer is librdkafka's", lambda c: yes_if(c.librdkafka)),
    "transactions before version 2": Fact(
        "transactions, and none of version 2 (KIP-890)", lambda c: yes_if(c.transactions_before_v2)
    ),
    "lifo": Fact("queuing.strategy=lifo (librdkafka)", lambda c: yes_if(c.lifo)),
    "unclean enabled": Fact("unclean.leader.election.enable=true", lambda c: yes_if(c.unclean_enabled)),
    "unclean election asked for": Fact(
        "a fault asked for an unclean election",
        of_witnesses=lambda envelope, witnesses: constant(
            int(either(np.int8(FALSE), *(np.int8(f.may("elects_unclean")) for f in envelope.faults))), len(witnesses)
        ),
        could=lambda h: possibly(h.unclean),
    ),
    "leader was hampered": Fact(
        "the partition's leader was cut off, frozen or dead for a part of the send, or fenced and not told of it",
        of_witnesses=leader_hampered,
        could=lambda h: possibly(h.moved),
    ),
    "brokers to 3.9.0 or 4.0.0": version_fact(
        "a broker is 3.9.0 or older, or 4.0.0", lambda v: v[:3] <= (3, 9, 0) or v[:3] == (4, 0, 0)
    ),
    "brokers to 3.4.0": version_fact("a broker is 3.4.0 or older", lambda v: v[:3] <= (3, 4, 0)),
    "committed": Fact(
        "acks=all acknowledged it, a consumer was given it, or the high watermark was seen above it",
        of_witnesses=committed,
        could=lambda _: Tristate.UNKNOWN,
    ),
    "tail": Fact(
        "not committed, and a later leader never had it, or the leader that acknowledged it was destroyed",
        of_witnesses=tail,
        could=lambda h: possibly(h.moved, h.destroyed),
    ),
    "given up": Fact(
        "the client did not learn what became of the send",
        of_witnesses=lambda _, witnesses: truth(witnesses["outcome"] == Outcome.INFO),
        could=lambda _: Tristate.UNKNOWN,
    ),
    "leader changed": Fact(
        "the partition's leader changed after the send began, or shortly before, as far as its client could know",
        of_witnesses=leader_changed,
        could=lambda h: possibly(h.moved),
    ),
    "leader may have refused": Fact(
        "the partition's leader changed after the send began; or it, the first leader, or one that came back from a fault "
        "had answered nobody as one when it began, so that it may have refused the send and taken a later one",
        of_witnesses=leader_may_have_refused,
        could=lambda _: Tristate.UNKNOWN,
    ),
    "cutoff": Fact(
        "an unclean election later than the record, and its offset not below that epoch's start",
        of_witnesses=cutoff,
        could=lambda h: possibly(h.unclean),
    ),
    "cutoff of the gone": Fact(
        "the record is in no log; an unclean election later than the record began an epoch without it, by the epoch in which "
        "a consumer was given it, else of every leader that may have acknowledged it",
        of_witnesses=cutoff_of_the_gone,
        could=lambda h: possibly(h.unclean),
    ),
    "cutoff after the read": Fact(
        "an unclean election of an epoch after that in which a consumer was given the record, and the log without it; where "
        "the epoch was not told: after it was given, its offset not below that epoch's start",
        of_witnesses=cutoff_after_read,
        could=lambda h: possibly(h.unclean),
    ),
    "cutoff of either": Fact(
        "an unclean election after the first of the two records was sent or seen; where one is in the log, as of the record "
        "that is gone",
        of_witnesses=cutoff_of_either,
        could=lambda h: possibly(h.unclean),
    ),
    "unclean between the answers": Fact(
        "an unclean election began an epoch after that of the earlier answer, not after that of the later one",
        of_witnesses=unclean_between,
        could=lambda h: possibly(h.unclean),
    ),
    "unclean before": Fact(
        "an unclean election before the later of the two reads",
        of_witnesses=unclean_before,
        could=lambda h: possibly(h.unclean),
    ),
    "wiped": Fact(
        "every copy that could lead was destroyed after the send began",
        of_witnesses=wiped,
        could=lambda h: possibly(h.destroyed),
    ),
    "wiped of either": Fact(
        "every copy that could lead was destroyed after the first of the two records was sent or seen; where one is in the "
        "log, as of the record that is gone",
        of_witnesses=wiped_of_either,
        could=lambda h: possibly(h.destroyed),
    ),
    "wiped after the read": Fact(
        "every copy that could lead was destroyed after a consumer was given the record",
        of_witnesses=wiped_after_read,
        could=lambda h: possibly(h.destroyed),
    ),
    "wiped before": Fact(
        "every copy that could lead was destroyed before the later of the two reads",
        of_witnesses=wiped_before,
        could=lambda h: possibly(h.destroyed),
    ),
    "sent later": Fact(
        "the record was sent after the later of the two reads",
        of_witnesses=sent_later,
        could=lambda h: possibly(h.unclean, h.destroyed),
    ),
    "bumped": Fact(
        "the two stand in batches of one producer id under different epochs, outside transactions",
        of_witnesses=bumped,
        could=lambda _: Tristate.UNKNOWN,
    ),
    "forgot": Fact(
        "the send took longer than producer.id.expiration.ms",
        of_witnesses=forgot,
        could=lambda h: possibly(h.forgotten),
    ),
    "may have expired": Fact(
        "a snapshot does not know a producer, and the sends began longer ago than producer.id.expiration.ms",
        of_witnesses=may_have_expired,
        could=lambda h: possibly(h.forgotten),
    ),
    "log start passed": Fact(
        "the log start was seen beyond the reader's position",
        of_witnesses=log_start_passed,
        could=lambda h: possibly(h.deleted),
    ),
    "read beyond delete.retention.ms": Fact(
        "the audit took as long from the older record to the end as tombstones are kept",
        of_witnesses=read_beyond_retention,
        could=lambda h: possibly(h.audited_slowly),
    ),
    "a replica away beyond delete.retention.ms": Fact(
        "a broker led that a fault had kept away as long as tombstones are kept",
        of_witnesses=replica_away,
        could=lambda h: possibly(h.long_away),
    ),
    "read_uncommitted": Fact(
        "who was given the record reads at read_uncommitted",
        of_witnesses=lambda _, witnesses: truth(witnesses["case"] == READ_UNCOMMITTED_CASE),
        could=lambda h: possibly(h.read_uncommitted),
    ),
    "read_uncommitted inside": Fact(
        "the transaction that was given the record reads at read_uncommitted",
        of_witnesses=lambda _, witnesses: truth(witnesses["case"] == READ_UNCOMMITTED_CASE),
        could=lambda h: possibly(h.read_uncommitted_inside),
    ),
    "may be a second copy": Fact(
        "the log was cleaned: the record may be a second copy, whose first is gone",
        of_witnesses=lambda _, witnesses: doubted(truth(witnesses["case"] == REORDERED_OR_COPY_CASE), known=False),
        could=lambda _: Tristate.UNKNOWN,
    ),
    "order of writes": Fact(
        "an edge of the cycle is the order of two writes",
        of_witnesses=lambda _, witnesses: truth(np.isin(witnesses["case"], BY_WRITES_CASES)),
        could=lambda _: Tristate.UNKNOWN,
    ),
    "unsettled": Fact(
        "no stretch of the stated time within it was free of faults, changes of leader and gaps in the ISR",
        of_witnesses=lambda envelope, witnesses: unsettled(envelope, witnesses, STALLED_NS),
        could=lambda _: Tristate.UNKNOWN,
    ),
    "reader stood still": Fact(
        "the reader's own heart stood still in between: what it asked for is not known",
        of_witnesses=lambda _, witnesses: doubted(truth(witnesses["case"] == StallCase.STARVED), known=False),
        could=lambda _: Tristate.UNKNOWN,
    ),
    "last stable offset stood still": Fact(
        "leaders said the same last stable offset all the time",
        of_witnesses=lambda _, witnesses: truth(witnesses["case"] == StallCase.STABLE_OFFSET),
        could=lambda _: Tristate.UNKNOWN,
    ),
    "brokers to 3.5": version_fact("a broker is 3.5 or older", lambda v: v[:2] <= (3, 5)),
    "unclean ever": Fact(
        "an unclean election of the partition, whenever: markers of transactions may be gone",
        of_witnesses=lambda envelope, witnesses: constant(int(elected_unclean(envelope)), len(witnesses)),
        could=lambda h: possibly(h.unclean),
    ),
    "transaction state lost": Fact(
        "copies were destroyed, or a leader elected unclean by request: __transaction_state may be among them",
        of_witnesses=coordinator_state_lost,
        could=lambda h: possibly(h.destroyed),
    ),
    "transaction decision lost": Fact(
        "copies were destroyed, or a leader elected unclean by request, at most 10 s after the transaction ended: "
        "__transaction_state may be among them, and markers may not have been written yet",
        of_witnesses=decision_lost,
        could=lambda h: possibly(h.destroyed),
    ),
    "group state lost": Fact(
        "copies were destroyed, or a leader elected unclean by request: __consumer_offsets may be among them",
        of_witnesses=coordinator_state_lost,
        could=lambda h: possibly(h.destroyed),
    ),
    "group lost by every broker": Fact(
        "one fault destroyed what every broker had, and with it __consumer_offsets",
        of_witnesses=lambda envelope, witnesses: truth(coordinator_state_lost(envelope, witnesses) == TRUE),
        could=lambda h: possibly(h.destroyed),
    ),
    "owner since before the loss": Fact(
        "the other owner had the partition since before the fault by which __consumer_offsets may have been destroyed",
        of_witnesses=owner_since_before_the_loss,
        could=lambda h: possibly(h.destroyed),
    ),
    "delayed": Fact(
        "a node was frozen or cut off while the record's transaction, or the one before it, was under way",
        of_witnesses=delayed,
        could=lambda _: Tristate.UNKNOWN,
    ),
    "faults are excepted": Fact(
        "the trial's delivery bound leaves out what a fault may have delayed", lambda c: yes_if(c.faults_excepted)
    ),
    "fault at work": Fact(
        "a fault, of whatever kind, not only on those who measure, held between the sending of the record and its deadline, "
        "or had been undone for less than the stated recovery when it was sent",
        of_witnesses=fault_at_work,
        could=lambda h: possibly(h.faulted),
    ),
    "unmeasured": Fact(
        "the record's producer, or who was to be given it, stood still or was dead for as long as would explain it, or the "
        "record is missing and the audit did not end: whether it was late is not known",
        of_witnesses=lambda envelope, witnesses: doubted(unmeasured(envelope, witnesses), known=False),
        could=lambda _: Tristate.UNKNOWN,
    ),
    "out of sync at the end": Fact(
        "one of the two replicas was not in the ISR at the end",
        of_witnesses=out_of_sync_at_the_end,
        could=lambda _: Tristate.UNKNOWN,
    ),
}


def of_witnesses(name: str, configuration: Configuration, envelope: Envelope, witnesses: np.ndarray) -> Truth:
    """A fact of each witness."""
    fact = FACTS[name]
    if fact.of_configuration is not None:
        return constant(int(fact.of_configuration(configuration)), len(witnesses))
    assert fact.of_witnesses is not None, name
    return fact.of_witnesses(envelope, witnesses)


def could_be(name: str, configuration: Configuration, happened: Happened) -> Truth:
    """Could the fact hold of any witness there might have been? Scalar."""
    fact = FACTS[name]
    if fact.of_configuration is not None:
        return np.asarray(np.int8(fact.of_configuration(configuration)))
    assert fact.could is not None, name
    return np.asarray(np.int8(fact.could(happened)))
