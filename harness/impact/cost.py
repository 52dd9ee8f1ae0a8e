"""This module says what faults cost the clients: rates and latencies before, during and after each; when a partition
took no records, which fault that was, and how long until it took the first again. Measured, never judged. Pure, one
partition at a time, and of that some rows at a time.

Only sends count that wait for an answer (acks other than 0). Latencies are counted in bins of 2 %, so that parts of them can
be put together exactly, wherever they were counted.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from prozess.harness.checking.kernels import shared_out
from prozess.harness.clock import NS_PER_S
from prozess.harness.columns import of_clients
from prozess.harness.guarantees.evidence.ground_truth import FOREVER, fault_records
from prozess.harness.guarantees.verdict.sentences import node_name
from prozess.harness.history.parquet import TableFile
from prozess.harness.history.reader import History
from prozess.harness.impact.reactions import Reaction, ScheduleOutcome, reactions
from prozess.harness.plan.plan import parse_plan
from prozess.harness.plan.schedule import FaultAction, Step
from prozess.harness.recording.codes import read_texts
from prozess.harness.run_directory import RunDirectory, read_document, read_object, read_resolved
from prozess.harness.schema import MISSING, Outcome, Tristate
from prozess.harness.values import Frozen

AROUND_NS = 10 * NS_PER_S
"""The time before a fault and after its end for which rates and latencies are measured."""
PHASES = ("before", "during", "after")
LEVELS = {1: "1", -1: "all"}
"""acks as a number → as it is written."""
NAMES_SHOWN = 3
NO_FAULT = -1
"""Stands for the fault of a window that no fault explains."""
WARM_UP = -2
"""The fault of a window that none explains, and that ended with the first acknowledgement of all: clients send before topics
have leaders and connections are made, and a trial's schedule begins once every partition has acknowledged something. A
partition that is added later warms up, too."""
_BINS_PER_E = 50
_BINS = 1200
"""Up to e^24 µs."""
WINDOW = np.dtype([("partition", "<i4"), ("fault", "<i4"), ("begin_ns", "<i8"), ("end_ns", "<i8")])
"""When a partition was unavailable; `end_ns` MISSING = until the end: the window is open."""
RECOVERY = np.dtype([("partition", "<i4"), ("fault", "<i4"), ("fault_ns", "<i8"), ("heal_ns", "<i8")])
"""How long after a fault was made, and after its end, a send that was made since was first acknowledged; MISSING = never."""


@dataclass(frozen=True, slots=True)
class FaultTime:
    """Says when a fault began (as its undo was journaled), when it was made, and when it was undone; None = it was not.
    `nodes`: whom it touched."""

    number: int
    begin_ns: int
    over_ns: int | None
    nodes: frozenset[int] = frozenset()
    made_ns: int | None = None

    @property
    def struck_ns(self) -> int:
        """Returns when the fault was made; when it began, if that is not known."""
        return self.begin_ns if self.made_ns is None else self.made_ns

    def phase(self, name: str) -> tuple[int, int] | None:
        """Returns when a phase of the fault begins and ends; None = there was none, or its end is not known."""
        if name == "before":
            return self.begin_ns - AROUND_NS, self.begin_ns
        if self.over_ns is None:
            return None
        return (self.begin_ns, self.over_ns) if name == "during" else (self.over_ns, self.over_ns + AROUND_NS)


@dataclass(frozen=True, slots=True)
class Impact:
    """Holds what faults cost some partitions, added up. Axes: fault (its index), phase, level of LEVELS."""

    acknowledged: np.ndarray
    """int64[faults, 3, 2]: records acknowledged in the phase."""
    latencies: np.ndarray
    """int64[faults, 3, 2, bins]: of acknowledged records that were sent in the phase."""
    unanswered: np.ndarray
    """int64[faults, 3]: records sent in the phase that were never acknowledged, refused ones among them."""
    windows: np.ndarray
    recoveries: np.ndarray

    @staticmethod
    def total(parts: Iterable["Impact"], faults: Sequence[FaultTime]) -> "Impact":
        """Returns the impact on the partitions of all parts together."""
        whole, windows, recoveries = no_impact(faults), [np.empty(0, WINDOW)], [np.empty(0, RECOVERY)]
        for part in parts:
            if faults:
                np.add(whole.acknowledged, part.acknowledged, out=whole.acknowledged)
                np.add(whole.latencies, part.latencies, out=whole.latencies)
                np.add(whole.unanswered, part.unanswered, out=whole.unanswered)
            windows += [part.windows] if len(part.windows) else []
            recoveries += [part.recoveries] if len(part.recoveries) else []
        return replace(
            whole,
            windows=np.concatenate(windows, dtype=WINDOW),
            recoveries=np.concatenate(recoveries, dtype=RECOVERY),
        )

    def percentile_ms(self, fault: int, phase: int, level: int, share: float) -> float | None:
        """Returns the latency that the share of sends did not exceed, exact to 2 %; None = there are no latencies."""
        counts = self.latencies[fault, phase, level]
        total = int(counts.sum())
        if not total:
            return None
        # Example: bins with 3, 5 and 2 latencies have the sums 3 8 10. Half of 10 is 5, which the second bin reaches first.
        index = int(np.searchsorted(np.cumsum(counts), max(1, int(np.ceil(share * total)))))
        return float(np.exp((index + 1) / _BINS_PER_E) / 1_000)


def no_impact(faults: Sequence[FaultTime]) -> Impact:
    """Returns the impact on no partition, to which others are added."""
    shape = (len(faults), len(PHASES), len(LEVELS))
    return Impact(
        np.zeros(shape, dtype=np.int64),
        np.zeros((*shape, _BINS), dtype=np.int64),
        np.zeros(shape[:2], dtype=np.int64),
        np.empty(0, dtype=WINDOW),
        np.empty(0, dtype=RECOVERY),
    )


Columns = Mapping[str, np.ndarray]
_AT_A_TIME_ROWS = 1 << 17
"""What is computed of so many rows stays in the processor's cache."""
SENDS_READ = ("client", "outcome", "invoked_ns", "completed_ns")


