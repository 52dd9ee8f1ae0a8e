"""The guarantees of a log: its records and their order, compaction, reading, errors that producers get, and delivery
bounds."""

from prozess.harness.config.configuration import BOUNDED
from prozess.harness.guarantees.table.known_defects import DEFECTS
from prozess.harness.guarantees.table.rules import (
    HW_SOURCE,
    Guarantee,
    Rule,
    RuleEffect,
    end_taken_for_a_record,
    epochs_begin_again,
    hard,
    markers_refused,
    names_alone,
    older_epoch_appended,
    topic_deleted,
)


def _taken_for_new(anomaly: str) -> tuple[Rule, ...]:
    """Returns the rules for clients that sent records again so that the broker took them for new: under a new producer
    epoch, or as a producer that is not idempotent."""
    return (
        Rule(
            id=f"{anomaly}/librdkafka-4953",
            effect=RuleEffect.DEFECT,
            when=("idempotent", "librdkafka", "bumped"),
            perhaps=("idempotent", "librdkafka", "leader changed", "bumped"),
            label="librdkafka#4953",
            reason="the idempotent producer bumped its epoch while some of its batches may already have been written; it "
            "sent them again under the new epoch with sequences from 0, and the broker took them for new",
            source="librdkafka#4953; KIP-360; seen with librdkafka 2.16.0: 227 records again in one batch of producer epoch "
            "1 whose first sequence is 0",
            defect=DEFECTS["librdkafka#4953"].description,
        ),
        Rule(
            id=f"{anomaly}/KAFKA-14034",
            effect=RuleEffect.DEFECT,
            when=("idempotent", "not librdkafka", "bumped"),
            perhaps=("idempotent", "not librdkafka", "leader changed", "bumped"),
            label="KAFKA-14034",
            reason="a batch failed for good, and the idempotent producer then sent earlier batches, which it was still "
            "retrying, under a new epoch",
            source="KAFKA-14034 (apache/kafka pull request 13796, closed unmerged); KIP-360",
            defect=DEFECTS["KAFKA-14034"].description,
        ),
        Rule(
            id=f"{anomaly}/KAFKA-13598",
            effect=RuleEffect.DEFECT,
            when=("idempotent by documentation alone", "without a producer id"),
            perhaps=("idempotent by documentation alone",),
            label="KAFKA-13598",
            reason="nothing was set, and the documentation of the client says that it is idempotent then; the client asks "
            "whether somebody has set enable.idempotence, and is not",
            source="KAFKA-13598; KIP-679; ProducerConfig.idempotenceEnabled of 3.0.0 and 3.1.0; seen with 3.1.0: trial "
            "kafka-13598",
            defect=DEFECTS["KAFKA-13598"].description,
        ),
    )


_CUT = "cut though its leader had it, then led without it"

