"""What the guarantee table is made of: effects, rules, guarantees; and how even committed data may be missing."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum, unique

from prozess.harness.guarantees.table.known_defects import DEFECTS


@unique
class RuleEffect(StrEnum):
    """Says how a rule judges a witness."""

    PERMITTED = "permitted"
    NOT_APPLICABLE = "not applicable"
    DEFECT = "known defect"
    """Forbidden all the same: the documentation promises better. The defect is named, because its own signature was seen."""

    EXPLAINED = "explained"
    """Forbidden all the same, and no known defect: what caused it was seen, and the report says so."""


NEVER_EXCUSES = (RuleEffect.DEFECT, RuleEffect.EXPLAINED)
"""Effects that only name a cause: such a rule in doubt makes nothing unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule of the guarantee table: if all its facts hold for a witness, its effect decides."""

    id: str
    effect: RuleEffect = RuleEffect.PERMITTED
    when: tuple[str, ...]
    """Facts that must all hold. For a known defect: what it leaves in the history, and nothing else does."""
    perhaps: tuple[str, ...] = ()
    """For a known defect: facts that must all hold for it to be possible, where `when` cannot be known. One of them at
    least is a part of what this defect leaves in the history: that a version has it, and that a leader changed, is no
    trace of it. Where that part is what `when` asks for, the defect is named only where it is proven."""
    label: str
    """The setting or event to blame, in two or three words: "100 records are gone (acks=1)"."""
    reason: str
    """Why the rule applies, in words for the reader of a report."""
    change: str = ""
    """The change of settings that would have prevented it."""
    found: tuple[str, str] | None = None
    """Like `Guarantee.found`, if the rule can say more precisely what was found."""
    source: str
    defect: str = ""
    """For a known defect: "KAFKA-nnnn, fixed in …", as `DEFECTS` reports it; the label is its id there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """One anomaly: the promise that it does not happen, and its exceptions."""

    anomaly: str
    meaning: str
    """What the name means: a sentence for somebody who knows Kafka. It is printed wherever the name is first met."""
    adya: str = ""
    """Adya's name of it, where there is one: "G1a"."""
    promise: str
    found: tuple[str, str]
    """What one witness, and what "{n}" witnesses are: "{n} acknowledged records are gone"."""
    undone: str = "would have prevented it"
    """What the change of a rule would have done."""
    absence: bool = False
    """The anomaly says that something is missing, so also its findings need a complete audit."""
    by_resending: bool = False
    """The anomaly comes from sending again, so the report says how many sends overlapped a fault or a leader change."""
    nothing: str
    """Why nothing was judged, if nothing was: "no record was acknowledged"."""
    nothing_is_unknown: bool = True
    """If there was nothing to judge: True = the outcome is unknown, False = the anomaly does not apply."""
    source: str
    """Where Kafka makes the promise."""
    rules: tuple[Rule, ...] = ()
    workloads: tuple[str, ...] = ()
    """The kinds of workload in whose cells it is judged; empty = all."""

    @property
    def meaning_in_full(self) -> str:
        """The meaning, with Adya's name if there is one."""
        return f"{self.meaning.removesuffix('.')} (Adya's {self.adya})." if self.adya else self.meaning

    def applies(self, traits: Collection[str]) -> bool:
        """Is it judged in cells with these traits (`Cell.traits`)?"""
        return not self.workloads or not set(traits).isdisjoint(self.workloads)


_UNCLEAN = "an unclean election made a replica leader that did not have all records"
_UNCLEAN_CHANGE = "unclean.leader.election.enable=false"
_UNCLEAN_SOURCE = (
    "Kafka documentation, design, 'Unclean leader election: what if they all die?'; KIP-101 (logs are cut by epoch); seen: "
    "500 of 500, and 125 of 125 that the deposed leader, alive and not reported, acknowledged and showed for 3.6 s more"
)
_WIPED = "every replica that could become leader had lost data"
_WIPED_CHANGE = (
    "flush.messages=1 (if power was lost) or more in-sync replicas (min.insync.replicas, eligible leader replicas; "
    "the verdict of a run says which)"
)
_WIPED_SOURCE = (
    "KIP-966 (min ISR - 1 tolerance); ReplicationControlManager.handleBrokerShutdown; seen: 5000 of 5000; 289 without "
    "eligible leader replicas, and 0 with them"
)
HW_SOURCE = "Kafka documentation, design: 'Only committed messages are ever given out to the consumer'; KIP-392"


