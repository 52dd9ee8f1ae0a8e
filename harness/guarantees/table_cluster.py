"""The guarantee table, part cluster: what leaders and controllers promise of time, watermarks, epochs and minimums."""

from harness.guarantees.rules import HW_SOURCE, Effect, Guarantee, Rule, hard, older_epoch_appended

_TIME_TRAVEL = Guarantee(
    anomaly="time-travel",
    promise="What was acknowledged stands before what was sent later.",
    found=(
        "1 acknowledged record stands behind one that was sent after it",
        "{n} acknowledged records stand behind ones that were sent after them",
    ),
    did=(
        "put 1 acknowledged record behind one that was sent later",
        "put {n} acknowledged records behind ones that were sent later",
    ),
    undone="would have kept their places",
    nothing="no record was acknowledged by a broker",
    # acks=0: nobody ever learns when a record was appended.
    nothing_is_unknown=False,
    source="Kafka documentation, design, 'Replicated logs': a leader appends at the end; every copy of a send is appended "
    "after its invocation, retries included",
    rules=(
        Rule(
            id="time-travel/acks-0",
            when=("acks=0", "tail"),
            label="acks=0",
            reason="acks=0 waits for no reply, and the place of the record was taken back",
            change="acks=all",
            source="Kafka documentation, producer configuration acks",
        ),
        Rule(
            id="time-travel/acks-1",
            when=("acks=1", "tail"),
            label="acks=1",
            reason="acks=1 waits for the leader only, whose place for the record was taken back",
            change="acks=all",
            source="Kafka documentation, producer configuration acks; KAFKA-20554",
        ),
        *hard("time-travel", unclean="cutoff", wiped="wiped"),
        older_epoch_appended("time-travel"),
    ),
)
_WATERMARK_REGRESSION = Guarantee(
    anomaly="watermark-regression",
    promise="The high watermark that leaders tell never falls.",
    found=(
        "1 answer told a lower high watermark than one before",
        "{n} answers told a lower high watermark than one before",
    ),
    did=("told a lower high watermark once", "told a lower high watermark {n} times"),
    nothing="no leader was asked for its high watermark",
    nothing_is_unknown=False,
    source=f"KIP-207: a new leader answers only when its high watermark has reached its epoch; {HW_SOURCE}",
    rules=hard("watermark-regression", unclean="unclean between the answers", wiped="wiped after the read"),
)
_EPOCH_REGRESSION = Guarantee(
    anomaly="epoch-regression",
    promise="The leader epoch that one broker tells never falls.",
    found=(
        "1 answer told a lower leader epoch than one before",
        "{n} answers told a lower leader epoch than one before",
    ),
    did=("told a lower leader epoch once", "told a lower leader epoch {n} times"),
    nothing="no broker was asked for leader epochs",
    nothing_is_unknown=False,
    source="KIP-101: leader epochs only rise; KIP-500: a broker applies the controllers' log in its order",
)
_UNDER_ACKNOWLEDGED = Guarantee(
    anomaly="under-acknowledged",
    promise="acks=all is acknowledged only while min.insync.replicas are in sync.",
    found=(
        "1 send was acknowledged while fewer replicas were in sync than min.insync.replicas",
        "{n} sends were acknowledged while fewer replicas were in sync than min.insync.replicas",
    ),
    did=(
        "acknowledged 1 send with too few replicas in sync",
        "acknowledged {n} sends with too few replicas in sync",
    ),
    nothing="nothing was acknowledged with acks=all",
    nothing_is_unknown=False,
    source="Kafka documentation, topic configuration min.insync.replicas; Partition.checkEnoughReplicasReachOffset",
    rules=(
        Rule(
            id="under-acknowledged/leader-not-told",
            effect=Effect.NOT_APPLICABLE,
            when=("leader was hampered",),
            label="a leader out of reach",
            reason="the leader was cut off, frozen or fenced, so it could not know yet that the controllers had taken "
            "replicas out, and waited for them all the same",
            source="Partition.checkEnoughReplicasReachOffset: the leader's own view of the ISR decides; KIP-497",
        ),
    ),
)
_UNCLEAN = Guarantee(
    anomaly="unclean",
    promise="Only replicas in sync, or eligible, became leader.",
    found=("1 leader came from outside the ISR", "{n} leaders came from outside the ISR"),
    did=("elected 1 leader from outside the ISR", "elected {n} leaders from outside the ISR"),
    nothing="the controllers' log tells of no leader",
    source="KIP-966; Kafka documentation, design, 'Unclean leader election: what if they all die?'",
    rules=(
        Rule(
            id="unclean/enabled",
            when=("unclean enabled", "unclean ever"),
            label="unclean.leader.election.enable=true",
            reason="unclean.leader.election.enable=true prefers a leader without all records to none",
            change="unclean.leader.election.enable=false",
            source="Kafka documentation, topic configuration unclean.leader.election.enable; ReplicationControlManager: with "
            "it even a complete leader is passed over when it registers again after a kill; seen: 100 of 600 kept",
        ),
        Rule(
            id="unclean/asked",
            when=("unclean election asked for",),
            label="an UNCLEAN election",
            reason="somebody asked for it (kafka-leader-election --election-type UNCLEAN)",
            change="waiting for a replica in sync",
            source="KIP-460",
        ),
    ),
)
CLUSTER = (_TIME_TRAVEL, _WATERMARK_REGRESSION, _EPOCH_REGRESSION, _UNDER_ACKNOWLEDGED, _UNCLEAN)
"""In the order of reports."""
_TWO_CONTROLLERS = Guarantee(
    anomaly="two-controllers",
    promise="No epoch had two active controllers.",
    found=("1 node claimed an epoch that another controller had", "{n} times an epoch had another active controller"),
    did=("had two active controllers once", "had two active controllers {n} times"),
    nothing="nobody was seen to be the active controller",
    nothing_is_unknown=False,
    source="KIP-595: at most one leader of the metadata quorum per epoch; a deposed one that believes for a while is normal",
)
QUORUM = (_TWO_CONTROLLERS,)
"""In the order of reports."""
