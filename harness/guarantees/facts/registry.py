"""Names the facts that rules are made of, and says what each means and what it rests on.

A fact is about a cell's configuration, or about events. One about events is asked in two ways: of witnesses (is it so?),
by `prozess.harness.guarantees.facts.witnessed`, and here of what happened at all (could it be so?). The second
distinguishes "permitted, not seen" from "held", and predicts before anything ran."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from prozess.harness.config.partitioners import NO_HASH
from prozess.harness.guarantees.facts.happened import Happened, possibly, yes_if
from prozess.harness.guarantees.table.cell_configuration import CellConfiguration, Version
from prozess.harness.schema import Tristate


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact that a rule may ask for. Exactly one of `of_configuration` and `could` is given."""

    meaning: str
    of_configuration: Callable[[CellConfiguration], Tristate] | None = None
    could: Callable[[Happened], Tristate] | None = None
    """For a fact about events: could it hold of any witness, after what happened?"""

    def __post_init__(self) -> None:
        assert (self.of_configuration is None) != (self.could is None), self.meaning


_RELEASE = ("major", "minor")
_PATCHES = range(10)
"""Patch numbers that a release may have; more than any release has had."""


def version_fact(meaning: str, holds: Callable[[Version], bool]) -> Fact:
    """Makes a fact about the broker version. For a release without its patch (4.3) only what all of its patches share is
    known."""

    def of(configuration: CellConfiguration) -> Tristate:
        version = configuration.version
        if version is None:
            return Tristate.UNKNOWN
        possible = [version] if len(version) > len(_RELEASE) else [(*version, patch) for patch in _PATCHES]
        found = {holds(v) for v in possible}
        return yes_if(found.pop()) if len(found) == 1 else Tristate.UNKNOWN

    return Fact(meaning, of)


def any_hash(configuration: CellConfiguration, holds: Callable[[str], bool]) -> Tristate:
    """Returns whether it holds of the hash by which some producer chooses partitions."""
    known = [one for one in configuration.key_hashes if one is not None]
    if any(map(holds, known)):
        return Tristate.YES
    return Tristate.NO if len(known) == len(configuration.key_hashes) else Tristate.UNKNOWN


# Facts about groups and copiers: what they promise, and what their kernels found to explain a witness.


