"""The guarantee table, part groups: what is promised of delivery, of committed offsets and of ownership in consumer groups.

Left out because nothing can bring them about yet: commits by assignment without a membership, offsets reset by an
administrator, share groups; KAFKA-20634 (a commit dropped while its partition changes leader), which no witness can be told
apart by.
"""

from harness.guarantees.rules import Effect, Guarantee, Rule, hard

KINDS = ("group",)
"""The workloads that have consumer groups."""
_DELIVERY = "Kafka documentation, design, 'Message Delivery Semantics'"
_KEPT = "more copies of __consumer_offsets in sync, or log.flush.interval.messages=1 of the brokers"
_SUBSCRIPTIONS = "KafkaConsumer, 'Consumer Groups and Topic Subscriptions'; KIP-429; KIP-848"


def _offsets_lost(anomaly: str) -> Rule:
    return Rule(
        id=f"{anomaly}/offsets-lost",
        when=("group state lost",),
        label="lost offsets of groups",
        reason="what groups had committed may have been destroyed, on every broker that kept it",
        change=_KEPT,
        source="Kafka documentation, design, 'Consumer Offset Tracking': offsets are records of a compacted topic",
    )


def _sought(anomaly: str) -> Rule:
    return Rule(
        id=f"{anomaly}/sought",
        when=("position was sought",),
        label="a seek by the application",
        reason="the application itself went to another position",
        change="no seek",
        source="KafkaConsumer, 'Controlling The Consumer's Position'",
    )


def _group_lost(rule: str, fact: str, did: str) -> Rule:
    return Rule(
        id=rule,
        when=(fact, "owner since before the loss", "commits of one alone"),
        label="a group that was lost",
        reason=f"the brokers {did} the group itself, and a member made it anew before the owner from before had been told; "
        "that one went on reading, and no commit of it was accepted",
        change=_KEPT,
        source="KIP-848: a member learns of its group with its next heartbeat; librdkafka#5488; seen: 0.4 s, after every "
        "broker had lost its power",
    )


