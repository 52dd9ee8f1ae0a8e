"""The guarantee table, part compaction: what a compacted topic keeps of each key."""

from harness.guarantees.rules import Guarantee, Rule, hard

_DOCUMENTATION = "Kafka documentation, design, 'What guarantees does log compaction provide?'"


def _lost(prefix: str) -> tuple[Rule, ...]:
    """A record that may be lost may be missing after compaction too."""
    return (
        Rule(
            id=f"{prefix}/acks-0",
            when=("acks=0", "not committed"),
            label="acks=0",
            reason="acks=0 waits for no reply, so a loss needs no fault",
            change="acks=all",
            source="Kafka documentation, producer configuration acks",
        ),
        Rule(
            id=f"{prefix}/acks-1",
            when=("acks=1", "tail"),
            label="acks=1",
            reason="acks=1 waits for the leader only",
            change="acks=all",
            source="Kafka documentation, producer configuration acks; see lost/acks-1",
        ),
        *hard(prefix, unclean="cutoff", wiped="wiped"),
    )


COMPACTION = (
    Guarantee(
        anomaly="compacted-away",
        promise="Compaction keeps at least the last acknowledged value of every key.",
        found=("the last value of 1 key is gone", "the last values of {n} keys are gone"),
        did=("lost the last value of 1 key", "lost the last values of {n} keys"),
        undone="would have kept them",
        absence=True,
        nothing="no record with a key was acknowledged",
        source=_DOCUMENTATION,
        rules=_lost("compacted-away"),
        workloads=("compaction",),
    ),
    Guarantee(
        anomaly="tombstone-lost",
        promise="A deleted key stays deleted: its older values go before, or with, its tombstone.",
        found=("1 deleted key came back", "{n} deleted keys came back"),
        did=("brought 1 deleted key back", "brought {n} deleted keys back"),
        undone="would have kept them deleted",
        absence=True,
        nothing="no tombstone was acknowledged",
        nothing_is_unknown=False,
        source=_DOCUMENTATION,
        rules=(
            *_lost("tombstone-lost"),
            Rule(
                id="tombstone-lost/slow-audit",
                when=("read beyond delete.retention.ms",),
                label="a read slower than delete.retention.ms",
                reason="the older value was read before, and the tombstone expired before the reader came to it",
                change="a longer delete.retention.ms",
                source=_DOCUMENTATION + ": provided the consumer reaches the head of the log in less than it",
            ),
            Rule(
                id="tombstone-lost/replica-away",
                when=("a replica away beyond delete.retention.ms",),
                label="a replica away longer than delete.retention.ms",
                reason="it came back with the older value, after the tombstone had expired on the others, and then led",
                change="a longer delete.retention.ms",
                source="reasoned, not seen: a follower fetches from its own log end on and is not told what was cleaned",
            ),
        ),
        workloads=("compaction",),
    ),
)
