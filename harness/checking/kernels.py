"""Running kernels: on one partition, on one cell, or on a cell one partition at a time. Every engine uses these functions,
on this machine or on Spark's workers. The local engine, which runs kernels on threads, is here too."""

import heapq
import logging
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import numpy as np

from prozess.harness.checking.checker import (
    ROWS_MAX,
    ByPartition,
    CellChecker,
    CheckerSet,
    Failed,
    Job,
    Known,
    Look,
    PartitionChecker,
    PartitionPart,
    PartitionRemainder,
    ShareKey,
    Source,
    TakenRows,
    cuts_of,
)
from prozess.harness.checking.gathering import CheckedLooks, Each, Looked, gather_known, readable, readable_cells
from prozess.harness.checking.helper_process import HelperProcess, can_be_sent
from prozess.harness.checking.memory import give_back
from prozess.harness.errors import CONTRADICTION, Contradicted
from prozess.harness.history.reader import History
from prozess.harness.interfaces.checking import CellHistory, Finding, Kernel, KernelResult, PartitionHistory
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
from prozess.harness.run_directory import RunDirectory

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
TOGETHER, TOGETHER_ROWS = 256, 1 << 16
"""How many small partitions are checked side by side at most, and with how many rows."""


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
    of_partition: dict[int, list[KernelResult]] = {}
    for finding in sorted(parts, key=lambda finding: finding.partition):
        of_partition.setdefault(finding.partition, []).append(finding.result)
    assert of_partition, f"no part of {checker.anomaly}"
    results = [
        of_partition[p][0] if len(of_partition[p]) == 1 else _of_parts(sharing, of_partition[p]) for p in of_partition
    ]
    # For the whole cell, a kernel gives its reason where it found nothing anywhere, or wherever that is in doubt.
    with_findings = [result for result in results if result.count] if sharing.judges_cell else []
    reasons = dict.fromkeys(result.incomplete for result in with_findings or results if result.incomplete)
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


