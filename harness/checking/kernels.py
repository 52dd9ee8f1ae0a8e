"""Running kernels: on one partition, on one cell, or on a cell one partition at a time. Every engine uses these functions,
on this machine or on Spark's workers. The local engine, which runs kernels on threads, is here too."""

import ctypes
import heapq
import logging
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from prozess.harness.checking.checker import (
    ROWS_MAX,
    CellChecker,
    CheckerSet,
    Failed,
    Job,
    Known,
    Look,
    PartitionChecker,
    PartitionRemainder,
    Source,
    cuts_of,
)
from prozess.harness.history.reader import History
from prozess.harness.interfaces import CellHistory, Finding, Kernel, KernelResult, PartitionHistory
from prozess.harness.interfaces.witnesses import (
    BINNED,
    WINDOW,
    WITNESS,
    WITNESSES_MAX,
    join_witnesses,
    merge_windows,
    no_latencies,
    no_witnesses,
)
from prozess.harness.plan.plan import Cell

# Kernels over cells, a partition at a time: which can be given one, what they must know of the others, and how their
# results become one.
#
# A cell with very many transactions, or a large group, would be one unit of work. Most kernels over cells look at one
# partition after the other, so engines may give them one partition at a time. What they must know of all partitions
# together (was a transaction shown anywhere?) is gathered first, by a look at each partition where that is checked.
# Only the results of these looks are brought together.


CELL_ROWS_MAX = 2_000_000
"""The rows of a cell above which even those kernels check it in several places that must know of all its partitions,
where each round of looks at partitions costs a tenth of a second or two, however small they are: on Spark."""


SMALL_ROWS, FEW_ROWS = 1 << 14, 1 << 12
"""Up to so many rows it does not matter when a unit begins; up to so many it costs about a millisecond, however few they
are."""


def in_order(findings: Iterable[Finding], checkers: CheckerSet, cells: Sequence[Cell]) -> list[Finding]:
    """Returns the findings by partition, then in the order of the checkers, with the parts of each cell put together.
    Every engine returns this."""
    rank = {name: number for number, name in enumerate(checkers.order)}
    whole: list[Finding] = []
    parts: dict[tuple[str, int], list[Finding]] = {}
    first_of = {cell.cell: min(cell.partitions) for cell in cells}
    cell_of = {partition: cell for cell in cells for partition in cell.partitions}
    for finding in findings:
        cell = cell_of.get(finding.partition)
        checker = checkers.cell.get(finding.anomaly)
        if cell is not None and checker is not None and checker.may_be_cut(cell) is not None:
            parts.setdefault((finding.anomaly, first_of[cell.cell]), []).append(finding)
        else:
            whole.append(_without_latencies(finding))
    whole += [Finding(name, first, _together(checkers.cell[name], found)) for (name, first), found in parts.items()]
    return sorted(whole, key=lambda finding: (finding.partition, rank[finding.anomaly]))


def _without_latencies(finding: Finding) -> Finding:
    if not len(finding.result.latencies):
        return finding
    return replace(finding, result=replace(finding.result, latencies=no_latencies()))


def _together(checker: CellChecker, parts: Sequence[Finding]) -> KernelResult:
    """Returns the result of a kernel over a cell, from its results in the partitions."""
    sharing = checker.by_partition
    assert sharing is not None, checker.anomaly
    results = [finding.result for finding in sorted(parts, key=lambda finding: finding.partition)]
    # Of the whole cell, a kernel gives its reason where it found nothing anywhere, or wherever that is in doubt.
    telling = [result for result in results if result.count] if sharing.judges_cell else []
    reasons = dict.fromkeys(result.incomplete for result in telling or results if result.incomplete)
    witnesses = join_witnesses(result.witnesses for result in results if len(result.witnesses))
    if sharing.by_case:
        witnesses = witnesses[np.argsort(witnesses["case"], kind="stable")]
    windows, _ = merge_windows([result.windows for result in results], [result.latencies for result in results])
    judged = [result.judged for result in results]
    return KernelResult(
        witnesses[:WITNESSES_MAX],
        count=sum(result.count for result in results),
        judged=max(judged) if sharing.judges_cell else sum(judged),
        incomplete="; ".join(reasons) or None,
        windows=windows,
    )


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Unit:
    """Describes what one task checks: a partition, or what concerns several partitions of a cell. Either `partition` or
    `cell` is None."""

    partition: int | None
    cell: int | None
    rows: int
    """The amount of work, by which engines share units out."""
    remainder: PartitionRemainder | None = None
    """What is left of a partition that was looked at in pieces. None: the partition is checked whole."""
    known: Known = field(default_factory=dict)
    """What is known of all partitions of the cell, or of the partition's cell."""
    looked_at: bool = False
    """Only what needs `known` is still to be found in the partition: it was checked when it was looked at."""


