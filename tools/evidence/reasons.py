"""Why a change that a check does not notice does no harm, or what is not there to notice it."""

from collections.abc import Sequence
from dataclasses import dataclass

from tools.evidence.changes import WAYS

ALL = tuple(WAYS)
MOVED = ("less", "greater", "another's")


@dataclass(frozen=True, slots=True)
class Reason:
    """Says why columns of a table that were changed in these ways leave a verdict *held*, as a sentence."""

    table: str
    columns: tuple[str, ...]
    ways: tuple[str, ...]
    why: str


_RECORDER = "prozess itself writes this table, and a row says the same whichever of its processes wrote it."
_COPIED = (
    "Of a client that copies, the copies are judged, which stand in the log with what they were made of. What it says that "
    "it processed is compared with nothing."
)
_COPIER_COMMITS = (
    "Of a client that copies, a commit is part of a transaction, and what came of it is shown by the copies. That it is "
    "ahead of what was read is looked for in groups alone."
)
_PERMITS = "This decides what is permitted. In a clean history nothing was found that needs an excuse."

REASONS: tuple[Reason, ...] = (
    Reason(
        "sends",
        ("invoked_ns",),
        MOVED,
        "A send that began earlier, or later and still before its acknowledgement, overlaps others as before. "
        "Nothing is concluded of sends that overlap.",
    ),
    Reason(
        "sends",
        ("completed_ns",),
        MOVED,
        "An acknowledgement is noticed when its callback runs, which may be late: the time is an upper bound, "
        "and a later one claims less.",
    ),
    Reason(
        "sends",
        ("log_offset",),
        ("none",),
        "An acknowledgement without an offset is one (acks=0, a duplicate sequence). The record is looked for "
        "by its identity.",
    ),
    Reason(
        "sends",
        ("key",),
        ("none",),
        "A key that is NONE is no key, or one that nobody stated. Outside of compacted topics it is compared with none.",
    ),
    Reason("sends", ("size",), ALL, "Sizes say what the traffic was. What a record contains is known by its checksum."),
    Reason(
        "reads",
        ("read_ns",),
        MOVED,
        "A record may be read at any time after it was sent. The bound on delivery counts for readers that "
        "follow, and not for audits.",
    ),
    Reason(
        "reads",
        ("key",),
        ALL,
        "Where the producer sent no key, or did not inform it, as one that writes in transactions, there is "
        "nothing to compare it with.",
    ),
    Reason("reads", ("origin",), ALL, "Only a copy has an origin. In cells that copy nothing nobody asks for it."),
    Reason(
        "reads",
        ("sent_partition",),
        ("none",),
        "A record need not say where it was sent: those of verifiable clients do not. Its identity says it.",
    ),
    Reason(
        "reads",
        ("leader_epoch",),
        ALL,
        "One row that names an epoch has no other with which it could disagree.",
    ),
    Reason(
        "processed",
        ("done_ns",),
        MOVED,
        "Processing takes as long as it takes, and counts as done before a commit or after it.",
    ),
    Reason("processed", ("done_ns",), ("none",), _COPIED),
    Reason("processed", ("log_offset", "sequence"), MOVED, _COPIED),
    Reason("processed", ("sender",), (*MOVED, "far"), _COPIED),
    Reason(
        "processed",
        ("sequence", "sender"),
        ("none",),
        "A step need not say which record it processed: a member that could not read the identity does not. "
        "Its offset says it.",
    ),
    Reason("commits", ("log_offset",), ("greater", "another's"), _COPIER_COMMITS),
    Reason("commits", ("position",), ("less",), _COPIER_COMMITS),
    Reason(
        "transactions",
        ("begun_ns", "end_invoked_ns", "completed_ns"),
        MOVED,
        "A transaction that was open for longer, or whose end was noticed later, claims less: a commit is "
        "noticed when the call returns.",
    ),
    Reason(
        "transactions",
        ("code",),
        (*MOVED, "none"),
        "A code says why something failed. An abort after an error claims less: its coordinator may have come before it.",
    ),
    Reason(
        "deliveries",
        ("answered_ns",),
        ("greater", "another's"),
        "An answer is noticed when its callback runs, which may be late: the time is an upper bound, and a later one claims "
        "less.",
    ),
    Reason(
        "deliveries",
        ("sequence",),
        ("none",),
        "What cannot be read may be the record that stands there. `corrupt` judges that, in its row of `reads`.",
    ),
    Reason(
        "deliveries",
        ("delivery_count",),
        ("greater", "none"),
        "Deliveries that no member has seen leave gaps, and a broker need not state a count.",
    ),
    Reason(
        "commits",
        ("invoked_ns", "completed_ns"),
        MOVED,
        "A commit whose interval is longer overlaps more others, and nothing is concluded of commits that overlap.",
    ),
    Reason(
        "commits",
        ("log_offset",),
        ("less",),
        "A commit below the position repeats work and loses none. One that is below an earlier commit is a regression.",
    ),
    Reason(
        "commits",
        ("position",),
        ("greater", "another's", "none"),
        "A commit may be behind the position of its member: it promises less than was done.",
    ),
    Reason(
        "commits",
        ("outcome", "mode"),
        ALL,
        "A commit that failed, or is in doubt, promises nothing. The way in which it was made is for people.",
    ),
    Reason(
        "assignments",
        ("event",),
        MOVED,
        "The end of an ownership at the end of a trial: another member had it, or it ended in another way. "
        "Nobody owned the partition afterwards.",
    ),
    Reason(
        "assignments",
        ("incremental",),
        ALL,
        "Each callback is recorded with all partitions that it concerns. Whether it was incremental is for people.",
    ),
    Reason(
        "positions",
        ("time_ns",),
        MOVED,
        "A span begins with its first row of reads. The time of the position is for people, and for the bound "
        "on readers that stand still.",
    ),
    Reason(
        "positions",
        ("log_offset",),
        ALL,
        "A span is read from its position on, or from behind it: what stands between may be hidden, or gone. A record below "
        "the position is noticed. NONE: the position is not known.",
    ),
    Reason(
        "positions",
        ("event",),
        MOVED,
        "A position on assignment and one after a seek both begin a span, and order is judged within one.",
    ),
    Reason(
        "observations",
        ("time_ns",),
        MOVED,
        "What was seen at the end of a trial stands, whenever in its course it was seen.",
    ),
    Reason(
        "observations",
        ("client",),
        ("another's",),
        "A replica's files are what they are, whoever read them. What an audit has read proves that it came to its end.",
    ),
    Reason(
        "observations",
        ("partition",),
        ("greater", "another's"),
        "A leader's answers are samples: one that is missing claims less, and one of a broker that did not lead the "
        "other partition is compared with nothing.",
    ),
    Reason(
        "observations",
        ("kind",),
        ("another's",),
        "What was seen is compared with what else was seen of its kind. A value that is possible there contradicts nothing.",
    ),
    Reason(
        "observations",
        ("leader_epoch",),
        ALL,
        "An answer that names an epoch is compared with answers of the same leader.",
    ),
    Reason(
        "withheld",
        ("client", "ended_ns", "count", "partition"),
        ALL,
        "What was not sent is no record. For how long a producer held back counts for what a fault cost, and no promise "
        "rests on it.",
    ),
    Reason("metadata", ("client",), ALL, _RECORDER),
    Reason(
        "metadata",
        ("time_ns", "elr", "last_known_elr", "replicas", "leader", "recovering"),
        ALL,
        _PERMITS,
    ),
    Reason(
        "metadata",
        ("log_position",),
        ALL,
        "What counts is the order of the rows of a partition. A position that does not change it says the same.",
    ),
    Reason(
        "metadata",
        ("topic_id_high", "topic_id_low"),
        ALL,
        "A partition whose topic was made anew begins another log. With one row of a partition there is no "
        "other id to differ from.",
    ),
    Reason(
        "metadata",
        ("node",),
        ALL,
        "The row of a partition names its leader elsewhere; of a controller each epoch has one row.",
    ),
    Reason("replicas", ("client",), ALL, _RECORDER),
    Reason(
        "replicas",
        ("read_ns",),
        MOVED,
        "The segments of nodes that have ended do not change: when they are read says nothing.",
    ),
    Reason(
        "replicas",
        (
            "checksum",
            "base_timestamp_ms",
            "max_timestamp_ms",
            "node",
            "step",
            "records",
            "size",
            "attributes",
        ),
        ALL,
        "Replicas of a compacted log are cleaned at different times, so their batches differ. What is "
        "compared is the newest record of each key, which the audit shows.",
    ),
    Reason(
        "heartbeats",
        ("client", "time_ns"),
        MOVED,
        "A process starves if nobody hears of it for a second. One heartbeat of ten in a second is not missed.",
    ),
    Reason(
        "clients",
        ("started_ns", "ended_ns"),
        ALL,
        "A client that lived for longer, or to the end, may have recorded what it did; what it recorded "
        "outside of its life is noticed.",
    ),
    Reason(
        "clients",
        ("issued",),
        ("none",),
        "A client that was killed did not count. Then its rows are all that is known, and none of them is missed.",
    ),
    Reason(
        "clients",
        ("exit_code",),
        ALL,
        "How a client ended that closed its files itself is stated by the run stage, by name.",
    ),
    Reason(
        "clients",
        ("clock",),
        ("less", "greater", "none", "far"),
        "A client that has a clock of its own is compared in time with nobody. That leaves a bound on delivery unknown, if "
        "the trial states one; of order in time less is claimed.",
    ),
    Reason("clients", ("os_pid",), ALL, "The number of a process is for people who look for it in logs."),
    Reason("partitions", ("client",), ALL, _RECORDER),
    Reason(
        "partitions",
        ("replicas", "topic", "preferred_leader"),
        ALL,
        "The table is a copy of the plan for other readers. A check takes the plan itself.",
    ),
    Reason("cells", ("client",), ALL, _RECORDER),
    Reason(
        "cells", ("name",), ALL, "The table is a copy of the plan for other readers. A check takes the plan itself."
    ),
    Reason("faults", ("client",), ALL, _RECORDER),
    Reason(
        "faults",
        ("time_ns", "node", "peer"),
        ALL,
        "A fault decides what is permitted, and nothing was found that needs an excuse. Its phases still follow one another, "
        "and are of one kind, one step and the nodes that it struck: else it is noticed.",
    ),
    Reason("faults", ("detail",), ALL, "A text for people."),
    Reason("messages", ("client",), ALL, _RECORDER),
    Reason(
        "messages",
        ("time_ns",),
        MOVED,
        "No rule is judged by messages. They say whether a trial reached its situation, and this one asks nothing of them. "
        "A step may mean messages from when it is awaited to the end of the trial, and none before.",
    ),
    Reason(
        "messages",
        ("opener", "server", "sender", "version", "error"),
        ALL,
        "Who sent a message over which connection, in which version and with which error, is for people. A situation is "
        "counted by the step, the partition, the time and what was done.",
    ),
    Reason(
        "messages",
        ("producer_id", "producer_epoch", "first_sequence"),
        ALL,
        "Whose batch it was is for people. Duplicates and gaps are looked for in the replicas' own segments. A step that "
        "means an epoch or a sequence has messages of this one alone.",
    ),
    Reason("steps", ("client",), ALL, _RECORDER),
    Reason(
        "steps",
        ("awaited_ns", "fired_ns", "done_ns"),
        ALL,
        "Whether a step was done is what its outcome says. The times are for the timeline.",
    ),
    Reason("steps", ("detail",), ALL, "A text for people."),
    Reason("remote_segments", ("client",), ("none",), _RECORDER),
    Reason(
        "remote_segments",
        ("read_ns",),
        MOVED,
        "Files of nodes that have ended do not change: when they are read says nothing.",
    ),
    Reason(
        "remote_segments",
        ("segment_high", "segment_low", "topic_id_high", "topic_id_low", "node", "copied_ms", "changed_ms"),
        ALL,
        "Who copied a segment, when and under which id, is for people. Whose segment it is, `current` says.",
    ),
    Reason(
        "remote_segments",
        ("size", "stored_size"),
        (*MOVED, "none"),
        "What is whole of an object was read batch by batch. Its bytes are not counted again.",
    ),
    Reason(
        "remote_segments",
        ("first_offset",),
        ("less",),
        "A segment that begins earlier covers more. Batches are compared by themselves.",
    ),
    Reason(
        "remote_segments",
        ("last_offset",),
        (*MOVED, "none"),
        "Where an object is there, it counts up to where it is whole, and not as far as brokers believe.",
    ),
    Reason(
        "remote_segments",
        ("whole_to",),
        ("greater", "another's"),
        "What one object would have beyond its end, the next one has. Batches are compared by themselves.",
    ),
    Reason(
        "remote_segments",
        ("damaged",),
        ("greater", "far"),
        "A number for people. The object counts up to its first damaged batch.",
    ),
    Reason("transaction_states", ("client",), ("greater",), _RECORDER),
    Reason(
        "transaction_states",
        ("time_ns", "leader_epoch"),
        (*MOVED, "none"),
        "These decide which append may have failed, whose record is passed over. In a clean history none is.",
    ),
    Reason(
        "transaction_states",
        ("client_version",),
        ("less", "greater", "none"),
        "Below 2 an epoch may stay for many transactions. The generated history has no transaction of version 2.",
    ),
    Reason(
        "cluster_states", ("time_ns",), ALL, "When a record was written is for people: the order of the log counts."
    ),
    Reason(
        "cluster_states",
        ("id_high", "id_low"),
        ALL,
        "Another process, or another directory, is as good as this one. It accuses where two brokers have one.",
    ),
    Reason(
        "cluster_states",
        ("shutting_down",),
        ALL,
        "A broker that changed in another way is as good as this one. Rules name what may not follow, not what must.",
    ),
    Reason(
        "cluster_states",
        ("lowest", "level"),
        ALL,
        "A broker that supports more is as good as this one.",
    ),
    Reason("group_states", ("client",), ("greater",), _RECORDER),
    Reason(
        "group_states", ("time_ns", "number", "leader_epoch"), ALL, "When and where a record was written is for people."
    ),
    Reason(
        "group_states",
        ("member",),
        ("less", "greater", "none", "far"),
        "A member under another id is as good as this one, if the rows of its record agree. A row of a group has none.",
    ),
    Reason("group_states", ("partition",), ("greater",), "A partition that nobody else has accuses nobody."),
    Reason(
        "group_states",
        ("name",),
        ("less", "greater", "far"),
        "Another protocol or type is as good as this one where no generation has it twice.",
    ),
    Reason("share_states", ("client",), ("greater",), _RECORDER),
    Reason(
        "share_states", ("time_ns", "number", "leader_epoch"), ALL, "When and where a record was written is for people."
    ),
    Reason(
        "share_states",
        ("first_offset", "last_offset", "state", "delivery_count", "state_epoch", "partition_epoch"),
        ALL,
        "A clean history has one state for each record, and one epoch: nothing stands behind it that could contradict it.",
    ),
    Reason(
        "share_states",
        ("kind",),
        ALL,
        "A record that is no snapshot and no update says nothing, and accuses nobody.",
    ),
    Reason("admin_operations", ("client",), ("greater",), _RECORDER),
    Reason(
        "admin_operations",
        ("invoked_ns", "completed_ns"),
        ("less", "greater"),
        "A call that lasted longer may have taken effect at more moments, and less is known of it.",
    ),
    Reason(
        "admin_operations",
        ("node",),
        ("less", "greater", "far"),
        "A server's own copy may be older than what the active controller answers, and never newer.",
    ),
    Reason(
        "admin_operations",
        ("outcome", "operation", "value"),
        ("less", "greater", "none"),
        "What is in doubt, or says no value, accuses nobody.",
    ),
    Reason("snapshots", ("client",), ALL, _RECORDER),
    Reason(
        "snapshots", ("read_ns",), ALL, "Files of nodes that have ended do not change: when they are read says nothing."
    ),
    Reason(
        "snapshots",
        ("step",),
        ("none",),
        "Then it counts as one that was read at the end, as nearly all are.",
    ),
    Reason(
        "snapshots",
        ("coordinator_epoch",),
        MOVED,
        "Replicas agree about the coordinator's epoch by the markers in their logs, which are compared.",
    ),
    Reason(
        "snapshots",
        ("snapshot_offset",),
        ALL,
        "A snapshot of another offset is compared with none, if no other replica has one there.",
    ),
    Reason(
        "snapshots",
        (
            "producer_id",
            "last_offset",
            "timestamp_ms",
            "transaction_offset",
            "partition",
            "node",
            "step",
            "producer_epoch",
            "last_sequence",
            "offset_delta",
        ),
        ALL,
        "Of a compacted log the batches that a snapshot describes may be gone, and it is compared with nothing.",
    ),
    Reason("metrics", ("client",), ALL, "Whoever took the sample, it is of the same node."),
    Reason(
        "metrics",
        ("time_ns", "value_micro", "metric", "node", "partition", "absent"),
        ALL,
        "One sample of many. Metrics decide alerts, and readers that stand still, which need samples of a "
        "stretch of time.",
    ),
)
"""What is not noticed, in the order of the tables."""


def reasons_for(table: str, column: str, way: str) -> Sequence[Reason]:
    """Returns the reasons that cover a change."""
    return [one for one in REASONS if one.table == table and column in one.columns and way in one.ways]