def _of_parts(sharing: ByPartition, parts: Sequence[KernelResult]) -> KernelResult:
    """Returns what a kernel finds in a partition, from what it finds in parts of it. A witness is of a record, of which
    all rows are in one part."""
    assert sharing.in_parts, sharing
    witnesses = join_witnesses(part.witnesses for part in parts if len(part.witnesses))
    order = np.lexsort((witnesses["sequence"], witnesses["client"], witnesses["case"] * sharing.by_case))
    judged = [part.judged for part in parts]
    return KernelResult(
        witnesses[order][:WITNESSES_MAX],
        count=sum(part.count for part in parts),
        judged=max(judged) if sharing.judges_cell else sum(judged),
        incomplete="; ".join(dict.fromkeys(part.incomplete for part in parts if part.incomplete)) or None,
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
    part: PartitionPart | None = None
    """The unit is only this part of the partition, with the kernels of its cell that are given parts."""

    @property
    def is_shared_out(self) -> bool:
        """Returns whether the kernels that are given parts of partitions are given those of this one."""
        if self.part is not None:
            return True
        return self.remainder is not None and not isinstance(self.remainder.parts, Failed)


def checkers_of(unit: Unit, cell: Cell | None, checkers: CheckerSet) -> Mapping[str, CellChecker]:
    """Returns the checkers of cells that this unit is for."""
    if cell is None:
        return {}
    traits, of_partition, shared_out = cell.traits, unit.cell is None, unit.is_shared_out
    return {
        name: checker
        for name, checker in checkers.cell.items()
        if checker.applies(traits)
        and checker.is_cut(cell, unit.known) == of_partition
        and (not shared_out or _in_parts(checker) == (unit.part is not None))
    }


def _in_parts(checker: CellChecker) -> bool:
    return checker.by_partition is not None and checker.by_partition.in_parts


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
    looks = CheckedLooks(each, whole=frozenset(readable(history)) - left.keys())
    known = gather_known(history, checkers, looks, left, min(rows_max, cell_rows_max))
    units = []
    for partition in readable(history):
        cell = history.cell_of(partition)
        facts = known.get(cell.cell, {}) if cell is not None else {}
        remainder = left.get(partition)
        entire = Unit(partition, None, history.rows_of(partition), remainder, facts, (partition, None) in looks.checked)
        for unit in [entire, *_units_of_parts(partition, remainder, facts, looks.checked)]:
            chosen = checkers_of(unit, cell, checkers).values()
            alone = unit.part is None and not unit.looked_at  # checkers of partitions have not seen it
            if alone or any(checker.knows is not None or not unit.looked_at for checker in chosen):
                units.append(unit)
    for cell in readable_cells(history):
        facts = known.get(cell.cell, {})
        whole = [c for c in checkers.cell.values() if c.applies(cell.traits) and not c.is_cut(cell, facts)]
        if whole:
            heavy = any(checker.looks_at_rows(facts) for checker in whole)
            rows = sum(history.rows_of(p) for p in cell.partitions) if heavy else 0
            units.append(Unit(None, cell.cell, rows, None, facts))
    return sorted(units, key=lambda unit: max(unit.rows, SMALL_ROWS), reverse=True), looks.found


def _units_of_parts(
    partition: int, remainder: PartitionRemainder | None, known: Known, looked_at: Collection[ShareKey]
) -> list[Unit]:
    """Returns a unit for each part of a partition that was looked at in pieces."""
    if remainder is None or isinstance(remainder.parts, Failed):
        return []
    return [
        Unit(partition, None, part.rows, None, known, (partition, part.number) in looked_at, part)
        for part in remainder.parts
    ]


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


def check_unit(history: History, unit: Unit, checkers: CheckerSet) -> list[Finding]:
    """Returns what the checkers find in this unit: one finding for each partition, if a checker of a cell looks at one
    partition at a time."""
    if unit.cell is not None:
        return _check_whole(history, unit.cell, unit.known, checkers_of(unit, history.plan.cells[unit.cell], checkers))
    assert unit.partition is not None, unit
    one = history.partition_history(unit.partition)
    cell = history.cell_of(unit.partition)
    chosen = checkers_of(unit, cell, checkers)
    if unit.looked_at:
        chosen = {name: checker for name, checker in chosen.items() if checker.knows is not None}
    if unit.part is not None:
        assert cell is not None, unit
        found = check_cell(_cell_with(history, cell.cell, one, unit.part, unit.known), chosen)
        give_back()
        return found
    found = [] if unit.looked_at else _check_alone(history, unit, one, checkers)
    if unit.remainder is not None and (small := chosen.keys() & _streamed(history, one.partition, checkers)):
        found += unit.remainder.check_cell(Source.of(history, one.partition), sorted(small))
        chosen = {name: checker for name, checker in chosen.items() if name not in small}
    if cell is not None and chosen:
        found += check_cell(history.cell_history(cell.cell, only=[one], known=unit.known), chosen)
    return found


def _check_whole(history: History, number: int, known: Known, chosen: Mapping[str, CellChecker]) -> list[Finding]:
    """Returns what these checkers find in a cell that they are given whole. Those that need only some rows of a partition
    which is checked in pieces are given only these."""
    if not chosen:
        return []
    cell = history.cell_history(number, known=known)
    rows = {name: _rows_needed(checker, known) for name, checker in chosen.items()}
    found = check_cell(cell, {name: checker for name, checker in chosen.items() if not rows[name]})
    for facts in dict.fromkeys(chosen[name].knows for name in chosen if rows[name]):
        mine = {name: checker for name, checker in chosen.items() if checker.knows == facts}
        taken = next(rows[name] for name in mine)
        found += check_cell(replace(cell, partitions=_Taken(history, cell.partitions, taken)), mine)
    return found


def _rows_needed(checker: CellChecker, known: Known) -> TakenRows:
    """Returns of which partitions this checker needs only some rows, if this is known of the cell, and which rows."""
    there = None if checker.knows is None else known.get(checker.knows.name)
    if checker.knows is None or there is None or isinstance(there, Failed):
        return {}
    return checker.knows.rows(there)


class _Taken(Mapping[int, PartitionHistory]):
    """The partitions of a cell, of which some have only the rows that a kernel needs. Each is read when it is asked for."""

    def __init__(self, history: History, whole: Mapping[int, PartitionHistory], taken: TakenRows) -> None:
        self._history, self._whole, self._taken = history, whole, taken

    def __getitem__(self, partition: int) -> PartitionHistory:
        if partition not in self._taken:
            return self._whole[partition]
        source, (sends, reads) = Source.of(self._history, partition), self._taken[partition]
        return replace(source.history, sends=source.sends.take(sends), reads=source.reads.take(reads))

    def __iter__(self) -> Iterator[int]:
        return iter(self._whole)

    def __len__(self) -> int:
        return len(self._whole)


def _cell_with(
    history: History, cell: int, one: PartitionHistory, part: PartitionPart | None, known: Known
) -> CellHistory:
    """Returns a cell with one partition, or with a part of it."""
    if part is None:
        return history.cell_history(cell, only=[one], known=known)
    few, rows = part.of(Source.of(history, one.partition))
    return replace(history.cell_history(cell, only=[few], known=known), part=rows)


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
    # What is revealed of a log that nobody audited is held beside the rows, and takes as much memory again.
    most = rows_max if history.plan.audited else rows_max // 2
    cuts = {p: cut for p in readable(history) if (cut := cuts_of(history, p, rows_max=most)) is not None}
    may_be_split = checkers.pieces.may_be_split
    cuts = {p: cut for p, cut in cuts.items() if may_be_split(history.partition_history(p), history.cell_of(p))}
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
        if checker.applies(cell.traits)
        and (sharing := checker.may_be_cut(cell)) is not None
        and (sharing.in_pieces or sharing.in_parts)
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
    finally:
        if isinstance(job, Job) or job.part is not None:
            give_back()


def _look(checkers: CheckerSet, history: History, job: Look) -> object:
    cell = _cell_with(history, job.cell, history.partition_history(job.partition), job.part, {})
    result: object
    try:
        result = checkers.facts[job.facts].look(cell, job.stage, *job.arguments)
    except Exception as error:  # noqa: BLE001 - as above; what can be checked without it still is
        result = _failed_look(job, error)
    if not job.check:
        return result
    # The same history for all, because each index belongs to one.
    chosen = checkers_of(Unit(job.partition, None, job.rows, part=job.part), cell.cell, checkers)
    alone = [] if job.part is not None else check_partition(cell.partitions[job.partition], checkers.kernels)
    return Looked(result, [*alone, *check_cell(cell, chosen)])


def _failed_look(job: Job | Look, error: Exception) -> Failed:
    _log_failure(f"a look at partition {job.partition}", error)
    return Failed(_failure_text(error))


def shared_out(costs: Sequence[int], groups: int) -> list[list[int]]:
    """Shares things with these costs out among at most `groups` groups of nearly equal cost, and returns the numbers of
    the things, the costliest group first. The same costs give the same groups: the costliest thing goes first, and each
    to the group that has the least so far."""
    shared: list[list[int]] = [[] for _ in range(groups)]
    assert groups > 0, groups
    # Example: costs 5 3 3 1 and two groups. 5 goes to the first, 3 and 3 to the second, 1 to the first: [5 1] and [3 3].
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
        if (unknown := checker.unknown(history.known)) is None
        else Finding(name, first, failed(name, unknown.reason))
        for name, checker in checkers.items()
        if checker.applies(traits)
    ]


