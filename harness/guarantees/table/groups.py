"""The guarantees of consumer groups: delivery, committed offsets, and who owns a partition.

Left out because nothing can bring them about yet: commits by assignment without a membership, offsets reset by an
administrator, share groups; KAFKA-20634 (a commit dropped while its partition changes leader), which no witness can be known
apart by.
"""

from prozess.harness.guarantees.table.known_defects import DEFECTS
from prozess.harness.guarantees.table.rules import (
    Guarantee,
    Rule,
    RuleEffect,
    end_taken_for_a_record,
    hard,
    names_alone,
    several_topics,
    topic_deleted,
)

KINDS = ("group",)
"""The workloads that have consumer groups."""
_DELIVERY = "Kafka documentation, design, 'Message Delivery Semantics'"
_KEPT = "more in-sync replicas of __consumer_offsets, or log.flush.interval.messages=1 on the brokers"
_SUBSCRIPTIONS = "KafkaConsumer, 'Consumer Groups and Topic Subscriptions'; KIP-429; KIP-848"


def _offsets_lost(anomaly: str) -> Rule:
    return Rule(
        id=f"{anomaly}/offsets-lost",
        when=("group state lost",),
        label="lost committed offsets",
        reason="every broker that kept the groups' committed offsets may have lost them",
        change=_KEPT,
        source="Kafka documentation, design, 'Consumer Offset Tracking': offsets are records of a compacted topic",
    )


def _offsets_expired(anomaly: str) -> Rule:
    """Returns the rule for offsets that were forgotten. It permits nothing: when a group was without members is unknown."""
    return Rule(
        id=f"{anomaly}/offsets-expired",
        when=("offsets may have expired",),
        label="expired committed offsets",
        reason="the group may have been without members for so long that the brokers forgot its offsets, and it began anew "
        "where auto.offset.reset says",
        change="a longer offsets.retention.minutes",
        source="KIP-211: offsets of a group expire offsets.retention.minutes after its last member left",
    )


def _sought(anomaly: str) -> Rule:
    return Rule(
        id=f"{anomaly}/sought",
        when=("position was sought",),
        label="a seek by the application",
        reason="the application itself sought to another position",
        change="no seek",
        source="KafkaConsumer, 'Controlling The Consumer's Position'",
    )


def _troubled(anomaly: str) -> Rule:
    return Rule(
        id=f"{anomaly}/troubled",
        effect=RuleEffect.NOT_APPLICABLE,
        when=("group was troubled",),
        label="an unsettled cluster",
        reason="within the time that a session and a rebalance take there was a fault, a change of the leader of the "
        "partition or of a coordinator, or a replica out of sync",
        source="The definition: after healing. A coordinator that could not hear a member evicts it after its session "
        "(KIP-62, KIP-848), and who takes over loads its groups first",
    )


def _group_lost(rule: str, fact: str, did: str) -> Rule:
    return Rule(
        id=rule,
        when=(fact, "owner since before the loss", "commits of one alone"),
        label="a group that was lost",
        reason=f"the brokers {did} the group itself, and a member created it again before the earlier owner had learnt of "
        "it; the earlier owner went on reading, but none of its commits was accepted",
        change=_KEPT,
        source="KIP-848: a member learns of its group with its next heartbeat; librdkafka#5488; seen: 0.4 s, after every "
        "broker had lost its power",
    )


def _committed_by_name(anomaly: str, what: str) -> Rule:
    """`what`: what came of it."""
    return Rule(
        id=f"{anomaly}/committed-by-name",
        when=("commits by name", "committed for the topic before"),
        label="a deleted topic",
        reason="a member was committing for the topic of that name before this one, and the broker that was asked "
        f"knew this one already: its offset counts here, and {what}",
        change="not making a topic again under its name while members of its groups live, or a client that commits by "
        "ids of topics (Kafka's Java client from 4.2 on, and brokers from 4.2 on)",
        source="KAFKA-14690: OffsetCommit has ids of topics since version 10; up to 9 it has names, and the broker "
        "takes the topic that has the name when the request comes. librdkafka 2.16 sends at most version 9. KAFKA-19154: "
        "from OffsetFetch version 10 on an offset of another id is not given. Seen: 1,616 of 6,400",
    )


