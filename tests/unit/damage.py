"""Damage to histories, as disks do it."""

import pyarrow.parquet as pq

from harness.run_directory import RunDirectory
from harness.schema import TABLES


def rot(run: RunDirectory, table: str, *, row_group: int, column: str) -> None:
    """Spoil a data page of a column that has to be decoded: one whose values differ."""
    path = run.history / f"{table}.parquet"
    chunk = pq.read_metadata(path).row_group(row_group).column(TABLES[table].column_names.index(column))
    assert chunk.statistics.min != chunk.statistics.max
    rotten = bytearray(path.read_bytes())
    rotten[chunk.data_page_offset + chunk.total_compressed_size - 20] ^= 0xFF
    path.write_bytes(rotten)
