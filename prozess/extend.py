"""Offers everything that a new fault, checker or workload needs, in a package of yours or in prozess itself.

docs/extending.md shows one of each, and how your package says that it has them.
"""

from prozess.harness.checking.checker import ByPartition, CellChecker, CellFacts, Checker, PartitionChecker
from prozess.harness.config.configuration import Variant
from prozess.harness.config.fault_nature import FaultNature
from prozess.harness.config.impairments import Impairment
from prozess.harness.errors import BadInput, ClusterFailed, NotReady, TargetMissing
from prozess.harness.interfaces import (
    AdminProtocol,
    AnyFault,
    Capability,
    ClientNode,
    Cluster,
    Effect,
    Fault,
    FaultContext,
    Node,
    NodeState,
    Undo,
    UndoAction,
)
from prozess.harness.interfaces.checking import CellHistory, KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import WITNESS, WITNESSES_MAX, make_witnesses
from prozess.harness.plan.plan import Cell, PlannedClient, PlannedPartition
from prozess.harness.plan.trial import WorkloadSpec
from prozess.harness.plan.workloads.clients import (
    WorkloadKind,
    plan_group_clients,
    plan_log_clients,
    plan_producers,
    plan_readers,
    plan_transactions_clients,
)
from prozess.harness.schema import MISSING, NONE, Isolation, Outcome, Role
from prozess.harness.values import Frozen
from prozess.nemesis.faults import HarmingFault, ImpairingFault, NoParameters, Watch, observe, watch_state
from prozess.nemesis.healing import Start

__all__ = [
    "MISSING",
    "NONE",
    "WITNESS",
    "WITNESSES_MAX",
    "AdminProtocol",
    "AnyFault",
    "BadInput",
    "ByPartition",
    "Capability",
    "Cell",
    "CellChecker",
    "CellFacts",
    "CellHistory",
    "Checker",
    "ClientNode",
    "Cluster",
    "ClusterFailed",
    "Effect",
    "Fault",
    "FaultContext",
    "FaultNature",
    "Frozen",
    "HarmingFault",
    "ImpairingFault",
    "Impairment",
    "Isolation",
    "KernelResult",
    "NoParameters",
    "Node",
    "NodeState",
    "NotReady",
    "Outcome",
    "PartitionChecker",
    "PartitionHistory",
    "PlannedClient",
    "PlannedPartition",
    "Role",
    "Start",
    "TargetMissing",
    "Undo",
    "UndoAction",
    "Variant",
    "Watch",
    "WorkloadKind",
    "WorkloadSpec",
    "make_witnesses",
    "observe",
    "plan_group_clients",
    "plan_log_clients",
    "plan_producers",
    "plan_readers",
    "plan_transactions_clients",
    "watch_state",
]
