"""Running kernels on one partition: what every engine does, wherever it does it."""

import logging
from collections.abc import Mapping, Sequence

from harness import catalogue
from harness.protocols import Finding, Kernel, KernelResult, PartitionHistory
from harness.witnesses import WITNESS, WITNESSES_MAX, no_witnesses

_log = logging.getLogger(__name__)


def resolve_kernels(anomalies: Sequence[str], kernels: Mapping[str, str] | None = None) -> dict[str, Kernel]:
    """Name → kernel, in the order given. `kernels`: the catalogue to look in, where it is not this process's own."""
    known = dict(catalogue.KERNELS if kernels is None else kernels)
    return {name: catalogue.resolve(known, name, what="anomaly") for name in anomalies}


def check_partition(history: PartitionHistory, kernels: Mapping[str, Kernel]) -> list[Finding]:
    """One finding per kernel, in their order."""
    return [Finding(name, history.partition, run_kernel(name, kernel, history)) for name, kernel in kernels.items()]


def run_kernel(name: str, kernel: Kernel, history: PartitionHistory) -> KernelResult:
    """The kernel's result. A kernel that fails has judged nothing: incomplete, with the reason; never a crash, never held."""
    try:
        result = kernel(history)
        assert result.witnesses.dtype == WITNESS, result.witnesses.dtype
        assert len(result.witnesses) <= min(WITNESSES_MAX, result.count), (len(result.witnesses), result.count)
    except Exception as error:  # noqa: BLE001 - one failing kernel must not cost the verdict of all the others
        _log.exception("kernel %s failed on partition %d", name, history.partition)
        reason = f"the kernel {name} failed: {type(error).__name__}: {error}".encode("utf-8", "replace").decode()
        return KernelResult(no_witnesses(), count=0, judged=0, incomplete=reason.strip().removesuffix(":"))
    return result