GROUP_FACTS: Mapping[str, Fact] = {
    "copies at most once": Fact(
        "the copiers commit offsets before they produce the copies, or promise no more than that",
        lambda c: yes_if(c.delivery == "at-most-once"),
    ),
    "copies at least once": Fact(
        "the copiers commit offsets after they have produced the copies, or promise no more than that",
        lambda c: yes_if(c.delivery == "at-least-once"),
    ),
    "offsets outside the transaction": Fact(
        "the copiers commit their offsets after the transaction that holds the copies",
        lambda c: yes_if(c.delivery == "transaction-alone"),
    ),
    "no copy": Fact("the record has no copy in the output topic", could=lambda h: h.rebalanced),
    "a copy too many": Fact("the record already has a copy in the output topic", could=lambda h: h.rebalanced),
    "a partition of the cell was elected unclean": Fact(
        "after the record was sent there was an unclean election of some partition of the cell, in either topic",
        could=lambda h: possibly(h.cell_unclean),
    ),
    "commits first": Fact(
        "the group commits offsets before it processes the records", lambda c: yes_if(c.commits_first)
    ),
    "commits by name": Fact(
        "members are of librdkafka, or of Java before 4.2, or brokers are: OffsetCommit has names of topics then (KIP-848)",
        lambda c: yes_if(c.commits_by_name),
    ),
    "committed for the topic before": Fact(
        "the first position of the group in the topic, which was made again, is one that a member was committing for the "
        "topic before",
        could=lambda h: possibly(h.topic_deleted),
    ),
    "ends of partitions are stored": Fact(
        "members set enable.partition.eof, and commit by themselves what the batch API of librdkafka 2.2.0 to 2.13.1 stored, "
        "which takes the end of a partition for a record",
        lambda c: yes_if(c.ends_are_stored),
    ),
    "topics are known by name": Fact(
        "members are of Kafka's Java client 2.1 to 2.8.0, which compares leader epochs and does not know the ids of topics",
        lambda c: yes_if(c.knows_names_alone),
    ),
    "topic ids are forgotten": Fact(
        "members are of Kafka's Java client 2.8.1, or of 3.0.0, which forgets the id of a topic that it sees missing, and "
        "not the epochs of its leaders",
        lambda c: yes_if(c.forgets_topic_ids),
    ),
    "commits while it collects": Fact(
        "members are of Kafka's Java client, to 3.9 or from 4.2 on, with group.protocol=consumer, and commit by themselves",
        lambda c: yes_if(c.commits_while_it_collects),
    ),
    "one beyond": Fact(
        "the committed offset is the one behind the member's position", could=lambda _: Tristate.UNKNOWN
    ),
    "committed one beyond it": Fact(
        "a member whose position was this record committed the offset behind it", could=lambda _: Tristate.UNKNOWN
    ),
    "hands on": Fact(
        "the group sends records that it could not process to a retry topic", lambda c: yes_if(c.hands_on)
    ),
    "hands on without waiting": Fact(
        "the group commits past a record that it sent to the retry topic, without waiting for the acknowledgement",
        lambda c: yes_if(c.hands_on_unawaited),
    ),
    "left behind": Fact(
        "the record was sent to the retry topic, and was never acknowledged or seen there", could=lambda h: h.rebalanced
    ),
    "sent again": Fact(
        "the record was sent to the retry topic again, because the first send was never acknowledged",
        could=lambda h: h.rebalanced,
    ),
    "crcs are not checked": Fact("check.crcs=false", lambda c: yes_if(c.crcs_unchecked)),
    "an assignor of somebody else": Fact(
        "partition.assignment.strategy or group.remote.assignor names an assignor that is none of Kafka's own",
        lambda c: yes_if(c.other_assignor),
    ),
    "resets to latest": Fact("auto.offset.reset=latest", lambda c: yes_if(c.resets_to_latest)),
    "member was gone": Fact(
        "in between, the member that had the record died, gave up the partition or lost it",
        could=lambda h: h.rebalanced,
    ),
    "was given to nobody, or its member was gone": Fact(
        "no member recorded that it was given the record, or the one that was died, gave up the partition or lost it",
        could=lambda h: h.rebalanced,
    ),
    "commits of one alone": Fact(
        "while the partition had two owners, at most one of them had a commit accepted", could=lambda h: h.rebalanced
    ),
    "coordinator out": Fact(
        "when the second owner began, or shortly before, a fault that was aimed at the group's coordinator or that "
        "hit every broker killed, froze or cut off the coordinator, for as long as a session less a heartbeat (of messages "
        "that wait: as long as they waited without a pause): it may have been replaced, and its members evicted, without "
        "their knowing; unknown for a fault on other brokers",
        could=lambda h: possibly(h.moved),
    ),
    "one instance id twice": Fact(
        "both owners have the same group.instance.id, in the classic protocol", could=lambda h: h.rebalanced
    ),
    "position was sought": Fact("the member had called seek", could=lambda h: h.rebalanced),
    "position was reset": Fact(
        "auto.offset.reset put the member's position beyond the record", could=lambda h: h.rebalanced
    ),
    "stands twice": Fact("the record is in the log more than once", could=lambda h: h.rebalanced),
    "share group begins at the end": Fact("share.auto.offset.reset=latest", lambda c: yes_if(c.share_latest)),
    "start was beyond it": Fact(
        "the first start offset that the share group was seen to have is beyond the record",
        could=lambda h: h.rebalanced,
    ),
    "count was in memory alone": Fact(
        "the delivery before had not been released, as far as its member was answered, so its count may never have been "
        "written",
        could=lambda h: h.rebalanced,
    ),
    "delivered as often as the limit allows": Fact(
        "the delivery count that came with the record was the limit", could=lambda _: Tristate.UNKNOWN
    ),
    "one delivery short of the limit": Fact(
        "the delivery count that came with the record was one less than the limit", could=lambda _: Tristate.UNKNOWN
    ),
    "leader changed while it was held": Fact(
        "the partition's leader changed after the first of the two deliveries may have been acquired, and before the second "
        "was given",
        could=lambda h: possibly(h.moved),
    ),
    "share session may have ended": Fact(
        "a fault that stops, freezes or cuts off a node was at work from 10 s before the first of the two deliveries until "
        "the second: the leader may have lost the connection to the member that held the record",
        could=lambda h: possibly(h.moved),
    ),
    "dead-letter queue may have been out of reach": Fact(
        "a fault that stops, freezes or cuts off a node was at work for 10 s or longer, from 10 s before the record was last "
        "given on",
        could=lambda h: possibly(h.moved),
    ),
    "offset given away by an election": Fact(
        "there was an unclean election of the partition, so another record may have had the offset before",
        could=lambda h: possibly(h.unclean),
    ),
    "group was troubled": Fact(
        "so shortly before that members may still have learnt of it, there was a fault of any kind, a change of the leader "
        "of the partition or of a partition of __consumer_offsets, or a replica out of sync",
        could=lambda _: Tristate.UNKNOWN,
    ),
    "within a session": Fact(
        "the last owner died, and its session had not timed out yet", could=lambda h: h.rebalanced
    ),
    "a gone member may be waited for": Fact(
        "the last owner lives, and another member of the group, of a classic protocol, had died or was static and had gone "
        "less than a session before",
        could=lambda h: h.rebalanced,
    ),
    "an old id may be waited for": Fact(
        "the last owner lives, and had lost the partition less than a session before", could=lambda h: h.rebalanced
    ),
}


