"""Ten configurations, word for word what is stated of each, and the sentence of Kafka's own documentation that supports it.

Of each the lines that decide: what is promised of the anomaly, by which defect the promise is limited, what is weak."""

from prozess.validation.terminal import prediction_lines
from tests.support.predictions import SAFE_BROKER, SAFE_TOPIC, predicted

GROUPS = {"auto.offset.reset": "earliest"}


def said(prediction, *words):
    """The lines that begin with one of these words."""
    return [f"{word}: {sentence}" for word, sentence in prediction_lines(prediction) if word in words]


def promised(prediction):
    return {guarantee.anomaly for guarantee in prediction.promised}


def test_acks_1_may_lose_what_was_acknowledged():
    """acks: "should the leader fail immediately after acknowledging the record but before the followers have replicated it
    then the record will be lost"; enable.idempotence: "If 'false', producer retries due to broker failures, etc., may write
    duplicates of the retried message in the stream"."""
    found = predicted({"acks": "1"})
    assert said(found, "weak", "change", "defect") == [
        "weak: lost is possible: a producer with acks=1 waits for the leader only, and the leader may fail before the "
        "followers have the record. acks=1 (the file, acks) → acks=all [lost/acks-1]",
        "weak: duplicate is possible: without enable.idempotence the producer sends a record again if the reply is lost, and "
        "the broker stores it again. acks=1 (the file, acks) → acks=all [duplicate/not-idempotent]",
        "weak: reordered is possible: the client gave up a request after a timeout and sent the next one, and the broker "
        "handled the first one afterwards; or without enable.idempotence a retried batch is written after the batch that was "
        "sent later. acks=1 (the file, acks) → acks=all [reordered/given-up, reordered/not-idempotent]",
        "weak: time-travel is possible: a producer with acks=1 waits for the leader only, and the record's place in the "
        "leader's log was truncated. acks=1 (the file, acks) → acks=all [time-travel/acks-1]",
        "change: acks=all: rules out lost, duplicate, reordered, time-travel",
    ]
    assert "note: the client silently switches idempotence off, because it needs acks=all, not 1 (KIP-679)" in said(
        found, "note"
    )
    assert not {"lost", "duplicate", "reordered"} & promised(found)


def test_acks_all_with_a_minimum_of_one_is_acknowledged_by_the_leader_alone():
    """Design, Availability and Durability Guarantees: "By default, when acks=all, acknowledgement happens as soon as all the
    current in-sync replicas have received the message. … if a topic is configured with only two replicas and one fails …
    writes that specify acks=all will succeed. However, these writes could be lost if the remaining replica also fails." """
    found = predicted({"acks": "all"}, topic=SAFE_TOPIC | {"min.insync.replicas": "1"})
    assert said(found, "copies", "weak", "change") == [
        "copies: replication.factor=3, min.insync.replicas=1: a partition accepts writes with acks=all while "
        "at most 2 of its 3 brokers "
        "are down",
        "copies: min.insync.replicas=1: a record that was acknowledged with acks=all may be lost with a single disk; "
        "min.insync.replicas=2 prevents this",
        "copies: flush.messages is not 1: if all brokers that have a copy lose power at the same time, records that "
        "the operating system had not yet written to disk are lost",
        "weak: lost, offset-conflict, dirty-read, time-travel, watermark-regression, log-start-regression, "
        "mistimed, epoch-regression are possible: "
        "while the "
        "leader is the only replica in sync, it acknowledges acks=all alone, and the record is lost if its disk is "
        "lost. min.insync.replicas=1 (the file, min.insync.replicas) → "
        "min.insync.replicas=2 [availability/min-insync-1]",
    ]