def _guarded(name: str, where: str, run: Callable[[], KernelResult]) -> KernelResult:
    """Returns the kernel's result. A kernel that fails has judged nothing: its result is incomplete, with the reason."""
    try:
        result = run()
        if (mistake := _mistake_in(result)) is not None:
            raise ValueError(mistake)
    except Exception as error:  # noqa: BLE001 - one failing kernel must not cost the verdict of all the others
        _log_failure(f"kernel {name} on {where}", error)
        return failed(name, _failure_text(error))
    return result


def _mistake_in(result: KernelResult) -> str | None:
    """Returns what is impossible in what a kernel returned, which may be one of another package. None: nothing."""
    if (result.witnesses.dtype, result.windows.dtype, result.latencies.dtype) != (WITNESS, WINDOW, BINNED):
        return "its witnesses, windows or latencies are of another dtype: make witnesses with make_witnesses"
    if result.judged < 0 or result.count < 0:
        return f"it judged {result.judged:,} and counted {result.count:,}: neither is below 0"
    if (shown := len(result.witnesses)) > min(WITNESSES_MAX, result.count):
        return f"it has {shown:,} witnesses and counted {result.count:,}: show no more, nor more than {WITNESSES_MAX:,}"
    return None


def failed(name: str, reason: str) -> KernelResult:
    """Returns the result of a kernel that has judged nothing, because it failed, or its tables contradict one another."""
    doubt = reason if reason.startswith(CONTRADICTION) else f"the kernel {name} failed: {reason}"
    return KernelResult(no_witnesses(), count=0, judged=0, incomplete=doubt)