Each = Callable[[Sequence[Job | Look]], Sequence[object]]
"""Carries out jobs wherever an engine does that, and returns the result of `perform` for each, in their order."""


def checkers_of(unit: Unit, cell: Cell | None, checkers: CheckerSet) -> Mapping[str, CellChecker]:
    """Returns the checkers of cells that this unit is for."""
    if cell is None:
        return {}
    traits, of_partition = cell.traits, unit.cell is None
    return {
        name: checker
        for name, checker in checkers.cell.items()
        if checker.applies(traits) and checker.is_cut(cell, unit.known) == of_partition
    }


def units_of(
    history: History,
    checkers: CheckerSet,
    each: Each,
    *,
    rows_max: int = ROWS_MAX,
    cell_rows_max: int = CELL_ROWS_MAX,
) -> tuple[list[Unit], list[Finding]]:
    """Returns every unit that has a checker, and what was found already. The largest comes first, so that no large one
    begins when all others are done; small ones come last, in the order of the file, because they may share row groups. A
    cell of which rows are damaged has no unit.

    `each` looks now at the pieces of partitions with more than `rows_max` rows; what is left of them is small. It also
    gathers what must be known of cells that have more rows than that, or than `cell_rows_max`, so that they can be checked
    a partition at a time. A partition that is looked at for this is checked at the same time.
    """
    left = _remainders(history, checkers, each, rows_max)
    looks = _CheckedLooks(each, whole=frozenset(_readable(history)) - left.keys())
    known = _gather(history, checkers, looks, min(rows_max, cell_rows_max))
    units = []
    for partition in _readable(history):
        place = history.cell_of(partition)
        facts = known.get(place.cell, {}) if place is not None else {}
        unit = Unit(partition, None, history.rows_of(partition), left.get(partition), facts, partition in looks.checked)
        if not unit.looked_at or any(c.knows is not None for c in checkers_of(unit, place, checkers).values()):
            units.append(unit)
    for cell in _readable_cells(history):
        facts = known.get(cell.cell, {})
        whole = [c for c in checkers.cell.values() if c.applies(cell.traits) and not c.is_cut(cell, facts)]
        if whole:
            heavy = any(checker.looks_at_rows(facts) for checker in whole)
            rows = sum(history.rows_of(p) for p in cell.partitions) if heavy else 0
            units.append(Unit(None, cell.cell, rows, None, facts))
    return sorted(units, key=lambda unit: max(unit.rows, SMALL_ROWS), reverse=True), looks.found


def _readable_cells(history: History) -> list[Cell]:
    return [cell for cell in history.plan.cells if cell.cell not in history.unreadable]


def _readable(history: History) -> list[int]:
    """Returns the partitions of no cell of which rows are damaged."""
    lost = {p for cell in history.unreadable for p in history.plan.cells[cell].partitions}
    lost = lost.union(*(rows.partitions for rows in history.run.lost))  # some may be of no cell
    return [partition for partition in history.partitions if partition not in lost]


def unread(history: History, checkers: CheckerSet) -> list[Finding]:
    """Returns the findings of the cells of which rows are damaged: nothing was judged, and the reason says why."""
    found = []
    for number, why in history.unreadable.items():
        cell = history.plan.cells[number]
        nothing = KernelResult(no_witnesses(), count=0, judged=0, incomplete=why)
        found += [Finding(name, partition, nothing) for partition in cell.partitions for name in checkers.kernels]
        applying = (name for name, checker in checkers.cell.items() if checker.applies(cell.traits))
        found += [Finding(name, min(cell.partitions), nothing) for name in applying]
    return found


