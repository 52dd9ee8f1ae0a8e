"""Hand-made evidence for the tests of the judge: times in seconds, tables as few rows as show the point."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from prozess.checkers.registry import select
from prozess.harness.guarantees.evidence.trial import Evidence
from prozess.harness.guarantees.verdict.judge import judge
from prozess.harness.interfaces.checking import Finding, KernelResult
from prozess.harness.interfaces.witnesses import make_witnesses
from prozess.harness.plan.plan import Plan
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.schema import (
    MISSING,
    FaultPhase,
    MetadataKind,
    MetadataSource,
    ObservationKind,
    Outcome,
    StepOutcome,
    Tristate,
)
from prozess.harness.verdict import CellAnomaly, TrialVerdict
from tests.support.anomalies import OF_PARTITIONS
from tests.support.cells.partitions import table

MS = 1_000_000
DICTIONARIES = {
    "fault": [
        "kill",
        "pause",
        "partition",
        "wipe",
        "mystery",
        "rolling-restart",
        "power-loss",
        "store-away",
        "elect-unclean",
        "message",
        "method",
    ],
    "detail": ["broker-1 answered"],
}
CLUSTER = {"kafka_version": "4.4.0", "settings": {"replica.lag.time.max.ms": "10000"}, "features": {}}


def ns(seconds: float) -> int:
    """Seconds as nanoseconds."""
    return round(seconds * 1e9)


def mask(*nodes: int) -> int:
    """A broker mask."""
    return sum(1 << node for node in nodes)


def state(
    at_s: float, partition: int, leader: int, epoch: int, isr: Sequence[int], elr: Sequence[int] = (), last: int = 0
) -> dict[str, int]:
    """A row of ground truth."""
    return {
        "time_ns": ns(at_s),
        "kind": MetadataKind.PARTITION,
        "source": MetadataSource.CONTROLLER_LOG,
        "partition": partition,
        "leader": leader,
        "leader_epoch": epoch,
        "isr": mask(*isr),
        "elr": mask(*elr),
        "last_known_elr": mask(last) if last else 0,
    }


def fault(
    number: int,
    kind: str,
    nodes: Sequence[int],
    begin_s: float,
    end_s: float | None,
    *,
    step: int = 0,
    effect: Tristate | None = Tristate.YES,
) -> list[dict[str, int]]:
    """Rows of one fault; `end_s` None: never undone; `effect` None: never verified."""
    code = DICTIONARIES["fault"].index(kind)
    rows = []

    def add(phase: FaultPhase, at_s: float, effect: Tristate = Tristate.UNKNOWN) -> None:
        rows.extend(
            {
                "fault": number,
                "kind": code,
                "step": step,
                "phase": phase,
                "time_ns": ns(at_s),
                "node": n,
                "effect": effect,
            }
            for n in nodes
        )

    add(FaultPhase.JOURNALED, begin_s - 0.001)
    add(FaultPhase.APPLIED, begin_s)
    if effect is not None:
        add(FaultPhase.VERIFIED, begin_s + 0.001, effect)
    if end_s is not None:
        add(FaultPhase.UNDONE, end_s)
        add(FaultPhase.UNDO_VERIFIED, end_s + 0.001, Tristate.YES)
    return rows


def witnesses(count: int = 1, *, begin_s: float | None = 4.0, end_s: float | None = 4.1, **columns: Any) -> np.ndarray:
    """`count` like witnesses; sequences from 0, offsets from 100."""
    given = {name: ns(value) if name.endswith("_s") else value for name, value in columns.items()}
    times = {name.replace("_s", "_ns") if name.endswith("_s") else name: value for name, value in given.items()}
    return make_witnesses(
        count,
        {
            "partition": 0,
            "client": 1,
            "sequence": np.arange(count),
            "log_offset": 100 + np.arange(count),
            "outcome": Outcome.OK,
            "begin_ns": MISSING if begin_s is None else ns(begin_s),
            "end_ns": MISSING if end_s is None else ns(end_s),
            **times,
        },
    )


def result(found: np.ndarray, *, judged: int = 1000, more: int = 0, incomplete: str | None = None) -> KernelResult:
    """A kernel's result; `more`: found beyond the witnesses."""
    return KernelResult(found, len(found) + more, judged, incomplete)


def findings(plan: Plan, found: Mapping[tuple[str, int], KernelResult] | None = None) -> list[Finding]:
    """Every kernel over every partition, and over every cell that it applies to: clean, but for `found`."""
    clean = result(make_witnesses(0, {}))
    whole = [
        (anomaly, min(cell.partitions))
        for anomaly, checker in select().cell.items()
        for cell in plan.cells
        if checker.applies(cell.traits)
    ]
    names = [*((anomaly, p.partition) for anomaly in OF_PARTITIONS for p in plan.partitions), *whole]
    return [Finding(anomaly, partition, (found or {}).get((anomaly, partition), clean)) for anomaly, partition in names]