def test_three_copies_two_in_sync_and_an_idempotent_producer_are_promised_all_but_for_two_open_defects():
    """min.insync.replicas: "A typical scenario would be to create a topic with a replication factor of 3, set
    min.insync.replicas to 2, and produce with acks of all"; enable.idempotence: "the producer will ensure that exactly one
    copy of each message is written". librdkafka#4953, open: "Sporadic message duplication during leader transition".
    KAFKA-15591: "Reject out-of-order first produce request on empty partitions", in 4.5."""
    found = predicted({"enable.idempotence": "true"}, client="librdkafka")
    assert said(found, "promised", "defect", "unknown", "weak", "even so", "change") == [
        "promised: never lost, duplicate, reordered, offset-conflict, phantom, corrupt, misplaced, resurrected, dirty-read, "
        "invisible, unreported, diverged, snapshot-conflict, out-of-sequence, time-travel, watermark-regression, "
        "log-start-regression, expired-early, undeleted, mistimed, epoch-regression, "
        "under-acknowledged, unclean, two-controllers, stale-controller, leaderless, illegal-transition, stuck, unanswered, "
        "not-linearizable; "
        "as long as at most 1 disk of a partition's replicas fails at a time and its brokers do not all lose power at the "
        "same time",
        "defect: lost: promised, but the known defect KAFKA-15591 breaks the promise: a broker refused the first batch to a "
        "new partition and took the second one, as it takes any sequence of a producer that it does not know; librdkafka "
        "then acknowledged the first batch because of the second; fixed in 4.5.0, avoided by "
        "max.in.flight.requests.per.connection=1 [KAFKA-15591]",
        "defect: duplicate, reordered: promised, but the known defect librdkafka#4953 breaks the promise: the "
        "idempotent producer bumped its "
        "epoch while some of its batches may already have been written; it sent them again under the new epoch with "
        "sequences from 0, and the broker took them for new; open in 2.16.0, avoided by a transactional.id [librdkafka#4953]",
    ]


def test_as_many_in_sync_as_there_are_copies_stops_with_the_first_broker():
    """min.insync.replicas: "If acks=all and the current ISR set contains fewer than min.insync.replicas members, then the
    producer will raise an exception (either NotEnoughReplicas or NotEnoughReplicasAfterAppend)"."""
    found = predicted({"acks": "all"}, topic={"replication.factor": "2", "min.insync.replicas": "2"})
    assert said(found, "weak") == [
        "weak: as soon as one of its brokers is down, a partition refuses writes with acks=all (NOT_ENOUGH_REPLICAS). "
        "replication.factor=2 (the file, replication.factor), min.insync.replicas=2 (the file, min.insync.replicas) → "
        "replication.factor=3 [availability/min-insync-equals-replication-factor]"
    ]


def test_one_copy_is_gone_with_its_disk_and_away_with_its_broker():
    """Basic Kafka Operations: "We recommend you use a replication factor of 2 or 3 so that you can transparently bounce
    machines without interrupting data consumption." """
    found = predicted({"acks": "all"}, topic={"replication.factor": "1"}, broker={})
    assert said(found, "weak") == [
        "weak: lost, offset-conflict, dirty-read, time-travel, watermark-regression, log-start-regression, "
        "mistimed, epoch-regression are possible: "
        "while the "
        "only broker of a partition is down, nobody can write to it or read from it, and all "
        "its records are lost if that broker's disk is lost. "
        "replication.factor=1 (the file, replication.factor) → replication.factor=3, min.insync.replicas=2 "
        "[availability/replication-factor-1]"
    ]


def test_unclean_elections_may_lose_what_acks_all_acknowledged():
    """unclean.leader.election.enable: "Indicates whether to enable replicas not in the ISR set to be elected as leader as a
    last resort, even though doing so may result in data loss." """
    found = predicted({"acks": "all"}, topic=SAFE_TOPIC | {"unclean.leader.election.enable": "true"})
    blame = "unclean.leader.election.enable=true (the file, unclean.leader.election.enable) → "
    assert (
        "weak: lost is possible: an unclean election made a replica leader that did not have all records. "
        f"{blame}unclean.leader.election.enable=false [lost/unclean]"
    ) in said(found, "weak")
    assert said(found, "change") == [
        "change: unclean.leader.election.enable=false: rules out lost, offset-conflict, dirty-read, time-travel, "
        "watermark-regression, log-start-regression, mistimed, epoch-regression, unclean"
    ]
    assert not {"lost", "dirty-read"} & promised(found)


