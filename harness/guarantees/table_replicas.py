"""The guarantee table, part replicas: what copies of one partition promise one another."""

from harness.guarantees.rules import Effect, Guarantee, Rule

_DIVERGED = Guarantee(
    anomaly="diverged",
    promise="All in-sync replicas of a partition hold the same batches, below the high watermark.",
    found=(
        "1 batch differs between two replicas, below the high watermark",
        "{n} batches differ between replicas, below the high watermark",
    ),
    did=("left 1 batch different on two replicas", "left {n} batches different on replicas"),
    nothing="no batch of two replicas was compared",
    # Compacted topics (their copies are cleaned at different moments) and topics with a single replica.
    nothing_is_unknown=False,
    source="Kafka documentation, design, 'Replicated logs'; KIP-101, KIP-279: followers truncate by leader epoch, after "
    "unclean elections too",
    rules=(
        Rule(
            id="diverged/out-of-sync",
            effect=Effect.NOT_APPLICABLE,
            when=("out of sync at the end",),
            label="a replica out of sync",
            reason="one of the two was not in the ISR at the end, so it had not caught up yet",
            source="Kafka documentation, design, 'Replicated logs': only in-sync replicas are complete",
        ),
        Rule(
            id="diverged/KAFKA-18991",
            effect=Effect.DEFECT,
            when=("brokers to 3.9.0 or 4.0.0", "leader changed"),
            label="KAFKA-18991",
            reason="a follower may append records of an older leader epoch after the leader changed",
            source="KAFKA-18991, KAFKA-18723",
            defect="KAFKA-18991, fixed after 3.9.0 and 4.0.0",
        ),
    ),
)
REPLICAS = (_DIVERGED,)
"""In the order of reports."""