def _log_failure(what: str, error: Exception) -> None:
    """Logs a failure in one line, with its place. The traceback is logged for those who ask (logging.DEBUG)."""
    if isinstance(error, Contradicted):
        return  # no mistake of ours: the verdict says it
    frame = traceback.extract_tb(error.__traceback__)[-1]
    _log.warning("%s failed: %s (%s:%s)", what, _failure_text(error), Path(frame.filename).name, frame.lineno)
    _log.debug("how %s came to fail", what, exc_info=error)


def _failure_text(error: Exception) -> str:
    if isinstance(error, Contradicted):
        return str(error)
    return f"{type(error).__name__}: {error}".encode("utf-8", "replace").decode().strip().removesuffix(":")


def _tasks(history: History, units: Sequence[Unit]) -> list[Sequence[Unit]]:
    """Returns the units as threads take them. For a small partition hardly anything releases the interpreter, so threads that
    check some at the same time only wait for one another: one thread takes all of them, unless they are fetched from far
    away."""
    if history.run.tables is not None:
        return [[unit] for unit in units]
    assert all(unit.rows >= 0 for unit in units), "an amount of work"
    small = [unit for unit in units if unit.partition is not None and unit.rows <= FEW_ROWS]
    large = [unit for unit in units if unit.partition is None or unit.rows > FEW_ROWS]
    return [*([unit] for unit in large), *([small] if small else [])]


PROCESSES_ROWS_MIN = 40_000_000
"""From so many rows on, what processes save is more than the second that it takes to start them."""


def _are_for_processes(history: History, units: Sequence[Unit]) -> bool:
    """Returns whether processes check these units faster than threads: there is much to do, and nothing that is known of
    other partitions must be sent to them with each unit."""
    apart = history.run.tables is None and not any(unit.known or unit.remainder or unit.part for unit in units)
    return apart and sum(unit.rows for unit in units) >= PROCESSES_ROWS_MIN


def _checked_by_helpers(
    history: History, checkers: CheckerSet, tasks: Sequence[Sequence[Unit]], workers: int, pool: ThreadPoolExecutor
) -> list[Finding]:
    with ExitStack() as ended:
        free: SimpleQueue[HelperProcess] = SimpleQueue()
        for _ in range(workers):
            free.put(ended.enter_context(HelperProcess(unit_checker, history.run, checkers)))

        def one(task: Sequence[Unit]) -> list[Finding]:
            helper = free.get_nowait()  # there are as many as threads
            try:
                found: list[Finding] = helper.check(task)
            finally:
                free.put(helper)
            return found

        return [finding for findings in pool.map(one, tasks) for finding in findings]


def check_units(history: History, checkers: CheckerSet, units: Sequence[Unit]) -> list[Finding]:
    """Returns what the checkers find in these units, one after the other, and in small partitions of a cell side by side."""
    found = []
    for some in side_by_side(history, units):
        found += check_unit(history, some[0], checkers) if len(some) == 1 else _check_small(history, some, checkers)
    return found


