"""A cell of transactions by hand: two partitions, and what became of each transaction."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from prozess.harness.columns import empty_rows
from prozess.harness.config.configuration import ProducerConfiguration, TopicConfiguration, TransactionConfiguration
from prozess.harness.interfaces.checking import CellHistory
from prozess.harness.plan.cell_work import TransactionsWork
from prozess.harness.plan.plan import Cell
from prozess.harness.schema import CLIENTS, HEARTBEATS, MISSING, NONE, TRANSACTIONS, Outcome, Table
from tests.support.cells.partitions import OK, history

COMMIT, ABORT = 1, 2
A, B = 7, 8
CELL = Cell(
    cell=0,
    name="cell",
    workload="transactions",
    topic_name="cell-000",
    axes={},
    topic=TopicConfiguration(),
    producer=ProducerConfiguration(enable_idempotence=True),
    work=TransactionsWork(configuration=TransactionConfiguration()),
    partitions=(A, B),
)


def ended(
    client: int, number: int, outcome: Outcome, *, by: int = COMMIT, at: int = 500, instance: int = 5, **columns: int
) -> dict[str, int]:
    """A transaction that begins 100 before its end is invoked at `at`, of the instance initialised at `instance`."""
    row = {"client": client, "transaction": number, "begun_ns": at - 100, "end_invoked_ns": at, "completed_ns": at + 50}
    more = {"initialised_ns": instance, "transactional_id": 1, "ended_by": by, "outcome": outcome, "code": 0}
    return row | more | columns


def instance(client: int, *, called: int, returned: int) -> dict[str, int]:
    """init_transactions of an instance."""
    row = ended(client, NONE, OK, by=NONE, begun_ns=called, initialised_ns=returned, end_invoked_ns=MISSING)
    return row | {"completed_ns": returned}


def cell_of(
    a: Mapping[str, Any],
    b: Mapping[str, Any],
    transactions: Iterable[Mapping[str, int]],
    *,
    compacted: bool = False,
    clients: Iterable[Mapping[str, int]] = (),
    heartbeats: Iterable[Mapping[str, int]] = (),
) -> CellHistory:
    """Arguments of `histories.history` for partitions A and B; a send's fifth is its transaction. The others are rows of
    tables; a column of `clients` or `heartbeats` that is not given is 0."""

    def partition(number: int, rows: Mapping[str, Any]) -> Any:
        sends = [(*row[:4], {"transaction": row[4], **(row[5] if len(row) > 5 else {})}) for row in rows["sends"]]
        return replace(history(**{**rows, "sends": sends}, compacted=compacted), partition=number)

    tables = {
        "transactions": columns_of(TRANSACTIONS, transactions),
        "clients": columns_of(CLIENTS, clients),
        "heartbeats": columns_of(HEARTBEATS, heartbeats),
    }
    return CellHistory(cell=CELL, partitions={A: partition(A, a), B: partition(B, b)}, tables=tables, clients=())


def columns_of(table: Table, rows: Iterable[Mapping[str, int]]) -> dict[str, np.ndarray]:
    """Returns the columns of a table with these rows; a column that is not given is 0."""
    found = list(rows)
    return {
        name: np.array([row.get(name, 0) for row in found], dtype=empty.dtype)
        for name, empty in empty_rows(table).items()
    }
