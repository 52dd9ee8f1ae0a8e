"""What observers of a run said of each partition: how far audits got, where its log began, what copies held at the end."""

from collections.abc import Mapping

import numpy as np

from harness.audit_ends import Claim
from harness.protocols import CopyFacts
from harness.schema import NONE, ObservationKind

_OF_COPIES = (
    ObservationKind.REPLICA_LOG_START,
    ObservationKind.REPLICA_LOG_END,
    ObservationKind.REPLICA_HIGH_WATERMARK,
)


def audit_claims(seen: Mapping[str, np.ndarray]) -> dict[int, dict[int, Claim]]:
    """Partition → isolation → through which sentinel an audit says it read, and which audit. Of rows of `observations`, as
    all here."""
    rows = np.flatnonzero(seen["kind"] == ObservationKind.AUDIT_COMPLETE)
    rows = rows[np.argsort(seen["time_ns"][rows], kind="stable")]  # the latest audit counts
    claims: dict[int, dict[int, Claim]] = {}
    for partition, isolation, value, client in zip(
        *(seen[name][rows].tolist() for name in ("partition", "isolation", "value", "client")), strict=True
    ):
        claims.setdefault(partition, {})[isolation] = (value, client)
    return claims


def log_starts(seen: Mapping[str, np.ndarray]) -> dict[int, int]:
    """Partition → the greatest log start seen."""
    rows = np.flatnonzero(seen["kind"] == ObservationKind.LOG_START)
    rows = rows[np.argsort(seen["value"][rows], kind="stable")]  # the greatest stays
    return dict(zip(seen["partition"][rows].tolist(), seen["value"][rows].tolist(), strict=True))


def copies(seen: Mapping[str, np.ndarray]) -> dict[int, dict[int, CopyFacts]]:
    """Partition → node → what its own files said at the end."""
    told: dict[tuple[int, int], dict[int, int]] = {}
    rows = np.flatnonzero(np.isin(seen["kind"], _OF_COPIES) & (seen["step"] == NONE))
    for partition, node, kind, value in zip(
        *(seen[name][rows].tolist() for name in ("partition", "node", "kind", "value")), strict=True
    ):
        told.setdefault((partition, node), {})[kind] = value
    found: dict[int, dict[int, CopyFacts]] = {}
    for (partition, node), values in told.items():
        start, end, watermark = (values.get(kind) for kind in _OF_COPIES)
        if start is not None and end is not None:
            found.setdefault(partition, {})[node] = CopyFacts(start, end, watermark)
    return found
