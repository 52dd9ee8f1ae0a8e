"""This module says which rows of a clustered table stand in which row groups of its Parquet file.

As a rule a row group has rows of one partition, and its statistics say of which. A row group costs as much as a thousand
rows to write and to read, however few it has. Therefore small partitions of one cell may share one (imports have thousands of
them): then the footer says how many rows each has in it, in their order. Partitions of several cells never share one, because
a row group that is damaged costs the cells that have rows in it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import pyarrow.parquet as pq

from prozess.harness.schema import NONE, Table

SHARED_KEY = "prozess.shared_row_groups"
"""The key in the footer. A file in which no row group is shared does not have it."""
SHARED_ROWS_MAX = 1 << 14
"""About the most rows of a row group that is shared. Anyone who wants one partition of it decodes all of them."""
Run = tuple[int, int]
"""A partition, and how many rows of it follow one another."""


class NotClustered(Exception):
    """A row group has rows of several partitions, and the footer does not say which, or says what cannot be."""


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows of one partition that follow one another in one row group: first ≤ number < last. For a table that is not
    clustered: a row group."""

    partition: int
    group: int
    first: int
    last: int


def runs_of(partition: np.ndarray) -> list[Run]:
    """Returns the partitions of rows that are clustered, in their order."""
    bounds = [0, *(np.flatnonzero(np.diff(partition)) + 1).tolist(), len(partition)]
    found = [(int(partition[first]), last - first) for first, last in pairwise(bounds) if last > first]
    assert all(one[0] < other[0] for one, other in pairwise(found)), "partitions that share a row group ascend"
    return found


def shared_metadata(shared: Mapping[int, Sequence[Run]]) -> dict[str, str]:
    """Returns what the footer says of row groups that are shared, by their numbers."""
    return {SHARED_KEY: json.dumps(shared, separators=(",", ":"))} if shared else {}


def row_ranges_of(footer: pq.FileMetaData, table: Table) -> list[RowRange]:
    """Returns the ranges of rows of a table's file in the order of their rows. NotClustered, with what is wrong."""
    shared = _shared(footer) if table.partitioned else {}
    column = table.column_names.index("partition") if table.partitioned else NONE
    found = []
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        if not table.partitioned:
            found.append(RowRange(NONE, number, 0, int(group.num_rows)))
        elif group.num_rows:
            found += _row_ranges_of_group(group, number, column, shared.get(number))
    return found


def _row_ranges_of_group(
    group: pq.RowGroupMetaData, number: int, column: int, runs: Sequence[Run] | None
) -> Iterator[RowRange]:
    statistics = group.column(column).statistics
    if statistics is None or not statistics.has_min_max:
        raise NotClustered(f"row group {number}")
    bounds, rows = (int(statistics.min), int(statistics.max)), int(group.num_rows)
    runs = [(bounds[0], rows)] if runs is None else runs
    # Example: runs (3, 10) and (5, 4) end at the rows 10 and 14. The statistics say 3 to 5, and the row group has 14 rows:
    # right.
    lasts = list(accumulate(count for _, count in runs))
    ascending = all(one[0] < other[0] for one, other in pairwise(runs))
    if not lasts or (runs[0][0], runs[-1][0]) != bounds or lasts[-1] != rows or not ascending:
        raise NotClustered(f"row group {number}")
    for (partition, count), last in zip(runs, lasts, strict=True):
        yield RowRange(partition, number, last - count, last)


def _shared(footer: pq.FileMetaData) -> Mapping[int, Sequence[Run]]:
    text = (footer.metadata or {}).get(SHARED_KEY.encode())
    if text is None:
        return {}
    try:
        return {
            int(number): [(int(partition), int(count)) for partition, count in runs]
            for number, runs in json.loads(text).items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise NotClustered("its list of shared row groups cannot be read") from error
