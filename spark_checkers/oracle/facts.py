"""The facts that the SQL of the second opinion needs beside the tables of a history: of clients, partitions and cells.

`views.sql` says what a `world` is, and how numbers and times that are not there look.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from prozess.harness.columns import empty_rows
from prozess.harness.config.configuration import PROVOCATIONS
from prozess.harness.history.participants import REVEALED
from prozess.harness.history.reader import History
from prozess.harness.interfaces.checking import CellHistory, PartitionHistory
from prozess.harness.interfaces.witnesses import SCAN_NS
from prozess.harness.plan.bounds import Bounds
from prozess.harness.plan.cell_work import ErrorsWork, RecordedWork, ShareWork
from prozess.harness.plan.plan import Cell, PlannedClient
from prozess.harness.schema import (
    CLIENTS,
    MISSING,
    NONE,
    OBSERVATIONS,
    RECORDED_ROLES,
    Isolation,
    ObservationKind,
    Role,
    role_named,
)

FACTS = {
    "fact_clients": (
        "world int, client int, role int, isolation int, issued bigint, acks int, clock int, reported_until_ns bigint"
    ),
    "fact_partitions": (
        "world int, partition int, cell int, compacted boolean, log_start bigint, end_uncommitted bigint, "
        "end_committed bigint, min_insync bigint, error_ns bigint, derived boolean, late boolean, retried_in int, "
        "readers_begin string, retention_ns bigint, retention_bytes bigint, "
        "delete_delay_ns bigint, tiered boolean, segment_bytes bigint, tier_within_ns bigint, remote_read boolean"
    ),
    "fact_assignment": "partition int, node int",
    "fact_copies": "partition int, node int, log_start bigint, log_end bigint, high_watermark bigint",
    "fact_cells": (
        "world int, cell int, workload string, commit string, isolation int, reset string, session_ns bigint, "
        "poll_limit_ns bigint, evicted_after_ns bigint, settle_ns bigint, stays boolean, twins boolean, joint boolean, "
        "records_lost boolean, transaction_ns bigint, by_content boolean, bad_every int, "
        "bound_ns bigint, call_ns bigint, new_leader_ns bigint, open_ns bigint, acknowledgement_ns bigint, "
        "admin_call_ns bigint, lock_ns bigint, deliveries_max int, share_session_ns bigint, "
        "dead_letters boolean, life int, keyed boolean, metadata_age_ns bigint"
    ),
    "fact_out": "world int, node int, begin_ns bigint, end_ns bigint",
    "fact_codes": "world int, cell int, code int",
    "fact_serving": "world int, cell int, client int",
    "fact_earlier_commits": "world int, client int, log_offset bigint, invoked_ns bigint, completed_ns bigint",
    "fact_calls": "world int, cell int, node int, begin_ns bigint, lasted_ns bigint",
    "fact_asked": "world int, cell int, client int, kind int, begin_ns bigint, end_ns bigint",
    "fact_driven": "world int, cell int, client int, level int, bound_ns bigint, asked int, ours boolean",
    "fact_readers": "world int, cell int, client int, level int",
    "fact_recipients": "world int, place int, planned int",
    "fact_due": "world int, place int, partition int",
}
"""The columns of each table of facts, which are joined to the tables of the history. A fact that a partition, client or
cell does not have is null.

