"""Running kernels on one partition or one cell: what every engine does, wherever it does it."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from harness import catalogue
from harness.protocols import CellHistory, CellKernel, Finding, Kernel, KernelResult, PartitionHistory
from harness.windows import WINDOW
from harness.witnesses import WITNESS, WITNESSES_MAX, no_witnesses

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Kernels:
    """What to run: kernels over partitions, and kernels over cells."""

    partition: Mapping[str, Kernel]
    cell: Mapping[str, CellKernel]


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


def in_order(findings: Iterable[Finding], anomalies: Sequence[str]) -> list[Finding]:
    """By partition, then as `anomalies`: what every engine returns."""
    rank = {name: number for number, name in enumerate(anomalies)}
    return sorted(findings, key=lambda finding: (finding.partition, rank[finding.anomaly]))


def applies(anomaly: str, traits: Collection[str]) -> bool:
    """Is an anomaly judged in cells with these traits (`Cell.traits`)?"""
    return anomaly not in catalogue.CELL_KERNELS or not set(traits).isdisjoint(catalogue.CELL_KERNELS_APPLY[anomaly])


def _guarded(name: str, where: str, run: Callable[[], KernelResult]) -> KernelResult:
    """The kernel's result. A kernel that fails has judged nothing: incomplete, with the reason; never a crash, never held."""
    try:
        result = run()
        assert result.witnesses.dtype == WITNESS, result.witnesses.dtype
        assert result.windows.dtype == WINDOW, result.windows.dtype
        assert len(result.witnesses) <= min(WITNESSES_MAX, result.count), (len(result.witnesses), result.count)
    except Exception as error:  # noqa: BLE001 - one failing kernel must not cost the verdict of all the others
        _log.exception("kernel %s failed on %s", name, where)
        reason = f"the kernel {name} failed: {type(error).__name__}: {error}".encode("utf-8", "replace").decode()
        return KernelResult(no_witnesses(), count=0, judged=0, incomplete=reason.strip().removesuffix(":"))
    return result
