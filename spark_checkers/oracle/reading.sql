-- The second opinion on what readers were given, and what they missed.

--- fragment skipped(known)
-- `known`: of this step `s` in the partition `p` it is known what stands in the log between its two records.
with jump as (
    select s.* from step s join fact_partitions p on p.partition = s.partition
    where not s.by_audit and s.log_offset > s.before + 1
      and {known}
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

--- view step
-- Each read that does not follow the one before it in the same assignment at the next offset, with that one.
select * from (
    select g.partition, g.client as reader, g.by_audit, g.log_offset, g.row,
           case when g.isolation = {COMMITTED} then {COMMITTED} else {UNCOMMITTED} end as level,
           lag(g.log_offset) over (partition by g.partition, g.client order by g.row) as before,
           lag(g.span) over (partition by g.partition, g.client order by g.row) as span_before, g.span
    from given g
)
where span = span_before and log_offset != before + 1

--- anomaly dirty-read
select u.partition, u.client as reader, u.log_offset, u.sender as client, u.sequence, u.leader_epoch
from unconfirmed u
join fact_partitions p on p.partition = u.partition and p.end_uncommitted is not null
left anti join passed_over o on o.partition = u.partition
left join sentinel e on e.partition = u.partition
left join sent s on s.partition = u.partition and s.client = u.sender and s.sequence = u.sequence
left join first_copy f
    on f.partition = u.partition and f.level = {UNCOMMITTED} and f.sender = u.sender and f.sequence = u.sequence
{cleaning(u)}
where not u.by_audit and not u.unreadable_there
  and (u.log_offset <= p.end_uncommitted or coalesce(u.read_ns < e.sentinel_ns, false))
  and (u.replaced or (f.sender is null and not {cleaned(u; coalesce(s.size = {NONE}, false))}))

--- anomaly skipped
{skipped(case s.level when {COMMITTED} then p.end_committed else p.end_uncommitted end is not null)}

--- anomaly rewound
select partition, reader, log_offset, before as other_offset from step where log_offset <= before