def hard(prefix: str, *, unclean: str, wiped: str) -> tuple[Rule, ...]:
    """The two ways in which even committed data may be missing. Destroyed copies first: when the last known leader returns
    with a destroyed one, that counts as an unclean election too."""
    return (
        Rule(
            id=f"{prefix}/wiped",
            when=(wiped,),
            label="replicas that lost data",
            reason=_WIPED,
            change=_WIPED_CHANGE,
            source=_WIPED_SOURCE,
        ),
        Rule(
            id=f"{prefix}/unclean",
            when=(unclean,),
            label="unclean elections",
            reason=_UNCLEAN,
            change=_UNCLEAN_CHANGE,
            source=_UNCLEAN_SOURCE,
        ),
    )


def topic_deleted(prefix: str, fact: str = "topic deleted") -> Rule:
    """What was in the log of a topic that somebody deleted is gone with it; a rule that comes first."""
    return Rule(
        id=f"{prefix}/topic-deleted",
        when=(fact,),
        label="a deleted topic",
        reason="the topic was deleted, and its log with it; a topic that is created again under the same name is "
        "another topic",
        change="not deleting the topic",
        source="Kafka documentation, Admin.deleteTopics; KIP-516: a topic is its id, and its log is removed with it",
    )


def several_topics(prefix: str) -> Rule:
    """Groups keep offsets by name, and offsets of a deleted topic mean nothing in the next one."""
    return Rule(
        id=f"{prefix}/several-topics",
        effect=RuleEffect.NOT_APPLICABLE,
        when=("name stood for several topics",),
        label="a deleted topic",
        reason="the topic was deleted and created again, and it is not known to which of the two the group's "
        "offsets belong",
        source="KIP-516; KIP-848: offsets of a group are kept by the name of the topic, until it is deleted",
    )


OLDER_EPOCH = "older epoch behind a newer"


def older_epoch_appended(
    prefix: str, name: str = "KAFKA-18991", *, proof: str = OLDER_EPOCH, trace: str = OLDER_EPOCH
) -> Rule:
    """Returns the rule for KAFKA-18991, a defect of old brokers. `proof`: the fact that shows what it leaves where it
    appended to a log, or where it cut one. `trace`: the fact that is a part of that."""
    return Rule(
        id=f"{prefix}/{name}",
        effect=RuleEffect.DEFECT,
        when=("brokers to 3.9.0 or 4.0.0", proof),
        perhaps=("brokers to 3.9.0 or 4.0.0", "leader changed", trace),
        label="KAFKA-18991",
        reason="after a leader change, a follower uses a fetch response of an older leader epoch: it appends the "
        "records in it, or truncates its own log because of it",
        source="KAFKA-18991, KAFKA-18723",
        defect=DEFECTS["KAFKA-18991"].description,
    )


def end_taken_for_a_record(anomaly: str, trace: str = "committed one beyond it") -> Rule:
    """Returns the rule for librdkafka#4844. `trace`: the fact that shows a commit one beyond the member's position."""
    return Rule(
        id=f"{anomaly}/librdkafka#4844",
        effect=RuleEffect.DEFECT,
        when=("ends of partitions are stored", trace),
        perhaps=("ends of partitions are stored", trace),
        label="librdkafka#4844",
        reason="with enable.partition.eof=true the batch API of librdkafka takes the end of a partition for a record, "
        "and stores the offset behind it",
        source="librdkafka#4844; rd_kafka_q_serve_rkmessages of 2.12.0 (the offset of every message, also of an error) "
        "and of 2.14.0 (of records alone)",
        defect=DEFECTS["librdkafka#4844"].description,
    )


