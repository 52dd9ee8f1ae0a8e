"""The tables that clients write: what they sent, read, processed, committed, looked up. Used through `harness.schema`."""

from harness.columns import table

SENDS = table(
    "sends",
    "One row per produce(): written before the call, completed in place by the delivery report.",
    ("invoked_ns", "i8", "ns", "before produce() was called"),
    ("completed_ns", "i8", "ns", "when the delivery report ran (an upper bound); MISSING: never"),
    ("log_offset", "i8", "offset", "from the report; NONE: not told (acks=0, duplicate sequence, error)"),
    ("sequence", "i8", "count", "identity of the record within its client: 0, 1, 2, … over all partitions"),
    ("transaction", "i8", "id", "number of the client's transaction, NONE outside"),
    ("key", "i8", "id", "key of the record, NONE = null key"),
    ("partition", "i4", "partition id", "dense id, see `partitions`"),
    ("outcome", "i4", "Outcome", "INFO until completed"),
    ("code", "i4", "KafkaError code", "0 = no error"),
    ("size", "i4", "bytes", "of the value; NONE = tombstone"),
    partitioned=True,
)
READS = table(
    "reads",
    "One row per record given to a reader or to the audit, in the order given.",
    ("read_ns", "i8", "ns", "when the poll returned"),
    ("log_offset", "i8", "offset", "of the record"),
    ("sequence", "i8", "count", "of the record within its sender; NONE if unreadable"),
    ("key", "i8", "id", "key of the record, NONE = null key"),
    (
        "origin",
        "i8",
        "id",
        "of a copy: client << ORIGIN_SEQUENCE_BITS | sequence of what it was copied from; where only contents can tell, in "
        "both topics: a digest of key and value; NONE: no copy, or it does not say",
    ),
    (
        "sender",
        "i4",
        "client id",
        "who produced it, from the record itself; NONE if unreadable, or a copy without its own",
    ),
    ("partition", "i4", "partition id", "where it was read"),
    ("sent_partition", "i4", "partition id", "where the record says it was sent; NONE if unreadable"),
    ("span", "i4", "count", "number of this client's assignment or seek span: order is judged within one"),
    ("flags", "i4", "ReadFlag bits", ""),
    ("leader_epoch", "i4", "epoch", "as the client was told; NONE if not"),
    partitioned=True,
)
PROCESSED = table(
    "processed",
    "One row per processing step of a group member, written before its commit.",
    ("started_ns", "i8", "ns", ""),
    ("done_ns", "i8", "ns", "MISSING: never finished"),
    ("log_offset", "i8", "offset", ""),
    ("sequence", "i8", "count", ""),
    ("sender", "i4", "client id", ""),
    ("partition", "i4", "partition id", ""),
    ("group", "i4", "group id", ""),
    ("span", "i4", "count", ""),
    partitioned=True,
)
TRANSACTIONS = table(
    "transactions",
    "One row per transaction of a client, and one per instance (one init_transactions) of a transactional.id.",
    ("transaction", "i8", "id", "number within the client; NONE = the row of an instance"),
    ("begun_ns", "i8", "ns", "begin_transaction; of an instance: before init_transactions was first called"),
    ("end_invoked_ns", "i8", "ns", "commit or abort invoked; MISSING: never"),
    ("completed_ns", "i8", "ns", "MISSING: never"),
    ("initialised_ns", "i8", "ns", "when this instance's init_transactions returned"),
    ("transactional_id", "i4", "client id", "of the first planned client that has this transactional.id"),
    ("ended_by", "i4", "1 commit, 2 abort", "invoked first (an abort may follow a commit); NONE: neither was invoked"),
    ("outcome", "i4", "Outcome", "of the end"),
    ("code", "i4", "KafkaError code", ""),
)
COMMITS = table(
    "commits",
    "One row per partition of an offset commit.",
    ("invoked_ns", "i8", "ns", ""),
    ("completed_ns", "i8", "ns", "MISSING: never"),
    ("log_offset", "i8", "offset", "the next to read"),
    ("position", "i8", "offset", "the member's own position then"),
    ("partition", "i4", "partition id", ""),
    ("group", "i4", "group id", ""),
    ("outcome", "i4", "Outcome", ""),
    ("code", "i4", "KafkaError code", ""),
    ("mode", "i4", "1 sync 2 async 3 auto 4 transaction", ""),
)
ASSIGNMENTS = table(
    "assignments",
    "One row per partition of an assignment callback; partition NONE = an empty callback.",
    ("started_ns", "i8", "ns", "callback began"),
    ("done_ns", "i8", "ns", "callback returned"),
    ("partition", "i4", "partition id", ""),
    ("group", "i4", "group id", ""),
    ("event", "i4", "1 assign 2 revoke 3 lost 4 close", ""),
    ("incremental", "i4", "0/1", ""),
)
POSITIONS = table(
    "positions",
    "Seeks, resets, pauses, and the position on assignment.",
    ("time_ns", "i8", "ns", ""),
    ("log_offset", "i8", "offset", "the new position"),
    ("partition", "i4", "partition id", ""),
    ("event", "i4", "1 assigned 2 seek 3 reset 4 pause 5 resume", ""),
    ("span", "i4", "count", "the span that begins here"),
)
OBSERVATIONS = table(
    "observations",
    "Offsets that somebody looked up, and who answered.",
    ("time_ns", "i8", "ns", ""),
    ("value", "i8", "offset", "what `kind` says"),
    ("partition", "i4", "partition id", ""),
    ("kind", "i4", "ObservationKind", ""),
    ("node", "i4", "node id", "who answered; NONE: not told"),
    ("leader_epoch", "i4", "epoch", "NONE: not told"),
    ("isolation", "i4", "Isolation", ""),
    ("step", "i4", "step number", "of the REPLICA_ kinds: of the `inspect` that read it; NONE = at the end"),
)
WITHHELD = table(
    "withheld",
    "Sends a producer did not attempt because the partition's cap of unacknowledged records was reached.",
    ("begun_ns", "i8", "ns", ""),
    ("ended_ns", "i8", "ns", "MISSING: still held back at the end"),
    ("count", "i8", "records", ""),
    ("partition", "i4", "partition id", ""),
)