def test_automatic_commits_of_librdkafka_may_skip_what_was_not_processed():
    """librdkafka CONFIGURATION, enable.auto.offset.store: "Automatically store offset of last message provided to
    application": the offset is committed whether or not the application has processed it."""
    found = predicted(consumer=GROUPS | {"enable.auto.commit": "true", "check.crcs": "true"}, client="librdkafka")
    assert said(found, "weak", "change") == [
        "weak: unprocessed is possible: a member committed offsets before it had processed the records, and ended in between "
        "(at most once). enable.auto.commit=true (the file, enable.auto.commit) → committing after processing "
        "(enable.auto.commit=false) [unprocessed/commit-first]",
        "change: committing after processing (enable.auto.commit=false): rules out unprocessed",
    ]
    assert said(found, "not judged") == [
        "not judged: lost, duplicate, reordered, phantom, misplaced, resurrected, unreported, snapshot-conflict, "
        "out-of-sequence, time-travel, under-acknowledged, stuck: these depend on a producer, and you gave none (--producer)"
    ]


def test_a_read_uncommitted_consumer_is_given_what_transactions_abort():
    """isolation.level: "If set to read_uncommitted (the default), consumer.poll() will return all messages, even
    transactional messages which have been aborted." """
    found = predicted({"transactional.id": "orders"}, consumer=GROUPS)
    assert said(found, "weak", "change") == [
        "weak: aborted-read is possible: isolation.level=read_uncommitted also returns records of aborted transactions. "
        "isolation.level=read_uncommitted (the default) → isolation.level=read_committed [aborted-read/read-uncommitted]",
        "weak: early-read is possible: isolation.level=read_uncommitted also returns records that are not committed yet. "
        "isolation.level=read_uncommitted (the default) → isolation.level=read_committed [early-read/read-uncommitted]",
        "change: isolation.level=read_committed: rules out aborted-read, early-read",
    ]
    committed = predicted({"transactional.id": "orders"}, consumer=GROUPS | {"isolation.level": "read_committed"})
    assert said(committed, "weak", "defect") == []
    assert {"aborted-read", "early-read", "torn"} <= promised(committed)


def test_one_copy_of_the_committed_offsets_stops_groups_with_its_broker():
    """offsets.topic.replication.factor: "The replication factor for the offsets topic (set higher to ensure availability)".
    The server.properties that Kafka ships sets 1: "For anything other than development testing, a value greater than 1 is
    recommended to ensure availability such as 3." """
    found = predicted(consumer=GROUPS, broker=SAFE_BROKER | {"offsets.topic.replication.factor": "1"})
    assert said(found, "weak") == [
        "weak: reprocessed, commit-regression, two-owners are possible: __consumer_offsets has one copy: while its "
        "broker is down, its groups can neither join nor commit, "
        "and if its disk is lost, what groups have committed is lost. offsets.topic.replication.factor=1 (the file, "
        "offsets.topic.replication.factor) → offsets.topic.replication.factor=3 before __consumer_offsets is "
        "created; if it exists already, use kafka-reassign-partitions.sh "
        "[internal-offsets/replication-factor-1]"
    ]


def test_one_broker_may_alone_have_what_a_transaction_decided():
    """transaction.state.log.min.isr: "The minimum number of replicas that must acknowledge a write to transaction topic in
    order to be considered successful"."""
    found = predicted(
        {"transactional.id": "orders"}, broker=SAFE_BROKER | {"transaction.state.log.min.isr": "1"}, brokers=3
    )
    assert said(found, "weak") == [
        "weak: torn, lost-transaction, zombie-write, own-read, information-cycle are possible: while only one replica of "
        "__transaction_state is in sync, one broker alone has the outcome of "
        "transactions, which is lost if its disk is lost. transaction.state.log.min.isr=1 (the file, "
        "transaction.state.log.min.isr) → "
        "transaction.state.log.min.isr=2 [internal-transactions/min-insync-1]"
    ]
    assert said(found, "assumed") == [
        "assumed: transaction.version=2, which a cluster has that was created with Kafka 4.0 or later. An "
        "upgraded cluster has it only after you ask for it (kafka-features.sh upgrade --feature "
        "transaction.version=2); until then it has the defect KAFKA-17754"
    ]


def test_each_anomaly_that_is_unknown_stands_on_one_line_where_a_file_is_unclear_and_no_topic_is_given():
    found = predicted({"acks": "all", "enable.idempotence": "true", "retries": "${RETRIES}"}, topic=None, broker=None)
    names = [set(line.removeprefix("unknown: ").partition(": ")[0].split(", ")) for line in said(found, "unknown")]
    assert len(names) == 2
    assert not names[0] & names[1]
    assert names[0] | names[1] == {guarantee.anomaly for guarantee in found.unknown}
    assert "none of these, and none of those on the next lines, because" in said(found, "unknown")[0]
