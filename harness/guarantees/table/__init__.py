"""The guarantee table: for each anomaly, which witnesses are permitted, under what, why, and who says so.

Rules in order, the first whose condition is true decides; none is: **forbidden**. A condition is a conjunction of facts
(`prozess.harness.guarantees.facts.registry`), "not x" negates. This table is the authority; `docs/guarantees.md` is
made from it.

Left out because nothing can bring them about yet: restarted producers that send the same identities again,
corrupted disks, seeks and resets by the application.
"""

from prozess.harness.guarantees.table.controllers_log import CONTROLLERS_LOG
from prozess.harness.guarantees.table.groups import GROUPS
from prozess.harness.guarantees.table.keys import KEYS
from prozess.harness.guarantees.table.log import COMPACTION, DELIVERY, ERRORS, LOG, STALLS, UNREPORTED
from prozess.harness.guarantees.table.progress import PROGRESS
from prozess.harness.guarantees.table.replicas import CLUSTER, QUORUM, REPLICAS
from prozess.harness.guarantees.table.rules import Guarantee as Guarantee
from prozess.harness.guarantees.table.rules import Rule as Rule
from prozess.harness.guarantees.table.rules import RuleEffect as RuleEffect
from prozess.harness.guarantees.table.share import SHARES
from prozess.harness.guarantees.table.transactions import COPIES, TRANSACTIONS

TABLE: dict[str, Guarantee] = {
    guarantee.anomaly: guarantee
    for guarantee in (
        *LOG,
        UNREPORTED,
        *REPLICAS,
        *CLUSTER,
        *COMPACTION,
        *STALLS,
        *ERRORS,
        *TRANSACTIONS,
        *GROUPS,
        *SHARES,
        *KEYS,
        *QUORUM,
        *CONTROLLERS_LOG,
        *COPIES,
        *PROGRESS,
        DELIVERY,
    )
}
"""Anomaly → its guarantee, in the order of reports."""
