"""This module says what the cluster did when a fault struck, beside what its clients saw: how long the fault took to
make, to prove and to undo; when a new leader was decided, and known by the brokers' own views; whose ISR it left.
Measured, never judged. Pure.

Views are samples, taken five times a second (`prozess.app.run.cluster_state`): they are late by that, and by
more where the machine is busy. Decided is what the metadata log (or ZooKeeper's) says; a leader of which no broker
knows serves nobody."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from prozess.harness.columns import Clustered
from prozess.harness.guarantees.evidence.ground_truth import FOREVER, Columns, FaultRecord
from prozess.harness.plan.schedule import FaultAction, HealAction, Step
from prozess.harness.recording.codes import BROKER_IDS_MAX, broker_mask
from prozess.harness.schema import MISSING, FaultPhase, MetadataKind, MetadataSource, StepOutcome, Tristate

NS_PER_MS = 1_000_000
DISTINGUISHED_BY = ("shape", "others", "direction", "how", "file", "wait")
"""Parameters of faults that tables name, because they make it a different fault."""


@dataclass(frozen=True, slots=True)
class Reaction:
    """Describes what the cluster did about one fault. Times in ms; None = not seen."""

    what: str
    """Its kind, the role that it was aimed at, and what distinguishes it: "partition leader others=controllers"."""
    effect: str
    """yes, no or unknown: was it seen to work? failed: it could not be made."""
    seen: str
    """How the effect was seen."""
    apply_ms: float | None = None
    """How long it took to make the fault, from its entry in the journal."""
    verify_ms: float | None = None
    """How long it took from then until its effect was seen."""
    undo_ms: float | None = None
    """How long it took from the request to heal until the fault was seen to be undone."""
    led: tuple[int, ...] = ()
    """Partitions (dense ids) that a broker which it was aimed at led."""
    decided_ms: tuple[float, ...] = ()
    """For those whose lead moved before the next fault: from when it was made until that was decided; 0 = before."""
    leader_ms: tuple[float, ...] = ()
    """The same, until every broker that the fault was not aimed at named the new leader."""
    copies: int = 0
    """Partitions of which a broker that it was aimed at was in sync."""
    isr_left: int = 0
    """For those: how many ISRs such a broker left, by anybody's view, before the next fault."""


@dataclass(frozen=True, slots=True)
class ScheduleOutcome:
    """The planned steps and what became of them. `aimed_at`: number of a step → ids of the nodes that its targets were."""

    planned: Sequence[Step]
    steps: Columns
    aimed_at: Mapping[int, Sequence[int]]


def reactions(
    records: Sequence[FaultRecord], faults: Columns, metadata: Columns, schedule: ScheduleOutcome
) -> dict[int, Reaction]:
    """Returns what the cluster did about each fault, by the number of the fault."""
    heals_ns, views = _heals_ns(schedule), _Views(metadata)
    begins_ns = sorted(record.begin_ns for record in records)
    return {record.number: _reaction(record, faults, heals_ns, views, schedule, begins_ns) for record in records}


def _reaction(
    record: FaultRecord,
    faults: Columns,
    heals_ns: np.ndarray,
    views: "_Views",
    schedule: ScheduleOutcome,
    begins_ns: Sequence[int],
) -> Reaction:
    mine = faults["fault"] == record.number
    phase, time_ns, effect = faults["phase"][mine], faults["time_ns"][mine], faults["effect"][mine]
    journaled_ns = _last(time_ns[phase == FaultPhase.JOURNALED])
    applied_ns = _last(time_ns[phase == FaultPhase.APPLIED])
    verified_ns = _last(time_ns[phase == FaultPhase.VERIFIED])
    undone_ns = time_ns[phase == FaultPhase.UNDONE]
    healed_ns = _last(time_ns[(phase == FaultPhase.UNDO_VERIFIED) & (effect == Tristate.YES)])
    asked_ns = None
    if len(undone_ns):
        before = heals_ns[heals_ns <= undone_ns.min()]
        asked_ns = max(filter(None, (_last(before), verified_ns)), default=None)
    span = _FaultSpan(record.begin_ns, record.made_ns, next((b for b in begins_ns if b > record.begin_ns), FOREVER))
    hit = schedule.aimed_at.get(record.step, ())
    led, decided_ms, leader_ms = views.new_leaders(hit, span)
    copies, isr_left = views.left_isrs(hit, span)
    return Reaction(
        what=_what(record, schedule.planned),
        effect="failed" if (phase == FaultPhase.FAILED).any() else record.effective.name.lower(),
        seen=record.detail,
        apply_ms=_between_ms(journaled_ns, applied_ns),
        verify_ms=_between_ms(applied_ns, verified_ns),
        undo_ms=_between_ms(asked_ns, healed_ns),
        led=led,
        decided_ms=decided_ms,
        leader_ms=leader_ms,
        copies=copies,
        isr_left=isr_left,
    )


