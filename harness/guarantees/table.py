"""The guarantee table: for each anomaly, which witnesses are permitted, under what, why, and who says so.

Rules in order, the first whose condition is true decides; none is: **forbidden**. A condition is a conjunction of facts
(`harness.guarantees.facts`), "not x" negates. This table is the authority; `docs/guarantees.md` is made from it.

Left out because nothing can bring them about yet: restarted producers that send the same identities again,
corrupted disks, seeks and resets by the application.
"""

from harness.guarantees.rules import Effect as Effect
from harness.guarantees.rules import Guarantee as Guarantee
from harness.guarantees.rules import Rule as Rule
from harness.guarantees.table_cluster import CLUSTER, QUORUM
from harness.guarantees.table_compaction import COMPACTION
from harness.guarantees.table_copies import COPIES
from harness.guarantees.table_delivery import DELIVERY
from harness.guarantees.table_groups import GROUPS
from harness.guarantees.table_log import LOG
from harness.guarantees.table_replicas import REPLICAS
from harness.guarantees.table_stalls import STALLS
from harness.guarantees.table_telling import ERRORS, UNTOLD
from harness.guarantees.table_transactions import TRANSACTIONS

TABLE: dict[str, Guarantee] = {
    guarantee.anomaly: guarantee
    for guarantee in (
        *LOG,
        UNTOLD,
        *REPLICAS,
        *CLUSTER,
        *COMPACTION,
        *STALLS,
        *ERRORS,
        *TRANSACTIONS,
        *GROUPS,
        *QUORUM,
        *COPIES,
        DELIVERY,
    )
}
"""Anomaly → its guarantee, in the order of reports."""