def impact_of(
    partition: int,
    stretches: Callable[[], Iterable[Columns]],
    client_acks: np.ndarray,
    faults: Sequence[FaultTime],
    assignment: Sequence[int] = (),
    untimed: Sequence[int] = (),
) -> Impact:
    """Returns what the faults cost one partition. `stretches`: its rows of `sends`, SENDS_READ of them, some at a time, in
    any order: asked for once or twice; `client_acks`: by client id; `untimed`: clients of which it is not known when they
    sent, only by when: what was acknowledged is counted, and no latency or gap is made of it. O(n log n)."""
    found, answers, waited = no_impact(faults), Answers(), False
    spans = phases_of(faults)
    successes = Successes([time_ns for f in faults for time_ns in (f.struck_ns, f.over_ns) if time_ns is not None])
    for columns in _few_at_a_time(stretches()):
        acks = _acks(columns, client_acks)
        timed = ~np.isin(columns["client"], np.asarray(untimed)) if untimed else np.ones(len(acks), dtype=bool)
        done = (columns["outcome"] == Outcome.OK.value) & (columns["completed_ns"] != MISSING)
        for level, value in enumerate(LEVELS) if spans else ():
            mine = (acks == value) & done
            if not mine.any():
                continue
            _count_acknowledged(found, level, columns["completed_ns"][mine], spans)
            _count_latencies(found, level, *_times(columns, mine & timed), spans)
        waiting = (acks != 0) & timed
        if spans and (lacking := waiting & ~done).any():
            _count_unanswered(found, columns["invoked_ns"][lacking], spans)
        invoked_ns, completed_ns = _times(columns, waiting & done)
        answers.add(_chosen(columns["invoked_ns"], waiting), completed_ns)
        if faults:
            successes.add(invoked_ns, completed_ns)
        waited |= bool(waiting.any())
    windows = []
    if len(gaps := answers.gaps()):
        since_ns = first_send_since(gaps, lambda: _sent_ns(stretches(), client_acks, untimed))
        windows = [
            (partition, _cause(begin_ns, end_ns, faults, assignment, first=bool(first)), begin_ns, end_ns)
            for begin_ns, end_ns, first in answers.windows(gaps, since_ns).tolist()
        ]
    recoveries = [
        (partition, fault.number, successes.after(fault.struck_ns), successes.after(fault.over_ns)) for fault in faults
    ]
    return replace(
        found,
        windows=np.array(windows, dtype=WINDOW),
        recoveries=np.array(recoveries if waited else [], dtype=RECOVERY),
    )


