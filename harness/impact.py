"""What faults cost the clients: rates and latencies before, during and after each; when a partition took no records, and
which fault that was; how long until it took the first again. Measured, never judged. Pure, one partition at a time, and of
that some rows at a time.

Only sends count that wait for an answer (acks other than 0). Latencies are counted in bins of 2 %, so that parts of them can
be put together exactly, wherever they were counted.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from harness.clock import NS_PER_S
from harness.guarantees.faults import FOREVER, fault_records
from harness.guarantees.shown import node_name
from harness.history_reader import History
from harness.impact_gaps import Answers, Successes, waited_since
from harness.kernels import shared_out
from harness.plan import parse_plan
from harness.reactions import Reaction, Schedule, reactions
from harness.run_directory import RunDirectory, read_json, read_object
from harness.schedule import FaultAction, Step
from harness.schema import MISSING, Outcome, Tristate
from harness.table_file import TableFile

AROUND_NS = 10 * NS_PER_S
"""How long before a fault, and after its end, is looked at."""
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

    @property
    def struck_ns(self) -> int:
        """When it was made, as far as that is known."""
        return self.begin_ns if self.made_ns is None else self.made_ns

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


Columns = Mapping[str, np.ndarray]
SENDS_READ = ("client", "outcome", "invoked_ns", "completed_ns")


def impact_of(
    partition: int,
    stretches: Callable[[], Iterable[Columns]],
    client_acks: np.ndarray,
    faults: Sequence[FaultTime],
    assignment: Sequence[int] = (),
    untimed: Sequence[int] = (),
) -> Impact:
    """Of one partition. `stretches`: its rows of `sends`, SENDS_READ of them, some at a time, in any order: asked for once
    or twice; `client_acks`: by client id; `untimed`: clients of which it is not known when they sent, only by when: what was
    acknowledged is counted, and no latency or gap is made of it. O(n log n)."""
    found, answers, waited = no_impact(faults), Answers(), False
    successes = Successes([time_ns for f in faults for time_ns in (f.struck_ns, f.over_ns) if time_ns is not None])
    for columns in stretches():
        acks = _acks(columns, client_acks)
        timed = ~np.isin(columns["client"], np.asarray(untimed)) if untimed else np.ones(len(acks), dtype=bool)
        done = (columns["outcome"] == Outcome.OK) & (columns["completed_ns"] != MISSING)
        for level, value in enumerate(LEVELS):
            mine = (acks == value) & done
            _count_acknowledged(found, level, columns["completed_ns"][mine], faults)
            _count_latencies(found, level, *_times(columns, mine & timed), faults)
        waiting = (acks != 0) & timed
        _count_unanswered(found, np.sort(columns["invoked_ns"][waiting & ~done]), faults)
        invoked_ns, completed_ns = _times(columns, waiting & done)
        answers.add(columns["invoked_ns"][waiting], completed_ns)
        successes.add(invoked_ns, completed_ns)
        waited |= bool(waiting.any())
    gaps = answers.gaps()
    since_ns = waited_since(gaps, lambda: _sent_ns(stretches(), client_acks, untimed))
    windows = [
        (partition, _cause(begin_ns, end_ns, faults, assignment), begin_ns, end_ns)
        for begin_ns, end_ns in answers.windows(gaps, since_ns).tolist()
    ]
    recoveries = [
        (partition, fault.number, successes.after(fault.struck_ns), successes.after(fault.over_ns)) for fault in faults
    ]
    return replace(
        found,
        windows=np.array(windows, dtype=WINDOW),
        recoveries=np.array(recoveries if waited else [], dtype=RECOVERY),
    )


def _acks(columns: Columns, client_acks: np.ndarray) -> np.ndarray:
    client = columns["client"]
    if not len(client_acks):
        return np.zeros(len(client))
    known = (client >= 0) & (client < len(client_acks))
    return np.where(known, client_acks[np.where(known, client, 0)], 0)


def _times(columns: Columns, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return columns["invoked_ns"][chosen], columns["completed_ns"][chosen]


def _sent_ns(stretches: Iterable[Columns], client_acks: np.ndarray, untimed: Sequence[int]) -> Iterator[np.ndarray]:
    """When everything was sent that waits for an answer."""
    for columns in stretches:
        waiting = _acks(columns, client_acks) != 0
        if untimed:
            waiting &= ~np.isin(columns["client"], np.asarray(untimed))
        yield columns["invoked_ns"][waiting]


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
        {name: node["id"] for name, node in read_object(run.cluster).get("nodes", {}).items()}
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
    total, untimed, sends = no_impact(faults), history.untimed_senders(), history.files["sends"]
    for partition in partitions:
        one, groups = history.partition_history(partition), sends.row_groups.get(partition, ())
        # A row group at a time: a partition may have more rows than there is memory for.
        each = partial(_each_group, sends, groups)
        total += impact_of(partition, each, one.client_acks, faults, one.assignment, untimed)
    return total


def _each_group(file: TableFile, groups: Sequence[int]) -> Iterator[Columns]:
    return (file.read(SENDS_READ, [group]) for group in groups)


def put_together(parts: Iterable[Impact], faults: Sequence[FaultTime]) -> Impact:
    """The sum of parts that came in any order: ascending by partition and time."""
    total = sum(parts, start=no_impact(faults))
    windows = total.windows[np.lexsort((total.windows["begin_ns"], total.windows["partition"]))]
    recoveries = total.recoveries[np.lexsort((total.recoveries["fault"], total.recoveries["partition"]))]
    return replace(total, windows=windows, recoveries=recoveries)


def _count_acknowledged(found: Impact, level: int, completed_ns: np.ndarray, faults: Sequence[FaultTime]) -> None:
    completed_ns = np.sort(completed_ns)
    for place, fault in enumerate(faults):
        for number, name in enumerate(PHASES):
            if (span := fault.phase(name)) is not None:
                low, high = np.searchsorted(completed_ns, span)
                found.acknowledged[place, number, level] += high - low


def _count_latencies(
    found: Impact, level: int, invoked_ns: np.ndarray, completed_ns: np.ndarray, faults: Sequence[FaultTime]
) -> None:
    order = np.argsort(invoked_ns, kind="stable")
    took_us = np.maximum(1, (completed_ns - invoked_ns)[order] // 1_000)
    bins = np.minimum((np.log(took_us) * _BINS_PER_E).astype(np.int64), _BINS - 1)
    invoked_ns = invoked_ns[order]
    for place, fault in enumerate(faults):
        for number, name in enumerate(PHASES):
            if (span := fault.phase(name)) is not None:
                low, high = np.searchsorted(invoked_ns, span)
                found.latencies[place, number, level] += np.bincount(bins[low:high], minlength=_BINS)


def _count_unanswered(found: Impact, invoked_ns: np.ndarray, faults: Sequence[FaultTime]) -> None:
    """`invoked_ns` ascends."""
    for place, fault in enumerate(faults):
        for number, name in enumerate(PHASES):
            if (span := fault.phase(name)) is not None:
                low, high = np.searchsorted(invoked_ns, span)
                found.unanswered[place, number] += high - low


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
