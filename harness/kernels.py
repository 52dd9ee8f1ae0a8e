"""Running kernels on one partition or one cell: what every engine does, wherever it does it."""

import heapq
import logging
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from harness import catalogue
from harness.cell_parts import CELL_ROWS_MAX, Known, Look, is_cut, looks_at_rows, may_be_cut, perform_look
from harness.history_reader import History
from harness.pieces import ROWS_MAX, Failed, Job, Source, cuts_of
from harness.plan import Cell
from harness.protocols import CellHistory, CellKernel, Finding, Kernel, KernelResult, PartitionHistory
from harness.windows import BINNED, WINDOW
from harness.witnesses import WITNESS, WITNESSES_MAX, no_witnesses

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Kernels:
    """What to run: kernels over partitions, and kernels over cells, those of which some look at one partition at a time."""

    partition: Mapping[str, Kernel]
    cell: Mapping[str, CellKernel]

    def of_unit(self, unit: "Unit", cell: Cell | None) -> Mapping[str, CellKernel]:
        """Which kernels over cells this unit, in this cell, is for."""
        if cell is None:
            return {}
        parts = {name for name in self.cell if is_cut(name, cell, unit.known)}
        wanted = parts if unit.cell is None else self.cell.keys() - parts
        return {name: kernel for name, kernel in self.cell.items() if name in wanted and applies(name, cell.traits)}


@dataclass(frozen=True, slots=True)
class KernelNames:
    """The same as "module:function" strings, for a process that resolves them itself."""

    partition: Mapping[str, str]
    cell: Mapping[str, str]

    @staticmethod
    def of(anomalies: Sequence[str]) -> "KernelNames":
        """From this process's catalogue, in the order given. BadInput for an unknown anomaly."""
        known = catalogue.KERNELS | catalogue.CELL_KERNELS | catalogue.FACT_KERNELS
        for name in anomalies:
            catalogue.resolve(known, name, what="anomaly")
        return KernelNames(
            partition={name: known[name] for name in anomalies if name not in catalogue.CELL_KERNELS},
            cell={name: known[name] for name in anomalies if name in catalogue.CELL_KERNELS},
        )

    def resolve(self) -> Kernels:
        """The kernels themselves."""
        return Kernels(
            partition={name: catalogue.resolve(dict(self.partition), name, what="anomaly") for name in self.partition},
            cell={name: catalogue.resolve(dict(self.cell), name, what="anomaly") for name in self.cell},
        )


@dataclass(frozen=True, slots=True)
class Unit:
    """What is checked at one place: a partition, or what concerns several partitions of a cell. One of the two is None."""

    partition: int | None
    cell: int | None
    rows: int
    """How much it is, for whoever shares the work out."""
    remainder: Any = None
    """What is left of a partition that was looked at in pieces (`checkers.split.Remainder`); None = it is checked whole."""
    known: Known = field(default_factory=dict)
    """Of the cell, or of the partition's."""


Each = Callable[[Sequence[Job | Look]], Sequence[Any]]
"""Does jobs wherever an engine does them, and gives what `perform` gives for each, in their order."""


def units_of(history: History, names: KernelNames, each: Each, *, rows_max: int = ROWS_MAX) -> list[Unit]:
    """Every unit that has a kernel, the largest first, so that none is begun when all others are done. Partitions with more
    rows than `rows_max` are looked at in pieces now, by `each`; what is left of them is small. Of cells that have more than
    that, or than CELL_ROWS_MAX, is gathered what lets them be looked at a partition at a time."""
    left = _remainders(history, names, each, rows_max)
    known = _gather(history, names, each, min(rows_max, CELL_ROWS_MAX))
    units = []
    for partition in history.partitions:
        place = history.cell_of(partition)
        facts = known.get(place.cell, {}) if place is not None else {}
        units.append(Unit(partition, None, history.rows_of(partition), left.get(partition), facts))
    for cell in history.plan.cells:
        facts = known.get(cell.cell, {})
        whole = [n for n in names.cell if applies(n, cell.traits) and not is_cut(n, cell, facts)]
        if whole:
            heavy = any(looks_at_rows(name, facts) for name in whole)
            rows = sum(history.rows_of(p) for p in cell.partitions) if heavy else 0
            units.append(Unit(None, cell.cell, rows, None, facts))
    return sorted(units, key=lambda unit: unit.rows, reverse=True)


