"""The guarantee table, part replicas: what copies of one partition promise one another."""

from harness.guarantees.rules import Effect, Guarantee, Rule, older_epoch_appended

_DIVERGED = Guarantee(
    anomaly="diverged",
    promise="All in-sync replicas of a partition hold the same batches, below the high watermark.",
    found=(
        "1 batch differs between two replicas, below the high watermark",
        "{n} batches differ between replicas, below the high watermark",
    ),
    did=("left 1 batch different on two replicas", "left {n} batches different on replicas"),
    nothing="no batch of two replicas was compared",
    # Topics with a single replica.
    nothing_is_unknown=False,
    source="Kafka documentation, design, 'Replicated logs'; KIP-101, KIP-279: followers truncate by leader epoch, after "
    "unclean elections too; of compacted topics whatever the cleaner left (MemoryRecords.filterTo)",
    rules=(
        Rule(
            id="diverged/out-of-sync",
            effect=Effect.NOT_APPLICABLE,
            when=("out of sync at the end",),
            label="a replica out of sync",
            reason="one of the two was not in the ISR at the end, so it had not caught up yet",
            source="Kafka documentation, design, 'Replicated logs': only in-sync replicas are complete",
        ),
        older_epoch_appended("diverged"),
    ),
)
_SNAPSHOT_CONFLICT = Guarantee(
    anomaly="snapshot-conflict",
    promise="What brokers write down of producers is what their logs say.",
    found=(
        "1 entry of a producer snapshot contradicts the batches below it in the same replica",
        "{n} entries of producer snapshots contradict the batches below them in the same replica",
    ),
    did=("wrote 1 producer down wrongly", "wrote producers down wrongly {n} times"),
    nothing="no replica had a snapshot with a producer in it",
    # Compacted topics, topics without idempotent producers, and logs whose segments were never rolled.
    nothing_is_unknown=False,
    source="KIP-98, 'Producer ID mapping': what a broker knows of producers is found again from its log, beginning with the "
    "last snapshot; ProducerStateManager.takeSnapshot",
    rules=(
        Rule(
            id="snapshot-conflict/expired",
            effect=Effect.NOT_APPLICABLE,
            when=("may have expired",),
            label="expired producer ids",
            reason="the broker may have forgotten the producer rightly (producer.id.expiration.ms)",
            source="KIP-854; ProducerStateManager.removeExpiredProducers",
        ),
    ),
)
REPLICAS = (_DIVERGED, _SNAPSHOT_CONFLICT)
"""In the order of reports."""
