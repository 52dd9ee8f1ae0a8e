"""Every checker is listed here: its anomaly, the kernel that finds it, and how the kernel is given its histories.

A new checker is one file with its kernel and one entry here, or an entry point of another package (`docs/extending.md`).
"""

from collections.abc import Sequence
from functools import partial

from prozess.checkers.agreement import nothing_where_agreed
from prozess.checkers.chunked import partitions, transactions
from prozess.checkers.groups import assignments
from prozess.checkers.groups.owners_and_commits import commit_ahead, commit_regression, orphaned, two_owners
from prozess.checkers.groups.processing import reprocessed, unprocessed
from prozess.checkers.log import keys
from prozess.checkers.log.audits import invisible
from prozess.checkers.log.compaction import compacted_away, tombstone_lost
from prozess.checkers.log.deletions import undeleted
from prozess.checkers.log.duplicates import duplicate
from prozess.checkers.log.epochs import epoch_regression, epoch_regression_of_each
from prozess.checkers.log.leadership import (
    two_controllers,
    unclean,
    unclean_of_each,
    under_acknowledged,
    under_acknowledged_of_each,
    watermark_regression,
)
from prozess.checkers.log.log_starts import expired_early, log_start_regression, log_start_regression_of_each
from prozess.checkers.log.losses import lost, unseen
from prozess.checkers.log.order import offset_conflict, reordered
from prozess.checkers.log.producer_snapshots import snapshot_conflict, snapshot_conflict_of_each
from prozess.checkers.log.real_time import time_travel
from prozess.checkers.log.records import collateral, corrupt, misplaced, phantom, resurrected, unenforced, unreported
from prozess.checkers.log.replicas import diverged, diverged_of_each
from prozess.checkers.log.sequences import out_of_sequence, out_of_sequence_of_each
from prozess.checkers.log.tier_progress import remote_left, uncopied
from prozess.checkers.log.tiers import remote_conflict, remote_gap
from prozess.checkers.log.time_lookups import mistimed, mistimed_of_each
from prozess.checkers.metadata.illegal import illegal_transition
from prozess.checkers.metadata.illegal_group_state import illegal_group_state
from prozess.checkers.metadata.illegal_share_state import illegal_share_state
from prozess.checkers.metadata.illegal_transaction_state import illegal_transaction_state
from prozess.checkers.progress.acknowledgements import stuck
from prozess.checkers.progress.admin_calls import unanswered
from prozess.checkers.progress.admin_register import not_linearizable
from prozess.checkers.progress.fairness import starved
from prozess.checkers.progress.leaders import leaderless
from prozess.checkers.progress.stability import unstable
from prozess.checkers.progress.succession import stale_controller
from prozess.checkers.progress.transactions import hanging
from prozess.checkers.reading.lateness import late
from prozess.checkers.reading.positions import dirty_read, rewound, skipped, stalled
from prozess.checkers.share.dead_letters import dead_letter_extra, dead_letter_missing
from prozess.checkers.share.given_up import given_up
from prozess.checkers.share.miscounted import miscounted
from prozess.checkers.share.redelivered import accepted_again, rejected_again
from prozess.checkers.share.start_offsets import share_start_regression
from prozess.checkers.share.two_holders import two_holders
from prozess.checkers.share.undelivered import undelivered
from prozess.checkers.transactions.early_reads import early_read
from prozess.checkers.transactions.exactly_once import not_exactly_once
from prozess.checkers.transactions.isolation import (
    aborted_read,
    information_cycle,
    lost_transaction,
    own_read,
    torn,
    write_cycle,
    zombie_write,
)
from prozess.harness import plugins
from prozess.harness.checking.checker import (
    ByPartition,
    CellChecker,
    CellFacts,
    Checker,
    CheckerSet,
    PartitionChecker,
    PieceRules,
)
from prozess.harness.config.configuration import BOUNDED, KEYED
from prozess.harness.errors import BadInput

PIECES = PieceRules(
    may_be_split=partitions.may_be_split,
    perform=partitions.perform,
    remainders=partitions.remainders,
    agreed=nothing_where_agreed,
)
"""How a large partition is checked in pieces, and how small ones are seen to be plain altogether."""
TRANSACTIONS = CellFacts(
    transactions.FACTS, gather=transactions.gather, look=transactions.look, rows=transactions.rows_of_edges
)
"""Which transactions were shown in any partition of the cell, and which may be in cycles."""
POLLS = CellFacts(assignments.FACTS, gather=assignments.gather, look=assignments.look)
"""When each member of the group was seen to poll, in any partition of the cell."""

KEYS = CellFacts(keys.FACTS, gather=keys.gather, look=keys.look)
"""Which keys are in two partitions of the cell, and their records."""

