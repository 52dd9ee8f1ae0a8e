"""Defines the tables of a history as numpy arrays: their dtypes, and the rows of one partition or client."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from prozess.harness.schema import Table

T = TypeVar("T")


def row_dtype(table: Table) -> np.dtype[np.void]:
    """Returns the dtype of a row as it is written while the trial runs: the columns in order, padding to 8 bytes, then
    `mark` (index + 1)."""
    padding = [("pad", "<i4")] if table.padded else []
    return np.dtype([*((c.name, "<" + c.kind) for c in table.columns), *padding, ("mark", "<i8")])


def offsets_in_row(table: Table) -> dict[str, int]:
    """Returns at which byte of such a row each column begins."""
    fields = row_dtype(table).fields
    assert fields is not None, "a row has columns"
    return {name: field[1] for name, field in fields.items()}


def empty_rows(table: Table) -> dict[str, np.ndarray]:
    """Returns arrays of length 0, in the Parquet form."""
    kinds = {"client": "i4"} | {c.name: c.kind for c in table.columns}
    return {name: np.empty(0, dtype=kind) for name, kind in kinds.items()}


def joined(
    tables: Sequence[Mapping[str, np.ndarray]], names: Iterable[str]
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Returns these columns of several tables, one after the other, and the index (int64) of the table of each row."""
    one = tables[0] if len(tables) == 1 else None  # nothing is copied
    found = {name: np.concatenate([table[name] for table in tables]) if one is None else one[name] for name in names}
    lengths = [len(next(iter(table.values()))) for table in tables]
    return found, np.repeat(np.arange(len(tables)), lengths)


class SharedRows(dict[str, np.ndarray]):
    """Rows that several users in one process share. What is computed from them is kept with them."""

    def __init__(self, columns: Mapping[str, np.ndarray]) -> None:
        super().__init__(columns)
        self.made: dict[Any, Any] = {}


class Clustered:
    """The rows of each partition of a table that is not clustered itself. They are sorted once."""

    def __init__(self, partition: np.ndarray) -> None:
        # A radix sort (16 bits) is several times faster, and dense ids are that small.
        small = len(partition) > 0 and partition.min() >= 0 and partition.max() < 1 << 16
        self._order = np.argsort(partition.astype(np.uint16) if small else partition, kind="stable")
        ordered = partition[self._order]
        starts = np.flatnonzero(
            np.concatenate([np.ones(min(1, len(ordered)), dtype=bool), ordered[1:] != ordered[:-1]])
        )
        # Example: partitions 7 3 7. The order is 1 0 2, the values 3 7, the bounds 0 1 3: the rows of 7 are order[1:3], 0 and
        # 2.
        self._values, self._bounds = ordered[starts], np.append(starts, len(ordered))

    def rows_of(self, partition: int) -> np.ndarray:
        """Returns the rows (intp) of a partition, in the order in which they were written."""
        index = int(np.searchsorted(self._values, partition))
        if index == len(self._values) or self._values[index] != partition:
            return self._order[:0]
        return self._order[self._bounds[index] : self._bounds[index + 1]]


def rows_of(rows: Mapping[str, np.ndarray], partition: int) -> np.ndarray:
    """Returns which of these rows (intp) belong to one partition, in their order."""
    if not isinstance(rows, SharedRows):
        return np.flatnonzero(rows["partition"] == partition)
    return once(rows, Clustered, lambda: Clustered(rows["partition"])).rows_of(partition)


_TAKEN_AT_ONCE = 1 << 12
"""For so many numbers, to look at the least and the greatest takes longer than all else."""


def of_clients(table: np.ndarray, client: np.ndarray, *, unknown: int) -> np.ndarray:
    """Returns `table[client]` for each client, and `unknown` for a client that is not of the trial."""
    if not len(table) or not len(client):
        return np.full(len(client), unknown, dtype=np.int64)
    if client.dtype == np.int32 and len(client) <= _TAKEN_AT_ONCE:
        try:
            return np.asarray(table.take(client.view(np.uint32)))  # without a sign, what is below 0 is above all others
        except IndexError:
            pass
    elif int(client.min()) >= 0 and int(client.max()) < len(table):
        return np.asarray(table[client])
    known = (client >= 0) & (client < len(table))
    return np.where(known, table[np.where(known, client, 0)], unknown)


def stretch(rows: np.ndarray) -> np.ndarray | slice:
    """Returns rows that strictly ascend; as a slice, if they follow one another without a gap, so that taking them copies
    nothing."""
    if len(rows) and int(rows[-1]) - int(rows[0]) == len(rows) - 1:
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


def taken(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Returns `values[rows]`, for rows that strictly ascend. It copies nothing if they follow one another without a gap."""
    assert not len(rows) or 0 <= int(rows[0]) <= int(rows[-1]) < len(values), "rows of the column"
    chosen: np.ndarray = values[stretch(rows)]
    return chosen


def once(rows: Mapping[str, np.ndarray], name: object, make: Callable[[], T]) -> T:
    """Returns what `make` computes from these rows. It is computed once if the rows are shared. Two threads may both
    compute it, with the same result."""
    if not isinstance(rows, SharedRows):
        return make()
    if name not in rows.made:
        rows.made[name] = make()
    found: T = rows.made[name]
    return found
