-- The second opinion on what is deleted: where logs begin, what retention took before its time, and topics.

--- view log_start
-- Where a log began, as its leader, or DeleteRecords (`step`), answered. `life`: of which topic of its name.
with made as (select partition, since_ns, error_ns from truth where life != life_before)
select partition, time_ns, value, node, leader_epoch, step, row, life,
       max(value) over (partition by partition order by time_ns, value rows unbounded preceding) as reached
from (
    select o.partition, o.time_ns, o.value, o.node, o.leader_epoch, o.step, o.row,
           count_if(m.since_ns <= o.time_ns + m.error_ns) as life,
           count_if(m.since_ns <= o.time_ns - m.error_ns - 1000000000L) as life_for_sure
    from observations o left join made m on m.partition = o.partition
    where o.kind in ({ObservationKind.LOG_START}, {ObservationKind.LEADER_LOG_START})
    group by o.partition, o.time_ns, o.value, o.node, o.leader_epoch, o.step, o.row
)
where life = life_for_sure

--- anomaly log-start-regression
with answer as (
    select *, lag(time_ns) over (partition by partition, node order by time_ns, row) as asked_after_ns
    from log_start where step = {NONE}
)
select distinct a.partition, a.node as reader, a.time_ns as end_ns, a.value as log_offset, a.row
from answer a
left join log_start d
    on d.partition = a.partition and d.life = a.life and d.step != {NONE} and d.value > a.value
    and d.time_ns <= a.asked_after_ns
left join answer b
    on b.partition = a.partition and b.life = a.life and b.node = a.node and b.leader_epoch = a.leader_epoch
    and a.leader_epoch != {NONE} and b.value > a.value
    and (b.time_ns < a.time_ns or b.time_ns = a.time_ns and b.row < a.row)
where d.row is not null or b.row is not null

--- anomaly expired-early
with bound as (
    select partition, max(value) as last, coalesce(max(case when step != {NONE} then value end), 0) as deleted
    from log_start where value > 0 group by partition
),
earlier as (
    select s.partition, max(s.reached) as reached
    from log_start s join bound b on b.partition = s.partition where s.reached < b.last group by s.partition
),
remaining as (
    select partition, coalesce(max(case when node != {REMOTE_STORE} then bytes end), 0)
           + coalesce(max(case when node = {REMOTE_STORE} then bytes end), 0) as bytes
    from (
        select r.partition, r.node, sum(r.size) as bytes
        from replicas r join bound b on b.partition = r.partition
        where r.step = {NONE} and r.last_offset >= b.last group by r.partition, r.node
    )
    group by partition
),
judged as (
    select s.partition, s.client, s.sequence, s.log_offset, s.invoked_ns, p.retention_ns
    from sent s
    join fact_partitions p on p.partition = s.partition and p.retention_ns is not null
    join bound b on b.partition = s.partition and s.log_offset < b.last and s.log_offset >= b.deleted
    left join earlier e on e.partition = s.partition
    left join remaining m on m.partition = s.partition
    left join (
        select partition, key, max(if(outcome = {OK} and log_offset != {NONE}, log_offset, {FOREVER})) as last
        from sent where outcome != {FAIL} group by partition, key
    ) k on k.partition = s.partition and k.key = s.key
    where (not p.compacted or k.last = s.log_offset) and s.outcome = {OK} and s.log_offset != {NONE}
      and (p.retention_bytes is null
           or m.bytes > 0 and m.bytes < p.retention_bytes and s.log_offset >= coalesce(e.reached, 0))
)
select j.partition, j.client, j.sequence, j.log_offset
from judged j join log_start s on s.partition = j.partition and s.value > j.log_offset
group by j.partition, j.client, j.sequence, j.log_offset, j.invoked_ns, j.retention_ns
having min(s.time_ns) - j.invoked_ns < j.retention_ns - 1000000

--- anomaly undeleted
with gone as (
    select m.partition, m.time_ns, m.log_position, m.topic_id_high, m.topic_id_low, p.delete_delay_ns, p.error_ns
    from metadata m join fact_partitions p on p.partition = m.partition
    where m.kind = {DELETED} and m.source = {TRUTH}
)
select m.partition, m.node as reader, m.time_ns as end_ns
from metadata m join gone g using (partition, topic_id_high, topic_id_low)
where m.kind = {MetadataKind.ON_DISK}
  and m.time_ns > g.time_ns + g.error_ns + if(m.leader = 0, 15000000000L, 45000000000L + g.delete_delay_ns)
union all
select m.partition, {NONE}, m.time_ns
from metadata m join gone g using (partition, topic_id_high, topic_id_low)
where m.kind = {OF_PARTITION} and m.source = {TRUTH} and m.log_position > g.log_position
