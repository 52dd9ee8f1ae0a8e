-- The second opinion on what compaction took, and what it had to leave.

--- fragment acknowledged_by_key
-- Acknowledged records with a key and an offset, of compacted partitions, that the audit should have passed.
select s.* from sent s
join fact_partitions p on p.partition = s.partition and p.compacted and p.end_uncommitted is not null
left anti join passed_over o on o.partition = s.partition
left join sentinel e on e.partition = s.partition
where s.outcome = {OK} and s.key != {NONE} and s.log_offset != {NONE}
  and not (e.sentinel_ns is not null and s.log_offset > p.end_uncommitted and s.completed_ns >= e.sentinel_ns)

--- anomaly compacted-away
with acknowledged as ({acknowledged_by_key}),
newest as (
    select *, row_number() over (
        partition by partition, key order by log_offset desc, client desc, sequence desc
    ) as number
    from acknowledged
)
select n.partition, n.client, n.sequence
from newest n
join fact_partitions p on p.partition = n.partition and n.log_offset >= p.log_start
left join last_of_key k on k.partition = n.partition and k.key = n.key
left join tombstone t on t.partition = n.partition and t.key = n.key
where n.number = 1 and n.size != {NONE} and coalesce(k.log_offset, {NONE}) < n.log_offset
  and not coalesce(t.log_offset > n.log_offset, false)

--- anomaly tombstone-lost
with acknowledged as ({acknowledged_by_key}),
newest as (
    select *, row_number() over (
        partition by partition, key order by log_offset desc, client desc, sequence desc
    ) as number
    from acknowledged where size = {NONE}
)
select n.partition, n.client, n.sequence
from newest n join last_of_key k on k.partition = n.partition and k.key = n.key
where n.number = 1 and k.log_offset < n.log_offset