@dataclass(frozen=True, slots=True)
class _Looked:
    """The result of a look at a partition, and what was found there at the same time."""

    result: object
    findings: list[Finding]


class _CheckedLooks:
    """Carries out looks. Each of the partitions in `whole` is checked when it is first looked at."""

    def __init__(self, each: Each, whole: frozenset[int]) -> None:
        self._each, self._whole = each, whole
        self.checked: set[int] = set()
        self.found: list[Finding] = []

    def __call__(self, jobs: Sequence[Job | Look]) -> Sequence[object]:
        """Returns the result of each look, in their order. _LookFailed if one could not be done."""
        new = self._whole - self.checked
        asked = [replace(job, check=True) if isinstance(job, Look) and job.partition in new else job for job in jobs]
        done = []
        for job, result in zip(asked, self._each(asked), strict=True):
            if isinstance(result, _Looked):
                self.checked.add(job.partition)
                self.found += result.findings
            done.append(result.result if isinstance(result, _Looked) else result)
        for result in done:
            if isinstance(result, Failed):
                raise _LookFailed(result.reason)
        return done


def _gather(history: History, checkers: CheckerSet, each: Each, rows_max: int) -> Mapping[int, Known]:
    """Returns what is known of the partitions together, for each cell with more than `rows_max` rows."""
    readable = _readable_cells(history)
    rows = {cell.cell: {p: history.rows_of(p) for p in cell.partitions} for cell in readable}
    found: dict[int, dict[str, Any]] = {}
    for facts in checkers.facts.values():
        asking = [checker for checker in checkers.cell.values() if checker.knows == facts]
        cells = {
            cell.cell: rows[cell.cell]
            for cell in readable
            if len(cell.partitions) > 1
            and sum(rows[cell.cell].values()) > rows_max
            and any(checker.applies(cell.traits) for checker in asking)
        }
        if cells:
            asked = [checker.anomaly for checker in asking]
            for cell, known in _gathered(partial(facts.gather, each=each, anomalies=asked), cells).items():
                found.setdefault(cell, {})[facts.name] = known
    return found


class _LookFailed(Exception):
    """A look at a partition of a cell failed, so nothing is known of all of its partitions together."""


def _gathered(gather: Callable[[Any], Mapping[int, Any]], cells: Mapping[int, Any]) -> Mapping[int, Any]:
    """Returns what is known of those cells of which every partition can be looked at. For the others the kernels say
    what is wrong."""
    try:
        return gather(cells)
    except _LookFailed:
        if len(cells) == 1:
            return {}
        return {c: known for cell, rows in cells.items() for c, known in _gathered(gather, {cell: rows}).items()}


def check_unit(history: History, unit: Unit, checkers: CheckerSet) -> list[Finding]:
    """Returns what the checkers find in this unit: one finding for each partition, if a checker of a cell looks at one
    partition at a time."""
    if unit.cell is not None:
        chosen = checkers_of(unit, history.plan.cells[unit.cell], checkers)
        return check_cell(history.cell_history(unit.cell, known=unit.known), chosen) if chosen else []
    assert unit.partition is not None, unit
    one = history.partition_history(unit.partition)
    place = history.cell_of(unit.partition)
    chosen = checkers_of(unit, place, checkers)
    if unit.looked_at:
        chosen = {name: checker for name, checker in chosen.items() if checker.knows is not None}
        found = []
    else:
        found = _check_alone(history, unit, one, checkers)
    if unit.remainder is not None and (small := chosen.keys() & _streamed(history, one.partition, checkers)):
        found += unit.remainder.check_cell(Source.of(history, one.partition), sorted(small))
        chosen = {name: checker for name, checker in chosen.items() if name not in small}
    if place is not None and chosen:
        found += check_cell(history.cell_history(place.cell, only=one, known=unit.known), chosen)
    return found


