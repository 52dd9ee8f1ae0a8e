"""Orders anomalies by the harm that they do, so that a sentence about several begins with the worst.

The number of witnesses is no measure of harm: 1,140 dirty reads of records that were later removed beside 570 acknowledged
records that are gone are the lesser matter, since every reader can read again and nobody can restore what is gone.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

HARM: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "a record is gone, or never reaches its reader: nothing downstream can restore it": (
            *("lost", "lost-transaction", "unreported", "compacted-away", "not-exactly-once", "unprocessed"),
            *("undelivered", "given-up", "dead-letter-missing", "skipped", "invisible", "expired-early", "remote-gap"),
        ),
        "a record is not the one that was sent, or replicas disagree about it": (
            *("corrupt", "diverged", "phantom", "resurrected", "tombstone-lost", "offset-conflict", "misplaced"),
            *("snapshot-conflict", "remote-conflict", "unenforced"),
        ),
        "a transaction shows in part, or shows what was aborted": (
            *("torn", "zombie-write", "aborted-read", "dirty-read", "early-read", "own-read", "information-cycle"),
            "write-cycle",
        ),
        "a record comes twice or in another order, which an idempotent reader survives": (
            *("duplicate", "reprocessed", "reordered", "out-of-sequence", "time-travel", "rewound", "two-owners"),
            *(
                "split-key",
                "accepted-again",
                "rejected-again",
                "two-holders",
                "share-start-regression",
                "dead-letter-extra",
                "commit-regression",
                "commit-ahead",
                "mistimed",
            ),
        ),
        "a server did what makes loss possible, and no client was harmed by that alone": (
            *("unclean", "under-acknowledged", "watermark-regression", "epoch-regression", "two-controllers"),
            *("illegal-transition", "illegal-transaction-state", "illegal-group-state"),
            "illegal-share-state",
            *("stale-controller", "not-linearizable", "log-start-regression", "undeleted", "remote-left", "miscounted"),
        ),
        "something waits longer than it should: all of it is still there": (
            *("leaderless", "stuck", "hanging", "orphaned", "stalled", "starved", "unstable", "unanswered"),
            *("collateral", "late", "uncopied"),
        ),
    }
)
"""What is harmed, the worst first → the anomalies that harm it."""

_RANK = {anomaly: rank for rank, anomalies in enumerate(HARM.values()) for anomaly in anomalies}


def harm_rank(anomaly: str) -> int:
    """Returns the rank of an anomaly's harm: 0 is the worst. What no guarantee of the table is about comes last."""
    return _RANK.get(anomaly, len(HARM))


def worst_first(counts: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Sorts (anomaly, count): what harms most first, and of what harms alike the most frequent first."""
    return sorted(counts, key=lambda pair: (harm_rank(pair[0]), -pair[1]))
