-- The second opinion on readers, replicas, leaders and compaction: one text for each anomaly.

--- fragment acknowledged_by_key
-- Acknowledged records with a key and an offset, of compacted partitions, that the audit should have passed.
select s.* from sent s
join fact_partitions p on p.partition = s.partition and p.compacted and p.end_uncommitted is not null
left anti join passed_over o on o.partition = s.partition
left join sentinel e on e.partition = s.partition
where s.outcome = {OK} and s.key != {NONE} and s.log_offset != {NONE}
  and not (e.sentinel_ns is not null and s.log_offset > p.end_uncommitted and s.completed_ns >= e.sentinel_ns)

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

--- view alike
-- Partitions that have several copies, and between which offsets those must be alike.
select p.partition, p.compacted, max(c.log_start) as low,
       greatest(coalesce(max(p.end_uncommitted), -1) + 1, min(coalesce(c.high_watermark, 0))) as high
from fact_partitions p
join fact_copies c on c.partition = p.partition
join (select partition, count(*) as nodes from fact_assignment group by partition) a
    on a.partition = p.partition and a.nodes >= 2
group by p.partition, p.compacted

--- view batch
-- The batches of each copy there, and what of their headers must be alike.
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

--- anomaly diverged
with uneven as (
    select b.partition, b.base_offset
    from batch b
    join (select partition, count(*) as copies from fact_copies group by partition) c on c.partition = b.partition
    group by b.partition, b.base_offset
    having count(distinct b.header) > 1 or count(distinct b.node) != max(c.copies)
),
place as (
    select distinct b.partition, b.compacted, b.base_offset, u.partition is not null as uneven
    from batch b
    left join uneven u on u.partition = b.partition and u.base_offset = b.base_offset
),
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
    select p.partition, p.base_offset, one.node as one, other.node as other,
           not p.compacted and b.header is null and p.base_offset >= other.log_end as behind
    from place p
    join fact_copies one on one.partition = p.partition
    join fact_copies other on other.partition = p.partition and other.node != one.node
    left join batch a on a.partition = p.partition and a.node = one.node and a.base_offset = p.base_offset
    left join batch b on b.partition = p.partition and b.node = other.node and b.base_offset = p.base_offset
    left join within x on x.partition = p.partition and x.node = one.node and x.base_offset = p.base_offset
    left join within y on y.partition = p.partition and y.node = other.node and y.base_offset = p.base_offset
    where p.uneven and not (a.header <=> b.header)
      and (not p.compacted or (x.node is not null and y.node is not null))
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
select partition, reader, log_offset from (
    select c.partition, c.other as reader, c.base_offset as log_offset, c.behind,
           row_number() over (partition by c.partition, c.other, c.behind order by c.base_offset) as number
    from compared c join trusted t on t.partition = c.partition and t.one = c.one
)
where not behind or number = 1

--- anomaly watermark-regression
with made as (select partition, since_ns, error_ns from truth where life != life_before),
claims as (
    select * from (
        select o.partition, o.time_ns, o.value, o.node, o.leader_epoch, o.row,
               count_if(m.since_ns <= o.time_ns + m.error_ns) as life,
               count_if(m.since_ns <= o.time_ns - m.error_ns - 1000000000L) as life_for_sure
        from observations o left join made m on m.partition = o.partition
        where o.kind = {ObservationKind.LEADER_HIGH_WATERMARK} and o.node >= 0 and o.leader_epoch >= 0
        group by o.partition, o.time_ns, o.value, o.node, o.leader_epoch, o.row
    )
    where life = life_for_sure
),
answer as (
    select partition, time_ns, value, node, leader_epoch, life, row,
           lag(time_ns) over (partition by partition, node order by time_ns, row) as asked_after_ns
    from claims
)
select distinct a.partition, a.node as reader, a.time_ns as end_ns, a.value as log_offset, a.row
from answer a
join answer b
    on b.partition = a.partition and b.life = a.life and b.leader_epoch <= a.leader_epoch and b.value > a.value
    and b.time_ns <= a.asked_after_ns

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

