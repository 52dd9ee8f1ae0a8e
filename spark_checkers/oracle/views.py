"""The views of the second opinion: tables and facts of a history, and what several checks need of them, in plain SQL.

They share no code with the kernels on purpose: they are written from the definitions, record by record, to be read and
not to be fast. Every row of a table has its number in the order of writing, `row`. A `world` is one history. Each world
has its own ids of clients, and no two worlds share an id of a partition or a cell, so that SQL can be asked about many
histories at once.

Codes are those of `prozess.harness.schema`. A number that is not there is -1 (NONE), and a time that never came is
MISSING.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from prozess.harness.config.configuration import PROVOCATIONS
from prozess.harness.history.reader import History
from prozess.harness.interfaces import CellHistory, PartitionHistory
from prozess.harness.interfaces.witnesses import SCAN_NS
from prozess.harness.plan.bounds import Bounds
from prozess.harness.plan.plan import SENTINEL_CLIENT, Cell
from prozess.harness.plan.work import ErrorsWork, TransactionsWork
from prozess.harness.schema import (
    CLIENTS,
    MISSING,
    NONE,
    OBSERVATIONS,
    ORIGIN_SEQUENCE_BITS,
    READS,
    RECORDED_ROLES,
    Isolation,
    MetadataKind,
    MetadataSource,
    ObservationKind,
    Outcome,
    ReadFlag,
    Role,
)

CONSTANTS = {
    "OK": int(Outcome.OK),
    "FAIL": int(Outcome.FAIL),
    "INFO": int(Outcome.INFO),
    "NONE": NONE,
    "MISSING": f"({MISSING + 1} - 1)",
    "FOREVER": 2**63 - 1,
    "SENTINEL": SENTINEL_CLIENT,
    "CORRUPT": int(ReadFlag.CORRUPT),
    "ANONYMOUS": int(ReadFlag.ANONYMOUS),
    "FROM_START": int(ReadFlag.FROM_START),
    "GOES_ON": int(ReadFlag.GOES_ON),
    "PRODUCER": int(Role.PRODUCER),
    "AUDIT": int(Role.AUDIT),
    "SENTINEL_ROLE": int(Role.SENTINEL),
    "MEMBER": int(Role.MEMBER),
    "OBSERVER": int(Role.OBSERVER),
    "UNCOMMITTED": int(Isolation.READ_UNCOMMITTED),
    "COMMITTED": int(Isolation.READ_COMMITTED),
    "TRUTH": int(MetadataSource.CONTROLLER_LOG),
    "SAMPLE": int(MetadataSource.SAMPLE),
    "OF_PARTITION": int(MetadataKind.PARTITION),
    "OF_CONTROLLER": int(MetadataKind.CONTROLLER),
    "DELETED": int(MetadataKind.DELETED),
}
"""What `{NAME}` in a SQL text stands for."""

FACTS = {
    "fact_clients": "world int, client int, role int, isolation int, issued bigint, acks int, clock int, told_ns bigint",
    "fact_partitions": (
        "world int, partition int, cell int, compacted boolean, log_start bigint, end_uncommitted bigint, "
        "end_committed bigint, min_insync bigint, error_ns bigint, derived boolean, late boolean, retried_in int, "
        "readers_begin string"
    ),
    "fact_assignment": "partition int, node int",
    "fact_copies": "partition int, node int, log_start bigint, log_end bigint, high_watermark bigint",
    "fact_cells": (
        "world int, cell int, workload string, commit string, isolation int, reset string, session_ns bigint, "
        "poll_limit_ns bigint, evicted_after_ns bigint, settle_ns bigint, stays boolean, twins boolean, "
        "tells_lost boolean, transaction_ns bigint, by_content boolean, bad_every int, "
        "bound_ns bigint, call_ns bigint, new_leader_ns bigint, open_ns bigint, acknowledgement_ns bigint, "
        "admin_call_ns bigint"
    ),
    "fact_out": "world int, node int, begin_ns bigint, end_ns bigint",
    "fact_codes": "world int, cell int, code int",
    "fact_serving": "world int, cell int, client int",
    "fact_calls": "world int, cell int, node int, begin_ns bigint, lasted_ns bigint",
    "fact_asked": "world int, cell int, client int, kind int, begin_ns bigint, end_ns bigint",
    "fact_driven": "world int, cell int, client int, level int, bound_ns bigint",
    "fact_readers": "world int, cell int, client int, level int",
    "fact_places": "world int, place int, planned int",
    "fact_due": "world int, place int, partition int",
}
"""The columns of each table of facts, which are joined to the tables of the history. A fact that a partition, client or
cell does not have is null.

