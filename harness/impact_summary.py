"""What `impact.json` holds: for each fault what it cost, in numbers for a person. Made from `harness.impact`; values only."""

from collections.abc import Mapping, Sequence

import numpy as np

from harness.clock import NS_PER_S
from harness.configuration import Frozen
from harness.impact import LEVELS, NOBODY, PHASES, FaultTime, Impact
from harness.reactions import Reaction
from harness.schema import MISSING

WINDOWS_SHOWN = 200
"""The longest; all are counted."""


class PhaseShown(Frozen):
    """Before, during or after a fault, of sends with one `acks`."""

    phase: str
    acks: str
    acknowledged: int
    per_s: float | None
    """None = it took no time."""
    p50_ms: float | None = None
    p99_ms: float | None = None
    p999_ms: float | None = None


class RecoveryShown(Frozen):
    """How long until partitions took a record again, ms; `never`: how many did not."""

    partitions: int = 0
    median_ms: float | None = None
    slowest_ms: float | None = None
    never: int = 0


class WindowShown(Frozen):
    """When a partition took no records. `end_s` None = until the end of the trial."""

    partition: int
    begin_s: float
    end_s: float | None
    fault: int | None
    """Number of the fault; None = none explains it."""


class ReactionShown(Frozen):
    """How a fault was made, and what the cluster did (`harness.reactions`)."""

    what: str
    effect: str
    seen: str
    apply_ms: float | None
    verify_ms: float | None
    undo_ms: float | None
    led: int
    """Partitions that a broker which it was aimed at led."""
    decided: RecoveryShown
    """Of those: until the metadata log had the next leader; `never`: not before the next fault."""
    new_leader: RecoveryShown
    """Of those: until every broker that it was not aimed at named the next leader; `never`: not before the next fault."""
    first_acknowledged: RecoveryShown
    """Of those: from when it was made until a record that was sent since was acknowledged."""
    copies: int
    isr_left: int


class FaultImpact(Frozen):
    """What one fault cost."""

    fault: int
    name: str
    reaction: ReactionShown | None = None
    unanswered: int = 0
    """Records sent during it that were never acknowledged, refused ones among them."""
    phases: tuple[PhaseShown, ...]
    windows: int
    """Of unavailability that it explains."""
    open_windows: int
    longest_s: float | None
    """Of those that ended."""
    after_fault: RecoveryShown
    after_heal: RecoveryShown


class ImpactShown(Frozen):
    """All of it."""

    faults: tuple[FaultImpact, ...] = ()
    windows: tuple[WindowShown, ...] = ()
    """The longest, open ones first."""
    windows_counted: int = 0
    windows_open: int = 0
    windows_unexplained: int = 0
    incomplete: str | None = None
    """Why it could not be measured."""


def summarise(
    impact: Impact,
    faults: Sequence[FaultTime],
    names: Mapping[int, str],
    reactions: Mapping[int, Reaction] | None = None,
) -> ImpactShown:
    """For `impact.json`. `names` and `reactions`: of the faults, by number."""
    windows = impact.windows
    still = windows["end_ns"] == MISSING
    length_ns = np.where(still, np.iinfo(np.int64).max, windows["end_ns"] - windows["begin_ns"])
    longest = np.argsort(-length_ns, kind="stable")[:WINDOWS_SHOWN]
    return ImpactShown(
        faults=tuple(_fault(impact, place, fault, names, reactions or {}) for place, fault in enumerate(faults)),
        windows=tuple(_window(windows[row]) for row in longest),
        windows_counted=len(windows),
        windows_open=int(np.count_nonzero(still)),
        windows_unexplained=int(np.count_nonzero(windows["fault"] == NOBODY)),
    )


def _fault(
    impact: Impact, place: int, fault: FaultTime, names: Mapping[int, str], reactions: Mapping[int, Reaction]
) -> FaultImpact:
    windows = impact.windows[impact.windows["fault"] == fault.number]
    ended = windows[windows["end_ns"] != MISSING]
    times = impact.recoveries[impact.recoveries["fault"] == fault.number]
    return FaultImpact(
        fault=fault.number,
        name=names.get(fault.number, f"fault {fault.number}"),
        reaction=_reaction(reactions[fault.number], times) if fault.number in reactions else None,
        unanswered=int(impact.unanswered[place, PHASES.index("during")]),
        phases=tuple(
            shown
            for level, acks in enumerate(LEVELS.values())
            for number, phase in enumerate(PHASES)
            if (shown := _phase(impact, (place, number, level), fault.phase(phase), acks)) is not None
        ),
        windows=len(windows),
        open_windows=len(windows) - len(ended),
        longest_s=float((ended["end_ns"] - ended["begin_ns"]).max()) / NS_PER_S if len(ended) else None,
        after_fault=_recovery(times["fault_ns"]),
        after_heal=_recovery(times["heal_ns"]) if fault.over_ns is not None else RecoveryShown(),
    )


def _reaction(found: Reaction, times: np.ndarray) -> ReactionShown:
    """`times`: RECOVERY rows of the fault."""
    return ReactionShown(
        what=found.what,
        effect=found.effect,
        seen=found.seen,
        apply_ms=found.apply_ms,
        verify_ms=found.verify_ms,
        undo_ms=found.undo_ms,
        led=len(found.led),
        decided=_moved(found.decided_ms, len(found.led)),
        new_leader=_moved(found.leader_ms, len(found.led)),
        first_acknowledged=_recovery(times["fault_ns"][np.isin(times["partition"], found.led)]),
        copies=found.copies,
        isr_left=found.isr_left,
    )


def _moved(took_ms: Sequence[float], partitions: int) -> RecoveryShown:
    took_ns = np.array([round(each * 1e6) for each in took_ms], dtype=np.int64)
    return _recovery(np.concatenate([took_ns, np.full(partitions - len(took_ns), MISSING, dtype=np.int64)]))


def _phase(impact: Impact, place: tuple[int, int, int], span: tuple[int, int] | None, acks: str) -> PhaseShown | None:
    fault, phase, level = place
    if span is None or not (impact.acknowledged[fault, :, level].any() or impact.latencies[fault, :, level].any()):
        return None
    acknowledged = int(impact.acknowledged[place])
    length_s = (span[1] - span[0]) / NS_PER_S
    p50_ms, p99_ms, p999_ms = (impact.percentile_ms(fault, phase, level, share) for share in (0.5, 0.99, 0.999))
    return PhaseShown(
        phase=PHASES[phase],
        acks=acks,
        acknowledged=acknowledged,
        per_s=acknowledged / length_s if length_s > 0 else None,
        p50_ms=p50_ms,
        p99_ms=p99_ms,
        p999_ms=p999_ms,
    )


def _recovery(took_ns: np.ndarray) -> RecoveryShown:
    known = np.sort(took_ns[took_ns != MISSING]) / 1e6
    return RecoveryShown(
        partitions=len(took_ns),
        median_ms=float(known[(len(known) - 1) // 2]) if len(known) else None,
        slowest_ms=float(known[-1]) if len(known) else None,
        never=len(took_ns) - len(known),
    )


def _window(window: np.void) -> WindowShown:
    end_ns, fault = int(window["end_ns"]), int(window["fault"])
    return WindowShown(
        partition=int(window["partition"]),
        begin_s=int(window["begin_ns"]) / NS_PER_S,
        end_s=None if end_ns == MISSING else end_ns / NS_PER_S,
        fault=None if fault == NOBODY else fault,
    )
