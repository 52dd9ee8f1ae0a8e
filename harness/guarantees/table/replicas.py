"""The guarantees of replicas, leaders and controllers: equal copies, watermarks, epochs, minimums and elections."""

from dataclasses import replace

from prozess.harness.config.configuration import TIERED
from prozess.harness.guarantees.table.known_defects import DEFECTS
from prozess.harness.guarantees.table.rules import (
    HW_SOURCE,
    Guarantee,
    Rule,
    RuleEffect,
    hard,
    older_epoch_appended,
    several_topics,
    topic_deleted,
)

_DIVERGED = Guarantee(
    anomaly="diverged",
    meaning="Two replicas hold different batches below the high watermark.",
    promise="All in-sync replicas of a partition hold the same batches, below the high watermark.",
    found=(
        "1 difference between two replicas, below the high watermark",
        "{n} differences between replicas, below the high watermark",
    ),
    nothing="no batch of two replicas was compared",
    # Topics with a single replica.
    nothing_is_unknown=False,
    source="Kafka documentation, design, 'Replicated logs'; KIP-101, KIP-279: followers truncate by leader epoch, after "
    "unclean elections too; of compacted topics whatever the cleaner left (MemoryRecords.filterTo)",
    rules=(
        Rule(
            id="diverged/out-of-sync",
            effect=RuleEffect.NOT_APPLICABLE,
            when=("out of sync at the end",),
            label="a replica out of sync",
            reason="one of the two replicas was not in the ISR at the end: it was down or cut off, or had not caught up yet",
            source="Kafka documentation, design, 'Replicated logs': only in-sync replicas are complete",
        ),
        older_epoch_appended("diverged"),
    ),
)
_SNAPSHOT_CONFLICT = Guarantee(
    anomaly="snapshot-conflict",
    meaning="A broker's producer snapshot contradicts the log of the same replica.",
    promise="A broker's producer snapshot agrees with the log of the same replica.",
    found=(
        "1 entry of a producer snapshot contradicts the batches below it in the same replica",
        "{n} entries of producer snapshots contradict the batches below them in the same replica",
    ),
    nothing="no replica had a snapshot with a producer in it",
    # Compacted topics, topics without idempotent producers, and logs whose segments were never rolled.
    nothing_is_unknown=False,
    source="KIP-98, 'Producer ID mapping': what a broker knows of producers is found again from its log, beginning with the "
    "last snapshot; ProducerStateManager.takeSnapshot",
    rules=(
        Rule(
            id="snapshot-conflict/expired",
            effect=RuleEffect.NOT_APPLICABLE,
            when=("may have expired",),
            label="expired producer ids",
            reason="the producer id may have expired, and then the broker is right to forget it "
            "(producer.id.expiration.ms)",
            source="KIP-854; ProducerStateManager.removeExpiredProducers",
        ),
    ),
)
_OUT_OF_SEQUENCE = Guarantee(
    anomaly="out-of-sequence",
    meaning="The sequence numbers of an idempotent producer do not go on from one of its batches in the log to the next.",
    promise="The batches of an idempotent producer are in the log in the order of their sequence numbers, without a gap.",
    found=(
        "1 batch does not go on where the one before it of its producer ends",
        "{n} batches do not go on where the ones before them of their producers end",
    ),
    nothing="no producer with a producer id has two batches in the log",
    # Compacted topics, and topics without idempotent producers.
    nothing_is_unknown=False,
    source="KIP-98, 'Idempotent Producer Guarantees': a broker takes a batch only if its sequence number is the next one; "
    "KIP-360: under a newer epoch they begin at 0; ProducerAppendInfo.checkSequence",
    rules=(
        Rule(
            id="out-of-sequence/expired",
            effect=RuleEffect.NOT_APPLICABLE,
            when=("forgot",),
            label="expired producer ids",
            reason="the broker may have forgotten the producer in between (producer.id.expiration.ms), and takes any number "
            "of a producer that it does not know",
            source="KIP-854; ProducerStateManager.removeExpiredProducers",
        ),
    ),
)


