"""Rows by hand, as the columns of their table."""

from collections.abc import Mapping, Sequence

import numpy as np

from harness.schema import NONE, TABLES


def table(name: str, rows: Sequence[Mapping[str, int]]) -> dict[str, np.ndarray]:
    """A table in the Parquet form; what a row does not say is NONE."""
    return {c: np.array([row.get(c, NONE) for row in rows], dtype=a.dtype) for c, a in TABLES[name].empty().items()}
