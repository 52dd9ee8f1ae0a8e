"""prozess puts your Kafka on trial: it breaks a real cluster on purpose and proves from the history which promises held.

This is what you import. docs/python.md shows how it is used:

    import prozess

    run = prozess.run("smoke")
    print(run.verdict.sentence)
    run.outcomes.to_pandas()

`prozess.trials` builds trials in Python, `prozess.extend` has what a new fault, checker or workload needs, and
`prozess.spark` checks runs in a Spark session of yours. Every other module of prozess may change at any time.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from prozess.harness.plan import catalogue

if TYPE_CHECKING:
    __version__: str

    from prozess import extend, spark, trials
    from prozess.app.run_tables import tables
    from prozess.app.trial_run import RunTable, TrialRun, TrialSource, check, load, plan, run
    from prozess.clusters.compose.testcontainer import KafkaTrialContainer
    from prozess.harness.checking.checker import Checker
    from prozess.harness.errors import (
        BadInput,
        ClusterFailed,
        HarnessFailed,
        HistoryUnreadable,
        Interrupted,
        MissingTool,
        NotJudged,
        NotReady,
        ProzessError,
        StorageFull,
        TargetMissing,
        UnsupportedFault,
    )
    from prozess.harness.exit_codes import ExitCode
    from prozess.harness.guarantees.table.rules import Guarantee
    from prozess.harness.interfaces import AnyFault, Backend
    from prozess.harness.interfaces.application import Record
    from prozess.harness.plan.plan import Cell, Plan, PlannedClient, PlannedPartition
    from prozess.harness.plan.schedule import Step
    from prozess.harness.plan.trial import Trial, WorkloadSpec
    from prozess.harness.verdict import (
        AlertResult,
        AnomalyOutcome,
        ApplicationVerdict,
        CellAnomaly,
        CellVerdict,
        ControlResult,
        FaultShown,
        TrialVerdict,
        Verdict,
        WitnessShown,
    )
    from prozess.testing.application import Applications, Crash, RecordedCommands
    from prozess.testing.fixture_objects import ActiveFault, KafkaCluster, RunTrial, TestNemesis
    from prozess.testing.recorded.aiokafka import RecordedAIOKafkaConsumer, RecordedAIOKafkaProducer
    from prozess.testing.recorded.application import RecordedAIOConsumer, RecordedAIOProducer
    from prozess.testing.recorded.consumer import RecordedConsumer
    from prozess.testing.recorded.producer import RecordedProducer

__all__ = [
    "ActiveFault",
    "AlertResult",
    "AnomalyOutcome",
    "ApplicationVerdict",
    "Applications",
    "BadInput",
    "Cell",
    "CellAnomaly",
    "CellVerdict",
    "ClusterFailed",
    "ControlResult",
    "Crash",
    "ExitCode",
    "FaultShown",
    "HarnessFailed",
    "HistoryUnreadable",
    "Interrupted",
    "KafkaCluster",
    "KafkaTrialContainer",
    "MissingTool",
    "NotJudged",
    "NotReady",
    "Plan",
    "PlannedClient",
    "PlannedPartition",
    "ProzessError",
    "Record",
    "RecordedAIOConsumer",
    "RecordedAIOKafkaConsumer",
    "RecordedAIOKafkaProducer",
    "RecordedAIOProducer",
    "RecordedCommands",
    "RecordedConsumer",
    "RecordedProducer",
    "RunTable",
    "RunTrial",
    "Step",
    "StorageFull",
    "TargetMissing",
    "TestNemesis",
    "Trial",
    "TrialRun",
    "TrialSource",
    "TrialVerdict",
    "UnsupportedFault",
    "Verdict",
    "WitnessShown",
    "WorkloadSpec",
    "check",
    "extend",
    "load",
    "plan",
    "run",
    "spark",
    "tables",
    "trials",
]

_MODULES = frozenset({"extend", "spark", "trials"})
"""The public modules."""
_MODULE_OF: Mapping[str, tuple[str, ...]] = {
    "prozess.clusters.compose.testcontainer": ("KafkaTrialContainer",),
    "prozess.testing.application": ("Applications", "Crash", "RecordedCommands"),
    "prozess.testing.fixture_objects": ("ActiveFault", "KafkaCluster", "RunTrial", "TestNemesis"),
    "prozess.app.run_tables": ("tables",),
    "prozess.app.trial_run": ("RunTable", "TrialRun", "TrialSource", "check", "load", "plan", "run"),
    "prozess.harness.errors": (
        *("BadInput", "ClusterFailed", "HarnessFailed", "HistoryUnreadable", "Interrupted", "MissingTool"),
        *("NotJudged", "NotReady", "ProzessError", "StorageFull", "TargetMissing", "UnsupportedFault"),
    ),
    "prozess.harness.exit_codes": ("ExitCode",),
    "prozess.harness.interfaces.application": ("Record",),
    "prozess.harness.plan.plan": ("Cell", "Plan", "PlannedClient", "PlannedPartition"),
    "prozess.harness.plan.schedule": ("Step",),
    "prozess.harness.plan.trial": ("Trial", "WorkloadSpec"),
    "prozess.harness.verdict": (
        *("AlertResult", "AnomalyOutcome", "ApplicationVerdict", "CellAnomaly", "CellVerdict", "ControlResult"),
        *("FaultShown", "TrialVerdict", "Verdict", "WitnessShown"),
    ),
    "prozess.testing.recorded.aiokafka": ("RecordedAIOKafkaConsumer", "RecordedAIOKafkaProducer"),
    "prozess.testing.recorded.application": ("RecordedAIOConsumer", "RecordedAIOProducer"),
    "prozess.testing.recorded.consumer": ("RecordedConsumer",),
    "prozess.testing.recorded.producer": ("RecordedProducer",),
}
"""Module → its public names. They are imported when somebody asks for them: this module is imported by every process of
prozess, by every pytest run and by Spark's workers, of which most need none of them. Type checkers read the imports above,
and a test holds both to be the same (tests/unit/test_public.py)."""

if not TYPE_CHECKING:  # for a type checker it would give any name at all

    def __getattr__(name: str) -> object:
        """Imports a public name when it is first asked for."""
        from importlib import import_module

        if name == "__version__":
            from importlib.metadata import version

            return version("prozess")
        if name in _MODULES:
            return import_module(f"prozess.{name}")
        module = next((module for module, names in _MODULE_OF.items() if name in names), None)
        if module is None:
            raise AttributeError(f"module 'prozess' has no attribute {name!r}")
        value = getattr(import_module(module), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# `harness` imports no other package of prozess. Here the registries of its catalogue learn where their values are. Python
# runs this before any module of prozess, in every process, so it does not matter who imports what first. Each dictionary is
# imported only when somebody reads it.


def _faults() -> "Mapping[str, type[AnyFault]]":
    from prozess.nemesis.registry import FAULTS

    return FAULTS


def _backends() -> "Mapping[str, Backend]":
    from prozess.clusters.registry import BACKENDS

    return BACKENDS


def _checkers() -> "Mapping[str, Checker]":
    from prozess.checkers.registry import CHECKERS

    return CHECKERS


def _anomalies() -> "Mapping[str, Guarantee]":
    from prozess.harness.guarantees.table import TABLE

    return TABLE


catalogue.FAULTS.read_from(_faults)
catalogue.ANOMALIES.read_from(_anomalies)
catalogue.BACKENDS.read_from(_backends)
catalogue.CHECKERS.read_from(_checkers)