def plan(
    axes: Mapping[str, Sequence[Any]],
    *,
    steps: Sequence[Mapping[str, Any]] = (),
    controls: Sequence[Mapping[str, Any]] = (),
    required: bool = False,
    base: Mapping[str, Any] | None = None,
    workload: str = "log",
) -> Plan:
    """A plan with one partition per cell on brokers 1, 2, 3."""
    return make_plan(
        parse_trial(
            {
                "name": "made-by-hand",
                "title": "made by hand",
                "workload": workload,
                "control": "required" if required else "optional",
                "controls": list(controls),
                "topics": {"partitions": 1, "placement": [[1, 2, 3]]},
                "base": dict(base or {}),
                "axes": dict(axes),
                "steps": list(steps),
            },
            source="test",
        ),
        seed=1,
    )


def strike(name: str, kind: str, target: str = "leader(0)", **parameters: Any) -> dict[str, Any]:
    """A step that makes a fault."""
    return {"name": name, "do": {"kind": "fault", "fault": kind, "targets": [target], "parameters": parameters}}


def evidence(
    plan: Plan,
    *,
    metadata: Sequence[Mapping[str, int]] = (),
    faults: Sequence[Mapping[str, int]] = (),
    outcomes: Mapping[int, StepOutcome] | None = None,
    steps_done: int | None = None,
    **more: Any,
) -> Evidence:
    """Every planned step done (but for `outcomes`), every client ended cleanly."""
    done = len(plan.steps) if steps_done is None else steps_done
    tables = {
        "metadata": table("metadata", metadata),
        "faults": table("faults", faults),
        "steps": table(
            "steps", [{"step": s, "outcome": (outcomes or {}).get(s, StepOutcome.DONE)} for s in range(done)]
        ),
        "clients": table(
            "clients", [{"client": c.client, "planned": c.client, "exit_code": 0, "complete": 1} for c in plan.clients]
        ),
        "heartbeats": table("heartbeats", []),
        "observations": table(
            "observations", more.pop("observations", [] if "replicas" in more else nothing_left(plan))
        ),
    }
    for name in ("commits", "transactions"):
        if name in more:
            tables[name] = more.pop(name)
    if "metrics" in more:
        tables["metrics"] = more.pop("metrics")
    if "replicas" in more:
        tables["replicas"] = table("replicas", more.pop("replicas"))
    more = {"dictionaries": DICTIONARIES, "clock_error_ns": MS, "cluster": CLUSTER} | more
    for missing in more.pop("without", ()):
        del tables[missing]
    asked = ("dictionaries", "clock_error_ns", "cluster", "incomplete")
    made = Evidence.from_tables(tables, **{name: more.pop(name) for name in asked if name in more})
    return replace(made, **more)


def nothing_left(plan: Plan) -> list[dict[str, int]]:
    """What a replica of each partition reported at the end: its log is empty."""
    told = {"value": 0, "node": 2, "leader_epoch": 0, "time_ns": ns(100)}
    return [
        {**told, "partition": p.partition, "kind": kind}
        for p in plan.partitions
        for kind in (ObservationKind.REPLICA_EPOCH_START, ObservationKind.REPLICA_LOG_END)
    ]


def failover(partitions: int, *, at_s: float = 5.0, isr: Sequence[int] = (1, 2, 3)) -> list[dict[str, int]]:
    """Ground truth of a clean failover of each partition from 1 to 2."""
    return [
        row
        for p in range(partitions)
        for row in (
            state(-10, p, 1, 0, isr),
            state(at_s, p, 2, 1, [n for n in isr if n != 1]),
            state(at_s + 5, p, 2, 1, isr),
        )
    ]


# --- the smoke choreography, one cell for each acks -----------------------------------------------------------------

KILL = [strike("kill the leader", "kill")]
KILLED = fault(0, "kill", [1], 4.5, 8)
SMOKE_STEPS = [strike("freeze the followers", "pause", "followers(0)"), *KILL]
SMOKE_FAULTS = [*fault(0, "pause", [2, 3], 3, 4.6, step=0), *fault(1, "kill", [1], 4.5, 8, step=1)]
ACKS = {"producer.acks": ["0", "1", "all"]}
CONTROL = [{"anomaly": "lost", "cells": {"producer.acks": "1"}}]
ACKS_0, ACKS_1, ACKS_ALL = 0, 1, 2
UNCLEAN = [state(-10, 0, 1, 0, (1, 2, 3)), state(3, 0, 1, 0, (1,)), state(6, 0, 2, 1, (2,))]


def smoke() -> Plan:
    """Followers frozen, the leader killed, acks=1 as the required control."""
    return plan(ACKS, steps=SMOKE_STEPS, controls=CONTROL, required=True)


def lost_in(cell: int, count: int = 100, **columns: Any) -> dict[tuple[str, int], KernelResult]:
    """So many lost records in the partition of a cell."""
    return {("lost", cell): result(witnesses(count, partition=cell, **columns))}


def smoke_verdict(found: Mapping[tuple[str, int], KernelResult], **more: Any) -> TrialVerdict:
    """The verdict of the smoke trial with these findings."""
    made = smoke()
    given = {"metadata": failover(3), "faults": SMOKE_FAULTS} | more
    return judge(made, findings(made, found), evidence(made, **given))


def of(verdict: TrialVerdict, cell: int, anomaly: str = "lost") -> CellAnomaly:
    """One anomaly in one cell."""
    return verdict.cells[cell].anomalies[anomaly]