# Facts about topics that were deleted, and made again under their names.


LIFE_FACTS: Mapping[str, Fact] = {
    "topic deleted": Fact(
        "the controllers' log says that the topic (by its id) was deleted after the send of the record began, and "
        "the record was acknowledged or seen before a topic of that name existed again",
        could=lambda h: possibly(h.topic_deleted),
    ),
    "topic deleted after the read": Fact(
        "the controllers' log says that the topic (by its id) from which the record was read was deleted after the "
        "read",
        could=lambda h: possibly(h.topic_deleted),
    ),
    "topic of either deleted": Fact(
        "one of the two records was in a topic (by its id) that was deleted, and the other is in a later topic of "
        "that name",
        could=lambda h: possibly(h.topic_deleted),
    ),
    "partitions were added": Fact(
        "the controllers' log says that partitions were added, and by one of the two records a producer had not heard of it",
        could=lambda h: possibly(h.partitions_added),
    ),
    "sent by two producers": Fact("two producers sent the two records", could=lambda _: Tristate.YES),
    "topic made anew in between": Fact(
        "the controllers' log says that the topic was deleted and created again, with another id, between the two "
        "events",
        could=lambda h: possibly(h.topic_deleted),
    ),
    "topic made anew since the other": Fact(
        "the controllers' log says that the topic was deleted and created again, with another id, between the "
        "earlier event and this one",
        could=lambda h: possibly(h.topic_deleted),
    ),
    "led elsewhere below the epochs before": Fact(
        "when the wait began, the topic had been made again under its name, and had a leader in a lower leader epoch than "
        "the topic before, on another broker than the one that led that last",
        could=lambda h: possibly(h.topic_deleted),
    ),
    "name stood for several topics": Fact(
        "the topic was deleted and created again, and it is not known to which of the two an offset of the group "
        "belongs",
        could=lambda h: possibly(h.topic_deleted),
    ),
}