def _elected_unclean(anomaly: str) -> Rule:
    """Returns the rule for unclean elections, after which the remote store may have what the new leader never had."""
    return Rule(
        id=f"{anomaly}/unclean",
        when=("a partition of the cell was elected unclean",),
        label="unclean elections",
        reason="an unclean election made a replica leader that did not have all records, and the remote store had been given "
        "segments by the leader before it",
        change="unclean.leader.election.enable=false",
        source="KIP-405, 'Unclean leader election': remote segments of leader epochs that the new leader never had are no "
        "part of its log any more",
    )


_REMOTE_GAP = Guarantee(
    anomaly="remote-gap",
    meaning="With tiered storage, some offsets are neither in a broker's own log nor whole in the remote store.",
    promise="With tiered storage, a broker deletes a segment of its own only once the remote store has all of it, and keeps "
    "it there until retention lets it go.",
    found=(
        "1 stretch of offsets is neither in a broker's own log nor whole in the remote store",
        "{n} stretches of offsets are neither in a broker's own log nor whole in the remote store",
    ),
    undone="would have kept them",
    nothing="no broker had deleted a segment of its own",
    nothing_is_unknown=False,
    source="KIP-405: a local segment is eligible for deletion only if it was copied to remote storage; UnifiedLog, "
    "deletableSegments: up to the highest offset in remote storage",
    workloads=(TIERED,),
    rules=(
        Rule(
            id="remote-gap/retention",
            effect=RuleEffect.NOT_APPLICABLE,
            when=("retention is limited", "taken"),
            label="retention",
            reason="retention took the segment, and the log start may have passed it after the audit had asked for it",
            source="Kafka documentation, topic configurations retention.ms and retention.bytes; KIP-405: they count "
            "the records of both tiers",
        ),
        _elected_unclean("remote-gap"),
    ),
)
_REMOTE_CONFLICT = Guarantee(
    anomaly="remote-conflict",
    meaning="With tiered storage, two different batches have one offset, or a leader epoch falls, in the remote store or "
    "between it and a broker's own log.",
    promise="With tiered storage, the remote store and each broker's own log have the same batches where both have any, and "
    "leader epochs rise from one to the other.",
    found=(
        "1 batch in the remote store and one beside it cannot both be in one log",
        "{n} batches in the remote store and ones beside them cannot both be in one log",
    ),
    undone="would have kept them apart",
    nothing="no batch was in the remote store",
    nothing_is_unknown=False,
    source="KIP-405: what is copied is a segment below the last stable offset, as it is; KIP-101: leader epochs only rise",
    workloads=(TIERED,),
    rules=(_elected_unclean("remote-conflict"), older_epoch_appended("remote-conflict")),
)
_REMOTE_LEFT = Guarantee(
    anomaly="remote-left",
    meaning="With tiered storage, what retention has taken, or what a deleted topic had, is still in the remote store.",
    promise="With tiered storage, a segment that the log start has passed goes from the remote store, and so do all "
    "segments of a topic that is deleted.",
    found=(
        "1 object is still in the remote store that should be gone",
        "{n} objects are still in the remote store that should be gone",
    ),
    undone="would have deleted them",
    nothing="nothing that was in the remote store was let go for long enough",
    nothing_is_unknown=False,
    source="KIP-405: the leader deletes remote segments that retention lets go, and those of a topic that is deleted; "
    "RemoteLogManager.RLMExpirationTask, every remote.log.manager.task.interval.ms; RemoteLogManager.stopPartitions",
    workloads=(TIERED,),
    rules=(
        Rule(
            id="remote-left/fault",
            effect=RuleEffect.NOT_APPLICABLE,
            when=("fault since it was let go",),
            label="a fault since it was let go",
            reason="a fault was active since it was let go: it may have kept the leader from deleting it, which is asked for "
            "once of a topic; or it put an object back that it had taken out of the store",
            source="RemoteLogManager.stopPartitions, deleteRemoteLogPartition: a failure is logged, and nobody asks again",
        ),
    ),
)
_UNCOPIED = Guarantee(
    anomaly="uncopied",
    meaning="With tiered storage, a segment was full for long, and was not copied to the remote store.",
    promise="With tiered storage, a segment that is full is copied to the remote store, after a failure too.",
    found=(
        "1 partition has a full segment that was not copied",
        "{n} partitions have full segments that were not copied",
    ),
    undone="would have copied them",
    nothing="no segment was full for long enough",
    nothing_is_unknown=False,
    source="KIP-405: the leader copies each segment that is not active and ends below the last stable offset; "
    "RemoteLogManager.RLMCopyTask, every remote.log.manager.task.interval.ms",
    workloads=(TIERED,),
    rules=(
        Rule(
            id="uncopied/unsettled",
            effect=RuleEffect.NOT_APPLICABLE,
            when=("held up",),
            label="an unsettled cluster",
            reason="since it was full no stretch that was long enough was free of faults, changes of leader and replicas out "
            "of sync",
            source="The definition: after healing. KIP-405: a new leader begins by reading __remote_log_metadata",
        ),
    ),
)
REPLICAS = (
    *(_DIVERGED, _REMOTE_GAP, _REMOTE_CONFLICT, _REMOTE_LEFT, _UNCOPIED),
    *(_SNAPSHOT_CONFLICT, _OUT_OF_SEQUENCE),
)
"""These guarantees, in the order in which reports list them."""


