"""The guarantee table, part log and reading: what each configuration promises of records, order and readers."""

from harness.guarantees.rules import HW_SOURCE, Effect, Guarantee, Rule, hard, older_epoch_appended


def _bumped(anomaly: str) -> tuple[Rule, ...]:
    """A client that gave its records a new identity: the broker could not know them."""
    return (
        Rule(
            id=f"{anomaly}/librdkafka-4953",
            effect=Effect.DEFECT,
            when=("idempotent", "librdkafka", "bumped"),
            label="librdkafka#4953",
            reason="the idempotent producer bumped its epoch while batches of it may have been written already: sent again "
            "under the new epoch, with sequences from 0, they are new to the broker",
            source="librdkafka#4953; KIP-360; seen with librdkafka 2.16.0: 227 records again in one batch of producer epoch "
            "1 whose first sequence is 0",
            defect="librdkafka#4953, open in 2.16.0; a transactional.id avoids it",
        ),
        Rule(
            id=f"{anomaly}/KAFKA-14034",
            effect=Effect.DEFECT,
            when=("idempotent", "not librdkafka", "bumped"),
            label="KAFKA-14034",
            reason="a batch failed for good, and the idempotent producer sent earlier ones that it was retrying under a new "
            "epoch",
            source="KAFKA-14034 (apache/kafka pull request 13796, closed unmerged); KIP-360",
            defect="KAFKA-14034, open in 4.3.1; a transactional.id avoids it",
        ),
    )


