"""Through which sentinel an audit got: what it said, as far as the history shows it.

The observation AUDIT_COMPLETE is a claim of the audit's own. It counts if the table `reads` has the sentinel at that offset,
given to that client: a history whose rows were lost or changed afterwards proves nothing of what is not in it.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

import numpy as np

from harness.plan import SENTINEL_CLIENT

Claim = tuple[int, int]
"""Offset of the sentinel, and the client that read through it."""


class AuditEnds(Mapping[int, int]):
    """Isolation → offset of the sentinel, of the claims that the history shows. Looked up when it is first asked for: that
    reads columns."""

    def __init__(self, claims: Mapping[int, Claim], reads_near: Callable[[int], Mapping[str, np.ndarray]]) -> None:
        """`reads_near`: rows of `reads` of the partition, every one at this offset among them."""
        self._claims, self._reads_near = claims, reads_near

    @cached_property
    def _shown(self) -> dict[int, int]:
        return {level: offset for level, (offset, client) in self._claims.items() if self._was_read(offset, client)}

    def _was_read(self, offset: int, client: int) -> bool:
        reads = self._reads_near(offset)
        rows = np.flatnonzero(reads["log_offset"] == offset)
        return bool(((reads["sender"][rows] == SENTINEL_CLIENT) & (reads["client"][rows] == client)).any())

    def __getitem__(self, isolation: int) -> int:
        return self._shown[isolation]

    def __iter__(self) -> Iterator[int]:
        return iter(self._shown)

    def __len__(self) -> int:
        return len(self._shown)

    def __reduce__(self) -> tuple[type[dict[int, int]], tuple[dict[int, int]]]:
        """Elsewhere it is what was found here."""
        return dict, (self._shown,)