def side_by_side(history: History, units: Sequence[Unit]) -> Iterator[Sequence[Unit]]:
    """Yields these units one by one, and small partitions of one cell together while they have up to TOGETHER_ROWS."""
    its_cell: Cell | None = None
    some, rows = list[Unit](), 0
    for unit in units:
        cell = None if unit.partition is None else history.cell_of(unit.partition)
        small = cell is not None and unit.rows <= FEW_ROWS and not (unit.looked_at or unit.remainder or unit.part)
        # One behind the other: what is found in them stands together among what is found in their cell.
        follows = small and some and cell is its_cell and unit.partition == (some[-1].partition or 0) + 1
        if some and (not follows or rows + unit.rows > TOGETHER_ROWS or len(some) == TOGETHER):
            yield some
            some, rows = [], 0
        if small:
            some, rows, its_cell = [*some, unit], rows + unit.rows, cell
        else:
            yield [unit]
    if some:
        yield some


def _check_small(history: History, units: Sequence[Unit], checkers: CheckerSet) -> list[Finding]:
    """Returns what the checkers find in small partitions of one cell. What a kernel cannot do for all, it does for each."""
    ones = [history.partition_history(unit.partition) for unit in units if unit.partition is not None]
    cell = history.cell_of(ones[0].partition)
    assert cell is not None, "small partitions of a cell"
    group = history.cell_history(cell.cell, only=ones, known=units[0].known)
    together: dict[str, Sequence[KernelResult | None]] = {}
    for name, checker in checkers.partition.items():
        with suppress(Exception):
            if checker.side_by_side is not None:
                together[name] = checker.side_by_side(ones)
            elif checker.judged_when_plain is not None:
                together[name] = checkers.pieces.agreed(group, checker.judged_when_plain)
    found = list[Finding]()
    for i, one in enumerate(ones):
        results = {name: result for name, all_ in together.items() if (result := all_[i]) is not None}
        found += [Finding(name, one.partition, result) for name, result in results.items()]
        found += check_partition(
            one, {name: kernel for name, kernel in checkers.kernels.items() if name not in results}
        )
    chosen = dict(checkers_of(units[0], cell, checkers))
    for name in [name for name, checker in chosen.items() if checker.is_side_by_side]:
        with suppress(Exception):
            if (result := chosen[name].kernel(group)).incomplete is None:
                found.append(Finding(name, min(group.partitions), result))
                del chosen[name]
    for one in ones if chosen else ():
        found += check_cell(history.cell_history(cell.cell, only=[one], known=units[0].known), chosen)
    return found


def unit_checker(run: RunDirectory, checkers: CheckerSet) -> Callable[[Sequence[Unit]], list[Finding]]:
    """Returns what checks units of a run in a process of its own. It opens the history when the first units come."""
    opened: list[History] = []

    def check(units: Sequence[Unit]) -> list[Finding]:
        if not opened:
            opened.append(History.open(run))
        return check_units(opened[0], checkers, units)

    return check


def check_locally(history: History, checkers: CheckerSet, *, workers: int, rows_max: int = ROWS_MAX) -> list[Finding]:
    """Returns what every checker finds in every partition, checked by threads of this process, or by processes if there are
    very many rows. numpy and pyarrow release the interpreter's lock, so that threads keep more than one core busy.

    The findings are ordered by partition, then as `checkers`. `workers` is the number of partitions at a time. Each
    worker holds one partition in memory, or a piece of about `rows_max` rows of a larger one. A page that is damaged
    inside makes those kernels incomplete that need it. A caller that checks much calls `prepare_process` before numpy is
    imported (`prozess.harness.checking.memory`).
    """
    assert workers > 0, workers
    with ThreadPoolExecutor(workers, thread_name_prefix="check") as pool:
        do = partial(perform, checkers, history)
        units, found = units_of(
            history, checkers, lambda jobs: list(pool.map(do, jobs)), rows_max=rows_max, cell_rows_max=0
        )
        tasks = _tasks(history, units)
        if workers > 1 and _are_for_processes(history, units) and can_be_sent(checkers):
            found += _checked_by_helpers(history, checkers, tasks, workers, pool)
        else:
            for findings in pool.map(partial(check_units, history, checkers), tasks):
                found += findings
    return in_order([*found, *unread(history, checkers)], checkers, history.plan.cells)