`reported_until_ns`: a client must have learned the outcome of what it sent before. `end_…`: offset of the sentinel through
which the audit is complete. `retried_in`: the partition to which a group hands on what failed. `readers_begin`: where
consumers began. `retention_…`: what retention may remove. `tiered`: there is a
remote store, `remote_read`: it was read; `segment_bytes`, `tier_within_ns`: how much a segment has that is to be copied, and
how soon. `session_ns`, `poll_limit_ns`: how long a member may be silent, and not poll, without being evicted.
`evicted_after_ns`: when a silent one is evicted; `settle_ns`: what a group then takes to settle; `stays`: who ends is
missed only then. `twins`: one group.instance.id may be two members for a while. `joint`: a rebalance
waits for all members. `records_lost`: members say whether a partition was lost or revoked. `transaction_ns`: how long a
transaction may stay open; `open_ns`: how long its coordinator leaves it open at least. `bad_every`: every so-many-th record
is bad, 0: none by itself; `fact_codes`: what their senders are reported. `bound_ns`: within which a
delivery is promised. `call_ns`: within which a transaction coordinator does what
it is asked for. `fact_out`: when a node was certainly out of reach; `new_leader_ns`: within which a partition gets another
leader. `acknowledgement_ns`: within which a record of a producer is acknowledged. `admin_call_ns`: within which
`fact_calls`, calls of administrators, are answered. `lock_ns`, `deliveries_max`: how long a member of a share group may
hold a record, and how often it is delivered;
`share_session_ns`: how long one that is silent keeps its partitions; `dead_letters`: it has a dead-letter queue. `life`: how
many topics had its name before. `fact_asked`: when a client was asked, or
within a call, by `kind`; of clients that no application drives: always. `fact_driven`: readers of which rows say
when they were asked (of the kind `asked`), and the time after which one has something to read; `ours`: a member that says
where it begins. `fact_serving`: clients of a cell;
`fact_readers`: those that read and do nothing else. `fact_earlier_commits`: commits for topics that were
deleted. `fact_recipients`: planned clients that count as one to whom records
are owed; `fact_due`: those of which partitions.
"""


_TYPES = {"int": pa.int32(), "bigint": pa.int64(), "boolean": pa.bool_(), "string": pa.string()}
_LEVELS = {"read_uncommitted": int(Isolation.READ_UNCOMMITTED), "read_committed": int(Isolation.READ_COMMITTED)}
_NS_PER_MS = 1_000_000
FactRows = list[tuple[Any, ...]]


def facts_of(history: History) -> dict[str, pa.Table]:
    """Returns the facts of a run, as one world, 0. What clients were, how far audits read and where logs begin is here as
    it was planned, or unknown: `recorded.sql` reads it from the tables."""
    facts = empty_facts()
    known = history.clients
    planned = {c.client: (int(role_named(c.role)), _planned_level(c)) for c in history.plan.clients}
    # Two stand for an audit, where there was none.
    revealed = {len(known.reported_until_ns) + n: (int(Role.AUDIT), int(level)) for n, level in enumerate(REVEALED)}
    nobody = [MISSING] * (len(known.issued) - len(known.reported_until_ns))
    columns = (known.issued.tolist(), known.acks.tolist(), known.reported_until_ns.tolist() + nobody)
    for client, (issued, acks, until_ns) in enumerate(zip(*columns, strict=True)):
        what = planned.get(client) or revealed.get(client) or (0, int(Isolation.NOT_A_READER))
        clock = 0 if client in revealed else NONE
        facts["fact_clients"].append((0, client, *what, issued, acks, clock, None if until_ns == MISSING else until_ns))
    of_cell = {p: cell for cell in history.plan.cells for p in cell.partitions}
    for partition in history.partitions:
        known_of = replace(history.partition_history(partition), audit_end={}, log_start=0)
        add_partition(facts, known_of, world=0, cell=of_cell.get(partition))
    for cell in history.plan.cells:
        of_cell_history = history.cell_history(cell.cell)
        add_cell(facts, cell, world=0, bounds=of_cell_history.bounds, clients=of_cell_history.clients)
        facts["fact_out"] = outages(of_cell_history, world=0)  # of the cluster: the same in every cell
        add_serving(facts, of_cell_history, world=0, cell=cell)
    commits = history.table("commits")
    gone = np.isin(commits["partition"], list(history.ended))
    names = ("client", "log_offset", "invoked_ns", "completed_ns")
    facts["fact_earlier_commits"] += zip(repeat(0), *(commits[name][gone].tolist() for name in names))
    return to_arrow(facts)


def _planned_level(client: PlannedClient) -> int:
    """Returns the isolation level that was planned for a client."""
    if client.reads_by_command:
        return int(Isolation.UNREPORTED)
    return int(Isolation.NOT_A_READER) if client.isolation_level is None else _LEVELS[client.isolation_level]


def empty_facts() -> dict[str, FactRows]:
    """Returns every table of facts, without rows."""
    return {name: [] for name in FACTS}


def add_partition(facts: Mapping[str, FactRows], partition: PartitionHistory, *, world: int, cell: Cell | None) -> None:
    """Adds what is known of one partition. `cell` None: the partition was not planned."""
    number = partition.partition
    hands_on = cell is not None and cell.group is not None and cell.group.configuration.hands_on
    retried_in = dict(zip(cell.written, cell.derived, strict=True)) if cell is not None and hands_on else {}
    facts["fact_partitions"].append(
        (
            world,
            number,
            NONE if cell is None else cell.cell,
            partition.compacted,
            partition.log_start,
            partition.audit_end.get(Isolation.READ_UNCOMMITTED),
            partition.audit_end.get(Isolation.READ_COMMITTED),
            partition.min_insync_replicas,
            partition.metadata_error_ns,
            cell is not None and number in cell.derived,
            cell is not None and number in cell.late_partitions,
            retried_in.get(number),
            partition.readers_begin,
            None if partition.retention is None else partition.retention.time_ns,
            None if partition.retention is None else partition.retention.size_bytes,
            partition.delete_delay_ns,
            partition.tiered,
            partition.segment_bytes,
            partition.tier_within_ns,
            partition.remote_read,
        )
    )
    facts["fact_assignment"].extend((number, node) for node in partition.assignment)
    facts["fact_copies"].extend(
        (number, node, copy.log_start, copy.log_end, copy.high_watermark) for node, copy in partition.copies.items()
    )


def outages(history: CellHistory, *, world: int) -> FactRows:
    """Returns the rows of `fact_out` of one world."""
    return [(world, node, *span) for node, spans in history.out.items() for span in spans]


def _metadata_age_ns(clients: Sequence[PlannedClient]) -> int:
    """Returns the longest that a producer goes on with the partitions that it knows: 5 minutes, if it names nothing."""
    named = [
        int(text)
        for client in clients
        for key, text in (client.producer.properties if client.producer is not None else {}).items()
        if key in ("metadata.max.age.ms", "topic.metadata.refresh.interval.ms") and text.isdigit()
    ]
    return max(named, default=300_000) * _NS_PER_MS


def add_cell(
    facts: Mapping[str, FactRows], cell: Cell, *, world: int, bounds: Bounds, clients: Sequence[PlannedClient]
) -> None:
    """Adds the row of `fact_cells`: settings of the cell's work, and limits in ns; and the codes of errors it provokes."""
    of_group: tuple[Any, ...] = (None, None, None)
    of_locks: tuple[int | None, int | None, int | None, bool] = (None, None, None, False)
    limits: tuple[Any, ...] = (None, None, None, None, False, False, False, True)
    if cell.group is not None:
        group, session = cell.group.configuration, cell.group.session
        of_group = (group.commit, _LEVELS[group.isolation_level], group.auto_offset_reset)
        limits = (
            max(0, session.timeout_ms - session.heartbeat_ms) * _NS_PER_MS,
            group.max_poll_interval_ms * _NS_PER_MS,
            session.timeout_ms * _NS_PER_MS,
            (4 * session.heartbeat_ms + 10_000) * _NS_PER_MS + bounds.rebalance_delay_ns,
            group.static_membership,
            group.static_membership and group.protocol != "consumer",
            group.protocol != "consumer",
            group.client != "java",
        )
    if isinstance(cell.work, ShareWork):
        share = cell.work.configuration
        of_group = (None, _LEVELS[share.isolation_level], None)
        of_locks = (share.lock_ns, share.delivery_count_limit, share.session_ns, share.dead_letter_replicas > 0)
    open_ns = None
    if cell.transaction is not None:
        open_ns = cell.transaction.transaction_timeout_ms * _NS_PER_MS + SCAN_NS
    least_open_ns = None
    own = None if isinstance(cell.work, RecordedWork) else cell.transaction
    if own is not None and not own.properties.get("transaction.timeout.ms"):
        least_open_ns = own.transaction_timeout_ms * _NS_PER_MS
    every = None
    if isinstance(cell.work, ErrorsWork):
        made = cell.work.configuration
        provocation = PROVOCATIONS[made.error]
        every = made.every if provocation.of_record else 0
        facts["fact_codes"].extend((world, cell.cell, code) for code in provocation.codes)
    by_content = cell.carriers[1] == "content"
    bound_ns = None if cell.delivery_bound is None else cell.delivery_bound.latency_ns
    facts["fact_cells"].append(
        (
            *(world, cell.cell, cell.workload, *of_group, *limits, open_ns, by_content, every, bound_ns),
            bounds.transaction_call_ns,
            bounds.new_leader_ns,
            least_open_ns,
            bounds.acknowledgement_ns,
            bounds.admin_call_ns,
            *of_locks,
            cell.life,
            cell.keyed,
            _metadata_age_ns(clients),
        )
    )


