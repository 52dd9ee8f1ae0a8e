"""The copies of several small partitions side by side: a kernel that looks at all of them costs what it costs for one."""

from collections.abc import Mapping, Sequence

import numpy as np

from prozess.checkers.lookup import Lookup
from prozess.harness.columns import joined
from prozess.harness.interfaces.checking import PartitionHistory
from prozess.harness.schema import NONE

Columns = Mapping[str, np.ndarray]


def chosen(columns: Columns, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Returns some rows of columns of one length, by a mask or by indexes."""
    return {name: values[rows] for name, values in columns.items()}


class Copies:
    """The copies that were read at the end of each of these partitions, numbered by partition and node."""

    def __init__(self, histories: Sequence[PartitionHistory]) -> None:
        self._count, self._held = len(histories), [(i, one) for i, one in enumerate(histories) if one.copies]
        owners = [(i, node, copy) for i, one in enumerate(histories) for node, copy in sorted(one.copies.items())]
        self.owner = np.array([i for i, _, _ in owners], dtype=np.int64)
        """int64[copies]: the index of each copy's partition."""
        self.log_start = np.array([copy.log_start for _, _, copy in owners], dtype=np.int64)
        self.log_end = np.array([copy.log_end for _, _, copy in owners], dtype=np.int64)
        self.node = np.array([node for _, node, _ in owners], dtype=np.int64)
        self._keys = Lookup((self.owner << 32) + self.node)

    def rows(self, name: str, columns: Sequence[str]) -> dict[str, np.ndarray]:
        """Returns these columns of a table of `PartitionHistory`, only what is of one of the copies and was read at the end;
        and `copy` (intp), the number of the copy of each row."""
        if not self._held:
            return dict.fromkeys(("copy", *columns), np.empty(0, dtype=np.int64))
        table, of = joined([getattr(one, name) for _, one in self._held], {*columns, "node", "step"})
        copy = self._keys.find((np.array([i for i, _ in self._held])[of] << 32) + table["node"])
        kept = np.flatnonzero((copy >= 0) & (table["step"] == NONE))
        return {"copy": copy[kept], **{column: table[column][kept] for column in columns}}

    def count(self, copy: np.ndarray) -> list[int]:
        """Returns how many of these rows each partition has. `copy`: the copies that they are of."""
        return list(map(int, np.bincount(self.owner[copy], minlength=self._count)))
