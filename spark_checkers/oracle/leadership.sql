-- The second opinion on who leads, who acknowledges, and who controls.

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