_READ_LOGS = frozenset({"log", "group", "compaction", "transactions", "errors", "recorded"})
_COPIED = frozenset({"exactly-once", "application"})
_SENT_TO = (_READ_LOGS | _COPIED) - {"errors", "transactions"}
"""Where a producer's records are neither made to be refused nor in transactions."""
_of_errors = partial(CellChecker, traits=frozenset({"errors"}))
_of_group = partial(CellChecker, traits=frozenset({"group"}))
_of_shares = partial(CellChecker, traits=frozenset({"share"}), by_partition=ByPartition())
_of_transactions = partial(CellChecker, traits=frozenset({"transactions"}))
_ALONE = ByPartition()
_IN_PAIRS_OR_PIECES = ByPartition(whole_cell_if_retry_topic=True, in_pieces=True)
_BY_CASE = ByPartition(by_case=True, in_parts=True)
_FOR_THE_CELL = ByPartition(judges_cell=True, in_parts=True)

_OWN: dict[str, Checker] = {
    checker.anomaly: checker
    for checker in (
        PartitionChecker(anomaly="lost", kernel=lost, judged_when_plain=("records",)),
        PartitionChecker(anomaly="duplicate", kernel=duplicate, judged_when_plain=("records",)),
        PartitionChecker(anomaly="reordered", kernel=reordered, judged_when_plain=("records",)),
        PartitionChecker(anomaly="offset-conflict", kernel=offset_conflict, judged_when_plain=("acks_all", "reads")),
        PartitionChecker(anomaly="phantom", kernel=phantom, judged_when_plain=("reads",)),
        PartitionChecker(anomaly="corrupt", kernel=corrupt, judged_when_plain=("reads",)),
        PartitionChecker(anomaly="misplaced", kernel=misplaced, judged_when_plain=("reads",)),
        PartitionChecker(anomaly="resurrected", kernel=resurrected, judged_when_plain=()),
        PartitionChecker(anomaly="dirty-read", kernel=dirty_read, judged_when_plain=("consumed",)),
        PartitionChecker(anomaly="invisible", kernel=invisible, judged_when_plain=("of_no_transaction",)),
        PartitionChecker(anomaly="skipped", kernel=skipped, judged_when_plain=("consumed",)),
        PartitionChecker(anomaly="rewound", kernel=rewound, judged_when_plain=("reads",)),
        PartitionChecker(anomaly="unreported", kernel=unreported, judged_when_plain=()),
        PartitionChecker(anomaly="diverged", kernel=diverged, side_by_side=diverged_of_each),
        PartitionChecker(anomaly="remote-gap", kernel=remote_gap),
        PartitionChecker(anomaly="remote-conflict", kernel=remote_conflict),
        PartitionChecker(anomaly="remote-left", kernel=remote_left),
        PartitionChecker(anomaly="uncopied", kernel=uncopied),
        PartitionChecker(anomaly="snapshot-conflict", kernel=snapshot_conflict, side_by_side=snapshot_conflict_of_each),
        PartitionChecker(anomaly="out-of-sequence", kernel=out_of_sequence, side_by_side=out_of_sequence_of_each),
        PartitionChecker(anomaly="time-travel", kernel=time_travel, judged_when_plain=("timed", "timed_reads")),
        PartitionChecker(anomaly="watermark-regression", kernel=watermark_regression),
        PartitionChecker(
            anomaly="log-start-regression", kernel=log_start_regression, side_by_side=log_start_regression_of_each
        ),
        PartitionChecker(anomaly="expired-early", kernel=expired_early),
        PartitionChecker(anomaly="undeleted", kernel=undeleted),
        PartitionChecker(anomaly="mistimed", kernel=mistimed, side_by_side=mistimed_of_each),
        PartitionChecker(
            anomaly="epoch-regression",
            kernel=epoch_regression,
            judged_when_plain=("epochs",),
            side_by_side=epoch_regression_of_each,
        ),
        PartitionChecker(
            anomaly="under-acknowledged",
            kernel=under_acknowledged,
            judged_when_plain=("acks_all",),
            side_by_side=under_acknowledged_of_each,
        ),
        PartitionChecker(anomaly="unclean", kernel=unclean, side_by_side=unclean_of_each),
        PartitionChecker(anomaly="compacted-away", kernel=compacted_away),
        PartitionChecker(anomaly="tombstone-lost", kernel=tombstone_lost),
        CellChecker(anomaly="stalled", kernel=stalled, traits=_READ_LOGS, by_partition=ByPartition(in_pieces=True)),
        _of_errors(anomaly="unenforced", kernel=unenforced),
        _of_errors(anomaly="collateral", kernel=collateral),
        _of_transactions(anomaly="torn", kernel=torn, by_partition=_FOR_THE_CELL, knows=TRANSACTIONS),
        _of_transactions(
            anomaly="lost-transaction", kernel=lost_transaction, by_partition=_FOR_THE_CELL, knows=TRANSACTIONS
        ),
        _of_transactions(anomaly="zombie-write", kernel=zombie_write, by_partition=_FOR_THE_CELL, knows=TRANSACTIONS),
        _of_transactions(anomaly="aborted-read", kernel=aborted_read, by_partition=_BY_CASE, knows=TRANSACTIONS),
        _of_transactions(anomaly="early-read", kernel=early_read, by_partition=_BY_CASE, knows=TRANSACTIONS),
        _of_transactions(anomaly="own-read", kernel=own_read, by_partition=_BY_CASE),
        _of_transactions(anomaly="information-cycle", kernel=information_cycle, knows=TRANSACTIONS),
        _of_transactions(anomaly="write-cycle", kernel=write_cycle, knows=TRANSACTIONS),
        _of_group(anomaly="unprocessed", kernel=unprocessed, by_partition=_IN_PAIRS_OR_PIECES),
        _of_group(anomaly="reprocessed", kernel=reprocessed, by_partition=_IN_PAIRS_OR_PIECES),
        _of_group(anomaly="commit-regression", kernel=commit_regression, by_partition=_ALONE),
        _of_group(anomaly="commit-ahead", kernel=commit_ahead, by_partition=_ALONE),
        _of_group(anomaly="two-owners", kernel=two_owners, by_partition=_ALONE, knows=POLLS),
        _of_group(anomaly="orphaned", kernel=orphaned, by_partition=_ALONE),
        _of_group(anomaly="unstable", kernel=unstable, by_partition=_ALONE, knows=POLLS),
        _of_group(anomaly="starved", kernel=starved, knows=POLLS),
        _of_shares(anomaly="undelivered", kernel=undelivered),
        _of_shares(anomaly="accepted-again", kernel=accepted_again),
        _of_shares(anomaly="rejected-again", kernel=rejected_again),
        _of_shares(anomaly="two-holders", kernel=two_holders),
        _of_shares(anomaly="miscounted", kernel=miscounted),
        _of_shares(anomaly="given-up", kernel=given_up),
        _of_shares(anomaly="dead-letter-missing", kernel=dead_letter_missing),
        _of_shares(anomaly="dead-letter-extra", kernel=dead_letter_extra),
        _of_shares(anomaly="share-start-regression", kernel=share_start_regression),
        CellChecker(anomaly="split-key", kernel=keys.split_key, traits=frozenset({KEYED}), knows=KEYS),
        CellChecker(anomaly="two-controllers", kernel=two_controllers, reads_rows=False),
        CellChecker(anomaly="stale-controller", kernel=stale_controller, reads_rows=False),
        CellChecker(anomaly="leaderless", kernel=leaderless, by_partition=_ALONE),
        CellChecker(anomaly="illegal-transition", kernel=illegal_transition, by_partition=_ALONE),
        _of_group(anomaly="illegal-group-state", kernel=illegal_group_state, reads_rows=False),
        _of_shares(anomaly="illegal-share-state", kernel=illegal_share_state, reads_rows=False),
        _of_transactions(anomaly="illegal-transaction-state", kernel=illegal_transaction_state, reads_rows=False),
        CellChecker(anomaly="not-exactly-once", kernel=not_exactly_once, traits=_COPIED),
        _of_transactions(anomaly="hanging", kernel=hanging, reads_rows=False),
        CellChecker(anomaly="stuck", kernel=stuck, traits=_SENT_TO, by_partition=ByPartition(in_pieces=True)),
        CellChecker(anomaly="unanswered", kernel=unanswered, reads_rows=False),
        CellChecker(anomaly="not-linearizable", kernel=not_linearizable, reads_rows=False),
        CellChecker(
            anomaly="late",
            kernel=late,
            traits=frozenset({BOUNDED}),
            by_partition=_IN_PAIRS_OR_PIECES,
        ),
        PartitionChecker(anomaly="unseen", kernel=unseen, fact=True, judged_when_plain=("unaudited",)),
    )
}