# Cluster: what leaders and controllers promise of time, watermarks, epochs and minimums.


_SENT = "sent before it was read"
"""Whatever becomes of a log, nobody can be given what is not sent yet."""


def _if(fact: str, rule: Rule) -> Rule:
    """Returns the rule for those witnesses alone of which this fact holds, too."""
    return replace(rule, when=(*rule.when, fact), perhaps=(*rule.perhaps, fact) if rule.perhaps else ())


_TIME_TRAVEL = Guarantee(
    anomaly="time-travel",
    meaning="A record was read before it was sent, or is in the log before one that had already been acknowledged or read "
    "when it was sent.",
    promise="A record that was acknowledged or read is in the log before every record that was sent afterwards, and "
    "nothing is read before it is sent.",
    found=(
        "1 record was acknowledged or read before one that stands in front of it was sent, or read before it was sent",
        "{n} records were acknowledged or read before one that stands in front of them was sent, or read before they were "
        "sent",
    ),
    undone="would have kept the order",
    nothing="no record was acknowledged by a broker, or read",
    nothing_is_unknown=False,
    source="Kafka documentation, design, 'Replicated logs': a leader appends at the end; every copy of a send is appended "
    "after its invocation, retries included; 'Only committed messages are ever given out to the consumer'",
    rules=(
        _if(_SENT, topic_deleted("time-travel")),
        Rule(
            id="time-travel/acks-0",
            when=("acks=0", "still unreplicated"),
            label="acks=0",
            reason="a producer with acks=0 waits for no reply, and the record's place in the log was truncated",
            change="acks=all",
            source="Kafka documentation, producer configuration acks",
        ),
        Rule(
            id="time-travel/acks-1",
            when=("acks=1", "still unreplicated"),
            label="acks=1",
            reason="a producer with acks=1 waits for the leader only, and the record's place in the leader's log was "
            "truncated",
            change="acks=all",
            source="Kafka documentation, producer configuration acks; KAFKA-20554",
        ),
        *(_if(_SENT, rule) for rule in hard("time-travel", unclean="cutoff", wiped="wiped")),
        older_epoch_appended("time-travel"),
    ),
)
_WATERMARK_REGRESSION = Guarantee(
    anomaly="watermark-regression",
    meaning="A leader answered with a lower high watermark than before.",
    promise="The high watermark that leaders report never goes back.",
    found=(
        "1 answer had a lower high watermark than an earlier one",
        "{n} answers had a lower high watermark than an earlier one",
    ),
    nothing="no leader was asked for its high watermark",
    nothing_is_unknown=False,
    source=f"KIP-207: a new leader answers only when its high watermark has reached its epoch; {HW_SOURCE}",
    rules=hard("watermark-regression", unclean="unclean between the answers", wiped="wiped after the read"),
)