def _few_at_a_time(stretches: Iterable[Columns]) -> Iterator[Columns]:
    """Yields the same rows, so few at a time that what is computed of them stays in the processor's cache."""
    for columns in stretches:
        count = len(columns["client"])
        for first in range(0, count, _AT_A_TIME_ROWS):
            yield {name: values[first : first + _AT_A_TIME_ROWS] for name, values in columns.items()}


Spans = Sequence[tuple[int, int, tuple[int, int]]]
"""The phases of faults that there were: the fault's index, the phase's number, and when it began and ended."""


def phases_of(faults: Sequence[FaultTime]) -> Spans:
    """Returns every phase of every fault of which the end is known."""
    phases = [
        (index, number, fault.phase(name)) for index, fault in enumerate(faults) for number, name in enumerate(PHASES)
    ]
    return [(index, number, span) for index, number, span in phases if span is not None]


def _acks(columns: Columns, client_acks: np.ndarray) -> np.ndarray:
    return of_clients(client_acks, columns["client"], unknown=0)


def _times(columns: Columns, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return _chosen(columns["invoked_ns"], chosen), _chosen(columns["completed_ns"], chosen)


def _chosen(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Returns the chosen values. It copies nothing if those are all."""
    return values if chosen.all() else values[chosen]


def _sent_ns(stretches: Iterable[Columns], client_acks: np.ndarray, untimed: Sequence[int]) -> Iterator[np.ndarray]:
    """Yields the times of all sends that wait for an answer."""
    for columns in stretches:
        waiting = _acks(columns, client_acks) != 0
        if untimed:
            waiting &= ~np.isin(columns["client"], np.asarray(untimed))
        yield columns["invoked_ns"][waiting]


def fault_times(history: History) -> list[FaultTime]:
    """The faults of a run that took effect, or may have."""
    run = history.run
    dictionaries = read_texts(run.dictionaries)
    found = []
    for record in fault_records(history.table("faults"), dictionaries):
        if record.effective is not Tristate.NO:
            healed_ns = record.end_ns if record.end_ns != FOREVER else None
            over_ns = record.undone_ns if record.undone_ns is not None else healed_ns
            nodes = frozenset(record.nodes)
            found.append(FaultTime(record.number, record.begin_ns, over_ns, nodes, record.made_ns))
    return found


def fault_names(history: History) -> dict[int, str]:
    """Returns the kind of each fault and the nodes that it hit, by its number."""
    run = history.run
    dictionaries = read_texts(run.dictionaries)
    records = fault_records(history.table("faults"), dictionaries)
    return {record.number: f"{record.kind} {_brief([node_name(node) for node in record.hit])}" for record in records}


def _brief(names: Sequence[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names) if more <= 1 else f"{', '.join(names[:NAMES_SHOWN])} and {more} more"


def reactions_of(history: History) -> dict[int, Reaction]:
    """Returns what the cluster did about each fault, by its number."""
    run = history.run
    dictionaries = read_texts(run.dictionaries)
    faults = history.table("faults")
    records = fault_records(faults, dictionaries)
    planned = parse_plan(read_document(run.plan), source=str(run.plan)).steps
    schedule = ScheduleOutcome(planned, history.table("steps"), _aimed_at(run, planned))
    return reactions(records, faults, history.table("metadata"), schedule)


def _aimed_at(run: RunDirectory, planned: Sequence[Step]) -> dict[int, list[int]]:
    """Number of a step → ids of the brokers that its targets were when it struck."""
    ids = (
        {name: node["id"] for name, node in read_object(run.cluster).get("nodes", {}).items()}
        if run.cluster.exists()
        else {}
    )
    found: dict[int, list[int]] = {}
    for entry in read_resolved(run):
        action = planned[entry["step_number"]].do
        if isinstance(action, FaultAction) and entry["role"] in action.targets:
            found.setdefault(entry["step_number"], []).extend(ids[n] for n in entry["nodes"] if n in ids)
    return found


def groups_of(history: History, groups: int, partitions: Sequence[int] | None = None) -> list[list[int]]:
    """Returns partitions (None: all), in at most so many groups of nearly equal rows, the largest first."""
    chosen = history.partitions if partitions is None else partitions
    rows = [history.files["sends"].rows_of(partition) for partition in chosen]
    return [[chosen[index] for index in group] for group in shared_out(rows, groups)]


def measure(history: History, partitions: Sequence[int], faults: Sequence[FaultTime]) -> Impact:
    """Returns what the faults cost these partitions together."""
    untimed, sends, client_acks = history.untimed_senders(), history.files["sends"], history.clients.acks

    def each(partition: int, stretches: Callable[[], Iterable[Columns]]) -> Impact:
        return impact_of(partition, stretches, client_acks, faults, history.assignment_of(partition), untimed)

    return Impact.total((each(*one) for one in _stretches_of(sends, partitions)), faults)


READ_AT_ONCE_ROWS = 1 << 18
"""The rows of partitions that are read in one call: each call costs about as much as ten thousand rows."""


def _stretches_of(file: TableFile, partitions: Sequence[int]) -> Iterator[tuple[int, Callable[[], Iterable[Columns]]]]:
    """Yields each partition with its rows, some at a time. Small partitions are read together. For a large one it is a row
    group at a time, because it may have more rows than there is memory for."""
    small: list[int] = []
    rows = 0
    for partition in partitions:
        count = file.rows_of(partition)
        if not count or count >= READ_AT_ONCE_ROWS:
            yield partition, partial(_each_range, file, file.row_ranges.get(partition, ()))
            continue
        if rows + count > READ_AT_ONCE_ROWS:
            yield from _read_together(file, small)
            small, rows = [], 0
        small.append(partition)
        rows += count
    yield from _read_together(file, small)


def _read_together(file: TableFile, partitions: Sequence[int]) -> Iterator[tuple[int, Callable[[], Iterable[Columns]]]]:
    # In the order of the file, and of its rows.
    ordered = sorted(partitions, key=lambda partition: file.row_ranges.get(partition, (0,)))
    row_ranges = [one for partition in ordered for one in file.row_ranges.get(partition, ())]
    columns, first = file.read(SENDS_READ, row_ranges), 0
    for partition in ordered:
        last = first + file.rows_of(partition)
        mine = {name: values[first:last] for name, values in columns.items()}
        yield partition, partial(_all_at_once, mine)
        first = last


def _all_at_once(columns: Columns) -> Iterable[Columns]:
    return (columns,)


def _each_range(file: TableFile, row_ranges: Sequence[int]) -> Iterator[Columns]:
    return (file.read(SENDS_READ, [one]) for one in row_ranges)


def join_impacts(parts: Iterable[Impact], faults: Sequence[FaultTime]) -> Impact:
    """Returns the sum of parts that came in any order: ascending by partition and time."""
    total = Impact.total(parts, faults)
    windows = total.windows[np.lexsort((total.windows["begin_ns"], total.windows["partition"]))]
    recoveries = total.recoveries[np.lexsort((total.recoveries["fault"], total.recoveries["partition"]))]
    return replace(total, windows=windows, recoveries=recoveries)


def measure_locally(history: History, faults: Sequence[FaultTime], *, workers: int) -> Impact:
    """Returns what the faults of a run cost, measured by threads of this process. HistoryUnreadable if a page is damaged."""
    # For small partitions hardly anything releases the interpreter, so threads that take turns at them only wait.
    small = [p for p in history.partitions if history.files["sends"].rows_of(p) <= _MANY]
    large = sorted(set(history.partitions).difference(small))
    groups = [*groups_of(history, 2 * workers, large), *([small] if small else [])]
    with ThreadPoolExecutor(workers, thread_name_prefix="measure") as pool:
        return join_impacts(pool.map(lambda group: measure(history, group, faults), groups), faults)


def _count_acknowledged(found: Impact, level: int, completed_ns: np.ndarray, spans: Spans) -> None:
    # Sorted once: then each phase is two searches, however many faults there are.
    completed_ns = np.sort(completed_ns[_inside(completed_ns, spans)])
    for index, number, span in spans:
        low, high = np.searchsorted(completed_ns, span)
        found.acknowledged[index, number, level] += high - low


def _count_latencies(found: Impact, level: int, invoked_ns: np.ndarray, completed_ns: np.ndarray, spans: Spans) -> None:
    near = _inside(invoked_ns, spans)
    invoked_ns, completed_ns = invoked_ns[near], completed_ns[near]
    order = np.argsort(invoked_ns, kind="stable")
    took_us = np.maximum(1, (completed_ns - invoked_ns)[order] // 1_000)
    bins = np.minimum((np.log(took_us) * _BINS_PER_E).astype(np.int64), _BINS - 1)
    invoked_ns = invoked_ns[order]
    for index, number, span in spans:
        low, high = np.searchsorted(invoked_ns, span)
        if high > low:
            found.latencies[index, number, level] += np.bincount(bins[low:high], minlength=_BINS)


def _count_unanswered(found: Impact, invoked_ns: np.ndarray, spans: Spans) -> None:
    invoked_ns = np.sort(invoked_ns[_inside(invoked_ns, spans)])
    for index, number, span in spans:
        low, high = np.searchsorted(invoked_ns, span)
        found.unanswered[index, number] += high - low


def _inside(times_ns: np.ndarray, spans: Spans) -> np.ndarray:
    """Returns bool[n]: may a time be in one of the phases? What lies before all of them or behind them is not sorted."""
    first_ns, last_ns = min(begin_ns for _, _, (begin_ns, _) in spans), max(end_ns for _, _, (_, end_ns) in spans)
    return np.asarray((times_ns >= first_ns) & (times_ns < last_ns))


def _cause(
    begin_ns: int, end_ns: int, faults: Sequence[FaultTime], assignment: Sequence[int], *, first: bool = False
) -> int:
    """The number of the fault that a window is put down to: one that touched a broker of the partition, if there is any; of
    those the one that was at work in most of the window, else the one whose aftermath (AROUND_NS) is in most of it. `first`:
    did the window end with the partition's first acknowledgement?"""
    until_ns = np.iinfo(np.int64).max if end_ns == MISSING else end_ns
    found = []
    for fault in faults:
        over_ns = until_ns if fault.over_ns is None else fault.over_ns
        at_work_ns = min(until_ns, over_ns) - max(begin_ns, fault.begin_ns)
        after_ns = min(until_ns, over_ns + AROUND_NS) - max(begin_ns, over_ns)
        if at_work_ns > 0 or (after_ns > 0 and fault.over_ns is not None):
            touched = not fault.nodes.isdisjoint(assignment)
            found.append((touched, max(0, at_work_ns), max(0, after_ns), -fault.number))
    return -max(found)[-1] if found else WARM_UP if first else NO_FAULT


# When a partition acknowledged nothing, and when it did again: found in its rows a stretch of them at a time, in any
# order, with little in memory beside the stretch. Pure.
#
# Two acknowledgements between which something was unavailable are far apart, so that of each short time only the first
# and the last must be remembered. Which send waited first in such a gap is asked in a second look, and only where
# there is one.


UNAVAILABLE_NS = NS_PER_S
"""A partition that acknowledged nothing for so long, although it was sent something, was unavailable."""
_BIN_NS = UNAVAILABLE_NS // 2
_MANY = 4096
"""More times than this are thinned out before they are sorted."""
_BEFORE, _NEVER = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)


class Answers:
    """The acknowledgements of a partition, as far as gaps of UNAVAILABLE_NS between them need them."""

    def __init__(self) -> None:
        self._times_ns = np.empty(0, dtype=np.int64)
        self._first_ns, self._newest_ns = _NEVER, 0
        self._sent = False

    def add(self, invoked_ns: np.ndarray, completed_ns: np.ndarray) -> None:
        """Adds the answers of some rows: when each was sent, and when those that were acknowledged were. In any order."""
        if len(invoked_ns):
            newest_ns = int(invoked_ns.max())
            self._newest_ns = max(self._newest_ns, newest_ns) if self._sent else newest_ns
            self._first_ns = min(self._first_ns, int(invoked_ns.min(where=invoked_ns > _BEFORE, initial=_NEVER)))
            self._sent = True
        times_ns = _outermost(completed_ns)
        if len(self._times_ns):
            times_ns = _outermost(np.concatenate([self._times_ns, times_ns]))
        self._times_ns = times_ns

    def gaps(self) -> np.ndarray:
        """Returns int64[k, 2]: the last acknowledgement and the next one, ascending, where a send may have waited long
        in between; _BEFORE = there was none yet, _NEVER = none came any more."""
        # Example: acknowledgements at 3 s and 9 s, sends from 1 s to 9.5 s. The pairs are (before, 3), (3, 9), (9, never):
        # from 1 to 3, 3 to 9 and 9 to 9.5 s. All but the last are long.
        last, following = np.append(_BEFORE, self._times_ns), np.append(self._times_ns, _NEVER)
        since_ns, until_ns = last.copy(), following.copy()
        since_ns[0], until_ns[-1] = self._first_ns, self._newest_ns
        # What was sent last of all had less time to be answered than UNAVAILABLE_NS: that proves nothing.
        # The minimum keeps the difference within 64 bits where a time stands for never.
        long = (until_ns > since_ns) & (until_ns - np.minimum(since_ns, until_ns) >= UNAVAILABLE_NS)
        return np.stack([last[long], following[long]], axis=1)

    def windows(self, gaps: np.ndarray, waited_since_ns: np.ndarray) -> np.ndarray:
        """Returns int64[k, 3]: from the first send after an acknowledgement until the next acknowledgement, where that
        took UNAVAILABLE_NS; MISSING = there was no next. The third is 1 where nothing had been acknowledged before,
        else 0."""
        following = gaps[:, 1]
        until_ns = np.where(following == _NEVER, self._newest_ns, following)
        long = (waited_since_ns < until_ns) & (until_ns - np.minimum(waited_since_ns, until_ns) >= UNAVAILABLE_NS)
        end_ns = np.where(following == _NEVER, MISSING, following)
        first = (gaps[:, 0] == _BEFORE) & (following != _NEVER)
        return np.stack([waited_since_ns[long], end_ns[long], first[long]], axis=1)


def first_send_since(gaps: np.ndarray, invoked_ns: Callable[[], Iterable[np.ndarray]]) -> np.ndarray:
    """Returns int64[k]: when the first send after each gap's begin was made; _NEVER = none was. Only looks if there is
    a gap."""
    last, found = gaps[:, 0], np.full(len(gaps), _NEVER)
    for times_ns in invoked_ns() if len(gaps) else ():
        # Each send counts for the last gap that began before it. What was sent in a later gap was sent since the earlier ones
        # began, too: the least from each on, at the end. Example: gaps began at 3 and 20 s, and sends were made at 25 and 40
        # s: never and 25, which becomes 25 and 25.
        _lower(found, np.searchsorted(last, times_ns, side="left") - 1, times_ns)
    return np.minimum.accumulate(found[::-1])[::-1]


class Successes:
    """After each of some times, the first acknowledgement of what was sent since."""

    def __init__(self, times_ns: Sequence[int]) -> None:
        self._times_ns = np.unique(np.array(times_ns, dtype=np.int64))
        self._first_ns = np.full(len(self._times_ns), _NEVER)

    def add(self, invoked_ns: np.ndarray, completed_ns: np.ndarray) -> None:
        """Adds some rows that were acknowledged, in any order."""
        _lower(self._first_ns, np.searchsorted(self._times_ns, invoked_ns, side="right") - 1, completed_ns)

    def after(self, time_ns: int | None) -> int:
        """Returns how long after one of the times that was; MISSING = never, or there is no such time."""
        if time_ns is None:
            return MISSING
        # What was sent since a later time was sent since this one, too.
        at = int(self._first_ns[np.searchsorted(self._times_ns, time_ns) :].min())
        return MISSING if at == _NEVER else at - time_ns


def _lower(found: np.ndarray, index: np.ndarray, values: np.ndarray) -> None:
    """The least value at each index; -1 is no place."""
    inside = index >= 0
    np.minimum.at(found, index[inside], values[inside])


def _outermost(times_ns: np.ndarray) -> np.ndarray:
    """Returns the first and the last in each of many short times, ascending."""
    if len(times_ns) > _MANY:
        # What a client was reported came nearly in order: of each stretch of neighbours that share a short time, two matter.
        # If two acknowledgements are UNAVAILABLE_NS apart, which is two bins, and none came between, the one is the last of
        # its bin, and the other the first of another: both stay.
        starts = np.flatnonzero(np.diff(times_ns // _BIN_NS)) + 1
        starts = np.concatenate([np.zeros(1, dtype=np.intp), starts])
        times_ns = np.concatenate([reduce.reduceat(times_ns, starts) for reduce in (np.minimum, np.maximum)])
    times_ns = np.sort(times_ns)
    edge = np.ones(len(times_ns) + 1, dtype=bool)
    # Example, bins of 5: times 1 2 4 6 9 12 have the borders T F F T F T T, and a time stays beside one: 1 4 6 9 12.
    edge[1:-1] = np.diff(times_ns // _BIN_NS) != 0
    return times_ns[edge[1:] | edge[:-1]]


# What `impact.json` holds: for each fault what it cost, in numbers for a person. Values only.


WINDOWS_SHOWN = 200
"""How many of the longest windows `impact.json` lists; it counts all of them."""


class PhaseShown(Frozen):
    """Before, during or after a fault, of sends with one `acks`."""

    phase: str
    acks: str
    acknowledged: int
    per_s: float | None
    """None = the phase took no time."""
    p50_ms: float | None = None
    p99_ms: float | None = None
    p999_ms: float | None = None


class RecoveryShown(Frozen):
    """Says how long until partitions took a record again, ms; `never`: how many did not."""

    partitions: int = 0
    median_ms: float | None = None
    slowest_ms: float | None = None
    never: int = 0


class WindowShown(Frozen):
    """Says when a partition took no records. `end_s` None = until the end of the trial."""

    partition: int
    begin_s: float
    end_s: float | None
    fault: int | None
    """Number of the fault; None = none explains it."""


class ReactionShown(Frozen):
    """Says how a fault was made, and what the cluster did (`prozess.harness.impact.reactions`)."""

    what: str
    effect: str
    seen: str
    apply_ms: float | None
    verify_ms: float | None
    undo_ms: float | None
    led: int
    """Partitions that a broker which it was aimed at led."""
    decided: RecoveryShown
    """For those: until the metadata log had the next leader; `never`: not before the next fault."""
    new_leader: RecoveryShown
    """For those: until every broker that it was not aimed at named the next leader; `never`: not before the next fault."""
    first_acknowledged: RecoveryShown
    """For those: from when it was made until a record that was sent since was acknowledged."""
    copies: int
    isr_left: int


class FaultImpact(Frozen):
    """Describes what one fault cost."""

    fault: int
    name: str
    reaction: ReactionShown | None = None
    unanswered: int = 0
    """Records sent during it that were never acknowledged, refused ones among them."""
    phases: tuple[PhaseShown, ...]
    windows: int
    """Windows of unavailability that this fault explains."""
    open_windows: int
    longest_s: float | None
    """The longest of those windows that ended."""
    after_fault: RecoveryShown
    after_heal: RecoveryShown


class ImpactShown(Frozen):
    """Describes what `impact.json` holds: what each fault cost, and when partitions took no records."""

    faults: tuple[FaultImpact, ...] = ()
    windows: tuple[WindowShown, ...] = ()
    """The longest, open ones first."""
    windows_counted: int = 0
    windows_open: int = 0
    windows_unexplained: int = 0
    windows_warm_up: int = 0
    """Before a partition's first acknowledgement of all, with no fault: none of the others."""
    incomplete: str | None = None
    """Why it could not be measured."""


def summarise(
    impact: Impact,
    faults: Sequence[FaultTime],
    names: Mapping[int, str],
    reactions: Mapping[int, Reaction] | None = None,
    schedule_ns: int | None = None,
) -> ImpactShown:
    """Returns what `impact.json` holds. `names` and `reactions`: of the faults, by number. `schedule_ns`: when the schedule
    began; what no fault explains and began before is warm-up, unless it never ended."""
    warm_up = impact.windows["fault"] == WARM_UP
    if schedule_ns is not None:
        early = (impact.windows["begin_ns"] < schedule_ns) & (impact.windows["end_ns"] != MISSING)
        warm_up |= early & (impact.windows["fault"] == NO_FAULT)
    windows = impact.windows[~warm_up]
    still = windows["end_ns"] == MISSING
    length_ns = np.where(still, np.iinfo(np.int64).max, windows["end_ns"] - windows["begin_ns"])
    longest = np.argsort(-length_ns, kind="stable")[:WINDOWS_SHOWN]
    return ImpactShown(
        faults=tuple(_fault(impact, index, fault, names, reactions or {}) for index, fault in enumerate(faults)),
        windows=tuple(_window(windows[row]) for row in longest),
        windows_counted=len(windows),
        windows_open=int(np.count_nonzero(still)),
        windows_unexplained=int(np.count_nonzero(windows["fault"] == NO_FAULT)),
        windows_warm_up=int(np.count_nonzero(warm_up)),
    )


def _fault(
    impact: Impact, index: int, fault: FaultTime, names: Mapping[int, str], reactions: Mapping[int, Reaction]
) -> FaultImpact:
    windows = impact.windows[impact.windows["fault"] == fault.number]
    ended = windows[windows["end_ns"] != MISSING]
    times = impact.recoveries[impact.recoveries["fault"] == fault.number]
    return FaultImpact(
        fault=fault.number,
        name=names.get(fault.number, f"fault {fault.number}"),
        reaction=_reaction(reactions[fault.number], times) if fault.number in reactions else None,
        unanswered=int(impact.unanswered[index, PHASES.index("during")]),
        phases=tuple(
            shown
            for level, acks in enumerate(LEVELS.values())
            for number, phase in enumerate(PHASES)
            if (shown := _phase(impact, (index, number, level), fault.phase(phase), acks)) is not None
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


def _phase(impact: Impact, index: tuple[int, int, int], span: tuple[int, int] | None, acks: str) -> PhaseShown | None:
    fault, phase, level = index
    if span is None or not (impact.acknowledged[fault, :, level].any() or impact.latencies[fault, :, level].any()):
        return None
    acknowledged = int(impact.acknowledged[index])
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
        fault=None if fault == NO_FAULT else fault,
    )