def _check_alone(history: History, unit: Unit, one: PartitionHistory, checkers: CheckerSet) -> list[Finding]:
    """Returns what checkers of partitions find in this partition, in their order."""
    if unit.remainder is None:
        return check_partition(one, checkers.kernels)
    small = _piecewise(checkers)
    found = unit.remainder.check(Source.of(history, one.partition), small)
    whole = {name: kernel for name, kernel in checkers.kernels.items() if name not in small}
    return [*found, *check_partition(one, whole)]


def _piecewise(checkers: CheckerSet) -> Mapping[str, PartitionChecker]:
    """Returns the checkers that find the same in what is left of a partition as in the whole."""
    return {name: checker for name, checker in checkers.partition.items() if checker.in_pieces}


def _remainders(history: History, checkers: CheckerSet, each: Each, rows_max: int) -> Mapping[int, PartitionRemainder]:
    cuts = {p: cut for p in _readable(history) if (cut := cuts_of(history, p, rows_max=rows_max)) is not None}
    cuts = {p: cut for p, cut in cuts.items() if checkers.pieces.may_be_split(history.partition_history(p))}
    asked = {p: _streamed(history, p, checkers) for p in cuts}
    cuts = {p: cut for p, cut in cuts.items() if asked[p] or _piecewise(checkers)}
    return checkers.pieces.remainders(cuts, each, asked) if cuts else {}


def _streamed(history: History, partition: int, checkers: CheckerSet) -> set[str]:
    """Returns the checkers of the partition's cell that find the same in pieces of this partition as in the whole."""
    cell = history.cell_of(partition)
    if cell is None:
        return set()
    return {
        name
        for name, checker in checkers.cell.items()
        if checker.applies(cell.traits) and (sharing := checker.may_be_cut(cell)) is not None and sharing.in_pieces
    }


def perform(checkers: CheckerSet, history: History, job: Job | Look) -> object:
    """Looks at one partition, or at one piece of it. It returns `Failed` if that cannot be done, so that nothing crashes
    and nothing is held by mistake."""
    try:
        if isinstance(job, Look):
            return _look(checkers, history, job)
        return checkers.pieces.perform(Source.of(history, job.partition), job)
    except Exception as error:  # noqa: BLE001 - one page that is rotten must not cost the verdict of all other partitions
        return _failed_look(job, error)


def _look(checkers: CheckerSet, history: History, job: Look) -> object:
    one = history.partition_history(job.partition)
    cell = history.cell_history(job.cell, only=one)
    result: object
    try:
        result = checkers.facts[job.facts].look(cell, job.stage, *job.arguments)
    except Exception as error:  # noqa: BLE001 - as above; what can be checked without it still is
        result = _failed_look(job, error)
    if not job.check:
        return result
    # The same history for all, because each index belongs to one.
    chosen = checkers_of(Unit(job.partition, None, job.rows), cell.cell, checkers)
    return _Looked(result, [*check_partition(one, checkers.kernels), *check_cell(cell, chosen)])


def _failed_look(job: Job | Look, error: Exception) -> Failed:
    _log_failure(f"a look at partition {job.partition}", error)
    return Failed(_told(error))


def shared_out(costs: Sequence[int], groups: int) -> list[list[int]]:
    """Shares things with these costs out among at most `groups` groups of nearly equal cost, and returns the numbers of
    the things, the costliest group first. The same costs give the same groups: the costliest thing goes first, and each
    to the group that has the least so far."""
    shared: list[list[int]] = [[] for _ in range(groups)]
    heap = [(0, number) for number in range(groups)]
    for cost, thing in sorted(((cost, thing) for thing, cost in enumerate(costs)), reverse=True):
        filled, number = heapq.heappop(heap)
        shared[number].append(thing)
        heapq.heappush(heap, (filled + cost, number))
    order = sorted(heap, key=lambda filled: (-filled[0], filled[1]))
    return [shared[number] for _, number in order if shared[number]]


def check_partition(history: PartitionHistory, kernels: Mapping[str, Kernel]) -> list[Finding]:
    """Returns one finding for each kernel, in their order."""
    where = f"partition {history.partition}"
    return [
        Finding(name, history.partition, _guarded(name, where, partial(kernel, history)))
        for name, kernel in kernels.items()
    ]


