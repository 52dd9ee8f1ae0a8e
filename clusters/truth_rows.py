"""Rows of `metadata` from the controllers' own records, whoever wrote those: KRaft's log, or ZooKeeper's."""

from harness.schema import METADATA, NONE, MetadataSource

COLUMNS = tuple(column.name for column in METADATA.columns)
"""Their order in a row."""
_EMPTY = {
    "isr": 0,
    "elr": 0,
    "last_known_elr": 0,
    "replicas": 0,
    "source": int(MetadataSource.CONTROLLER_LOG),
    "partition": NONE,
    "node": NONE,
    "leader": NONE,
    "leader_epoch": NONE,
    "recovering": 0,
}


def truth_row(**columns: int) -> tuple[int, ...]:
    """One row, in the order of `COLUMNS`; `kind`, `time_ns` and `log_position` must be given, the rest is nothing."""
    row = _EMPTY | columns
    return tuple(row[name] for name in COLUMNS)