_LOG_START_REGRESSION = Guarantee(
    anomaly="log-start-regression",
    meaning="A leader answered that its log begins before what had been deleted from it.",
    promise="What DeleteRecords has deleted does not come back, and no leader's log start goes back.",
    found=(
        "1 answer had a log start before what had been deleted",
        "{n} answers had a log start before what had been deleted",
    ),
    nothing="no leader was asked where its log begins",
    nothing_is_unknown=False,
    source="KIP-107: DeleteRecords is answered once every replica that is alive has moved its log start, and a follower "
    "takes over that of its leader with each fetch",
    rules=hard("log-start-regression", unclean="unclean between the answers", wiped="wiped after the read"),
)
_EXPIRED_EARLY = Guarantee(
    anomaly="expired-early",
    meaning="Retention removed a record that was younger than retention.ms, from a log that was not larger than "
    "retention.bytes.",
    promise="Retention removes a record only when it is older than retention.ms, or the log is larger than retention.bytes.",
    found=("1 record was removed before its time", "{n} records were removed before their time"),
    undone="would have kept them",
    nothing="retention removed nothing",
    nothing_is_unknown=False,
    source="Kafka documentation, topic configuration retention.ms and retention.bytes; UnifiedLog.deleteOldSegments: a "
    "segment goes when its greatest timestamp is older, or while the log is larger by more than it",
    rules=(
        Rule(
            id="expired-early/clock-moved",
            effect=RuleEffect.NOT_APPLICABLE,
            when=("a clock may have been ahead",),
            label="a moved clock",
            reason="a broker whose wall clock was moved may have taken records for older than they were",
            source="UnifiedLog.deleteRetentionMsBreachedSegments: by the broker's wall clock",
        ),
        Rule(
            id="expired-early/store-forgotten",
            when=("tiered storage", "wiped"),
            label="a remote store that nobody knows any more",
            reason="which segments are in the remote store stands in the topic __remote_log_metadata alone: where its "
            "replicas lost what was not on their disks yet, nobody knows of segments that brokers have already deleted",
            change="a replica that keeps its power, or log.flush.interval.messages=1 for that topic, too",
            source="KIP-405: RemoteLogMetadataManager, by a topic with 3 replicas; seen with 3.9.2 and 4.4.0: 420 to 878 "
            "records of 24 topics, whose objects are all in the store",
        ),
    ),
)


_UNDELETED = Guarantee(
    anomaly="undeleted",
    meaning="A topic that was deleted came back in the controllers' log, or a log of it stayed on a broker's disk.",
    promise="A topic that was deleted stays deleted, and its logs go from every disk.",
    found=("1 trace of a topic was there after its deletion", "{n} traces of topics were there after their deletion"),
    nothing="no topic was deleted",
    nothing_is_unknown=False,
    source="KIP-516: logs whose topic id is gone are removed; LogManager.deleteLogs: after log.segment.delete.delay.ms",
    rules=(
        Rule(
            id="undeleted/broker-out",
            effect=RuleEffect.NOT_APPLICABLE,
            when=("that broker may have been out",),
            label="a broker that was out",
            reason="a fault stopped, froze or cut off the broker after the deletion, so it may have learned of it late",
            source="BrokerMetadataPublisher: a broker removes logs when it is up and has applied the deletion",
        ),
    ),
)