FACTS: Mapping[str, Fact] = {
    **GROUP_FACTS,
    **LIFE_FACTS,
    "keys are ignored": Fact(
        "a producer's partitioner does not look at the key: random, RoundRobinPartitioner, UniformStickyPartitioner, or "
        "partitioner.ignore.keys=true",
        lambda c: any_hash(c, lambda one: one == NO_HASH),
    ),
    "unlike partitioners": Fact(
        "the producers of the topic choose partitions by unlike hashes of the key",
        lambda c: any_hash(c, lambda one: one != c.key_hashes[0]),
    ),
    "acks=0": Fact("the producer waits for no reply", lambda c: yes_if(c.acks == "0")),
    "acks=1": Fact("the producer waits for the leader only", lambda c: yes_if(c.acks == "1")),
    "idempotent": Fact(
        "enable.idempotence is in effect, or the documentation of the client says that it is",
        lambda c: yes_if(c.idempotent),
    ),
    "idempotent by documentation alone": Fact(
        "the Java client is 3.0.0 or 3.1.0, and nothing is set that concerns idempotence: its documentation says that "
        "enable.idempotence is in effect, and it is not",
        lambda c: yes_if(c.by_documentation_alone),
    ),
    "memory of expired batches is used again": Fact(
        "the producer is of Kafka's Java client 2.8.0 to 3.9.1, 4.0.0, 4.0.1, 4.1.0 or 4.1.1, which gives the memory of a "
        "batch that expires to another one, although its request may still be written",
        lambda c: yes_if(c.uses_memory_again),
    ),
    "an expired send had gone there": Fact(
        "a send of the same producer to the partition where the record was found expired (delivery.timeout.ms) before the "
        "record's own send ended, and no longer before it began than a request lasts (request.timeout.ms)",
        could=lambda _: Tristate.UNKNOWN,
    ),
    "retries": Fact("the producer sends a record again if the send failed", lambda c: yes_if(c.retries)),
    "several in flight": Fact("max.in.flight.requests.per.connection > 1", lambda c: yes_if(c.several_in_flight)),
    "several per batch": Fact("the producer sends several records in a batch", lambda c: yes_if(c.several_per_batch)),
    "refused by brokers": Fact(
        "the brokers, not the client, refuse the records that the trial makes wrong",
        lambda c: yes_if(c.refused_by_brokers),
    ),
    "librdkafka": Fact(
        "the producer uses librdkafka", lambda c: Tristate.UNKNOWN if c.other_library else yes_if(c.librdkafka)
    ),
    "its reader uses librdkafka": Fact(
        "who waited is a reader of prozess or a member of a group of librdkafka's; unknown of programs of yours and of tests",
        could=lambda _: Tristate.UNKNOWN,
    ),
    "transactions before version 2": Fact(
        "there are transactions, and they are not of version 2 (KIP-890)", lambda c: yes_if(c.transactions_before_v2)
    ),
    "lifo": Fact("queuing.strategy=lifo (librdkafka)", lambda c: yes_if(c.lifo)),
    "unclean enabled": Fact("unclean.leader.election.enable=true", lambda c: yes_if(c.unclean_enabled)),
    "unclean election asked for": Fact(
        "a fault asked for an unclean election of the partition, and this election was the result",
        could=lambda h: possibly(h.asked),
    ),
    "leader was hampered": Fact(
        "during a part of the send the partition's leader was cut off, frozen or dead, or it was fenced and did not "
        "know that",
        could=lambda h: possibly(h.moved),
    ),
    "brokers to 3.9.0 or 4.0.0": version_fact(
        "a broker is 3.9.0 or older, or 4.0.0", lambda v: v[:3] <= (3, 9, 0) or v[:3] == (4, 0, 0)
    ),
    "brokers to 3.4": version_fact("a broker is 3.4 or older", lambda v: v[:2] <= (3, 4)),
    "brokers 2.7.0 to 2.8.0": version_fact(
        "a broker is 2.7.0, 2.7.1 or 2.8.0", lambda v: v[:3] in ((2, 7, 0), (2, 7, 1), (2, 8, 0))
    ),
    "brokers to 3.4.0": version_fact("a broker is 3.4.0 or older", lambda v: v[:3] <= (3, 4, 0)),
    "committed": Fact(
        "the record was acknowledged with acks=all, a consumer read it, or the high watermark was seen above it",
        could=lambda _: Tristate.UNKNOWN,
    ),
    "still unreplicated": Fact(
        "the record was not committed, and a later leader never had it, or the leader that acknowledged it lost its "
        "data",
        could=lambda h: possibly(h.moved, h.destroyed),
    ),
    "given up": Fact("the client did not learn how the send ended", could=lambda _: Tristate.UNKNOWN),
    "leader changed": Fact(
        "the partition's leader changed after the send began, or so shortly before that the client may not have "
        "known it",
        could=lambda h: possibly(h.moved),
    ),
    "leader changed during the send": Fact(
        "the partition's leader changed after the send began, or shortly before, and not after the client had "
        "learnt how the send ended",
        could=lambda h: possibly(h.moved),
    ),
    "leader may have refused": Fact(
        "the partition's leader changed, or its topic was deleted, during the send; or the leader (also the first one, or "
        "one that came back from a fault) had not answered anybody as leader yet when the send began, so it may have refused "
        "this send and taken a later one",
        could=lambda _: Tristate.UNKNOWN,
    ),
    "cutoff": Fact(
        "there was an unclean election after the record was written, and the record's offset is not below the start "
        "of the new leader epoch",
        could=lambda h: possibly(h.unclean),
    ),
    "cutoff of a missing record": Fact(
        "the record is in no log, and a later unclean election began a leader epoch without it: later than the "
        "epoch in which a consumer read the record, or, if none did, than that of every leader that may have "
        "acknowledged it",
        could=lambda h: possibly(h.unclean),
    ),
    "cutoff after the read": Fact(
        "the log lacks the record, and an unclean election began a later leader epoch than the one in which a "
        "consumer read it; if that epoch is not known: there was an unclean election after the read, and the "
        "record's offset is not below the start of the new epoch",
        could=lambda h: possibly(h.unclean),
    ),
    "cutoff of either": Fact(
        "there was an unclean election after the first of the two records was sent or seen; if one of the two is in "
        "the log, the election must have removed the other one",
        could=lambda h: possibly(h.unclean),
    ),
    "unclean between the answers": Fact(
        "an unclean election began a leader epoch that is later than the epoch of the earlier answer, and not later "
        "than that of the later answer",
        could=lambda h: possibly(h.unclean),
    ),
    "unclean after the step": Fact(
        "a member processed another record at this offset, and there was an unclean election after that",
        could=lambda h: possibly(h.unclean),
    ),
    "unclean since the other": Fact(
        "there was an unclean election between the earlier event and this one; unknown if it was well before the earlier one",
        could=lambda h: possibly(h.unclean),
    ),
    "wiped since the other": Fact(
        "every replica that could become leader lost its data between the earlier event and this one",
        could=lambda h: possibly(h.destroyed),
    ),
    "unclean before": Fact(
        "there was an unclean election between the two reads; unknown if it was well before the first one",
        could=lambda h: possibly(h.unclean),
    ),
    "wiped": Fact(
        "every replica that could become leader lost its data after the send began",
        could=lambda h: possibly(h.destroyed),
    ),
    "wiped of either": Fact(
        "every replica that could become leader lost its data after the first of the two records was sent or seen; "
        "if one of the two is in the log, this is asked of the other one",
        could=lambda h: possibly(h.destroyed),
    ),
    "wiped after the read": Fact(
        "every replica that could become leader lost its data after a consumer had read the record",
        could=lambda h: possibly(h.destroyed),
    ),
    "wiped after it was there": Fact(
        "every replica that could become leader lost its data after a consumer had read the record, or after it was "
        "acknowledged: what was fetched before may be given later; unknown if nobody knows how a send of before ended",
        could=lambda h: possibly(h.destroyed),
    ),
    "wiped before": Fact(
        "every replica that could become leader lost its data between the two reads",
        could=lambda h: possibly(h.destroyed),
    ),
    "sent later": Fact(
        "the record was sent after the later of the two reads", could=lambda h: possibly(h.unclean, h.destroyed)
    ),
    "bumped": Fact(
        "the two records are in batches with the same producer id and different producer epochs, outside transactions",
        could=lambda _: Tristate.UNKNOWN,
    ),
    "without a producer id": Fact(
        "the two records are in batches without a producer id", could=lambda _: Tristate.UNKNOWN
    ),
    "acknowledged without an offset": Fact(
        "the record was acknowledged, and nobody learned an offset of it", could=lambda _: Tristate.UNKNOWN
    ),
    "log begins with a later sequence": Fact(
        "the first batch of some producer in the partition's log has a first sequence above 0, and nobody learned an offset "
        "of the record",
        could=lambda _: Tristate.UNKNOWN,
    ),
    "forgot": Fact("the send took longer than producer.id.expiration.ms", could=lambda h: possibly(h.forgotten)),
    "may have expired": Fact(
        "the snapshot lacks a producer whose sends began longer ago than producer.id.expiration.ms",
        could=lambda h: possibly(h.forgotten),
    ),
    "offsets may have expired": Fact(
        "from the earlier event to this one it was as long as the offsets of a group without members are kept "
        "(offsets.retention.minutes), and for so long the group accepted no commit of a member; when a group was without "
        "members is not recorded",
        could=lambda h: possibly(h.offsets_expired),
    ),
    "log start passed": Fact(
        "by then the log start had been seen beyond the consumer's position; unknown if it was seen there only later",
        could=lambda h: possibly(h.deleted),
    ),
    "retention is limited": Fact(
        "the topic has a retention.ms or a retention.bytes", lambda c: yes_if(c.retention_limited)
    ),
    "taken": Fact("brokers deleted the segment, or began to", could=lambda h: Tristate.UNKNOWN),
    "fault since it was let go": Fact(
        "a fault of any kind was active between then and the time when the object had to be gone",
        could=lambda h: possibly(h.faulted),
    ),
    "tiered storage": Fact("the topic has remote.storage.enable=true (KIP-405)", lambda c: yes_if(c.tiered)),
    "remote store harmed": Fact(
        "the offset was copied to the remote store, and in between a fault kept brokers from the store, or from an object of "
        "this partition in it",
        could=lambda h: possibly(h.store_harmed),
    ),
    "read beyond delete.retention.ms": Fact(
        "from the older record to its end, the audit took as long as tombstones are kept (delete.retention.ms)",
        could=lambda h: possibly(h.audited_slowly),
    ),
    "a replica away beyond delete.retention.ms": Fact(
        "a broker became leader that a fault had kept away from before the tombstone was written until after it had "
        "expired (delete.retention.ms)",
        could=lambda h: possibly(h.long_away),
    ),
    "sent before it was read": Fact(
        "the record was sent before anybody read it: what is wrong is where another record stands",
        could=lambda _: Tristate.UNKNOWN,
    ),
    "found along the log": Fact(
        "the leader epoch falls along a log, or along what a reader got of it, and not in a broker's answers",
        could=lambda _: Tristate.UNKNOWN,
    ),
    "found by a consumer": Fact(
        "the leader epoch falls along what a consumer got, which may be of two states of the log",
        could=lambda _: Tristate.UNKNOWN,
    ),
    "read_uncommitted": Fact(
        "the consumer that read the record uses read_uncommitted", could=lambda h: possibly(h.read_uncommitted)
    ),
    "read_uncommitted inside": Fact(
        "the transaction that read the record uses read_uncommitted",
        could=lambda h: possibly(h.read_uncommitted_inside),
    ),
    "may have begun behind it": Fact(
        "no consumer is known to have come by: each may have begun behind the record", could=lambda _: Tristate.UNKNOWN
    ),
    "may be a second copy": Fact(
        "the log was compacted, so the record may be a second copy whose first copy is gone",
        could=lambda _: Tristate.UNKNOWN,
    ),
    "order of writes": Fact("a step of the circle is the order of two writes", could=lambda _: Tristate.UNKNOWN),
    "unsettled": Fact(
        "no 20 s of that time were free of faults, leader changes and replicas out of sync",
        could=lambda _: Tristate.UNKNOWN,
    ),
    "held up": Fact(
        "between the beginning and the end of the wait there was no stretch, as long as its bound, that was free of faults, "
        "and in which every partition of the cell had the same leader all the time and every replica in sync",
        could=lambda _: Tristate.UNKNOWN,
    ),
    "call held up": Fact(
        "the same; or the broker that was asked is in sync in no partition of the cell, so nothing shows that it was well",
        could=lambda _: Tristate.UNKNOWN,
    ),
    "partition held up": Fact(
        "between the beginning and the end of the wait there was no stretch, as long as its bound, that was free of faults, "
        "and in which the partition was there, and had the same leader all the time and every replica in sync",
        could=lambda _: Tristate.UNKNOWN,
    ),
    "may have been carried out later": Fact(
        "the call that set the value ended only after the other value was there, or never",
        could=lambda _: Tristate.UNKNOWN,
    ),
    "whoever waited stood still": Fact(
        "the process of the client that waited stood still in between, so it may not have noticed that the wait was over",
        could=lambda _: Tristate.NO,
    ),
    "the consumer's seeks are not recorded": Fact(
        "the consumer is a program of yours (`consumer.command`), so it is not known whether it sought or reset its position",
        could=lambda _: Tristate.NO,  # what it printed shows all the same that nothing of the kind was seen
    ),
    "reader stood still": Fact(
        "the consumer's own process stood still in between, so it is not known what it asked for",
        could=lambda _: Tristate.UNKNOWN,
    ),
    "last stable offset stood still": Fact(
        "the leaders reported the same last stable offset all the time", could=lambda _: Tristate.UNKNOWN
    ),
    "no majority of controllers": Fact(
        "some time in between, faults hit so many of those that keep the cluster's metadata at once that the others may have "
        "been no majority",
        could=lambda h: possibly(h.faulted),
    ),
    "the machine stood still": Fact(
        "no process of the trial was heard of for more than 1 s in between, so the machine stood still",
        could=lambda _: Tristate.NO,
    ),
    "within the quorum's fetch timeout": Fact(
        "the controller went on for no longer than 1.5 times controller.quorum.fetch.timeout.ms, and 2 s in which it was not "
        "asked",
        could=lambda h: possibly(h.faulted),
    ),
    "controller was cut off": Fact(
        "a fault cut the controller that went on off from somebody", could=lambda h: possibly(h.faulted)
    ),
    "brokers to 3.6": version_fact("a broker is 3.6 or older", lambda v: v[:2] <= (3, 6)),
    "brokers to 4.4": version_fact("a broker is 4.4 or older", lambda v: v[:2] <= (4, 4)),
    "brokers to 3.5": version_fact("a broker is 3.5 or older", lambda v: v[:2] <= (3, 5)),
    "that election was unclean": Fact(
        "the controllers' log says that the leader of this epoch came from outside the ISR and the ELR",
        could=lambda h: possibly(h.unclean),
    ),
    "unclean before it was read": Fact(
        "there was an unclean election of the partition after the record was sent and before it was read, so "
        "markers of its transaction may be gone",
        could=lambda h: possibly(h.unclean),
    ),
    "transaction state lost": Fact(
        "one fault destroyed the data of every broker, and with it __transaction_state; unknown if only some "
        "replicas lost data, or if an unclean election was asked for",
        could=lambda h: possibly(h.destroyed),
    ),
    "transaction decision lost": Fact(
        "as `transaction state lost`, and also up to 10 s after the transaction ended, because its markers may not "
        "have been written yet",
        could=lambda h: possibly(h.destroyed),
    ),
    "group state lost": Fact(
        "one fault destroyed the data of every broker, and with it __consumer_offsets; unknown if only some "
        "replicas lost data, or if an unclean election was asked for",
        could=lambda h: possibly(h.destroyed),
    ),
    "share state lost": Fact(
        "one fault destroyed the data of every broker, and with it __share_group_state; unknown if only some replicas lost "
        "data, or if an unclean election was asked for",
        could=lambda h: possibly(h.destroyed),
    ),
    "group lost by every broker": Fact(
        "one fault destroyed the data of every broker, and with it __consumer_offsets",
        could=lambda h: possibly(h.destroyed),
    ),
    "owner since before the loss": Fact(
        "the other owner had the partition since before the fault that may have destroyed __consumer_offsets",
        could=lambda h: possibly(h.destroyed),
    ),
    "ended by a late request": Fact(
        "a transaction marker of the record's producer id and epoch was written before the client had asked for any "
        "end of this transaction",
        could=lambda _: Tristate.UNKNOWN,
    ),
    "an open one was ended by a late request": Fact(
        "the same of the record, or of the one of an open transaction in front of it", could=lambda _: Tristate.UNKNOWN
    ),
    "that broker may have been out": Fact(
        "a fault may have stopped, frozen or cut off the broker between the deletion and the time when its disk was read",
        could=lambda _: Tristate.UNKNOWN,
    ),
    "a clock may have been ahead": Fact(
        "a fault may have moved the wall clock of a broker",
        could=lambda _: Tristate.UNKNOWN,
    ),
    "a clock may have ended it": Fact(
        "a fault may have moved the wall clock by which the coordinator of an aborted transaction in front of the record "
        "counts its timeout",
        could=lambda h: possibly(h.faulted),
    ),
    "behind its own end": Fact(
        "the record stands behind a transaction marker of its producer id and epoch that was written after the client had "
        "asked for the end of the record's own transaction",
        could=lambda _: Tristate.UNKNOWN,
    ),
    "reported by a deposed coordinator": Fact(
        "the copier's last request for its group's committed offset was answered with an older one, by a broker "
        "that no longer led the group's partition of __consumer_offsets",
        could=lambda _: Tristate.UNKNOWN,
    ),
    "followed a change of leader, then led without it": Fact(
        "a replica that was in sync from the acknowledgement on followed another new leader, and then led in an epoch that "
        "began without the record; where its own log was read, it says that the replica cut the record off meanwhile, under "
        "a later leader than the one that acknowledged it",
        could=lambda h: possibly(h.moved),
    ),
    "followed its new leader, then led without it": Fact(
        "a replica that was in sync from the acknowledgement on followed the leader that gave it, which was new then, and "
        "then led in an epoch that began without the record; where its own log was read, it says that the replica cut the "
        "record off under that very leader",
        could=lambda h: possibly(h.moved),
    ),
    "cut by the leader that acknowledged it": Fact(
        "a replica says in its own log that it cut the record off after the acknowledgement, under the leader that gave it, "
        "and then it led in an epoch that began without the record",
        could=lambda h: possibly(h.moved),
    ),
    "cut though its leader had it, then led without it": Fact(
        "a replica that was in sync says in its own log that it cut the record off after its acknowledgement by acks=all, "
        "under a later leader that had it by its own log, and then it led in an epoch that began without the record",
        could=lambda h: possibly(h.moved),
    ),
    "markers refused": Fact(
        "a broker says in its own log that it refused WriteTxnMarkers meanwhile, because it does not know the version",
        could=lambda h: possibly(h.several_releases),
    ),
    "registered anew, then led without it": Fact(
        "a broker that was started again after the acknowledgement led in an epoch that began without the record",
        could=lambda h: possibly(h.moved),
    ),
    "rejoined with nothing, then led without it": Fact(
        "a replica whose copy was destroyed after the acknowledgement came back into the ISR, and led in an epoch that "
        "began without the record",
        could=lambda h: possibly(h.destroyed),
    ),
    "older epoch behind a newer": Fact(
        "some replica has a batch of an older leader epoch behind the start of a newer epoch, at the record's "
        "offset or before it",
        could=lambda _: Tristate.UNKNOWN,
    ),
    "given after its leader was replaced": Fact(
        "a consumer read the record in the leader epoch of a leader that had already been replaced, or a follower took back "
        "a high watermark above the record, by its own log",
        could=lambda h: possibly(h.moved),
    ),
    "left open": Fact(
        "at the end of the run no marker ends the transaction that begins where the last stable offset stood still",
        could=lambda _: Tristate.UNKNOWN,
    ),
    "delayed": Fact(
        "a node was frozen or cut off during the record's transaction or the one before it",
        could=lambda _: Tristate.UNKNOWN,
    ),
    "an earlier end took long": Fact(
        "the record's client had asked for the end of an earlier transaction, and was answered after a second or never",
        could=lambda _: Tristate.UNKNOWN,
    ),
    "its send took long": Fact(
        "the send of the record took a second or more, failed or never ended", could=lambda _: Tristate.UNKNOWN
    ),
    "faults are excepted": Fact(
        "the trial's delivery bound does not count what a fault may have delayed", lambda c: yes_if(c.faults_excepted)
    ),
    "fault at work": Fact(
        "a fault of any kind was active between the send of the record and its deadline, or had been undone less "
        "than the stated recovery time before the send; a fault that hit only the measuring consumers does not count",
        could=lambda h: possibly(h.faulted),
    ),
    "unmeasured": Fact(
        "the record's producer, or a consumer that should have read it, stood still or was dead long enough to "
        "explain the delay, or the record is missing and the audit did not end: so it is not known whether it was "
        "late",
        could=lambda _: Tristate.UNKNOWN,
    ),
    "out of sync at the end": Fact(
        "one of the two replicas was not in the ISR at the end of the run", could=lambda _: Tristate.UNKNOWN
    ),
}


def could_hold(name: str, configuration: CellConfiguration, happened: Happened) -> Tristate:
    """Returns whether the fact could hold of any witness there might have been."""
    fact = FACTS[name]
    if fact.of_configuration is not None:
        return fact.of_configuration(configuration)
    assert fact.could is not None, name
    return fact.could(happened)
