"""What a column and a table of a history are, and the two forms of a row: `harness.schema` has the tables themselves."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np

Kind = Literal["i8", "i4"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Column:
    """One column: name, numpy kind, unit (or what ids it holds), meaning."""

    name: str
    kind: Kind
    unit: str
    meaning: str


@dataclass(frozen=True)
class Table:
    """A table of the history. `partitioned`: clustered by Kafka partition in Parquet."""

    name: str
    meaning: str
    columns: tuple[Column, ...]
    partitioned: bool = False

    @cached_property
    def row_dtype(self) -> np.dtype[np.void]:
        """The row as written while the trial runs: the columns in order, padding to 8 bytes, then `mark` (index + 1)."""
        padding = [("pad", "<i4")] if self._padded else []
        return np.dtype([*((c.name, "<" + c.kind) for c in self.columns), *padding, ("mark", "<i8")])

    @property
    def _padded(self) -> bool:
        return sum(c.kind == "i4" for c in self.columns) % 2 == 1

    @cached_property
    def row_format(self) -> str:
        """The same, for `struct`: one value per column, then the mark."""
        return "<" + "".join({"i8": "q", "i4": "i"}[c.kind] for c in self.columns) + "4x" * self._padded + "q"

    @cached_property
    def column_names(self) -> tuple[str, ...]:
        """Of the Parquet form: `client` first."""
        return ("client", *(c.name for c in self.columns))

    def empty(self) -> dict[str, np.ndarray]:
        """Arrays of length 0 in the Parquet form."""
        kinds = {"client": "i4"} | {c.name: c.kind for c in self.columns}
        return {name: np.empty(0, dtype=kind) for name, kind in kinds.items()}


def table(name: str, meaning: str, *columns: tuple[str, Kind, str, str], partitioned: bool = False) -> Table:
    """A table by its columns: (name, kind, unit, meaning)."""
    # 8-byte columns first keeps every value aligned in the mapped file.
    ordered = sorted((Column(*c) for c in columns), key=lambda c: c.kind != "i8")
    return Table(name, meaning, tuple(ordered), partitioned)


class SharedRows(dict[str, np.ndarray]):
    """Rows that many are given in one process: what is computed of them is kept with them."""

    def __init__(self, columns: Mapping[str, np.ndarray]) -> None:
        super().__init__(columns)
        self.made: dict[Any, Any] = {}


class Clustered:
    """The rows of each partition, of a table that is not written so. Sorted once."""

    def __init__(self, partition: np.ndarray) -> None:
        # A radix sort (16 bits) is several times faster, and dense ids are that small.
        small = len(partition) > 0 and partition.min() >= 0 and partition.max() < 1 << 16
        self._order = np.argsort(partition.astype(np.uint16) if small else partition, kind="stable")
        ordered = partition[self._order]
        starts = np.flatnonzero(
            np.concatenate([np.ones(min(1, len(ordered)), dtype=bool), ordered[1:] != ordered[:-1]])
        )
        self._values, self._bounds = ordered[starts], np.append(starts, len(ordered))

    def rows_of(self, partition: int) -> np.ndarray:
        """intp: in the order in which they were written."""
        place = int(np.searchsorted(self._values, partition))
        if place == len(self._values) or self._values[place] != partition:
            return self._order[:0]
        return self._order[self._bounds[place] : self._bounds[place + 1]]


def rows_of(rows: Mapping[str, np.ndarray], partition: int) -> np.ndarray:
    """intp: which of these rows are of one partition, in their order."""
    if not isinstance(rows, SharedRows):
        return np.flatnonzero(rows["partition"] == partition)
    return once(rows, Clustered, lambda: Clustered(rows["partition"])).rows_of(partition)


def once(rows: Mapping[str, np.ndarray], name: object, make: Callable[[], T]) -> T:
    """What `make` makes of these rows: made once where the rows are shared. Two threads may both make it, the same."""
    if not isinstance(rows, SharedRows):
        return make()
    if name not in rows.made:
        rows.made[name] = make()
    found: T = rows.made[name]
    return found