_LOST = Guarantee(
    anomaly="lost",
    meaning="A record that was acknowledged (with acks=0: sent), or that a consumer had read, is missing from the log.",
    promise="A record that was acknowledged, or that a consumer has read, stays in the log.",
    found=("1 acknowledged or read record is gone", "{n} acknowledged or read records are gone"),
    undone="would have kept them",
    absence=True,
    nothing="no record was acknowledged or read",
    source="Kafka documentation, design, 'Replication': a committed message is not lost while one in-sync replica lives",
    rules=(
        topic_deleted("lost"),
        Rule(
            id="lost/begun-behind",
            effect=RuleEffect.NOT_APPLICABLE,
            when=("may have begun behind it",),
            label="consumers that may have begun later",
            reason="somebody read a later offset, and no consumer is known to have read before the record and past it, or "
            "to have begun at the beginning",
            source="Kafka documentation, consumer configuration auto.offset.reset: latest, by default, begins at the end",
        ),
        Rule(
            id="lost/acks-0",
            when=("acks=0", "not committed"),
            label="acks=0",
            reason="a producer with acks=0 waits for no reply, so records can be lost even without a fault",
            change="acks=all",
            found=("1 sent record is gone", "{n} sent records are gone"),
            source="Kafka documentation, producer configuration acks",
        ),
        Rule(
            id="lost/acks-1",
            when=("acks=1", "still unreplicated"),
            label="acks=1",
            reason="a producer with acks=1 waits for the leader only, and the leader may fail before "
            "the followers have the record",
            change="acks=all",
            found=("1 acknowledged record is gone", "{n} acknowledged records are gone"),
            source="Kafka documentation, producer configuration acks; KAFKA-20554; seen: 1000 of 1000, on a killed leader, a "
            "clean stop and a preferred election",
        ),
        *hard("lost", unclean="cutoff of a missing record", wiped="wiped"),
        Rule(
            id="lost/KAFKA-14617",
            effect=RuleEffect.DEFECT,
            when=("brokers to 3.4", "rejoined with nothing, then led without it"),
            perhaps=("brokers to 3.4", "registered anew, then led without it"),
            label="KAFKA-14617",
            reason="a replica that was started again and lacked records was taken back into the ISR because of what its "
            "leader knew of the process before, and was elected",
            source="KAFKA-14617, KIP-903 (AlterPartition with broker epochs); KAFKA-15221",
            defect=DEFECTS["KAFKA-14617"].description,
        ),
        older_epoch_appended("lost", "KAFKA-18991-cut", proof=_CUT, trace=_CUT),
        older_epoch_appended("lost", trace="followed a change of leader, then led without it"),
        Rule(
            id="lost/KAFKA-13141",
            effect=RuleEffect.DEFECT,
            when=("brokers 2.7.0 to 2.8.0", "cut by the leader that acknowledged it"),
            perhaps=("brokers 2.7.0 to 2.8.0", "followed its new leader, then led without it"),
            label="KAFKA-13141",
            reason="a new leader took the fetch offset of a follower, which it asked to cut its log, for what that follower "
            "has, acknowledged records up to there, and the follower was elected without them",
            source="KAFKA-13141; KIP-595: answers to fetches distinguish a diverging epoch, from 2.7 on",
            defect=DEFECTS["KAFKA-13141"].description,
        ),
        Rule(
            id="lost/KAFKA-15591",
            effect=RuleEffect.DEFECT,
            when=(
                "brokers to 4.4",
                "idempotent",
                "librdkafka",
                "several in flight",
                "log begins with a later sequence",
            ),
            perhaps=(
                "brokers to 4.4",
                "idempotent",
                "librdkafka",
                "several in flight",
                "acknowledged without an offset",
            ),
            label="KAFKA-15591",
            reason="a broker refused the first batch to a new partition and took the second one, as it takes any "
            "sequence of a producer that it does not know; librdkafka then acknowledged the first batch because of the "
            "second",
            source="KAFKA-15591; librdkafka rdkafka_request.c, rd_kafka_handle_idempotent_Produce_success, and "
            "rdkafka_broker.c, rd_kafka_dr_implicit_ack; seen with Kafka 4.3.1 and librdkafka 2.16.0: trial "
            "message-first-batch",
            defect=DEFECTS["KAFKA-15591"].description,
        ),
    ),
)
_DUPLICATE = Guarantee(
    anomaly="duplicate",
    meaning="One record is in the log more than once.",
    promise="No record is in the log more than once.",
    found=("1 record is in the log more than once", "{n} records are in the log more than once"),
    by_resending=True,
    nothing="no record was in the log",
    source="KIP-98, enable.idempotence; with retries=0 a Java client sends a record once",
    rules=(
        Rule(
            id="duplicate/not-idempotent",
            when=("not idempotent", "retries"),
            label="enable.idempotence=false with retries",
            reason="without enable.idempotence the producer sends a record again if the reply is lost, and the broker "
            "stores it again",
            change="enable.idempotence=true",
            source="Kafka documentation, producer configuration enable.idempotence; seen: 500 of 500, and 0 with it on",
        ),
        Rule(
            id="duplicate/librdkafka-resends",
            when=("not idempotent", "librdkafka", "leader changed during the send"),
            label="librdkafka without enable.idempotence",
            reason="librdkafka sends again after a change of leader, even with retries=0, and the first copy may have "
            "been stored",
            change="enable.idempotence=true",
            source="seen with librdkafka 2.16.0 after NOT_LEADER_OR_FOLLOWER, LEADER_NOT_AVAILABLE and "
            "UNKNOWN_TOPIC_OR_PART: such errors do not count as a retry; 11 of 11 on brokers that moved a leader",
        ),
        Rule(
            id="duplicate/forgot",
            when=("forgot",),
            label="expired producer ids",
            reason="the broker had forgotten the producer (producer.id.expiration.ms) and took a retry for a new record",
            change="a longer producer.id.expiration.ms",
            source="KIP-854; ProducerAppendInfo takes any first sequence of a producer without state",
        ),
        *_taken_for_new("duplicate"),
    ),
)
_REORDERED = Guarantee(
    anomaly="reordered",
    meaning="The records of one producer are in the partition in a different order than it sent them.",
    promise="A partition holds the records of one producer in the order in which it sent them.",
    found=(
        "1 record is in the log before one that was sent earlier",
        "{n} records are in the log before one that was sent earlier",
    ),
    by_resending=True,
    nothing="no record was in the log",
    source="Kafka documentation, design, message delivery; KIP-98; with a Java client one request in flight keeps it",
    rules=(
        Rule(
            id="reordered/acks-0",
            when=("acks=0",),
            label="acks=0",
            reason="a producer with acks=0 waits for no reply, so records on a new connection can overtake records on "
            "the old one that the broker has not handled yet",
            change="enable.idempotence=true",
            source="seen: brokers slowed to seconds, connections made anew; a broker handles requests of one connection in "
            "order, of two in any",
        ),
        Rule(
            id="reordered/given-up",
            when=("not idempotent", "given up"),
            label="a request that timed out, without enable.idempotence",
            reason="the client gave up a request after a timeout and sent the next one, and the broker handled the "
            "first one afterwards",
            change="enable.idempotence=true",
            source="seen: _MSG_TIMED_OUT after 10 s, appended behind records sent later, with retries=0; delivery.timeout.ms",
        ),
        Rule(
            id="reordered/librdkafka-resends",
            when=("not idempotent", "librdkafka", "leader may have refused"),
            label="librdkafka without enable.idempotence",
            reason="if a broker refuses a request because it does not lead the partition (yet), librdkafka sends it "
            "again, even "
            "with retries=0; by then it has prepared the next request, even with one in flight, so the refused one goes out "
            "after it, to a new leader and over another connection",
            change="enable.idempotence=true",
            source="librdkafka rdkafka_request.c, rd_kafka_handle_Produce_error: errors that ask for new metadata do not "
            "count as a retry; librdkafka CONFIGURATION, queue.buffering.backpressure.threshold: one request waits made up; "
            "librdkafka#1969: max.in.flight is enforced per connection; seen with librdkafka 2.16.0, acks=all, retries=0, "
            "one in flight: 3 records, sent 0.9 to 0.5 s before a broker's log says that it leads, behind the next one",
        ),
        Rule(
            id="reordered/not-idempotent",
            when=("not idempotent", "retries", "several in flight"),
            label="enable.idempotence=false with several requests in flight",
            reason="without enable.idempotence a retried batch is written after the batch that was sent later",
            change="enable.idempotence=true",
            source="Kafka documentation, max.in.flight.requests.per.connection; librdkafka INTRODUCTION",
        ),
        Rule(
            id="reordered/librdkafka-retries",
            when=("not idempotent", "retries", "librdkafka"),
            label="retries of librdkafka without enable.idempotence",
            reason="librdkafka prepares the next request while one is in flight, even if only one may be, and sends it "
            "before it retries the one that failed",
            change="enable.idempotence=true",
            source="librdkafka CONFIGURATION, retries: may reorder unless enable.idempotence is set, whatever max.in.flight "
            "(INTRODUCTION, 'Reordering', speaks of more than one alone); rd_kafka_broker_outbufs_space: as many wait made "
            "up as queue.buffering.backpressure.threshold says, by default 1; for how it was seen, see the rule on resends",
        ),
        Rule(
            id="reordered/lifo",
            when=("lifo",),
            label="queuing.strategy=lifo",
            reason="queuing.strategy=lifo sends the newest record first",
            change="queuing.strategy=fifo",
            source="librdkafka CONFIGURATION, queuing.strategy",
        ),
        Rule(
            id="reordered/cleaned",
            effect=RuleEffect.NOT_APPLICABLE,
            when=("may be a second copy",),
            label="a cleaned log",
            reason="the record that is out of order may be a second copy, and the log cleaner may have removed the first",
            source="Kafka documentation, design, log compaction: of each key the last record is kept",
        ),
        *_taken_for_new("reordered"),
    ),
)
_OFFSET_CONFLICT = Guarantee(
    anomaly="offset-conflict",
    meaning="Two different records were seen at one offset of one partition.",
    promise="Everybody sees the same record at one offset of a partition.",
    found=("1 offset showed two different records", "{n} offsets showed two different records"),
    nothing="no offset was observed",
    source="Kafka documentation, design, 'Replicated logs'; KIP-101, KIP-320: only an uncommitted tail is truncated",
    rules=(
        topic_deleted("offset-conflict", "topic of either deleted"),
        *hard("offset-conflict", unclean="cutoff of either", wiped="wiped of either"),
    ),
)
_PHANTOM = Guarantee(
    anomaly="phantom",
    meaning="The log holds a record that nobody sent.",
    promise="The log holds only what was sent.",
    found=("1 record in the log was never sent", "{n} records in the log were never sent"),
    nothing="nothing was read",
    source="No configuration makes a broker invent records",
)
_CORRUPT = Guarantee(
    anomaly="corrupt",
    meaning="A record was read with a wrong checksum, size or header, or with another key than it was sent with.",
    promise="A record is read as it was sent.",
    found=(
        "1 record was read with a wrong checksum, size, header or key",
        "{n} records were read with a wrong checksum, size, header or key",
    ),
    nothing="nothing was read",
    source="Kafka documentation, record batch format (CRC-32C); check.crcs: with it a reader stalls instead",
    rules=(
        Rule(
            id="corrupt/unchecked",
            when=("crcs are not checked",),
            label="check.crcs=false",
            reason="the consumer does not compare the checksum of what it reads, so bits that changed on the wire or on a "
            "disk reach the application",
            change="check.crcs=true",
            source="Kafka documentation, consumer configuration check.crcs: 'ensures no on-the-wire or on-disk corruption "
            "to the messages occurred'; librdkafka CONFIGURATION, check.crcs: false by default",
        ),
    ),
)
_MISPLACED = Guarantee(
    anomaly="misplaced",
    meaning="A record is in another topic or partition than it was sent to.",
    promise="A record is in the topic and partition it was sent to.",
    found=(
        "1 record is in another partition than it was sent to",
        "{n} records are in another partition than they were sent to",
    ),
    nothing="nothing was read",
    source="Kafka protocol, Produce: data is addressed per topic partition",
    rules=(
        Rule(
            id="misplaced/KAFKA-19012",
            effect=RuleEffect.DEFECT,
            when=("memory of expired batches is used again", "an expired send had gone there"),
            perhaps=("memory of expired batches is used again", "an expired send had gone there"),
            label="KAFKA-19012",
            reason="a batch expired while its request was being sent, the producer gave its memory to a batch of another "
            "partition, and that one was written in its place, with a right checksum: no checksum has the partition",
            source="KAFKA-19012; apache/kafka pull request 21065; seen: 252 records of 3.7.2, none of 3.9.2, trial "
            "kafka-19012",
            defect=DEFECTS["KAFKA-19012"].description,
        ),
    ),
)
_RESURRECTED = Guarantee(
    anomaly="resurrected",
    meaning="A record is in the log although its send certainly failed.",
    promise="A send that certainly failed left nothing in the log.",
    found=(
        "1 record is in the log although its send certainly failed",
        "{n} records are in the log although their sends certainly failed",
    ),
    nothing="no send certainly failed",
    nothing_is_unknown=False,
    source="librdkafka INTRODUCTION, 'Message persistence status'; only errors raised before any request count as certain",
)
_DIRTY_READ = Guarantee(
    anomaly="dirty-read",
    meaning="A consumer read a record that is no longer in the log.",
    promise="A record that a consumer has read stays in the log, whatever acks the producer uses.",
    found=(
        "1 read returned a record that is no longer in the log",
        "{n} reads returned records that are no longer in the log",
    ),
    absence=True,
    nothing="nothing was read",
    source=HW_SOURCE,
    rules=(
        topic_deleted("dirty-read", "topic deleted after the read"),
        *hard("dirty-read", unclean="cutoff after the read", wiped="wiped after it was there"),
        Rule(
            id="dirty-read/KAFKA-14704",
            effect=RuleEffect.DEFECT,
            when=("brokers to 3.4.0", "given after its leader was replaced"),
            perhaps=("brokers to 3.4.0", "leader changed", "given after its leader was replaced"),
            label="KAFKA-14704",
            reason="a former leader that became a follower raises its high watermark before it truncates its log, "
            "so a consumer that fetches from it can read records that were never committed",
            source="KAFKA-14704; seen: 3.3.2 and a consumer without KIP-320, trial kafka-14704",
            defect=DEFECTS["KAFKA-14704"].description,
        ),
    ),
)
_INVISIBLE = Guarantee(
    anomaly="invisible",
    meaning="A record that no transaction wrote is in the log, and a consumer at read_committed does not get it.",
    promise="A consumer at read_committed gets every record that no transaction wrote.",
    found=(
        "1 record that no transaction wrote is not given at read_committed",
        "{n} records that no transaction wrote are not given at read_committed",
    ),
    nothing="no record was in the log that no transaction wrote",
    # Its topic is empty, all of it is transactional, or nobody audited: then nobody knows what is in the log besides what
    # consumers were given.
    nothing_is_unknown=False,
    source="Kafka documentation, consumer configuration isolation.level: 'Non-transactional messages will be returned "
    "unconditionally in either mode'; KIP-98: a consumer at read_committed gets everything below the last stable offset but "
    "what was aborted",
)


