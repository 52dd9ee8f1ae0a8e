"""The data of report.html: cells, partitions, clients and faults as columns, shown on demand. Judges nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.clock import NS_PER_S
from harness.history import History
from harness.impact_summary import ImpactShown
from harness.plan import Plan
from harness.report.impact import HEADINGS, rows_of_fault
from harness.report.seen import has_section, seen_groups
from harness.report.timeline import of_partitions, partition_name
from harness.report.words import SIGNS, VERDICT_SIGNS, Matrix, brief_nodes
from harness.schema import MISSING, NONE, Outcome
from harness.verdict import AnomalyOutcome, CellVerdict, FaultShown, TrialVerdict

CHANGES_MAX = 20_000
"""Of leaders and ISR that the page holds, the earliest; the history has all."""
NEAR_MAX = 30
"""So many anomalies are named with a fault."""


@dataclass(slots=True)
class Texts:
    """Texts by number, each once."""

    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, text: str) -> int:
        """The number of a text, a new one if need be."""
        return self.numbers.setdefault(text, len(self.numbers))


def overview(
    plan: Plan,
    verdict: TrialVerdict,
    tables: Sequence[Matrix[CellVerdict]],
    history: History,
    outcomes: np.ndarray,
    impact: ImpactShown | None,
) -> dict[str, Any]:
    """For `page.js`. `outcomes`: as `Traffic` has them."""
    texts, names = Texts(), Texts()
    cells = [
        _cell(cell, place, matrix.label(cell), texts, names)
        for place, matrix in enumerate(tables)
        for cell in matrix.cells
    ]
    return {
        "signs": {str(word): sign for word, sign in (SIGNS | VERDICT_SIGNS).items()},
        "outcomes": [str(outcome) for outcome in AnomalyOutcome],
        "kinds": [{"workload": m.workload, "axes": list(m.cells[0].axes)} for m in tables],
        "cells": cells,
        "texts": list(texts.numbers),
        "anomalies": list(names.numbers),
        "partitions": _partitions(plan, history, outcomes),
        "changes": _changes(history.table("metadata")),
        "windows": _windows(impact),
        "clients": _clients(plan, history),
        "faults": _faults(verdict.faults, impact),
        "costs": HEADINGS[1:],
        "near": _near(verdict),
    }


def _cell(cell: CellVerdict, kind: int, label: str, texts: Texts, names: Texts) -> list[Any]:
    order = list(AnomalyOutcome)
    judged: list[int] = []
    for anomaly in cell.anomalies.values():
        told = (names.number(anomaly.anomaly), order.index(anomaly.outcome), anomaly.count)
        judged += [*told, texts.number(anomaly.reason), texts.number(anomaly.source), int(has_section(anomaly))]
    return [cell.cell, kind, str(cell.verdict), cell.name, label, [texts.number(v) for v in cell.axes.values()], judged]


def _partitions(plan: Plan, history: History, outcomes: np.ndarray) -> dict[str, list[Any]]:
    numbers = range(len(plan.partitions))
    return {
        "name": [partition_name(plan, number) for number in numbers],
        "cell": [planned.cell for planned in plan.partitions],
        "replicas": [" ".join(map(str, planned.assignment)) for planned in plan.partitions],
        "sent": outcomes.sum(axis=1).tolist(),
        "ok": outcomes[:, Outcome.OK].tolist(),
        "unknown": outcomes[:, Outcome.INFO].tolist(),
        "refused": outcomes[:, Outcome.FAIL].tolist(),
        "read": [history.files["reads"].rows_of(number) for number in numbers],
    }


def _changes(metadata: Mapping[str, np.ndarray]) -> dict[str, list[Any]]:
    """Of leaders and ISR, by the controllers' log."""
    rows = np.flatnonzero(of_partitions(metadata))
    rows = rows[np.argsort(metadata["time_ns"][rows], kind="stable")][:CHANGES_MAX]
    return {
        "partition": metadata["partition"][rows].tolist(),
        "at": np.round(metadata["time_ns"][rows] / NS_PER_S, 3).tolist(),
        "leader": metadata["leader"][rows].tolist(),
        "epoch": metadata["leader_epoch"][rows].tolist(),
        "isr": metadata["isr"][rows].tolist(),
        "whole": (metadata["isr"][rows] == metadata["replicas"][rows]).astype(int).tolist(),
    }


def _windows(impact: ImpactShown | None) -> dict[str, list[Any]]:
    windows = impact.windows if impact else ()
    return {
        "partition": [window.partition for window in windows],
        "begin": [round(window.begin_s, 3) for window in windows],
        "end": [None if window.end_s is None else round(window.end_s, 3) for window in windows],
        "fault": [window.fault for window in windows],
    }


def _clients(plan: Plan, history: History) -> dict[str, list[Any]]:
    """Planned clients, and those that took their place."""
    table = history.table("clients")
    told = {name: table[name].tolist() for name in ("client", "planned", "started_ns", "ended_ns", "exit_code")}
    rows = {client: place for place, client in enumerate(told["client"])}
    planned = {client.client: client for client in plan.clients}
    later = zip(told["client"], told["planned"], strict=True)
    stood_in = {c: planned[of] for c, of in later if c not in planned and of in planned}
    cells = {c: sorted({plan.partitions[p].cell for p in of.partitions}) for c, of in planned.items()}
    columns: dict[str, list[Any]] = {name: [] for name in ("name", "role", "cells", "started", "ended", "exit")}
    for number, client in (planned | stood_in).items():
        place = rows.get(number)
        again = f"{client.name}, started again as {number}" if number in stood_in else f"{client.name} ({number})"
        row = (again, client.role, cells[client.client], *_life(told, place))
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
    return columns


def _life(told: Mapping[str, list[int]], place: int | None) -> tuple[float | None, float | None, str]:
    """When a client started and ended, and how."""
    if place is None:
        return None, None, "told nothing"
    started, ended, code = (told[name][place] for name in ("started_ns", "ended_ns", "exit_code"))
    how = "clean" if code == 0 else "not known" if code == NONE else f"signal {-code}" if code < 0 else f"status {code}"
    return _seconds(started), _seconds(ended), how


def _seconds(time_ns: int) -> float | None:
    return None if time_ns == MISSING else round(time_ns / NS_PER_S, 3)


def _faults(faults: Sequence[FaultShown], impact: ImpactShown | None) -> list[dict[str, Any]]:
    costs = {fault.fault: [row[1:] for row in rows_of_fault(fault)] for fault in impact.faults} if impact else {}
    return [
        {
            "number": fault.number,
            "name": f"{fault.fault} {brief_nodes(fault.nodes)}".strip(),
            "step": fault.step,
            "nodes": fault.nodes,
            "begin": round(fault.begin_s, 3),
            "end": None if fault.end_s is None else round(fault.end_s, 3),
            "effective": fault.effective,
            "detail": fault.detail,
            "cost": costs.get(fault.number, []),
        }
        for fault in faults
    ]


def _near(verdict: TrialVerdict) -> dict[str, list[tuple[int, str]]]:
    """Step → (cell, anomaly) of those whose witnesses name it, the worst first."""
    found: dict[str, list[tuple[int, str]]] = {}
    for cell, anomaly in (pair for group in seen_groups(verdict) for pair in group.pairs):
        for step in {step for witness in anomaly.witnesses for step in witness.faults}:
            named = found.setdefault(step, [])
            if len(named) < NEAR_MAX:
                named.append((cell.cell, anomaly.anomaly))
    return found