_UNPROCESSED = Guarantee(
    anomaly="unprocessed",
    meaning="A group committed an offset past a record that no member ever processed, or processed another one in its place.",
    promise="A group has processed every record below its committed offset.",
    found=(
        "1 record was never processed although the group committed past it",
        "{n} records were never processed although the group committed past them",
    ),
    undone="would have delivered them again",
    absence=True,
    nothing="the group committed nothing",
    nothing_is_unknown=False,
    source=_DELIVERY,
    workloads=KINDS,
    rules=(
        several_topics("unprocessed"),
        Rule(
            id="unprocessed/commit-first",
            when=("commits first", "member was gone"),
            label="committing before processing",
            reason="a member committed offsets before it had processed the records, and ended in between (at most "
            "once)",
            change="committing after processing (librdkafka: enable.auto.offset.store=false, stored after processing)",
            source=f"{_DELIVERY}: at most once; librdkafka INTRODUCTION.md, 'Consumer offset management': what is delivered "
            "is stored; seen: 150 of 2000",
        ),
        Rule(
            id="unprocessed/reset-to-latest",
            when=("resets to latest", "position was reset"),
            label="auto.offset.reset=latest",
            reason="a member began at the end of the log, because it had no committed offset (none yet, or the partition "
            "was just added) or the records at that offset were deleted",
            change="auto.offset.reset=earliest",
            source="Kafka documentation, consumer configuration auto.offset.reset; KAFKA-12261, KAFKA-12478 and KIP-1327: "
            "what comes between the creation of a partition and its discovery is skipped",
        ),
        _committed_by_name("unprocessed", "the group went on from there"),
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
            reason="an unclean election removed from the retry topic what the group had sent there",
            change="unclean.leader.election.enable=false",
            source="Kafka documentation, design, 'Unclean leader election: what if they all die?'",
        ),
        *hard("unprocessed", unclean="cutoff", wiped="wiped"),
        Rule(
            id="unprocessed/replaced",
            when=("unclean after the step",),
            label="unclean elections",
            reason="a member processed what another leader had at this offset, and an unclean election put another record "
            "there",
            change="unclean.leader.election.enable=false",
            source="Kafka documentation, design, 'Unclean leader election: what if they all die?'; KIP-101; seen: a deposed "
            "leader led again, with 4 records that it alone had had",
        ),
        end_taken_for_a_record("unprocessed"),
        Rule(
            id="unprocessed/KAFKA-18641",
            effect=RuleEffect.DEFECT,
            when=("commits while it collects", "was given to nobody, or its member was gone"),
            perhaps=("commits while it collects", "was given to nobody, or its member was gone"),
            label="KAFKA-18641",
            reason="the thread that commits takes the positions while poll() moves them, so a member that dies has "
            "committed records that its application was never given, or had not processed",
            source="KAFKA-18641; CommitRequestManager.updateTimerAndMaybeCommit and AsyncKafkaConsumer.poll of 4.1.2 and "
            "4.2.2",
            defect=DEFECTS["KAFKA-18641"].description,
        ),
    ),
)
_REPROCESSED = Guarantee(
    anomaly="reprocessed",
    meaning="A group processed a record more than once.",
    promise="No record is processed twice.",
    found=("1 record was processed again", "{n} times a record was processed again"),
    nothing="no record was processed",
    source=f"{_DELIVERY}: at least once repeats what was not committed, and only that",
    workloads=KINDS,
    rules=(
        topic_deleted("reprocessed", "topic made anew since the other"),
        Rule(
            id="reprocessed/uncommitted",
            when=("member was gone",),
            label="processed, but not yet committed",
            reason="the member that had processed them died or lost the partition before their offsets were committed "
            "(at least once)",
            change="one transaction for the effect and the commit",
            source=f"{_DELIVERY}: at least once; seen: 250 twice",
        ),
        _sought("reprocessed"),
        Rule(
            id="reprocessed/sent-again",
            when=("hands on", "sent again"),
            label="a send to the retry topic that was not acknowledged",
            reason="the first send was not acknowledged in time but may have arrived, and the member sent the record again",
            change="one transaction for the send and the commit",
            source="KIP-91: after delivery.timeout.ms it is not known whether a record was written",
        ),
        Rule(
            id="reprocessed/duplicate",
            effect=RuleEffect.NOT_APPLICABLE,
            when=("stands twice",),
            label="a duplicate in the log",
            reason="the record is in the log twice, and `duplicate` judges that",
            source="KIP-98",
        ),
        *hard("reprocessed", unclean="unclean since the other", wiped="wiped since the other"),
        _offsets_lost("reprocessed"),
        _offsets_expired("reprocessed"),
    ),
)
_COMMIT_REGRESSION = Guarantee(
    anomaly="commit-regression",
    meaning="The committed offset of a group went back.",
    promise="The committed offset of a group never goes back.",
    found=("1 time the committed offset of a group went back", "{n} times the committed offset of a group went back"),
    nothing="no commit was accepted",
    nothing_is_unknown=False,
    source="Kafka documentation, design, 'Consumer Position'; KIP-848 and KIP-1251: commits of old generations and epochs "
    "are refused",
    workloads=KINDS,
    rules=(
        _committed_by_name("commit-regression", "the next commits are lower"),
        topic_deleted("commit-regression", "topic made anew since the other"),
        _sought("commit-regression"),
        *hard("commit-regression", unclean="unclean since the other", wiped="wiped since the other"),
        _offsets_lost("commit-regression"),
        _offsets_expired("commit-regression"),
    ),
)
_COMMIT_AHEAD = Guarantee(
    anomaly="commit-ahead",
    meaning="A group member committed an offset beyond its own position.",
    promise="No member commits an offset beyond its own position.",
    found=("1 commit was beyond the member's own position", "{n} commits were beyond the members' own positions"),
    nothing="nothing was committed",
    nothing_is_unknown=False,
    source="KafkaConsumer.commitSync: 'the next message your application will consume'",
    workloads=KINDS,
    rules=(end_taken_for_a_record("commit-ahead", "one beyond"),),
)
_TWO_OWNERS = Guarantee(
    anomaly="two-owners",
    meaning="Two members of a group owned one partition at the same time.",
    promise="No partition has two owners at the same time.",
    found=(
        "1 time a partition had two owners at the same time",
        "{n} times a partition had two owners at the same time",
    ),
    nothing="no member was assigned a partition",
    source=_SUBSCRIPTIONS,
    workloads=KINDS,
    rules=(
        Rule(
            id="two-owners/same-instance",
            when=("one instance id twice",),
            label="one group.instance.id used twice",
            reason="a second process with a static member's group.instance.id took over at once, and the first one went "
            "on until its next heartbeat returned FENCED_INSTANCE_ID",
            change="group.protocol=consumer, which refuses the second process (UNRELEASED_INSTANCE_ID),",
            source="KIP-345, 'Fencing'; KIP-848, 'Static Membership'",
        ),
        _group_lost("two-owners/group-lost", "group lost by every broker", "had lost"),
        Rule(
            id="two-owners/coordinator-out",
            when=("coordinator out", "commits of one alone"),
            label="a coordinator that was out of reach",
            reason="a member's heartbeats went to a coordinator that was dead, frozen or cut off, so the next "
            "coordinator evicted "
            "the member without its knowing; the member went on reading, but none of its commits was accepted",
            change="no setting (a group protects commits, not reading)",
            source="KIP-848, 'Fencing': a member gives its partitions up once a coordinator answers FENCED_MEMBER_EPOCH, so "
            "not before it has reached one; seen: 1.6 s after the coordinator was connected again",
        ),
        _group_lost("two-owners/group-perhaps-lost", "group state lost", "may have lost"),
    ),
)
_ORPHANED = Guarantee(
    anomaly="orphaned",
    meaning="A partition of a subscribed topic had no owner after the faults had been healed.",
    promise="After the faults are healed, every partition has an owner.",
    found=("1 partition was left without an owner", "{n} partitions were left without an owner"),
    nothing="the members never came to the end of their partitions",
    source=_SUBSCRIPTIONS,
    workloads=KINDS,
    rules=(
        Rule(
            id="orphaned/session",
            when=("within a session",),
            label="a session that had not timed out",
            reason="the last owner died, and its session had not timed out yet",
            change="a shorter session.timeout.ms",
            source="KIP-62, session.timeout.ms; KIP-345 for static members",
        ),
        Rule(
            id="orphaned/waited-for",
            when=("a gone member may be waited for",),
            label="a member that was gone, whose session had not timed out",
            reason="a member had gone without a word, its session had not timed out yet, and a rebalance waits for it until "
            "then: nobody is assigned anything before",
            change="a shorter session.timeout.ms, or group.protocol=consumer",
            source="KIP-62, session.timeout.ms; KIP-345 for static members; KIP-134: a coordinator completes a join when all "
            "members have joined again. KIP-848 has no such barrier",
        ),
        Rule(
            id="orphaned/rejoined",
            when=("an old id may be waited for",),
            label="an old member id whose session had not timed out",
            reason="the members had lost their partitions, and less than a session later the coordinator may still wait for "
            "their old ids: a client that heard nothing for a session gives its id up, and a coordinator that loads the "
            "group gives each id that it finds there a new session",
            change="a shorter session.timeout.ms",
            source="KIP-62, session.timeout.ms; KIP-394: a member that joins without an id gets a new one; "
            "GroupMetadataManager, loading a classic group schedules its members' heartbeats anew",
        ),
        names_alone("orphaned"),
        Rule(
            id="orphaned/KAFKA-13488",
            effect=RuleEffect.DEFECT,
            when=("topic ids are forgotten", "led elsewhere below the epochs before"),
            perhaps=("topic ids are forgotten", "led elsewhere below the epochs before"),
            label="KAFKA-13488",
            reason="the topic was made again under its name, and its leader epochs began at 0 again: members that saw it "
            "missing refuse the metadata of its partitions, and whoever assigns partitions knows none",
            source="KAFKA-13488; Metadata.updateLatestMetadata of 3.0.0 and 3.0.1",
            defect=DEFECTS["KAFKA-13488"].description,
        ),
    ),
)
_UNSTABLE = Guarantee(
    anomaly="unstable",
    meaning="A group kept moving a partition, or left it without an owner, although no member joined or left.",
    promise="Once no member comes or goes, and each partition that was added has had an owner, each partition of a group has "
    "an owner, and keeps it.",
    found=(
        "1 time a partition changed its owner or had none, long after the last member had come or gone",
        "{n} times a partition changed its owner or had none, long after the last member had come or gone",
    ),
    nothing="at no time did the members of the group stay the same for long enough",
    nothing_is_unknown=False,
    source=f"{_SUBSCRIPTIONS}: partitions move when a member fails or joins, or when the topics change",
    workloads=KINDS,
    rules=(
        several_topics("unstable"),
        _troubled("unstable"),
    ),
)
_STARVED = Guarantee(
    anomaly="starved",
    meaning="A member had no partition for long, while another one had two or more partitions of one topic.",
    promise="Once no member comes or goes, a group shares each topic among its members: no member is without a partition "
    "while another member has two or more of one topic to which both subscribe.",
    found=(
        "1 time a member had no partition beside one that had several, long after the last member had come or gone",
        "{n} times a member had no partition beside one that had several, long after the last member had come or gone",
    ),
    nothing="at no time did two members of the group stay the same for long enough",
    nothing_is_unknown=False,
    source="Of one topic, members that subscribe alike get numbers of partitions that differ by one at most: RangeAssignor; "
    "RoundRobinAssignor ('within a delta of exactly one'); StickyAssignor and CooperativeStickyAssignor ('as balanced as "
    "possible', before rebalances are spared); UniformAssignor ('Balance > Stickiness') and the RangeAssignor of group "
    "coordinators (KIP-848). Racks never outweigh it (KIP-881)",
    workloads=KINDS,
    rules=(
        Rule(
            id="starved/other-assignor",
            effect=RuleEffect.NOT_APPLICABLE,
            when=("an assignor of somebody else",),
            label="an assignor of your own",
            reason="the group's partitions are shared out by an assignor that is none of Kafka's own",
            source="ConsumerPartitionAssignor, which an application may write; KIP-848, group.consumer.assignors",
        ),
        several_topics("starved"),
        _troubled("starved"),
    ),
)
GROUPS = (_UNPROCESSED, _REPROCESSED, _COMMIT_REGRESSION, _COMMIT_AHEAD, _TWO_OWNERS, _ORPHANED, _UNSTABLE, _STARVED)
"""These guarantees, in the order in which reports list them."""