def _sought_unreported(anomaly: str) -> Rule:
    """Returns the rule for consumers that do not say when they seek. It permits nothing: what they did is unknown."""
    return Rule(
        id=f"{anomaly}/unreported-seek",
        when=("the consumer's seeks are not recorded",),
        label="a program whose seeks are not recorded",
        reason="the consumer is a program of yours, and the lines of Kafka's VerifiableConsumer do not report positions: it "
        "may have gone to another one by itself",
        change="a consumer whose positions are known, of Kafka's or of librdkafka's",
        source="org.apache.kafka.tools.VerifiableConsumer, its events: none is of a position or a seek",
    )


_SKIPPED = Guarantee(
    anomaly="skipped",
    meaning="A consumer's position jumped over records that it should have read.",
    promise="A consumer's position moves from record to record and leaves none out.",
    found=(
        "1 time a consumer's position jumped over records that it should have read",
        "{n} times a consumer's position jumped over records that it should have read",
    ),
    absence=True,
    nothing="no consumer read two records",
    source="Kafka documentation, design, 'The consumer'; positions are offsets of the partition's log",
    rules=(
        topic_deleted("skipped", "topic made anew in between"),
        Rule(
            id="skipped/deleted",
            when=("log start passed",),
            label="retention",
            reason="retention had moved the log start past the consumer's position, so the position was reset",
            change="longer retention",
            source="Kafka documentation, consumer configuration auto.offset.reset",
        ),
        *hard("skipped", unclean="unclean before", wiped="wiped before"),
        Rule(
            id="skipped/written-later",
            effect=RuleEffect.NOT_APPLICABLE,
            when=("sent later",),
            label="a log that was truncated and written again",
            reason="the record did not exist yet when the consumer passed its offset; another record was there "
            "then, and was truncated later",
            source="KIP-101: a log that was cut is written anew from there",
        ),
        _sought_unreported("skipped"),
        end_taken_for_a_record("skipped"),
    ),
)
_REWOUND = Guarantee(
    anomaly="rewound",
    meaning="A consumer's position went back although nobody sought or reset it.",
    promise="A consumer's position does not go back by itself.",
    found=("1 time a consumer's position went back", "{n} times a consumer's position went back"),
    nothing="no consumer read two records",
    source="KafkaConsumer: the position advances with each poll; a clean failover keeps every committed offset",
    rules=(
        topic_deleted("rewound", "topic made anew in between"),
        *hard("rewound", unclean="unclean before", wiped="wiped before"),
        _sought_unreported("rewound"),
    ),
)