def epochs_begin_again(anomaly: str, client: str) -> Rule:
    """Returns the rule for librdkafka#4898: who leads a topic that was made again is not learned. `client`: the fact that
    it is of that library."""
    return Rule(
        id=f"{anomaly}/librdkafka#4898",
        effect=RuleEffect.DEFECT,
        when=(client, "led elsewhere below the epochs before"),
        perhaps=(client, "led elsewhere below the epochs before"),
        label="librdkafka#4898",
        reason="the topic was made again under its name, its leader epochs began at 0 again, and librdkafka takes a leader "
        "with a lower epoch than it has seen for an old one: it goes on to ask the broker that led the deleted topic",
        source="librdkafka#4898; KIP-516: another id is another topic; KAFKA-12257 and KAFKA-13488, the same in Kafka's Java "
        "clients until 3.1",
        defect=DEFECTS["librdkafka#4898"].description,
    )


def names_alone(anomaly: str) -> Rule:
    """Returns the rule for KAFKA-12257, the like in Kafka's Java members before they knew ids of topics."""
    return Rule(
        id=f"{anomaly}/KAFKA-12257",
        effect=RuleEffect.DEFECT,
        when=("topics are known by name", "led elsewhere below the epochs before"),
        perhaps=("topics are known by name", "led elsewhere below the epochs before"),
        label="KAFKA-12257",
        reason="the topic was made again under its name, its leader epochs began at 0 again, and members take a leader with "
        "a lower epoch than they have seen for an old one: they go on to ask the broker that led the deleted topic",
        source="KAFKA-12257; KIP-320; Metadata.updateLatestMetadata of 2.8.0; seen with 2.8.0, trial kafka-12257",
        defect=DEFECTS["KAFKA-12257"].description,
    )


def markers_refused(anomaly: str) -> Rule:
    """Returns the rule for KAFKA-20322, a defect of coordinators of 4.2.0 beside older brokers."""
    return Rule(
        id=f"{anomaly}/KAFKA-20322",
        effect=RuleEffect.DEFECT,
        when=("markers refused",),
        perhaps=("markers refused",),
        label="KAFKA-20322",
        reason="a coordinator sent markers in a version of WriteTxnMarkers that an older broker does not know, and does so "
        "again and again, so that a transaction does not end",
        source="KAFKA-20322; KIP-1228; seen: 4.2.0 beside 4.1.2, trial kafka-20322",
        defect=DEFECTS["KAFKA-20322"].description,
    )


# What must have been seen, so that a fact permits anything: fact by fact, the pieces of evidence without which it is
# unknown or not so. `docs/guarantees.md` lists them rule by rule, and a test takes each of them away.


LOG = "the partition's records in the controllers' log"
DELETION = "the deletion of that topic id in the controllers' log"
LOGS = "the offset at which each leader epoch begins in the replicas' logs"
FAULT = "the fault and its times"
EFFECT = "the observed effect of that fault"
ON_EVERY_NODE = "the effect of that fault, observed on every broker"
AIM = "that the fault was aimed at the group's coordinator"
CLIENTS = "what the clients recorded"
ANSWERS = "what controllers answered"
SEND_ENDED = "how the send ended"
LOG_START = "a log start beyond the consumer's position"
LOG_START_IN_TIME = "that this log start was seen in time"
AUDIT = "the end of the audit"
STORE = "what the remote store had at the end"