def check_cell(history: CellHistory, checkers: Mapping[str, CellChecker]) -> list[Finding]:
    """Returns one finding for each checker that is for such a cell, in their order."""
    first, where, traits = min(history.partitions), f"cell {history.cell.cell}", history.cell.traits
    return [
        Finding(name, first, _guarded(name, where, partial(checker.kernel, history)))
        for name, checker in checkers.items()
        if checker.applies(traits)
    ]


def _guarded(name: str, where: str, run: Callable[[], KernelResult]) -> KernelResult:
    """Returns the kernel's result. A kernel that fails has judged nothing: its result is incomplete, with the reason."""
    try:
        result = run()
        assert result.witnesses.dtype == WITNESS, result.witnesses.dtype
        assert (result.windows.dtype, result.latencies.dtype) == (WINDOW, BINNED), result.windows.dtype
        assert len(result.witnesses) <= min(WITNESSES_MAX, result.count), (len(result.witnesses), result.count)
    except Exception as error:  # noqa: BLE001 - one failing kernel must not cost the verdict of all the others
        _log_failure(f"kernel {name} on {where}", error)
        return failed(name, _told(error))
    return result


def failed(name: str, reason: str) -> KernelResult:
    """Returns the result of a kernel that has judged nothing, because it failed."""
    return KernelResult(no_witnesses(), count=0, judged=0, incomplete=f"the kernel {name} failed: {reason}")


def _log_failure(what: str, error: Exception) -> None:
    """Logs a failure in one line, with its place. The traceback is logged for those who ask (logging.DEBUG)."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    _log.warning("%s failed: %s (%s:%s)", what, _told(error), Path(frame.filename).name, frame.lineno)
    _log.debug("how %s came to fail", what, exc_info=error)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".encode("utf-8", "replace").decode().strip().removesuffix(":")


_FREED_IS_KEPT_ROWS = 1_000_000
_TRIM_BYTES, _MMAP_BYTES = 1 << 28, 1 << 25
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""The numbers of two parameters of glibc's mallopt(3)."""


def _keep_what_is_freed() -> None:
    """Tells the C library to keep up to 256 MB that were freed. It would give the arrays of each partition back, and the
    kernel would clear the same pages again for the next partition: a fifth of the time of a check. It does nothing where
    the C library has no mallopt."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
        library.mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)


def _tasks(history: History, units: Sequence[Unit]) -> list[Sequence[Unit]]:
    """Returns the units as threads take them. Of a small partition hardly anything releases the interpreter, so threads that
    check some at the same time only wait for one another: one thread takes all of them, unless they are fetched from far
    away."""
    if history.run.tables is not None:
        return [[unit] for unit in units]
    small = [unit for unit in units if unit.partition is not None and unit.rows <= FEW_ROWS]
    large = [unit for unit in units if unit.partition is None or unit.rows > FEW_ROWS]
    return [*([unit] for unit in large), *([small] if small else [])]


def check_locally(history: History, checkers: CheckerSet, *, workers: int, rows_max: int = ROWS_MAX) -> list[Finding]:
    """Returns what every checker finds in every partition, checked by threads of this process. numpy and pyarrow release
    the interpreter's lock, so threads are enough.

    The findings are ordered by partition, then as `checkers`. `workers` is the number of partitions at a time. Each
    worker holds one partition in memory, or a piece of about `rows_max` rows of a larger one. A page that is damaged
    inside makes those kernels incomplete that need it.
    """
    assert workers > 0, workers
    if sum(map(history.rows_of, history.partitions)) > _FREED_IS_KEPT_ROWS:
        _keep_what_is_freed()
    with ThreadPoolExecutor(workers, thread_name_prefix="check") as pool:
        do = partial(perform, checkers, history)
        units, found = units_of(
            history, checkers, lambda jobs: list(pool.map(do, jobs)), rows_max=rows_max, cell_rows_max=0
        )
        parts = pool.map(
            lambda some: [f for unit in some for f in check_unit(history, unit, checkers)], _tasks(history, units)
        )
        found += [finding for findings in parts for finding in findings]
    return in_order([*found, *unread(history, checkers)], checkers, history.plan.cells)
