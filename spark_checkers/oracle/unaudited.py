"""The second opinion on a history that nobody audited: what stands in place of the audit, in plain SQL.

At each offset from which a consumer received a record, or at which one was acknowledged, one record stands: the one that
was received last, or else the acknowledged one. What read_committed consumers received, and what was acknowledged, is
visible at read_committed. Both are told as reads of two clients with the role AUDIT.
"""

from prozess.harness.schema import READS
from prozess.spark_checkers.oracle.reading import skipped
from prozess.spark_checkers.oracle.views import cleaned, cleaning

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
FIRST_VIEWS = {
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
"""Views that come before all others."""
MORE_VIEWS = {
    # What consumers received, and how far they read.
    "consumed": "select distinct partition, sender, sequence from given where not by_audit and not unreadable",
    "consumed_committed": """
        select distinct partition, sender, sequence
        from given where not by_audit and not unreadable and isolation = {COMMITTED}
    """,
    "reach": """
        select partition, max(log_offset) as furthest,
               max(case when isolation = {COMMITTED} then log_offset end) as furthest_committed
        from given where not by_audit group by partition
    """,
    # Acknowledged (or proven by their transaction), and received by no consumer. `passed`: one read beyond.
    "ungiven": f"""
        select s.partition, s.client, s.sequence,
               s.log_offset != {{NONE}} and coalesce(s.log_offset <= r.furthest, false) as passed
        from sent s
        join fact_partitions p on p.partition = s.partition
        left join reach r on r.partition = s.partition
        left join proven_transaction proven
            on proven.partition = s.partition and proven.client = s.client and proven.transaction = s.transaction
        {cleaning("s")}
        left anti join consumed c
            on c.partition = s.partition and c.sender = s.client and c.sequence = s.sequence
        left anti join unconfirmed u
            on u.partition = s.partition and u.sender = s.client and u.sequence = s.sequence and s.outcome = {{INFO}}
        where (s.outcome = {{OK}}
               or (s.outcome = {{INFO}} and s.transaction != {{NONE}} and proven.client is not null))
          and not {cleaned("s", tombstone="s.size = {NONE}")}
    """,
}
"""Further views of what consumers received."""
OTHER_VIEWS = {
    # An acknowledgement says where a record of a transaction ought to stand. Whether it is shown, a consumer must say.
    "queued": """
        select s.*, v.sender is not null and c.sender is not null as shown
        from transacted s
        left join first_copy v
            on v.partition = s.partition and v.level = {COMMITTED} and v.sender = s.client and v.sequence = s.sequence
        left join consumed_committed c
            on c.partition = s.partition and c.sender = s.client and c.sequence = s.sequence
        where s.outcome != {FAIL} or s.became = {FAIL}
    """,
    "record": """
        select s.partition, s.world, s.client, s.sequence, s.transaction, s.shown,
               not s.shown and s.log_offset != {NONE} and coalesce(s.log_offset <= r.furthest_committed, false) as missing
        from queued s left join reach r on r.partition = s.partition
    """,
}
"""The views that are made in another way without an audit."""
QUERIES = {
    "lost": "select partition, client, sequence from ungiven where passed",
    "unseen": "select partition, client, sequence from ungiven where not passed",
    "resurrected": """
        select s.partition, s.client, s.sequence
        from sent s
        join consumed c on c.partition = s.partition and c.sender = s.client and c.sequence = s.sequence
        where s.outcome = {FAIL} and s.transaction = {NONE}
    """,
    "skipped": skipped("true"),
    # A client does one thing at a time, and it is not told when it asked for the end of its transaction.
    "own-read": """
        select distinct h.partition, h.client, h.sequence, case when h.committed then 0 else 1 end as case
        from showing h
        join transactions x on x.world = h.world and x.client = h.client and x.transaction = h.transaction
        left anti join transactions n
            on n.world = h.world and n.client = h.client and n.transaction > h.transaction and n.begun_ns <= h.read_ns
        where h.reader = h.client and x.begun_ns <= h.read_ns
          and (x.completed_ns = {MISSING} or h.read_ns <= x.completed_ns)
    """,
}
"""The texts that are other ones without an audit."""
AS_AUDITED = (
    *("duplicate", "reordered", "offset-conflict", "phantom", "corrupt", "misplaced", "rewound", "time-travel"),
    *("torn", "lost-transaction", "zombie-write", "aborted-read", "early-read"),
)
"""The anomalies whose texts hold without an audit, too."""
