"""Every kind of workload that a trial can ask for, by name.

A new kind is one file and one entry here, or an entry point of another package (`docs/extending.md`).
"""

from prozess.harness import plugins
from prozess.harness.plan.workloads import clients, share
from prozess.harness.plan.workloads.clients import WorkloadKind

_OWN = {
    "log": WorkloadKind(clients.plan_log_clients, topics_may_grow=True, topics_may_join=True, topics_may_end=True),
    "group": WorkloadKind(
        clients.plan_group_clients, "group", topics_may_grow=True, topics_may_join=True, topics_may_end=True
    ),
    "compaction": WorkloadKind(clients.plan_compaction_clients, "compaction", topics_may_end=True),
    "transactions": WorkloadKind(clients.plan_transactions_clients, "transaction"),
    "verifiable": WorkloadKind(
        clients.plan_verifiable_clients, "consumer", topics_may_grow=True, library_partitions=True
    ),
    "verifiable-share": WorkloadKind(
        clients.plan_share_clients, library_partitions=True, why_not_here=clients.why_no_share_groups
    ),
    "share": WorkloadKind(share.plan_sharing_clients, "share_group", why_not_here=clients.why_no_share_groups),
    "errors": WorkloadKind(clients.plan_errors_clients, "provocation"),
    "exactly-once": WorkloadKind(clients.plan_copying_clients, "copier"),
    "application": WorkloadKind(clients.plan_application_clients, "application"),
}


def _accept(name: str, value: object) -> WorkloadKind:
    if not isinstance(value, WorkloadKind):
        raise plugins.NotAccepted("is not a prozess.extend.WorkloadKind")
    return value


KINDS: dict[str, WorkloadKind] = _OWN | plugins.offered("prozess.workloads", _OWN, _accept)
"""The name of a kind of workload in a trial → what it is."""