LOG = (
    _LOST, _DUPLICATE, _REORDERED, _OFFSET_CONFLICT, _PHANTOM, _CORRUPT, _MISPLACED, _RESURRECTED, _DIRTY_READ,
    _INVISIBLE, _SKIPPED, _REWOUND,
)  # fmt: skip
"""These guarantees, in the order in which reports list them."""


# Compaction: what a compacted topic keeps of each key.


_DOCUMENTATION = "Kafka documentation, design, 'What guarantees does log compaction provide?'"


def _lost(prefix: str) -> tuple[Rule, ...]:
    """Returns the rules for lost records: a record that may be lost may also be missing after compaction."""
    return (
        topic_deleted(prefix),
        Rule(
            id=f"{prefix}/acks-0",
            when=("acks=0", "not committed"),
            label="acks=0",
            reason="a producer with acks=0 waits for no reply, so records can be lost even without a fault",
            change="acks=all",
            source="Kafka documentation, producer configuration acks",
        ),
        Rule(
            id=f"{prefix}/acks-1",
            when=("acks=1", "still unreplicated"),
            label="acks=1",
            reason="a producer with acks=1 waits for the leader only, and the leader may fail before "
            "the followers have the record",
            change="acks=all",
            source="Kafka documentation, producer configuration acks; see lost/acks-1",
        ),
        *hard(prefix, unclean="cutoff", wiped="wiped"),
    )


