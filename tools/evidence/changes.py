"""Five ways to change one value of a table: how a recorder that is wrong, or a Kafka that is wrong, would have written it."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from prozess.harness.clock import NS_PER_S
from prozess.harness.schema import MISSING, NONE, TABLES

STEP_NS = 10 * NS_PER_S
"""How far a time is moved: further than any interval of a short run, so that any order is turned round."""
FAR: Mapping[str, int] = {"i4": 2**30, "i8": 10**15}
"""A value that nobody has, by the kind of the column. Read as a time it is eleven days."""

Way = Callable[[np.ndarray, int, str, str], int | None]
"""Takes a column's values, the row to change, the column's kind and its unit; returns the new value. None: this row has no
other value in this way."""


def _less(values: np.ndarray, row: int, kind: str, unit: str) -> int | None:
    return int(values[row]) - (STEP_NS if unit == "ns" else 1)


def _greater(values: np.ndarray, row: int, kind: str, unit: str) -> int | None:
    return int(values[row]) + (STEP_NS if unit == "ns" else 1)


def _of_another(values: np.ndarray, row: int, kind: str, unit: str) -> int | None:
    others = values[values != values[row]]
    return int(others[row % len(others)]) if len(others) else None


def _none(values: np.ndarray, row: int, kind: str, unit: str) -> int | None:
    return MISSING if unit == "ns" else NONE


def _far(values: np.ndarray, row: int, kind: str, unit: str) -> int | None:
    return FAR[kind]


WAYS: Mapping[str, Way] = MappingProxyType(
    {"less": _less, "greater": _greater, "another's": _of_another, "none": _none, "far": _far}
)


def changed(
    table: str, columns: Mapping[str, np.ndarray], column: str, rows: Sequence[int], way: str
) -> dict[str, np.ndarray] | None:
    """Returns the table with this column changed in these rows, in the order in which a recorder's rows would be stored.
    None: no row has another value in this way."""
    defined = {one.name: one for one in TABLES[table].columns}
    kind, unit = (defined[column].kind, defined[column].unit) if column != "client" else ("i4", "client id")
    values = columns[column].copy()
    for row in rows:
        if values[row] == MISSING:  # no time to be moved
            value = None if way in ("less", "greater") else WAYS[way](columns[column], row, kind, unit)
        else:
            value = WAYS[way](columns[column], row, kind, unit)
        if value is not None:
            values[row] = value
    if (values == columns[column]).all():
        return None
    return _stored(table, {**columns, column: values})


def _stored(table: str, columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the rows in the order of `prozess.harness.history.convert`."""
    if not TABLES[table].partitioned:
        return columns
    keys = [columns["client"], columns["partition"]]
    if table == "sends":
        keys.insert(0, columns["sequence"])
    order = np.lexsort(keys)
    return {name: values[order] for name, values in columns.items()}
