"""Every kind of workload that a trial can ask for, by name.

A new kind is one file and one entry here (`docs/extending.md`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from prozess.harness.config.configuration import Variant
from prozess.harness.plan.plan import Cell, PlannedClient, PlannedPartition
from prozess.harness.plan.trial import WorkloadSpec
from prozess.harness.plan.workloads import clients

ClientPlanner = Callable[[WorkloadSpec, Sequence[Cell], Sequence[PlannedPartition], str], Sequence[PlannedClient]]
"""Plans the clients of a workload: (workload, its cells, all partitions of the trial, prefix of names) → clients. Their
ids are given afterwards."""
OwnScope = Literal["group", "transaction", "compaction", "provocation", "copier", "application"]
"""The scopes of `prozess.harness.plan.matrix.SCOPES` of which a kind of workload has one at most."""


def _anywhere(variant: Variant) -> str | None:
    """Returns None: most kinds of workload run on every cluster."""
    return None


@dataclass(frozen=True, slots=True)
class WorkloadKind:
    """A kind of workload: which clients it has, and which settings its cells have."""

    plan_clients: ClientPlanner
    own: OwnScope | None = None
    """The configuration that each cell has besides topic and producer, as `base` and `axes` of a trial name it."""
    topics_may_grow: bool = False
    """A step may add partitions to its topics."""
    why_not_here: Callable[[Variant], str | None] = _anywhere
    """Returns why this kind of workload cannot run on a cluster of that variant; None if it can."""

    @property
    def scopes(self) -> tuple[str, ...]:
        """Returns the configurations of each cell, as `base` and `axes` of a trial name them."""
        return ("topic", "producer") if self.own is None else ("topic", "producer", self.own)


KINDS = {
    "log": WorkloadKind(clients.plan_log_clients, topics_may_grow=True),
    "group": WorkloadKind(clients.plan_group_clients, "group", topics_may_grow=True),
    "compaction": WorkloadKind(clients.plan_compaction_clients, "compaction"),
    "transactions": WorkloadKind(clients.plan_transactions_clients, "transaction"),
    "verifiable": WorkloadKind(clients.plan_verifiable_clients),
    "verifiable-share": WorkloadKind(clients.plan_share_clients, why_not_here=clients.why_no_share_groups),
    "errors": WorkloadKind(clients.plan_errors_clients, "provocation"),
    "exactly-once": WorkloadKind(clients.plan_copying_clients, "copier"),
    "application": WorkloadKind(clients.plan_application_clients, "application"),
}
"""The name of a kind of workload in a trial → what it is."""