COMPACTION = (
    Guarantee(
        anomaly="compacted-away",
        meaning="The last acknowledged value of a key is gone from a compacted topic.",
        promise="Compaction keeps at least the last acknowledged value of every key.",
        found=("the last value of 1 key is gone", "the last values of {n} keys are gone"),
        undone="would have kept them",
        absence=True,
        nothing="no record with a key was acknowledged",
        source=_DOCUMENTATION,
        rules=_lost("compacted-away"),
        workloads=("compaction",),
    ),
    Guarantee(
        anomaly="tombstone-lost",
        meaning="A key that was deleted by a tombstone is back with an older value.",
        promise="A deleted key stays deleted: compaction removes its older values before its tombstone, or together "
        "with it.",
        found=("1 deleted key came back", "{n} deleted keys came back"),
        undone="would have kept them deleted",
        absence=True,
        nothing="no tombstone was acknowledged",
        nothing_is_unknown=False,
        source=_DOCUMENTATION,
        rules=(
            *_lost("tombstone-lost"),
            Rule(
                id="tombstone-lost/slow-audit",
                when=("read beyond delete.retention.ms",),
                label="a read slower than delete.retention.ms",
                reason="the audit read the older value, and the tombstone expired before the audit came to it",
                change="a longer delete.retention.ms",
                source=_DOCUMENTATION + ": provided the consumer reaches the head of the log in less than it",
            ),
            Rule(
                id="tombstone-lost/replica-away",
                when=("a replica away beyond delete.retention.ms",),
                label="a replica away longer than delete.retention.ms",
                reason="a replica came back with the older value after the tombstone had expired on the others, and "
                "became leader",
                change="a longer delete.retention.ms",
                source="reasoned, not seen: a follower fetches from its own log end on and is not informed what was cleaned",
            ),
        ),
        workloads=("compaction",),
    ),
)


