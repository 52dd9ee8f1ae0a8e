"""The guarantees of share groups (KIP-932): each record is delivered, and once it is finished never again.

Left out because nothing can bring them about yet: offsets that an administrator alters or deletes, groups that are deleted.
"""

from prozess.harness.guarantees.table.rules import Guarantee, Rule, hard

KINDS = ("share",)
"""The workloads that have share groups whose members are recorded."""
_STATES = "KIP-932, 'In-flight records'"


def _state_lost(anomaly: str) -> Rule:
    return Rule(
        id=f"{anomaly}/state-lost",
        when=("share state lost",),
        label="lost state of share groups",
        reason="every broker that kept what the share group has finished may have lost it",
        change="more in-sync replicas of __share_group_state, or log.flush.interval.messages=1 on the brokers",
        source="KIP-932: the state of share-partitions is records of __share_group_state",
    )


_UNDELIVERED = Guarantee(
    anomaly="undelivered",
    meaning="No member of a share group was ever given a record, although the group was to deliver it.",
    promise="A share group delivers every record from its start offset on.",
    found=("1 record was delivered to no member", "{n} records were delivered to no member"),
    undone="would have delivered them",
    absence=True,
    nothing="the log has no record that the group was to deliver",
    source="KIP-932: from the start offset on, records are delivered until they are finished",
    workloads=KINDS,
    rules=(
        Rule(
            id="undelivered/reset-to-latest",
            when=("share group begins at the end", "start was beyond it"),
            label="share.auto.offset.reset=latest",
            reason="the share group began at the end of the log, behind the record",
            change="share.auto.offset.reset=earliest",
            source="KIP-932, share.auto.offset.reset: latest, the default, sets the start offset to the end of the log",
        ),
        *hard("undelivered", unclean="offset given away by an election", wiped="wiped"),
        _state_lost("undelivered"),
    ),
)
_ACCEPTED_AGAIN = Guarantee(
    anomaly="accepted-again",
    meaning="A share group delivered a record again that a member had accepted, after the member had the answer.",
    promise="What a member of a share group has accepted is not delivered again.",
    found=("1 accepted record was delivered again", "{n} times an accepted record was delivered again"),
    nothing="no acceptance was answered",
    source=f"{_STATES}: an acknowledged record is not delivered again",
    workloads=KINDS,
    rules=(_state_lost("accepted-again"),),
)
_REJECTED_AGAIN = Guarantee(
    anomaly="rejected-again",
    meaning="A share group delivered a record again that a member had rejected, after the member had the answer.",
    promise="What a member of a share group has rejected is not delivered again.",
    found=("1 rejected record was delivered again", "{n} times a rejected record was delivered again"),
    nothing="no rejection was answered",
    nothing_is_unknown=False,
    source=f"{_STATES}: a rejected record is archived, and an archived record is not delivered again",
    workloads=KINDS,
    rules=(_state_lost("rejected-again"),),
)
_TWO_HOLDERS = Guarantee(
    anomaly="two-holders",
    meaning="A share group gave a record to somebody while the lock of another delivery of it held.",
    promise="A record of a share group is with one member at a time, as long as the lock of its delivery holds.",
    found=(
        "1 record was with two members at the same time",
        "{n} times a record was with two members at the same time",
    ),
    nothing="no record was delivered",
    source=f"{_STATES}: an acquired record is available to nobody else until its lock ends or it is acknowledged",
    workloads=KINDS,
    rules=(
        Rule(
            id="two-holders/leader-changed",
            when=("leader changed while it was held",),
            label="a new leader",
            reason="locks are in the memory of the partition's leader, so the next leader knows of none",
            change="no setting (whoever processes a record must bear that another does, too)",
            source="KIP-932; SharePartition.acquire (4.4.0) writes no record: the next leader knows of none",
        ),
        Rule(
            id="two-holders/session-ended",
            when=("share session may have ended",),
            label="a share session that ended",
            reason="a leader releases what a member holds when the member's connection ends",
            change="no setting (whoever processes a record must bear that another does, too)",
            source="KIP-932, share sessions: a session ends with its connection, and its acquired records are released",
        ),
    ),
)
_MISCOUNTED = Guarantee(
    anomaly="miscounted",
    meaning="The delivery count that came with a record did not rise with a delivery, or was beyond the limit.",
    promise="The delivery count of a record in a share group rises with each delivery, up to the limit.",
    found=("1 delivery count was wrong", "{n} delivery counts were wrong"),
    nothing="no delivery had a count",
    source=f"{_STATES}: the delivery count is incremented when the record is acquired; group.share.delivery.count.limit",
    workloads=KINDS,
    rules=(
        Rule(
            id="miscounted/leader-changed",
            when=("count was in memory alone", "leader changed while it was held"),
            label="a new leader",
            reason="a delivery is counted in the memory of the partition's leader, and written when the record is "
            "acknowledged, released, or its lock ends; the next leader counts on from what was written",
            change="no setting",
            source="KIP-932; SharePartition.acquire (4.4.0) writes no record; on 4.4.0 a leader's death gave counts 1 and 1",
        ),
        _state_lost("miscounted"),
    ),
)
_GIVEN_UP = Guarantee(
    anomaly="given-up",
    meaning="A share group finished a record that no member had accepted or rejected.",
    promise="A record that no member of a share group has accepted or rejected is delivered again.",
    found=("1 record was archived without being accepted", "{n} records were archived without being accepted"),
    undone="would have delivered them again",
    nothing="the share group is not known to have finished a record",
    nothing_is_unknown=False,
    source=f"{_STATES}: what is released, or whose lock ends, is available again, up to the limit",
    workloads=KINDS,
    rules=(
        Rule(
            id="given-up/limit",
            when=("delivered as often as the limit allows",),
            label="the delivery count limit",
            reason="the record was delivered as often as the limit allows, and then archived",
            change="a greater share.delivery.count.limit, or longer locks (share.record.lock.duration.ms)",
            source="KIP-932, group.share.delivery.count.limit; KIP-1191: without a dead-letter queue the record is archived",
        ),
        Rule(
            id="given-up/unseen-delivery",
            when=("one delivery short of the limit", "share session may have ended"),
            label="a delivery that was lost on its way",
            reason="the last delivery that the limit allows was acquired for a member, and never reached it",
            change="a greater share.delivery.count.limit",
            source=f"{_STATES}: the count rises when the record is acquired, not when a member is given it",
        ),
        *hard("given-up", unclean="offset given away by an election", wiped="wiped"),
        _state_lost("given-up"),
    ),
)
_DEAD_LETTER_MISSING = Guarantee(
    anomaly="dead-letter-missing",
    meaning="A record that was rejected or exhausted is not in the dead-letter queue of its share group.",
    promise="What a share group rejects or gives up stands in its dead-letter queue.",
    found=("1 record is missing from the dead-letter queue", "{n} records are missing from the dead-letter queue"),
    undone="would have written them to the queue",
    absence=True,
    nothing="no record was to be in a dead-letter queue",
    nothing_is_unknown=False,
    source="KIP-1191: a record that is rejected, or delivered as often as the limit allows, is written to the queue",
    workloads=KINDS,
    rules=(
        Rule(
            id="dead-letter-missing/out-of-reach",
            when=("dead-letter queue may have been out of reach",),
            label="a dead-letter queue that is out of reach",
            reason="a broker tries five times to write to the dead-letter queue, and then archives the record all the same",
            change="no setting (let the queue have more in-sync replicas)",
            source="ShareGroupDLQStateManager, SharePartition.initiateDLQAndArchive (4.4.0)",
        ),
        *hard("dead-letter-missing", unclean="offset given away by an election", wiped="wiped"),
        _state_lost("dead-letter-missing"),
    ),
)
_DEAD_LETTER_EXTRA = Guarantee(
    anomaly="dead-letter-extra",
    meaning="A record that a member had accepted is in the dead-letter queue of its share group.",
    promise="A dead-letter queue has what was rejected or given up, and nothing that a member has accepted.",
    found=("1 accepted record is in the dead-letter queue", "{n} accepted records are in the dead-letter queue"),
    nothing="no record was in a dead-letter queue",
    nothing_is_unknown=False,
    source="KIP-1191: the queue has the records that could not be processed",
    workloads=KINDS,
    rules=(
        Rule(
            id="dead-letter-extra/unseen-delivery",
            when=("one delivery short of the limit", "share session may have ended"),
            label="a delivery that was lost on its way",
            reason="the last delivery that the limit allows was acquired for a member, and never reached it; the acceptance "
            "came when the record was already archived, which is answered without an error",
            change="a greater share.delivery.count.limit",
            source="SharePartition.acknowledgeBatchRecords (4.4.0) skips what is below the start offset",
        ),
        *hard("dead-letter-extra", unclean="offset given away by an election", wiped="wiped"),
        _state_lost("dead-letter-extra"),
    ),
)
_START_REGRESSION = Guarantee(
    anomaly="share-start-regression",
    meaning="The start offset of a share group went back.",
    promise="The start offset of a share group never goes back.",
    found=(
        "1 time the start offset of a share group went back",
        "{n} times the start offset of a share group went back",
    ),
    nothing="no start offset was answered",
    nothing_is_unknown=False,
    source="KIP-932: the start offset advances as records are finished",
    workloads=KINDS,
    rules=(
        *hard("share-start-regression", unclean="offset given away by an election", wiped="wiped since the other"),
        _state_lost("share-start-regression"),
    ),
)
SHARES = (
    _UNDELIVERED,
    _ACCEPTED_AGAIN,
    _REJECTED_AGAIN,
    _TWO_HOLDERS,
    _MISCOUNTED,
    _GIVEN_UP,
    _DEAD_LETTER_MISSING,
    _DEAD_LETTER_EXTRA,
    _START_REGRESSION,
)
"""These guarantees, in the order in which reports list them."""
