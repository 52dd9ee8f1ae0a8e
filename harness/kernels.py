"""Running kernels on one partition or one cell: what every engine does, wherever it does it."""

import heapq
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from harness import catalogue
from harness.history_reader import History
from harness.pieces import ROWS_MAX, Job, Source, cuts_of
from harness.plan import Cell
from harness.protocols import CellHistory, CellKernel, Finding, Kernel, KernelResult, PartitionHistory
from harness.windows import BINNED, WINDOW, merge_windows, no_latencies
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
        parts = {name for name in self.cell if name in catalogue.CELL_KERNELS_BY_PARTITION and is_separable(cell)}
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


Each = Callable[[Sequence[Job]], Sequence[Any]]
"""Does jobs wherever an engine does them, and gives what `perform` gives for each, in their order."""


def units_of(history: History, names: KernelNames, each: Each, *, rows_max: int = ROWS_MAX) -> list[Unit]:
    """Every unit that has a kernel, the largest first, so that none is begun when all others are done. Partitions with more
    rows than `rows_max` are looked at in pieces now, by `each`; what is left of them is small."""
    left = _remainders(history, names, each, rows_max)
    units = [Unit(partition, None, history.rows_of(partition), left.get(partition)) for partition in history.partitions]
    for cell in history.plan.cells:
        whole = [n for n in names.cell if applies(n, cell.traits) and not (_by_partition(n) and is_separable(cell))]
        if whole:
            units.append(Unit(None, cell.cell, sum(history.rows_of(p) for p in cell.partitions)))
    return sorted(units, key=lambda unit: unit.rows, reverse=True)


def check_unit(history: History, unit: Unit, kernels: Kernels) -> list[Finding]:
    """What the kernels find there. Of kernels over a cell that look at one partition at a time: a finding of each."""
    if unit.cell is not None:
        cell = history.plan.cells[unit.cell]
        chosen = kernels.of_unit(unit, cell)
        return check_cell(history.cell_history(unit.cell), chosen) if chosen else []
    assert unit.partition is not None, unit
    one = history.partition_history(unit.partition)
    found = _check_alone(history, unit, one, kernels.partition)
    place = history.cell_of(unit.partition)
    if place is not None and (chosen := kernels.of_unit(unit, place)):
        found += check_cell(history.cell_history(place.cell, only=one), chosen)
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
    if not names.partition.keys() & piecewise():
        return {}
    cuts = {p: cut for p in history.partitions if (cut := cuts_of(history, p, rows_max=rows_max)) is not None}
    may_be_split = catalogue.resolve(catalogue.PIECES, "may-be-split", what="part")
    cuts = {p: cut for p, cut in cuts.items() if may_be_split(history.partition_history(p))}
    if not cuts:
        return {}
    found = catalogue.resolve(catalogue.PIECES, "remainders", what="part")(cuts, each)
    return {partition: remainder.rows_only() for partition, remainder in found.items()}


def perform(history: History, job: Job) -> Any:  # noqa: ANN401 - each stage has its own result
    """One look at one piece of a partition."""
    return catalogue.resolve(catalogue.PIECES, "perform", what="part")(Source.of(history, job.partition), job)


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


def in_order(findings: Iterable[Finding], anomalies: Sequence[str], cells: Sequence[Cell]) -> list[Finding]:
    """By partition, then as `anomalies`, the parts of a cell put together: what every engine returns."""
    rank = {name: number for number, name in enumerate(anomalies)}
    whole: list[Finding] = []
    parts: dict[tuple[str, int], list[Finding]] = {}
    cell_of = {partition: cell for cell in cells for partition in cell.partitions}
    for finding in findings:
        cell = cell_of.get(finding.partition)
        if _by_partition(finding.anomaly) and cell is not None and is_separable(cell):
            parts.setdefault((finding.anomaly, min(cell.partitions)), []).append(finding)
        else:
            whole.append(replace(finding, result=replace(finding.result, latencies=no_latencies())))
    whole += [Finding(name, first, _together(found)) for (name, first), found in parts.items()]
    return sorted(whole, key=lambda finding: (finding.partition, rank[finding.anomaly]))


def _together(parts: Sequence[Finding]) -> KernelResult:
    """The result of a kernel over a cell, from those of its partitions."""
    results = [finding.result for finding in sorted(parts, key=lambda finding: finding.partition)]
    reasons = dict.fromkeys(result.incomplete for result in results if result.incomplete)
    windows, _ = merge_windows([result.windows for result in results], [result.latencies for result in results])
    return KernelResult(
        np.concatenate([result.witnesses for result in results])[:WITNESSES_MAX],
        count=sum(result.count for result in results),
        judged=sum(result.judged for result in results),
        incomplete="; ".join(reasons) or None,
        windows=windows,
    )


def _by_partition(anomaly: str) -> bool:
    return anomaly in catalogue.CELL_KERNELS_BY_PARTITION


def is_separable(cell: Cell) -> bool:
    """May its partitions be looked at one by one? Not where a group hands records on to a retry topic: those are judged in
    pairs."""
    return cell.group is None or not cell.group.hands_on


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
        _log.exception("kernel %s failed on %s", name, where)
        reason = f"the kernel {name} failed: {type(error).__name__}: {error}".encode("utf-8", "replace").decode()
        return KernelResult(no_witnesses(), count=0, judged=0, incomplete=reason.strip().removesuffix(":"))
    return result