def _accept(name: str, value: object) -> Checker:
    """Takes checkers that count facts. What judges an anomaly is a guarantee with its source, and prozess has those."""
    if not isinstance(value, PartitionChecker):
        raise plugins.NotAccepted("is not a prozess.extend.PartitionChecker")
    if value.anomaly != name:
        raise plugins.NotAccepted(f"has anomaly = {value.anomaly!r}, and not the name of its entry point, {name!r}")
    if not value.fact:
        raise plugins.NotAccepted("has fact = False, and nothing says what Kafka promises of it. Set fact = True")
    for name in ("judged_when_plain", "side_by_side"):
        if getattr(value, name) is not None:
            raise plugins.NotAccepted(f"has {name}, which only prozess's own tests can show to be right. Leave it out")
    if "<" in getattr(value.kernel, "__qualname__", "<"):
        raise plugins.NotAccepted("has a kernel that is no function of a module. Spark's workers are sent its name")
    return value


CHECKERS: dict[str, Checker] = _OWN | plugins.offered("prozess.checkers", _OWN, _accept)
"""Each anomaly with its checker, in the order of the reports."""


def select(anomalies: Sequence[str] | None = None) -> CheckerSet:
    """Returns the checkers of these anomalies, in this order. None means all of them. BadInput for an unknown anomaly."""
    for name in anomalies or ():
        if name not in CHECKERS:
            raise BadInput(f"anomaly {name!r} is not known. Known: {', '.join(sorted(CHECKERS))}.")
    chosen = CHECKERS if anomalies is None else anomalies
    return CheckerSet.of([CHECKERS[name] for name in chosen], PIECES)