_UNPROCESSED = Guarantee(
    anomaly="unprocessed",
    promise="What a group has committed past, it has processed.",
    found=("1 record was committed past and never processed", "{n} records were committed past and never processed"),
    did=("skipped 1 record", "skipped {n} records"),
    undone="would have delivered them again",
    absence=True,
    nothing="the group committed nothing",
    nothing_is_unknown=False,
    source=_DELIVERY,
    workloads=KINDS,
    rules=(
        Rule(
            id="unprocessed/commit-first",
            when=("commits first", "member was gone"),
            label="committing before processing",
            reason="a member committed records before it had processed them, and ended in between (at most once)",
            change="committing after processing (librdkafka: enable.auto.offset.store=false, stored after processing)",
            source=f"{_DELIVERY}: at most once; librdkafka INTRODUCTION.md, 'Consumer offset management': what is delivered "
            "is stored; seen: 150 of 2000",
        ),
        Rule(
            id="unprocessed/reset-to-latest",
            when=("resets to latest", "position was reset"),
            label="auto.offset.reset=latest",
            reason="a member without a committed offset (none yet, or of a partition that was just added), or with one whose "
            "records were deleted, began at the end",
            change="auto.offset.reset=earliest",
            source="Kafka documentation, consumer configuration auto.offset.reset; KAFKA-12261, KAFKA-12478 and KIP-1327: "
            "what comes between the creation of a partition and its discovery is skipped",
        ),
        Rule(
            id="unprocessed/left-behind",
            when=("hands on without waiting", "left behind"),
            label="a send to the retry topic that nobody waited for",
            reason="a member committed past a record that it had only queued for the retry topic, and ended, or gave up "
            "sending, before a broker had it",
            change="group.on_failure=retry-topic: waiting for the acknowledgement before the commit",
            source="KafkaProducer.send: 'asynchronous and will return immediately … once the record has been stored in the "
            "buffer of records waiting to be sent'",
        ),
        Rule(
            id="unprocessed/retry-unclean",
            when=("hands on", "a partition of the cell was elected unclean"),
            label="unclean elections",
            reason="an unclean election took what was handed on away from the retry topic",
            change="unclean.leader.election.enable=false",
            source="Kafka documentation, design, 'Unclean leader election: what if they all die?'",
        ),
        *hard("unprocessed", unclean="cutoff", wiped="wiped"),
    ),
)
_REPROCESSED = Guarantee(
    anomaly="reprocessed",
    promise="No record was processed twice.",
    found=("1 record was processed again", "records were processed again {n} times"),
    did=("processed 1 record again", "processed records again {n} times"),
    nothing="no record was processed",
    source=f"{_DELIVERY}: at least once repeats what was not committed, and only that",
    workloads=KINDS,
    rules=(
        Rule(
            id="reprocessed/uncommitted",
            when=("member was gone",),
            label="what was not yet committed",
            reason="the member that had processed them died or lost the partition before a commit of them was accepted (at "
            "least once)",
            change="a transaction of the effect and the commit",
            source=f"{_DELIVERY}: at least once; seen: 250 twice",
        ),
        _sought("reprocessed"),
        Rule(
            id="reprocessed/sent-again",
            when=("hands on", "sent again"),
            label="a send to the retry topic that was not acknowledged",
            reason="it was not acknowledged in time, and may have arrived all the same; the member sent the record again",
            change="a transaction of the send and the commit",
            source="KIP-91: after delivery.timeout.ms it is not known whether a record was written",
        ),
        Rule(
            id="reprocessed/duplicate",
            effect=Effect.NOT_APPLICABLE,
            when=("stands twice",),
            label="a duplicate in the log",
            reason="the record stands in the log twice, which `duplicate` judges",
            source="KIP-98",
        ),
        *hard("reprocessed", unclean="cutoff", wiped="wiped"),
        _offsets_lost("reprocessed"),
    ),
)
_COMMIT_REGRESSION = Guarantee(
    anomaly="commit-regression",
    promise="The committed offset of a group never falls.",
    found=("the committed offset fell once", "the committed offset fell {n} times"),
    did=("let the committed offset fall once", "let the committed offset fall {n} times"),
    nothing="no commit was accepted",
    nothing_is_unknown=False,
    source="Kafka documentation, design, 'Consumer Position'; KIP-848 and KIP-1251: commits of old generations and epochs "
    "are refused",
    workloads=KINDS,
    rules=(_sought("commit-regression"), _offsets_lost("commit-regression")),
)
_COMMIT_AHEAD = Guarantee(
    anomaly="commit-ahead",
    promise="No member committed beyond its own position.",
    found=("1 commit was beyond the member's own position", "{n} commits were beyond the members' own positions"),
    did=("committed beyond a position once", "committed beyond positions {n} times"),
    nothing="nothing was committed",
    nothing_is_unknown=False,
    source="KafkaConsumer.commitSync: 'the next message your application will consume'",
    workloads=KINDS,
)
_TWO_OWNERS = Guarantee(
    anomaly="two-owners",
    promise="No partition had two owners at once.",
    found=("a partition had two owners once", "partitions had two owners {n} times"),
    did=("gave a partition two owners once", "gave partitions two owners {n} times"),
    nothing="no member was assigned a partition",
    source=_SUBSCRIPTIONS,
    workloads=KINDS,
    rules=(
        Rule(
            id="two-owners/same-instance",
            when=("one instance id twice",),
            label="one group.instance.id used twice",
            reason="a second process with a static member's group.instance.id took over at once, and the first went on until "
            "its next heartbeat was answered FENCED_INSTANCE_ID",
            change="group.protocol=consumer, which refuses the second process (UNRELEASED_INSTANCE_ID)",
            source="KIP-345, 'Fencing'; KIP-848, 'Static Membership'",
        ),
        _group_lost("two-owners/group-lost", "group lost by every broker", "had lost"),
        Rule(
            id="two-owners/coordinator-out",
            when=("coordinator out", "commits of one alone"),
            label="a coordinator that was cut off",
            reason="a member's heartbeats went to a coordinator that was out, so its successor evicted it without its "
            "knowing; it went on reading, and no commit of it was accepted",
            change="nothing: commits, not reading, are what a group protects",
            source="KIP-848, 'Fencing': a member gives its partitions up once a coordinator answers FENCED_MEMBER_EPOCH, so "
            "not before it has reached one; seen: 1.6 s after the coordinator was connected again",
        ),
        _group_lost("two-owners/group-perhaps-lost", "group state lost", "may have lost"),
    ),
)
_ORPHANED = Guarantee(
    anomaly="orphaned",
    promise="After healing every partition found an owner.",
    found=("1 partition was left without an owner", "{n} partitions were left without an owner"),
    did=("left 1 partition without an owner", "left {n} partitions without an owner"),
    nothing="the members never drained",
    source=_SUBSCRIPTIONS,
    workloads=KINDS,
    rules=(
        Rule(
            id="orphaned/session",
            when=("within a session",),
            label="an unfinished session",
            reason="the last owner died, and its session was not over yet",
            change="a shorter session.timeout.ms",
            source="KIP-62, session.timeout.ms; KIP-345 for static members",
        ),
    ),
)
GROUPS = (_UNPROCESSED, _REPROCESSED, _COMMIT_REGRESSION, _COMMIT_AHEAD, _TWO_OWNERS, _ORPHANED)
"""In the order of reports."""