# Stalls: what is promised to a consumer that waits for records.


STALLS = (
    Guarantee(
        anomaly="stalled",
        meaning="A consumer read nothing for 20 s although there was something to read.",
        promise="Once the faults are healed and every replica is in sync, a consumer reads what there is to read "
        "within 20 s, a member of a group what it owns; one that an application drives, while it polls, within its own "
        "request timeout and 10 s.",
        found=("1 time a consumer read nothing for 20 s although there was something to read", "{n} times a consumer "
        "read nothing for 20 s "
        "although there was "
        "something to read"),
        nothing="no consumer was running",
        nothing_is_unknown=False,
        workloads=("log", "group", "compaction", "transactions", "errors", "recorded"),
        source="KafkaConsumer, 'Offsets and Consumer Position'; KIP-98: a transaction past its timeout is aborted",
        rules=(
            Rule(
                id="stalled/remote-store",
                when=("remote store harmed",),
                label="a remote store out of reach",
                reason="what the consumer was to read next was in the remote store, and brokers could not read it there, so "
                "the consumer asks again and again, and waits",
                change="a remote store that loses no object",
                source="KIP-405: fetches of remote records are answered from the store; seen with 4.4.0, an object lost for "
                "25 s: librdkafka's consumer gets UNKNOWN_SERVER_ERROR once a second, Kafka's Java consumer no exception",
            ),
            Rule(
                id="stalled/unsettled",
                effect=RuleEffect.NOT_APPLICABLE,
                when=("unsettled",),
                label="an unsettled cluster",
                reason="within those 20 s there was a fault, a leader change or a replica out of sync",
                source="The definition: after healing, with whole ISR. While the ISR is below min.insync.replicas the high "
                "watermark does not advance (KIP-966)",
            ),
            Rule(
                id="stalled/starved",
                effect=RuleEffect.NOT_APPLICABLE,
                when=("reader stood still",),
                label="a consumer process that stood still",
                reason="the consumer's own process stood still during that time, so it may not have fetched",
                source="A gap of more than 1 s between heartbeats of 100 ms",
            ),
            Rule(
                id="stalled/transaction-state-lost",
                when=("last stable offset stood still", "transaction state lost"),
                label="a lost __transaction_state",
                reason="the coordinator forgot a transaction whose records are still in the log, so it stays open until an "
                "operator ends it",
                change="flush.messages=1 for __transaction_state too, or more in-sync replicas of it,",
                source="KIP-664, hanging transactions; seen: all brokers without power, flush.messages=1 for the data alone",
            ),
            epochs_begin_again("stalled", "its reader uses librdkafka"),
            names_alone("stalled"),
            markers_refused("stalled"),
            Rule(
                id="stalled/KAFKA-14402",
                effect=RuleEffect.DEFECT,
                when=("brokers to 3.5", "last stable offset stood still", "left open"),
                perhaps=("brokers to 3.5", "last stable offset stood still"),
                label="KAFKA-14402",
                reason="a delayed write went to a partition that no longer belongs to its transaction, and nobody "
                "ends the transaction that it opened there",
                source="KAFKA-14402, KIP-890 part 1 (transaction.partition.verification.enable)",
                defect=DEFECTS["KAFKA-14402"].description,
            ),
        ),
    ),
)  # fmt: skip