--- anomaly epoch-regression
select partition, node as reader, time_ns as end_ns, cast(leader_epoch as bigint) as sequence from (
    select *, lag(leader_epoch) over (partition by partition, node order by time_ns, row) as before
    from metadata
    where source = {SAMPLE} and kind = {OF_PARTITION} and leader_epoch >= 0 and partition != {NONE}
)
where leader_epoch < before
union all
select partition, node, read_ns, cast(leader_epoch as bigint) from (
    select *, lag(leader_epoch) over (partition by partition, node, step order by row) as before,
           lag(last_offset) over (partition by partition, node, step order by row) as reached
    from replicas where leader_epoch >= 0
)
where leader_epoch < before and base_offset > reached
union all
select partition, client, read_ns, cast(leader_epoch as bigint) from (
    select *, lag(leader_epoch) over (partition by partition, client, span order by row) as before,
           lag(log_offset) over (partition by partition, client, span order by row) as reached
    from reads where leader_epoch >= 0
)
where leader_epoch < before and log_offset > reached

--- anomaly under-acknowledged
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

--- anomaly unclean
with elected as (
    select *, isr_before | elr_before | if(replicas_before & ~replicas != 0, isr, 0) as eligible
    from truth
    where leader_before is not null and leader != leader_before and leader != {NONE} and life = life_before
)
select partition, leader as reader, since_ns as begin_ns
from elected
where (eligible >> leader) & 1 = 0 and not (isr_before = 0 and (last_known_before >> leader) & 1 = 1)

--- anomaly two-controllers
with claim as (
    select world, node, leader_epoch as epoch
    from metadata where kind = {OF_CONTROLLER} and source = {TRUTH}
    union
    select l.world, l.node, cast(e.value_micro div {MICRO} as int)
    from metrics l
    join metrics e on e.world = l.world and e.node = l.node and e.time_ns = l.time_ns
    where l.metric = {metric.quorum_leader} and e.metric = {metric.quorum_epoch}
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
        from metadata where kind = {OF_CONTROLLER} and source = {TRUTH}
    )
    where leader_epoch < before
),
both_kinds as (select * from again union all select * from fell)
select f.partition, b.reader, b.sequence
from both_kinds b
join (select world, cell, min(partition) as partition from fact_partitions where cell >= 0 group by world, cell) f
    on f.world = b.world

--- anomaly stale-controller
with answer as (
    select l.world, l.node, l.time_ns, l.value_micro div {MICRO} as leader, e.value_micro div {MICRO} as epoch
    from metrics l
    join metrics e on e.world = l.world and e.node = l.node and e.time_ns = l.time_ns
    where l.metric = {metric.quorum_leader} and e.metric = {metric.quorum_epoch}
      and l.absent = 0 and e.absent = 0
),
claim as (
    select world, node, leader_epoch as epoch, time_ns
    from metadata where kind = {OF_CONTROLLER} and source = {TRUTH}
    union all
    select world, node, epoch, time_ns from answer where leader = node
),
replaced as (
    select a.world, a.node, a.epoch, min(c.time_ns) as begin_ns
    from (select distinct world, node, epoch from answer where leader = node) a
    join claim c on c.world = a.world and c.epoch > a.epoch and c.node != a.node
    group by a.world, a.node, a.epoch
),
went_on as (
    select r.*, a.time_ns,
           sum(if(a.leader = r.node and a.epoch = r.epoch and a.time_ns - a.before_ns <= 2500000000L, 0, 1)) over (
               partition by r.world, r.node, r.epoch order by a.time_ns
           ) as ended
    from replaced r
    join (
        select q.world, q.node as of, q.epoch as of_epoch, a.*,
               coalesce(lag(a.time_ns) over (partition by q.world, q.node, q.epoch order by a.time_ns), q.begin_ns)
                   as before_ns
        from replaced q
        join (select node, world as of_world, time_ns, leader, epoch from answer) a
            on a.of_world = q.world and a.node = q.node and a.time_ns > q.begin_ns
    ) a on a.world = r.world and a.of = r.node and a.of_epoch = r.epoch
)
select f.partition, g.node as reader, g.epoch as sequence, g.begin_ns, g.end_ns
from (
    select world, node, epoch, begin_ns, max(time_ns) as end_ns
    from went_on where ended = 0 group by world, node, epoch, begin_ns
) g
join (select world, cell, min(partition) as partition from fact_partitions where cell >= 0 group by world, cell) f
    on f.world = g.world
where g.end_ns - g.begin_ns > 5000000000L
