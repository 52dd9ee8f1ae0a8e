"""What rebalances cost each consumer group: how often partitions were taken away, and how long nobody had them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from harness.clock import NS_PER_S
from harness.history import History
from harness.plan import Cell, Plan
from harness.schema import MISSING, NONE, ObservationKind

_ASSIGN, _CLOSE = 1, 4
"""`assignments.event`."""
Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one group, from the first assignment of each partition until its members were told to finish."""

    changes: int
    """Callbacks that gave or took a partition, each partition counted."""
    given_back: int
    """Times a member was given a partition that it had just given up itself: it stood still for nothing."""
    unowned_s: float
    """Seconds that nobody had a partition, over all partitions. Who died had his until the last sign of life."""
    longest_s: float


def group_lines(plan: Plan, history: History) -> list[str]:
    """Markdown; empty where no cell has a group."""
    cells = [cell for cell in plan.cells if cell.group is not None]
    if not cells:
        return []
    costs = group_costs(plan, history)
    out = [
        "",
        "## What rebalances cost",
        "",
        "By what members were told of their partitions; seconds over all partitions.",
        "",
    ]
    out += ["| group | client | protocol | given or taken | given back | nobody's, s | longest, s |", "|" + "---|" * 7]
    for cell in cells:
        cost = costs[cell.cell]
        assert cell.group is not None
        out.append(
            f"| {cell.cell} | {cell.group.client} | {cell.group.protocol} | {cost.changes} | {cost.given_back} | "
            f"{cost.unowned_s:.1f} | {cost.longest_s:.1f} |"
        )
    return out


def group_costs(plan: Plan, history: History) -> dict[int, Cost]:
    """Cell → what its group's rebalances cost."""
    tables = {name: history.table(name) for name in ("assignments", "clients", "heartbeats", "observations")}
    ends = _ends_of_life(tables["clients"], tables["heartbeats"])
    return {cell.cell: _cost(cell, tables, ends) for cell in plan.cells if cell.group is not None}


def _ends_of_life(clients: Columns, heartbeats: Columns) -> dict[int, int]:
    """Client → when it ended; of one that was killed: when it was last known to live."""
    order = np.argsort(heartbeats["time_ns"], kind="stable")
    last = dict(zip(heartbeats["client"][order].tolist(), heartbeats["time_ns"][order].tolist(), strict=True))
    ended = zip(clients["client"].tolist(), clients["ended_ns"].tolist(), strict=True)
    return last | {client: time_ns for client, time_ns in ended if time_ns != MISSING}


def _cost(cell: Cell, tables: Mapping[str, Columns], ends: Mapping[int, int]) -> Cost:
    """A few rows for each partition: loops are fine."""
    table, changes, given_back, gaps_ns = tables["assignments"], 0, 0, [0]
    for partition in cell.partitions:
        rows = np.flatnonzero(table["partition"] == partition)
        rows = rows[np.lexsort((rows, table["started_ns"][rows], table["client"][rows]))]
        changes += int(np.count_nonzero(table["event"][rows] != _CLOSE))
        client, begin_ns, end_ns = _owned(table, rows, ends)
        until_ns = _until(tables["observations"], partition)
        kept = begin_ns < until_ns
        client, begin_ns, end_ns = client[kept], begin_ns[kept], end_ns[kept]
        if not len(client):
            continue
        reach = np.maximum.accumulate(end_ns)
        between_ns = np.append(begin_ns[1:], until_ns) - reach
        gaps_ns += np.maximum(0, between_ns).tolist()
        given_back += int(np.count_nonzero((client[1:] == client[:-1]) & (between_ns[:-1] > 0)))
    return Cost(changes, given_back, sum(gaps_ns) / NS_PER_S, max(gaps_ns) / NS_PER_S)


def _owned(table: Columns, rows: np.ndarray, ends: Mapping[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(client, begin, end) of each time somebody had the partition, ascending by begin. `rows`: by client, then time."""
    client, event = table["client"][rows], table["event"][rows]
    end_ns = np.array([ends.get(int(c), NONE) for c in client], dtype=np.int64)
    followed = np.flatnonzero(client[1:] == client[:-1])
    end_ns[followed] = table["started_ns"][rows][followed + 1]
    begin_ns = table["done_ns"][rows]
    chosen = np.flatnonzero((event == _ASSIGN) & (begin_ns != MISSING) & (end_ns > begin_ns))
    chosen = chosen[np.argsort(begin_ns[chosen], kind="stable")]
    return client[chosen], begin_ns[chosen], end_ns[chosen]


def _until(seen: Columns, partition: int) -> int:
    """When its members were told to finish; MISSING = never, so that nothing is counted."""
    told = seen["time_ns"][(seen["kind"] == ObservationKind.DRAIN_BEGUN) & (seen["partition"] == partition)]
    return int(told.min()) if len(told) else int(MISSING)
