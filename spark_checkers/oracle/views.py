"""The views of the second opinion: tables and facts of a history, and what several checks need of them, in plain SQL.

They share no code with the kernels on purpose: they are written from the definitions, record by record, to be read and
not to be fast. Every row of a table has its number in the order of writing, `row`. A `world` is one history. Each world
has its own ids of clients, and no two worlds share an id of a partition or a cell, so that SQL can be asked about many
histories at once.

Codes are those of `prozess.harness.schema`. A number that is not there is -1 (NONE), and a time that never came is
MISSING.
"""

from prozess.harness.plan.plan import SENTINEL_CLIENT
from prozess.harness.schema import (
    MISSING,
    NONE,
    ORIGIN_SEQUENCE_BITS,
    Isolation,
    MetadataKind,
    MetadataSource,
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
    "PRODUCER": int(Role.PRODUCER),
    "AUDIT": int(Role.AUDIT),
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
        "end_committed bigint, min_insync bigint, error_ns bigint, derived boolean, late boolean, retried_in int"
    ),
    "fact_assignment": "partition int, node int",
    "fact_copies": "partition int, node int, log_start bigint, log_end bigint, high_watermark bigint",
    "fact_cells": (
        "world int, cell int, workload string, commit string, isolation int, reset string, session_ns bigint, "
        "poll_limit_ns bigint, twins boolean, tells_lost boolean, transaction_ns bigint, by_content boolean, bad_every int, "
        "bound_ns bigint"
    ),
    "fact_codes": "world int, cell int, code int",
    "fact_serving": "world int, cell int, client int",
    "fact_readers": "world int, cell int, client int, level int",
    "fact_places": "world int, place int, planned int",
    "fact_due": "world int, place int, partition int",
}
"""The columns of each table of facts, which are joined to the tables of the history. A fact that a partition, client or
cell does not have is null.

`told_ns`: of what it sent before, a client must have been told. `end_…`: offset of the sentinel through which the audit is
complete. `retried_in`: the partition to which a group hands on what failed. `session_ns`, `poll_limit_ns`: how long a member
may be silent, and not poll, without being evicted. `twins`: one group.instance.id may be two members for a while.
`tells_lost`: members say whether a partition was lost or revoked. `transaction_ns`: how long a transaction may stay open.
`bad_every`: every so-many-th record is bad, 0: none by itself; `fact_codes`: what their senders are told. `bound_ns`: within
which a delivery is promised. `fact_serving`: clients of a cell; `fact_readers`: those that read and do nothing else.
`fact_places`: planned clients that count as one to whom records are owed; `fact_due`: those of which partitions.
"""

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


def identity(client: str, sequence: str) -> str:
    """Returns an expression for both as one number, which copies carry in `reads.origin`."""
    return f"(shiftleft(cast({client} as bigint), {ORIGIN_SEQUENCE_BITS}) | {sequence})"


def fill(text: str) -> str:
    """Returns the text with its constants filled in."""
    for name, value in CONSTANTS.items():
        text = text.replace("{" + name + "}", str(value))
    return text
