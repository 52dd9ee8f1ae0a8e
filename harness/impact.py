"""What faults cost the clients: rates and latencies before, during and after each; when a partition took no records, and
which fault that was; how long until it took the first again. Measured, never judged. Pure, one partition at a time.

Only sends count that wait for an answer (acks other than 0). Latencies are counted in bins of 2 %, so that parts of them can
be put together exactly, wherever they were counted.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.clock import NS_PER_S
from harness.guarantees.faults import FOREVER, fault_records
from harness.guarantees.shown import node_name
from harness.history_reader import History
from harness.kernels import shared_out
from harness.plan import parse_plan
from harness.reactions import Reaction, Schedule, reactions
from harness.run_directory import RunDirectory, read_json
from harness.schedule import FaultAction, Step
from harness.schema import MISSING, Outcome, Tristate

AROUND_NS = 10 * NS_PER_S
"""How long before a fault, and after its end, is looked at."""
UNAVAILABLE_NS = NS_PER_S
"""A partition that acknowledged nothing for so long, although it was sent something, was unavailable."""
PHASES = ("before", "during", "after")
LEVELS = {1: "1", -1: "all"}
"""acks → as it is written."""
NAMES_SHOWN = 3
NOBODY = -1
"""The fault of a window that none explains."""
_BINS_PER_E = 50
_BINS = 1200
"""Up to e^24 µs."""
WINDOW = np.dtype([("partition", "<i4"), ("fault", "<i4"), ("begin_ns", "<i8"), ("end_ns", "<i8")])
"""When a partition was unavailable; `end_ns` MISSING = until the end: the window is open."""
RECOVERY = np.dtype([("partition", "<i4"), ("fault", "<i4"), ("fault_ns", "<i8"), ("heal_ns", "<i8")])
"""How long after a fault was made, and after its end, a send that was made since was first acknowledged; MISSING = never."""


@dataclass(frozen=True, slots=True)
class FaultTime:
    """When a fault began (as its undo was journaled), when it was made, and when it was undone; None = it was not. `nodes`:
    whom it touched."""

    number: int
    begin_ns: int
    over_ns: int | None
    nodes: frozenset[int] = frozenset()
    made_ns: int | None = None

    def phase(self, name: str) -> tuple[int, int] | None:
        """When it begins and ends; None = it never came, or its end is not known."""
        if name == "before":
            return self.begin_ns - AROUND_NS, self.begin_ns
        if self.over_ns is None:
            return None
        return (self.begin_ns, self.over_ns) if name == "during" else (self.over_ns, self.over_ns + AROUND_NS)


@dataclass(frozen=True, slots=True)
class Impact:
    """What some partitions add up to. Axes: fault (its place), phase, level of LEVELS."""

    acknowledged: np.ndarray
    """int64[faults, 3, 2]: records acknowledged in the phase."""
    latencies: np.ndarray
    """int64[faults, 3, 2, bins]: of acknowledged records that were sent in the phase."""
    unanswered: np.ndarray
    """int64[faults, 3]: records sent in the phase that were never acknowledged, refused ones among them."""
    windows: np.ndarray
    recoveries: np.ndarray

    def __add__(self, other: "Impact") -> "Impact":
        return Impact(
            self.acknowledged + other.acknowledged,
            self.latencies + other.latencies,
            self.unanswered + other.unanswered,
            np.concatenate([self.windows, other.windows]),
            np.concatenate([self.recoveries, other.recoveries]),
        )

    def percentile_ms(self, fault: int, phase: int, level: int, share: float) -> float | None:
        """So many of the latencies are at most this (to 2 %); None = there are none."""
        counts = self.latencies[fault, phase, level]
        total = int(counts.sum())
        if not total:
            return None
        place = int(np.searchsorted(np.cumsum(counts), max(1, int(np.ceil(share * total)))))
        return float(np.exp((place + 1) / _BINS_PER_E) / 1_000)


def no_impact(faults: Sequence[FaultTime]) -> Impact:
    """Of no partition."""
    shape = (len(faults), len(PHASES), len(LEVELS))
    return Impact(
        np.zeros(shape, dtype=np.int64),
        np.zeros((*shape, _BINS), dtype=np.int64),
        np.zeros(shape[:2], dtype=np.int64),
        np.empty(0, dtype=WINDOW),
        np.empty(0, dtype=RECOVERY),
    )


def impact_of(
    partition: int,
    sends: Mapping[str, np.ndarray],
    client_acks: np.ndarray,
    faults: Sequence[FaultTime],
    assignment: Sequence[int] = (),
    untimed: Sequence[int] = (),
) -> Impact:
    """Of one partition. `sends`: its rows, in any order; `client_acks`: by client id; `untimed`: clients of which it is not
    known when they sent, only by when: what was acknowledged is counted, and no latency or gap is made of it.
    O(n log n)."""
    found = no_impact(faults)
    if untimed:
        there = np.isin(sends["client"], np.asarray(untimed))
        told = impact_of(partition, _rows(sends, there), client_acks, faults, assignment) if there.any() else found
        rest = impact_of(partition, _rows(sends, ~there), client_acks, faults, assignment)
        return replace(rest, acknowledged=rest.acknowledged + told.acknowledged)
    client = sends["client"]
    known = (client >= 0) & (client < len(client_acks))
    acks = np.where(known, client_acks[np.where(known, client, 0)], 0) if len(client_acks) else np.zeros(len(client))
    done = (sends["outcome"] == Outcome.OK) & (sends["completed_ns"] != MISSING)
    for level, value in enumerate(LEVELS):
        rows = np.flatnonzero((acks == value) & done)
        _count(found, level, sends["invoked_ns"][rows], sends["completed_ns"][rows], faults)
    waiting = acks != 0
    _count_unanswered(found, np.sort(sends["invoked_ns"][waiting & ~done]), faults)
    invoked_ns, answered = sends["invoked_ns"][waiting], done[waiting]
    completed_ns = np.sort(sends["completed_ns"][waiting & done])
    windows = [
        (partition, _cause(begin_ns, end_ns, faults, assignment), begin_ns, end_ns)
        for begin_ns, end_ns in _windows(np.sort(invoked_ns), completed_ns).tolist()
    ]
    rows = np.array(windows, dtype=WINDOW)
    if not len(invoked_ns):
        return replace(found, windows=rows)
    recoveries = _recoveries(partition, invoked_ns[answered], sends["completed_ns"][waiting & done], faults)
    return replace(found, windows=rows, recoveries=recoveries)


def _rows(columns: Mapping[str, np.ndarray], chosen: np.ndarray) -> dict[str, np.ndarray]:
    return {name: column[chosen] for name, column in columns.items()}


def fault_times(history: History) -> list[FaultTime]:
    """The faults of a run that took effect, or may have."""
    run = history.run
    dictionaries = read_json(run.dictionaries) if run.dictionaries.exists() else {}
    found = []
    for record in fault_records(history.table("faults"), dictionaries):
        if record.effective is not Tristate.NO:
            healed_ns = record.end_ns if record.end_ns != FOREVER else None
            over_ns = record.undone_ns if record.undone_ns is not None else healed_ns
            nodes = frozenset(record.nodes)
            found.append(FaultTime(record.number, record.begin_ns, over_ns, nodes, record.made_ns))
    return found


def fault_names(history: History) -> dict[int, str]:
    """Number → its kind and the nodes that it hit."""
    run = history.run
    dictionaries = read_json(run.dictionaries) if run.dictionaries.exists() else {}
    records = fault_records(history.table("faults"), dictionaries)
    return {record.number: f"{record.kind} {_brief([node_name(node) for node in record.hit])}" for record in records}


def _brief(names: Sequence[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names) if more <= 1 else f"{', '.join(names[:NAMES_SHOWN])} and {more} more"


def reactions_of(history: History) -> dict[int, Reaction]:
    """Number of each fault → what the cluster did."""
    run = history.run
    dictionaries = read_json(run.dictionaries) if run.dictionaries.exists() else {}
    faults = history.table("faults")
    records = fault_records(faults, dictionaries)
    planned = parse_plan(run.plan.read_text(encoding="utf-8"), source=str(run.plan)).steps
    schedule = Schedule(planned, history.table("steps"), _aimed_at(run, planned))
    return reactions(records, faults, history.table("metadata"), schedule)


def _aimed_at(run: RunDirectory, planned: Sequence[Step]) -> dict[int, list[int]]:
    """Number of a step → ids of the brokers that its targets were when it struck."""
    ids = (
        {name: node["id"] for name, node in read_json(run.cluster).get("nodes", {}).items()}
        if run.cluster.exists()
        else {}
    )
    found: dict[int, list[int]] = {}
    for entry in read_json(run.resolved) if run.resolved.exists() else ():
        action = planned[entry["step_number"]].do
        if isinstance(action, FaultAction) and entry["role"] in action.targets:
            found.setdefault(entry["step_number"], []).extend(ids[n] for n in entry["nodes"] if n in ids)
    return found


def groups_of(history: History, groups: int) -> list[list[int]]:
    """The partitions, in at most so many groups of nearly equal rows, the largest first."""
    rows = [history.files["sends"].rows_of(partition) for partition in history.partitions]
    return [[history.partitions[place] for place in group] for group in shared_out(rows, groups)]


def measure(history: History, partitions: Sequence[int], faults: Sequence[FaultTime]) -> Impact:
    """What these partitions add up to."""
    total, untimed = no_impact(faults), history.untimed_senders()
    for partition in partitions:
        one = history.partition_history(partition)
        total += impact_of(partition, one.sends, one.client_acks, faults, one.assignment, untimed)
    return total


def put_together(parts: Iterable[Impact], faults: Sequence[FaultTime]) -> Impact:
    """The sum of parts that came in any order: ascending by partition and time."""
    total = sum(parts, start=no_impact(faults))
    windows = total.windows[np.lexsort((total.windows["begin_ns"], total.windows["partition"]))]
    recoveries = total.recoveries[np.lexsort((total.recoveries["fault"], total.recoveries["partition"]))]
    return replace(total, windows=windows, recoveries=recoveries)


def _count(
    found: Impact, level: int, invoked_ns: np.ndarray, completed_ns: np.ndarray, faults: Sequence[FaultTime]
) -> None:
    order = np.argsort(invoked_ns, kind="stable")
    took_us = np.maximum(1, (completed_ns - invoked_ns)[order] // 1_000)
    bins = np.minimum((np.log(took_us) * _BINS_PER_E).astype(np.int64), _BINS - 1)
    invoked_ns, completed_ns = invoked_ns[order], np.sort(completed_ns)
    for place, fault in enumerate(faults):
        for number, name in enumerate(PHASES):
            if (span := fault.phase(name)) is not None:
                low, high = np.searchsorted(invoked_ns, span)
                found.latencies[place, number, level] += np.bincount(bins[low:high], minlength=_BINS)
                low, high = np.searchsorted(completed_ns, span)
                found.acknowledged[place, number, level] += high - low


def _count_unanswered(found: Impact, invoked_ns: np.ndarray, faults: Sequence[FaultTime]) -> None:
    """`invoked_ns` ascends."""
    for place, fault in enumerate(faults):
        for number, name in enumerate(PHASES):
            if (span := fault.phase(name)) is not None:
                low, high = np.searchsorted(invoked_ns, span)
                found.unanswered[place, number] += high - low


def _windows(invoked_ns: np.ndarray, completed_ns: np.ndarray) -> np.ndarray:
    """int64[k, 2]: from the first send after an acknowledgement until the next acknowledgement, where that took
    UNAVAILABLE_NS; MISSING = there was no next. Both arrays ascend."""
    last = np.append(np.iinfo(np.int64).min, completed_ns)
    following = np.append(completed_ns, np.iinfo(np.int64).max)
    place = np.searchsorted(invoked_ns, last, side="right")
    tried = place < len(invoked_ns)
    begin_ns = np.full(len(last), np.iinfo(np.int64).max)
    begin_ns[tried] = invoked_ns[place[tried]]
    ends = following != np.iinfo(np.int64).max
    newest = int(invoked_ns[-1]) if len(invoked_ns) else 0
    # What was sent last of all had less time to be answered than UNAVAILABLE_NS: that proves nothing.
    until_ns = np.where(ends, following, newest)
    long = tried & (begin_ns < until_ns) & (until_ns - np.minimum(begin_ns, until_ns) >= UNAVAILABLE_NS)
    return np.stack([begin_ns[long], np.where(ends[long], following[long], MISSING)], axis=1)


def _cause(begin_ns: int, end_ns: int, faults: Sequence[FaultTime], assignment: Sequence[int]) -> int:
    """The number of the fault that a window is put down to: one that touched a broker of the partition, if there is any; of
    those the one that was at work in most of the window, else the one whose aftermath (AROUND_NS) is in most of it."""
    until_ns = np.iinfo(np.int64).max if end_ns == MISSING else end_ns
    found = []
    for fault in faults:
        over_ns = until_ns if fault.over_ns is None else fault.over_ns
        at_work_ns = min(until_ns, over_ns) - max(begin_ns, fault.begin_ns)
        after_ns = min(until_ns, over_ns + AROUND_NS) - max(begin_ns, over_ns)
        if at_work_ns > 0 or (after_ns > 0 and fault.over_ns is not None):
            touched = not fault.nodes.isdisjoint(assignment)
            found.append((touched, max(0, at_work_ns), max(0, after_ns), -fault.number))
    return -max(found)[-1] if found else NOBODY


def _recoveries(
    partition: int, invoked_ns: np.ndarray, completed_ns: np.ndarray, faults: Sequence[FaultTime]
) -> np.ndarray:
    order = np.argsort(invoked_ns, kind="stable")
    invoked_ns = invoked_ns[order]
    # Of what was sent from each place on, the first acknowledgement.
    first_ns = np.append(np.minimum.accumulate(completed_ns[order][::-1])[::-1], np.iinfo(np.int64).max)

    def after(time_ns: int | None) -> int:
        if time_ns is None:
            return MISSING
        at = int(first_ns[np.searchsorted(invoked_ns, time_ns)])
        return MISSING if at == np.iinfo(np.int64).max else at - time_ns

    rows = [
        (
            partition,
            fault.number,
            after(fault.begin_ns if fault.made_ns is None else fault.made_ns),
            after(fault.over_ns),
        )
        for fault in faults
    ]
    return np.array(rows, dtype=RECOVERY)