_DRIVEN = {
    "recorded-reader": ObservationKind.ASKED,
    "recorded-member": ObservationKind.ASKED,
    "member": ObservationKind.POLLED,
    "java-member": ObservationKind.POLLED,
}
"""The roles of readers of which rows say when they were asked, and of which kind these are."""


def add_serving(facts: Mapping[str, FactRows], history: CellHistory, *, world: int, cell: Cell) -> None:
    """Adds who served a cell. `cell` is the same cell, perhaps with other ids."""
    clients = history.tables.get("clients", empty_rows(CLIENTS))
    level = {c.client: _LEVELS[c.isolation_level] for c in history.clients if c.role == "reader" and c.isolation_level}
    driven = {
        c.client: (_LEVELS[c.isolation_level], _DRIVEN[c.role])
        for c in history.clients
        if c.role in _DRIVEN and c.isolation_level
    }
    bounds = history.bounds
    for client, planned in zip(clients["client"].tolist(), clients["planned"].tolist(), strict=True):
        facts["fact_serving"].append((world, cell.cell, client))
        facts["fact_asked"].extend((world, cell.cell, client, *span) for span in _asked(history, client, planned))
        if planned in driven:
            level_of_it, wanted = driven[planned]
            ours = wanted is ObservationKind.POLLED
            if any(kind == wanted for kind, *_ in _asked(history, client, planned)):
                bound_ns = bounds.member_reading_ns if ours else bounds.reading_ns
                facts["fact_driven"].append((world, cell.cell, client, level_of_it, bound_ns, int(wanted), ours))
        if planned in level:
            facts["fact_readers"].append((world, cell.cell, client, level[planned]))
    calls = history.tables.get("calls", empty_rows(OBSERVATIONS))
    for node, begin_ns, lasted_ns in zip(*(calls[name].tolist() for name in ("node", "time_ns", "value")), strict=True):
        facts["fact_calls"].append((world, cell.cell, node, begin_ns, lasted_ns))
    if cell.delivery_bound is not None:
        _add_due_rows(facts, history, world=world, cell=cell)