_LOST = Guarantee(
    anomaly="lost",
    promise="A record that was acknowledged, or given to a consumer, stays in the log.",
    found=("1 acknowledged or read record is gone", "{n} acknowledged or read records are gone"),
    did=("lost 1 acknowledged or read record", "lost {n} acknowledged or read records"),
    undone="would have kept them",
    absence=True,
    nothing="no record was acknowledged or read",
    source="Kafka documentation, design, 'Replication': a committed message is not lost while one in-sync replica lives",
    rules=(
        Rule(
            id="lost/acks-0",
            when=("acks=0", "not committed"),
            label="acks=0",
            reason="acks=0 waits for no reply, so a loss needs no fault",
            change="acks=all",
            found=("1 sent record is gone", "{n} sent records are gone"),
            did=("lost 1 record that was sent", "lost {n} records that were sent"),
            source="Kafka documentation, producer configuration acks",
        ),
        Rule(
            id="lost/acks-1",
            when=("acks=1", "tail"),
            label="acks=1",
            reason="acks=1 waits for the leader only",
            change="acks=all",
            found=("1 acknowledged record is gone", "{n} acknowledged records are gone"),
            did=("lost 1 acknowledged record", "lost {n} acknowledged records"),
            source="Kafka documentation, producer configuration acks; KAFKA-20554; seen: 1000 of 1000, on a killed leader, a "
            "clean stop and a preferred election",
        ),
        *hard("lost", unclean="cutoff of the gone", wiped="wiped"),
        older_epoch_appended("lost"),
    ),
)
_DUPLICATE = Guarantee(
    anomaly="duplicate",
    promise="One record stands in the log once.",
    found=("1 record stands in the log more than once", "{n} records stand in the log more than once"),
    did=("put 1 record in more than once", "put {n} records in more than once"),
    by_resending=True,
    nothing="no record was in the log",
    source="KIP-98, enable.idempotence; with retries=0 a Java client sends a record once",
    rules=(
        Rule(
            id="duplicate/not-idempotent",
            when=("not idempotent", "retries"),
            label="enable.idempotence=false with retries",
            reason="without enable.idempotence a record whose reply was lost is sent, and kept, again",
            change="enable.idempotence=true",
            source="Kafka documentation, producer configuration enable.idempotence; seen: 500 of 500, and 0 with it on",
        ),
        Rule(
            id="duplicate/librdkafka-resends",
            when=("not idempotent", "librdkafka", "leader changed"),
            label="librdkafka without enable.idempotence",
            reason="librdkafka sends again after a leader change even with retries=0, and the first copy may have been kept",
            change="enable.idempotence=true",
            source="seen with librdkafka 2.16.0 after NOT_LEADER_OR_FOLLOWER, LEADER_NOT_AVAILABLE and "
            "UNKNOWN_TOPIC_OR_PART: such errors do not count as a retry; 11 of 11 on brokers that moved a leader",
        ),
        Rule(
            id="duplicate/forgot",
            when=("forgot",),
            label="expired producer ids",
            reason="the broker had forgotten the producer (producer.id.expiration.ms) and took a retry for new",
            change="a longer producer.id.expiration.ms",
            source="KIP-854; ProducerAppendInfo takes any first sequence of a producer without state",
        ),
        *_bumped("duplicate"),
    ),
)
_REORDERED = Guarantee(
    anomaly="reordered",
    promise="What one producer sends to one partition stands in the order of sending.",
    found=("1 record stands before one that was sent earlier", "{n} records stand before one that was sent earlier"),
    did=("put 1 record out of order", "put {n} records out of order"),
    by_resending=True,
    nothing="no record was in the log",
    source="Kafka documentation, design, message delivery; KIP-98; with a Java client one request in flight keeps it",
    rules=(
        Rule(
            id="reordered/acks-0",
            when=("acks=0",),
            label="acks=0",
            reason="acks=0 waits for no reply, so what goes over a new connection may overtake what the broker has not "
            "handled of the old one",
            change="enable.idempotence=true",
            source="seen: brokers slowed to seconds, connections made anew; a broker handles requests of one connection in "
            "order, of two in any",
        ),
        Rule(
            id="reordered/given-up",
            when=("not idempotent", "given up"),
            label="requests given up without enable.idempotence",
            reason="the client gave the request up (a time-out), sent the next, and the broker handled the first one later",
            change="enable.idempotence=true",
            source="seen: _MSG_TIMED_OUT after 10 s, appended behind records sent later, with retries=0; delivery.timeout.ms",
        ),
        Rule(
            id="reordered/librdkafka-resends",
            when=("not idempotent", "librdkafka", "leader may have refused"),
            label="librdkafka without enable.idempotence",
            reason="librdkafka sends again, even with retries=0, what a broker refused that did not lead the partition, or "
            "not yet; behind the next request, which it has made up by then even with one in flight, and the new leader has "
            "another connection",
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
            reason="without enable.idempotence a retried batch lands behind the one that was sent after it",
            change="enable.idempotence=true",
            source="Kafka documentation, max.in.flight.requests.per.connection; librdkafka INTRODUCTION",
        ),
        Rule(
            id="reordered/librdkafka-retries",
            when=("not idempotent", "retries", "librdkafka"),
            label="retries of librdkafka without enable.idempotence",
            reason="librdkafka has made up the next request while one is in flight, even if no more may be, and sends it "
            "before it sends again what failed",
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
            effect=Effect.NOT_APPLICABLE,
            when=("may be a second copy",),
            label="a cleaned log",
            reason="what stands out of order may be a second copy, whose first the cleaner took",
            source="Kafka documentation, design, log compaction: of each key the last record is kept",
        ),
        *_bumped("reordered"),
    ),
)
_OFFSET_CONFLICT = Guarantee(
    anomaly="offset-conflict",
    promise="At one offset of a partition everybody sees the same record.",
    found=("1 offset showed two different records", "{n} offsets showed two different records"),
    did=("showed two records at 1 offset", "showed two records at each of {n} offsets"),
    nothing="no offset was observed",
    source="Kafka documentation, design, 'Replicated logs'; KIP-101, KIP-320: only an uncommitted tail is truncated",
    rules=hard("offset-conflict", unclean="cutoff of either", wiped="wiped of either"),
)
_PHANTOM = Guarantee(
    anomaly="phantom",
    promise="The log holds only what was sent.",
    found=("1 record in the log was never sent", "{n} records in the log were never sent"),
    did=("showed 1 record that nobody sent", "showed {n} records that nobody sent"),
    nothing="nothing was read",
    source="No configuration makes a broker invent records",
)
_CORRUPT = Guarantee(
    anomaly="corrupt",
    promise="A record is read as it was sent.",
    found=(
        "1 record was read with a wrong checksum, size or header",
        "{n} records were read with a wrong checksum, size or header",
    ),
    did=("showed 1 damaged record", "showed {n} damaged records"),
    nothing="nothing was read",
    source="Kafka documentation, record batch format (CRC-32C); check.crcs: with it a reader stalls instead",
)
_MISPLACED = Guarantee(
    anomaly="misplaced",
    promise="A record is in the topic and partition it was sent to.",
    found=(
        "1 record is in another partition than it was sent to",
        "{n} records are in another partition than they were sent to",
    ),
    did=("put 1 record into the wrong partition", "put {n} records into the wrong partition"),
    nothing="nothing was read",
    source="Kafka protocol, Produce: data is addressed per topic partition",
)
_RESURRECTED = Guarantee(
    anomaly="resurrected",
    promise="A send that certainly failed left nothing in the log.",
    found=(
        "1 record is in the log although its send certainly failed",
        "{n} records are in the log although their sends certainly failed",
    ),
    did=("kept 1 record whose send had failed", "kept {n} records whose sends had failed"),
    nothing="no send certainly failed",
    nothing_is_unknown=False,
    source="librdkafka INTRODUCTION, 'Message persistence status'; only errors raised before any request count as certain",
)
_DIRTY_READ = Guarantee(
    anomaly="dirty-read",
    promise="What a consumer was given stays in the log, whatever acks.",
    found=(
        "1 read gave a consumer a record that was gone later",
        "{n} reads gave consumers records that were gone later",
    ),
    did=(
        "took back a record that a consumer had been given",
        "took back records of {n} reads by consumers",
    ),
    absence=True,
    nothing="nothing was read",
    source=HW_SOURCE,
    rules=(
        *hard("dirty-read", unclean="cutoff after the read", wiped="wiped after the read"),
        Rule(
            id="dirty-read/KAFKA-14704",
            effect=Effect.DEFECT,
            when=("brokers to 3.4.0", "leader changed"),
            label="KAFKA-14704",
            reason="a former leader shows its uncommitted tail to fetches served by followers",
            source="KAFKA-14704",
            defect="KAFKA-14704, fixed after 3.4.0",
        ),
    ),
)
_SKIPPED = Guarantee(
    anomaly="skipped",
    promise="A consumer's position moves on from record to record, leaving none out.",
    found=(
        "once a reader's position jumped over visible records",
        "{n} times a reader's position jumped over visible records",
    ),
    did=("made a reader jump over records", "made readers jump over records {n} times"),
    absence=True,
    nothing="no reader read two records",
    source="Kafka documentation, design, 'The consumer'; positions are offsets of the partition's log",
    rules=(
        Rule(
            id="skipped/deleted",
            when=("log start passed",),
            label="retention",
            reason="the log start had passed the position, so the reader was reset",
            change="longer retention",
            source="Kafka documentation, consumer configuration auto.offset.reset",
        ),
        *hard("skipped", unclean="unclean before", wiped="wiped before"),
        Rule(
            id="skipped/written-later",
            effect=Effect.NOT_APPLICABLE,
            when=("sent later",),
            label="a log written anew",
            reason="the record did not exist when the reader passed its offset: what stood there was cut off later",
            source="KIP-101: a log that was cut is written anew from there",
        ),
    ),
)
_REWOUND = Guarantee(
    anomaly="rewound",
    promise="A consumer's position does not go back by itself.",
    found=("once a reader's position went back", "{n} times a reader's position went back"),
    did=("sent a reader back", "sent readers back {n} times"),
    nothing="no reader read two records",
    source="KafkaConsumer: the position advances with each poll; a clean failover keeps every committed offset",
    rules=hard("rewound", unclean="unclean before", wiped="wiped before"),
)

LOG = (
    _LOST, _DUPLICATE, _REORDERED, _OFFSET_CONFLICT, _PHANTOM, _CORRUPT, _MISPLACED, _RESURRECTED, _DIRTY_READ, _SKIPPED,
    _REWOUND,
)  # fmt: skip
"""In the order of reports."""