def _what(record: FaultRecord, planned: Sequence[Step]) -> str:
    action = planned[record.step].do if 0 <= record.step < len(planned) else None
    if not isinstance(action, FaultAction):
        return record.kind
    given, role = action.parameters, action.targets[0].partition("(")[0].partition(":")[0]
    return " ".join([record.kind, role, *(f"{name}={given[name]}" for name in DISTINGUISHED_BY if name in given)])


def _heals_ns(schedule: ScheduleOutcome) -> np.ndarray:
    """Returns the times at which healing was asked for."""
    steps = schedule.steps
    heals = [number for number, step in enumerate(schedule.planned) if isinstance(step.do, HealAction)]
    rows = np.isin(steps["step"], heals) & (steps["outcome"] == StepOutcome.DONE) & (steps["fired_ns"] != MISSING)
    return np.asarray(steps["fired_ns"][rows])


def _last(times_ns: np.ndarray) -> int | None:
    return int(times_ns.max()) if len(times_ns) else None


def _between_ms(begin_ns: int | None, end_ns: int | None) -> float | None:
    return None if begin_ns is None or end_ns is None else (end_ns - begin_ns) / NS_PER_MS


@dataclass(frozen=True, slots=True)
class _FaultSpan:
    """Says when a fault began and was made, and how long what happened is put down to it."""

    begin_ns: int
    made_ns: int | None
    until_ns: int

    def after_ms(self, time_ns: int) -> float:
        """Returns the ms from the fault until `time_ns`; 0 = it had happened before."""
        return max(0, time_ns - (self.begin_ns if self.made_ns is None else self.made_ns)) / NS_PER_MS


_DECIDED = -1
"""Node id that stands for what the metadata log says, which is no broker's own view."""


class _Views:
    """Describes what each broker, and the metadata log, stated of leaders and ISRs, whenever that changed."""

    def __init__(self, metadata: Columns) -> None:
        rows = metadata["kind"] == MetadataKind.PARTITION
        names = ("time_ns", "partition", "leader", "leader_epoch", "isr")
        order = np.argsort(metadata["time_ns"][rows], kind="stable")
        columns = {name: metadata[name][rows][order] for name in names}
        own = metadata["source"][rows][order] == MetadataSource.SAMPLE
        columns["node"] = np.where(own, metadata["node"][rows][order], _DECIDED)
        clustered = Clustered(columns["partition"])  # sorted once: there may be thousands of partitions
        self._by_partition = {
            partition: {name: column[clustered.rows_of(partition)] for name, column in columns.items()}
            for partition in np.unique(columns["partition"]).tolist()
        }

    def new_leaders(
        self, hit: Sequence[int], span: _FaultSpan
    ) -> tuple[tuple[int, ...], tuple[float, ...], tuple[float, ...]]:
        """(partitions that one of the nodes led; of those that moved: ms until that was decided; until all others knew)."""
        led: list[int] = []
        decided_ms: list[float] = []
        known_ms: list[float] = []
        for partition, rows in self._by_partition.items():
            before = rows["time_ns"] <= span.begin_ns
            if not before.any():
                continue
            newest = int(np.argmax(np.where(before, rows["leader_epoch"], -1)))
            if int(rows["leader"][newest]) not in hit:
                continue
            led.append(partition)
            newer = ~before & (rows["leader_epoch"] > rows["leader_epoch"][newest])
            newer &= (rows["leader"] >= 0) & ~np.isin(rows["leader"], hit)
            newer &= rows["time_ns"] <= span.until_ns
            nodes = [node for node in np.unique(rows["node"]).tolist() if node not in hit and node != _DECIDED]
            for asked, found_ms in (([_DECIDED], decided_ms), (nodes, known_ms)):
                firsts = [rows["time_ns"][newer & (rows["node"] == node)] for node in asked]
                if asked and all(len(first) for first in firsts):
                    found_ms.append(span.after_ms(max(int(first[0]) for first in firsts)))
        return tuple(led), tuple(decided_ms), tuple(known_ms)

    def left_isrs(self, hit: Sequence[int], span: _FaultSpan) -> tuple[int, int]:
        """(partitions of which one of the nodes was in sync, those of them whose ISR one left)."""
        mask = broker_mask(node for node in hit if 0 <= node <= BROKER_IDS_MAX)
        copies = left = 0
        for rows in self._by_partition.values():
            before = np.flatnonzero(rows["time_ns"] <= span.begin_ns)
            in_sync = int(rows["isr"][before[-1]]) & mask if len(before) else 0
            if not in_sync:
                continue
            copies += 1
            later = (rows["time_ns"] > span.begin_ns) & (rows["time_ns"] <= span.until_ns)
            left += bool(((rows["isr"][later] & in_sync) != in_sync).any())
        return copies, left