# Errors: whose records are refused, and who learns of it.


UNREPORTED = Guarantee(
    anomaly="unreported",
    meaning="A record is not in the log, and its producer got no error for it.",
    promise="A producer gets an error for every record that did not get into the log.",
    found=(
        "1 record is missing from the log, and its producer got no error for it",
        "{n} records are missing from the log, and their producers got no error for them",
    ),
    undone="would have informed the producer",
    absence=True,
    nothing="no send failed",
    nothing_is_unknown=False,
    source="Kafka documentation, producer configuration delivery.timeout.ms: an upper bound on the time to report success or "
    "failure",
    rules=(
        Rule(
            id="unreported/acks-0",
            when=("acks=0",),
            label="acks=0",
            reason="a producer with acks=0 waits for no reply, so it is never informed what the broker did with the record",
            change="acks=1 or acks=all",
            source="Kafka documentation, producer configuration acks: no guarantee can be made that the server has received "
            "the record, and the client won't generally know of any failures",
        ),
    ),
)
ERRORS = (
    Guarantee(
        anomaly="unenforced",
        meaning="The brokers took a record that breaks a limit of its topic or its client.",
        promise="The brokers refuse a record that breaks a limit of its topic or its client.",
        found=(
            "1 record is in the log although it breaks a limit",
            "{n} records are in the log although they break a limit",
        ),
        nothing="no send provoked the error",
        source="Kafka documentation, topic configurations max.message.bytes, segment.bytes, cleanup.policy, "
        "message.timestamp.before.max.ms; security, ACLs",
        workloads=("errors",),
    ),
    Guarantee(
        anomaly="collateral",
        meaning="A record was refused because of an error in another record.",
        promise="An error in one record affects that record only.",
        found=(
            "1 record was refused because of another one",
            "{n} records were refused because of another one",
        ),
        undone="would have let them through",
        nothing="no record caused an error",
        nothing_is_unknown=False,
        source="a record that the client refuses never enters a batch; a batch of one has no neighbours",
        rules=(
            Rule(
                id="collateral/batched",
                when=("refused by brokers", "several per batch"),
                label="batches of several records",
                reason="a broker accepts or refuses a whole batch, so one bad record gets its neighbours refused",
                change="a batch of one record (batch.num.messages=1), or sending the neighbours again,",
                source="KIP-467; LogValidator; librdkafka's _INVALID_DIFFERENT_RECORD: dropped due to invalid different "
                "record in batch",
            ),
        ),
        workloads=("errors",),
    ),
)


