"""The second opinion on the log: one SQL text per anomaly. Its columns are those of witnesses that name what was found."""

from spark_checkers.sql_views import cleaned, cleaning

LOG_VIEWS = {
    "unreadable_log": "select distinct partition from log where level = {UNCOMMITTED} and unreadable",
    # A commit in doubt is proven by any record of it that was given to somebody at read_committed.
    "proven_transaction": """
        select distinct s.partition, s.client, s.transaction
        from sent s
        join given g on g.partition = s.partition and g.sender = s.client and g.sequence = s.sequence
        where s.transaction != {NONE} and g.isolation = {COMMITTED} and not g.unreadable
    """,
    # Acknowledged (or proven by their transaction) and not in L.
    "missing_send": f"""
        select s.*,
               {cleaned("s", tombstone="s.size = {NONE}")}
               or (c.partition is not null and (s.log_offset = {{NONE}} or coalesce(l.unreadable, false))) as maybe
        from sent s
        join fact_partitions p on p.partition = s.partition and p.end_uncommitted is not null
        left join sentinel e on e.partition = s.partition
        left join proven_transaction proven
            on proven.partition = s.partition and proven.client = s.client and proven.transaction = s.transaction
        left join unreadable_log c on c.partition = s.partition
        left join log l on l.partition = s.partition and l.level = {{UNCOMMITTED}} and l.log_offset = s.log_offset
        {cleaning("s")}
        left anti join unconfirmed u
            on u.partition = s.partition and u.sender = s.client and u.sequence = s.sequence and s.outcome = {{INFO}}
        left anti join first_copy f
            on f.partition = s.partition and f.level = {{UNCOMMITTED}} and f.sender = s.client and f.sequence = s.sequence
        left anti join straggler b on b.partition = s.partition and b.sender = s.client and b.sequence = s.sequence
        where (s.outcome = {{OK}}
               or (s.outcome = {{INFO}} and s.transaction != {{NONE}} and proven.client is not null))
          and not (e.sentinel_ns is not null and s.completed_ns >= e.sentinel_ns
                   and (s.log_offset = {{NONE}} or s.log_offset > p.end_uncommitted))
    """,
    # Given to somebody, and not in L although L reaches so far.
    "missing_read": f"""
        select distinct u.partition, u.sender as client, u.sequence
        from unconfirmed u
        join fact_partitions p on p.partition = u.partition and p.end_uncommitted is not null
        left join sentinel e on e.partition = u.partition
        left join sent s on s.partition = u.partition and s.client = u.sender and s.sequence = u.sequence
        left join missing_send d on d.partition = u.partition and d.client = u.sender and d.sequence = u.sequence
        {cleaning("u")}
        left anti join first_copy f
            on f.partition = u.partition and f.level = {{UNCOMMITTED}} and f.sender = u.sender and f.sequence = u.sequence
        left anti join straggler b on b.partition = u.partition and b.sender = u.sender and b.sequence = u.sequence
        left anti join never_issued n on n.partition = u.partition and n.sender = u.sender and n.sequence = u.sequence
        where (u.log_offset <= p.end_uncommitted or coalesce(u.read_ns < e.sentinel_ns, false))
          and (u.sent_partition = u.partition or u.sent_partition = {{NONE}})
          and (s.client is null or s.outcome = {{INFO}} or coalesce(d.maybe and d.log_offset = {{NONE}}, false))
          and (coalesce(s.transaction, {{NONE}}) = {{NONE}} or u.isolation = {{COMMITTED}})
          and not u.unreadable_there
          and not {cleaned("u", tombstone="coalesce(s.size = {NONE}, false)")}
    """,
}
QUERIES = {
    "lost": """
        select partition, client, sequence from missing_send where not maybe
        union
        select partition, client, sequence from missing_read
    """,
    "duplicate": """
        with copies as (
            select l.*, coalesce(s.transaction, {NONE}) != {NONE} as transactional
            from log l
            left join sent s on s.partition = l.partition and s.client = l.sender and s.sequence = l.sequence
            where l.level = {UNCOMMITTED} and not l.unreadable
        ),
        standing as (
            select c.* from copies c where not c.transactional
            union all
            select c.* from copies c
            join log v on v.partition = c.partition and v.level = {COMMITTED} and v.log_offset = c.log_offset
                and v.sender = c.sender and v.sequence = c.sequence and not v.unreadable
            where c.transactional
        )
        select partition, sender as client, sequence, log_offset
        from (
            select *, row_number() over (partition by partition, sender, sequence order by log_offset) as copy
            from standing
        )
        where copy > 1
    """,
    "reordered": """
        select partition, client, sequence, log_offset from (
            select l.partition, l.sender as client, l.sequence, l.log_offset,
                   lag(l.sequence) over (partition by l.partition, l.sender order by l.position) as before
            from log l
            join first_copy f on f.partition = l.partition and f.level = l.level and f.position = l.position
            left anti join never_issued n
                on n.partition = l.partition and n.sender = l.sender and n.sequence = l.sequence
            where l.level = {UNCOMMITTED} and not l.unreadable
              and (l.sent_partition = l.partition or l.sent_partition = {NONE})
        )
        where sequence < before
    """,
    "offset-conflict": """
        with seen as (
            select partition, log_offset, sender, sequence from given where not unreadable
            union all
            select partition, log_offset, client, sequence
            from sent where outcome = {OK} and acks = -1 and log_offset != {NONE}
        )
        select partition, log_offset, explode(sequence(1, cast(records - 1 as int))) as conflict
        from (
            select partition, log_offset, count(distinct sender, sequence) as records
            from seen group by partition, log_offset
        )
        where records > 1
    """,
    "phantom": """
        select distinct g.partition, g.log_offset, g.sender as client, g.sequence
        from given g
        join never_issued n on n.partition = g.partition and n.sender = g.sender and n.sequence = g.sequence
        where not g.unreadable
    """,
    "corrupt": "select distinct partition, log_offset from given where corrupt",
    "misplaced": """
        select distinct partition, log_offset, sender as client, sequence
        from given where not unreadable and sent_partition != partition and sent_partition != {NONE}
    """,
    "resurrected": """
        select s.partition, s.client, s.sequence
        from sent s
        join first_copy f
            on f.partition = s.partition and f.level = {UNCOMMITTED} and f.sender = s.client and f.sequence = s.sequence
        where s.outcome = {FAIL} and s.transaction = {NONE}
    """,
    "time-travel": """
        select partition, client, sequence from (
            select s.*, f.log_offset as stands_at,
                   max(s.invoked_ns) over (
                       partition by s.partition, s.clock order by f.position
                       rows between unbounded preceding and 1 preceding
                   ) as newest_before,
                   p.compacted or p.log_start > 0 as cleaning
            from sent s
            join first_copy f
                on f.partition = s.partition and f.level = {UNCOMMITTED} and f.sender = s.client
                and f.sequence = s.sequence
            join fact_partitions p on p.partition = s.partition
            where s.clock != {NONE}
        )
        where outcome = {OK} and acks != 0 and completed_ns != {MISSING} and completed_ns < newest_before
          and (not cleaning or log_offset = stands_at)
    """,
}
"""Anomaly → text."""