PROOFS: Mapping[str, tuple[str, ...]] = {
    "topic deleted": (LOG, DELETION),
    "topic deleted after the read": (LOG, DELETION),
    "topic of either deleted": (LOG, DELETION),
    "topic made anew in between": (LOG, DELETION),
    "topic made anew since the other": (LOG, DELETION),
    "partitions were added": (CLIENTS,),
    "sent by two producers": (CLIENTS,),
    "wiped": (LOG, FAULT, EFFECT),
    "wiped of either": (LOG, FAULT, EFFECT),
    "wiped after the read": (LOG, FAULT, EFFECT),
    "wiped after it was there": (LOG, FAULT, EFFECT),
    "wiped before": (LOG, FAULT, EFFECT),
    "cutoff": (LOG, LOGS),
    "cutoff of a missing record": (LOG, LOGS),
    "cutoff of either": (LOG, LOGS),
    "cutoff after the read": (LOG, LOGS),
    "unclean before": (LOG,),
    "unclean after the step": (LOG, CLIENTS),
    "unclean since the other": (LOG,),
    "wiped since the other": (LOG, FAULT, EFFECT),
    "unclean before it was read": (LOG,),
    "unclean between the answers": (LOG,),
    "that election was unclean": (LOG,),
    "unclean election asked for": (FAULT, EFFECT),
    "a partition of the cell was elected unclean": (LOG,),
    "offset given away by an election": (LOG,),
    "transaction state lost": (FAULT, EFFECT, ON_EVERY_NODE),
    "transaction decision lost": (FAULT, EFFECT, ON_EVERY_NODE),
    "group state lost": (FAULT, EFFECT, ON_EVERY_NODE),
    "group lost by every broker": (FAULT, EFFECT, ON_EVERY_NODE),
    "share state lost": (FAULT, EFFECT, ON_EVERY_NODE),
    "owner since before the loss": (FAULT, EFFECT, ON_EVERY_NODE),
    "still unreplicated": (LOG, LOGS),
    "leader changed during the send": (LOG,),
    "leader may have refused": (LOG,),
    "given up": (CLIENTS,),
    "forgot": (SEND_ENDED,),
    "may have expired": (SEND_ENDED, CLIENTS),
    "log start passed": (LOG_START, LOG_START_IN_TIME),
    "read beyond delete.retention.ms": (AUDIT,),
    "a replica away beyond delete.retention.ms": (LOG, FAULT, EFFECT),
    "sent later": (CLIENTS,),
    "out of sync at the end": (LOG,),
    "leader was hampered": (LOG, FAULT, EFFECT),
    "unsettled": (LOG, FAULT, EFFECT),
    "group was troubled": (LOG, FAULT, EFFECT),
    "held up": (LOG, FAULT, EFFECT),
    "partition held up": (LOG, FAULT, EFFECT),
    "call held up": (LOG, FAULT, EFFECT),
    "may have been carried out later": (CLIENTS,),
    "no majority of controllers": (FAULT, EFFECT),
    "within the quorum's fetch timeout": (ANSWERS,),
    "controller was cut off": (FAULT, EFFECT),
    "fault at work": (FAULT, EFFECT),
    "remote store harmed": (FAULT, EFFECT, STORE),
    "fault since it was let go": (FAULT, EFFECT),
    "taken": (CLIENTS,),
    "coordinator out": (FAULT, EFFECT, AIM),
    "found by a consumer": (CLIENTS,),
    "read_uncommitted": (CLIENTS,),
    "read_uncommitted inside": (CLIENTS,),
    "order of writes": (CLIENTS,),
    "last stable offset stood still": (CLIENTS,),
    "no copy": (CLIENTS,),
    "a copy too many": (CLIENTS,),
    "left behind": (CLIENTS,),
    "committed for the topic before": (CLIENTS,),
    "sent again": (CLIENTS,),
    "member was gone": (CLIENTS,),
    "one instance id twice": (CLIENTS,),
    "position was sought": (CLIENTS,),
    "start was beyond it": (CLIENTS,),
    "count was in memory alone": (CLIENTS,),
    "delivered as often as the limit allows": (CLIENTS,),
    "one delivery short of the limit": (CLIENTS,),
    "leader changed while it was held": (LOG,),
    "share session may have ended": (FAULT, EFFECT),
    "dead-letter queue may have been out of reach": (FAULT, EFFECT),
    "position was reset": (CLIENTS,),
    "stands twice": (CLIENTS,),
    "within a session": (CLIENTS,),
    "a gone member may be waited for": (CLIENTS,),
    "an old id may be waited for": (CLIENTS,),
}
"""Fact → the pieces of evidence that it needs. Facts that are not here are of the configuration, or permit nothing by
themselves."""

NEVER_CERTAIN = frozenset(
    {
        "may be a second copy",
        "may have begun behind it",
        "offsets may have expired",
        "the machine stood still",
        "reader stood still",
        "whoever waited stood still",
        "unmeasured",
        "name stood for several topics",
        "the consumer's seeks are not recorded",
        "a clock may have been ahead",
        "that broker may have been out",
        "a clock may have ended it",
        "an old id may be waited for",
    }
)
"""Facts that are unknown where they may hold, and so permit nothing."""


def proofs_of(rule: Rule) -> tuple[str, ...]:
    """Returns the evidence that the rule needs, each piece once; nothing = the configuration is enough."""
    return tuple(dict.fromkeys(piece for name in rule.when for piece in PROOFS.get(name, ())))