`told_ns`: of what it sent before, a client must have been told. `end_…`: offset of the sentinel through which the audit
is complete. `retried_in`: the partition to which a group hands on what failed. `readers_begin`: where consumers began.
`session_ns`, `poll_limit_ns`: how long a member may be silent, and not poll, without being evicted. `evicted_after_ns`:
when a silent one is evicted; `settle_ns`: what a group then takes to settle; `stays`: who ends is missed only then.
`twins`: one group.instance.id may be two members for a while. `tells_lost`: members say whether a partition was lost or
revoked. `transaction_ns`: how long a transaction may stay open; `open_ns`: how long its coordinator leaves it open at
least. `bad_every`: every so-many-th record is bad, 0: none by itself; `fact_codes`: what their senders are told.
`bound_ns`: within which a delivery is promised. `call_ns`: within which a transaction coordinator does what it is asked
for. `fact_out`: when a node was certainly out of reach; `new_leader_ns`: within which a partition gets another leader.
`acknowledgement_ns`: within which a record of a producer is acknowledged. `admin_call_ns`: within which `fact_calls`, calls
of administrators, are answered. `fact_asked`: when a client was asked, or
within a call, by `kind`; of clients that no application drives: always. `fact_driven`: readers that an application
drives, and the time after which one that is asked has something to read. `fact_serving`: clients of a cell;
`fact_readers`: those that read and do nothing else. `fact_places`: planned clients that count as one to whom records
are owed; `fact_due`: those of which partitions.
"""


def cleaning(record: str) -> str:
    """Returns the joins that `cleaned` needs, for a record of alias `record` with `partition` and `key`, beside
    `fact_partitions p`."""
    return f"""
        left join last_of_key k on k.partition = {record}.partition and k.key = {record}.key
        left join tombstone t on t.partition = {record}.partition and t.key = {record}.key
    """


def cleaned(record: str, *, tombstone: str) -> str:
    """Returns a condition: retention or compaction may have removed this record. Its offset may be NONE, which stands
    for any."""
    return f"""(
        (p.log_start > 0 and {record}.log_offset < p.log_start)
        or (p.compacted and {record}.key != {{NONE}}
            and ({tombstone} or coalesce(k.log_offset > {record}.log_offset, false)
                 or coalesce(t.log_offset > {record}.log_offset, false)))
    )"""


VIEWS = {
    # Who was given what. The sentinels' own records are nobody's.
    "given": """
        select r.*, p.world, p.cell,
               (r.flags & {CORRUPT}) != 0 as corrupt,
               (r.flags & ({CORRUPT} | {ANONYMOUS})) != 0 as unreadable,
               coalesce(c.role, 0) = {AUDIT} as by_audit,
               coalesce(c.isolation, -1) as isolation
        from reads r
        join fact_partitions p on p.partition = r.partition
        left join fact_clients c on c.world = p.world and c.client = r.client
        where r.sender != {SENTINEL}
    """,
    # L (level 0) and V (level 1): what the audit read below the sentinel; of an offset read twice the last reading.
    "log": """
        select partition, level, log_offset, sender, sequence, unreadable, key, origin, sent_partition, read_ns, world,
               row_number() over (partition by partition, level order by log_offset) as position
        from (
            select g.*, g.isolation as level,
                   row_number() over (
                       partition by g.partition, g.isolation, g.log_offset order by g.read_ns desc, g.row desc
                   ) as newest
            from given g
            join fact_partitions p on p.partition = g.partition
            where g.by_audit and g.isolation in ({UNCOMMITTED}, {COMMITTED})
              and g.log_offset < coalesce(
                  case g.isolation when {UNCOMMITTED} then p.end_uncommitted else p.end_committed end, {FOREVER}
              )
        )
        where newest = 1
    """,
    # Each readable record of L and V, where it stands first, and how often it stands there.
    "first_copy": """
        select partition, level, sender, sequence, min(position) as position, min(log_offset) as log_offset,
               min_by(sent_partition, position) as sent_partition, count(*) as copies
        from log where not unreadable group by partition, level, sender, sequence
    """,
    "sent": """
        select s.*, p.world, p.cell, coalesce(c.acks, 0) as acks, coalesce(c.clock, -1) as clock
        from sends s
        join fact_partitions p on p.partition = s.partition
        left join fact_clients c on c.world = p.world and c.client = s.client
        where s.client != {SENTINEL}
    """,
    # The sentinel that ends L was sent then.
    "sentinel": """
        select s.partition,
               coalesce(
                   min(case when s.log_offset = coalesce(p.end_uncommitted, {NONE}) then s.invoked_ns end),
                   min(s.invoked_ns)
               ) as sentinel_ns
        from sends s join fact_partitions p on p.partition = s.partition
        where s.client = {SENTINEL} group by s.partition
    """,
    # What was given and L does not confirm: nothing stands there, or another record (or one that nobody can read).
    "unconfirmed": """
        select g.*, l.log_offset is not null as replaced, coalesce(l.unreadable, false) as unreadable_there
        from given g
        left join log l on l.partition = g.partition and l.level = {UNCOMMITTED} and l.log_offset = g.log_offset
        where not g.unreadable
          and (l.log_offset is null or l.unreadable or l.sender != g.sender or l.sequence != g.sequence)
    """,
    # Records that the audit was given behind the sentinel.
    "straggler": """
        select distinct g.partition, g.sender, g.sequence
        from given g join fact_partitions p on p.partition = g.partition
        where g.by_audit and g.isolation = {UNCOMMITTED} and g.log_offset > p.end_uncommitted and not g.unreadable
    """,
    # Records that no producer issued. Past the rows of a producer that crashed there may be any.
    "never_issued": """
        select distinct g.partition, g.sender, g.sequence
        from given g left join fact_clients c on c.world = g.world and c.client = g.sender
        where not g.unreadable
          and (g.sequence < 0 or coalesce(c.role, 0) not in ({PRODUCER}, {MEMBER})
               or (c.issued != {NONE} and g.sequence >= c.issued))
    """,
    # The last tombstone of each key, FOREVER if it may stand anywhere.
    "tombstone": """
        select partition, key,
               max(case when outcome = {OK} and log_offset != {NONE} then log_offset else {FOREVER} end) as log_offset
        from sent where size = {NONE} and outcome != {FAIL} and key != {NONE} group by partition, key
    """,
    "last_of_key": """
        select partition, key, max(log_offset) as log_offset from log where level = {UNCOMMITTED} group by partition, key
    """,
    # What was given at an offset below the sentinel at which L has nothing.
    "beside_log": """
        select g.* from given g
        join fact_partitions p on p.partition = g.partition
        left anti join log l
            on l.partition = g.partition and l.level = {UNCOMMITTED} and l.log_offset = g.log_offset
        where g.log_offset >= greatest(p.log_start, 0) and g.log_offset < p.end_uncommitted
    """,
    # Offsets that a consumer or an acknowledgement names, at which L has nothing, and a batch of each replica a record.
    "only_stored": """
        with named as (
            select b.partition, b.log_offset from beside_log b
            join fact_partitions p on p.partition = b.partition and not p.compacted
            where not b.by_audit
            union
            select s.partition, s.log_offset from sent s
            join fact_partitions p on p.partition = s.partition and not p.compacted
            left anti join log l
                on l.partition = s.partition and l.level = {UNCOMMITTED} and l.log_offset = s.log_offset
            where s.outcome = {OK} and s.log_offset >= greatest(p.log_start, 0) and s.log_offset < p.end_uncommitted
        ),
        unread as (
            select distinct a.partition from fact_assignment a
            left anti join fact_copies c on c.partition = a.partition and c.node = a.node
        )
        select n.partition, n.log_offset
        from named n
        join fact_copies c on c.partition = n.partition
        left join replicas r
            on r.partition = n.partition and r.node = c.node and r.step = {NONE} and r.base_offset <= n.log_offset
            and r.last_offset >= n.log_offset and (r.attributes & 32) = 0
        left anti join unread u on u.partition = n.partition
        group by n.partition, n.log_offset
        having count(distinct case when r.node is not null then c.node end) = count(distinct c.node)
    """,
    # Partitions of which the audit at read_uncommitted passed over what is there: L is not whole.
    "passed_over": f"""
        select partition from only_stored
        union
        select b.partition
        from beside_log b
        join fact_partitions p on p.partition = b.partition
        left join sent s
            on s.partition = b.partition and s.client = b.sender and s.sequence = b.sequence and not b.unreadable
        {cleaning("b")}
        where b.by_audit and not (p.compacted and {cleaned("b", tombstone="coalesce(s.size = {NONE}, true)")})
    """,
    # The controllers' log of each partition, with the row before.
    "truth_by_topic": """
        select m.*, p.min_insync, p.error_ns,
               sum(m.begins) over (partition by m.partition order by m.log_position, m.time_ns, m.row) as life
        from (
            select *, case
                when lag(kind) over (partition by partition order by log_position, time_ns, row) = {DELETED}
                     and kind != {DELETED} then 1
                when topic is null or topic_before is null or topic = topic_before then 0 else 1 end as begins
            from (
                select *, lag(topic) ignore nulls over (partition by partition order by log_position, time_ns, row)
                              as topic_before
                from (
                    select *, case when topic_id_high != {NONE} or topic_id_low != {NONE}
                                   then concat(topic_id_high, ' ', topic_id_low) end as topic
                    from metadata where source = {TRUTH} and kind in ({OF_PARTITION}, {DELETED})
                )
            )
        ) m join fact_partitions p on p.partition = m.partition
    """,
    "truth": """
        select m.*,
               row_number() over (partition by m.partition order by m.log_position, m.time_ns, m.row) as number,
               lag(m.leader) over (partition by m.partition order by m.log_position, m.time_ns, m.row) as leader_before,
               lag(m.isr) over (partition by m.partition order by m.log_position, m.time_ns, m.row) as isr_before,
               lag(m.elr) over (partition by m.partition order by m.log_position, m.time_ns, m.row) as elr_before,
               lag(m.last_known_elr) over (partition by m.partition order by m.log_position, m.time_ns, m.row)
                   as last_known_before,
               lag(m.replicas) over (partition by m.partition order by m.log_position, m.time_ns, m.row)
                   as replicas_before,
               lag(m.life) over (partition by m.partition order by m.log_position, m.time_ns, m.row) as life_before,
               max(m.time_ns) over (partition by m.partition order by m.log_position, m.time_ns, m.row) as since_ns
        from truth_by_topic m
    """,
}
"""The SQL text of each view. Each is built from those before it."""


_OWN = {
    "client": "a.client",
    "read_ns": "w.time_ns",
    "log_offset": "w.log_offset",
    "sequence": "w.sequence",
    "key": "w.key",
    "sender": "w.sender",
    "partition": "w.partition",
    "sent_partition": "w.sent_partition",
    "span": "0",
    "flags": "0",
    "row": "(1L << 40) * (w.level + 1) + w.log_offset",
}
"""What a column of a read says of a record that stands there. The others say nothing. Rows are in the order of offsets."""
_NAMES = ("client", *(name for name in READS.column_names if name != "client"), "row")
REVEALED_VIEWS = {
    # `received` is the table of reads. What the rest calls `reads` shows the log, too.
    "reads": f"""
        with witness as (
            select partition, log_offset, sequence, key, client as sender, partition as sent_partition, row,
                   completed_ns as time_ns, 0 as place, explode(array({{UNCOMMITTED}}, {{COMMITTED}})) as level
            from sends where outcome = {{OK}} and log_offset != {{NONE}}
            union all
            select r.partition, r.log_offset, r.sequence, r.key, r.sender, r.sent_partition, r.row, r.read_ns, 1,
                   explode(if(c.isolation = {{COMMITTED}}, array({{UNCOMMITTED}}, {{COMMITTED}}), array({{UNCOMMITTED}})))
            from received r
            join fact_partitions p on p.partition = r.partition
            left join fact_clients c on c.world = p.world and c.client = r.client
            where r.log_offset != {{NONE}} and (r.flags & {{CORRUPT}}) = 0
        )
        select {", ".join(_NAMES)} from received
        union all
        select {", ".join(f"{_OWN.get(name, '{NONE}')} as {name}" for name in _NAMES)}
        from (
            select *, row_number() over (
                partition by partition, level, log_offset order by place desc, time_ns desc, row desc
            ) as newest
            from witness
        ) w
        join fact_partitions p on p.partition = w.partition
        join fact_clients a on a.world = p.world and a.role = {{AUDIT}} and a.isolation = w.level
        where w.newest = 1
    """,
}
"""The first view of a history that nobody audited, in place of an audit: at each offset from which a consumer received a
record, or at which one was acknowledged, one record stands, the one that was received last, or else the acknowledged one. It
is told as reads of two clients with the role AUDIT: of all that, and of what read_committed consumers received or was
acknowledged."""


def identity(client: str, sequence: str) -> str:
    """Returns an expression for both as one number, which copies carry in `reads.origin`."""
    return f"(shiftleft(cast({client} as bigint), {ORIGIN_SEQUENCE_BITS}) | {sequence})"


def fill(text: str) -> str:
    """Returns the text with its constants filled in."""
    for name, value in CONSTANTS.items():
        text = text.replace("{" + name + "}", str(value))
    return text


# The facts that the SQL needs beside the tables: of clients, partitions and cells.


_TYPES = {"int": pa.int32(), "bigint": pa.int64(), "boolean": pa.bool_(), "string": pa.string()}
_LEVELS = {"read_uncommitted": int(Isolation.READ_UNCOMMITTED), "read_committed": int(Isolation.READ_COMMITTED)}
_NS_PER_MS = 1_000_000
FactRows = list[tuple[Any, ...]]


def facts_of(history: History) -> dict[str, pa.Table]:
    """Returns the facts of a run, as one world, 0."""
    facts = empty_facts()
    known = history.clients
    nobody = [MISSING] * (len(known.role) - len(known.told_ns))  # two that stand for an audit, where there was none
    columns = (known.role, known.isolation, known.issued, known.acks, known.clock)
    told_ns = known.told_ns.tolist() + nobody
    for client, told in enumerate(zip(*(column.tolist() for column in columns), told_ns, strict=True)):
        facts["fact_clients"].append((0, client, *told[:-1], None if told[-1] == MISSING else told[-1]))
    of_cell = {p: cell for cell in history.plan.cells for p in cell.partitions}
    for partition in history.partitions:
        add_partition(facts, history.partition_history(partition), world=0, cell=of_cell.get(partition))
    for cell in history.plan.cells:
        of_cell_history = history.cell_history(cell.cell)
        add_cell(facts, cell, world=0, bounds=of_cell_history.bounds)
        facts["fact_out"] = outages(of_cell_history, world=0)  # of the cluster: the same in every cell
        add_serving(facts, of_cell_history, world=0, cell=cell)
    return to_arrow(facts)


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
        )
    )
    facts["fact_assignment"].extend((number, node) for node in partition.assignment)
    facts["fact_copies"].extend(
        (number, node, copy.log_start, copy.log_end, copy.high_watermark) for node, copy in partition.copies.items()
    )


def outages(history: CellHistory, *, world: int) -> FactRows:
    """Returns the rows of `fact_out` of one world."""
    return [(world, node, *span) for node, spans in history.out.items() for span in spans]


def add_cell(facts: Mapping[str, FactRows], cell: Cell, *, world: int, bounds: Bounds) -> None:
    """Adds what is known of one cell."""
    of_group: tuple[Any, ...] = (None, None, None)
    limits: tuple[Any, ...] = (None, None, None, None, False, False, True)
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
            group.client != "java",
        )
    open_ns = None
    if cell.transaction is not None:
        open_ns = cell.transaction.transaction_timeout_ms * _NS_PER_MS + SCAN_NS
    least_open_ns = None
    if isinstance(cell.work, TransactionsWork) and not cell.work.configuration.properties.get("transaction.timeout.ms"):
        least_open_ns = cell.work.configuration.transaction_timeout_ms * _NS_PER_MS
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
        )
    )


_DRIVEN = ("recorded-reader", "recorded-member")
"""The roles of readers that an application drives."""


def add_serving(facts: Mapping[str, FactRows], history: CellHistory, *, world: int, cell: Cell) -> None:
    """Adds who served a cell. `cell` is the same cell, perhaps with other ids."""
    told = history.tables.get("clients", CLIENTS.empty())
    level = {c.client: _LEVELS[c.isolation_level] for c in history.clients if c.role == "reader" and c.isolation_level}
    driven = {c.client: _LEVELS[c.isolation_level] for c in history.clients if c.role in _DRIVEN and c.isolation_level}
    for client, planned in zip(told["client"].tolist(), told["planned"].tolist(), strict=True):
        facts["fact_serving"].append((world, cell.cell, client))
        facts["fact_asked"].extend((world, cell.cell, client, *span) for span in _asked(history, client, planned))
        if planned in driven and any(kind == ObservationKind.ASKED for kind, *_ in _asked(history, client, planned)):
            facts["fact_driven"].append((world, cell.cell, client, driven[planned], history.bounds.reading_ns))
        if planned in level:
            facts["fact_readers"].append((world, cell.cell, client, level[planned]))
    calls = history.tables.get("calls", OBSERVATIONS.empty())
    for node, begin_ns, lasted_ns in zip(*(calls[name].tolist() for name in ("node", "time_ns", "value")), strict=True):
        facts["fact_calls"].append((world, cell.cell, node, begin_ns, lasted_ns))
    if cell.delivery_bound is not None:
        _add_places(facts, history, world=world, cell=cell)


def _asked(history: CellHistory, client: int, planned: int) -> list[tuple[int, int, int]]:
    """Returns (kind, begin_ns, end_ns) of each time in which the client was asked, or within a call."""
    roles = {one.role for one in history.clients if one.client in (client, planned)}
    if "verifiable-producer" in roles:
        return [(int(ObservationKind.CALLED), -(2**62), 2**62)]  # it tells of its sends when they are over
    if not roles & set(RECORDED_ROLES) - {"recorded-command"}:
        return [(int(kind), -(2**62), 2**62) for kind in (ObservationKind.ASKED, ObservationKind.CALLED)]
    told = history.tables["asked"]
    rows = np.flatnonzero(told["client"] == client).tolist()
    values = [(int(told["kind"][row]), int(told["time_ns"][row]), int(told["value"][row])) for row in rows]
    return [(kind, time_ns, 2**62 if lasted_ns == NONE else time_ns + lasted_ns) for kind, time_ns, lasted_ns in values]


def _add_places(facts: Mapping[str, FactRows], history: CellHistory, *, world: int, cell: Cell) -> None:
    """Adds who should receive the records of the cell: its group, or each tailing reader of the partition. Of
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
        place = len(facts["fact_due"])  # any number that grows will do
        facts["fact_places"].extend((world, place, client) for client in planned)
        named = zip(history.cell.written, cell.written, strict=True)
        facts["fact_due"].extend((world, place, own) for number, own in named if number in partitions)


def to_arrow(facts: Mapping[str, FactRows]) -> dict[str, pa.Table]:
    """Returns the facts as Arrow tables."""
    made = {}
    for name, rows in facts.items():
        fields = [field.strip().split(" ") for field in FACTS[name].split(",")]
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(fields)
        made[name] = pa.table(
            {field: pa.array(c, _TYPES[kind]) for (field, kind), c in zip(fields, columns, strict=True)}
        )
    return made