# Delivery: what the trial itself promises, where it does.


DELIVERY = Guarantee(
    anomaly="late",
    meaning="An acknowledged record was delivered later than the bound that the trial states, or never.",
    promise="Every acknowledged record reaches every consumer that should read it within the bound that the trial "
    "states.",
    found=(
        "1 acknowledged record was delivered later than the stated bound, or never",
        "{n} acknowledged records were delivered later than the stated bound, or never",
    ),
    undone="would count them",
    nothing="there was no acknowledged record that a recorded consumer should have read",
    workloads=(BOUNDED,),
    source="the trial ([delivery])",
    rules=(
        Rule(
            id="late/excepted-fault",
            when=("faults are excepted", "fault at work"),
            label="a fault",
            reason="the trial does not count what a fault may have delayed, and a fault was active before the deadline, "
            "or had ended less than the stated recovery time ago",
            change="except_during_faults=false",
            source="the trial (delivery.except_during_faults, delivery.recovery_s)",
        ),
        Rule(
            id="late/unmeasured",
            effect=RuleEffect.NOT_APPLICABLE,
            when=("unmeasured",),
            label="a client that stood still",
            reason="the record's producer or a consumer that should read it stood still or was dead long enough to "
            "explain the delay, or the audit did not end",
            source="A gap of more than 0.5 s between heartbeats of 100 ms",
        ),
    ),
)
