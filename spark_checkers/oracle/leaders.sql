-- The second opinion on partitions that have no leader within reach although another replica could have led.

--- view reign
-- The stretches of the controllers' log that name one leader, or none; and who could lead in all of it.
with state as (
    select t.*, f.world as of_world, f.cell, t.isr | t.elr as members,
           lag(t.leader) over (partition by t.partition order by t.number) as named_before,
           lag(t.kind) over (partition by t.partition order by t.number) as kind_before
    from truth t join fact_partitions f on f.partition = t.partition
),
numbered as (
    select *, sum(if(named_before is null or leader != named_before or kind != kind_before, 1, 0)) over (
                  partition by partition order by number
              ) as island
    from state
),
whole as (
    select of_world as world, cell, partition, island, min(since_ns) as begin_ns, min_by(leader, number) as leader,
           min_by(leader_epoch, number) as epoch, min_by(kind, number) as kind,
           bit_and(if(members = 0, last_known_elr, members)) as eligible, max_by(time_ns, number) as last_row_ns
    from numbered group by of_world, cell, partition, island
),
heard as (
    select s.world, s.cell, max(h.time_ns) as last_ns
    from fact_serving s join heartbeats h on h.world = s.world and h.client = s.client
    group by s.world, s.cell
),
observed as (select partition, max(time_ns) as last_ns from observations group by partition)
select w.*,
       coalesce(
           lead(w.begin_ns) over (partition by w.partition order by w.island),
           greatest(w.last_row_ns, h.last_ns, o.last_ns)
       ) as end_ns,
       last_value(if(w.leader = {NONE}, null, w.leader)) ignore nulls over (
           partition by w.partition order by w.island rows between unbounded preceding and 1 preceding
       ) as before
from whole w
left join heard h on h.world = w.world and h.cell = w.cell
left join observed o on o.partition = w.partition

--- view fenced
-- When a broker was fenced, by the controllers' log, or not registered yet.
with claims as (
    select world, node, time_ns, log_position, row, kind = {MetadataKind.BROKER_UNFENCED} as free
    from metadata
    where source = {TRUTH} and kind in (
        {MetadataKind.BROKER_REGISTERED}, {MetadataKind.BROKER_FENCED},
        {MetadataKind.BROKER_UNFENCED}
    )
    union all
    select w.world, n.node, -{FAR}L, -{FAR}L, -1, false
    from (select distinct world from fact_partitions) w cross join (select explode(sequence(0, 62)) as node) n
),
changed as (
    select * from (
        select *, lag(free) over (partition by world, node order by log_position, row) as before from claims
    )
    where before is null or free != before
)
select world, node, begin_ns, end_ns from (
    select world, node, free, time_ns as begin_ns,
           coalesce(lead(time_ns) over (partition by world, node order by log_position, row), {FAR}L) as end_ns
    from changed
)
where not free

--- anomaly leaderless
with span as (
    select r.*, r.begin_ns as from_ns, r.end_ns as to_ns from reign r where r.leader = {NONE}
    union all
    select r.*, greatest(r.begin_ns, o.begin_ns), least(r.end_ns, o.end_ns)
    from reign r join fact_out o on o.world = r.world and o.node = r.leader
),
candidate as (
    select s.*, n.node, c.new_leader_ns
    from span s
    join fact_cells c on c.world = s.world and c.cell = s.cell
    cross join (select explode(sequence(0, 62)) as node) n
    where s.kind != {DELETED} and s.to_ns - s.from_ns >= c.new_leader_ns
      and (s.eligible >> n.node) & 1 = 1 and n.node != s.leader
),
blocker as (select world, node, begin_ns, end_ns from fact_out union all select * from fenced),
start as (
    select c.*, c.from_ns as since_ns from candidate c
    union all
    select c.*, b.end_ns from candidate c
    join blocker b on b.world = c.world and b.node = c.node and b.end_ns > c.from_ns and b.end_ns < c.to_ns
),
run as (
    select s.partition, s.island, s.from_ns, s.world, s.cell, s.leader, s.before, s.epoch, s.node, s.since_ns,
           s.new_leader_ns, least(s.to_ns, min(b.begin_ns)) as until_ns
    from start s
    left join blocker b on b.world = s.world and b.node = s.node and b.end_ns > s.since_ns
    group by s.partition, s.island, s.from_ns, s.world, s.cell, s.leader, s.before, s.epoch, s.node, s.since_ns,
             s.new_leader_ns, s.to_ns
),
first_run as (
    select * from (
        select *, row_number() over (partition by partition, island, from_ns order by since_ns, node) as place
        from run where until_ns - since_ns >= new_leader_ns
    )
    where place = 1
),
gap as (
    select * from (
        select world, cell, time_ns,
               lag(time_ns) over (partition by world, cell order by time_ns) as before_ns
        from (
            select distinct s.world, s.cell, h.time_ns
            from fact_serving s join heartbeats h on h.world = s.world and h.client = s.client
        )
    )
    where time_ns - before_ns > {GAP_NS}L
)
select r.partition, r.node as reader, r.since_ns as begin_ns, r.until_ns as end_ns,
       coalesce(if(r.leader = {NONE}, r.before, r.leader), {NONE}) as other_client, r.epoch as sequence,
       if(count(g.time_ns) > 0, {ProgressCase.STOOD_STILL}, {ProgressCase.LEADER}) as case
from first_run r
left join gap g on g.world = r.world and g.cell = r.cell and g.before_ns < r.until_ns and g.time_ns > r.since_ns
group by r.partition, r.island, r.from_ns, r.node, r.since_ns, r.until_ns, r.leader, r.before, r.epoch
