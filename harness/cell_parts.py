"""Kernels over cells, a partition at a time: which can be, what they must know of the others, how their parts become one.

A cell with very many transactions, or a large group, would be one unit of work. Most kernels over cells look at one
partition after the other, so that engines may give them one at a time. What they must know of all partitions together (was a
transaction shown anywhere?) is gathered first, by looking at each partition at its own place; only that comes together.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness import catalogue
from harness.history_reader import History
from harness.plan import Cell
from harness.protocols import Finding, KernelResult
from harness.windows import merge_windows, no_latencies
from harness.witnesses import WITNESSES_MAX

CELL_ROWS_MAX = 2_000_000
"""A cell that has more is looked at in several places even by kernels that must know of all its partitions: what that takes
is a look at each, a tenth of a second or two however little there is."""
Known = Mapping[str, Any]
"""Name of CELL_FACTS → what is known of all partitions of one cell together."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at one partition of a cell, to gather facts of the kind `facts`: what `look` of that module does. `rows`: how
    much it is."""

    cell: int
    partition: int
    facts: str
    stage: str
    arguments: tuple[Any, ...]
    rows: int


def perform_look(history: History, look: Look) -> Any:  # noqa: ANN401 - each stage has its own result
    """What is seen there."""
    one = history.cell_history(look.cell, only=history.partition_history(look.partition))
    return catalogue.resolve(catalogue.CELL_LOOKS, look.facts, what="facts")(one, look.stage, *look.arguments)


def may_be_cut(anomaly: str, cell: Cell) -> bool:
    """May this kernel be given the partitions of this cell one by one? CELL_KERNELS_IN_PAIRS not where a group hands
    records on to a retry topic: those are judged in pairs."""
    in_pairs = anomaly in catalogue.CELL_KERNELS_IN_PAIRS and cell.group is not None and cell.group.hands_on
    return anomaly in catalogue.CELL_KERNELS_BY_PARTITION and not in_pairs


def is_cut(anomaly: str, cell: Cell, known: Known) -> bool:
    """Is it given them one by one, where this is known of all of them?"""
    return may_be_cut(anomaly, cell) and catalogue.CELL_KERNELS_KNOW.get(anomaly) in (None, *known)


def looks_at_rows(anomaly: str, known: Known) -> bool:
    """Does a kernel that is given a whole cell look at its sends and reads, where this is known of them?"""
    return catalogue.CELL_KERNELS_KNOW.get(anomaly) not in known and anomaly not in catalogue.CELL_KERNELS_WITHOUT_ROWS


def in_order(findings: Iterable[Finding], anomalies: Sequence[str], cells: Sequence[Cell]) -> list[Finding]:
    """By partition, then as `anomalies`, the parts of a cell put together: what every engine returns."""
    rank = {name: number for number, name in enumerate(anomalies)}
    whole: list[Finding] = []
    parts: dict[tuple[str, int], list[Finding]] = {}
    cell_of = {partition: cell for cell in cells for partition in cell.partitions}
    for finding in findings:
        cell = cell_of.get(finding.partition)
        if cell is not None and may_be_cut(finding.anomaly, cell):
            parts.setdefault((finding.anomaly, min(cell.partitions)), []).append(finding)
        else:
            whole.append(replace(finding, result=replace(finding.result, latencies=no_latencies())))
    whole += [Finding(name, first, _together(name, found)) for (name, first), found in parts.items()]
    return sorted(whole, key=lambda finding: (finding.partition, rank[finding.anomaly]))


def _together(anomaly: str, parts: Sequence[Finding]) -> KernelResult:
    """The result of a kernel over a cell, from those of its partitions."""
    results = [finding.result for finding in sorted(parts, key=lambda finding: finding.partition)]
    reasons = dict.fromkeys(result.incomplete for result in results if result.incomplete)
    witnesses = np.concatenate([result.witnesses for result in results])
    if anomaly in catalogue.CELL_KERNELS_BY_CASE:
        witnesses = witnesses[np.argsort(witnesses["case"], kind="stable")]
    windows, _ = merge_windows([result.windows for result in results], [result.latencies for result in results])
    judged = [result.judged for result in results]
    return KernelResult(
        witnesses[:WITNESSES_MAX],
        count=sum(result.count for result in results),
        judged=max(judged) if anomaly in catalogue.CELL_KERNELS_JUDGING_THE_CELL else sum(judged),
        incomplete="; ".join(reasons) or None,
        windows=windows,
    )
