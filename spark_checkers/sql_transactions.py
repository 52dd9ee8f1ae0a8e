"""The second opinion on transactions: one SQL text per anomaly. A record's fate is its transaction's, wherever it stands.

Cycles among transactions (`information-cycle`, `write-cycle`) have no text: it would need recursion. Unit tests compare
them with brute force on small cells instead.
"""

from spark_checkers.sql_views import cleaned, cleaning

TRANSACTION_VIEWS = {
    "unreadable_shown": "select distinct partition from log where level = {COMMITTED} and unreadable",
    # Records of recorded transactions that entered the client's queue; `missing`: V ought to show it, and does not.
    "record": f"""
        select s.partition, s.world, s.client, s.sequence, s.transaction, v.sender is not null as shown,
               v.sender is null and p.end_committed is not null
               and not (
                   {cleaned("s", tombstone="s.size = {NONE}")}
                   or (e.sentinel_ns is not null and s.completed_ns >= e.sentinel_ns
                       and (s.log_offset = {{NONE}} or s.log_offset > p.end_committed))
                   or (c.partition is not null and (s.log_offset = {{NONE}} or coalesce(l.unreadable, false)))
               ) as missing
        from sent s
        join transactions x on x.world = s.world and x.client = s.client and x.transaction = s.transaction
        join fact_partitions p on p.partition = s.partition
        left join sentinel e on e.partition = s.partition
        left join first_copy v
            on v.partition = s.partition and v.level = {{COMMITTED}} and v.sender = s.client and v.sequence = s.sequence
        left join unreadable_shown c on c.partition = s.partition
        left join log l on l.partition = s.partition and l.level = {{COMMITTED}} and l.log_offset = s.log_offset
        {cleaning("s")}
        where s.transaction != {{NONE}} and (s.outcome != {{FAIL}} or x.outcome = {{FAIL}})
    """,
    # By whom a record of a recorded transaction was given: consumers, and V.
    "showing": """
        select g.partition, g.world, g.sender as client, g.sequence, s.transaction, g.read_ns, g.by_audit, g.client as reader,
               g.isolation = {COMMITTED} as committed
        from given g
        join sent s on s.partition = g.partition and s.client = g.sender and s.sequence = g.sequence
        join transactions x on x.world = s.world and x.client = s.client and x.transaction = s.transaction
        where not g.unreadable and not g.by_audit and s.transaction != {NONE}
        union all
        select l.partition, l.world, l.sender, l.sequence, s.transaction, l.read_ns, true, {NONE}, true
        from log l
        join sent s on s.partition = l.partition and s.client = l.sender and s.sequence = l.sequence
        join transactions x on x.world = s.world and x.client = s.client and x.transaction = s.transaction
        where l.level = {COMMITTED} and not l.unreadable and s.transaction != {NONE}
    """,
    "settled": """
        select x.world, x.client, x.transaction, x.initialised_ns, x.transactional_id, x.cell,
               x.ended_by = 2 as aborted,
               case when x.ended_by = 1 and x.end_invoked_ns != {MISSING} then x.end_invoked_ns end as commit_ns,
               x.shown,
               x.ended_by != 2 and (x.outcome = {OK} or (x.outcome = {INFO} and (x.shown or coalesce(g.seen, false))))
                   as committed
        from (
            select t.*, r.cell, coalesce(r.shown, false) as shown
            from transactions t
            join (
                select r.world, p.cell, r.client, r.transaction, bool_or(r.shown) as shown
                from record r join fact_partitions p on p.partition = r.partition
                group by r.world, p.cell, r.client, r.transaction
            ) r on r.world = t.world and r.client = t.client and r.transaction = t.transaction
            where t.transaction != {NONE}
        ) x
        left join (
            select h.world, p.cell, h.client, h.transaction, true as seen
            from showing h join fact_partitions p on p.partition = h.partition
            where h.committed and not h.by_audit group by h.world, p.cell, h.client, h.transaction
        ) g on g.world = x.world and g.cell = x.cell and g.client = x.client and g.transaction = x.transaction
    """,
}
_RECORDS = """
    select r.partition, r.client, r.sequence
    from record r
    join fact_partitions q on q.partition = r.partition
    join settled t
        on t.world = r.world and t.cell = q.cell and t.client = r.client and t.transaction = r.transaction
"""
_SHOWINGS = """
    select distinct h.partition, h.client, h.sequence, case when h.committed then 0 else 1 end as case
    from showing h
    join transactions x on x.world = h.world and x.client = h.client and x.transaction = h.transaction
"""
QUERIES = {
    "torn": f"{_RECORDS} where r.missing and t.shown and not t.aborted",
    "lost-transaction": f"{_RECORDS} where r.missing and t.committed and not t.shown",
    "zombie-write": f"""
        {_RECORDS}
        where r.shown and t.initialised_ns != {{MISSING}} and t.commit_ns is not null
          and exists (
              select 1 from transactions i
              where i.transaction = {{NONE}} and i.world = t.world and i.transactional_id = t.transactional_id
                and i.begun_ns > t.initialised_ns and i.initialised_ns != {{MISSING}}
                and i.initialised_ns < t.commit_ns
          )
    """,
    "aborted-read": f"{_SHOWINGS} where x.ended_by = 2",
    # It reads within a transaction from its begin until its end is invoked, or another one begins.
    "own-read": f"""
        {_SHOWINGS}
        left anti join transactions n
            on n.world = h.world and n.client = h.client and n.transaction > h.transaction and n.begun_ns <= h.read_ns
        where h.reader = h.client and x.begun_ns <= h.read_ns
          and (x.end_invoked_ns = {{MISSING}} or h.read_ns <= x.end_invoked_ns)
    """,
    "early-read": f"""
        {_SHOWINGS}
        where x.ended_by != 2 and not h.by_audit
          and (x.ended_by != 1 or x.end_invoked_ns = {{MISSING}} or h.read_ns < x.end_invoked_ns)
    """,
}
"""Anomaly → text."""