def _gather(history: History, names: KernelNames, each: Each, rows_max: int) -> Mapping[int, Known]:
    """Cell → what is known of its partitions together, of cells with more rows than that."""
    rows = {cell.cell: {p: history.rows_of(p) for p in cell.partitions} for cell in history.plan.cells}
    found: dict[int, dict[str, Any]] = {}
    for facts in catalogue.CELL_FACTS:
        asked = [name for name in names.cell if catalogue.CELL_KERNELS_KNOW.get(name) == facts]
        cells = {
            cell.cell: rows[cell.cell]
            for cell in history.plan.cells
            if len(cell.partitions) > 1
            and sum(rows[cell.cell].values()) > rows_max
            and any(applies(name, cell.traits) for name in asked)
        }
        if cells:
            gather = catalogue.resolve(catalogue.CELL_FACTS, facts, what="facts")
            for cell, known in _gathered(partial(gather, each=_whole(each), anomalies=asked), cells).items():
                found.setdefault(cell, {})[facts] = known
    return found


class _LookFailed(Exception):
    """A look at a partition of a cell failed, so that nothing is known of all of them together."""


def _whole(each: Each) -> Each:
    def do(jobs: Sequence[Job | Look]) -> Sequence[Any]:
        done = each(jobs)
        for result in done:
            if isinstance(result, Failed):
                raise _LookFailed(result.reason)
        return done

    return do


def _gathered(gather: Callable[[Any], Mapping[int, Any]], cells: Mapping[int, Any]) -> Mapping[int, Any]:
    """Of those cells of which every partition can be looked at: kernels say of the others what is wrong."""
    try:
        return gather(cells)
    except _LookFailed:
        if len(cells) == 1:
            return {}
        return {c: known for cell, rows in cells.items() for c, known in _gathered(gather, {cell: rows}).items()}


def check_unit(history: History, unit: Unit, kernels: Kernels) -> list[Finding]:
    """What the kernels find there. Of kernels over a cell that look at one partition at a time: a finding of each."""
    if unit.cell is not None:
        cell = history.plan.cells[unit.cell]
        chosen = kernels.of_unit(unit, cell)
        return check_cell(history.cell_history(unit.cell, known=unit.known), chosen) if chosen else []
    assert unit.partition is not None, unit
    one = history.partition_history(unit.partition)
    found = _check_alone(history, unit, one, kernels.partition)
    place = history.cell_of(unit.partition)
    chosen = kernels.of_unit(unit, place)
    if unit.remainder is not None and (small := chosen.keys() & _streamed(history, one.partition)):
        found += unit.remainder.check_cell(Source.of(history, one.partition), sorted(small))
        chosen = {name: kernel for name, kernel in chosen.items() if name not in small}
    if place is not None and chosen:
        found += check_cell(history.cell_history(place.cell, only=one, known=unit.known), chosen)
    return found


def _check_alone(history: History, unit: Unit, one: PartitionHistory, kernels: Mapping[str, Kernel]) -> list[Finding]:
    """What kernels over partitions find in this one, in their order."""
    if unit.remainder is None:
        return check_partition(one, kernels)
    small = {name: kernel for name, kernel in kernels.items() if name in piecewise()}
    found = unit.remainder.check(Source.of(history, one.partition), small)
    return [*found, *check_partition(one, {name: kernels[name] for name in kernels.keys() - small.keys()})]


def piecewise() -> Collection[str]:
    """Anomalies whose kernels find in what is left of a partition what they find in the whole."""
    return set(catalogue.resolve(catalogue.PIECES, "kernels", what="part"))