def _asked(history: CellHistory, client: int, planned: int) -> list[tuple[int, int, int]]:
    """Returns (kind, begin_ns, end_ns) of each time in which the client was asked, or within a call."""
    roles = {one.role for one in history.clients if one.client in (client, planned)}
    if "verifiable-producer" in roles:
        return [(int(ObservationKind.CALLED), -(2**62), 2**62)]  # it reports its sends when they are over
    if not roles & set(RECORDED_ROLES) - {"recorded-command"}:
        always = [(int(kind), -(2**62), 2**62) for kind in (ObservationKind.ASKED, ObservationKind.CALLED)]
        return always + _asked_rows(history, client)
    return _asked_rows(history, client)


def _asked_rows(history: CellHistory, client: int) -> list[tuple[int, int, int]]:
    table = history.tables.get("asked", empty_rows(OBSERVATIONS))
    rows = np.flatnonzero(table["client"] == client).tolist()
    values = [(int(table["kind"][row]), int(table["time_ns"][row]), int(table["value"][row])) for row in rows]
    return [(kind, time_ns, 2**62 if lasted_ns == NONE else time_ns + lasted_ns) for kind, time_ns, lasted_ns in values]


def _add_due_rows(facts: Mapping[str, FactRows], history: CellHistory, *, world: int, cell: Cell) -> None:
    """Adds who should receive the records of the cell: its group, or each tailing reader of the partition. In
    transactions it is each reader at read_committed."""
    alone = "transactions" in cell.traits
    owed = [
        ([c.client], c.partitions)
        for c in history.clients
        if c.role == "reader" and not (alone and c.isolation_level != "read_committed")
    ]
    if cell.group is not None:
        members = [c.client for c in history.clients if c.role == "member" and c.cell == history.cell.cell]
        owed = [(members, history.cell.written)]
    for planned, partitions in owed:
        row = len(facts["fact_due"])  # any number that grows will do
        facts["fact_recipients"].extend((world, row, client) for client in planned)
        named = zip(history.cell.written, cell.written, strict=True)
        facts["fact_due"].extend((world, row, own) for number, own in named if number in partitions)


def to_arrow(facts: Mapping[str, FactRows]) -> dict[str, pa.Table]:
    """Returns the facts as Arrow tables."""
    assert facts.keys() == FACTS.keys(), "a table for each kind of fact"
    made = {}
    for name, rows in facts.items():
        fields = [field.strip().split(" ") for field in FACTS[name].split(",")]
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(fields)
        made[name] = pa.table(
            {field: pa.array(c, _TYPES[kind]) for (field, kind), c in zip(fields, columns, strict=True)}
        )
    return made
