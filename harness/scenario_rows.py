"""What a run says about its scenarios, from its own files: verdict, controls, and what Kafka did. Any run can be asked."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.clock import NS_PER_S
from harness.errors import ProzessError
from harness.guarantees.faults import FaultRecord, fault_records
from harness.guarantees.timeline import Timeline, timelines
from harness.history_reader import History
from harness.impact_summary import ImpactShown
from harness.plan import Plan
from harness.run_directory import RunDirectory, read_json
from harness.schema import NONE, Tristate
from harness.verdict import TrialVerdict

_LOSING = ("kill", "stop", "pause", "partition", "half-open", "power-loss", "disk-full", "disk-error", "wipe")
"""Faults after which somebody else should lead."""
_COUNTED = (
    "lost",
    "duplicate",
    "reordered",
    "dirty-read",
    "aborted-read",
    "torn",
    "unprocessed",
    "reprocessed",
    "stalled",
)
"""Findings that a line shows, of those that were found."""


@dataclass(frozen=True, slots=True)
class NewLeaders:
    """How long it took until another node led a partition whose leader a fault hit."""

    elections: int
    median_s: float
    slowest_s: float


@dataclass(frozen=True, slots=True)
class FaultCost:
    """One fault: the step that made it, and what it cost."""

    step: str
    new_leaders: NewLeaders | None
    longest_s: float | None
    """The longest time without an acknowledgement that is put down to it; None: never for a second."""


@dataclass(frozen=True, slots=True)
class Controls:
    """Controls that a trial names: how many of them fired, and what they showed."""

    fired: int
    named: int
    shown: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ScenarioRow:
    """One run."""

    run: str
    began: str
    """UTC, as the name of the run's directory ends."""
    scenarios: tuple[str, ...]
    trial: str
    seed: int
    backend: str
    metadata_mode: str
    versions: str
    verdict: str
    controls: Controls
    seconds: float | None
    """From the command to the verdict; None: not noted."""
    longest_s: float | None
    """The longest time that a partition acknowledged nothing although it was sent something; None: never for a second."""
    open_windows: int
    """Partitions that took nothing until the end."""
    new_leaders: NewLeaders | None
    """None: no fault hit a leader, or there is no ground truth."""
    permitted: Mapping[str, int]
    """Anomaly → how many that the configuration allows."""
    forbidden: Mapping[str, int]
    unknown_reasons: tuple[str, ...] = ()
    defects: tuple[str, ...] = ()
    """Known defects that explain what is forbidden."""
    faults: tuple[FaultCost, ...] = ()


def row_of(path: Path) -> ScenarioRow | None:
    """What this run says; None if it was not judged, or its files cannot be read."""
    run = RunDirectory(path)
    try:
        plan = Plan.model_validate_json(run.plan.read_text(encoding="utf-8"))
        verdict = TrialVerdict.model_validate_json(run.verdict.read_text(encoding="utf-8"))
        impact = ImpactShown.model_validate_json(run.impact.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    faults, truth = _what_happened(run)
    longest_s = {fault.fault: fault.longest_s for fault in impact.faults}
    ended = [w.end_s - w.begin_s for w in impact.windows if w.end_s is not None]
    return ScenarioRow(
        run=path.name,
        began=_began(path.name),
        scenarios=plan.scenarios,
        trial=plan.trial,
        seed=plan.seed,
        backend=plan.backend,
        metadata_mode=plan.variant.metadata_mode,
        versions=" and ".join(plan.variant.kafka_versions),
        verdict=verdict.verdict.value,
        controls=controls_of(verdict),
        seconds=_seconds(path / "seconds.json"),
        longest_s=max(ended, default=None),
        open_windows=impact.windows_open,
        new_leaders=new_leaders(faults, truth),
        permitted=_counts(verdict, "permitted"),
        forbidden=_counts(verdict, "forbidden"),
        unknown_reasons=verdict.unknown_reasons,
        defects=tuple(dict.fromkeys(d for c in verdict.cells for a in c.anomalies.values() for d in a.defects)),
        faults=tuple(
            FaultCost(plan.steps[fault.step].name, new_leaders([fault], truth), longest_s.get(fault.number))
            for fault in faults
            if 0 <= fault.step < len(plan.steps)
        ),
    )


def rows_of(paths: Iterable[Path]) -> list[ScenarioRow]:
    """Of every judged run directly in these directories, the oldest first."""
    found = (row_of(plan.parent) for path in paths for plan in sorted(path.glob("*/plan.json")))
    return sorted((row for row in found if row is not None), key=lambda row: row.began)


def _began(name: str) -> str:
    return next((part for part in reversed(name.split("-")) if "T" in part and part[:8].isdigit()), "")


def _seconds(path: Path) -> float | None:
    try:
        parts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return float(sum(took_s for name, took_s in parts.items() if ":" not in name))


def controls_of(verdict: TrialVerdict) -> Controls:
    named = [control for control in verdict.controls if control.required]
    shown: Counter[str] = Counter()
    for control in named:
        shown[control.anomaly] += control.count
    return Controls(sum(control.fired for control in named), len(named), +shown)


def _counts(verdict: TrialVerdict, effect: str) -> dict[str, int]:
    found = {
        name: sum(getattr(cell.anomalies[name], effect) for cell in verdict.cells if name in cell.anomalies)
        for name in dict.fromkeys([*_COUNTED, *(name for cell in verdict.cells for name in cell.anomalies)])
    }
    wanted = _COUNTED if effect == "permitted" else tuple(found)
    return {name: found[name] for name in wanted if found[name]}


def _what_happened(run: RunDirectory) -> tuple[tuple[FaultRecord, ...], Mapping[int, Timeline]]:
    """Faults, and per partition who led; nothing where the history cannot be read."""
    try:
        history = History.open(run)
        return fault_records(history.table("faults"), read_json(run.dictionaries)), timelines(history.table("metadata"))
    except ProzessError:
        return (), {}


def new_leaders(faults: Sequence[FaultRecord], truth: Mapping[int, Timeline]) -> NewLeaders | None:
    """Over these faults; None: none of them made anybody else lead."""
    found_s = np.array(list(took_s(faults, truth)))
    if not len(found_s):
        return None
    return NewLeaders(len(found_s), float(np.median(found_s)), float(found_s.max()))


def took_s(faults: Sequence[FaultRecord], truth: Mapping[int, Timeline]) -> Iterable[float]:
    """Of each fault and each partition that one of its nodes led: until another one did. What never came, or came only after
    the fault was over, is left out: that is no election, but a return."""
    for fault in faults:
        if fault.kind not in _LOSING or fault.effective is not Tristate.YES:
            continue
        for timeline in truth.values():
            leader = int(timeline.leader_at(np.asarray(fault.begin_ns)))
            if leader == NONE or leader not in fault.hit:
                continue
            others = (timeline.time_ns >= fault.begin_ns) & (timeline.leader != NONE) & (timeline.leader != leader)
            rows = np.flatnonzero(others)
            if len(rows) and (moved_ns := int(timeline.time_ns[rows[0]])) <= fault.end_ns:
                yield (moved_ns - fault.begin_ns) / NS_PER_S