def _remainders(history: History, names: KernelNames, each: Each, rows_max: int) -> Mapping[int, Any]:
    cuts = {p: cut for p in history.partitions if (cut := cuts_of(history, p, rows_max=rows_max)) is not None}
    may_be_split = catalogue.resolve(catalogue.PIECES, "may-be-split", what="part")
    cuts = {p: cut for p, cut in cuts.items() if may_be_split(history.partition_history(p))}
    asked = {p: _streamed(history, p) & names.cell.keys() for p in cuts}
    cuts = {p: cut for p, cut in cuts.items() if asked[p] or names.partition.keys() & piecewise()}
    if not cuts:
        return {}
    found: Mapping[int, Any] = catalogue.resolve(catalogue.PIECES, "remainders", what="part")(cuts, each, asked)
    return found


def _streamed(history: History, partition: int) -> set[str]:
    """Kernels over its cell that find in pieces of this partition what they find in the whole."""
    cell = history.cell_of(partition)
    names = catalogue.resolve(catalogue.PIECES, "cell-kernels", what="part")
    return set() if cell is None else {n for n in names if applies(n, cell.traits) and may_be_cut(n, cell)}


def perform(history: History, job: Job | Look) -> Any:  # noqa: ANN401 - each stage has its own result
    """One look at one partition, or at one piece of it. `Failed` if it cannot be done: never a crash, never held."""
    try:
        if isinstance(job, Look):
            return perform_look(history, job)
        return catalogue.resolve(catalogue.PIECES, "perform", what="part")(Source.of(history, job.partition), job)
    except Exception as error:  # noqa: BLE001 - one page that is rotten must not cost the verdict of all other partitions
        _log_failure(f"a look at partition {job.partition}", error)
        return Failed(_told(error))


def shared_out(costs: Sequence[int], groups: int) -> list[list[int]]:
    """Numbers of things with these costs, in at most `groups` groups of nearly equal cost, the dearest group first. The same
    costs give the same groups: the dearest thing first, each to the group that has the least so far."""
    shared: list[list[int]] = [[] for _ in range(groups)]
    heap = [(0, number) for number in range(groups)]
    for cost, thing in sorted(((cost, thing) for thing, cost in enumerate(costs)), reverse=True):
        filled, number = heapq.heappop(heap)
        shared[number].append(thing)
        heapq.heappush(heap, (filled + cost, number))
    order = sorted(heap, key=lambda filled: (-filled[0], filled[1]))
    return [shared[number] for _, number in order if shared[number]]


def check_partition(history: PartitionHistory, kernels: Mapping[str, Kernel]) -> list[Finding]:
    """One finding per kernel, in their order."""
    where = f"partition {history.partition}"
    return [
        Finding(name, history.partition, _guarded(name, where, partial(kernel, history)))
        for name, kernel in kernels.items()
    ]


def check_cell(history: CellHistory, kernels: Mapping[str, CellKernel]) -> list[Finding]:
    """One finding per kernel that applies to the cell's workload, in their order."""
    first, where = min(history.partitions), f"cell {history.cell.cell}"
    return [
        Finding(name, first, _guarded(name, where, partial(kernel, history)))
        for name, kernel in kernels.items()
        if applies(name, history.cell.traits)
    ]


def applies(anomaly: str, traits: Collection[str]) -> bool:
    """Is an anomaly judged in cells with these traits (`Cell.traits`)?"""
    return anomaly not in catalogue.CELL_KERNELS or not set(traits).isdisjoint(catalogue.CELL_KERNELS_APPLY[anomaly])


def _guarded(name: str, where: str, run: Callable[[], KernelResult]) -> KernelResult:
    """The kernel's result. A kernel that fails has judged nothing: incomplete, with the reason; never a crash, never held."""
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
    """Of a kernel that has judged nothing."""
    return KernelResult(no_witnesses(), count=0, judged=0, incomplete=f"the kernel {name} failed: {reason}")


def _log_failure(what: str, error: Exception) -> None:
    """In one line, with the place; how it came there is for those who ask (logging.DEBUG)."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    _log.warning("%s failed: %s (%s:%s)", what, _told(error), Path(frame.filename).name, frame.lineno)
    _log.debug("how %s came to fail", what, exc_info=error)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".encode("utf-8", "replace").decode().strip().removesuffix(":")