_MISTIMED = Guarantee(
    anomaly="mistimed",
    meaning="A look-up by time gave another record than the first one that is not before that time.",
    promise="A look-up by time gives the first record whose timestamp is not before the time asked for.",
    found=(
        "1 look-up by time gave another record than the first one since then",
        "{n} look-ups by time gave another record than the first one since then",
    ),
    nothing="nobody asked leaders for the first record since a time (`time_lookups`)",
    nothing_is_unknown=False,
    source="KafkaConsumer.offsetsForTimes: the earliest offset whose timestamp is not less than the given one; KIP-79",
    rules=(
        several_topics("mistimed"),
        *hard("mistimed", unclean="unclean before", wiped="wiped before"),
    ),
)


_EPOCH_REGRESSION = Guarantee(
    anomaly="epoch-regression",
    meaning="A leader epoch fell: in a broker's answers, along a replica's log, or along the records that a reader got.",
    promise="The leader epoch of a partition never goes back, neither in what a broker reports nor along the log.",
    found=("1 time a leader epoch went back", "{n} times a leader epoch went back"),
    nothing="no broker was asked for leader epochs, and no log or read has any",
    nothing_is_unknown=False,
    source="KIP-101, KIP-279: leader epochs only rise, and a follower cuts its log to that of its leader before it appends; "
    "KIP-500: a broker applies the controllers' log in its order",
    rules=(
        topic_deleted("epoch-regression", "topic made anew in between"),
        *(
            _if("found by a consumer", rule)
            for rule in hard("epoch-regression", unclean="unclean before", wiped="wiped before")
        ),
        _if("found along the log", older_epoch_appended("epoch-regression")),
    ),
)
_UNDER_ACKNOWLEDGED = Guarantee(
    anomaly="under-acknowledged",
    meaning="A send with acks=all was acknowledged while fewer replicas than min.insync.replicas were in sync.",
    promise="A send with acks=all is acknowledged only while at least min.insync.replicas are in sync.",
    found=(
        "1 send was acknowledged while fewer replicas were in sync than min.insync.replicas",
        "{n} sends were acknowledged while fewer replicas were in sync than min.insync.replicas",
    ),
    nothing="nothing was acknowledged with acks=all",
    nothing_is_unknown=False,
    source="Kafka documentation, topic configuration min.insync.replicas; Partition.checkEnoughReplicasReachOffset",
    rules=(
        Rule(
            id="under-acknowledged/leader-not-reported",
            effect=RuleEffect.NOT_APPLICABLE,
            when=("leader was hampered",),
            label="a leader out of reach",
            reason="the leader was cut off, frozen or fenced, so it could not know yet that the controllers had "
            "taken replicas out of the ISR, and it still waited for them",
            source="Partition.checkEnoughReplicasReachOffset: the leader's own view of the ISR decides; KIP-497",
        ),
    ),
)
_UNCLEAN = Guarantee(
    anomaly="unclean",
    meaning="A replica became leader that was neither in sync (ISR) nor eligible (ELR).",
    promise="Only a replica that is in sync (ISR) or eligible (ELR) becomes leader.",
    found=(
        "1 leader was neither in sync (ISR) nor eligible (ELR) when it was elected",
        "{n} leaders were neither in sync (ISR) nor eligible (ELR) when they were elected",
    ),
    nothing="the controllers' log names no leader",
    source="KIP-966; Kafka documentation, design, 'Unclean leader election: what if they all die?'",
    rules=(
        Rule(
            id="unclean/enabled",
            when=("unclean enabled", "that election was unclean"),
            label="unclean.leader.election.enable=true",
            reason="with unclean.leader.election.enable=true Kafka prefers a leader that lacks records to no leader",
            change="unclean.leader.election.enable=false",
            source="Kafka documentation, topic configuration unclean.leader.election.enable; ReplicationControlManager: with "
            "it even a complete leader is passed over when it registers again after a kill; seen: 100 of 600 kept",
        ),
        Rule(
            id="unclean/asked",
            when=("unclean election asked for",),
            label="an UNCLEAN election",
            reason="somebody asked for an unclean election (kafka-leader-election --election-type UNCLEAN)",
            change="waiting for a replica in sync",
            source="KIP-460",
        ),
    ),
)
CLUSTER = (
    *(_TIME_TRAVEL, _WATERMARK_REGRESSION, _LOG_START_REGRESSION, _EXPIRED_EARLY, _UNDELETED, _MISTIMED),
    _EPOCH_REGRESSION,
    *(_UNDER_ACKNOWLEDGED, _UNCLEAN),
)
"""These guarantees, in the order in which reports list them."""
_TWO_CONTROLLERS = Guarantee(
    anomaly="two-controllers",
    meaning="Two nodes were the active controller in the same epoch.",
    promise="No controller epoch has two active controllers.",
    found=(
        "1 time two nodes were the active controller in the same epoch",
        "{n} times two nodes were the active controller in the same epoch",
    ),
    nothing="no active controller was seen",
    nothing_is_unknown=False,
    source="KIP-595: at most one leader of the metadata quorum per epoch; a deposed one that believes for a while is normal",
)
_STALE_CONTROLLER = Guarantee(
    anomaly="stale-controller",
    meaning="A controller went on as the active one long after another one had replaced it.",
    promise="An active controller that another one has replaced gives way, within 1.5 times "
    "controller.quorum.fetch.timeout.ms.",
    found=(
        "1 controller went on as the active one long after another one had replaced it",
        "{n} times a controller went on as the active one long after another one had replaced it",
    ),
    nothing="no active controller was replaced",
    nothing_is_unknown=False,
    source="KIP-595, 'Leader Progress Timeout': a leader from which no majority fetches resigns",
    rules=(
        Rule(
            id="stale-controller/fetch-timeout",
            effect=RuleEffect.NOT_APPLICABLE,
            when=("within the quorum's fetch timeout",),
            label="a fetch timeout that had not passed",
            reason="1.5 times controller.quorum.fetch.timeout.ms had not passed yet",
            source="KAFKA-15489; Kafka documentation, broker configuration controller.quorum.fetch.timeout.ms",
        ),
        Rule(
            id="stale-controller/KAFKA-15489",
            effect=RuleEffect.DEFECT,
            when=("brokers to 3.6", "controller was cut off"),
            perhaps=("brokers to 3.6", "controller was cut off"),
            label="KAFKA-15489",
            reason="a controller that is cut off from the others does not ask itself whether a majority still fetches from "
            "it, and brokers that reach it alone go by what it says",
            source="KAFKA-15489; KIP-595, 'Leader Progress Timeout'",
            defect=DEFECTS["KAFKA-15489"].description,
        ),
    ),
)
_LEADERLESS = Guarantee(
    anomaly="leaderless",
    meaning="A partition had no leader within reach, although another replica could have led it.",
    promise="Once the leader of a partition is out of reach, another replica in sync leads it, within the time that sessions "
    "and elections of controllers take.",
    found=(
        "1 time a partition had no leader within reach, although another replica could have led it",
        "{n} times a partition had no leader within reach, although another replica could have led it",
    ),
    nothing="the controllers' log names no leader",
    nothing_is_unknown=False,
    source="Kafka documentation, design, 'Replicated logs': if the leader fails, another in-sync replica leads; KIP-631, "
    "fencing; Kafka documentation, broker configuration broker.session.timeout.ms",
    rules=(
        Rule(
            id="leaderless/no-quorum",
            effect=RuleEffect.NOT_APPLICABLE,
            when=("no majority of controllers",),
            label="controllers without a majority",
            reason="so many controllers were out of reach at once that the others could elect nobody",
            source="KIP-595: the metadata log needs a majority of its voters",
        ),
        Rule(
            id="leaderless/stood-still",
            effect=RuleEffect.NOT_APPLICABLE,
            when=("the machine stood still",),
            label="a machine that stood still",
            reason="no process of the trial was heard of for more than 1 s, so the controllers may have stood still, too",
            source="A gap of more than 1 s between all heartbeats, of which each client makes ten a second",
        ),
    ),
)
QUORUM = (_TWO_CONTROLLERS, _STALE_CONTROLLER, _LEADERLESS)
"""These guarantees, in the order in which reports list them."""
