"""The second opinion on readers, compacted logs, copies, and what brokers and controllers said: one SQL text per anomaly."""

from harness.metrics import MICRO, code_of
from harness.schema import ObservationKind
from spark_checkers.sql_views import cleaned, cleaning

_ACKNOWLEDGED = """
    select s.* from sent s
    join fact_partitions p on p.partition = s.partition and p.compacted and p.end_uncommitted is not null
    left join sentinel e on e.partition = s.partition
    where s.outcome = {OK} and s.key != {NONE} and s.log_offset != {NONE}
      and not (e.sentinel_ns is not null and s.log_offset > p.end_uncommitted and s.completed_ns >= e.sentinel_ns)
"""
READING_VIEWS = {
    # Each read with the one before it in the same assignment, and how many records of its log stand up to each.
    "step": """
        select * from (
            select g.partition, g.client as reader, g.by_audit, g.log_offset, g.row,
                   case when g.isolation = {COMMITTED} then {COMMITTED} else {UNCOMMITTED} end as level,
                   lag(g.log_offset) over (partition by g.partition, g.client order by g.row) as before,
                   lag(g.span) over (partition by g.partition, g.client order by g.row) as span_before, g.span
            from given g
        )
        where span = span_before
    """,
}
# Partitions that have several copies, and between which offsets those must be alike.
READING_VIEWS["alike"] = """
    select p.partition, p.compacted, max(c.log_start) as low,
           greatest(coalesce(max(p.end_uncommitted), -1) + 1, min(coalesce(c.high_watermark, 0))) as high
    from fact_partitions p
    join fact_copies c on c.partition = p.partition
    join (select partition, count(*) as nodes from fact_assignment group by partition) a
        on a.partition = p.partition and a.nodes >= 2
    group by p.partition, p.compacted
"""
# The batches of each copy there, and what of their headers must be alike.
READING_VIEWS["batch"] = """
    select r.partition, j.compacted, r.node, r.base_offset, r.last_offset,
           struct(
               r.last_offset, r.leader_epoch, r.producer_id, r.producer_epoch, r.base_sequence,
               if(j.compacted, r.attributes & 56, r.attributes) as attributes,
               if(j.compacted, null, struct(
                   r.checksum, r.records, r.base_timestamp_ms, r.max_timestamp_ms, r.size
               )) as content
           ) as header
    from replicas r
    join alike j on j.partition = r.partition and r.base_offset >= j.low and r.base_offset < j.high
    join fact_copies c on c.partition = r.partition and c.node = r.node
    where r.step = {NONE}
"""
QUERIES = {
    "dirty-read": f"""
        select u.partition, u.client as reader, u.log_offset, u.sender as client, u.sequence, u.leader_epoch
        from unconfirmed u
        join fact_partitions p on p.partition = u.partition and p.end_uncommitted is not null
        left join sentinel e on e.partition = u.partition
        left join sent s on s.partition = u.partition and s.client = u.sender and s.sequence = u.sequence
        left join first_copy f
            on f.partition = u.partition and f.level = {{UNCOMMITTED}} and f.sender = u.sender and f.sequence = u.sequence
        {cleaning("u")}
        where not u.by_audit and not u.unreadable_there
          and (u.log_offset <= p.end_uncommitted or coalesce(u.read_ns < e.sentinel_ns, false))
          and (u.replaced or (f.sender is null and not {cleaned("u", tombstone="coalesce(s.size = {NONE}, false)")}))
    """,
    "skipped": """
        with jump as (
            select s.* from step s join fact_partitions p on p.partition = s.partition
            where not s.by_audit and s.log_offset > s.before + 1
              and case s.level when {COMMITTED} then p.end_committed else p.end_uncommitted end is not null
        ),
        mark as (
            select partition, level, log_offset, log_offset as place, 0 as kind, 0L as row from log
            union all
            select partition, level, cast(null as bigint), before, 1, row from jump
        ),
        following as (
            select partition, level, row, kind,
                   last_value(log_offset, true) over (
                       partition by partition, level order by place desc, kind desc
                       rows between unbounded preceding and 1 preceding
                   ) as next_record
            from mark
        )
        select j.partition, j.reader, f.next_record as log_offset, j.before + 1 as other_offset
        from jump j
        join following f on f.partition = j.partition and f.level = j.level and f.kind = 1 and f.row = j.row
        where f.next_record < j.log_offset
    """,
    "rewound": """
        select partition, reader, log_offset, before as other_offset from step where log_offset <= before
    """,
    "compacted-away": f"""
        with acknowledged as ({_ACKNOWLEDGED}),
        newest as (
            select *, row_number() over (
                partition by partition, key order by log_offset desc, client desc, sequence desc
            ) as number
            from acknowledged
        )
        select n.partition, n.client, n.sequence
        from newest n
        left join last_of_key k on k.partition = n.partition and k.key = n.key
        left join tombstone t on t.partition = n.partition and t.key = n.key
        where n.number = 1 and n.size != {{NONE}} and coalesce(k.log_offset, {{NONE}}) < n.log_offset
          and not coalesce(t.log_offset > n.log_offset, false)
    """,
    "tombstone-lost": f"""
        with acknowledged as ({_ACKNOWLEDGED}),
        newest as (
            select *, row_number() over (
                partition by partition, key order by log_offset desc, client desc, sequence desc
            ) as number
            from acknowledged where size = {{NONE}}
        )
        select n.partition, n.client, n.sequence
        from newest n join last_of_key k on k.partition = n.partition and k.key = n.key
        where n.number = 1 and k.log_offset < n.log_offset
    """,
    "diverged": """
        with place as (select distinct partition, compacted, base_offset from batch),
        within as (
            select distinct partition, node, base_offset from (
                select p.partition, c.node, p.base_offset,
                       max(b.last_offset) over (
                           partition by p.partition, c.node order by p.base_offset
                           rows between unbounded preceding and current row
                       ) as reached
                from place p
                join fact_copies c on c.partition = p.partition
                left join batch b
                    on b.partition = p.partition and b.node = c.node and b.base_offset = p.base_offset
                where p.compacted
            )
            where reached >= base_offset
        ),
        compared as (
            select p.partition, p.base_offset, one.node as one, other.node as other
            from place p
            join fact_copies one on one.partition = p.partition
            join fact_copies other on other.partition = p.partition and other.node != one.node
            left join batch a on a.partition = p.partition and a.node = one.node and a.base_offset = p.base_offset
            left join batch b on b.partition = p.partition and b.node = other.node and b.base_offset = p.base_offset
            left join within x on x.partition = p.partition and x.node = one.node and x.base_offset = p.base_offset
            left join within y on y.partition = p.partition and y.node = other.node and y.base_offset = p.base_offset
            where not (a.header <=> b.header) and (not p.compacted or (x.node is not null and y.node is not null))
        ),
        trusted as (
            select partition, one from (
                select c.partition, c.node as one,
                       row_number() over (partition by c.partition order by count(d.other), c.node) as number
                from fact_copies c left join compared d on d.partition = c.partition and d.one = c.node
                group by c.partition, c.node
            )
            where number = 1
        )
        select c.partition, c.other as reader, c.base_offset as log_offset
        from compared c join trusted t on t.partition = c.partition and t.one = c.one
    """,
    "watermark-regression": f"""
        with answer as (
            select partition, time_ns, value, node, leader_epoch, row,
                   lag(time_ns) over (partition by partition, node order by time_ns, row) as asked_after_ns
            from observations
            where kind = {int(ObservationKind.LEADER_HIGH_WATERMARK)} and node >= 0 and leader_epoch >= 0
        )
        select distinct a.partition, a.node as reader, a.time_ns as end_ns, a.value as log_offset, a.row
        from answer a
        join answer b
            on b.partition = a.partition and b.leader_epoch <= a.leader_epoch and b.value > a.value
            and b.time_ns <= a.asked_after_ns
    """,
    "epoch-regression": """
        select partition, node as reader, time_ns as end_ns, leader_epoch as sequence from (
            select *, lag(leader_epoch) over (partition by partition, node order by time_ns, row) as before
            from metadata
            where source = {SAMPLE} and kind = {OF_PARTITION} and leader_epoch >= 0 and partition != {NONE}
        )
        where leader_epoch < before
    """,
    "under-acknowledged": """
        with state as (
            select partition, number, since_ns, error_ns,
                   bit_count(isr) < least(min_insync, bit_count(replicas)) as short
            from truth
        ),
        numbered as (
            select *, number - row_number() over (partition by partition, short order by number) as island from state
        ),
        period as (
            select partition, min(since_ns) as begin_ns, max(number) as last, max(error_ns) as error_ns
            from numbered where short group by partition, island
        ),
        closed as (
            select p.*, coalesce(n.since_ns, {FOREVER}) as end_ns
            from period p left join state n on n.partition = p.partition and n.number = p.last + 1
        )
        select s.partition, s.client, s.sequence
        from sent s join closed c on c.partition = s.partition
        where s.outcome = {OK} and s.completed_ns != {MISSING} and s.acks = -1
          and s.invoked_ns - c.error_ns - 1000000000L >= c.begin_ns
          and s.completed_ns + c.error_ns + 1000000000L < c.end_ns
    """,
    "unclean": """
        with elected as (
            select *, isr_before | elr_before | if(replicas_before & ~replicas != 0, isr, 0) as eligible
            from truth
            where leader_before is not null and leader != leader_before and leader != {NONE}
        )
        select partition, leader as reader, since_ns as begin_ns
        from elected
        where (eligible >> leader) & 1 = 0 and not (isr_before = 0 and (last_known_before >> leader) & 1 = 1)
    """,
    "two-controllers": f"""
        with claim as (
            select world, node, leader_epoch as epoch
            from metadata where kind = {{OF_CONTROLLER}} and source = {{TRUTH}}
            union
            select l.world, l.node, cast(e.value_micro div {MICRO} as int)
            from metrics l
            join metrics e on e.world = l.world and e.node = l.node and e.time_ns = l.time_ns
            where l.metric = {code_of("quorum_leader")} and e.metric = {code_of("quorum_epoch")}
              and l.absent = 0 and e.absent = 0 and l.value_micro = cast(l.node as bigint) * {MICRO}
        ),
        again as (
            select world, node as reader, epoch as sequence from (
                select *, row_number() over (partition by world, epoch order by node) as number from claim
            )
            where number > 1
        ),
        fell as (
            select world, node as reader, leader_epoch as sequence from (
                select *, lag(leader_epoch) over (partition by world order by log_position, row) as before
                from metadata where kind = {{OF_CONTROLLER}} and source = {{TRUTH}}
            )
            where leader_epoch < before
        ),
        both_kinds as (select * from again union all select * from fell)
        select f.partition, b.reader, b.sequence
        from both_kinds b
        join (select world, cell, min(partition) as partition from fact_partitions where cell >= 0 group by world, cell) f
            on f.world = b.world
    """,
}
"""Anomaly → text."""
